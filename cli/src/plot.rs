//! Diagrams as SVG: bars, lines and levels over linear or logarithmic axes. Each element has its
//! colour as an attribute, which every renderer draws; a style sheet replaces the colours for a
//! reader who prefers dark pages. No scripts: a tooltip is an element `title`.

use crate::formatting;
use ebbtide::units::is_hidden;
use std::fmt::Write;

/// The size of a diagram.
pub const WIDTH: f64 = 720.0;
pub const HEIGHT: f64 = 300.0;

/// The margins: left, right, top, bottom.
const LEFT: f64 = 78.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 44.0;

/// The colours of series.
const SERIES: [&str; 7] =
    ["#0b62c4", "#c2410c", "#15803d", "#7e22ce", "#0e7490", "#be185d", "#854d0e"];

/// The colours of the background, of titles, of other text and axes, and of lines behind them.
const PAPER: &str = "#ffffff";
const INK: &str = "#1f2328";
const SOFT: &str = "#59636e";
const GRID: &str = "#dde2e8";

/// The font of all text, as attributes.
const FONT: &str = "font-family=\"system-ui, sans-serif\" font-size=\"12\"";

/// The style sheet of diagrams: their colours on a dark page.
pub const STYLE: &str = "\
@media(prefers-color-scheme:dark){svg .paper{fill:#11161d}svg text{fill:#9aa6b2}\
svg .title{fill:#e6edf3}svg .grid{stroke:#2b333d}svg .axis{stroke:#9aa6b2}\
.s0{stroke:#6cb0ff}.s1{stroke:#ff9f5e}.s2{stroke:#63d087}.s3{stroke:#c79bff}\
.s4{stroke:#5fd0e0}.s5{stroke:#ff8fc0}.s6{stroke:#e0b955}\
.f0{fill:#6cb0ff}.f1{fill:#ff9f5e}.f2{fill:#63d087}.f3{fill:#c79bff}.f4{fill:#5fd0e0}\
.f5{fill:#ff8fc0}.f6{fill:#e0b955}}";

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    Linear,
    Log,
}

/// An axis. Its range is that of the data, and of `includes`.
#[derive(Debug, Clone)]
pub struct Axis {
    pub label: String,
    pub scale: Scale,
    pub includes: Vec<f64>,
}

impl Axis {
    /// Creates a linear axis that begins at 0.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear, includes: vec![0.0] }
    }

    /// Creates a logarithmic axis.
    pub fn log(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Log, includes: Vec::new() }
    }
}

/// A bar, with the text of its place on the x axis.
#[derive(Debug, Clone)]
pub struct Bar {
    pub label: String,
    pub value: f64,
}

/// What a diagram shows.
#[derive(Debug, Clone)]
pub enum Marks {
    /// Bars side by side; the x axis has no numbers then.
    Bars(Vec<Bar>),
    /// A line through points.
    Line { name: String, points: Vec<(f64, f64)> },
    /// A dashed line across the diagram.
    Level { name: String, y: f64 },
}

/// A diagram.
#[derive(Debug, Clone)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub marks: Vec<Marks>,
}

/// Escapes text for HTML and SVG.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            // Control characters are not allowed in XML, not even as a reference.
            hidden if is_hidden(hidden) && !"\n\t".contains(hidden) => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

/// Returns diagrams one below the other as a picture of its own, with a heading.
pub fn picture(heading: &str, charts: &[Chart]) -> String {
    let height = 40.0 + (HEIGHT + 20.0) * charts.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" {FONT}><style>{STYLE}</style>\
         <rect class=\"paper\" fill=\"{PAPER}\" width=\"100%\" height=\"100%\"/>\
         {}\n",
        title(heading, 26)
    );
    for (at, chart) in charts.iter().enumerate() {
        let y = 40.0 + (HEIGHT + 20.0) * at as f64;
        // Writing to a string never fails.
        let _ = writeln!(text, "<g transform=\"translate(0 {y})\">{}</g>", chart.content());
    }
    text + "</svg>\n"
}

