//! The kinds of filters in the world, so small that their events happen within a few operations.

use ebbtide::{Any, Parameters};

/// What a kind promises about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// It stays, and false positives are rarer than runs.
    Kept,
    /// As `Kept`, and it can be removed.
    Counted,
    /// It stays until this many more keys have been inserted.
    Last(u64),
    /// It stays for this many microseconds.
    Within(u64),
    /// None: its state and answers are those of the same records in memory.
    Nothing,
}

/// A kind with its parameters.
#[derive(Debug)]
pub struct Spec {
    pub kind: &'static str,
    pub parameters: &'static [(&'static str, &'static str)],
    pub promise: Promise,
    /// The largest weight of a key; 1 if the kind has none.
    pub heaviest: u64,
    /// A parameter that alterations set, to this value or back, and that changes no promise.
    pub altered: Option<(&'static str, &'static str)>,
}

const fn spec(
    kind: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    promise: Promise,
    heaviest: u64,
) -> Spec {
    Spec { kind, parameters, promise, heaviest, altered: None }
}

const DECAYED: &[(&str, &str)] =
    &[("capacity", "200"), ("fpr", "0.01"), ("lambda", "0.7"), ("epoch", "20000")];

/// Plain bits, undo, growing blocks, events by inserts and by time, ageing, banks that come and go.
pub const KINDS: [Spec; 16] = [
    spec("bloom", &[("capacity", "200"), ("fpr", "1e-7")], Promise::Kept, 1)
        .altered("capacity", "400"),
    spec(
        "counting",
        &[("capacity", "200"), ("fpr", "1e-7"), ("counter-bits", "8")],
        Promise::Counted,
        3,
    )
    .altered("capacity", "400"),
    spec("spectral", &[("capacity", "200"), ("fpr", "1e-7")], Promise::Counted, 9)
        .altered("capacity", "400"),
    spec(
        "dynamic-count",
        &[("capacity", "200"), ("fpr", "1e-7"), ("mean-count", "2")],
        Promise::Counted,
        100,
    )
    .altered("capacity", "400"),
    spec("fingerprint", &[("window-items", "60"), ("fpr", "0.001")], Promise::Last(60), 1)
        .altered("fpr", "0.0001"),
    spec(
        "fingerprint",
        // Two words a bucket, and fewer slots than keys: slots move, and buckets close and open.
        &[("window-items", "900"), ("fpr", "0.000001"), ("words", "256")],
        Promise::Nothing,
        1,
    ),
    spec(
        "fingerprint",
        // So small a first bank that larger ones follow.
        &[("window", "400000"), ("fpr", "0.01"), ("rate", "10")],
        Promise::Within(400_000),
        1,
    )
    .altered("fpr", "0.001"),
    spec("age-partitioned", &[("window-items", "24"), ("fpr", "0.01")], Promise::Last(24), 1)
        .altered("window-items", "36"),
    spec(
        "time-limited",
        &[("window", "200000"), ("fpr", "0.01"), ("rate", "100")],
        Promise::Within(200_000),
        1,
    )
    .altered("fpr", "0.001"),
    spec("decaying", DECAYED, Promise::Nothing, 9),
    spec("decaying-optimized", DECAYED, Promise::Nothing, 40),
    spec("timing", &[("window-items", "100")], Promise::Last(100), 1)
        .altered("window-items", "120"),
    spec(
        "block-timing",
        &[("window-items", "100"), ("fpr", "0.01"), ("block-size", "16")],
        Promise::Last(100),
        1,
    )
    .altered("fpr", "0.001"),
    spec("double-buffering", &[("window-items", "60"), ("fpr", "0.01")], Promise::Last(60), 1)
        .altered("fpr", "0.001"),
    spec("two-buffer", &[("window-items", "60"), ("fpr", "0.01")], Promise::Last(60), 1)
        .altered("window-items", "80"),
    spec(
        "stable",
        &[("cells", "4000"), ("max", "7"), ("K", "4"), ("P", "12")],
        Promise::Nothing,
        1,
    ),
];

impl Spec {
    const fn altered(self, name: &'static str, value: &'static str) -> Self {
        Self { altered: Some((name, value)), ..self }
    }

    /// Returns the parameters, as an alteration sets them or as at the creation.
    pub fn parameters(&self, is_altered: bool) -> Parameters {
        let pairs = self.parameters.iter();
        let parameters = pairs.fold(Parameters::new(), |all, (name, value)| all.with(name, value));
        match self.altered {
            Some((name, value)) if is_altered => parameters.with(name, value),
            _ => parameters,
        }
    }

    pub fn any(&self, is_altered: bool) -> Any {
        Any::new(self.kind, self.parameters(is_altered))
    }

    pub fn removes(&self) -> bool {
        self.promise == Promise::Counted
    }

    /// Returns whether the state after an alteration is that of the same operations in a filter
    /// that always had these parameters: so it is if their order does not matter.
    pub fn has_order(&self) -> bool {
        !matches!(self.promise, Promise::Kept | Promise::Counted)
    }
}
