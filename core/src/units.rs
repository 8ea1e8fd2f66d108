//! Numbers with units as people write them: durations (`90s`, `10m`), sizes (`64KiB`), counts
//! (`1e6`, `1M`). Filters described as text ([`Any`](crate::kinds::spec::Any)), the command line
//! and other languages share them.
//!
//! Each error is a sentence that says what is expected.

use crate::error::Error;
use crate::text::DURATIONS;
pub use crate::text::{date_text, is_hidden, micros_text, shown, visible};
use core::time::Duration;
use std::borrow::Cow;
use std::fmt::Write;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// Nanoseconds of a day.
const DAY: u64 = 86_400 * SECOND;

/// The names of the units of time, and their nanoseconds. A month is 30.44 days, a year 365.25.
const TIMES: &[(&[&str], u64)] = &[
    (&["nanos", "nsec", "ns"], 1),
    (&["usec", "us", "µs"], 1_000),
    (&["millis", "msec", "ms"], 1_000_000),
    (&["seconds", "second", "secs", "sec", "s"], SECOND),
    (&["minutes", "minute", "min", "mins", "m"], 60 * SECOND),
    (&["hours", "hour", "hr", "hrs", "h"], 3_600 * SECOND),
    (&["days", "day", "d"], DAY),
    (&["weeks", "week", "wk", "wks", "w"], 7 * DAY),
    (&["months", "month"], 2_630_016 * SECOND),
    (&["years", "year", "yr", "yrs", "y"], 31_557_600 * SECOND),
];

/// Bytes of each unit of size: binary and decimal prefixes, as in IEC 80000-13.
const SIZES: &[(&str, u64)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// The decimal exponents of the suffixes of counts.
const COUNTS: &[(char, u32)] = &[('k', 3), ('M', 6), ('G', 9)];

/// The parameters of kinds that count something of which there may be many.
const COUNTED: &[&str] = &[
    "bits",
    "block-size",
    "capacity",
    "cells",
    "front-bits",
    "front-keys",
    "generation",
    "horizon",
    "mean-count",
    "rate",
    "timers",
    "window-items",
    "words",
];

/// The parameters of kinds that are a size in bytes.
const SIZED: &[&str] = &["max-memory"];

const OVERFLOW: &str = "expected a shorter duration, without parts of a nanosecond";

/// Parses a duration such as `90s`, `10m`, `1.5h` or `1h 30m`.
///
/// ```
/// use ebbtide_core::units::parse_duration;
/// use std::time::Duration;
/// assert_eq!(parse_duration("1h 30m"), Ok(Duration::from_secs(5400)));
/// assert!(parse_duration("soon").is_err());
/// ```
///
/// # Errors
/// Text without a number or a unit, and durations that need less than a nanosecond or are too long.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    nanoseconds(text)
        .and_then(|nanos| {
            let seconds = u64::try_from(nanos / u128::from(SECOND)).map_err(|_| OVERFLOW)?;
            Ok(Duration::new(seconds, (nanos % u128::from(SECOND)) as u32))
        })
        .map_err(|error| format!("{error}, as in 90s, 10m or 24h"))
}

/// Splits text after its leading characters of a class.
fn split(text: &str, class: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|letter| !class(letter)).unwrap_or(text.len()))
}