/// Returns the heading of a picture or a diagram.
fn title(title: &str, y: u32) -> String {
    format!(
        "<text class=\"title\" fill=\"{INK}\" font-size=\"15\" font-weight=\"600\" x=\"16\" \
         y=\"{y}\">{}</text>",
        escaped(title)
    )
}

/// Returns the attributes of the line of a series, or of a level of it.
fn stroke(colour: usize, is_level: bool) -> String {
    let dashes = if is_level { " stroke-dasharray=\"5 4\"" } else { "" };
    format!(
        "class=\"s{colour}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" \
         stroke-linejoin=\"round\"{dashes}",
        SERIES[colour]
    )
}

impl Chart {
    /// Returns the diagram as an element of a page.
    pub fn element(&self) -> String {
        let (title, content) = (escaped(&self.title), self.content());
        format!(
            "<svg role=\"img\" aria-label=\"{title}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             {FONT}>{content}</svg>\n"
        )
    }

    fn content(&self) -> String {
        let bars = self.marks.iter().find_map(|marks| match marks {
            Marks::Bars(bars) => Some(bars),
            _ => None,
        });
        let x = match bars {
            Some(bars) => Range { low: 0.0, high: bars.len().max(1) as f64, scale: Scale::Linear },
            None => Range::of(&self.x, self.points().map(|(x, _)| x)),
        };
        let y = Range::of(&self.y, self.points().map(|(_, y)| y));
        let mut text = title(&self.title, 20);
        self.legend(&mut text);
        y.ticks().iter().for_each(|&tick| y_tick(&mut text, &y, tick));
        match bars {
            Some(bars) => bar_labels(&mut text, bars),
            None => x.ticks().iter().for_each(|&tick| x_tick(&mut text, &x, tick)),
        }
        for (at, marks) in self.marks.iter().enumerate() {
            draw(&mut text, marks, (&x, &y), at % SERIES.len());
        }
        self.axis_labels(&mut text);
        text
    }

    /// Returns all points, for the ranges of the axes.
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.marks.iter().flat_map(|marks| match marks {
            Marks::Bars(bars) => bars.iter().map(|bar| (f64::NAN, bar.value)).collect(),
            Marks::Line { points, .. } => points.clone(),
            Marks::Level { y, .. } => vec![(f64::NAN, *y)],
        })
    }

    fn legend(&self, text: &mut String) {
        let mut x = LEFT;
        for (at, marks) in self.marks.iter().enumerate() {
            let (name, is_level) = match marks {
                Marks::Bars(_) => continue,
                Marks::Line { name, .. } => (name, false),
                Marks::Level { name, .. } => (name, true),
            };
            let (stroke, name) = (stroke(at % SERIES.len(), is_level), escaped(name));
            let _ = write!(
                text,
                "<path {stroke} d=\"M{x} 36h18\"/>\
                 <text fill=\"{SOFT}\" x=\"{}\" y=\"40\">{name}</text>",
                x + 22.0
            );
            x += 36.0 + 6.2 * name.chars().count() as f64;
        }
    }

    fn axis_labels(&self, text: &mut String) {
        let (middle, bottom) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - BOTTOM);
        let centre = (TOP + bottom) / 2.0;
        let _ = write!(
            text,
            "<path class=\"axis\" stroke=\"{SOFT}\" d=\"M{LEFT} {bottom}H{}\"/>\
             <text fill=\"{SOFT}\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text fill=\"{SOFT}\" transform=\"translate(14 {centre})rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            WIDTH - RIGHT,
            HEIGHT - 8.0,
            escaped(&self.x.label),
            escaped(&self.y.label)
        );
    }
}

/// The range of an axis.
struct Range {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Range {
    fn of(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let usable =
            |value: &f64| value.is_finite() && (axis.scale == Scale::Linear || *value > 0.0);
        let values = values.chain(axis.includes.iter().copied()).filter(usable);
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let (low, high) = if low > high { (0.5, 1.0) } else { (low, high) };
        match axis.scale {
            Scale::Linear if low == high => Self { low, high: low + 1.0, scale: axis.scale },
            Scale::Linear => Self { low, high: high + (high - low) * 0.04, scale: axis.scale },
            Scale::Log => {
                let (low, high) = (low.log10().floor(), high.log10().ceil());
                let high = if low == high { high + 1.0 } else { high };
                Self { low: 10_f64.powf(low), high: 10_f64.powf(high), scale: axis.scale }
            }
        }
    }

