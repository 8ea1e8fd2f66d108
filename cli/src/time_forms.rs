//! The forms of written times: finds a date and a time of day at the beginning of a text. Does not
//! know in which zone a time without one is meant, nor the year of a form without one.

use jiff::civil::DateTime;
use jiff::tz::Offset;

/// The form of a written time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeForm {
    /// ISO 8601 and RFC 3339: `2026-11-24T10:00:00.25+01:00`, also with a blank or with slashes.
    Iso,
    /// The access logs of Apache and nginx: `[24/Nov/2026:10:00:00 +0100]`.
    Access,
    /// RFC 2822: `Tue, 24 Nov 2026 10:00:00 +0100`.
    Mail,
    /// The error log of Apache, as `ctime` writes: `Tue Nov 24 10:00:00.123456 2026`.
    Ctime,
    /// The syslog of RFC 3164, without a year: `Nov 24 10:00:00`.
    Syslog,
}

impl TimeForm {
    /// Returns the name of the form in a sentence, with an example.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iso => "ISO 8601 (2026-11-24T10:00:00+01:00)",
            Self::Access => "the form of access logs (24/Nov/2026:10:00:00 +0100)",
            Self::Mail => "RFC 2822 (Tue, 24 Nov 2026 10:00:00 +0100)",
            Self::Ctime => "the form of ctime (Tue Nov 24 10:00:00 2026)",
            Self::Syslog => "the form of syslog (Nov 24 10:00:00)",
        }
    }
}

/// A written time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Its form.
    pub form: TimeForm,
    /// The year, unless the form has none.
    pub year: Option<i16>,
    /// The zone, if one is written.
    pub offset: Option<Offset>,
    month: i8,
    day: i8,
    hour: i8,
    minute: i8,
    second: i8,
    nanos: i32,
}

impl Written {
    /// Returns the local time in this year; `None` if the year has no such day.
    pub fn in_year(&self, year: i16) -> Option<DateTime> {
        let Self { month, day, hour, minute, second, nanos, .. } = *self;
        DateTime::new(year, month, day, hour, minute, second, nanos).ok()
    }
}

/// Where a text with a time ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The text is the time.
    Whole,
    /// More of the line may follow the time.
    Beginning,
}

/// Reads the time at the beginning of a text, and returns what is behind it.
pub fn read(text: &[u8], extent: Extent) -> Option<(Written, &[u8])> {
    let forms = [iso, access, mail, syslog];
    forms.into_iter().find_map(|form| {
        let mut scan = Scan(text);
        Some((form(&mut scan, extent)?, scan.0))
    })
}

/// The day of a month, and the time of a day.
struct Parts {
    month: i8,
    day: i8,
    hour: i8,
    minute: i8,
    second: i8,
    nanos: i32,
}

impl Parts {
    /// Reads a time of day; the seconds may be missing, and may have decimals.
    fn new(month: i8, day: i8, scan: &mut Scan<'_>) -> Option<Self> {
        let hour = scan.number(2)?;
        scan.byte(b':')?;
        let minute = scan.number(2)?;
        let (mut second, mut nanos) = (0, 0);
        if scan.0.first() == Some(&b':') {
            scan.byte(b':')?;
            // A leap second is the end of the second before it.
            second = scan.number::<i8>(2)?;
            second = if second == 60 { 59 } else { second };
            nanos = scan.decimals()?;
        }
        let parts = Self { month, day, hour, minute, second, nanos };
        ((1..=12).contains(&month)
            && (1..=31).contains(&day)
            && (hour, minute) < (24, 60)
            && minute < 60
            && second < 60)
            .then_some(parts)
    }

    fn written(self, form: TimeForm, year: Option<i16>, offset: Option<Offset>) -> Written {
        let Self { month, day, hour, minute, second, nanos } = self;
        Written { form, year, offset, month, day, hour, minute, second, nanos }
    }
}

