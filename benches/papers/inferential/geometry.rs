//! The paper's choice of a filter's parameters (section 5.1.2), for our kind.

use ebbtide::{Any, Parameters};

/// The largest number of hash functions that is tried.
pub const MOST_FUNCTIONS: u32 = 30;

/// The parameters of a block timing filter.
#[derive(Debug, Clone, Copy)]
pub struct Geometry {
    /// The window `w`, in inserts.
    pub window: u64,
    /// The number of hash functions.
    pub k: u32,
    /// The bits of a timer.
    pub bits: u32,
    /// The total number of timers: `m`.
    pub timers: u64,
    /// The padding `P`.
    pub padding: u64,
    /// The number of inserts with one timestamp: `B`.
    pub batch: u64,
}

impl Geometry {
    /// Returns the paper's parameters: `bpt = max(k, 3)`, as many timers as fit in `bpi` bits per
    /// item of the window, the least padding with which an insert checks at most `k` timers, and
    /// then the smallest batches that the bits distinguish. Returns `None` if no padding suffices.
    pub fn of_paper(window: u64, bpi: u64, k: u32) -> Option<Self> {
        let bits = k.max(3);
        let timers = window * bpi / u64::from(bits);
        // Ages up to ⌈w/B⌉ + P, and three values more.
        let room = (1_u64 << bits) - 3;
        let with = |padding: u64| {
            let batch = window.div_ceil((room - padding).min(window));
            Self { window, k, bits, timers, padding, batch }
        };
        // Both padding and the batches that it enlarges lower the cost.
        let is_cheap = |padding| with(padding).checked_per_insert() <= f64::from(k);
        let (mut low, mut high) = (0, room - 1);
        if !is_cheap(high) {
            return None;
        }
        while low < high {
            let middle = low.midpoint(high);
            if is_cheap(middle) { high = middle } else { low = middle + 1 }
        }
        Some(with(low))
    }

    /// Returns the number of timers that an insert checks for expiry: `m/(B(P+1))`.
    fn checked_per_insert(&self) -> f64 {
        self.timers as f64 / (self.batch as f64 * (self.padding as f64 + 1.0))
    }

    /// Returns our kind with these parameters.
    pub fn spec(&self) -> Any {
        let parameters = Parameters::new()
            .with("window-items", self.window)
            .with("bits", self.bits)
            .with("k", self.k)
            .with("timers", self.timers)
            .with("padding", self.padding)
            .with("block-size", self.batch);
        Any::new("block-timing", parameters)
    }
}
