//! Parses the times of lines: numbers in a unit, and the written forms, with the zone and the year
//! that a form may lack.

use crate::formatting;
use crate::time_forms::{self, Extent, TimeForm, Written};
use clap::ValueEnum;
use ebbtide::Timestamp;
use jiff::tz::{Offset, TimeZone};
use std::time::Duration;

/// The unit of numeric times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TimeUnit {
    /// Seconds since the Unix epoch; decimals are used down to the microsecond.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds, which are used down to the microsecond.
    Ns,
}

/// Seconds since the Unix epoch from September 2001 to February 2103: the plausible times of a
/// stream.
const PLAUSIBLE: std::ops::Range<u64> = 1_000_000_000..4_200_000_000;

impl TimeUnit {
    const ALL: [Self; 4] = [Self::S, Self::Ms, Self::Us, Self::Ns];

    /// Returns how many of it are a second.
    fn per_second(self) -> u64 {
        match self {
            Self::S => 1,
            Self::Ms => 1_000,
            Self::Us => 1_000_000,
            Self::Ns => 1_000_000_000,
        }
    }

    /// Returns the name of the unit in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Self::S => "seconds",
            Self::Ms => "milliseconds",
            Self::Us => "microseconds",
            Self::Ns => "nanoseconds",
        }
    }

    /// Returns the name of the unit as a value of `--time-unit`.
    fn option(self) -> &'static str {
        match self {
            Self::S => "s",
            Self::Ms => "ms",
            Self::Us => "us",
            Self::Ns => "ns",
        }
    }

    /// Formats a time as a number in this unit, and as a date.
    pub fn write(self, time: Timestamp) -> String {
        let micros = time.as_unix_micros();
        let number = match self {
            Self::S => formatting::seconds(micros),
            Self::Ms => (micros / 1_000).to_string(),
            Self::Us => micros.to_string(),
            Self::Ns => (u128::from(micros) * 1_000).to_string(),
        };
        match formatting::date(time) {
            Some(date) => format!("{number} ({date})"),
            None => number,
        }
    }

    /// Returns the form of lines that begin with a time in this unit.
    pub fn form(self) -> String {
        let number = match self {
            Self::S => "UNIX_SECONDS",
            Self::Ms => "UNIX_MILLIS",
            Self::Us => "UNIX_MICROS",
            Self::Ns => "UNIX_NANOS",
        };
        format!("{number}<TAB>KEY (or a date such as 2026-11-22T15:04:05Z in front)")
    }

    /// Returns the unit in which this number is a plausible time.
    fn of(number: u64) -> Option<Self> {
        let fits = |unit: &Self| PLAUSIBLE.contains(&(number / unit.per_second()));
        Self::ALL.into_iter().find(fits)
    }

    /// Converts a number in this unit, with decimals of seconds, to microseconds.
    fn micros(self, number: u64, decimals: &[u8]) -> Option<u64> {
        if self == Self::Ns {
            return Some(number / 1_000);
        }
        let whole = number.checked_mul(1_000_000 / self.per_second())?;
        let padded = decimals.iter().copied().chain(std::iter::repeat(b'0')).take(6);
        whole.checked_add(padded.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
    }
}

/// How a time was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// As a number in this unit.
    Number(TimeUnit),
    /// In this form, with a zone of its own or not.
    Written(TimeForm, bool),
}

impl Found {
    /// Returns its name in a sentence.
    pub fn name(self) -> String {
        match self {
            Self::Number(unit) => format!("{} since the Unix epoch", unit.name()),
            Self::Written(form, _) => form.name().to_owned(),
        }
    }
}

/// Why a text is not taken as a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// It has none of the forms.
    NoTime,
    /// This is wrong with it.
    Wrong(String),
    /// It is a number in another unit: most likely an option is wrong, and not the line.
    Unit(String),
}

/// How far a time without a year may be ahead of the reference, for clocks that differ.
const AHEAD: Duration = Duration::from_secs(86_400);

/// How times are read.
#[derive(Debug, Clone)]
pub struct TimeReader {
    /// The unit of numbers; without it, the one in which a number is plausible.
    pub unit: Option<TimeUnit>,
    /// The zone of times that are written without one.
    pub zone: Option<TimeZone>,
}

