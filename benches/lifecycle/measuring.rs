//! Durations, medians over rounds, and filling a filter.

use super::large::{self, MIB, key};
use ebbtide::{Any, Filter};
use std::time::Instant;

/// Returns the seconds that some work takes.
pub fn seconds(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}

/// Returns the median of one value over all rounds.
pub fn middle<T>(rounds: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    large::median(rounds.iter().map(figure))
}

/// Inserts enough keys to write nearly every page.
pub fn touch(filter: &Filter<Any>, mib: u64) -> u64 {
    let (mut next, inserts) = (0, mib * MIB / 4096 * 4);
    while next < inserts {
        let keys: Vec<_> = (next..inserts.min(next + 1000)).map(key).collect();
        filter.insert_all(&keys).expect("inserts");
        next += keys.len() as u64;
    }
    next
}
