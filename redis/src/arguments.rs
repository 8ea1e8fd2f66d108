//! Arguments of commands as numbers, words and times, and errors as replies.

use crate::ffi::{Call, Failure};
use ebbtide_core::Error;
use ebbtide_core::claims::{LONGEST_LEASE, LeaseTime};
use ebbtide_core::units::{parse_count, parse_duration};
use std::fmt::Display;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Creates the error reply for an argument.
pub fn wrong(what: impl Display, expected: impl Display, found: &[u8]) -> Failure {
    let found = String::from_utf8_lossy(&found[..found.len().min(64)]).into_owned();
    Failure::new("PARAMETER", format!("{what}: expected {expected}, found {found:?}"))
}

/// Creates the error reply for arguments that no form of the command has.
pub fn syntax(form: &str) -> Failure {
    Failure::new("PARAMETER", format!("expected {form}"))
}

/// Creates the error reply for a refused operation.
pub fn refused(error: &Error) -> Failure {
    let code = match error {
        Error::Unsupported { .. } => "UNSUPPORTED",
        Error::TimeAhead { .. } => "TIMEAHEAD",
        Error::Damaged { .. } => "DAMAGED",
        Error::Version { .. } => "VERSION",
        Error::Diverged { .. } => "DIVERGED",
        Error::Memory { .. } => "OOM",
        Error::LeaseLost { .. } => "LEASELOST",
        Error::ClaimsFull { .. } => "CLAIMSFULL",
        _ => "PARAMETER",
    };
    Failure::new(code, error.to_string())
}

/// Returns whether an argument is a word, in small or capital letters.
pub fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// Returns an argument as text.
///
/// # Errors
/// `PARAMETER` if it is not UTF-8.
pub fn text<'a>(what: &str, argument: &'a [u8]) -> Result<&'a str, Failure> {
    std::str::from_utf8(argument).map_err(|_| wrong(what, "text", argument))
}

/// Returns an argument as a number.
///
/// # Errors
/// `PARAMETER` if it is none.
pub fn number<T: FromStr>(what: &str, expected: &str, argument: &[u8]) -> Result<T, Failure> {
    let parsed = std::str::from_utf8(argument).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| wrong(what, expected, argument))
}

/// Returns an argument, Unix milliseconds, in microseconds.
///
/// # Errors
/// `PARAMETER` if it is not a number, or too large.
pub fn time(argument: &[u8]) -> Result<u64, Failure> {
    const EXPECTED: &str = "milliseconds since 1970";
    let millis: u64 = number("time", EXPECTED, argument)?;
    millis.checked_mul(1000).ok_or_else(|| wrong("time", EXPECTED, argument))
}

/// Returns an argument, the length of a lease in milliseconds.
///
/// # Errors
/// `PARAMETER` if it is not a number, or out of bounds.
pub fn lease(argument: &[u8]) -> Result<LeaseTime, Failure> {
    let expected = format!("milliseconds, from 1 to {}", LONGEST_LEASE.as_millis());
    let millis: u64 = number("lease", &expected, argument)?;
    let lease = LeaseTime::new(Duration::from_millis(millis));
    lease.map_err(|_| wrong("lease", expected, argument))
}

/// Returns an argument, a 128-bit number in decimal digits, or in hexadecimal ones after `0x`.
///
/// # Errors
/// `PARAMETER` if it is none.
pub fn seed(argument: &[u8]) -> Result<u128, Failure> {
    const EXPECTED: &str = "a number of 128 bits, as in 4711 or 0x5eed";
    match argument.strip_prefix(b"0x") {
        None => number("SEED", EXPECTED, argument),
        Some(digits) => {
            let parsed = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'));
            let parsed = parsed.and_then(|text| u128::from_str_radix(text, 16).ok());
            parsed.ok_or_else(|| wrong("SEED", EXPECTED, argument))
        }
    }
}

/// Returns how far back a question reaches: a count or a duration.
///
/// # Errors
/// `PARAMETER` if it is neither.
pub fn reach(argument: &[u8]) -> Result<ebbtide_core::Within, Failure> {
    use ebbtide_core::Within;
    let text = text("reach", argument)?;
    if let Ok(count) = parse_count(text) {
        return Ok(Within::Items(count));
    }
    parse_duration(text).map(Within::Time).map_err(|_| {
        wrong("reach", "a number of inserts or a duration, as in 1000 or 5m", argument)
    })
}

/// Reads arguments one after the other.
pub struct Reader<'a, 'b> {
    call: &'b Call<'a>,
    at: usize,
}

impl<'a, 'b> Reader<'a, 'b> {
    /// Begins with an argument.
    pub fn new(call: &'b Call<'a>, at: usize) -> Self {
        Self { call, at }
    }

    /// Returns the next argument, if there is one.
    pub fn next(&mut self) -> Option<&'a [u8]> {
        let found = (self.at < self.call.count()).then(|| self.call.argument(self.at));
        self.at += 1;
        found
    }

    /// Returns the next argument, the value of a word.
    ///
    /// # Errors
    /// `PARAMETER` if there is none.
    pub fn value(&mut self, of: &str) -> Result<&'a [u8], Failure> {
        self.next().ok_or_else(|| Failure::new("PARAMETER", format!("{of}: expected a value")))
    }

    /// Returns the position of the next argument.
    pub fn position(&self) -> usize {
        self.at
    }
}

/// Returns the time of the server's clock, in microseconds since 1970.
pub fn clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
