//! The initial filters of schedules.

use crate::history::Promise;
use ebbtide::media::{Access, Media, Memory};
use ebbtide::{Any, Clock, Durability, Filter, Keep, Options, Parameters, Timestamp};
use std::io;
use std::sync::Arc;

/// Parameters, with their names.
type Pairs = &'static [(&'static str, &'static str)];

/// One kind for each kind of promise and for each mechanism of the engine: plain bits, undo,
/// growing blocks, events by inserts and by time.
const KINDS: [(&str, Pairs, Promise, Pace); 7] = [
    ("bloom", &[("capacity", "200"), ("fpr", "1e-7")], Promise::Kept, STEADY),
    (
        "counting",
        &[("capacity", "200"), ("fpr", "1e-7"), ("counter-bits", "8")],
        Promise::Counted,
        STEADY,
    ),
    ("spectral", &[("capacity", "200"), ("fpr", "1e-7")], Promise::Counted, STEADY),
    (
        "dynamic-count",
        &[("capacity", "200"), ("fpr", "1e-7"), ("mean-count", "2")],
        Promise::Counted,
        STEADY,
    ),
    ("age-partitioned", &[("window-items", "24"), ("fpr", "0.01")], Promise::Last(24), STEADY),
    // Each insert closes a generation, by time.
    (
        "time-limited",
        &[("window", "200000"), ("fpr", "0.01"), ("rate", "100")],
        Promise::Within(200_000),
        STEADY,
    ),
    // Generations close because their 66 keys are used up, while others insert keys of later
    // times.
    (
        "time-limited",
        &[("window", "20000"), ("fpr", "0.01"), ("rate", "1")],
        Promise::Within(20_000),
        Pace { at_once: 60, apart: 20 },
    ),
];

/// The times of a schedule's inserts, including those before it.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The number of inserts that arrive within as many microseconds, at first.
    pub at_once: u64,
    /// The microseconds from each later insert to the next.
    pub apart: u64,
}

const STEADY: Pace = Pace { at_once: 0, apart: 7_000 };

/// The bytes of a log segment: five records, or seventeen.
const SEGMENTS: [u64; 2] = [5 * 32, 17 * 32];
/// The first of the keys that are inserted before the schedule begins, and never again.
pub const OLD_KEYS: u64 = 1 << 32;

/// A filter that was closed.
#[derive(Debug)]
pub struct Start {
    pub memory: Memory,
    pub promise: Promise,
    pub pace: Pace,
}

/// Returns the options of a handle.
pub fn options() -> Options {
    Options::new().clock(Clock::stream()).background(false).checkpoint_bytes(600)
}

impl Pace {
    /// Returns the time of the n-th insert.
    pub fn time_of(self, number: u64) -> u64 {
        let soon = number.min(self.at_once);
        1_000_000 + soon + (number - soon) * self.apart
    }

    /// Inserts keys that no thread inserts again.
    pub fn fill(
        self,
        filter: &Filter<Any>,
        numbers: std::ops::Range<u64>,
    ) -> Result<(), ebbtide::Error> {
        for number in numbers {
            let time = Timestamp::from_unix_micros(self.time_of(number));
            filter.call().time(time).insert((OLD_KEYS + number).to_le_bytes())?;
        }
        Ok(())
    }
}

/// Returns all initial filters.
pub fn all() -> Result<Vec<Start>, ebbtide::Error> {
    let mut all = Vec::new();
    for (kind, parameters, promise, pace) in KINDS {
        for bytes in SEGMENTS {
            let parameters = parameters.iter();
            let parameters =
                parameters.fold(Parameters::new(), |all, (name, value)| all.with(name, value));
            let kept = options().hash_seed(7).stripes(2).block_bytes(512).segment_bytes(bytes);
            let memory = Memory::new();
            let media = Arc::new(memory.clone());
            let keep = if bytes == SEGMENTS[1] { Keep::Bytes(1 << 40) } else { Keep::Nothing };
            let kept = kept.durability(Durability::Never).keep_log(keep);
            let filter = Filter::create_on(media, Any::new(kind, parameters), kept)?;
            filter.close()?;
            let memory = copy(&memory, |name| !name.starts_with("live"));
            let memory = memory.expect("memory is large");
            all.push(Start { memory, promise, pace });
        }
    }
    Ok(all)
}

/// Copies the files with these names.
pub fn copy(from: &Memory, which: impl Fn(&str) -> bool) -> io::Result<Memory> {
    let to = Memory::new();
    to.make()?;
    for name in from.list()?.into_iter().filter(|name| which(name)) {
        let file = from.open(&name, Access::Read)?;
        let mut bytes = vec![0; file.bytes()? as usize];
        file.read_at(&mut bytes, 0)?;
        to.create(&name, bytes.len() as u64)?.write_at(&bytes, 0)?;
    }
    Ok(to)
}
