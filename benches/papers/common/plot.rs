//! Draws figures as SVG files in `target/papers/`. Text stays text in them, so no fonts are needed
//! here.

use plotters::prelude::*;
use std::error::Error;
use std::fs;
use std::path::Path;

/// A line of a figure.
pub struct Curve {
    /// The text of the legend.
    pub name: String,
    /// The points from left to right.
    pub points: Vec<(f64, f64)>,
}

/// The scale of the vertical axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// From zero on.
    Linear,
    /// By powers of ten; values that are not above zero are omitted.
    Logarithmic,
}

/// The description of a figure.
pub struct Figure<'a> {
    /// The file's name without `.svg`.
    pub file: &'a str,
    /// The title.
    pub title: &'a str,
    /// The label of the horizontal axis.
    pub x: &'a str,
    /// The label and the scale of the vertical axis.
    pub y: (&'a str, Scale),
}

const SIZE: (u32, u32) = (900, 540);

/// Draws a figure.
///
/// # Errors
/// If the file cannot be written.
pub fn draw(figure: &Figure<'_>, curves: &[Curve]) -> Result<(), Box<dyn Error>> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap_or(Path::new("target"));
    let folder = target.join("papers");
    fs::create_dir_all(&folder)?;
    let path = folder.join(figure.file).with_extension("svg");
    let (label, scale) = figure.y;
    let on_axis = |&(x, y): &(f64, f64)| match scale {
        Scale::Linear => Some((x, y)),
        Scale::Logarithmic => (y > 0.0).then(|| (x, y.log10())),
    };
    let lines: Vec<Vec<(f64, f64)>> =
        curves.iter().map(|curve| curve.points.iter().filter_map(on_axis).collect()).collect();
    let all = || lines.iter().flatten();
    let right = all().map(|point| point.0).fold(0.0, f64::max);
    let least = all().map(|point| point.1).reduce(f64::min).unwrap_or(0.0);
    let most = all().map(|point| point.1).reduce(f64::max).unwrap_or(1.0);
    let (low, high) = match scale {
        Scale::Linear => (0.0, 1.05 * most),
        Scale::Logarithmic => (least.floor(), most.ceil()),
    };
    {
        let root = SVGBackend::new(&path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(figure.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..right, low..high.max(low + 1e-3))?;
        let text = |y: &f64| match scale {
            Scale::Linear if high >= 1e5 => format!("{y:.1e}"),
            Scale::Linear if high < 5.0 => format!("{y:.2}"),
            Scale::Linear => format!("{y:.0}"),
            Scale::Logarithmic => format!("{:.1e}", 10_f64.powf(*y)),
        };
        let place = |x: &f64| if right < 5.0 { format!("{x:.1}") } else { format!("{x:.0}") };
        let mut mesh = chart.configure_mesh();
        mesh.x_label_formatter(&place)
            .x_desc(figure.x)
            .y_desc(label)
            .y_label_formatter(&text)
            .draw()?;
        for (index, (curve, line)) in curves.iter().zip(lines).enumerate() {
            let colour = Palette99::pick(index).to_rgba();
            chart
                .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
                .label(&curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        }
        let labels = chart.configure_series_labels();
        { labels }.background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
        root.present()?;
    }
    println!("plot: {}", path.display());
    Ok(())
}
