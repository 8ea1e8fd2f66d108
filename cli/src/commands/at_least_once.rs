//! `dedup --at-least-once`: checks lines, prints and flushes the new ones, and only then inserts. A
//! run that is killed in between loses no line; the next run prints some again.
//!
//! Lines are checked before the lines in front of them are inserted. A piece therefore ends early
//! enough for its answers to equal those of checking and inserting line by line: before a key
//! repeats within the piece, because the first occurrence may be new or refresh it, and before the
//! piece is a considerable share of the window.

use super::counts::Counts;
use super::line::Line;
use super::run::{Ended, Run};
use super::stream::{LineError, Stream};
use crate::args::{Reading, Since};
use crate::failure::Result;
use crate::input::Batch;
use crate::key_args::Origin;
use ebbtide::{Any, Checked, Error, Filter, Timestamp};
use std::borrow::Cow;
use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest share of a window of items in one piece; a key may stay in the window for that much
/// longer.
const SHARE: usize = 64;

/// Lines that were checked, printed if new, and not inserted yet.
struct Piece<'b> {
    /// The lines to insert, and whether the key of each was present.
    lines: Vec<(Line<'b>, bool)>,
    /// The keys of these lines.
    keys: HashSet<Cow<'b, [u8]>>,
}

/// Deduplicates lines.
pub struct AtLeastOnce<'a> {
    pub filter: &'a Filter<Any>,
    pub stream: &'a Stream<'a, Filter<Any>>,
    pub reading: &'a Reading,
    pub since: Since,
    /// Counts the lines.
    pub counts: &'a mut Counts,
}

impl AtLeastOnce<'_> {
    /// Reads the files and prints the new lines.
    pub fn run(&mut self, origin: Origin) -> Result<Ended> {
        let parameters = self.filter.parameters();
        let window = parameters.get("window-items").and_then(|items| items.parse::<usize>().ok());
        let most = window.map_or(usize::MAX, |items| (items / SHARE).max(1));
        let stream = self.stream;
        let lead = self.filter.stat()?.max_lead;
        stream.feed(origin, true, |batch, run| {
            let mut piece = Piece { lines: Vec::new(), keys: HashSet::new() };
            let limit = limit(lead);
            let done = self.batch(batch, run, &mut piece, most, limit);
            // Lines before a bad line are complete, printed or not.
            self.insert(batch, run, &mut piece)?;
            stream.sync()?;
            run.output.flush()?;
            done
        })
    }

    fn batch<'b>(
        &mut self,
        batch: &Batch<'b>,
        run: &mut Run,
        piece: &mut Piece<'b>,
        most: usize,
        limit: u64,
    ) -> Result<()> {
        for &(number, whole) in &batch.lines {
            if !run.take(batch.path, number) {
                return Ok(());
            }
            let Some(line) = self.stream.line(batch, whole, number, run)? else { continue };
            if piece.lines.len() >= most || piece.keys.contains(&line.key) {
                self.insert(batch, run, piece)?;
            }
            let present = match self.is_present(&line, limit) {
                Ok(present) => present,
                Err(error) => {
                    self.stream.judge(LineError::Refused(error), batch, number, run)?;
                    continue;
                }
            };
            if self.counts.prints(present) {
                run.output.line(line.whole, self.reading.delimiter())?;
            }
            if !present || self.since == Since::LastSeen {
                piece.keys.insert(line.key.clone());
                piece.lines.push((line, present));
            }
        }
        Ok(())
    }

    /// Returns whether the key of a line is in the window. Refuses now, before printing, a line
    /// that its insert would refuse.
    fn is_present(&self, line: &Line<'_>, limit: u64) -> ebbtide::Result<bool> {
        match line.time.map(Timestamp::as_unix_micros) {
            Some(time) if time > limit => Err(Error::TimeAhead { time, limit }),
            _ => self.stream.call(line).contains(&line.key),
        }
    }

    /// Flushes the printed lines, then inserts all lines of the piece.
    fn insert(&mut self, batch: &Batch<'_>, run: &mut Run, piece: &mut Piece<'_>) -> Result<()> {
        run.output.flush()?;
        piece.keys.clear();
        for (line, present) in piece.lines.drain(..) {
            let call = self.stream.call(&line).since(self.since.into());
            let inserted = match self.since {
                Since::LastSeen => call.insert(&line.key),
                Since::Accepted => {
                    call.check_and_insert(&line.key).map(|it| it != Checked::TooLate)
                }
            };
            match inserted {
                // The line is too late to insert. Its key was not checked, unless it was present.
                Ok(inserted) => self.counts.late += u64::from(!present && !inserted),
                Err(error) => {
                    self.stream.judge(LineError::Refused(error), batch, line.number, run)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the latest time, in microseconds since the Unix epoch, that a filter with this lead
/// accepts now.
fn limit(lead: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.saturating_add(lead).as_micros()).unwrap_or(u64::MAX)
}
