//! The view of `top`: draws one filter, and a line with all of them.

use super::shown::Shown;
use crate::commands::observer::{self, Observation};
use crate::formatting;
use ebbtide::Timestamp;
use ebbtide::units::visible;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Bar, BarChart, BarGroup, Block, LineGauge, Paragraph, Row, Sparkline, Table, Widget, Wrap,
};

const GOOD: Color = Color::Green;
const WATCHED: Color = Color::Yellow;
const BAD: Color = Color::Red;

/// The units of a bar's height.
const BAR_UNITS: f64 = 1000.0;

/// Draws the selected filter.
pub fn draw(buffer: &mut Buffer, area: Rect, shown: &[Shown], selected: usize) {
    let [tabs, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    draw_tabs(buffer, tabs, shown, selected);
    let Some(current) = shown.get(selected) else { return };
    match &current.seen {
        Ok(seen) => draw_filter(buffer, body, current, seen),
        Err(error) => Paragraph::new(error.as_str())
            .wrap(Wrap { trim: true })
            .style(Style::new().fg(BAD))
            .render(body, buffer),
    }
}

fn draw_tabs(buffer: &mut Buffer, area: Rect, shown: &[Shown], selected: usize) {
    let mut spans = Vec::new();
    for (at, one) in shown.iter().enumerate() {
        let name = one.dir.file_name().unwrap_or(one.dir.as_os_str());
        let name = visible(&name.to_string_lossy());
        let is_bad = one.seen.as_ref().map_or(true, |seen| !seen.remarks.is_empty());
        let mark = if is_bad { "!" } else { "" };
        let style = match (at == selected, is_bad) {
            (true, _) => Style::new().add_modifier(Modifier::REVERSED),
            (false, true) => Style::new().fg(WATCHED),
            (false, false) => Style::new(),
        };
        spans.extend([Span::styled(format!(" {} {name}{mark} ", at + 1), style), Span::raw(" ")]);
    }
    let [left, right] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(16)]).areas(area);
    Line::from(spans).render(left, buffer);
    Line::from("Tab next  q quit").render(right, buffer);
}

fn draw_filter(buffer: &mut Buffer, area: Rect, shown: &Shown, seen: &Observation) {
    let remarks = seen.remarks.len().min(6) as u16;
    let handles = (seen.details.slots.len().min(12) + 3) as u16;
    let generations = if seen.details.generations.is_empty() { 0 } else { 10 };
    let [head, rates, gauges, bars, table, notes] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(6),
        Constraint::Length(5),
        Constraint::Length(generations),
        Constraint::Length(handles),
        Constraint::Length(if remarks == 0 { 0 } else { 2 * remarks + 2 }),
    ])
    .areas(area);
    draw_head(buffer, head, shown, seen);
    draw_rates(buffer, rates, shown, seen);
    draw_gauges(buffer, gauges, seen);
    draw_generations(buffer, bars, seen);
    draw_handles(buffer, table, seen);
    if remarks > 0 {
        let lines: Vec<_> = seen.remarks.iter().map(|remark| Line::from(remark.as_str())).collect();
        Paragraph::new(lines)
            .wrap(Wrap { trim: true })
            .style(Style::new().fg(BAD))
            .block(Block::bordered().title(" Remarks "))
            .render(notes, buffer);
    }
}

