//! The loop of every command over keys: reads a batch, queries the filter, then answers; flushes
//! all answers before it waits for more input.
//!
//! No answer is given before the filter has acknowledged the whole batch: a printed line is
//! recorded as safely as the durability setting promises. Operations acknowledged before an error,
//! or before a signal ends the command, are answered. A kill between the two loses the answers of
//! that batch, but no recorded key; answers that cannot be written to the output are counted and
//! reported.

use super::event_times::EventTimes;
use super::line::{Line, LineError, MOST_NUMBERS, Skipped};
use super::run::{Ended, Run};
use crate::args::Reading;
use crate::failure::{Failure, Result, misfit};
use crate::formatting;
use crate::input::{Batch, Input};
use crate::key_args::Origin;
use crate::key_part::KeyParts;
use crate::output::Output;
use ebbtide::{Any, Call, Durability, Error, Filter, Reader, Timestamp};
use std::borrow::Cow;
use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::path::Path;

/// The lines that are parsed before the first of them is asked about, so that their waits for
/// memory overlap.
const AHEAD: usize = 16;

/// A filter or reader that processes lines.
pub trait Fed {
    /// An operation with its settings.
    type Call<'a>
    where
        Self: 'a;

    /// Returns an operation with these settings.
    fn call(&self, settings: Settings) -> Self::Call<'_>;

    /// Returns its latest time, if it has one.
    fn latest(&self) -> ebbtide::Result<Option<Timestamp>>;

    /// Prefetches what an operation on this key will read. Returns its hash, if that has a use in
    /// [`Settings`].
    fn prefetch(&self, _key: &[u8]) -> Option<u64> {
        None
    }
}

/// Settings of one operation.
#[derive(Clone, Copy, Default)]
pub struct Settings {
    /// The time, if the lines contain times.
    pub time: Option<Timestamp>,
    /// The weight, if the lines contain weights.
    pub weight: Option<f64>,
    /// The durability, if it is not the filter's.
    pub durability: Option<Durability>,
    /// The key's hash, if [`Fed::prefetch`] has returned it.
    pub hash: Option<u64>,
}

/// Nothing: lines are only read.
impl Fed for () {
    type Call<'a> = ();

    fn call(&self, _: Settings) {}

    fn latest(&self) -> ebbtide::Result<Option<Timestamp>> {
        Ok(None)
    }
}

impl Fed for Reader<Any> {
    type Call<'a> = Call<'a, Reader>;

    fn call(&self, settings: Settings) -> Call<'_, Reader> {
        let call = Self::call(self);
        match settings.time {
            Some(time) => call.time(time),
            None => call,
        }
    }

    fn latest(&self) -> ebbtide::Result<Option<Timestamp>> {
        Ok(self.stat()?.time)
    }
}

impl Fed for Filter<Any> {
    type Call<'a> = Call<'a>;

    fn call(&self, settings: Settings) -> Call<'_> {
        let mut call = Self::call(self);
        if let Some(time) = settings.time {
            call = call.time(time);
        }
        if let Some(weight) = settings.weight {
            call = call.weight(weight);
        }
        if let Some(durability) = settings.durability {
            call = call.durability(durability);
        }
        call
    }

    fn latest(&self) -> ebbtide::Result<Option<Timestamp>> {
        Ok(self.stat()?.time)
    }
}

/// Passes lines to a filter.
pub struct Stream<'a, F> {
    filter: &'a F,
    reading: &'a Reading,
    /// The parts of a line that are its key and its time.
    parts: KeyParts,
    /// The numbers of the parts' columns in the current file, for CSV.
    columns: RefCell<Vec<usize>>,
    /// The times of lines, if they have any.
    times: Option<EventTimes>,
    /// The output for the header of a file of CSV.
    headers: Headers,
    /// The names of the numbers at the end of lines.
    numbers: &'a [&'a str],
    /// The durability of each call.
    durability: Option<Durability>,
    /// Whether the filter changes: then no answer is delayed beyond its batch.
    changes: bool,
    /// Whether the filter outlives the run: then no lost answer may go unreported.
    outlives: bool,
    /// The filter to sync after every batch, before the answers.
    sync_batches: Option<&'a Filter<Any>>,
    /// The output for a skipped line.
    skipped: Skipped,
    /// The largest number of lines of a batch.
    batch: usize,
}

