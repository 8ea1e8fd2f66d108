//! The figures of a filter as metrics: names, help texts and units in the manner of Prometheus,
//! for programs that export them. Durations of slow work, failures and poisonings are counted where
//! they happen (`telemetry`).

use crate::engine::read::details::Details;
use crate::engine::read::stats::Stat;
use ebbtide_core::kind::Age;

/// How a metric changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum MetricKind {
    /// Only grows, except that [`Filter::clear`](crate::Filter::clear) or a new live image may set
    /// it to 0.
    Counter,
    /// Grows and falls.
    Gauge,
}

/// A figure of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Metric {
    /// The name, with the unit: `ebbtide_inserts_total`, `ebbtide_disk_bytes`.
    pub name: &'static str,
    /// One sentence without a full stop.
    pub help: &'static str,
    /// How it changes.
    pub kind: MetricKind,
    /// A label of this metric alone, and its value.
    pub label: Option<(&'static str, &'static str)>,
    /// The value.
    pub value: f64,
}

/// Returns the figures of a filter as metrics. Metrics of one name follow one another.
///
/// ```
/// use ebbtide::{AgePartitioned, Filter, Options, monitoring};
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("seen");
/// let seen = Filter::open_or_create(&dir, AgePartitioned::last(10_000), Options::new())?;
/// seen.insert("order 17")?;
/// let metrics = monitoring::metrics(&seen.stat()?, &seen.details()?);
/// let inserts = metrics.iter().find(|metric| metric.name == "ebbtide_inserts_total");
/// assert_eq!(inserts.map(|metric| metric.value), Some(1.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn metrics(stat: &Stat, details: &Details) -> Vec<Metric> {
    let mut all = of_keys(stat);
    all.extend(of_distinct_keys(stat));
    all.extend(of_log(stat, details));
    all.extend(of_handles(stat, details));
    all.extend(of_time(stat, details));
    all.extend(stat.figures.iter().map(|&(figure, value)| Metric {
        label: Some(("figure", figure)),
        ..gauge("ebbtide_kind_figure", "A figure of the kind, summed over all blocks", value as f64)
    }));
    all
}

fn gauge(name: &'static str, help: &'static str, value: f64) -> Metric {
    Metric { name, help, kind: MetricKind::Gauge, label: None, value }
}

fn counter(name: &'static str, help: &'static str, value: u64) -> Metric {
    Metric { name, help, kind: MetricKind::Counter, label: None, value: value as f64 }
}

fn of_keys(stat: &Stat) -> Vec<Metric> {
    vec![
        counter(
            "ebbtide_inserts_total",
            "Insert operations applied since creation or the last clear, by all handles",
            stat.inserts,
        ),
        counter(
            "ebbtide_operations_total",
            "Inserts and removals applied since creation or the last clear, by all handles",
            stat.operations,
        ),
        counter(
            "ebbtide_refused_total",
            "Inserts refused as too late since the filter was opened",
            stat.refused,
        ),
        gauge("ebbtide_claims", "Keys that somebody is working on", stat.claims as f64),
        gauge(
            "ebbtide_oldest_claim_seconds",
            "How long ago the oldest of these claims began, 0 without any",
            stat.oldest_claim.map_or(0.0, |age| age.as_secs_f64()),
        ),
        gauge(
            "ebbtide_kept_log_bytes",
            "Bytes of disk of log and snapshots that are only kept",
            stat.kept_log_bytes as f64,
        ),
        gauge(
            "ebbtide_kept_log_seconds",
            "For how long recovery has not needed the oldest kept log, 0 if nothing is kept",
            stat.kept_log_for.map_or(0.0, |age| age.as_secs_f64()),
        ),
        gauge(
            "ebbtide_kept_log_short",
            "1 if the kept log covers less time than requested and older log is gone, otherwise 0",
            f64::from(u8::from(stat.kept_log_is_short)),
        ),
        gauge("ebbtide_fill_ratio", "Share of cells in use", stat.fill),
        gauge(
            "ebbtide_estimated_false_positive_ratio",
            "False-positive rate to expect now, by theory",
            stat.estimated_fpr,
        ),
        gauge(
            "ebbtide_planned_false_positive_ratio",
            "False-positive rate when the filter is as full as planned, by theory",
            stat.planned_fpr,
        ),
        gauge(
            "ebbtide_saturated",
            "1 if the filter is clearly fuller than planned, otherwise 0",
            f64::from(u8::from(stat.saturated)),
        ),
        gauge("ebbtide_memory_bytes", "Memory, without the log", stat.memory_bytes as f64),
        gauge("ebbtide_disk_bytes", "Disk space of all files", stat.disk_bytes as f64),
        gauge("ebbtide_blocks", "Blocks of all banks", stat.blocks as f64),
    ]
}

