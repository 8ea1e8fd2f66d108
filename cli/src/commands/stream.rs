//! What every command over keys does: reads a batch, asks the filter, then answers; and hands over all
//! answers before it waits for more input.
//!
//! No answer is given before the filter has acknowledged the whole batch: a line that was printed is
//! remembered as safely as the durability says. What was acknowledged before an error is answered. A
//! kill between the two loses the answers of that batch, never the memory.

use crate::args::Reading;
use crate::failure::{Failure, Result, misfit};
use crate::input::{Batch, Input};
use crate::output::Output;
use ebbtide::{Any, Call, Durability, Error, Filter, Timestamp};
use std::path::PathBuf;

/// Numbers at the end of a line, at most, besides its weight.
pub const MOST_NUMBERS: usize = 3;

/// What can be fed lines.
pub trait Fed {
    /// An operation with settings of its own.
    type Call<'a>
    where
        Self: 'a;

    /// One with these settings.
    fn call(&self, settings: Settings) -> Self::Call<'_>;
}

/// What is said of one operation.
#[derive(Clone, Copy, Default)]
pub struct Settings {
    /// Its time, if the lines carry times.
    pub time: Option<Timestamp>,
    /// Its weight, if the lines carry weights.
    pub weight: Option<f64>,
    /// Its durability, if it is not the filter's.
    pub durability: Option<Durability>,
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
}

/// A filter that is fed lines.
pub struct Stream<'a, F> {
    filter: &'a F,
    reading: &'a Reading,
    field: Option<usize>,
    /// The names of the numbers in which lines end.
    numbers: &'a [&'a str],
    /// The durability of each call.
    durability: Option<Durability>,
    /// Whether the filter changes: then no answer is held back for longer than its batch.
    changes: bool,
    /// What is synced after every batch, before it is answered.
    sync_batches: Option<&'a Filter<Any>>,
}

/// A line of input.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    /// All of it.
    pub whole: &'a [u8],
    /// Its key.
    pub key: &'a [u8],
    /// Its time, if the lines carry times.
    time: Option<Timestamp>,
    /// Its weight, if the lines carry weights.
    weight: Option<f64>,
    /// The numbers in which it ends, as many as the stream was told of, in order.
    pub numbers: [f64; MOST_NUMBERS],
}

impl<'a> Stream<'a, Filter<Any>> {
    /// Changes `filter` by lines; whole lines are keys.
    pub fn changing(filter: &'a Filter<Any>, reading: &'a Reading) -> Result<Self> {
        let mut stream = Self { changes: true, ..Self::asking(filter, reading) };
        let wanted = match reading.durability {
            Some(wanted) => wanted,
            None => filter.stat()?.durability,
        };
        // Where each call would wait for the disk, the calls of a batch share one sync.
        if matches!(wanted, Durability::Always) {
            stream.durability = Some(Durability::Never);
            stream.sync_batches = Some(filter);
        }
        Ok(stream)
    }
}

impl<'a, F: Fed> Stream<'a, F> {
    /// Asks `filter` about lines; whole lines are keys.
    pub fn asking(filter: &'a F, reading: &'a Reading) -> Self {
        Self {
            filter,
            reading,
            field: None,
            numbers: &[],
            durability: reading.durability,
            changes: false,
            sync_batches: None,
        }
    }

    /// The key is this field of the line, from 1.
    pub fn by_field(mut self, number: Option<usize>) -> Self {
        self.field = number;
        self
    }

