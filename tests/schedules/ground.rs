//! The filters that schedules begin with.

use crate::history::Promise;
use crate::media;
use ebbtide::media::Memory;
use ebbtide::{Any, Clock, Durability, Filter, Options, Parameters, Timestamp};
use std::sync::Arc;

/// Parameters, with their names.
type Pairs = &'static [(&'static str, &'static str)];

/// Of each kind of promise and of each way in which the engine treats a kind: plain bits, undo, growing blocks, events by
/// inserts and by time.
const KINDS: [(&str, Pairs, Promise); 6] = [
    ("bloom", &[("capacity", "200"), ("fpr", "1e-7")], Promise::Kept),
    ("counting", &[("capacity", "200"), ("fpr", "1e-7"), ("counter-bits", "8")], Promise::Counted),
    ("spectral", &[("capacity", "200"), ("fpr", "1e-7")], Promise::Counted),
    (
        "dynamic-count",
        &[("capacity", "200"), ("fpr", "1e-7"), ("mean-count", "2")],
        Promise::Counted,
    ),
    ("age-partitioned", &[("window-items", "24"), ("fpr", "0.01")], Promise::Last(24)),
    (
        "time-limited",
        &[("window", "200000"), ("fpr", "0.01"), ("rate", "100")],
        Promise::Within(200_000),
    ),
];

/// Bytes of a log segment: five records, or seventeen.
const SEGMENTS: [u64; 2] = [5 * 32, 17 * 32];
/// Keys from here on are inserted before the schedule begins, and never again.
pub const OLD_KEYS: u64 = 1 << 32;

/// A filter that was closed.
#[derive(Debug)]
pub struct Ground {
    pub memory: Memory,
    pub promise: Promise,
}

/// What a handle is opened with.
pub fn options() -> Options {
    Options::new().clock(Clock::stream()).background(false).checkpoint_bytes(600)
}

/// The time of the n-th insert of a schedule, those before it included.
pub fn time_of(number: u64) -> u64 {
    1_000_000 + number * 7_000
}

/// Inserts so many keys that nobody inserts again.
pub fn fill(filter: &Filter<Any>, numbers: std::ops::Range<u64>) -> Result<(), ebbtide::Error> {
    for number in numbers {
        let time = Timestamp::from_unix_micros(time_of(number));
        filter.call().time(time).insert((OLD_KEYS + number).to_le_bytes())?;
    }
    Ok(())
}

/// All of them.
pub fn all() -> Result<Vec<Ground>, ebbtide::Error> {
    let mut all = Vec::new();
    for (kind, parameters, promise) in KINDS {
        for bytes in SEGMENTS {
            let parameters = parameters.iter();
            let parameters =
                parameters.fold(Parameters::new(), |all, (name, value)| all.with(name, value));
            let kept = options().hash_seed(7).stripes(2).block_bytes(512).segment_bytes(bytes);
            let memory = Memory::new();
            let media = Arc::new(memory.clone());
            let kept = kept.durability(Durability::Never);
            let filter = Filter::create_on(media, Any::new(kind, parameters), kept)?;
            filter.close()?;
            let memory = media::copy(&memory, |name| !name.starts_with("live"));
            let memory = memory.expect("memory is large");
            all.push(Ground { memory, promise });
        }
    }
    Ok(all)
}
