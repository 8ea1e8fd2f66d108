//! What messages show: durations, dates, parameters, and names that may hold anything.

/// The units in which [`micros_text`] writes a duration, largest first, in microseconds.
const SHOWN: &[(&str, u64)] = &[
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// The parameters of kinds that are durations, in microseconds.
pub const DURATIONS: &[&str] = &["window", "epoch"];

/// Writes microseconds as one number with the largest unit that needs no fraction, in a form that
/// [`parse_duration`](crate::units::parse_duration) reads and that contains no space: `10m`,
/// `90s`, `1500ms`.
#[must_use]
pub fn micros_text(micros: u64) -> String {
    let (name, unit) =
        SHOWN.iter().find(|(_, unit)| micros.is_multiple_of(*unit)).unwrap_or(&("us", 1));
    if micros == 0 { "0s".to_owned() } else { format!("{}{name}", micros / unit) }
}

/// Writes microseconds since the Unix epoch as a date of RFC 3339 in UTC, without a zero fraction:
/// `2026-11-24T10:00:00Z`. Years have more than four digits after 9999.
#[must_use]
pub fn date_text(micros: u64) -> String {
    let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since the first of March of the year 0, in spans of 400 years.
    let days = days + 719_468;
    let (span, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let day = day - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = span * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:06}") };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Writes the value of a parameter as messages show it: durations with a unit, and a number of many
/// digits, such as a rate of 1e-120, with an exponent.
#[must_use]
pub fn shown(name: &str, value: &str) -> String {
    let micros = value.parse::<u64>().ok().filter(|_| DURATIONS.contains(&name));
    let long = value.parse::<f64>().ok().filter(|_| value.contains('.') && value.len() > 20);
    match (micros, long) {
        (Some(micros), _) => micros_text(micros),
        (_, Some(number)) => format!("{number:e}"),
        _ => value.to_owned(),
    }
}

/// Returns whether a terminal or a page obeys this character instead of showing it: a control
/// character, an end of line, or one that has no width or changes the direction of what follows, so
/// that a name looks like another one.
#[must_use]
pub fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
        || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

/// Writes text with its [hidden](is_hidden) characters escaped, as in `a\u{1b}b`.
///
/// ```
/// use ebbtide_core::units::visible;
///
/// assert_eq!(visible("a\u{1b}[31m\nb\u{202e}"), r"a\u{1b}[31m\nb\u{202e}");
/// ```
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_hidden(letter) {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}