fn nanoseconds(text: &str) -> Result<u128, Cow<'static, str>> {
    let mut rest = text.trim_start();
    if rest.is_empty() {
        return Err("expected a duration".into());
    }
    let mut sum: u128 = 0;
    while !rest.is_empty() {
        let at = text.len() - rest.len();
        let (whole, after) = split(rest, |letter| letter.is_ascii_digit());
        if whole.is_empty() {
            return Err(format!("expected a number at position {at}").into());
        }
        let (fraction, after) = match after.strip_prefix('.') {
            Some(decimals) if decimals.starts_with(|next: char| next.is_ascii_digit()) => {
                split(decimals, |letter| letter.is_ascii_digit())
            }
            Some(_) => return Err(invalid_character(text, after)),
            None => ("", after),
        };
        let after = after.trim_start();
        let (name, after) = split(after, |letter| letter.is_ascii_alphabetic() || letter == 'µ');
        let Some((_, unit)) = TIMES.iter().find(|(names, _)| names.contains(&name)) else {
            return Err(unknown_unit(text, name, after, whole));
        };
        if after.starts_with(|next: char| !next.is_whitespace() && !next.is_ascii_digit()) {
            return Err(invalid_character(text, after));
        }
        let add = nanoseconds_of(whole, fraction, *unit).ok_or(OVERFLOW)?;
        sum = sum.checked_add(add).ok_or(OVERFLOW)?;
        rest = after.trim_start();
    }
    Ok(sum)
}

/// Returns the error for a number that no unit follows.
fn unknown_unit(text: &str, name: &str, after: &str, number: &str) -> Cow<'static, str> {
    match name {
        "" if after.is_empty() || after.starts_with(|letter: char| letter.is_ascii_digit()) => {
            format!("expected a unit after {number}, such as {number}sec or {number}ms")
        }
        "" => return invalid_character(text, after),
        "M" => format!("expected {number}m for minutes or {number}months: M may mean either"),
        name => format!(
            "expected a unit of time instead of {name:?}: ns, us, ms, sec, min, hours, days, \
             weeks, months or years"
        ),
    }
    .into()
}

/// Returns the error for the first character of the rest of a text.
fn invalid_character(text: &str, rest: &str) -> Cow<'static, str> {
    format!("expected numbers and units, with nothing else at position {}", text.len() - rest.len())
        .into()
}

/// Returns a number of units in nanoseconds; `None` if it is too large, or needs a fraction of one.
fn nanoseconds_of(whole: &str, fraction: &str, unit: u64) -> Option<u128> {
    let unit = u128::from(unit);
    let whole = u128::from(whole.parse::<u64>().ok()?).checked_mul(unit)?;
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        return Some(whole);
    }
    let scaled = fraction.parse::<u128>().ok()?.checked_mul(unit)?;
    let one = 10_u128.checked_pow(fraction.len().try_into().ok()?)?;
    scaled.is_multiple_of(one).then(|| whole.checked_add(scaled / one))?
}

/// Parses a whole number of bytes, with or without a unit: `65536`, `64KiB`, `1 GB`.
///
/// # Errors
/// Anything else, and sizes of 2^64 bytes and more.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = SIZES
        .iter()
        .find_map(|(name, bytes)| text.strip_suffix(name).map(|digits| (digits, *bytes)))
        .unwrap_or((text, 1));
    digits
        .trim_end()
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| "expected a whole number of bytes, as in 65536, 64KiB or 1GiB".to_owned())
}

/// Parses a count: `1000000`, `1_000_000`, `1e6`, `1M`, `1.5M`, `10k`, `2G`. The suffixes are
/// powers of a thousand.
///
/// ```
/// use ebbtide_core::units::parse_count;
/// for million in ["1000000", "1_000_000", "1e6", "1M", "1000k", "0.001G"] {
///     assert_eq!(parse_count(million), Ok(1_000_000));
/// }
/// assert!(parse_count("1.5").is_err() && parse_count("1K").is_err());
/// ```
///
/// # Errors
/// Anything else: fractions, negative numbers, 2^64 and more.
pub fn parse_count(text: &str) -> Result<u64, String> {
    count(text).ok_or_else(|| {
        "expected a whole number, as in 1000000, 1_000_000, 1e6, 1M or 10k".to_owned()
    })
}

