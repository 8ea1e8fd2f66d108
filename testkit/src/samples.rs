//! A small filter of every kind, and operations that exercise all of it: steps, halvings, rebuilds,
//! saturation, removals.

use ebbtide::{Any, Batch, Call, Entry, Error, Parameters, Timestamp};

/// A kind with parameters so small that all its events happen within some thousand operations.
#[derive(Debug)]
pub struct Sample {
    /// The unique name of the sample.
    pub name: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The parameters.
    pub parameters: &'static [(&'static str, &'static str)],
    /// The largest weight of a key, if the kind uses weights.
    pub heaviest: u64,
    /// Whether every fourth operation is a removal.
    pub removes: bool,
}

const PLAIN: Sample = Sample {
    name: "bloom",
    kind: "bloom",
    parameters: &[("capacity", "500")],
    heaviest: 1,
    removes: false,
};

const COUNTED: &[(&str, &str)] = &[("capacity", "500"), ("fpr", "0.01")];
const DECAYED: &[(&str, &str)] =
    &[("capacity", "500"), ("fpr", "0.01"), ("lambda", "0.7"), ("epoch", "20000")];
const STABLE: &[(&str, &str)] = &[("cells", "20000"), ("max", "7"), ("K", "4"), ("P", "12")];

/// All kinds, some with several parameters.
pub const SAMPLES: [Sample; 24] = [
    PLAIN,
    Sample {
        name: "counting",
        kind: "counting",
        parameters: &[("capacity", "500"), ("fpr", "0.01"), ("counter-bits", "3")],
        heaviest: 3,
        removes: true,
    },
    Sample { name: "spectral", kind: "spectral", parameters: COUNTED, heaviest: 9, removes: true },
    Sample {
        name: "spectral, minimal increase",
        kind: "spectral",
        parameters: &[("capacity", "500"), ("fpr", "0.01"), ("policy", "mi")],
        heaviest: 9,
        removes: false,
    },
    Sample {
        name: "spectral, recurring minimum",
        kind: "spectral",
        parameters: &[("capacity", "500"), ("fpr", "0.01"), ("policy", "rm")],
        heaviest: 9,
        // A few keys are undercounted, as published: a key may be absent immediately after its
        // insert, and cannot be removed.
        removes: false,
    },
    Sample {
        name: "dynamic-count",
        kind: "dynamic-count",
        parameters: &[("capacity", "500"), ("fpr", "0.01"), ("mean-count", "2")],
        heaviest: 200,
        removes: true,
    },
    Sample { name: "decaying", kind: "decaying", parameters: DECAYED, heaviest: 9, removes: false },
    Sample {
        name: "decaying, polynomial",
        kind: "decaying",
        parameters: &[
            ("capacity", "500"),
            ("fpr", "0.01"),
            ("decay", "polynomial"),
            ("exponent", "1"),
            ("horizon", "100"),
            ("epoch", "20000"),
            // So few that numbers become full, with weights of 9.
            ("counter-bits", "20"),
            ("excess", "0.1"),
        ],
        heaviest: 9,
        removes: false,
    },
    Sample {
        name: "decaying, weights",
        kind: "decaying",
        parameters: &[
            ("capacity", "500"),
            ("fpr", "0.01"),
            ("decay", "weights"),
            ("weights", "1,1,0.5,0.25,0.125"),
            ("epoch", "20000"),
        ],
        heaviest: 9,
        removes: false,
    },
    Sample {
        name: "decaying-optimized",
        kind: "decaying-optimized",
        parameters: DECAYED,
        heaviest: 40,
        removes: false,
    },
    Sample {
        name: "decaying-optimized, sized",
        kind: "decaying-optimized",
        // As filters were planned that have no parameter `error`.
        parameters: &[
            ("capacity", "500"),
            ("fpr", "0.01"),
            ("cells", "4797"),
            ("k", "7"),
            ("lambda", "0.7"),
            ("epoch", "20000"),
        ],
        heaviest: 40,
        removes: false,
    },
    Sample { name: "timing", kind: "timing", parameters: &[("window-items", "300")], ..PLAIN },
    Sample {
        name: "block-timing",
        kind: "block-timing",
        parameters: &[("window-items", "300"), ("fpr", "0.01"), ("block-size", "16")],
        ..PLAIN
    },
    Sample {
        name: "age-partitioned",
        kind: "age-partitioned",
        parameters: &[("window-items", "300"), ("fpr", "0.01")],
        ..PLAIN
    },
    Sample {
        name: "time-limited",
        kind: "time-limited",
        parameters: &[("window", "200000"), ("fpr", "0.01"), ("rate", "100")],
        ..PLAIN
    },
    Sample { name: "stable", kind: "stable", parameters: STABLE, ..PLAIN },
    Sample {
        name: "importance-2c",
        kind: "importance-2c",
        parameters: STABLE,
        heaviest: 7,
        ..PLAIN
    },
    Sample {
        name: "importance-mc",
        kind: "importance-mc",
        parameters: STABLE,
        heaviest: 7,
        ..PLAIN
    },
    Sample { name: "importance-h", kind: "importance-h", parameters: STABLE, heaviest: 7, ..PLAIN },
    Sample {
        name: "double-buffering",
        kind: "double-buffering",
        parameters: &[("window-items", "300"), ("fpr", "0.01")],
        ..PLAIN
    },
    Sample {
        name: "two-buffer",
        kind: "two-buffer",
        parameters: &[("window-items", "300"), ("fpr", "0.01")],
        ..PLAIN
    },
    Sample {
        name: "fingerprint",
        kind: "fingerprint",
        parameters: &[("window-items", "300"), ("fpr", "0.01")],
        ..PLAIN
    },
    Sample {
        name: "fingerprint, overfull",
        kind: "fingerprint",
        // Two words a bucket, and fewer slots than keys: slots move, and buckets close and open.
        parameters: &[("window-items", "900"), ("fpr", "0.000001"), ("words", "256")],
        ..PLAIN
    },
    Sample {
        name: "fingerprint, timed",
        kind: "fingerprint",
        // So small a first bank that larger ones follow.
        parameters: &[("window", "400000"), ("fpr", "0.01"), ("rate", "10")],
        ..PLAIN
    },
];

