//! The paper's choice of a filter's parameters (section 5.1.2), for our kind.

use ebbtide::{Any, Parameters};

/// The most hash functions that are tried.
pub const MOST_FUNCTIONS: u32 = 30;

/// A block timing filter.
#[derive(Debug, Clone, Copy)]
pub struct Geometry {
    /// The window `w`, in inserts.
    pub window: u64,
    /// Hash functions.
    pub k: u32,
    /// Bits of a timer.
    pub bits: u32,
    /// Timers in all: `m`.
    pub timers: u64,
    /// The padding `P`.
    pub padding: u64,
    /// Inserts with one timestamp: `B`.
    pub batch: u64,
}

impl Geometry {
    /// `bpt = max(k, 3)`, as many timers as `bpi` bits for each item of the window hold, the least padding with which an insert
    /// checks at most `k` timers, and then the smallest batches that the bits tell apart. `None` if no padding does it.
    pub fn of_paper(window: u64, bpi: u64, k: u32) -> Option<Self> {
        let bits = k.max(3);
        let timers = window * bpi / u64::from(bits);
        // Ages up to ⌈w/B⌉ + P, and three values more.
        let room = (1_u64 << bits) - 3;
        let with = |padding: u64| {
            let batch = window.div_ceil((room - padding).min(window));
            Self { window, k, bits, timers, padding, batch }
        };
        // Both padding and the batches that it makes larger lower the cost.
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

    /// Timers that an insert checks for having expired: `m/(B(P+1))`.
    fn checked_per_insert(&self) -> f64 {
        self.timers as f64 / (self.batch as f64 * (self.padding as f64 + 1.0))
    }

    /// Our kind with these parameters.
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
