//! The text format of Prometheus.

use ebbtide::monitoring::{Metric, MetricKind, metrics};
use ebbtide::units::is_hidden;
use ebbtide::{Details, Stat};
use std::fmt::Write;
use std::path::Path;

/// Returns the metrics of a filter, with its directory as a label.
pub fn text(dir: &Path, stat: &Stat, details: &Details) -> String {
    let filter = escaped(&dir.display().to_string());
    let kind = escaped(stat.kind);
    let mut text = String::from(
        "# HELP ebbtide_filter_info A filter and its kind\n# TYPE ebbtide_filter_info gauge\n",
    );
    // Writing to a string never fails.
    let _ = writeln!(text, "ebbtide_filter_info{{filter=\"{filter}\",kind=\"{kind}\"}} 1");
    let mut last = "";
    for Metric { name, help, kind, label, value, .. } in metrics(stat, details) {
        if name != last {
            let kind = match kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
            };
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            last = name;
        }
        let own = label.map(|(label, value)| format!(",{label}=\"{}\"", escaped(value)));
        let own = own.unwrap_or_default();
        let _ = writeln!(text, "{name}{{filter=\"{filter}\"{own}}} {value}");
    }
    text
}

/// Returns the value of a label with backslashes, quotes and newlines escaped, and with the
/// replacement character in place of other hidden characters, for which the format has no escape.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    value.replace(is_hidden, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
        assert_eq!(escaped("a\u{1b}[31m\r\u{9b}"), "a\u{fffd}[31m\u{fffd}\u{fffd}");
    }
}