fn count(text: &str) -> Option<u64> {
    let suffix =
        COUNTS.iter().find_map(|&(letter, zeros)| Some((text.strip_suffix(letter)?, zeros)));
    let exponent = || {
        let (number, zeros) = text.split_once('e')?;
        let digits = zeros.strip_prefix('+').unwrap_or(zeros);
        Some((
            number,
            digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())??,
        ))
    };
    let (number, zeros) = suffix.or_else(exponent).unwrap_or((text, 0));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let (mut digits, fraction) = (digits_of(whole)?, fraction.trim_end_matches('0'));
    if !fraction.bytes().all(|digit| digit.is_ascii_digit()) || number.ends_with('.') {
        return None;
    }
    digits.push_str(fraction);
    let zeros = zeros.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    digits.parse::<u64>().ok()?.checked_mul(10_u64.checked_pow(zeros)?)
}

/// Returns the digits of a whole number without the underscores between them.
fn digits_of(whole: &str) -> Option<String> {
    let mut digits = String::new();
    for group in whole.split('_') {
        let is_number = !group.is_empty() && group.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| digits.push_str(group))?;
    }
    Some(digits)
}

/// Returns a parameter of a kind in the form in which [`Parameters`](crate::Parameters) hold it:
/// durations in microseconds, sizes in bytes, counts in digits. Other text is returned unchanged,
/// for the kind to judge.
///
/// # Errors
/// A parameter that is a duration or a size, and whose text is none.
pub fn parse_parameter(name: &str, text: &str) -> Result<String, String> {
    if DURATIONS.contains(&name) {
        return parse_duration(text).map(|duration| duration.as_micros().to_string());
    }
    if SIZED.contains(&name) {
        return parse_size(text).map(|bytes| bytes.to_string());
    }
    let counted = count(text).filter(|_| COUNTED.contains(&name));
    Ok(counted.map_or_else(|| text.to_owned(), |count| count.to_string()))
}

/// Splits one setting of a text, `name=value`.
///
/// # Errors
/// [`Error::Parameter`] under the name of the whole text, if it has no name or no value.
pub fn split_setting<'a>(text: &'static str, word: &'a str) -> Result<(&'a str, &'a str), Error> {
    match word.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name, value)),
        _ => Err(Error::parameter(text, "settings of the form name=value", format!("{word:?}"))),
    }
}

