//! The file `shipped` in a filter's directory: how far its shipper is, for whoever looks at the
//! filter. A shipper that has died, hangs or fails is seen by what the file says last.
//!
//! The engine does not read the file; a copy made by `fetch`, `backup` or `restore` does not have
//! it. It is not synced: what it says is of use to this machine only, as long as it runs.

use crate::error::{Error, Result};
use crate::snapshot::local;
use crate::store::SLOWEST;
use ebbtide::Stat;
use ebbtide::media::{Access, Disk, Media};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NAME: &str = "shipped";
const TEMPORARY: &str = "shipped.new";
const TITLE: &str = "ebbtide: how far the shipper of this directory is";
/// The longest file that is read.
const BYTES_MOST: u64 = 1 << 14;
/// The length of a record.
const RECORD_BYTES: u64 = 32;
/// Intervals without success, and the time beyond them, after which a shipper counts as stalled.
const STALLED: (u32, Duration) = (3, Duration::from_secs(10));
/// The most bytes that a link has.
const LINK_MOST: u64 = 4 << 20;
/// The most bytes of a snapshot that are on their way at a time, unless a program sets others.
const PARTS_MOST: u64 = 32 << 20;

/// How far the shipper of a directory is, as it has noted after its last round.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Standing {
    /// The place that it ships to.
    pub url: String,
    /// Its timeline.
    pub timeline: u64,
    /// The LSN below which a fetch yields every operation; 0 before the first snapshot.
    pub confirmed: u64,
    /// Its interval.
    pub every: Duration,
    /// When its last round began that has shipped what was durable then, by this machine's clock.
    /// A snapshot that fails does not count, unless nothing can be fetched without it. Before the
    /// first such round, when the first shipper started.
    pub succeeded: SystemTime,
    /// When it last put a link, also if much was left to be shipped then; or what `succeeded` says,
    /// before the first one, and of a shipper of an earlier version. While nothing can be fetched
    /// without the next snapshot, only if that had not failed.
    pub progressed: SystemTime,
    /// When its last round began after which a fetch yields what was durable then. Unlike
    /// `succeeded` it stays while nothing can be fetched without the next snapshot. Of a shipper
    /// of an earlier version, what `succeeded` says.
    pub completed: SystemTime,
    /// Behind `confirmed`, up to this LSN, there are only notes of the engine, which are shipped
    /// with what comes next; 0 if there are none.
    pub noted: u64,
    /// How often shippers of the directory to this place have found that log was removed before it
    /// was shipped.
    pub gaps: u64,
    /// Their rounds that failed, and beginnings.
    pub failures: u64,
    /// Why its last round failed; `None` if it did not.
    pub failure: Option<String>,
    /// Whether parts of a snapshot are on their way.
    pub is_uploading: bool,
    /// Whether it has ended.
    pub is_stopped: bool,
}