impl TimeReader {
    /// Reads the time at the beginning of a text. A form without a year is one of the year before
    /// `reference`, which is called for such a form only.
    pub fn read(
        &self,
        text: &[u8],
        extent: Extent,
        reference: impl FnOnce() -> Timestamp,
    ) -> Result<(Timestamp, Found), Doubt> {
        let opened = match text.first() {
            Some(b'[' | b'(' | b'"' | b'\'') => &text[1..],
            _ => text,
        };
        let closed = opened.len() < text.len();
        let ends = |rest: &[u8]| match (extent, rest) {
            (_, []) => true,
            (Extent::Whole, [b']' | b')' | b'"' | b'\'']) => closed,
            (Extent::Whole, _) => false,
            (Extent::Beginning, [next, ..]) => b" \t]),;:|\"'\r".contains(next),
        };
        let Some((written, rest)) = time_forms::read(opened, extent) else {
            return self.number(opened, ends);
        };
        if !ends(rest) {
            return Err(Doubt::NoTime);
        }
        let found = Found::Written(written.form, written.offset.is_some());
        Ok((self.place(written, reference)?, found))
    }

    /// Reads a number at the beginning of a text.
    fn number(
        &self,
        text: &[u8],
        ends: impl FnOnce(&[u8]) -> bool,
    ) -> Result<(Timestamp, Found), Doubt> {
        let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (whole, rest) = text.split_at(digits(text));
        let whole = std::str::from_utf8(whole).ok().and_then(|whole| whole.parse::<u64>().ok());
        let number = whole.ok_or(Doubt::NoTime)?;
        let likely = TimeUnit::of(number);
        let unit = self.unit.or(likely).unwrap_or(TimeUnit::S);
        let (decimals, rest) = match rest.split_first() {
            Some((b'.', behind)) if unit == TimeUnit::S && digits(behind) > 0 => {
                behind.split_at(digits(behind))
            }
            _ => (&[][..], rest),
        };
        if !ends(rest) {
            return Err(Doubt::NoTime);
        }
        let micros = unit.micros(number, decimals);
        let time = Timestamp::from_unix_micros(micros.unwrap_or(u64::MAX));
        match likely {
            Some(likely) if likely != unit => Err(Doubt::Unit(format!(
                "time {} looks like {} but is read as {}; give --time-unit {}",
                unit.write(time),
                likely.name(),
                unit.name(),
                likely.option()
            ))),
            None if self.unit.is_none() => Err(Doubt::Wrong(format!(
                "the number {number} is no time from 2001 to 2103 in s, ms, us or ns; give its \
                 unit by --time-unit"
            ))),
            _ if micros.is_none() => Err(Doubt::NoTime),
            _ => Ok((time, Found::Number(unit))),
        }
    }

    /// Returns the time that is written, in its zone and year.
    fn place(
        &self,
        written: Written,
        reference: impl FnOnce() -> Timestamp,
    ) -> Result<Timestamp, Doubt> {
        let zone = match (written.offset, &self.zone) {
            (Some(offset), _) => TimeZone::fixed(offset),
            (None, Some(zone)) => zone.clone(),
            (None, None) if written.year.is_none() => TimeZone::system(),
            (None, None) => {
                return Err(Doubt::Wrong(
                    "the time has no zone; give --utc, or --zone with an offset such as +01:00 or \
                     a name such as Europe/Berlin"
                        .to_owned(),
                ));
            }
        };
        let in_year = |year: i16| {
            // Of a time that comes twice, when clocks are set back, the first.
            let local = zone.to_ambiguous_timestamp(written.in_year(year)?).compatible().ok()?;
            let micros = u64::try_from(local.as_microsecond()).ok()?;
            Some(Timestamp::from_unix_micros(micros))
        };
        if let Some(year) = written.year {
            return in_year(year).ok_or(Doubt::NoTime);
        }
        let latest = reference().as_unix_micros().saturating_add(AHEAD.as_micros() as u64);
        let seconds = i64::try_from(latest / 1_000_000).unwrap_or(i64::MAX);
        let latest_year = jiff::Timestamp::from_second(seconds)
            .map_or(9999, |latest| zone.to_datetime(latest).year());
        // Eight years always contain a 29th of February.
        (latest_year - 8..=latest_year)
            .rev()
            .filter_map(in_year)
            .find(|time| time.as_unix_micros() <= latest)
            .ok_or(Doubt::NoTime)
    }
}

