//! Looks at a filter again and again, without changing anything: its figures, the throughput since
//! the last look, and signs of a stall.

use super::at_rest;
use crate::dirty_limit;
use crate::failure::Result;
use crate::formatting;
use crate::moment::Past;
use ebbtide::inspect::{self, OpenHandle};
use ebbtide::{Age, Any, Details, Durability, HeldStripe, Options, Reader, Stat};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A stripe that is held for longer belongs to a stopped process: an insert takes microseconds.
/// Less than the interval of `top`, so that its second look shows it.
const HELD_TOO_LONG: Duration = Duration::from_millis(800);
/// A durable end, or a wait for a checkpoint, that lasts longer is a stall.
const SLOW: Duration = Duration::from_secs(2);
/// At this multiple of the log that makes a checkpoint due, checkpoints fail or are too slow.
const OVERDUE: u64 = 4;

/// One look at a filter.
pub struct Observation {
    /// The statistics.
    pub stat: Stat,
    /// The figures for operators.
    pub details: Details,
    /// The handles whose processes are visible.
    pub handles: Vec<OpenHandle>,
    /// Insert operations a second since the last look.
    pub rate: Option<f64>,
    /// What is wrong, in sentences.
    pub remarks: Vec<String>,
}

impl Observation {
    /// Returns the bytes of log that a recovery would replay.
    pub fn log_since_snapshot(&self) -> u64 {
        let records = self.stat.lsn.saturating_sub(self.details.snapshot_lsn.max(1));
        records.saturating_mul(self.details.record_bytes)
    }

    /// Returns the records that are not durable yet. The last record of a quiet filter only notes
    /// what is durable.
    pub fn undurable(&self) -> u64 {
        match self.stat.lsn.saturating_sub(self.stat.durable_lsn) {
            1 => 0,
            records => records,
        }
    }

    /// Returns how long ago the oldest generation with keys began.
    pub fn oldest(&self) -> Option<Age> {
        let oldest = self.details.generations.iter().rfind(|generation| generation.used > 0)?;
        Some(oldest.began)
    }

    /// Returns a line for each live handle: slot, process, and what it holds.
    pub fn handle_lines(&self) -> Vec<[String; 3]> {
        let line = |&slot: &u16| {
            let of_slot = self.handles.iter().find(|handle| handle.slot == slot);
            let process = match of_slot {
                Some(OpenHandle { pid, process, stopped: true, .. }) => {
                    format!("{pid} {process} (stopped)")
                }
                Some(OpenHandle { pid, process, .. }) => format!("{pid} {process}"),
                None => "not visible: of another user or container".to_owned(),
            };
            let held = self.details.held.iter().filter(|held| held.slot == slot);
            let held: Vec<_> = held.map(|held| held.stripe.to_string()).collect();
            [slot.to_string(), process, held.join(" ")]
        };
        self.details.slots.iter().map(line).collect()
    }
}

/// Formats an age.
pub fn age(age: Age) -> String {
    match age {
        Age::Items(inserts) => format!("{} inserts", formatting::count(inserts as f64)),
        // Finer parts only distract.
        Age::Time(time) if time.as_secs() > 0 => {
            formatting::duration(Duration::from_secs(time.as_secs()))
        }
        Age::Time(time) => formatting::duration(Duration::from_millis(time.as_millis() as u64)),
    }
}

/// What a filter showed at its last change.
struct Seen {
    looked: Instant,
    inserts: u64,
    durable: u64,
    /// Since when the durable end stands still although records wait.
    stuck: Option<Instant>,
    /// Since when writers wait for a checkpoint.
    waiting: Option<Instant>,
    /// The held stripes, and since when.
    held: Vec<(HeldStripe, Instant)>,
}

/// A filter that is looked at.
pub struct Observer {
    dir: PathBuf,
    past: Past,
    reader: Reader<Any>,
    seen: Option<Seen>,
}

impl Observer {
    /// Opens a filter for looks, or what it was at a moment of its past.
    pub fn open(dir: &Path, past: Past) -> Result<Self> {
        let reader = at_rest::look(dir, &past, Options::new())?;
        Ok(Self { dir: dir.to_owned(), past, reader, seen: None })
    }

    /// Returns the filter's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the filter.
    pub fn reader(&self) -> &Reader<Any> {
        &self.reader
    }

