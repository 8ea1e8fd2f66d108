//! The filters that processes share.

use ebbtide::{Any, Durability, Options, Parameters};
use std::time::Duration;

/// A filter, and its expected properties.
#[derive(Debug)]
pub struct Scene {
    /// The unique name of the scene.
    pub name: &'static str,
    kind: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    stripes: u32,
    block_bytes: u64,
    segment_bytes: u64,
    checkpoint_bytes: u64,
    durability: Durability,
    /// Whether no key expires during a test.
    pub keeps_all: bool,
    /// Whether false positives are negligible (below 1e-7 at the number of keys that a test
    /// inserts), so that the first insert of a key must receive `New`.
    pub exact: bool,
    /// The window, if keys expire by time.
    pub window: Option<Duration>,
}

const MILLISECOND: Durability = Durability::Interval(Duration::from_millis(1));

/// No key expires: one generation is longer than any test, and `words` is large enough for its
/// keys.
pub const WIDE: Scene = Scene {
    name: "age-partitioned, nothing expires",
    kind: "age-partitioned",
    parameters: &[("window-items", "1000000000000"), ("k", "16"), ("l", "8"), ("words", "2097152")],
    stripes: 64,
    block_bytes: 16 << 10,
    segment_bytes: 4 << 20,
    checkpoint_bytes: 16 << 20,
    durability: Durability::Interval(Duration::from_millis(10)),
    keeps_all: true,
    exact: true,
    window: None,
};

/// Few stripes, small blocks, segments and checkpoints: some process is always within an operation.
pub const NARROW: Scene = Scene {
    name: "bloom, few stripes",
    kind: "bloom",
    parameters: &[("capacity", "200000"), ("fpr", "0.000000001")],
    stripes: 4,
    block_bytes: 2048,
    segment_bytes: 128 << 10,
    checkpoint_bytes: 512 << 10,
    durability: MILLISECOND,
    keeps_all: true,
    exact: true,
    window: None,
};

/// Grows while it is in use.
const GROWING: Scene = Scene {
    name: "time-limited, growing",
    kind: "time-limited",
    parameters: &[("window", "600000000"), ("fpr", "0.01"), ("rate", "0.1")],
    stripes: 16,
    block_bytes: 2048,
    segment_bytes: 256 << 10,
    checkpoint_bytes: 1 << 20,
    durability: MILLISECOND,
    keeps_all: true,
    exact: false,
    window: None,
};

/// Counters, which must not be counted twice.
const COUNTING: Scene = Scene {
    name: "counting, few stripes",
    kind: "counting",
    parameters: &[("capacity", "200000"), ("fpr", "0.000000001"), ("counter-bits", "16")],
    ..NARROW
};

/// Counters in blocks that grow and are rewritten.
const WIDENING: Scene = Scene {
    name: "dynamic-count, few stripes",
    kind: "dynamic-count",
    parameters: &[("capacity", "50000"), ("fpr", "0.01")],
    exact: false,
    ..NARROW
};

/// The filters of the soak in which no key expires.
pub const LASTING: [Scene; 5] = [WIDE, COUNTING, NARROW, WIDENING, GROWING];

/// The filters of the soak that step continuously.
pub const FORGETTING: [Scene; 5] = [
    Scene {
        name: "age-partitioned, small window",
        kind: "age-partitioned",
        parameters: &[("window-items", "2000"), ("fpr", "0.01")],
        stripes: 4,
        block_bytes: 2048,
        segment_bytes: 64 << 10,
        checkpoint_bytes: 128 << 10,
        durability: MILLISECOND,
        keeps_all: false,
        exact: false,
        window: None,
    },
    Scene {
        name: "time-limited, short window",
        kind: "time-limited",
        parameters: &[("window", "500000"), ("fpr", "0.01"), ("rate", "1000")],
        stripes: 8,
        block_bytes: 2048,
        segment_bytes: 64 << 10,
        checkpoint_bytes: 128 << 10,
        durability: Durability::Never,
        keeps_all: false,
        exact: false,
        window: Some(Duration::from_millis(500)),
    },
    Scene {
        name: "stable, numbered draws",
        kind: "stable",
        parameters: &[("cells", "100000"), ("max", "7"), ("K", "4"), ("P", "12")],
        keeps_all: false,
        exact: false,
        ..NARROW
    },
    Scene {
        name: "decaying, short epochs",
        kind: "decaying",
        parameters: &[("capacity", "50000"), ("fpr", "0.01"), ("lambda", "0.5"), ("epoch", "5000")],
        keeps_all: false,
        exact: false,
        ..NARROW
    },
    Scene {
        name: "age-partitioned, smallest segments",
        kind: "age-partitioned",
        parameters: &[("window-items", "50000"), ("fpr", "0.001")],
        stripes: 64,
        block_bytes: 512,
        segment_bytes: 4 << 10,
        checkpoint_bytes: 32 << 10,
        durability: Durability::Never,
        keeps_all: false,
        exact: false,
        window: None,
    },
];

/// One stripe, of 1 MiB, and a log that only grows.
pub const SMALL: Scene = one_stripe(
    "one stripe, 1 MiB",
    &[("window-items", "1000000000000"), ("k", "12"), ("l", "10"), ("words", "131072")],
);

/// One stripe, of 64 MiB, and a log that only grows.
pub const LARGE: Scene = one_stripe(
    "one stripe, 64 MiB",
    &[("window-items", "1000000000000"), ("k", "12"), ("l", "10"), ("words", "8388608")],
);

const fn one_stripe(
    name: &'static str,
    parameters: &'static [(&'static str, &'static str)],
) -> Scene {
    Scene {
        name,
        kind: "age-partitioned",
        parameters,
        stripes: 1,
        block_bytes: 16 << 10,
        segment_bytes: 16 << 20,
        checkpoint_bytes: 1 << 40,
        durability: Durability::Interval(Duration::from_secs(1)),
        keeps_all: true,
        exact: false,
        window: None,
    }
}

impl Scene {
    /// Returns the scene of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        const OTHERS: [Scene; 2] = [SMALL, LARGE];
        let mut all = LASTING.iter().chain(&FORGETTING).chain(&OTHERS);
        all.find(|scene| scene.name == name)
    }

    /// Returns the kind.
    pub fn spec(&self) -> Any {
        let pairs = self.parameters.iter();
        Any::new(
            self.kind,
            pairs.fold(Parameters::new(), |all, (name, value)| all.with(name, value)),
        )
    }

    /// Returns the options of all children.
    pub fn options(&self) -> Options {
        Options::new()
            .hash_seed(4711)
            .stripes(self.stripes)
            .block_bytes(self.block_bytes)
            .segment_bytes(self.segment_bytes)
            .durability(self.durability)
            .checkpoint_bytes(self.checkpoint_bytes)
    }
}