/// Parses the value of `--zone`: an offset, or a name of the IANA's database.
pub fn parse_zone(text: &str) -> Result<TimeZone, String> {
    if let Some(offset) = time_forms::offset(text) {
        return Ok(TimeZone::fixed(offset));
    }
    if matches!(text, "Z" | "z" | "UTC" | "utc") {
        return Ok(TimeZone::fixed(Offset::UTC));
    }
    TimeZone::get(text).map_err(|_| {
        "expected an offset such as +01:00, or a name such as Europe/Berlin".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-24T09:00:00Z.
    const AT: u64 = 1_795_510_800_000_000;

    fn reader(unit: Option<TimeUnit>, zone: Option<&str>) -> TimeReader {
        TimeReader { unit, zone: zone.map(|zone| parse_zone(zone).expect(zone)) }
    }

    fn read(reader: &TimeReader, text: &str, reference: u64) -> Result<u64, Doubt> {
        let reference = || Timestamp::from_unix_micros(reference);
        let read = reader.read(text.as_bytes(), Extent::Whole, reference);
        read.map(|(time, _)| time.as_unix_micros())
    }

    fn micros(unit: TimeUnit, text: &str) -> Option<u64> {
        read(&reader(Some(unit), None), text, AT).ok()
    }

    #[test]
    fn numbers_are_of_the_unit_given_and_seconds_may_have_decimals() {
        assert_eq!(micros(TimeUnit::S, "1500"), Some(1_500_000_000));
        assert_eq!(micros(TimeUnit::Ms, "1500"), Some(1_500_000));
        assert_eq!(micros(TimeUnit::Us, "1500"), Some(1_500));
        assert_eq!(micros(TimeUnit::Ns, "1500"), Some(1));
        assert_eq!(micros(TimeUnit::S, "1.25"), Some(1_250_000));
        assert_eq!(micros(TimeUnit::S, "1.1234567"), Some(1_123_456));
        for (unit, text) in [(TimeUnit::Ms, "1.5"), (TimeUnit::S, "1."), (TimeUnit::S, ".5")] {
            assert_eq!(micros(unit, text), None, "{text}");
        }
    }

    #[test]
    fn dates_are_read_with_their_offsets_in_every_unit() {
        let expected = Some(1_763_823_845_000_000);
        for text in [
            "2025-11-22T15:04:05Z",
            "2025-11-22 15:04:05Z",
            "2025-11-22T16:04:05+01:00",
            "2025-11-22T11:34:05-0330",
            "2025-11-22T15:04:05+00:00",
            "2025-11-22T15:04:05.000+00",
            "[22/Nov/2025:16:04:05 +0100]",
            "Sat, 22 Nov 2025 16:04:05 +0100",
        ] {
            for unit in TimeUnit::ALL {
                assert_eq!(micros(unit, text), expected, "{text}");
            }
        }
        let fraction = micros(TimeUnit::Ms, "2025-11-22T15:04:05.250001Z");
        assert_eq!(fraction, expected.map(|whole| whole + 250_001));
    }

    #[test]
    fn malformed_times_are_refused() {
        let dates = [
            "2025-11-22T15:04:05",
            "2025-11-22",
            "2025-13-22T15:04:05Z",
            "2025-11-22T15:04:05ZZ",
            "2025-11-22T15:04:05Z+01:00",
            "2025-11-22T15:04:05+1",
            "2025-11-22T15:04:05Z]",
            "[2025-11-22T15:04:05Z x",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "2025-11-22T15:04:\u{664}\u{665}Z",
        ];
        for text in dates.into_iter().chain(["", "+1", "-1", " 1", "x", "18446744073709551616"]) {
            for unit in TimeUnit::ALL {
                assert_eq!(micros(unit, text), None, "{text}");
            }
        }
        assert_eq!(micros(TimeUnit::S, "18446744073709551615"), None);
    }

    #[test]
    fn the_unit_of_a_number_is_the_one_in_which_it_is_plausible() {
        let any = reader(None, None);
        for (text, expected) in [
            ("1795510800", AT),
            ("1795510800.5", AT + 500_000),
            ("1795510800000", AT),
            ("1795510800000000", AT),
            ("1795510800000000999", AT),
        ] {
            assert_eq!(read(&any, text, AT), Ok(expected), "{text}");
        }
        for text in ["0", "7", "20261124", "999999999", "4200000000", "18446744073709551615"] {
            assert!(matches!(read(&any, text, AT), Err(Doubt::Wrong(_))), "{text}");
        }
    }

    #[test]
    fn a_number_of_another_unit_than_given_is_refused() {
        let numbers = ["1700000000", "1700000000000", "1700000000000000", "1700000000000000000"];
        for (at, unit) in TimeUnit::ALL.into_iter().enumerate() {
            for (of, number) in numbers.into_iter().enumerate() {
                let read = read(&reader(Some(unit), None), number, AT);
                match read {
                    Ok(time) => assert!(at == of && time == 1_700_000_000_000_000, "{number}"),
                    Err(Doubt::Unit(what)) => {
                        let hint = format!("give --time-unit {}", TimeUnit::ALL[of].option());
                        assert!(at != of && what.ends_with(&hint), "{what}");
                    }
                    Err(other) => panic!("{number} in {unit:?}: {other:?}"),
                }
            }
            assert!(read(&reader(Some(unit), None), "60000", AT).is_ok());
        }
    }

    #[test]
    fn a_time_without_a_zone_is_that_of_the_zone_given() {
        let text = "2026-11-24T10:00:00";
        for (zone, ahead) in [("UTC", 0), ("+01:00", 1), ("Europe/Berlin", 1), ("-0500", -5)] {
            let expected = (AT as i64 + (1 - ahead) * 3_600_000_000) as u64;
            assert_eq!(read(&reader(None, Some(zone)), text, AT), Ok(expected), "{zone}");
            // A zone of its own counts more.
            let own = read(&reader(None, Some(zone)), "2026-11-24T10:00:00+01:00", AT);
            assert_eq!(own, Ok(AT), "{zone}");
        }
        // In summer, Berlin is ahead by two hours.
        let summer = read(&reader(None, Some("Europe/Berlin")), "2026-07-01T02:00:00", AT);
        assert_eq!(summer, read(&reader(None, None), "2026-07-01T00:00:00Z", AT));
        match read(&reader(None, None), text, AT) {
            Err(Doubt::Wrong(what)) => assert!(what.contains("--utc"), "{what}"),
            other => panic!("{other:?}"),
        }
        for text in ["", "+", "+1", "Mars/Olympus", "../etc/passwd", "+99:00"] {
            assert!(parse_zone(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_year_that_is_not_written_is_the_last_one_that_is_not_after_the_reference() {
        let utc = reader(None, Some("UTC"));
        let date = |text: &str| read(&utc, text, 0).expect(text);
        for (reference, text, expected) in [
            ("2026-11-24T10:00:00Z", "Nov 24 09:59:59", "2026-11-24T09:59:59Z"),
            ("2026-11-24T10:00:00Z", "Nov 24 23:00:00", "2026-11-24T23:00:00Z"),
            ("2026-11-24T10:00:00Z", "Nov 26 10:00:00", "2025-11-26T10:00:00Z"),
            ("2027-01-01T00:00:05Z", "Dec 31 23:59:59", "2026-12-31T23:59:59Z"),
            ("2027-01-01T00:00:05Z", "Jan  1 00:00:01", "2027-01-01T00:00:01Z"),
            ("2026-12-31T23:59:58Z", "Jan  1 00:00:01", "2027-01-01T00:00:01Z"),
            ("2026-12-31T23:59:58Z", "Jan  2 00:00:01", "2026-01-02T00:00:01Z"),
            ("2026-11-24T10:00:00Z", "Feb 29 12:00:00", "2024-02-29T12:00:00Z"),
            ("2103-03-01T00:00:00Z", "Feb 29 12:00:00", "2096-02-29T12:00:00Z"),
        ] {
            assert_eq!(read(&utc, text, date(reference)), Ok(date(expected)), "{text}");
        }
        assert_eq!(read(&utc, "Feb 30 12:00:00", AT), Err(Doubt::NoTime));
    }

    #[test]
    fn in_a_line_more_may_follow_a_time() {
        let utc = reader(None, None);
        let read = |text: &str| {
            let read = utc.read(text.as_bytes(), Extent::Beginning, || unreachable!());
            read.map(|(time, _)| time.as_unix_micros())
        };
        for text in [
            "[24/Nov/2026:10:00:00 +0100] \"GET / HTTP/1.1\" 200",
            "2026-11-24T10:00:00+01:00 host",
            "2026-11-24T10:00:00+01:00: host",
            "\"Tue, 24 Nov 2026 09:00:00 GMT\",x",
            "1795510800 x",
            "[1795510800.000]",
        ] {
            assert_eq!(read(text), Ok(AT), "{text}");
        }
        for text in ["1795510800x y", "2026-11-24T09:00:00Zulu x", "1795510800.x"] {
            assert_eq!(read(text), Err(Doubt::NoTime), "{text}");
        }
    }
}
