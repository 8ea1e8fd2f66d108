//! Parses the times in front of keys: numbers in a unit, or RFC 3339 dates.

use crate::units;
use clap::ValueEnum;
use ebbtide::Timestamp;
use std::time::UNIX_EPOCH;

/// The unit of numeric times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TimeUnit {
    /// Seconds since the Unix epoch; decimals are used down to the microsecond.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
}

/// Seconds since the Unix epoch from September 2001 to February 2103: the plausible times of a
/// stream.
const PLAUSIBLE: std::ops::Range<u64> = 1_000_000_000..4_200_000_000;

impl TimeUnit {
    const ALL: [Self; 3] = [Self::S, Self::Ms, Self::Us];

    fn micros(self) -> u64 {
        match self {
            Self::S => 1_000_000,
            Self::Ms => 1_000,
            Self::Us => 1,
        }
    }

    /// Returns the name of the unit in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Self::S => "seconds",
            Self::Ms => "milliseconds",
            Self::Us => "microseconds",
        }
    }

    /// Returns the name of the unit as a value of `--time-unit`.
    pub fn option(self) -> &'static str {
        match self {
            Self::S => "s",
            Self::Ms => "ms",
            Self::Us => "us",
        }
    }

    /// Parses a time: a number in this unit, or a date such as 2026-11-22T15:04:05Z.
    pub fn read(self, text: &[u8]) -> Option<Timestamp> {
        let text = std::str::from_utf8(text).ok()?;
        let micros = match self.number(text) {
            Some(micros) => micros,
            None if text.contains('-') => date(text)?,
            None => return None,
        };
        Some(Timestamp::from_unix_micros(micros))
    }

    fn number(self, text: &str) -> Option<u64> {
        let is_digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (whole, decimals) = match text.split_once('.') {
            Some((whole, decimals)) if self == Self::S && is_digits(decimals) => (whole, decimals),
            Some(_) => return None,
            None => (text, ""),
        };
        if !is_digits(whole) {
            return None;
        }
        let micros = whole.parse::<u64>().ok()?.checked_mul(self.micros())?;
        let decimals = format!("{decimals:0<6.6}");
        micros.checked_add(decimals.parse().ok()?)
    }

    /// Formats a time as a number in this unit, and as a date.
    pub fn write(self, time: Timestamp) -> String {
        let micros = time.as_unix_micros();
        let number = match self {
            Self::S => units::seconds(micros),
            _ => (micros / self.micros()).to_string(),
        };
        match units::date(time) {
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
        };
        format!("{number}<TAB>KEY (or a date such as 2026-11-22T15:04:05Z in front)")
    }

    /// Returns the unit in which the number of this time would be plausible, if it is not plausible
    /// in this unit.
    pub fn likelier(self, time: Timestamp) -> Option<Self> {
        let number = time.as_unix_micros() / self.micros();
        let seconds = |unit: Self| number / (1_000_000 / unit.micros());
        let fits = |unit: &Self| PLAUSIBLE.contains(&seconds(*unit));
        Self::ALL.into_iter().find(fits).filter(|unit| *unit != self)
    }

    /// Returns a warning about a number that is probably in a coarser unit: as read, it lies
    /// decades in the past.
    pub fn doubt(self, time: Timestamp) -> Option<String> {
        let likelier = self.likelier(time).filter(|unit| unit.micros() > self.micros())?;
        Some(format!(
            "time {} looks like {} but is read as {}; give --time-unit {} if so",
            self.write(time),
            likelier.name(),
            self.name(),
            likelier.option()
        ))
    }
}

/// Parses a date with Z or an offset, in RFC 3339 or ISO 8601 form, as microseconds since the Unix
/// epoch.
fn date(text: &str) -> Option<u64> {
    let (local, ahead) = match text.strip_suffix(['Z', 'z']) {
        Some(local) => (local, 0),
        None => {
            let sign = text.rfind(['+', '-']).filter(|at| *at >= "2026-11-22T15:04:05".len())?;
            (&text[..sign], minutes(&text[sign..])?)
        }
    };
    // humantime accepts either a fixed zone at the end or none.
    if !local.ends_with(|last: char| last.is_ascii_digit()) || !local.is_ascii() {
        return None;
    }
    let time = humantime::parse_rfc3339_weak(local).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let micros = i128::try_from(time.as_micros()).ok()? - i128::from(ahead) * 60_000_000;
    u64::try_from(micros).ok()
}

/// Parses an offset such as `+01:00`, `-0330` or `+01`, in minutes.
fn minutes(offset: &str) -> Option<i64> {
    let (sign, digits) = offset.split_at(1);
    let digits = match digits.len() {
        5 => digits.split_once(':').map(|(hours, minutes)| format!("{hours}{minutes}"))?,
        4 => digits.to_owned(),
        2 => format!("{digits}00"),
        _ => return None,
    };
    if digits.len() != 4 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes): (i64, i64) = (digits[..2].parse().ok()?, digits[2..].parse().ok()?);
    let all = hours * 60 + minutes;
    (hours < 24 && minutes < 60).then_some(if sign == "-" { -all } else { all })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(unit: TimeUnit, text: &str) -> Option<u64> {
        unit.read(text.as_bytes()).map(Timestamp::as_unix_micros)
    }

    #[test]
    fn numbers_are_of_the_unit_given_and_seconds_may_have_decimals() {
        assert_eq!(micros(TimeUnit::S, "1500"), Some(1_500_000_000));
        assert_eq!(micros(TimeUnit::Ms, "1500"), Some(1_500_000));
        assert_eq!(micros(TimeUnit::Us, "1500"), Some(1_500));
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
            "2025-11-22T15:04:05+25:00",
            "2025-11-22T15:04:05+ab:cd",
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
    fn a_number_of_another_unit_is_noticed() {
        let likelier = |unit: TimeUnit, text: &str| unit.likelier(unit.read(text.as_bytes())?);
        assert_eq!(likelier(TimeUnit::Ms, "1700000000"), Some(TimeUnit::S));
        assert_eq!(likelier(TimeUnit::Us, "1700000000"), Some(TimeUnit::S));
        assert_eq!(likelier(TimeUnit::Us, "1700000000000"), Some(TimeUnit::Ms));
        assert_eq!(likelier(TimeUnit::Ms, "1700000000000000"), Some(TimeUnit::Us));
        assert_eq!(likelier(TimeUnit::S, "1700000000000"), Some(TimeUnit::Ms));
        for (unit, text) in [
            (TimeUnit::S, "1700000000"),
            (TimeUnit::Ms, "1700000000000"),
            (TimeUnit::Us, "1700000000000000"),
            (TimeUnit::Ms, "60000"),
            (TimeUnit::Ms, "2025-11-22T15:04:05Z"),
        ] {
            assert_eq!(likelier(unit, text), None, "{text}");
        }
        let time = Timestamp::from_unix_millis(1_700_000_000);
        let doubt = TimeUnit::Ms.doubt(time).expect("a warning");
        assert!(doubt.starts_with("time 1700000000 (1970-01-20T16:13:20Z) looks like seconds"));
        assert_eq!(TimeUnit::Ms.doubt(Timestamp::from_unix_millis(1_700_000_000_000_000)), None);
    }
}