/// The output for the header of a file of CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headers {
    /// Nothing: the command prints answers.
    Silent,
    /// The header of the first file, because the command prints lines. All files must have the
    /// same header.
    Printed,
    /// Nothing, but all files must have the same header.
    Omitted,
}

impl<'a> Stream<'a, Filter<Any>> {
    /// Creates a stream that changes `filter`.
    pub fn changing(filter: &'a Filter<Any>, reading: &'a Reading) -> Result<Self> {
        let mut stream = Self { changes: true, outlives: true, ..Self::asking(filter, reading)? };
        let wanted = match reading.durability {
            Some(wanted) => wanted,
            None => filter.stat()?.durability,
        };
        // Avoids one wait for the disk per call: the calls of a batch share one sync.
        if matches!(wanted, Durability::Always) {
            stream.durability = Some(Durability::Never);
            stream.sync_batches = Some(filter);
        }
        Ok(stream)
    }
}

impl<'a, F: Fed> Stream<'a, F> {
    /// Creates a stream that changes a filter which ends with the run: lost answers leave no trace.
    pub fn for_this_run(filter: &'a F, reading: &'a Reading) -> Result<Self> {
        Ok(Self { changes: true, ..Self::asking(filter, reading)? })
    }

    /// Creates a stream that only queries `filter`.
    pub fn asking(filter: &'a F, reading: &'a Reading) -> Result<Self> {
        Ok(Self {
            filter,
            reading,
            parts: KeyParts::new(reading)?,
            columns: RefCell::default(),
            times: EventTimes::new(reading, || filter.latest())?,
            headers: Headers::Silent,
            numbers: &[],
            durability: reading.durability,
            changes: false,
            outlives: false,
            sync_batches: None,
            skipped: Skipped::Nothing,
            batch: reading.batch(),
        })
    }

    /// Sets the largest number of lines of a batch, in place of `--batch`.
    pub fn in_batches_of(mut self, most: NonZeroUsize) -> Self {
        self.batch = most.get();
        self
    }

