//! The figures of the module in `INFO ebbtide`: sums over all keys since the server started.

use crate::alloc;
use crate::ffi::Figures;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number of this process.
pub struct Figure(AtomicU64);

/// Filters in memory.
pub static FILTERS: Figure = Figure::new();
/// Filters of which not all pieces have come.
pub static LOADING: Figure = Figure::new();
/// Filters that are being altered.
pub static ALTERING: Figure = Figure::new();
/// Filters that got a record which does not continue them.
pub static DIVERGED: Figure = Figure::new();
/// Filters that were clearly fuller than planned when they were last measured: when they were
/// loaded, and now and then when they change.
pub static SATURATED: Figure = Figure::new();
/// Records of changes decided here.
pub static EMITTED: Figure = Figure::new();
/// Records that were applied as others decided.
pub static APPLIED: Figure = Figure::new();

impl Figure {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds to the number.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Subtracts from the number.
    pub fn subtract(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All figures.
pub struct All;

impl Figures for All {
    fn all() -> Vec<(&'static str, u64)> {
        vec![
            ("filters", FILTERS.read()),
            ("bytes", alloc::used_bytes() as u64),
            ("records_emitted", EMITTED.read()),
            ("records_applied", APPLIED.read()),
            ("loading", LOADING.read()),
            ("altering", ALTERING.read()),
            ("diverged", DIVERGED.read()),
            ("saturated", SATURATED.read()),
        ]
    }
}
