//! Draws horizontal bars on a logarithmic scale, a panel for each figure, as SVG: all figures of a
//! stream below each other, and the two that matter most side by side. Text stays text, so no fonts
//! are needed here.

use crate::measure::Sample;
use crate::peers::{Durability, Entry, Result};
use crate::report::{Figure, Row, Scene, short};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: i32 = 900;
/// The space for the names of peers, and for figures behind bars.
const NAMES: i32 = 150;
const FIGURES: i32 = 80;
/// Heights: a panel's title, a bar with the space around it, the axis.
const TITLE: i32 = 34;
const BAR: i32 = 22;
const AXIS: i32 = 30;

const OUR_COLOUR: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const OTHER_COLOUR: RGBColor = RGBColor(0x9a, 0xa5, 0xb1);
const LINE_COLOUR: RGBColor = RGBColor(0xe0, 0xe4, 0xe8);

/// One figure of all peers that have it.
struct Panel {
    title: String,
    bars: Vec<(&'static Entry, f64)>,
}

impl Panel {
    fn new(title: String, rows: &[Row], figure: Figure, scale: f64) -> Self {
        let bars = rows.iter().map(|row| (row.entry, row.median(figure) / scale));
        // A zero has no position on a logarithmic scale.
        Self { title, bars: bars.filter(|bar| bar.1 > 0.0).collect() }
    }

    fn height(&self) -> i32 {
        TITLE + BAR * self.bars.len() as i32 + AXIS
    }