/// Returns the index in [`SAMPLES`] of the sample of this name.
#[must_use]
pub fn index_of(name: &str) -> usize {
    let found = SAMPLES.iter().position(|sample| sample.name == name);
    found.unwrap_or_else(|| panic!("no sample is named {name}"))
}

impl Sample {
    /// Returns the spec of the sample.
    pub fn spec(&self) -> Any {
        let pairs = self.parameters.iter();
        Any::new(
            self.kind,
            pairs.fold(Parameters::new(), |all, (name, value)| all.with(name, value)),
        )
    }

    /// Returns whether the operation of this number is a removal.
    pub fn is_removal(&self, number: u64) -> bool {
        self.removes && number % 4 == 3
    }

    /// Adds the operation of this number to a batch, at this time. It must not be a removal.
    pub fn add<K: AsRef<[u8]>>(
        &self,
        batch: &mut Batch<'_>,
        number: u64,
        time: Timestamp,
        key: impl Fn(u64) -> K,
    ) -> Result<(), Error> {
        let mut entry = Entry::new(key(number)).time(time);
        if self.heaviest > 1 {
            entry = entry.weight((1 + number * 7 % self.heaviest) as f64);
        }
        if number.is_multiple_of(2) {
            batch.insert_entry(&entry)
        } else {
            batch.check_and_insert_entry(&entry).map(drop)
        }
    }

    /// Runs the operation of this number; `key` returns keys by number. Each operation leaves one
    /// record.
    pub fn operate<K: AsRef<[u8]>>(
        &self,
        call: Call<'_>,
        number: u64,
        key: impl Fn(u64) -> K,
    ) -> Result<(), Error> {
        // Weights cycle, so that a removal uses the weight of its insert.
        let weight = |number: u64| 1 + number * 7 % self.heaviest;
        let weighing = |number| {
            if self.heaviest > 1 { call.weight(weight(number) as f64) } else { call }
        };
        let before = number.wrapping_sub(1);
        if self.is_removal(number) {
            let removed = weighing(before).remove(key(before))?;
            assert!(removed, "operation {before} can be removed");
        } else if number.is_multiple_of(2) {
            weighing(number).insert(key(number))?;
        } else {
            weighing(number).check_and_insert(key(number))?;
        }
        Ok(())
    }
}
