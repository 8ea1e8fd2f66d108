//! The page of a report: tables and diagrams in one file, without scripts and outside resources.

use super::samples::Samples;
use crate::commands::look::{bytes, parameter_rows};
use crate::commands::observer::{Observation, age};
use crate::formatting;
use crate::moment::Past;
use crate::plot::{Chart, STYLE, escaped};
use ebbtide::Stat;
use std::fmt::Write;

/// The style of the page, beside that of the diagrams.
const PAGE_STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1f2328;--soft:#59636e;--grid:#dde2e8;\
--warn:#9a3412}@media(prefers-color-scheme:dark){:root{--paper:#11161d;--ink:#e6edf3;\
--soft:#9aa6b2;--grid:#2b333d;--warn:#fdba74}}\
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}\
main{max-width:1080px;margin:0 auto;padding:24px 16px}\
h1{font-size:22px;margin:0;word-break:break-all}\
h2{font-size:17px;margin:28px 0 8px}p{margin:4px 0;color:var(--soft)}\
.remarks{border-left:4px solid var(--warn);padding:4px 12px;margin:16px 0}\
.remarks li{color:var(--warn)}.tiles{display:grid;gap:12px;margin:16px 0;\
grid-template-columns:repeat(auto-fit,minmax(150px,1fr))}\
.tile{border:1px solid var(--grid);border-radius:8px;padding:10px 12px}\
.tile b{display:block;font-size:20px;font-weight:600}.tile span{color:var(--soft);font-size:13px}\
.charts{display:grid;gap:16px;grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),1fr))}\
svg{width:100%;height:auto;border:1px solid var(--grid);border-radius:8px}\
.tables{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
td,th{text-align:left;padding:3px 18px 3px 0;border-bottom:1px solid var(--grid)}\
th{font-weight:500;color:var(--soft)}";

/// Returns the page.
pub fn page(
    heading: &str,
    past: &Past,
    seen: &Observation,
    samples: &Samples,
    charts: &[Chart],
) -> String {
    let title = escaped(heading);
    let taken = escaped(&formatting::time(ebbtide::Timestamp::now()));
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{title}</title><style>{STYLE}{PAGE_STYLE}</style></head><body><main>\n\
         <h1>{title}</h1><p>Taken at {taken} by ebbtide {}.</p>\n",
        env!("CARGO_PKG_VERSION")
    );
    remarks(&mut text, seen, samples);
    tiles(&mut text, seen, past.at.is_some());
    text += "<div class=\"charts\">\n";
    charts.iter().for_each(|chart| text += &chart.element());
    text += "</div>\n";
    if past.at.is_none() {
        handles(&mut text, seen);
    }
    figures(&mut text, seen, past.at.is_some());
    text + "</main></body></html>\n"
}

// Writing to a string never fails.

fn remarks(text: &mut String, seen: &Observation, samples: &Samples) {
    let all: Vec<_> = seen.remarks.iter().chain(&samples.damage).collect();
    if all.is_empty() {
        *text += "<p>Nothing unusual was seen.</p>\n";
        return;
    }
    *text += "<ul class=\"remarks\">";
    for remark in all {
        let _ = write!(text, "<li>{}</li>", escaped(remark));
    }
    *text += "</ul>\n";
}

/// The tiles that say nothing about a moment of the past.
const OF_NOW: [&str; 3] =
    ["inserts now", "log since the newest snapshot", "records not durable yet"];

fn tiles(text: &mut String, seen: &Observation, is_past: bool) {
    let stat = &seen.stat;
    let rate = seen.rate.map(|rate| format!("{}/s", formatting::count(rate)));
    let tiles = [
        (stat.inserts.to_string(), "inserts since creation or the last clear"),
        (rate.unwrap_or_else(|| "not in use".to_owned()), OF_NOW[0]),
        (format!("{:.1} %", stat.fill * 100.0), "of the cells in use"),
        (distinct_keys(stat), "distinct keys in the window"),
        (format!("{:.2e}", stat.estimated_fpr), "estimated false-positive rate"),
        (format!("{:.2e}", stat.planned_fpr), "planned false-positive rate"),
        (seen.oldest().map_or_else(|| "-".to_owned(), age), "age of the oldest generation"),
        (format!("{:.1} MiB", seen.log_since_snapshot() as f64 / f64::from(1 << 20)), OF_NOW[1]),
        (seen.undurable().to_string(), OF_NOW[2]),
    ];
    *text += "<div class=\"tiles\">";
    for (value, name) in tiles.iter().filter(|(_, name)| !is_past || !OF_NOW.contains(name)) {
        let _ =
            write!(text, "<div class=\"tile\"><b>{}</b><span>{name}</span></div>", escaped(value));
    }
    *text += "</div>\n";
}

/// Returns the number of distinct keys with its standard error, in a few characters.
fn distinct_keys(stat: &Stat) -> String {
    match (stat.distinct_keys, stat.distinct_keys_error) {
        (Some(keys), Some(error)) if keys > 0.0 => {
            format!("{} ± {:.2} %", formatting::count(keys), 100.0 * error / keys)
        }
        (Some(_), _) => "0".to_owned(),
        _ => "not known".to_owned(),
    }
}

fn handles(text: &mut String, seen: &Observation) {
    *text += "<h2>Handles</h2>\n";
    let lines = seen.handle_lines();
    if lines.is_empty() {
        *text += "<p>No process has the filter open.</p>\n";
        return;
    }
    *text += "<div class=\"tables\"><table><tr><th>slot</th><th>process</th>\
              <th>stripes held at the moment</th></tr>";
    for [slot, process, held] in lines {
        let (process, held) = (escaped(&process), escaped(&held));
        let _ = write!(text, "<tr><td>{slot}</td><td>{process}</td><td>{held}</td></tr>");
    }
    *text += "</table></div>\n";
}

/// Writes the table. As of a moment of the past, what the files take is that of now.
fn figures(text: &mut String, seen: &Observation, is_past: bool) {
    let of_now = |value: String| if is_past { format!("{value} (now)") } else { value };
    let (stat, details) = (&seen.stat, &seen.details);
    let mut rows = parameter_rows(&stat.parameters);
    rows.extend([
        ("durability", formatting::durability(stat.durability)),
        ("hash", stat.key_hash.to_string()),
        ("operations", stat.operations.to_string()),
        ("refused as too late", stat.refused.to_string()),
        ("claims", stat.claims.to_string()),
        ("step", stat.step.map_or_else(|| "none".to_owned(), |step| step.to_string())),
        ("latest time (UTC)", stat.time.map_or_else(|| "none yet".to_owned(), formatting::time)),
        ("LSN", stat.lsn.to_string()),
        ("durable LSN", stat.durable_lsn.to_string()),
        ("snapshot from LSN", of_now(details.snapshot_lsn.to_string())),
        ("memory", bytes(stat.memory_bytes)),
        ("disk", of_now(bytes(stat.disk_bytes))),
        ("stripes", stat.stripes.to_string()),
        ("blocks", stat.blocks.to_string()),
        ("banks", stat.banks.to_string()),
        ("snapshots", of_now(stat.snapshots.to_string())),
        ("log segments", of_now(stat.wal_segments.to_string())),
    ]);
    rows.extend(stat.figures.iter().map(|(name, value)| (*name, value.to_string())));
    *text += "<h2>Parameters and figures</h2>\n<div class=\"tables\"><table>";
    for (name, value) in rows {
        let (name, value) = (escaped(name), escaped(&value));
        let _ = write!(text, "<tr><th>{name}</th><td>{value}</td></tr>");
    }
    *text += "</table></div>\n";
}
