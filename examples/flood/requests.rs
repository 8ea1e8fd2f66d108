//! Requests: read from an access log, or generated with a fixed seed.
//!
//! The generated requests are of half an hour: 3,000 a minute from 16,384 sources, a few of which
//! send most of them, and the floods of [`FLOODS`].

use super::Result;
use std::fs;
use std::path::Path;

const SECOND: u64 = 1_000_000;
/// The microseconds of a minute.
pub const MINUTE: u64 = 60 * SECOND;

/// The first generated request: 2026-01-01, 12:00 UTC.
const START: u64 = 1_767_268_800 * SECOND;
const MINUTES: u64 = 30;
const REQUESTS_A_MINUTE: u64 = 3_000;

/// A flood: its first minute, its length in minutes, its number of sources, and the requests a
/// minute of each.
const FLOODS: [(u64, u64, u64, u64); 4] =
    [(4, 4, 1, 1_500), (11, 2, 1, 4_000), (13, 12, 1, 400), (20, 4, 8, 250)];

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Microseconds since the Unix epoch; no other request has the same.
    pub time: u64,
    /// The client's address.
    pub source: String,
}

/// The requests of a minute, in order of time: never none.
pub type Minute = Vec<Request>;

/// Weyl's sequence through a mixer (splitmix64): small, and the same on every platform.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// Returns the generated requests.
pub fn generate() -> Vec<Request> {
    let random = &mut Random(20_260_101);
    let mut requests = Vec::new();
    let mut add = |minute: u64, random: &mut Random, source: String| {
        let time = START + minute * MINUTE + random.below(MINUTE - SECOND);
        requests.push(Request { time, source });
    };
    for minute in 0..MINUTES {
        for _ in 0..REQUESTS_A_MINUTE {
            // Each of the first 8 sends 2 %, each of the next 8 sends 1 %, of the next 16 0.5 %.
            let bits = 3 + random.below(12);
            let source = random.below(1 << bits);
            add(minute, random, format!("10.0.{}.{}", source >> 8, source & 255));
        }
        for (flood, (first, minutes, sources, requests)) in (1..).zip(FLOODS) {
            if (first..first + minutes).contains(&minute) {
                for request in 0..requests * sources {
                    let source = request % sources + 1;
                    add(minute, random, format!("203.0.{flood}.{source}"));
                }
            }
        }
    }
    distinguished(requests)
}

/// Sorts requests by time, and makes their times different by adding microseconds.
fn distinguished(mut requests: Vec<Request>) -> Vec<Request> {
    requests.sort();
    let mut next = 0;
    for request in &mut requests {
        request.time = request.time.max(next);
        next = request.time + 1;
    }
    requests
}

/// Divides requests into minutes; those without a request are left out.
pub fn by_minute(requests: Vec<Request>) -> Vec<Minute> {
    let mut minutes: Vec<Minute> = Vec::new();
    for request in requests {
        let is_same = |minute: &&mut Minute| minute[0].time / MINUTE == request.time / MINUTE;
        match minutes.last_mut().filter(is_same) {
            Some(minute) => minute.push(request),
            None => minutes.push(vec![request]),
        }
    }
    minutes
}

/// Reads an access log in the common or combined format.
pub fn read(path: &Path) -> Result<Vec<Request>> {
    let text = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    let mut requests = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let request = parse(line).ok_or_else(|| {
            let expected = "SOURCE - - [02/Jun/2025:00:00:06 +0000] ...";
            format!("{}, line {number}: expected {expected}", path.display())
        })?;
        requests.push(request);
    }
    if requests.is_empty() {
        return Err(format!("{}: the log is empty", path.display()).into());
    }
    Ok(distinguished(requests))
}

/// Reads a line: its first field, and the time in brackets.
fn parse(line: &str) -> Option<Request> {
    let (source, rest) = line.split_once(' ')?;
    let (_, rest) = rest.split_once('[')?;
    let (time, _) = rest.split_once(']')?;
    let seconds = u64::try_from(seconds(time)?).ok()?;
    Some(Request { time: seconds * SECOND, source: source.to_owned() })
}

/// Returns the seconds since the Unix epoch of a time such as `02/Jun/2025:00:00:06 +0000`.
fn seconds(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (time, zone) = text.split_once(' ')?;
    let words: Vec<&str> = time.split(['/', ':']).collect();
    let &[day, month, year, hour, minute, second] = words.as_slice() else { return None };
    let number = |text: &str, most: i64| text.parse().ok().filter(|n| (0..=most).contains(n));
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    let (day, year) = (number(day, 31)?, number(year, 9999)?);
    let (hour, minute, second) = (number(hour, 23)?, number(minute, 59)?, number(second, 60)?);
    let zone = zone.parse::<i64>().ok().filter(|zone| zone.abs() < 2400)?;
    // Days since the Unix epoch, of years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let local = (days - 719_468) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(local - zone / 100 * 3_600 - zone % 100 * 60)
}