/// Returns the number of distinct keys, for kinds that know it.
fn of_distinct_keys(stat: &Stat) -> Vec<Metric> {
    let keys = stat.distinct_keys.map(|keys| {
        gauge("ebbtide_distinct_keys", "Distinct keys in the window, as estimated", keys)
    });
    let error = stat.distinct_keys_error.map(|error| {
        let help = "Standard error of the number of distinct keys";
        gauge("ebbtide_distinct_keys_standard_error", help, error)
    });
    keys.into_iter().chain(error).collect()
}

fn of_log(stat: &Stat, details: &Details) -> Vec<Metric> {
    let behind = stat.lsn.saturating_sub(details.snapshot_lsn.max(1));
    vec![
        gauge("ebbtide_log_tail_lsn", "LSN of the next record", stat.lsn as f64),
        gauge(
            "ebbtide_log_durable_lsn",
            "LSN below which every record is durable",
            stat.durable_lsn as f64,
        ),
        gauge(
            "ebbtide_log_snapshot_lsn",
            "LSN from which the newest snapshot needs the log, 0 without a snapshot",
            details.snapshot_lsn as f64,
        ),
        gauge(
            "ebbtide_log_since_snapshot_bytes",
            "Log that a recovery would replay",
            behind.saturating_mul(details.record_bytes) as f64,
        ),
        gauge(
            "ebbtide_checkpoint_due_bytes",
            "Log since the newest snapshot at which the next one is due",
            details.checkpoint_due_bytes as f64,
        ),
        gauge("ebbtide_log_segments", "Segments of the log on the disk", stat.wal_segments.into()),
        gauge("ebbtide_snapshots", "Snapshots on the disk", stat.snapshots.into()),
    ]
}

fn of_handles(stat: &Stat, details: &Details) -> Vec<Metric> {
    let is = |condition: bool| f64::from(u8::from(condition));
    vec![
        gauge(
            "ebbtide_handles",
            "Handles that have the filter open, in all processes",
            stat.handles.into(),
        ),
        gauge("ebbtide_stripes", "Stripes of the filter", stat.stripes.into()),
        gauge(
            "ebbtide_held_stripes",
            "Stripes held at the moment; one that stays held belongs to a stopped process",
            details.held.len() as f64,
        ),
        gauge(
            "ebbtide_checkpoint_awaited",
            "Whether writers wait for a checkpoint",
            is(details.waits_for_checkpoint),
        ),
        gauge("ebbtide_poisoned", "Whether writes are refused", is(details.poisoned)),
    ]
}

fn of_time(stat: &Stat, details: &Details) -> Vec<Metric> {
    let mut all = Vec::new();
    if let Some(step) = stat.step {
        all.push(gauge("ebbtide_step", "Generation, epoch or tick of the kind", step as f64));
    }
    if let Some(time) = stat.time {
        let seconds = time.as_unix_micros() as f64 / 1e6;
        let help = "Latest time that the filter has seen, since the Unix epoch";
        all.push(gauge("ebbtide_latest_time_timestamp_seconds", help, seconds));
    }
    if let Some(lead) = stat.clock_lead {
        let help = "How far the time of the filter is ahead of the clock";
        all.push(gauge("ebbtide_clock_lead_seconds", help, lead.as_secs_f64()));
    }
    let oldest = details.generations.iter().rfind(|generation| generation.used > 0);
    all.extend(oldest.map(|oldest| match oldest.began {
        Age::Items(inserts) => gauge(
            "ebbtide_oldest_generation_age_inserts",
            "Inserts since the oldest generation with keys began",
            inserts as f64,
        ),
        Age::Time(time) => gauge(
            "ebbtide_oldest_generation_age_seconds",
            "Time since the oldest generation with keys began",
            time.as_secs_f64(),
        ),
    }));
    all
}

