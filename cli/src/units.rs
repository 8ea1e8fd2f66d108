//! Parses and formats values on the command line: durations (`90s`, `10m`), sizes (`64KiB`),
//! durability (`always`, `1s`).

use ebbtide::{Durability, Timestamp};
use std::time::{Duration, UNIX_EPOCH};

/// Parses a duration such as `90s`, `10m` or `1h 30m`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}, as in 90s, 10m or 24h"))
}

/// Formats a duration in the form that [`parse_duration`] reads.
pub fn duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// The number of bytes of each unit: binary and decimal prefixes, as in IEC 80000-13.
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

/// Parses a whole number of bytes, with or without a unit: `65536`, `64KiB`, `1 GB`.
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

/// Parses `always`, `never`, or the longest time between two syncs.
pub fn parse_durability(text: &str) -> Result<Durability, String> {
    match text {
        "always" => Ok(Durability::Always),
        "never" => Ok(Durability::Never),
        interval => parse_duration(interval)
            .map(Durability::Interval)
            .map_err(|_| "expected always, never, or a time between syncs such as 1s".to_owned()),
    }
}

/// Formats a durability in the form that [`parse_durability`] reads.
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

    #[test]
    fn large_numbers_have_a_unit() {
        assert_eq!(
            [0.0, 7.25, 9999.0, 10_000.0, 12_345_678.0].map(count),
            ["0", "7.2", "9999", "10 k", "12.35 M"]
        );
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
    fn a_time_beyond_the_year_9999_is_written_without_a_panic() {
        assert!(time(Timestamp::from_unix_micros(u64::MAX)).starts_with("9999-12-31"));
        assert_eq!(time(Timestamp::from_unix_millis(1_500)), "1970-01-01T00:00:01.500000Z");
    }
}