    /// Returns where a value lies, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.share(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.share(value) * (HEIGHT - TOP - BOTTOM)
    }

    /// Returns round numbers inside the range.
    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let rough = (self.high - self.low) / 5.0;
                let power = 10_f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
                let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
                let first = (self.low / step).ceil() as i64;
                // Rounded to the digits of a step, so that a tick is not 0.15000000000000002.
                let round = |tick: f64| (tick / power).round() * power;
                let ticks = (first..first + 12).map(|number| round(number as f64 * step));
                ticks.filter(|tick| *tick <= self.high).collect()
            }
            Scale::Log => {
                let (low, high) = (self.low.log10().round(), self.high.log10().round());
                let every = ((high - low) / 9.0).ceil().max(1.0) as i32;
                let exponents = (low as i32..=high as i32).step_by(every as usize);
                exponents.map(|exponent| 10_f64.powi(exponent)).collect()
            }
        }
    }
}

/// Formats the number of a tick.
fn number(value: f64) -> String {
    match value.abs() {
        small if small > 0.0 && small < 0.001 => format!("{value:e}"),
        large if large >= 10_000.0 => formatting::count(value),
        _ => formatting::significant(value),
    }
}

fn y_tick(text: &mut String, y: &Range, tick: f64) {
    let (at, label) = (y.y(tick), number(tick));
    let _ = write!(
        text,
        "<path class=\"grid\" stroke=\"{GRID}\" d=\"M{LEFT} {at:.1}H{}\"/>\
         <text fill=\"{SOFT}\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
        WIDTH - RIGHT,
        LEFT - 6.0,
        at + 4.0
    );
}

fn x_tick(text: &mut String, x: &Range, tick: f64) {
    let (at, bottom, label) = (x.x(tick), HEIGHT - BOTTOM, number(tick));
    let _ = write!(
        text,
        "<path class=\"grid\" stroke=\"{GRID}\" d=\"M{at:.1} {TOP}V{bottom}\"/>\
         <text fill=\"{SOFT}\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
        bottom + 16.0
    );
}

/// Writes the texts below bars, as many as have room.
fn bar_labels(text: &mut String, bars: &[Bar]) {
    let longest = bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
    let room = (WIDTH - LEFT - RIGHT) / (7.0 * longest as f64 + 10.0);
    let every = (bars.len() as f64 / room.max(1.0)).ceil().max(1.0) as usize;
    let step = (WIDTH - LEFT - RIGHT) / bars.len().max(1) as f64;
    for (at, bar) in bars.iter().enumerate().step_by(every) {
        let (x, y) = (LEFT + (at as f64 + 0.5) * step, HEIGHT - BOTTOM + 16.0);
        let label = escaped(&bar.label);
        let _ = write!(
            text,
            "<text fill=\"{SOFT}\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>"
        );
    }
}

