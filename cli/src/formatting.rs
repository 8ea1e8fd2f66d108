//! Formats values on the command line: durations (`90s`, `10m`), times, durability (`always`,
//! `1s`); and parses counts. The library parses the rest.

use ebbtide::units::parse_count;
use ebbtide::{Durability, Timestamp};
use std::time::{Duration, UNIX_EPOCH};

/// Parses a count of at least 1: a `NonZero` over this integer.
pub fn parse_positive<N: TryFrom<I>, I: TryFrom<u64>>(text: &str) -> Result<N, String> {
    let count = I::try_from(parse_count(text)?).ok().and_then(|count| N::try_from(count).ok());
    count.ok_or_else(|| "expected a whole number of at least 1".to_owned())
}

/// Formats a duration in a form that the library reads.
pub fn duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// Formats a durability in a form that the library reads.
pub fn durability(durability: Durability) -> String {
    match durability {
        Durability::Always => "always".to_owned(),
        Durability::Never => "never".to_owned(),
        Durability::Interval(interval) => duration(interval),
    }
}

/// The last time that humantime formats, in microseconds: the end of the year 9999.
const LAST: u64 = 253_402_300_799_999_999;

/// Formats a time as RFC 3339 in UTC, to the microsecond.
pub fn time(time: Timestamp) -> String {
    let micros = time.as_unix_micros().min(LAST);
    humantime::format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(micros)).to_string()
}

/// Formats a time like [`time`], but without a zero fraction; returns `None` after the year 9999.
pub fn date(time: Timestamp) -> Option<String> {
    let micros = Some(time.as_unix_micros()).filter(|micros| *micros <= LAST)?;
    let time = UNIX_EPOCH + Duration::from_micros(micros);
    Some(humantime::format_rfc3339(time).to_string())
}

/// Formats microseconds as seconds, with up to six decimals, without zeros at the end.
pub fn seconds(micros: u64) -> String {
    let (whole, fraction) = (micros / 1_000_000, micros % 1_000_000);
    if fraction == 0 {
        return whole.to_string();
    }
    format!("{whole}.{fraction:06}").trim_end_matches('0').to_owned()
}

/// Formats a number of things: `1 insert`, `2 inserts`.
pub fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// The number of significant digits of an estimate.
const DIGITS: usize = 6;

/// Formats a number to six significant digits, without zeros at the end: `0.25`, `123457`,
/// `1.5e-9`.
pub fn significant(number: f64) -> String {
    let text = format!("{number:.*e}", DIGITS - 1);
    match text.parse::<f64>() {
        Ok(rounded) if rounded == 0.0 || (1e-5..1e15).contains(&rounded.abs()) => {
            rounded.to_string()
        }
        Ok(rounded) => format!("{rounded:e}"),
        Err(_) => text,
    }
}

/// Rounds an estimate: a whole number stays, another one gets twelve significant digits, because
/// sums of powers end in digits like those of 125.00000000000001.
pub fn estimate(number: f64) -> f64 {
    if number.fract() == 0.0 { number } else { format!("{number:.11e}").parse().unwrap_or(number) }
}

/// Formats a number: from 10,000 on with a unit and at most two decimals.
pub fn count(number: f64) -> String {
    let unit = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")];
    let Some((least, name)) = unit.into_iter().find(|(least, _)| number.abs() >= *least) else {
        return if number.fract() == 0.0 { format!("{number}") } else { format!("{number:.1}") };
    };
    let scale = if name == " k" { 1e3 } else { least };
    let text = format!("{:.2}", number / scale);
    format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::units::{parse_durability, parse_duration};

    #[test]
    fn large_numbers_have_a_unit() {
        assert_eq!(
            [0.0, 7.25, 9999.0, 10_000.0, 12_345_678.0].map(count),
            ["0", "7.2", "9999", "10 k", "12.35 M"]
        );
    }

    #[test]
    fn durations_are_read_as_humantime_reads_them_but_for_months_as_a_letter() {
        assert!(parse_duration("1M").is_err());
        for text in [
            "90s",
            "1h 30m",
            "2h37min",
            "1.5h",
            "250ms",
            " 3 days ",
            "7µs",
            "1month",
            "1y 2w",
            "0s",
            "",
            "soon",
            "10",
            "10 fortnights",
            "5s, 3s",
            "-5s",
            "10$",
            "0.5ns",
            "99999999999999999999s",
            "1 h 3",
            "s",
            "1.s",
            "1.5.5s",
        ] {
            let expected = humantime::parse_duration(text);
            let found = parse_duration(text);
            assert_eq!(found.is_ok(), expected.is_ok(), "{text:?}: {found:?}, {expected:?}");
            assert_eq!(found.ok(), expected.ok(), "{text:?}");
        }
    }

    #[test]
    fn a_durability_reads_back_as_written() {
        for text in ["always", "never", "1s", "250ms", "1m 30s"] {
            assert_eq!(durability(parse_durability(text).expect(text)), text);
        }
        assert!(parse_durability("sometimes").is_err());
    }

    #[test]
    fn seconds_have_only_the_decimals_they_need() {
        assert_eq!(seconds(0), "0");
        assert_eq!(seconds(5_000_000), "5");
        assert_eq!(seconds(1_250_000), "1.25");
        assert_eq!(seconds(1), "0.000001");
    }

    #[test]
    fn numbers_are_rounded_to_six_digits() {
        for (number, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.25, "0.25"),
            (2.0 / 3.0, "0.666667"),
            (0.999_999_9, "1"),
            (123_456_789.0, "123457000"),
            (1e-5, "0.00001"),
            (1.234_567_8e-9, "1.23457e-9"),
            (1e300, "1e300"),
        ] {
            assert_eq!(significant(number), text);
        }
    }

    #[test]
    fn estimates_have_no_digits_of_rounding_errors_and_counts_are_exact() {
        assert_eq!(estimate(125.000_000_000_000_01).to_string(), "125");
        assert_eq!(estimate(0.1 + 0.2).to_string(), "0.3");
        assert_eq!(estimate(2.0 / 3.0).to_string(), "0.666666666667");
        assert_eq!(estimate(1_099_511_562_240.0).to_string(), "1099511562240");
        assert_eq!(estimate(0.0).to_string(), "0");
    }

    #[test]
    fn a_time_beyond_the_year_9999_is_written_without_a_panic() {
        assert!(time(Timestamp::from_unix_micros(u64::MAX)).starts_with("9999-12-31"));
        assert_eq!(time(Timestamp::from_unix_millis(1_500)), "1970-01-01T00:00:01.500000Z");
    }
}