    /// Sets the output for headers.
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Reads numbers of these names at the end of each line, after the weight if there is one: at
    /// most [`MOST_NUMBERS`].
    pub fn ending_in(mut self, names: &'a [&'a str]) -> Self {
        self.numbers = names;
        self
    }

    /// Sets the output for skipped lines.
    pub fn skipping(mut self, skipped: Skipped) -> Self {
        self.skipped = skipped;
        self
    }

    /// Processes all lines of the files: `ask` receives every line, `tell` every line with its
    /// answer, in order.
    pub fn run<A>(
        &self,
        origin: Origin,
        prints_answers: bool,
        mut ask: impl FnMut(F::Call<'a>, &Line<'_>) -> ebbtide::Result<A>,
        mut tell: impl FnMut(Line<'_>, A, &mut Output) -> Result<()>,
    ) -> Result<Ended> {
        self.feed(origin, prints_answers, |batch, run| {
            let (Asked { lines, answers }, failure) = self.ask_all(batch, run, &mut ask);
            let synced = self.sync();
            for ((line, answer), &(number, whole)) in
                lines.into_iter().zip(answers).zip(&batch.lines)
            {
                match (line, answer) {
                    (Ok(line), Ok(answer)) => tell(line, answer, &mut run.output)?,
                    (_, Err(what)) => run.print_skipped(number, whole, &what)?,
                    // Unreachable: the answer of a line that cannot be parsed is its error.
                    (Err(_), Ok(_)) => {}
                }
                run.output.answers(number);
            }
            // Without the sync the answers are not printed, because their operations may not be
            // durable; but they are counted.
            synced?;
            if self.changes || failure.is_some() {
                run.output.flush()?;
            }
            failure.map_or(Ok(()), Err)
        })
    }

    /// Passes every batch of lines to `work`, until the end, an error, or a signal. `work` calls
    /// [`Run::take`] for each line that it begins.
    pub fn feed(
        &self,
        origin: Origin,
        prints_answers: bool,
        mut work: impl FnMut(&Batch<'_>, &mut Run) -> Result<()>,
    ) -> Result<Ended> {
        let mut run = Run::new(self.outlives, self.changes, self.skipped)?;
        let stop = run.stop.clone();
        let mut input = Input::new(origin, self.reading, prints_answers, &stop)?;
        let mut header = None;
        let most = self.batch;
        loop {
            let done = match input.next_batch(most, || run.output.flush()) {
                Ok(None) => break,
                // No reader would receive the answers: the batch is not recorded either.
                Ok(Some(_)) if self.changes && prints_answers && run.output.is_closed() => {
                    Err(Failure::ClosedPipe)
                }
                Ok(Some(mut batch)) => match self.take_header(&mut batch, &mut header, &mut run) {
                    Ok(()) => work(&batch, &mut run),
                    failed => failed,
                },
                Err(failure) => Err(failure),
            };
            if let Err(failure) = done {
                if !self.changes {
                    // Only the next line was refused: the answers to the lines before it are valid.
                    let _ = run.output.flush();
                }
                return run.fail(failure);
            }
        }
        // Also clears the progress bar.
        drop(input);
        match run.output.flush() {
            Ok(()) => Ok(run.end()),
            Err(failure) => run.fail(failure),
        }
    }

    /// Removes the header from the first batch of a file of CSV, and finds the parts' columns in
    /// it. `first` is the header of the first file.
    pub fn take_header(
        &self,
        batch: &mut Batch<'_>,
        first: &mut Option<Vec<u8>>,
        run: &mut Run,
    ) -> Result<()> {
        if !batch.begins_file || !self.parts.is_csv() {
            return Ok(());
        }
        let (number, header) = batch.lines.remove(0);
        let refuse = |what: String| {
            Err(Failure::Error(format!("{}, line {number}: {what}", batch.path.display())))
        };
        match self.parts.columns(header) {
            Ok(columns) => *self.columns.borrow_mut() = columns,
            Err(what) => return refuse(what),
        }
        match (self.headers, &*first) {
            (Headers::Silent, _) => {}
            (_, Some(first)) if first != header => {
                return refuse(misfit("the header of the first file, to print one table", header));
            }
            (Headers::Printed, None) => run.output.line(header, self.reading.delimiter())?,
            _ => {}
        }
        first.get_or_insert(header.to_vec());
        Ok(())
    }

    /// Asks about the lines of a batch, up to the first failure; returns that as well.
    fn ask_all<'b, A>(
        &self,
        batch: &Batch<'b>,
        run: &mut Run,
        ask: &mut impl FnMut(F::Call<'a>, &Line<'_>) -> ebbtide::Result<A>,
    ) -> (Asked<'b, A>, Option<Failure>) {
        let count = batch.lines.len();
        // Lines stay where they are parsed: moving them takes as long as parsing.
        let (mut lines, mut answers) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for ahead in batch.lines.chunks(AHEAD) {
            let from = lines.len();
            for &(number, whole) in ahead {
                lines.push(self.parse(batch.path, whole, number));
                if let Some(Ok(line)) = lines.last_mut() {
                    line.hash = self.filter.prefetch(&line.key);
                }
            }
            for (line, &(number, _)) in lines[from..].iter_mut().zip(ahead) {
                if !run.take(batch.path, number) {
                    return (Asked { lines, answers }, None);
                }
                let answer = match line {
                    Ok(line) => self.ask_one(batch.path, line, ask),
                    Err(error) => Err(std::mem::take(error)),
                };
                // One call per key: if one fails, the answers to the keys before it are not lost.
                match answer.map_err(|error| self.judge_alone(error, batch, number, run)) {
                    Ok(answer) => answers.push(Ok(answer)),
                    Err(Ok(what)) => answers.push(Err(what)),
                    Err(Err(failure)) => return (Asked { lines, answers }, Some(failure)),
                }
            }
        }
        (Asked { lines, answers }, None)
    }

    fn ask_one<A>(
        &self,
        path: &Path,
        line: &Line<'_>,
        ask: &mut impl FnMut(F::Call<'a>, &Line<'_>) -> ebbtide::Result<A>,
    ) -> std::result::Result<A, LineError> {
        self.take(path, line)?;
        let answer = ask(self.call(line), line).map_err(LineError::Refused)?;
        self.accept(line);
        Ok(answer)
    }

    /// Syncs the changes of a batch, if every batch is synced.
    pub fn sync(&self) -> Result<()> {
        Ok(self.sync_batches.map_or(Ok(()), Filter::sync)?)
    }

    /// Returns an operation with the settings of a line.
    pub fn call(&self, line: &Line<'_>) -> F::Call<'a> {
        let Line { time, weight, hash, .. } = *line;
        self.filter.call(Settings { time, weight, durability: self.durability, hash })
    }

    /// Parses the line of this number; returns what is wrong with it if it is skipped. If the
    /// filter accepts it, [`Stream::accept`] is to be called before the next line.
    pub fn line<'b>(
        &self,
        batch: &Batch<'b>,
        whole: &'b [u8],
        number: u64,
        run: &mut Run,
    ) -> Result<std::result::Result<Line<'b>, String>> {
        let parsed = self.parse(batch.path, whole, number);
        match parsed.and_then(|line| self.take(batch.path, &line).map(|()| line)) {
            Ok(line) => Ok(Ok(line)),
            Err(error) => self.judge(error, batch, number, run).map(Err),
        }
    }

    /// Takes the time of a line, unless it is too far ahead of those of accepted lines before it.
    fn take(&self, path: &Path, line: &Line<'_>) -> std::result::Result<(), LineError> {
        match (&self.times, line.time, line.form) {
            (Some(times), Some(time), Some(form)) => {
                times.take((path, line.number), (time, form)).map_err(LineError::Malformed)
            }
            _ => Ok(()),
        }
    }

    /// Lets the time of a line count, which the filter has accepted.
    pub fn accept(&self, line: &Line<'_>) {
        if let (Some(times), Some(time)) = (&self.times, line.time) {
            times.accept(time);
        }
    }

    /// Returns the times of lines, if they have any.
    pub fn times(&self) -> Option<&EventTimes> {
        self.times.as_ref()
    }

    /// As [`Stream::judge`], where each line is recorded alone: says so if the filter fails, so
    /// that nobody who tries again repeats them.
    pub fn judge_alone(
        &self,
        error: LineError,
        batch: &Batch<'_>,
        number: u64,
        run: &mut Run,
    ) -> Result<String> {
        let is_of_system = matches!(error, LineError::Refused(Error::Io { .. }));
        let judged = self.judge(error, batch, number, run);
        if !is_of_system || !self.changes || !self.outlives {
            return judged;
        }
        judged.map_err(|failure| failure.and(&continue_with(batch.path, number)))
    }

    /// Decides about a line without an answer: returns its error if it is skipped, fails if it ends
    /// the run.
    pub fn judge(
        &self,
        error: LineError,
        batch: &Batch<'_>,
        number: u64,
        run: &mut Run,
    ) -> Result<String> {
        let place = format!("{}, line {number}", batch.path.display());
        let (what, is_fatal) = match error {
            LineError::Malformed(what) => (what, false),
            LineError::Unit(what) => {
                (what, !self.times.as_ref().is_some_and(EventTimes::is_unit_known))
            }
            LineError::Refused(error) => (self.refused(error)?, false),
        };
        if is_fatal || !self.reading.skip_bad {
            return Err(Failure::Error(format!("{place}: {what}")));
        }
        run.skip(|| format!("{place}: {what}"));
        Ok(what)
    }

    /// Returns what is wrong with a line that the filter refuses; any other error ends the run.
    fn refused(&self, error: Error) -> Result<String> {
        match error {
            Error::TimeAhead { time, limit } => {
                let [time, limit] = [time, limit].map(|micros| {
                    let time = Timestamp::from_unix_micros(micros);
                    self.times.as_ref().map_or_else(|| formatting::time(time), |it| it.shown(time))
                });
                Ok(format!(
                    "time {time} is further ahead of the clock than the filter's max lead allows, \
                     until {limit}; correct the time, or create the filter with a larger --max-lead"
                ))
            }
            // The line may be sound: the batch has no room for it.
            Error::Parameter { name: "batch", .. } => Err(Failure::Error(
                "the weights of the lines that are recorded in one step are too great for it; give \
                 a smaller --batch"
                    .to_owned(),
            )),
            Error::Parameter { .. } => Ok(error.to_string()),
            error => Err(error.into()),
        }
    }

    /// Parses a line of this file, or returns what is wrong with it.
    fn parse<'b>(
        &self,
        path: &Path,
        whole: &'b [u8],
        number: u64,
    ) -> std::result::Result<Line<'b>, LineError> {
        let malformed = LineError::Malformed;
        let (key, numbers) = (Cow::default(), [0.0; MOST_NUMBERS]);
        let (time, form, weight, hash) = (None, None, None, None);
        let mut line = Line { whole, number, key, time, form, weight, numbers, hash };
        let columns = self.columns.borrow();
        let mut rest = whole;
        let mut time = None;
        let in_front = self.times.as_ref().filter(|times| times.in_front());
        if let Some(times) = in_front {
            let (read, behind) = times.in_front_of(path, rest)?;
            (time, rest) = (Some(read), behind);
        }
        for at in (0..self.numbers.len()).rev() {
            let form = || format!("KEY<TAB>{}", self.numbers.join("<TAB>"));
            (rest, line.numbers[at]) =
                numbered(rest).ok_or_else(|| malformed(misfit(&form(), whole)))?;
        }
        if self.reading.weight {
            let misfit = || malformed(misfit("KEY<TAB>NUMBER", whole));
            let (before, weight) = numbered(rest).ok_or_else(misfit)?;
            (rest, line.weight) = (before, Some(weight));
        }
        line.key = self.parts.key(rest, &columns).map_err(malformed)?;
        if let Some(times) = &self.times {
            let read = match time {
                Some(time) => time,
                None => times.in_part(path, rest, &self.parts, &columns)?,
            };
            (line.time, line.form) = (Some(read.0), Some(read.1));
        }
        Ok(line)
    }
}

/// Says with which line a run continues that has failed there.
pub fn continue_with(path: &Path, number: u64) -> String {
    format!("continue with line {number} of {}: those before are recorded", path.display())
}

/// The lines of a batch.
struct Asked<'a, A> {
    /// As parsed.
    lines: Vec<std::result::Result<Line<'a>, LineError>>,
    /// The answers to the first of them; of a skipped line its error.
    answers: Vec<std::result::Result<A, String>>,
}

/// Splits `KEY<TAB>NUMBER` at the last tab.
fn numbered(line: &[u8]) -> Option<(&[u8], f64)> {
    let tab = memchr::memrchr(b'\t', line)?;
    let weight = std::str::from_utf8(&line[tab + 1..]).ok()?.parse().ok()?;
    Some((&line[..tab], weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_what_is_behind_the_last_tab() {
        assert_eq!(numbered(b"a\tb\t2.5"), Some((b"a\tb".as_slice(), 2.5)));
        assert_eq!(numbered(b"\t7"), Some((b"".as_slice(), 7.0)));
        for line in [b"".as_slice(), b"a", b"a\t", b"a\tb", b"a\t1 "] {
            assert_eq!(numbered(line), None, "{:?}", String::from_utf8_lossy(line));
        }
    }
}