fn draw(text: &mut String, marks: &Marks, (x, y): (&Range, &Range), colour: usize) {
    match marks {
        Marks::Bars(bars) => {
            let step = (WIDTH - LEFT - RIGHT) / bars.len().max(1) as f64;
            let width = (step * 0.86).max(0.5);
            for (at, bar) in bars.iter().enumerate() {
                let (left, top) = (LEFT + at as f64 * step + (step - width) / 2.0, y.y(bar.value));
                let (height, label) = (HEIGHT - BOTTOM - top, escaped(&bar.label));
                let fill = SERIES[colour];
                let _ = write!(
                    text,
                    "<rect class=\"f{colour}\" fill=\"{fill}\" x=\"{left:.1}\" y=\"{top:.1}\" \
                     width=\"{width:.2}\" height=\"{height:.1}\"><title>{label}: {}</title></rect>",
                    formatting::significant(bar.value)
                );
            }
        }
        Marks::Line { points, name } => {
            let usable = |point: &&(f64, f64)| point.0.is_finite() && point.1.is_finite();
            let path = points.iter().filter(usable).enumerate().map(|(at, &(px, py))| {
                format!("{}{:.1} {:.1}", if at == 0 { 'M' } else { 'L' }, x.x(px), y.y(py))
            });
            let path: String = path.collect();
            let (stroke, name) = (stroke(colour, false), escaped(name));
            let _ = write!(text, "<path {stroke} d=\"{path}\"><title>{name}</title></path>");
        }
        Marks::Level { y: level, name } => {
            let (at, name, stroke) = (y.y(*level), escaped(name), stroke(colour, true));
            let _ = write!(
                text,
                "<path {stroke} d=\"M{LEFT} {at:.1}H{}\">\
                 <title>{name}: {}</title></path>",
                WIDTH - RIGHT,
                formatting::significant(*level)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(scale: Scale, low: f64, high: f64) -> Range {
        Range { low, high, scale }
    }

    #[test]
    fn ticks_are_round_numbers_inside_the_range() {
        assert_eq!(range(Scale::Linear, 0.0, 1.04).ticks(), [0.0, 0.5, 1.0]);
        assert_eq!(range(Scale::Linear, 0.0, 10.0).ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(range(Scale::Log, 0.001, 1.0).ticks(), [0.001, 0.01, 0.1, 1.0]);
        assert!(range(Scale::Log, 1e-30, 1.0).ticks().len() <= 11);
    }

    #[test]
    fn empty_and_odd_data_give_a_diagram_without_odd_numbers() {
        for scale in [Scale::Linear, Scale::Log] {
            let axis = || Axis { label: "a<b".to_owned(), scale, includes: Vec::new() };
            let odd = [(f64::NAN, 1.0), (1.0, f64::INFINITY), (0.0, 0.0), (-1.0, -2.0)];
            for points in [Vec::new(), odd.to_vec()] {
                let marks = vec![
                    Marks::Line { name: "x\u{1}".to_owned(), points },
                    Marks::Level { name: "level".to_owned(), y: 0.0 },
                ];
                let chart = Chart { title: "t & u".to_owned(), x: axis(), y: axis(), marks };
                let text = picture("h", &[chart]);
                assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
                assert!(text.contains("t &amp; u") && text.contains("a&lt;b"));
                assert!(!text.contains('\u{1}'));
            }
        }
    }

    #[test]
    fn every_element_has_a_literal_colour_of_its_own() {
        let bars = vec![Bar { label: "b".to_owned(), value: 1.0 }];
        let line = |at: usize| Marks::Line { name: at.to_string(), points: vec![(1.0, 1.0)] };
        let mut all: Vec<_> = (0..9).map(line).collect();
        all.push(Marks::Level { name: "level".to_owned(), y: 1.0 });
        let charts = [vec![Marks::Bars(bars)], all].map(|marks| {
            let (x, y) = (Axis::linear("x"), Axis::linear("y"));
            Chart { title: "t".to_owned(), x, y, marks }
        });
        let text = picture("h", &charts);
        assert!(!text.contains("var("), "{text}");
        for name in ["<text ", "<rect ", "<path "] {
            let attribute = if name == "<path " { "stroke=\"#" } else { "fill=\"#" };
            for element in text.split(name).skip(1) {
                let element = element.split('>').next().expect("its end");
                assert!(element.contains(attribute), "{name}{element}");
            }
        }
    }

    #[test]
    fn a_bar_is_as_high_as_its_value() {
        let bars = [0.0, 0.5, 1.0].map(|value| Bar { label: "b".to_owned(), value });
        let y = Axis { includes: vec![0.0, 1.0], ..Axis::linear("y") };
        let marks = vec![Marks::Bars(bars.to_vec())];
        let chart = Chart { title: String::new(), x: Axis::linear("x"), y, marks };
        let text = chart.element();
        let heights: Vec<f64> = text
            .split("<rect ")
            .skip(1)
            .filter_map(|bar| bar.split(" height=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert!(heights[0] == 0.0 && (heights[1] * 2.0 - heights[2]).abs() < 0.2, "{heights:?}");
    }
}