    /// Lines end in these numbers, behind the weight if they carry one: at most [`MOST_NUMBERS`].
    pub fn ending_in(mut self, names: &'a [&'a str]) -> Self {
        self.numbers = names;
        self
    }

    /// Feeds all lines of the files: `ask` gets every line, `tell` every line with its answer, in order.
    pub fn run<A>(
        &self,
        files: Vec<PathBuf>,
        prints_answers: bool,
        mut ask: impl FnMut(F::Call<'a>, &Line<'_>) -> ebbtide::Result<A>,
        mut tell: impl FnMut(Line<'_>, A, &mut Output) -> Result<()>,
    ) -> Result<()> {
        let mut output = Output::new()?;
        let mut input = Input::new(files, self.reading.delimiter(), prints_answers)?;
        let most = self.reading.batch.get();
        while let Some(batch) = input.next_batch(most, || output.flush())? {
            let (answered, failure) = self.ask_all(&batch, &mut ask);
            if let Some(filter) = self.sync_batches {
                filter.sync()?;
            }
            for (line, answer) in answered {
                tell(line, answer, &mut output)?;
            }
            if self.changes || failure.is_some() {
                output.flush()?;
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
        output.flush()
    }

    /// The lines with their answers, up to the first that is malformed or refused, and what is wrong with that.
    fn ask_all<'b, A>(
        &self,
        batch: &Batch<'b>,
        ask: &mut impl FnMut(F::Call<'a>, &Line<'_>) -> ebbtide::Result<A>,
    ) -> (Vec<(Line<'b>, A)>, Option<Failure>) {
        let mut answered = Vec::with_capacity(batch.lines.len());
        for whole in &batch.lines {
            // Key by key: if one fails, the answers to those before it are known, and not lost.
            let answer = self.parse(whole).map_err(LineError::Malformed);
            let answer = answer.and_then(|line| {
                let Line { time, weight, .. } = line;
                let settings = Settings { time, weight, durability: self.durability };
                match ask(self.filter.call(settings), &line) {
                    Ok(answer) => Ok((line, answer)),
                    Err(error) => Err(LineError::Refused(error)),
                }
            });
            match answer {
                Ok(pair) => answered.push(pair),
                Err(error) => {
                    let number = batch.first_line + answered.len() as u64;
                    return (answered, Some(error.at(batch, number)));
                }
            }
        }
        (answered, None)
    }

    /// A line in its parts, or what is wrong with it.
    fn parse<'b>(&self, whole: &'b [u8]) -> std::result::Result<Line<'b>, String> {
        let numbers = [0.0; MOST_NUMBERS];
        let mut line = Line { whole, key: whole, time: None, weight: None, numbers };
        if self.reading.event_time {
            let (time, rest) =
                stamped(line.key).ok_or_else(|| misfit("UNIX_MILLIS<TAB>KEY", whole))?;
            (line.time, line.key) = (Some(time), rest);
        }
        for at in (0..self.numbers.len()).rev() {
            let form = || format!("KEY<TAB>{}", self.numbers.join("<TAB>"));
            (line.key, line.numbers[at]) =
                numbered(line.key).ok_or_else(|| misfit(&form(), whole))?;
        }
        if self.reading.weight {
            let (rest, weight) =
                numbered(line.key).ok_or_else(|| misfit("KEY<TAB>NUMBER", whole))?;
            (line.key, line.weight) = (rest, Some(weight));
        }
        if let Some(number) = self.field {
            line.key = field(line.key, number);
        }
        Ok(line)
    }
}

/// Why a line has no answer.
enum LineError {
    Malformed(String),
    Refused(Error),
}

impl LineError {
    /// The failure to report; it names the line if the line is at fault.
    fn at(self, batch: &Batch<'_>, number: u64) -> Failure {
        let what = match self {
            Self::Malformed(what) => what,
            Self::Refused(error @ (Error::TimeAhead { .. } | Error::Parameter { .. })) => {
                error.to_string()
            }
            Self::Refused(error) => return error.into(),
        };
        Failure::Error(format!("{}, line {number}: {what}", batch.path.display()))
    }
}

/// Splits `KEY<TAB>NUMBER` at the last tab.
fn numbered(line: &[u8]) -> Option<(&[u8], f64)> {
    let tab = memchr::memrchr(b'\t', line)?;
    let weight = std::str::from_utf8(&line[tab + 1..]).ok()?.parse().ok()?;
    Some((&line[..tab], weight))
}

/// Splits `UNIX_MILLIS<TAB>KEY`.
fn stamped(line: &[u8]) -> Option<(Timestamp, &[u8])> {
    let tab = memchr::memchr(b'\t', line)?;
    let (digits, key) = (&line[..tab], &line[tab + 1..]);
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let millis: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    // The filter counts microseconds in 64 bits.
    millis.checked_mul(1000)?;
    Some((Timestamp::from_unix_millis(millis), key))
}

/// The field of this number, from 1, as awk splits fields: at blanks, those at the ends ignored. Empty if there is none.
fn field(line: &[u8], number: usize) -> &[u8] {
    line.split(|byte| matches!(byte, b' ' | b'\t'))
        .filter(|field| !field.is_empty())
        .nth(number - 1)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_split_at_blanks_as_awk_does() {
        let line = b"  one two\t three\r";
        assert_eq!(field(line, 1), b"one");
        assert_eq!(field(line, 2), b"two");
        assert_eq!(field(line, 3), b"three\r");
        assert_eq!(field(line, 4), b"");
        assert_eq!(field(b"", 1), b"");
    }

    #[test]
    fn a_number_is_what_is_behind_the_last_tab() {
        assert_eq!(numbered(b"a\tb\t2.5"), Some((b"a\tb".as_slice(), 2.5)));
        assert_eq!(numbered(b"\t7"), Some((b"".as_slice(), 7.0)));
        for line in [b"".as_slice(), b"a", b"a\t", b"a\tb", b"a\t1 "] {
            assert_eq!(numbered(line), None, "{:?}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn a_stamp_is_digits_and_the_key_is_all_behind_the_first_tab() {
        let (time, key) = stamped(b"1500\ta\tb").expect("stamp");
        assert_eq!((time.as_unix_millis(), key), (1500, b"a\tb".as_slice()));
        let malformed: [&[u8]; 6] =
            [b"", b"\tkey", b"12", b"+1\tkey", b"1.5\tkey", b"18446744073709551615\tkey"];
        for line in malformed {
            assert!(stamped(line).is_none(), "{:?}", String::from_utf8_lossy(line));
        }
    }
}