fn iso(scan: &mut Scan<'_>, extent: Extent) -> Option<Written> {
    let year = scan.number(4)?;
    let between = *scan.0.first().filter(|byte| matches!(byte, b'-' | b'/'))?;
    scan.byte(between)?;
    let month = scan.number(2)?;
    scan.byte(between)?;
    let day = scan.number(2)?;
    match scan.take()? {
        b'T' | b't' | b' ' => {}
        _ => return None,
    }
    let parts = Parts::new(month, day, scan)?;
    let offset = scan.zone(TimeForm::Iso, extent)?;
    Some(parts.written(TimeForm::Iso, Some(year), offset))
}

fn access(scan: &mut Scan<'_>, extent: Extent) -> Option<Written> {
    let day = scan.number(2)?;
    scan.byte(b'/')?;
    let month = scan.month()?;
    scan.byte(b'/')?;
    let year = scan.number(4)?;
    scan.byte(b':')?;
    let parts = Parts::new(month, day, scan)?;
    let offset = scan.zone(TimeForm::Access, extent)?;
    Some(parts.written(TimeForm::Access, Some(year), offset))
}

fn mail(scan: &mut Scan<'_>, extent: Extent) -> Option<Written> {
    if scan.weekday() {
        scan.byte(b',')?;
        scan.blanks();
    }
    let day = scan.up_to_two()?;
    scan.blank()?;
    let month = scan.month()?;
    scan.blank()?;
    let year = scan.number(4)?;
    scan.blank()?;
    let parts = Parts::new(month, day, scan)?;
    let offset = scan.zone(TimeForm::Mail, extent)?;
    Some(parts.written(TimeForm::Mail, Some(year), offset))
}

/// Reads the forms of syslog and, if a day of the week is in front, of ctime.
fn syslog(scan: &mut Scan<'_>, _: Extent) -> Option<Written> {
    let has_weekday = scan.weekday();
    if has_weekday {
        scan.blank()?;
    }
    let month = scan.month()?;
    scan.blank()?;
    let day = scan.up_to_two()?;
    scan.blank()?;
    let parts = Parts::new(month, day, scan)?;
    if !has_weekday {
        return Some(parts.written(TimeForm::Syslog, None, None));
    }
    scan.blank()?;
    let year = scan.number(4)?;
    Some(parts.written(TimeForm::Ctime, Some(year), None))
}

const MONTHS: [&[u8; 3]; 12] = [
    b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec",
];
const WEEKDAYS: [&[u8; 3]; 7] = [b"mon", b"tue", b"wed", b"thu", b"fri", b"sat", b"sun"];

/// The zones that RFC 2822 names, in hours.
const NAMED_ZONES: [(&[u8], i8); 12] = [
    (b"utc", 0),
    (b"gmt", 0),
    (b"z", 0),
    (b"ut", 0),
    (b"est", -5),
    (b"edt", -4),
    (b"cst", -6),
    (b"cdt", -5),
    (b"mst", -7),
    (b"mdt", -6),
    (b"pst", -8),
    (b"pdt", -7),
];

/// How many of them, from the first, are hardly anything else where words follow a time.
const UNMISTAKABLE: usize = 2;