impl Standing {
    /// Reads what the shipper of a directory has noted last; `None` if none has ever shipped it.
    ///
    /// # Errors
    /// [`Error::Store`] for a file that cannot be read, [`Error::Object`] for one that is damaged.
    pub fn read(dir: impl AsRef<Path>) -> Result<Option<Self>> {
        let media = Disk::new(dir.as_ref());
        let read = || -> std::io::Result<Option<String>> {
            let file = match media.open(NAME, Access::Read) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                file => file?,
            };
            let mut bytes = vec![0; file.bytes()?.min(BYTES_MOST) as usize];
            file.read_at(&mut bytes, 0)?;
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        };
        let text = read().map_err(|error| local("read", &media, NAME, &error))?;
        let Some(text) = text else { return Ok(None) };
        Self::parse(&text).map(Some).ok_or_else(|| {
            let object = dir.as_ref().join(NAME).display().to_string();
            let start: String = text.lines().next().unwrap_or_default().chars().take(20).collect();
            let found = format!("{} bytes that begin with `{}`", text.len(), start.escape_debug());
            Error::object(object, "what a shipper writes", found, "remove the file")
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let lines: BTreeMap<&str, &str> =
            text.strip_prefix(TITLE)?.lines().filter_map(|line| line.split_once(' ')).collect();
        let number = |name| lines.get(name)?.parse().ok();
        let time = |name| Some(UNIX_EPOCH + Duration::from_millis(number(name)?));
        let succeeded = time("succeeded-ms")?;
        let failure = lines.get("failure").map(|&text| text.to_owned());
        Some(Self {
            url: (*lines.get("url")?).to_owned(),
            timeline: number("timeline")?,
            confirmed: number("confirmed")?,
            every: Duration::from_millis(number("every-ms")?),
            succeeded,
            progressed: time("progressed-ms").unwrap_or(succeeded),
            completed: time("completed-ms").unwrap_or(succeeded),
            noted: number("noted").unwrap_or(0),
            gaps: number("gaps").unwrap_or(0),
            failures: number("failures").unwrap_or(0),
            failure,
            // Earlier versions do not write it.
            is_uploading: lines.get("uploading") == Some(&"yes"),
            is_stopped: *lines.get("stopped")? == "yes",
        })
    }

    fn text(&self) -> String {
        let yes_or_no = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let mut text = format!("{TITLE}\nurl {}\n", self.url);
        let millis = |time: SystemTime| {
            time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis().to_string()
        };
        let lines = [
            ("timeline", self.timeline.to_string()),
            ("confirmed", self.confirmed.to_string()),
            ("every-ms", self.every.as_millis().to_string()),
            ("succeeded-ms", millis(self.succeeded)),
            ("progressed-ms", millis(self.progressed)),
            ("completed-ms", millis(self.completed)),
            ("noted", self.noted.to_string()),
            ("gaps", self.gaps.to_string()),
            ("failures", self.failures.to_string()),
            ("uploading", yes_or_no(self.is_uploading)),
            ("stopped", yes_or_no(self.is_stopped)),
        ];
        for (name, value) in lines {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} {value}");
        }
        if let Some(failure) = &self.failure {
            let _ = writeln!(text, "failure {}", failure.replace('\n', " "));
        }
        text
    }

    /// Replaces what the directory's file says.
    pub(crate) fn write(&self, media: &dyn Media) -> Result<()> {
        let write = || {
            match media.remove(TEMPORARY) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            media.create(TEMPORARY, 0)?.write_at(self.text().as_bytes(), 0)?;
            media.rename(TEMPORARY, NAME)
        };
        write().map_err(|error| local("write", media, NAME, &error))
    }

    /// Returns the LSN of a filter up to which its records count. Of a single one that is not
    /// durable it is not known whether it is the engine's note of how far the log is, which waits
    /// for other records: it does not count.
    #[must_use]
    pub fn end(stat: &Stat) -> u64 {
        if stat.lsn == stat.durable_lsn + 1 { stat.durable_lsn } else { stat.lsn }
    }

    /// Returns the number of records, of a filter up to [this LSN](Self::end), that a fetch does
    /// not yield yet, without the engine's notes behind those that it does.
    #[must_use]
    pub fn unshipped_records(&self, lsn: u64) -> u64 {
        lsn.saturating_sub(self.confirmed.max(self.noted).max(1))
    }

    /// Returns the bytes of these records.
    #[must_use]
    pub fn unshipped_bytes(&self, lsn: u64) -> u64 {
        self.unshipped_records(lsn) * RECORD_BYTES
    }

    /// Returns for how long at most durable records are not shipped, as of `now`; zero if all are.
    #[must_use]
    pub fn unshipped_for(&self, lsn: u64, now: SystemTime) -> Duration {
        match self.unshipped_records(lsn) {
            0 => Duration::ZERO,
            _ => now.duration_since(self.completed).unwrap_or_default(),
        }
    }

    /// Returns for how long no round has succeeded, and no link was put, as of `now`.
    #[must_use]
    pub fn waited(&self, now: SystemTime) -> Duration {
        now.duration_since(self.succeeded.max(self.progressed)).unwrap_or_default()
    }

