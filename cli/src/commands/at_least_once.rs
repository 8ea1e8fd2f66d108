//! `dedup --at-least-once`: checks lines, prints and flushes the new ones, and only then inserts. A
//! run that is killed in between loses no line; the next run prints some again.
//!
//! The lines of a piece are checked in one batch of the filter, which answers as checking and
//! inserting line by line would, and is committed when they are printed.

use super::counts::Counts;
use super::line::{Line, LineError};
use super::run::{Ended, Run};
use super::stream::{Stream, continue_with};
use crate::args::{Reading, Since};
use crate::failure::{Failure, Result};
use crate::input::Batch as Lines;
use crate::key_args::Origin;
use ebbtide::{Any, Batch, Checked, Error, Filter};

/// Lines that were checked, printed if new, and not inserted yet.
struct Piece<'f, 'b> {
    batch: Batch<'f>,
    /// The lines that were checked.
    lines: Vec<Line<'b>>,
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

impl<'a> AtLeastOnce<'a> {
    /// Reads the files and prints the new lines.
    pub fn run(&mut self, origin: Origin) -> Result<Ended> {
        let stream = self.stream;
        let call = self.filter.call().since(self.since.into());
        let call = match self.reading.durability {
            Some(durability) => call.durability(durability),
            None => call,
        };
        stream.feed(origin, true, |lines, run| {
            let mut piece = Piece { batch: Batch::new(call), lines: Vec::new() };
            let done = self.check(lines, run, &mut piece);
            // Lines before a bad line are complete, printed or not.
            self.insert(lines, run, &mut piece)?;
            done
        })
    }

    /// Checks lines, and prints the new ones.
    fn check<'b>(
        &mut self,
        lines: &Lines<'b>,
        run: &mut Run,
        piece: &mut Piece<'a, 'b>,
    ) -> Result<()> {
        for &(number, whole) in &lines.lines {
            if !run.take(lines.path, number) {
                return Ok(());
            }
            let Ok(line) = self.stream.line(lines, whole, number, run)? else { continue };
            match self.add(&line, lines, run, piece)? {
                Ok(checked) => {
                    self.stream.accept(&line);
                    // The line is too late to insert. Its key was not checked.
                    self.counts.late += u64::from(checked.is_too_late());
                    if self.counts.prints(checked.is_present()) {
                        run.output.line(line.whole, self.reading.delimiter())?;
                    }
                    piece.lines.push(line);
                }
                Err(error) => {
                    self.stream.judge(LineError::Refused(error), lines, number, run)?;
                }
            }
        }
        Ok(())
    }

    /// Checks a line in the batch; in a new one if there is no room for it. A great weight needs
    /// room for several operations.
    fn add<'b>(
        &self,
        line: &Line<'b>,
        lines: &Lines<'b>,
        run: &mut Run,
        piece: &mut Piece<'a, 'b>,
    ) -> Result<ebbtide::Result<Checked>> {
        match piece.batch.check_and_insert_entry(&line.entry()) {
            Err(Error::Parameter { name: "batch", .. }) if !piece.batch.is_empty() => {
                self.insert(lines, run, piece)?;
                Ok(piece.batch.check_and_insert_entry(&line.entry()))
            }
            checked => Ok(checked),
        }
    }

    /// Flushes the printed lines, then inserts all lines of the piece.
    fn insert(&self, lines: &Lines<'_>, run: &mut Run, piece: &mut Piece<'a, '_>) -> Result<()> {
        run.output.flush()?;
        match piece.batch.commit() {
            // Another process has inserted one of the keys since. The lines are printed: what is
            // left is to insert them.
            Err(Error::Conflict { .. }) => {
                piece.batch.clear();
                for line in &piece.lines {
                    let call = self.stream.call(line).since(self.since.into());
                    if let Err(error) = call.check_and_insert(&line.key) {
                        let error = LineError::Refused(error);
                        self.stream.judge_alone(error, lines, line.number, run)?;
                    }
                }
                self.stream.sync()?;
            }
            // Nothing of it is recorded, though its new lines are printed.
            Err(error @ Error::Io { .. }) => {
                let failure = Failure::from(error);
                let Some(first) = piece.lines.first() else { return Err(failure) };
                return Err(failure.and(&continue_with(lines.path, first.number)));
            }
            committed => committed?,
        }
        piece.lines.clear();
        Ok(())
    }
}