fn draw_head(buffer: &mut Buffer, area: Rect, shown: &Shown, seen: &Observation) {
    let stat = &seen.stat;
    let step = stat.step.map_or_else(String::new, |step| format!(", step {step}"));
    let time = stat.time.map_or_else(String::new, |time| {
        let seconds = time.as_unix_micros() / 1_000_000 * 1_000_000;
        let time = Timestamp::from_unix_micros(seconds);
        format!(", time {}", formatting::date(time).unwrap_or_else(|| formatting::time(time)))
    });
    let oldest = seen.oldest().map_or_else(|| "-".to_owned(), observer::age);
    let lines = vec![
        Line::from(format!(
            "{}: {}, durability {}{step}{time}",
            visible(&shown.dir.display().to_string()),
            stat.kind,
            formatting::durability(stat.durability)
        )),
        Line::from(format!(
            "{} inserts, {} operations, {} refused, {} claimed; oldest generation {oldest}",
            stat.inserts, stat.operations, stat.refused, stat.claims
        )),
        Line::from(format!(
            "memory {} ({}), disk {}, {} snapshots, {} log segments, {} blocks in {} banks",
            mebibytes(stat.memory_bytes),
            stat.image,
            mebibytes(stat.disk_bytes),
            stat.snapshots,
            stat.wal_segments,
            stat.blocks,
            stat.banks
        )),
    ];
    Paragraph::new(lines).render(area, buffer);
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn draw_rates(buffer: &mut Buffer, area: Rect, shown: &Shown, seen: &Observation) {
    let rate = seen.rate.map_or_else(|| "-".to_owned(), formatting::count);
    let most = shown.rates.iter().copied().fold(0.0, f64::max);
    let title = format!(" Inserts a second: {rate}, at most {} ", formatting::count(most));
    let width = usize::from(area.width.saturating_sub(2));
    let skipped = shown.rates.len().saturating_sub(width);
    let data: Vec<u64> = shown.rates.iter().skip(skipped).map(|rate| rate.ceil() as u64).collect();
    Sparkline::default()
        .data(&data)
        .style(Style::new().fg(Color::Cyan))
        .block(Block::bordered().title(title))
        .render(area, buffer);
}

fn draw_gauges(buffer: &mut Buffer, area: Rect, seen: &Observation) {
    let (stat, details) = (&seen.stat, &seen.details);
    let lines: [Rect; 5] = Layout::vertical([Constraint::Length(1); 5]).areas(area);
    let fpr = share(stat.estimated_fpr, stat.planned_fpr);
    let text = format!("{:.2e} of {:.2e} planned", stat.estimated_fpr, stat.planned_fpr);
    gauge(buffer, lines[0], "fill", stat.fill, format!("{:.1} %", stat.fill * 100.0), Color::Cyan);
    let judged = |share: f64| match share {
        share if share > 2.0 => BAD,
        share if share > 1.0 => WATCHED,
        _ => GOOD,
    };
    gauge(buffer, lines[1], "false positives", fpr, text, judged(fpr));
    let log = seen.log_since_snapshot();
    let due = share(log as f64, details.checkpoint_due_bytes as f64);
    let text = format!(
        "{} since the newest snapshot, next at {}",
        mebibytes(log),
        mebibytes(details.checkpoint_due_bytes)
    );
    gauge(buffer, lines[2], "log", due, text, judged(due));
    let undurable = seen.undurable();
    let text = format!("{undurable} of {} records not durable yet", stat.lsn.saturating_sub(1));
    let behind = share(undurable as f64, stat.lsn.max(1) as f64);
    gauge(buffer, lines[3], "not durable", behind, text, Color::Cyan);
    let held = details.held.len();
    let text = format!("{held} of {} held at the moment", stat.stripes + 1);
    gauge(buffer, lines[4], "stripes", share(held as f64, f64::from(stat.stripes + 1)), text, GOOD);
}

/// Returns the share of a whole; of nothing, 0.
fn share(part: f64, whole: f64) -> f64 {
    let share = part / whole;
    if share.is_finite() { share } else { 0.0 }
}

fn gauge(buffer: &mut Buffer, area: Rect, name: &str, ratio: f64, text: String, colour: Color) {
    let [left, middle, right] =
        Layout::horizontal([Constraint::Length(17), Constraint::Max(40), Constraint::Min(50)])
            .spacing(1)
            .areas(area);
    Line::from(name).render(left, buffer);
    LineGauge::default()
        .ratio(ratio.clamp(0.0, 1.0))
        .label("")
        .filled_symbol("█")
        .unfilled_symbol("░")
        .filled_style(Style::new().fg(colour))
        .unfilled_style(Style::new().fg(Color::DarkGray))
        .render(middle, buffer);
    Line::from(text).render(right, buffer);
}

fn draw_generations(buffer: &mut Buffer, area: Rect, seen: &Observation) {
    let generations = &seen.details.generations;
    if generations.is_empty() {
        return;
    }
    let room = usize::from(area.width.saturating_sub(2));
    let gap = u16::from(generations.len() * 2 <= room);
    let width = (room / generations.len()).saturating_sub(usize::from(gap)).clamp(1, 7);
    let most = generations.iter().map(|generation| generation.fill()).fold(0.0, f64::max);
    let bars = generations.iter().map(|generation| {
        let fill = generation.fill();
        let text = if width >= 5 { format!("{:.0}%", fill * 100.0) } else { String::new() };
        Bar::default().value((fill / most.max(1e-9) * BAR_UNITS) as u64).text_value(text)
    });
    let bars: Vec<_> = bars.collect();
    let oldest = generations.last().map_or_else(String::new, |last| observer::age(last.began));
    BarChart::default()
        .data(BarGroup::default().bars(&bars))
        .bar_width(width as u16)
        .bar_gap(gap)
        .max(BAR_UNITS as u64)
        .bar_style(Style::new().fg(Color::Cyan))
        .block(Block::bordered().title(format!(
            " Fill by generation: open one left, {oldest} right; highest {:.1} % ",
            most * 100.0
        )))
        .render(area, buffer);
}

fn draw_handles(buffer: &mut Buffer, area: Rect, seen: &Observation) {
    let lines = seen.handle_lines();
    let title = format!(" Handles: {} ", lines.len());
    let rows = lines.into_iter().map(|line| Row::new(line.to_vec()));
    let widths = [Constraint::Length(5), Constraint::Min(30), Constraint::Min(20)];
    let table = Table::new(rows, widths)
        .header(Row::new(["slot", "process", "stripes held"]))
        .block(Block::bordered().title(title));
    Widget::render(table, area, buffer);
}
