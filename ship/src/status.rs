//! What a worker has done, as a value and as figures.

use crate::error::Error;
use crate::shipped_file::Standing;
use crate::shipper::Shipper;
use ebbtide::units::is_hidden;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What a worker has done.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Status {
    /// The LSN below which a fetch yields every operation; 0 if it yields nothing yet.
    pub confirmed: u64,
    /// The shipper's timeline.
    pub timeline: u64,
    /// When the last round began that has shipped what was durable then, whatever else has failed.
    /// While nothing can be fetched without the next snapshot, only one that had no error. Before
    /// the first one, when the worker started.
    pub succeeded: Instant,
    /// The same by this machine's clock. Before the first one, what a shipper of this directory to
    /// this place has noted; if there was none, when the worker started.
    pub succeeded_at: SystemTime,
    /// When the last round began after which a fetch yields what was durable then, by this
    /// machine's clock: unlike [`Status::succeeded_at`], not renewed while nothing can be fetched
    /// without the next snapshot. Before the first one, as there.
    pub completed_at: SystemTime,
    /// When a link was last put, also if much was left to be shipped then. While nothing can be
    /// fetched without the next snapshot, only if that had not failed. Before the first one, when
    /// the worker started.
    pub progressed: Instant,
    /// The same by this machine's clock. Before the first one, as [`Status::succeeded_at`].
    pub progressed_at: SystemTime,
    /// For how long since then a snapshot was on its way that nothing newer can be fetched without.
    pub tried: Duration,
    /// Up to which LSN there are only notes of the engine behind what is shipped; or 0.
    pub(crate) noted_lsn: u64,
    /// When this was noted.
    pub(crate) noted: Instant,
    /// Why the last round failed; `None` if it did not.
    pub failure: Option<String>,
    /// Rounds that failed, and beginnings, also of shippers before this one, as far as the
    /// directory has their notes.
    pub failures: u64,
    /// Links put since the start, with the one by which it began.
    pub links: u64,
    /// Bytes of records and snapshots put since the start.
    pub bytes: u64,
    /// How often log was removed before it was shipped, also before this shipper, as for failures.
    pub gaps: u64,
    /// Whether what was shipped last can be fetched only once a snapshot comes: at the beginning,
    /// after an alteration, and after a gap.
    pub is_pending: bool,
    /// Whether a snapshot is on its way.
    pub is_uploading: bool,
    /// Whether a shipper of another directory has taken over, also before this one began.
    pub is_fenced: bool,
    /// Whether the worker has stopped.
    pub is_stopped: bool,
}

/// Returns the value of a label with backslashes, quotes and newlines escaped, and with the
/// replacement character in place of other hidden characters, for which the format has no escape.
fn label(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    value.replace(is_hidden, "\u{fffd}")
}

impl Status {
    /// Returns the status of a shipper of this filter that could not begin to ship to this place
    /// ([`Worker::start`](crate::Worker::start)): what the one before it has noted, and this error.
    /// If there was none, the last success was in 1970.
    #[must_use]
    pub fn not_begun(filter: &Path, place: &str, error: &Error) -> Self {
        let noted = Standing::read(filter).ok().flatten().filter(|noted| noted.url == place);
        let of = |time: fn(&Standing) -> SystemTime| noted.as_ref().map_or(UNIX_EPOCH, time);
        let (succeeded_at, completed_at) =
            (of(|noted| noted.succeeded), of(|noted| noted.completed));
        let progressed_at = of(|noted| noted.progressed.max(noted.succeeded));
        let count = |count: fn(&Standing) -> u64| noted.as_ref().map_or(0, count);
        let (confirmed, timeline) = (count(|noted| noted.confirmed), count(|noted| noted.timeline));
        let now = Instant::now();
        let before = |at: SystemTime| now.checked_sub(at.elapsed().unwrap_or_default());
        Self {
            confirmed,
            timeline,
            succeeded: before(succeeded_at).unwrap_or(now),
            succeeded_at,
            progressed: before(progressed_at).unwrap_or(now),
            progressed_at,
            completed_at,
            tried: Duration::ZERO,
            noted_lsn: 0,
            noted: now,
            failure: Some(error.to_string()),
            // This one is among those that were noted.
            failures: count(|noted| noted.failures).max(1),
            links: 0,
            bytes: 0,
            gaps: count(|noted| noted.gaps),
            is_pending: confirmed == 0,
            is_uploading: false,
            is_fenced: error.is_fenced_from_elsewhere(),
            is_stopped: true,
        }
    }

    /// Returns whether nothing was shipped for longer than this, because of a failure. The time
    /// does not count for which the snapshot was on its way that nothing newer can be fetched
    /// without.
    #[must_use]
    pub fn is_stalled(&self, most: Duration) -> bool {
        let is_tried = self.is_pending && self.is_uploading;
        let waited = self.waited().saturating_sub(self.tried);
        self.failure.is_some() && !is_tried && waited > most
    }

    /// Returns for how long no round has succeeded, and no link was put.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.succeeded.max(self.progressed).elapsed()
    }

    /// Returns the figures in the text format of Prometheus.
    #[must_use]
    pub fn prometheus(&self, filter: &Path) -> String {
        let at = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let progressed_at = self.progressed_at.max(self.succeeded_at);
        let lag = self.completed_at.elapsed().unwrap_or_default();
        let figures = [
            ("last_success_timestamp_seconds", at(self.succeeded_at).as_secs_f64()),
            ("last_progress_timestamp_seconds", at(progressed_at).as_secs_f64()),
            ("confirmed_lsn", self.confirmed as f64),
            ("timeline", self.timeline as f64),
            ("lag_seconds", lag.as_secs_f64()),
            ("failures_total", self.failures as f64),
            ("links_total", self.links as f64),
            ("bytes_total", self.bytes as f64),
            ("gaps_total", self.gaps as f64),
            ("fenced", f64::from(u8::from(self.is_fenced))),
            ("stopped", f64::from(u8::from(self.is_stopped))),
        ];
        let filter = label(&filter.display().to_string());
        // What is not known yet is left out: 0 would be a jump of a value that stands for alerts.
        let known = |&&(name, _): &&(&str, f64)| name != "timeline" || self.timeline > 0;
        figures.iter().filter(known).fold(String::new(), |mut text, (name, value)| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "ebbtide_ship_{name}{{filter=\"{filter}\"}} {value}");
            text
        })
    }
}

impl Status {
    pub(crate) fn of(shipper: &Shipper) -> Self {
        Self {
            confirmed: shipper.confirmed(),
            timeline: shipper.timeline(),
            succeeded: Instant::now(),
            succeeded_at: SystemTime::now(),
            progressed: Instant::now(),
            progressed_at: SystemTime::now(),
            completed_at: SystemTime::now(),
            tried: Duration::ZERO,
            noted_lsn: 0,
            noted: Instant::now(),
            failure: None,
            failures: 0,
            links: shipper.total().links,
            bytes: 0,
            gaps: shipper.gaps(),
            is_pending: shipper.is_pending(),
            is_uploading: false,
            is_fenced: false,
            is_stopped: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_filter_breaks_no_line_of_its_figures() {
        assert_eq!(label("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
        assert_eq!(label("a\u{1b}[31m\u{202e}b"), "a\u{fffd}[31m\u{fffd}b");
    }
}