    /// Returns the powers of ten around all bars.
    fn decades(&self) -> (i32, i32) {
        let logs = || self.bars.iter().map(|bar| bar.1.log10());
        let low = logs().fold(f64::INFINITY, f64::min).floor() as i32;
        let high = logs().fold(f64::NEG_INFINITY, f64::max).ceil() as i32;
        (low, high.max(low + 1))
    }
}

/// Returns the panels of a scene: time, and without fsync also space.
fn panels(scene: &Scene) -> Vec<Panel> {
    let (title, rows, keys) = (scene.title(), &scene.rows, scene.distinct as f64);
    let panel =
        |what: &str, figure, scale| Panel::new(format!("{what}: {title}"), rows, figure, scale);
    let mut panels = vec![panel("ns per operation", Sample::each, 1.0)];
    if scene.durability == Durability::None {
        panels.push(panel("bytes of memory per key", |sample| sample.memory, keys));
        panels.push(panel(
            "bytes of memory per key after a checkpoint",
            |sample| sample.at_rest,
            keys,
        ));
        panels.push(panel("bytes of disk per key after a checkpoint", |sample| sample.disk, keys));
    }
    panels.retain(|panel| !panel.bars.is_empty());
    panels
}

/// Draws the measurements of a stream, if there are any.
pub fn draw(path: &Path, scenes: &[Scene]) -> Result<()> {
    let panels: Vec<Panel> = scenes.iter().flat_map(panels).collect();
    if panels.is_empty() {
        return Ok(());
    }
    let height: i32 = panels.iter().map(Panel::height).sum();
    let mut rest = SVGBackend::new(path, (WIDTH as u32, height as u32)).into_drawing_area();
    rest.fill(&WHITE)?;
    for panel in &panels {
        let (area, below) = rest.split_vertically(panel.height());
        draw_panel(&area, panel)?;
        rest = below;
    }
    rest.present()?;
    Ok(())
}

/// Peers of the summary: what users would pick, and what keeps its data through a power cut.
const SUMMARY: [&str; 6] = ["ebbtide", "lmdb-safe", "fjall", "rocksdb", "sqlite", "redis"];

/// Draws operations per second and bytes of memory per key side by side, of the first scene without
/// fsync; returns whether there is one.
pub fn draw_summary(path: &Path, scenes: &[Scene]) -> Result<bool> {
    let Some(scene) = scenes.iter().find(|scene| scene.durability == Durability::None) else {
        return Ok(false);
    };
    let panel = |title: &str, figure, scale| {
        let mut panel = Panel::new(title.to_owned(), &scene.rows, figure, scale);
        panel.bars.retain(|bar| SUMMARY.contains(&bar.0.name));
        panel
    };
    let speed = panel("thousand operations per second", |sample| 1e6 / sample.each(), 1.0);
    let memory = panel("bytes of memory per key", |sample| sample.memory, scene.distinct as f64);
    let height = speed.height().max(memory.height());
    let root = SVGBackend::new(path, (WIDTH as u32, height as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(WIDTH / 2);
    draw_panel(&left, &speed)?;
    draw_panel(&right, &memory)?;
    root.present()?;
    Ok(true)
}

fn draw_panel(area: &Area<'_>, panel: &Panel) -> Result<()> {
    let (low, high) = panel.decades();
    let (width, _) = area.dim_in_pixel();
    let length = width as i32 - NAMES - FIGURES;
    let across = |log: f64| {
        let part = (log - f64::from(low)) / f64::from(high - low);
        NAMES + (part * f64::from(length)).round() as i32
    };
    let text = |size: i32| ("sans-serif", size).into_text_style(area).color(&BLACK);
    let bottom = TITLE + BAR * panel.bars.len() as i32;
    let title = text(18).pos(Pos::new(HPos::Left, VPos::Center));
    area.draw(&Text::new(panel.title.clone(), (12, TITLE / 2), title))?;
    let under = text(14).pos(Pos::new(HPos::Center, VPos::Top));
    for decade in low..=high {
        let x = across(f64::from(decade));
        area.draw(&PathElement::new([(x, TITLE), (x, bottom)], LINE_COLOUR))?;
        let label = power_of_ten(decade);
        area.draw(&Text::new(label, (x, bottom + 4), under.clone()))?;
    }
    let before = text(16).pos(Pos::new(HPos::Right, VPos::Center));
    let behind = text(15).pos(Pos::new(HPos::Left, VPos::Center));
    for (row, &(entry, value)) in panel.bars.iter().enumerate() {
        let top = TITLE + BAR * row as i32;
        let (middle, end) = (top + BAR / 2, across(value.log10()));
        let colour = if entry.is_ours() { OUR_COLOUR } else { OTHER_COLOUR };
        area.draw(&Rectangle::new([(NAMES, top + 3), (end, top + BAR - 3)], colour.filled()))?;
        area.draw(&Text::new(entry.name, (NAMES - 6, middle), before.clone()))?;
        area.draw(&Text::new(short(value), (end + 5, middle), behind.clone()))?;
    }
    Ok(())
}

fn power_of_ten(decade: i32) -> String {
    let digits = usize::try_from(-decade).unwrap_or(0);
    format!("{:.digits$}", 10_f64.powi(decade))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_holds_all_bars() {
        let panel = |values: &[f64]| {
            let lmdb = Entry::named("lmdb").expect("a peer");
            let bars = values.iter().map(|&value| (lmdb, value)).collect();
            Panel { title: String::new(), bars }.decades()
        };
        assert_eq!(panel(&[3.5, 120.0]), (0, 3));
        assert_eq!(panel(&[0.02]), (-2, -1));
        assert_eq!(panel(&[100.0]), (2, 3));
    }

    #[test]
    fn all_peers_of_the_summary_exist_but_one_that_need_not_be_compiled_in() {
        let known = |name: &str| Entry::named(name).is_some();
        let unknown: Vec<_> = SUMMARY.into_iter().filter(|name| !known(name)).collect();
        assert!(unknown.is_empty() || unknown == ["rocksdb"], "{unknown:?}");
    }

    #[test]
    fn powers_of_ten_are_written_out() {
        assert_eq!([-2, 0, 3].map(power_of_ten), ["0.01", "1", "1000"]);
    }
}
