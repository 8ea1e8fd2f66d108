//! A line of input, and the output for a skipped one.

use crate::output::Form;
use crate::times::Found;
use ebbtide::{Entry, Error, Timestamp};
use std::borrow::Cow;

/// The largest number of numbers at the end of a line, besides its weight.
pub const MOST_NUMBERS: usize = 3;

/// The output for a line that `--skip-bad` skips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skipped {
    /// Nothing: answers are lines of the input, or there are none.
    Nothing,
    /// A question mark, so that answers and lines stay aligned; in a form with keys, the line
    /// behind it.
    Answer(Form),
}

/// A line of input.
#[derive(Clone)]
pub struct Line<'a> {
    /// The whole line.
    pub whole: &'a [u8],
    /// The number of the line in its file, from 1.
    pub number: u64,
    /// The key.
    pub key: Cow<'a, [u8]>,
    /// The time, if the lines contain times.
    pub time: Option<Timestamp>,
    /// The form of the time.
    pub form: Option<Found>,
    /// The weight, if the lines contain weights.
    pub weight: Option<f64>,
    /// The numbers at the end of the line, in the order of the stream's names.
    pub numbers: [f64; MOST_NUMBERS],
    /// The key's hash, if the filter has returned it.
    pub hash: Option<u64>,
}

impl Line<'_> {
    /// Returns the key with the line's time and weight, for a batch.
    pub fn entry(&self) -> Entry<&[u8]> {
        let mut entry = Entry::new(&*self.key);
        if let Some(time) = self.time {
            entry = entry.time(time);
        }
        if let Some(weight) = self.weight {
            entry = entry.weight(weight);
        }
        entry
    }
}

/// Why a line has no answer.
pub enum LineError {
    /// The line is malformed; this is what is wrong with it.
    Malformed(String),
    /// The time is in another unit than an option says. If no time was taken before, no line should
    /// be skipped.
    Unit(String),
    /// The filter refused the line.
    Refused(Error),
}

/// For a line whose error was taken out.
impl Default for LineError {
    fn default() -> Self {
        Self::Malformed(String::new())
    }
}
