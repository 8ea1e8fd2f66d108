//! Clicks: read from a file, or generated with a fixed seed.
//!
//! The generated clicks are of five days. Most are of visitors who click an advertisement once.
//! Some click twice within half a minute, some have the habit of clicking the same advertisement
//! every day at about the same time, just before or after the end of the window. Hijacked machines
//! click a few expensive advertisements again and again for some hours.

use super::Result;
use std::fs;
use std::path::Path;

/// The microseconds of a day: the window in which a click is a duplicate.
pub const DAY: u64 = 86_400_000_000;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;

/// The first generated click: 2026-01-01, 00:00 UTC.
const START: u64 = 1_767_225_600 * SECOND;
const DAYS: u64 = 5;
/// Visitors who click now and then, and their clicks a day.
const VISITORS: u64 = 60_000;
const CLICKS_A_DAY: u64 = 20_000;
const ADVERTISEMENTS: u64 = 200;
/// Visitors who click the same advertisement each day.
const HABITS: u64 = 1_500;
const HIJACKED: u64 = 300;

/// A click that asks to be paid.
pub struct Click {
    /// Microseconds since the Unix epoch.
    pub time: u64,
    /// The visitor and the advertisement.
    pub key: String,
    /// The price, in cents.
    pub cents: u32,
}

/// Weyl's sequence through a mixer (splitmix64): small, and the same on every platform.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn mix(value: u64) -> u64 {
    let mixed = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Returns the price of an advertisement: 3 cents to 5 euros, a few of them high.
fn cents(advertisement: u64) -> u32 {
    let part = mix(advertisement) % 1000;
    (3 + 497 * part * part * part / 1_000_000_000) as u32
}

fn click(time: u64, visitor: u64, advertisement: u64) -> Click {
    let key = format!("visitor {visitor}, advertisement {advertisement}");
    Click { time, key, cents: cents(advertisement) }
}

/// Returns the generated clicks, in order of time, each at a time of its own.
pub fn generate() -> Vec<Click> {
    let random = &mut Random(20_260_101);
    let end = START + DAYS * DAY;
    let mut clicks = Vec::new();
    for _ in 0..CLICKS_A_DAY * DAYS {
        let time = START + random.below(DAYS * DAY);
        // The least of two numbers: some advertisements are shown more often than others.
        let popular = random.below(ADVERTISEMENTS).min(random.below(ADVERTISEMENTS));
        let visitor = random.below(VISITORS);
        clicks.push(click(time, visitor, popular));
        if random.below(100) < 8 {
            let again = time + SECOND / 3 + random.below(30 * SECOND);
            clicks.push(click(again, visitor, popular));
        }
    }
    for habit in 0..HABITS {
        let (usual, advertisement) = (random.below(DAY), random.below(ADVERTISEMENTS));
        for day in 0..DAYS {
            let time = START + day * DAY + usual + random.below(80 * MINUTE);
            clicks.push(click(time, VISITORS + habit, advertisement));
        }
    }
    let mut expensive: Vec<u64> = (0..ADVERTISEMENTS).collect();
    expensive.sort_unstable_by_key(|&advertisement| std::cmp::Reverse(cents(advertisement)));
    for machine in 0..HIJACKED {
        let mut time = START + random.below(DAYS * DAY);
        let until = time + 2 * 60 * MINUTE + random.below(20 * 60 * MINUTE);
        let first = random.below(40) as usize;
        while time < until {
            let advertisement = expensive[first + random.below(3) as usize];
            clicks.push(click(time, VISITORS + HABITS + machine, advertisement));
            time += MINUTE + random.below(20 * MINUTE);
        }
    }
    clicks.retain(|click| click.time < end);
    clicks.sort_by(|one, other| (one.time, &one.key).cmp(&(other.time, &other.key)));
    clicks
}

/// Reads the clicks of a file, and checks that their times never decrease.
pub fn read(path: &Path) -> Result<Vec<Click>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut clicks: Vec<Click> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |what| format!("{}, line {number}: {what}", path.display());
        let fields: Vec<&str> = line.split('\t').collect();
        let expected = "expected SECONDS<TAB>VISITOR<TAB>ADVERTISEMENT<TAB>CENTS";
        let &[seconds, visitor, advertisement, cents] = fields.as_slice() else {
            return Err(wrong(expected).into());
        };
        let seconds = seconds.parse::<f64>().ok().filter(|time| (0.0..1e12).contains(time));
        let (Some(seconds), Ok(cents)) = (seconds, cents.parse()) else {
            return Err(wrong(expected).into());
        };
        let time = (seconds * SECOND as f64).round() as u64;
        if clicks.last().is_some_and(|before| time < before.time) {
            return Err(wrong("earlier than the line before; sort the file: sort -n FILE").into());
        }
        // A character that no field contains separates the two.
        clicks.push(Click { time, key: format!("{visitor}\t{advertisement}"), cents });
    }
    Ok(clicks)
}