    /// Returns whether no round has succeeded, and no link was put, for three intervals, ten
    /// seconds, and what a slow line takes for a link with what is not shipped of a filter up to
    /// this LSN, and for the parts of a snapshot beside it. A shipper that was stopped has stalled,
    /// too: nothing is shipped.
    #[must_use]
    pub fn is_stalled(&self, lsn: u64, now: SystemTime) -> bool {
        let parts = if self.is_uploading { PARTS_MOST } else { 0 };
        let bytes = self.unshipped_bytes(lsn).min(LINK_MOST) + parts;
        let limit = self.every.saturating_mul(STALLED.0).saturating_add(STALLED.1);
        self.waited(now) > limit.saturating_add(Duration::from_secs(bytes / SLOWEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing() -> Standing {
        Standing {
            url: "s3://bucket/a b".into(),
            timeline: 3,
            confirmed: 101,
            every: Duration::from_secs(10),
            succeeded: UNIX_EPOCH + Duration::from_secs(1000),
            progressed: UNIX_EPOCH + Duration::from_secs(1001),
            completed: UNIX_EPOCH + Duration::from_secs(990),
            noted: 0,
            gaps: 2,
            failures: 7,
            failure: Some("cannot put\nit".into()),
            is_uploading: false,
            is_stopped: false,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(Standing::read(dir.path()).expect("no file"), None);
        standing().write(&Disk::new(dir.path())).expect("written");
        standing().write(&Disk::new(dir.path())).expect("replaced");
        let mut expected = standing();
        expected.failure = Some("cannot put it".into());
        assert_eq!(Standing::read(dir.path()).expect("read"), Some(expected));
        std::fs::write(dir.path().join(NAME), "something else").expect("a file");
        let error = Standing::read(dir.path()).expect_err("damage").to_string();
        assert!(error.contains("something else") && error.contains("remove the file"), "{error}");
    }

    #[test]
    fn lag_is_counted_since_a_fetch_yielded_all_and_only_if_something_is_missing() {
        let (standing, now) = (standing(), UNIX_EPOCH + Duration::from_secs(1007));
        assert_eq!((standing.unshipped_records(101), standing.unshipped_bytes(104)), (0, 96));
        assert_eq!(standing.unshipped_for(101, now), Duration::ZERO);
        // A fetch does not yield what has come since.
        assert_eq!(standing.unshipped_for(102, now), Duration::from_secs(17));
        let noted = Standing { noted: 103, ..standing.clone() };
        assert_eq!([102, 103, 105].map(|lsn| noted.unshipped_records(lsn)), [0, 0, 2]);
        assert!(!standing.is_stalled(101, now));
        assert!(standing.is_stalled(101, now + Duration::from_secs(60)));
    }

    #[test]
    fn a_shipper_that_puts_links_is_not_stalled_however_much_is_left() {
        let now = UNIX_EPOCH + Duration::from_secs(5000);
        let mut standing = standing();
        standing.progressed = now - Duration::from_secs(40);
        assert!(!standing.is_stalled(101, now));
        assert!(standing.is_stalled(101, now + Duration::from_secs(1)));
        // Two MiB, at half a megabit a second.
        let lsn = 101 + (2 << 20) / RECORD_BYTES;
        assert!(!standing.is_stalled(lsn, now + Duration::from_secs(32)));
        assert!(standing.is_stalled(lsn, now + Duration::from_secs(33)));
        let uploading = Standing { is_uploading: true, ..standing.clone() };
        assert!(!uploading.is_stalled(lsn, now + Duration::from_secs(544)));
        assert!(uploading.is_stalled(lsn, now + Duration::from_secs(545)));
        assert_eq!(standing.unshipped_for(102, now), Duration::from_secs(4010));
        // As versions before have written it.
        let later = ["progressed-ms", "completed-ms", "noted", "gaps", "failures"];
        let is_old = |line: &&str| !later.iter().any(|name| line.starts_with(&format!("{name} ")));
        let text = standing.text();
        let text = text.lines().filter(is_old).collect::<Vec<_>>().join("\n");
        let parsed = Standing::parse(&text).expect("the lines that are needed");
        assert_eq!((parsed.progressed, parsed.is_stalled(101, now)), (parsed.succeeded, true));
        assert_eq!((parsed.completed, parsed.noted, parsed.gaps), (parsed.succeeded, 0, 0));
    }
}
