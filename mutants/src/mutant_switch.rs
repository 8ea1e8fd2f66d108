//! Which mutant is switched on: the one whose number is in `EBBTIDE_MUTANT`, none if it is not set.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

const UNKNOWN: u32 = u32::MAX;
/// All are off, and each that is reached is written to the file in `EBBTIDE_REACHED`.
const RECORD: u32 = u32::MAX - 1;

static CHOSEN: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Tells whether the mutant of this number is switched on.
#[inline]
pub fn on(number: u32) -> bool {
    let chosen = CHOSEN.load(Relaxed);
    chosen == number || chosen >= RECORD && decide(number)
}

#[cold]
#[inline(never)]
fn decide(number: u32) -> bool {
    if CHOSEN.load(Relaxed) == UNKNOWN {
        let chosen = match std::env::var("EBBTIDE_MUTANT") {
            Ok(text) if text == "record" => RECORD,
            Ok(text) => text.parse().unwrap_or(0),
            Err(_) => 0,
        };
        CHOSEN.store(chosen, Relaxed);
        return chosen == number;
    }
    static REACHED: [AtomicBool; 1 << 15] = [const { AtomicBool::new(false) }; 1 << 15];
    if !REACHED[number as usize].swap(true, Relaxed)
        && let Ok(path) = std::env::var("EBBTIDE_REACHED")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = file.write_all(format!("{number}\n").as_bytes());
    }
    false
}