    /// Looks at the filter now.
    pub fn look(&mut self) -> Result<Observation> {
        let (stat, details) = (self.reader.stat()?, self.reader.details()?);
        let handles = match self.past.at {
            Some(_) => Vec::new(),
            // Whether processes are visible is no condition of a look.
            None => inspect::handles(&self.dir).unwrap_or_default(),
        };
        let now = Instant::now();
        let rate = self.seen.as_ref().map(|seen| {
            let time = now.duration_since(seen.looked).as_secs_f64().max(1e-6);
            stat.inserts.saturating_sub(seen.inserts) as f64 / time
        });
        let mut seen = Observation { stat, details, handles, rate, remarks: Vec::new() };
        let noted = self.note(&seen, now);
        seen.remarks = remarks(&seen, &noted, now);
        self.seen = Some(noted);
        Ok(seen)
    }

    /// Returns what this look shows, with the times since when it has been so.
    fn note(&self, now_seen: &Observation, now: Instant) -> Seen {
        let (stat, details, before) = (&now_seen.stat, &now_seen.details, self.seen.as_ref());
        let stands = before.filter(|before| before.durable == stat.durable_lsn);
        let stuck = (now_seen.undurable() > 0 && !details.slots.is_empty())
            .then(|| stands.and_then(|before| before.stuck).unwrap_or(now));
        let waiting = details
            .waits_for_checkpoint
            .then(|| before.and_then(|before| before.waiting).unwrap_or(now));
        let since = |held: &HeldStripe| {
            let earlier = before.and_then(|before| {
                before.held.iter().find(|(other, _)| other == held).map(|(_, since)| *since)
            });
            (*held, earlier.unwrap_or(now))
        };
        let held = details.held.iter().map(since).collect();
        let (inserts, durable) = (stat.inserts, stat.durable_lsn);
        Seen { looked: now, inserts, durable, stuck, waiting, held }
    }
}

/// Returns what is wrong with a filter.
fn remarks(seen: &Observation, noted: &Seen, now: Instant) -> Vec<String> {
    let Observation { stat, details, handles, .. } = seen;
    let lasted = |since: Instant| now.duration_since(since);
    let text = |time: Duration| formatting::duration(Duration::from_secs(time.as_secs()));
    let mut all = Vec::new();
    if details.poisoned {
        all.push(
            "writes are refused: a sync failed or a change was left half done; restart the \
                  processes that have the filter open"
                .to_owned(),
        );
    }
    for handle in handles.iter().filter(|handle| handle.stopped) {
        all.push(format!("process {} ({}) is stopped", handle.pid, handle.process));
    }
    for (held, since) in noted.held.iter().filter(|(_, since)| lasted(*since) > HELD_TOO_LONG) {
        let handle = handles.iter().find(|handle| handle.slot == held.slot);
        let who = handle.map_or_else(
            || format!("handle {}", held.slot),
            |handle| format!("process {} ({})", handle.pid, handle.process),
        );
        all.push(format!("stripe {} held for {} by {who}", held.stripe, text(lasted(*since))));
    }
    let patience = match stat.durability {
        Durability::Always => Some(SLOW),
        Durability::Interval(every) => Some(SLOW + 2 * every),
        Durability::Never => None,
    };
    let stuck = noted.stuck.map(lasted).filter(|time| patience.is_some_and(|most| *time > most));
    all.extend(stuck.map(|time| {
        let records = seen.undurable();
        format!("{records} records not durable, and the durable end stood still for {}", text(time))
    }));
    let waiting = noted.waiting.map(lasted).filter(|time| *time > SLOW);
    all.extend(waiting.map(|time| format!("writers wait for a checkpoint for {}", text(time))));
    if seen.log_since_snapshot() > details.checkpoint_due_bytes.saturating_mul(OVERDUE) {
        all.push("no checkpoint for far too much log: it fails, or no process writes one".into());
    }
    if stat.saturated {
        all.push(
            "saturated: the false-positive rate is more than twice the planned one, or \
             --max-memory does not let the filter grow"
                .into(),
        );
    }
    all.extend(dirty_limit::remark(stat));
    let lead = stat.clock_lead.filter(|lead| lead.as_secs() >= 60);
    all.extend(lead.map(|lead| format!("the filter's time is {} ahead of the clock", text(lead))));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        assert_eq!(age(Age::Items(123_456)), "123.46 k inserts");
        assert_eq!(age(Age::micros(90_123_456)), "1m 30s");
        assert_eq!(age(Age::micros(123_456)), "123ms");
    }
}