/// What is left of a text.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn take(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self, wanted: u8) -> Option<()> {
        (self.take()? == wanted).then_some(())
    }

    /// Skips at least one blank.
    fn blank(&mut self) -> Option<()> {
        self.byte(b' ')?;
        self.blanks();
        Some(())
    }

    fn blanks(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    fn digits(&self) -> usize {
        self.0.iter().take_while(|byte| byte.is_ascii_digit()).count()
    }

    /// Reads a number of exactly this many digits.
    fn number<N: TryFrom<u32>>(&mut self, digits: usize) -> Option<N> {
        if self.digits() != digits {
            return None;
        }
        let (number, rest) = self.0.split_at(digits);
        self.0 = rest;
        let number = number.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        N::try_from(number).ok()
    }

    /// Reads a number of one or two digits.
    fn up_to_two<N: TryFrom<u32>>(&mut self) -> Option<N> {
        self.number(self.digits().clamp(1, 2))
    }

    /// Reads decimals of a second, if there are any, as nanoseconds.
    fn decimals(&mut self) -> Option<i32> {
        // What follows may also end a sentence, or the text.
        if !matches!(self.0, [b'.' | b',', b'0'..=b'9', ..]) {
            return Some(0);
        }
        self.take()?;
        let (digits, rest) = self.0.split_at(self.digits());
        self.0 = rest;
        let padded = digits.iter().copied().chain(std::iter::repeat(b'0')).take(9);
        Some(padded.fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0')))
    }

    fn word(&self) -> &[u8] {
        let end = self.0.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        &self.0[..end]
    }

    fn month(&mut self) -> Option<i8> {
        let at = MONTHS.iter().position(|name| self.word().eq_ignore_ascii_case(*name))?;
        self.0 = &self.0[3..];
        i8::try_from(at + 1).ok()
    }

    /// Skips the name of a day of the week; returns whether there was one.
    fn weekday(&mut self) -> bool {
        let found = WEEKDAYS.iter().any(|name| self.word().eq_ignore_ascii_case(*name));
        if found {
            self.0 = &self.0[3..];
        }
        found
    }

    /// Reads a zone, directly or behind one blank, and returns its offset; `Some(None)` if there is
    /// none, `None` if it is malformed.
    fn zone(&mut self, form: TimeForm, extent: Extent) -> Option<Option<Offset>> {
        if self.0.first() == Some(&b' ') {
            return Some(self.zone_apart(form, extent));
        }
        match self.named_zone(&NAMED_ZONES) {
            None if matches!(self.0.first(), Some(b'+' | b'-')) => self.offset().map(Some),
            named => Some(named),
        }
    }

    /// Reads a zone behind a blank. If more of the line follows, a word or a number there may be
    /// the next field: then only the names that mean hardly anything else are taken, and offsets
    /// in hours and minutes as zones have them. Times of RFC 2822 always have a zone.
    fn zone_apart(&mut self, form: TimeForm, extent: Extent) -> Option<Offset> {
        let (is_alone, is_mail) = (extent == Extent::Whole, form == TimeForm::Mail);
        let count = if is_alone || is_mail { NAMED_ZONES.len() } else { UNMISTAKABLE };
        let mut scan = Scan(&self.0[1..]);
        let zone = match scan.named_zone(&NAMED_ZONES[..count]) {
            Some(zone) => zone,
            None => {
                let is_signed = matches!(scan.0.first(), Some(b'+' | b'-'));
                let before = scan.0.len();
                let zone = is_signed.then(|| scan.offset())??;
                let has_minutes = before - scan.0.len() > "+01".len();
                let is_usual = zone.seconds() % 900 == 0 && zone.seconds().abs() <= 14 * 3600;
                (is_alone || has_minutes && (is_mail || is_usual)).then_some(zone)?
            }
        };
        let is_ended = match scan.0 {
            [b'.' | b':', next, ..] => !next.is_ascii_digit(),
            [next, ..] => !next.is_ascii_alphanumeric() && !b"+-_/".contains(next),
            [] => true,
        };
        is_ended.then(|| self.0 = scan.0).map(|()| zone)
    }

    /// Reads one of these names of zones.
    fn named_zone(&mut self, names: &[(&[u8], i8)]) -> Option<Offset> {
        let word = self.word();
        let (name, hours) = names.iter().find(|(name, _)| word.eq_ignore_ascii_case(name))?;
        self.0 = &self.0[name.len()..];
        Offset::from_hours(*hours).ok()
    }

    /// Reads an offset such as `+01:00`, `-0330` or `+01`.
    fn offset(&mut self) -> Option<Offset> {
        let sign = if self.take()? == b'-' { -1 } else { 1 };
        let (hours, minutes) = match self.digits() {
            2 if self.0.get(2) == Some(&b':') => {
                let hours: i32 = self.number(2)?;
                self.byte(b':')?;
                (hours, self.number::<i32>(2)?)
            }
            2 => (self.number::<i32>(2)?, 0),
            4 => {
                let both: i32 = self.number(4)?;
                (both / 100, both % 100)
            }
            _ => return None,
        };
        if hours >= 24 || minutes >= 60 {
            return None;
        }
        Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
    }
}

/// Parses an offset that is the whole text.
pub fn offset(text: &str) -> Option<Offset> {
    let mut scan = Scan(text.as_bytes());
    let offset = matches!(scan.0.first(), Some(b'+' | b'-')).then(|| scan.offset())??;
    scan.0.is_empty().then_some(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the form, the seconds since the epoch as in UTC or in the zone, and what is left.
    fn of(text: &str) -> Option<(TimeForm, i64, &[u8])> {
        within(text, Extent::Beginning)
    }

    fn within(text: &str, extent: Extent) -> Option<(TimeForm, i64, &[u8])> {
        let (written, rest) = read(text.as_bytes(), extent)?;
        let local = written.in_year(written.year.unwrap_or(2026))?;
        let time = written.offset.unwrap_or(Offset::UTC).to_timestamp(local).ok()?;
        Some((written.form, time.as_second(), rest))
    }

    #[test]
    fn each_form_is_recognised_and_ends_where_the_time_ends() {
        let at = 1_795_510_800;
        for (text, form, rest) in [
            ("2026-11-24T10:00:00+01:00", TimeForm::Iso, ""),
            ("2026-11-24 09:00:00Z x", TimeForm::Iso, " x"),
            ("2026-11-24 09:00:00.999 UTC", TimeForm::Iso, ""),
            ("2026-11-24 09:00:00,5 a", TimeForm::Iso, " a"),
            ("2026/11/24 09:00:00 [error]", TimeForm::Iso, " [error]"),
            ("2026-11-24T09:00:00,", TimeForm::Iso, ","),
            ("2026-11-24 09:00:00.", TimeForm::Iso, "."),
            ("2026-11-24T09:00Z", TimeForm::Iso, ""),
            ("2026-11-24 05:00:00 -0400 host", TimeForm::Iso, " host"),
            ("2026-11-24 09:00:00 -x", TimeForm::Iso, " -x"),
            ("2026-11-24 10:00:00 +01:00: x", TimeForm::Iso, ": x"),
            ("2026-11-24 14:45:00 +0545", TimeForm::Iso, ""),
            ("2026-11-24 09:00:00 GMT: x", TimeForm::Iso, ": x"),
            ("2026-11-24 10:00:00+01 +02", TimeForm::Iso, " +02"),
            ("24/Nov/2026:09:00:00 utc", TimeForm::Access, ""),
            ("24/Nov/2026:10:00:00 +0100] \"GET", TimeForm::Access, "] \"GET"),
            ("Tue, 24 Nov 2026 10:00:00 +0100", TimeForm::Mail, ""),
            ("24 nov 2026 04:00 EST", TimeForm::Mail, ""),
            ("Tue, 24 Nov 2026 09:00:00 GMT,", TimeForm::Mail, ","),
            ("Tue Nov 24 09:00:00.123456 2026] x", TimeForm::Ctime, "] x"),
            ("Nov 24 09:00:00 host app", TimeForm::Syslog, " host app"),
        ] {
            assert_eq!(of(text), Some((form, at, rest.as_bytes())), "{text}");
        }
        let (form, time, _) = of("Nov  4 09:00:00 2025").expect("a padded day");
        assert_eq!((form, time), (TimeForm::Syslog, at - 20 * 86_400));
        assert_eq!(of("2026-12-31T23:59:60Z").map(|it| it.1), Some(1_798_761_599));
    }

    #[test]
    fn what_follows_a_blank_is_a_zone_only_where_it_can_hardly_be_anything_else() {
        for time in ["2026-11-24 09:00:00", "24/Nov/2026:09:00:00"] {
            for next in [
                "+21",
                "-05",
                "+01",
                "Z",
                "z",
                "UT",
                "EST",
                "pdt",
                "+2100",
                "-1234",
                "+0107",
                "-0130.5",
                "+01:00:00",
                "+0100x",
                "-05-11",
                "UTCx",
                "utc_id",
                "GMT+1",
                "-1",
                "+",
            ] {
                let rest = format!(" {next} s1");
                let found = of(&format!("{time}{rest}")).map(|(_, at, rest)| (at, rest.to_vec()));
                assert_eq!(found, Some((1_795_510_800, rest.into_bytes())), "{time} {next}");
            }
        }
        let mail = "Tue, 24 Nov 2026 09:00:00";
        for next in ["+21", "Zoo", "+0100.5"] {
            let found = of(&format!("{mail} {next}")).map(|(_, at, rest)| (at, rest.len()));
            assert_eq!(found, Some((1_795_510_800, 1 + next.len())), "{next}");
        }
        assert_eq!(of("Tue, 24 Nov 2026 09:00:00 Z").map(|(_, _, rest)| rest.len()), Some(0));
        assert_eq!(of("Tue, 24 Nov 2026 10:07:00 +0107 x").map(|it| it.1), Some(1_795_510_800));
    }

    #[test]
    fn what_ends_the_text_of_a_time_is_its_zone() {
        for text in [
            "2026-11-24 10:00:00 +01",
            "2026-11-24 09:00:00 Z",
            "2026-11-24 04:00:00 EST]",
            "2026-11-24 10:07:00 +0107\"",
            "24/Nov/2026:10:00:00 +01",
            "Tue, 24 Nov 2026 10:00:00 +01",
        ] {
            let found = within(text, Extent::Whole).map(|(_, at, rest)| (at, rest.len() < 2));
            assert_eq!(found, Some((1_795_510_800, true)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_not_taken_for_one() {
        for text in [
            "",
            "1700000000",
            "2026-11-24",
            "2026-13-24T10:00:00Z",
            "2026-02-30T10:00:00Z",
            "2026-11-24T24:00:00Z",
            "2026-11-24T10:60:00Z",
            "2026-11-24T10:00:61Z",
            "2026-11/24T10:00:00Z",
            "2026-11-24T10:00:00+1",
            "2026-11-24T10:00:00+25:00",
            "2026-11-24T10:00:00+ab:cd",
            "26-11-24T10:00:00Z",
            "24/Nov/26:10:00:00 +0100",
            "24/Foo/2026:10:00:00 +0100",
            "Tue, 24 Nov 2026",
            "Tue Nov 24 10:00:00",
            "November 24 10:00:00",
            "Nov 32 10:00:00",
            "Nov 24 10",
            "\u{661}\u{662}/Nov/2026:10:00:00",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let texts = [
            "2026-11-24 10:00:00.25 +01:00",
            "24/Nov/2026:10:00:00 +0100",
            "Tue, 24 Nov 2026 10:00:00 PST",
            "Tue Nov 24 10:00:00 2026",
        ];
        let mut seed = 7_u64;
        for text in texts {
            for end in 0..=text.len() {
                let _ = of(&text[..end]);
            }
            for _ in 0..20_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let mut bytes = text.as_bytes().to_vec();
                let at = (seed >> 33) as usize % bytes.len();
                bytes[at] = (seed >> 24) as u8;
                let read = read(&bytes, Extent::Beginning);
                assert!(read.is_none_or(|(_, rest)| rest.len() < bytes.len()));
            }
        }
    }
}