/// Passes the figures of a filter to the recorder of the `metrics` facade, with the label
/// `filter`, the directory. Call it before each scrape, or at intervals.
///
/// A counter of the facade never falls. Where one of the filter begins again, as after a clear,
/// that of the recorder continues from what it had, from the second call on that finds the filter's
/// lower: of two threads that publish, one may come late with figures of before. What was counted
/// before a clear is left out if the second call after it finds more again.
#[cfg(feature = "metrics")]
pub fn publish(directory: &std::path::Path, stat: &Stat, details: &Details) {
    let directory = ebbtide_core::units::visible(&directory.display().to_string());
    for metric in metrics(stat, details) {
        let (name, value) = (metric.name, metric.value);
        let mut labels = vec![("filter", directory.clone())];
        labels.extend(metric.label.map(|(label, value)| (label, value.to_owned())));
        match metric.kind {
            MetricKind::Counter => {
                metrics::describe_counter!(name, metric.help);
                let total = growing::total(&directory, &metric);
                metrics::counter!(name, &labels).absolute(total);
            }
            MetricKind::Gauge => {
                metrics::describe_gauge!(name, metric.help);
                metrics::gauge!(name, &labels).set(value);
            }
        }
    }
}

/// Counters that never fall, made of those that may begin again.
#[cfg(feature = "metrics")]
mod growing {
    use super::Metric;
    use crate::platform::per_process::PerProcess;
    use crate::primitives::Mutex;
    use std::collections::BTreeMap;

    /// A directory, and the name and the label of a metric.
    type Series = (String, &'static str, Option<(&'static str, &'static str)>);

    /// What this process has published.
    static PUBLISHED: PerProcess<Published> = PerProcess::new();

    type Published = Mutex<BTreeMap<Series, Counter>>;

    #[derive(Debug, Default)]
    struct Counter {
        /// The last value.
        last: u64,
        /// What was counted before the last beginning.
        before: u64,
        /// Whether the last value that was passed was lower.
        fell: bool,
    }

    impl Counter {
        /// Takes the next value. Returns the total.
        fn next(&mut self, value: u64) -> u64 {
            let falls = value < self.last;
            if falls && self.fell {
                self.before = self.before.saturating_add(self.last);
            }
            if !falls || self.fell {
                self.last = value;
            }
            self.fell = falls && !self.fell;
            self.before.saturating_add(self.last)
        }
    }

    /// Returns the total of a counter of the filter in a directory.
    pub(super) fn total(directory: &str, metric: &Metric) -> u64 {
        let series = (directory.to_owned(), metric.name, metric.label);
        let published = PUBLISHED.get(Mutex::default);
        published.lock().entry(series).or_default().next(metric.value as u64)
    }
}

/// Passes help texts and units of the durations and counts that the library reports to
/// the recorder of the `metrics` facade. Call it once, after the recorder was installed.
#[cfg(feature = "metrics")]
pub fn describe() {
    use metrics::Unit::{Count, Seconds};
    for (name, help) in [
        ("ebbtide_open_seconds", "Creating or opening a handle"),
        ("ebbtide_recovery_seconds", "Rebuilding the state of a filter that no process had open"),
        ("ebbtide_checkpoint_seconds", "Writing a snapshot"),
        ("ebbtide_repair_seconds", "Completing what a dead process left of an operation"),
        ("ebbtide_close_seconds", "Closing a handle"),
        ("ebbtide_sync_seconds", "Syncing a segment of the log"),
        ("ebbtide_stripe_wait_seconds", "Waiting for a stripe, if it took 10 microseconds or more"),
        ("ebbtide_backpressure_seconds", "Waiting of a writer for a checkpoint"),
    ] {
        metrics::describe_histogram!(name, Seconds, help);
    }
    for (name, help) in [
        ("ebbtide_failures_total", "Reported work that failed"),
        ("ebbtide_background_errors_total", "Background tasks that failed"),
        ("ebbtide_poisonings_total", "Failures after which writes are refused"),
        ("ebbtide_stalls_total", "Waits for a handle that makes no progress"),
    ] {
        metrics::describe_counter!(name, Count, help);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::{Filter, Fingerprint, Options};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    #[test]
    fn metrics_have_valid_names_and_those_of_one_name_follow_one_another() {
        let options = Options::new().background(false);
        let filter = Filter::create_on(Arc::new(Memory::new()), Fingerprint::last(1000), options);
        let filter = filter.expect("a filter");
        assert!(filter.insert("key").expect("inserted"));
        let all = metrics(&filter.stat().expect("stat"), &filter.details().expect("details"));
        let mut seen = BTreeSet::new();
        for (at, metric) in all.iter().enumerate() {
            let valid = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            assert!(metric.name.bytes().all(valid), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == MetricKind::Counter);
            assert!(metric.value.is_finite() && !metric.help.ends_with('.'), "{metric:?}");
            let follows = at > 0 && all[at - 1].name == metric.name;
            assert!(seen.insert(metric.name) || follows, "{} is apart", metric.name);
        }
        assert!(seen.contains("ebbtide_oldest_generation_age_inserts"));
        assert!(seen.contains("ebbtide_kind_figure"));
    }
}
