//! A small filter of every kind, some with several parameters: like `testkit/src/samples.rs`, but
//! smaller.

use ebbtide::{Any, Clock, Durability, Options, Parameters};

/// The promise of a kind about inserted keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// A key stays permanently.
    Forever,
    /// It stays until it was removed as often as it was inserted, and its count is not too low.
    Counted,
    /// It stays; its count may be too low.
    Undercounted,
    /// It is present immediately after its insert, and decays.
    Fading,
    /// It is present among this many last inserts.
    Items(u64),
    /// It is present for this many microseconds.
    Time(u64),
}

/// A kind with parameters.
#[derive(Debug)]
pub struct Sample {
    kind: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    /// The largest weight of a key, if the kind uses weights.
    pub heaviest: u8,
    /// Whether keys can be removed.
    pub removes: bool,
    /// The promise of the kind.
    pub promise: Promise,
}

const fn sample(
    kind: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    promise: Promise,
) -> Sample {
    Sample { kind, parameters, heaviest: 1, removes: false, promise }
}

const COUNTED: &[(&str, &str)] = &[("capacity", "50"), ("fpr", "0.05")];
const DECAYED: &[(&str, &str)] =
    &[("capacity", "50"), ("fpr", "0.05"), ("lambda", "0.7"), ("epoch", "20000")];
const STABLE: &[(&str, &str)] = &[("cells", "1000"), ("max", "7"), ("K", "4"), ("P", "12")];
const RECENT: &[(&str, &str)] = &[("window-items", "40"), ("fpr", "0.05")];
const LAST: Promise = Promise::Items(40);

/// All kinds.
pub const SAMPLES: [Sample; 21] = [
    sample("bloom", COUNTED, Promise::Forever),
    Sample {
        heaviest: 3,
        removes: true,
        ..sample(
            "counting",
            &[("capacity", "50"), ("fpr", "0.05"), ("counter-bits", "3")],
            Promise::Counted,
        )
    },
    Sample { heaviest: 9, removes: true, ..sample("spectral", COUNTED, Promise::Counted) },
    Sample {
        heaviest: 9,
        ..sample(
            "spectral",
            &[("capacity", "50"), ("fpr", "0.05"), ("policy", "mi")],
            Promise::Counted,
        )
    },
    Sample {
        heaviest: 9,
        ..sample(
            "spectral",
            &[("capacity", "50"), ("fpr", "0.05"), ("policy", "rm")],
            Promise::Undercounted,
        )
    },
    Sample {
        heaviest: 200,
        removes: true,
        ..sample(
            "dynamic-count",
            &[("capacity", "50"), ("fpr", "0.05"), ("mean-count", "2")],
            Promise::Counted,
        )
    },
    Sample { heaviest: 9, ..sample("decaying", DECAYED, Promise::Fading) },
    Sample { heaviest: 40, ..sample("decaying-optimized", DECAYED, Promise::Fading) },
    sample("timing", &[("window-items", "40")], LAST),
    sample("block-timing", &[("window-items", "40"), ("fpr", "0.05"), ("block-size", "16")], LAST),
    sample("age-partitioned", RECENT, LAST),
    sample(
        "time-limited",
        &[("window", "200000"), ("fpr", "0.05"), ("rate", "100")],
        Promise::Time(200_000),
    ),
    sample("stable", STABLE, Promise::Fading),
    Sample { heaviest: 7, ..sample("importance-2c", STABLE, Promise::Fading) },
    Sample { heaviest: 7, ..sample("importance-mc", STABLE, Promise::Fading) },
    Sample { heaviest: 7, ..sample("importance-h", STABLE, Promise::Fading) },
    sample("double-buffering", RECENT, LAST),
    sample("two-buffer", RECENT, LAST),
    sample("fingerprint", RECENT, LAST),
    sample(
        "fingerprint",
        &[("window-items", "200"), ("fpr", "0.05"), ("words", "16")],
        Promise::Items(200),
    ),
    sample(
        "fingerprint",
        &[("window", "200000"), ("fpr", "0.05"), ("rate", "1")],
        Promise::Time(200_000),
    ),
];

impl Sample {
    /// Returns the sample of a byte.
    pub fn of(byte: u8) -> &'static Self {
        &SAMPLES[usize::from(byte) % SAMPLES.len()]
    }

    /// Returns the spec of the sample.
    pub fn spec(&self) -> Any {
        let pairs = self.parameters.iter();
        let all = pairs.fold(Parameters::new(), |all, (name, value)| all.with(name, value));
        Any::new(self.kind, all)
    }
}

/// Returns options for the smallest filters, without threads, on the time of their keys.
pub fn options() -> Options {
    Options::new()
        .hash_seed(1)
        .stripes(2)
        .block_bytes(512)
        .segment_bytes(4096)
        .durability(Durability::Never)
        .background(false)
        .clock(Clock::stream())
}