/// Writes a parameter of a kind in a form that [`parse_parameter`] reads, durations with a unit,
/// and appends it to `text`.
pub(crate) fn push_parameter(text: &mut String, name: &str, value: &str) -> std::fmt::Result {
    let micros = value.parse::<u64>().ok().filter(|micros| micros.to_string() == value);
    match micros.filter(|_| DURATIONS.contains(&name)) {
        Some(micros) => write!(text, " {name}={}", micros_text(micros)),
        None => write!(text, " {name}={value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_732_438_800, "2024-11-24T09:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (253_402_300_800, "10000-01-01T00:00:00Z"),
        ] {
            assert_eq!(date_text(seconds * 1_000_000), date);
        }
        assert_eq!(date_text(1_500_001), "1970-01-01T00:00:01.500001Z");
        assert!(date_text(u64::MAX).starts_with("586524-"));
    }

    #[test]
    fn values_are_shown_with_units_and_exponents() {
        assert_eq!(shown("window", "600000000"), "10m");
        assert_eq!(shown("window-items", "600000000"), "600000000");
        assert_eq!(shown("fpr", &1e-120_f64.to_string()), "1e-120");
        assert_eq!(shown("fpr", "0.001"), "0.001");
        assert_eq!(shown("decay", "a.bcdefghijklmnopqrstuvwxyz"), "a.bcdefghijklmnopqrstuvwxyz");
    }

    #[test]
    fn durations_take_units_fractions_and_sums() {
        let parsed = |text| parse_duration(text).expect(text);
        assert_eq!(parsed("90s"), Duration::from_secs(90));
        assert_eq!(parsed("1h 30m"), Duration::from_secs(5400));
        assert_eq!(parsed("2h37min"), Duration::from_secs(9420));
        assert_eq!(parsed("1.5h"), Duration::from_secs(5400));
        assert_eq!(parsed(" 10 minutes "), Duration::from_secs(600));
        assert_eq!(parsed("0.25us"), Duration::from_nanos(250));
        assert_eq!(parsed("7µs"), Duration::from_micros(7));
    }

    #[test]
    fn malformed_durations_are_refused_with_a_reason() {
        for (text, reason) in [
            ("", "expected a duration"),
            ("soon", "expected a number at position 0"),
            ("10", "expected a unit after 10, such as 10sec or 10ms"),
            ("10M", "expected 10m for minutes or 10months: M may mean either"),
            ("10 fortnights", "expected a unit of time instead of \"fortnights\""),
            ("5s, 3s", "expected numbers and units, with nothing else at position 2"),
            ("-5s", "expected a number at position 0"),
            ("10$", "expected numbers and units, with nothing else at position 2"),
            ("0.5ns", OVERFLOW),
            ("99999999999999999999s", OVERFLOW),
            ("9999999999999999999y", OVERFLOW),
        ] {
            let error = parse_duration(text).expect_err(text);
            assert!(error.starts_with(reason), "{text:?}: {error}");
            assert!(error.ends_with(", as in 90s, 10m or 24h"), "{error}");
        }
    }

    #[test]
    fn microseconds_read_back() {
        let shown = [
            (0, "0s"),
            (1, "1us"),
            (1_500_000, "1500ms"),
            (90_000_000, "90s"),
            (600_000_000, "10m"),
            (86_400_000_000, "1d"),
        ];
        for (micros, text) in shown {
            assert_eq!(micros_text(micros), text);
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(micros)));
        }
        let most = micros_text(u64::MAX);
        assert_eq!(parse_duration(&most), Ok(Duration::from_micros(u64::MAX)));
    }

    #[test]
    fn sizes_take_binary_and_decimal_units() {
        assert_eq!(parse_size("65536"), Ok(65536));
        assert_eq!(parse_size("64KiB"), Ok(65536));
        assert_eq!(parse_size("64 kB"), Ok(64_000));
        assert_eq!(parse_size("7B"), Ok(7));
        assert_eq!(parse_size("2TiB"), Ok(2 << 40));
    }

    #[test]
    fn malformed_sizes_are_refused() {
        for text in ["", "KiB", "-1", "1.5MiB", "64kib", "99999999TiB", "one"] {
            assert!(parse_size(text).is_err(), "{text:?} was accepted as a size");
        }
    }

    #[test]
    fn counts_take_underscores_exponents_and_suffixes() {
        for (text, count) in [
            ("0", 0),
            ("7", 7),
            ("1_000", 1_000),
            ("1e6", 1_000_000),
            ("1.25e2", 125),
            ("1e+3", 1_000),
            ("1M", 1_000_000),
            ("2.5k", 2_500),
            ("3G", 3_000_000_000),
            ("5.0", 5),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
    }

    #[test]
    fn malformed_counts_are_refused() {
        for text in [
            "",
            "-1",
            "+1",
            "1.5",
            "1K",
            "1m",
            "1_",
            "_1",
            "1__0",
            "1e",
            "e6",
            "1e-3",
            "1 000",
            "k",
            "1.",
            ".5k",
            "1.2345k",
            "1e20",
            "99999999999G",
            "0x10",
            "1e6M",
            "1.5_0k",
            "one",
            "1e++3",
        ] {
            assert!(parse_count(text).is_err(), "{text:?} was accepted as a count");
        }
    }

    #[test]
    fn a_parameter_gets_the_form_that_kinds_store() {
        let parsed = |name, text| parse_parameter(name, text).expect(text);
        assert_eq!(parsed("window", "10m"), "600000000");
        assert_eq!(parsed("capacity", "1M"), "1000000");
        assert_eq!(parsed("rate", "0.5"), "0.5");
        assert_eq!(parsed("fpr", "1e-3"), "1e-3");
        assert_eq!(parsed("capacity", "many"), "many");
        assert!(parse_parameter("epoch", "soon").is_err());
    }
}
