//! Two buffers in one block: bit `p` of both lies side by side, buffer 0 lower, so that a key's `k`
//! places in both are read with `k` loads.
//!
//! Step `s` begins by clearing buffer `s mod 2`. Clearing is deferred: the block's first kind word
//! is the step that it has caught up to, a query masks what should have been cleared since, and an
//! insert clears it first.
//!
//! This module is independent of which buffers are written and queried, and why. It does not trust
//! the words that it reads.

use crate::atomic::AtomicU64;
use crate::block::{Block, load, prefetch, store};
use crate::hash::Positions;

/// Places in a word.
pub(super) const PLACES: u64 = 32;

/// The greatest number of words of a block that are used, so that its places stay in the range of
/// [`Positions`].
const MOST_BLOCK_WORDS: usize = 1 << 20;

/// Buffer 0 in all places of a word; buffer 1 is one bit higher.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// A set of buffers: bit `b` stands for buffer `b`.
pub(super) type Set = u64;

/// Both buffers.
pub(super) const BOTH: Set = 0b11;

/// Returns the buffer that is cleared when `step` begins.
#[inline]
pub(super) fn cleared_for(step: u64) -> Set {
    1 << (step % 2)
}

/// Returns the step that a block has caught up to.
#[inline]
pub(super) fn caught_up(block: &Block<'_>) -> u64 {
    block.own(0)
}

/// Returns the buffers that need no clearing at `step`, which is not before the block's own.
#[inline]
fn kept(block: &Block<'_>, step: u64) -> Set {
    match step.saturating_sub(caught_up(block)) {
        0 => BOTH,
        1 => BOTH & !cleared_for(step),
        _ => 0,
    }
}

/// Returns the buffers in which all of the key's bits are set, at `step`, which is not before the
/// block's own.
#[inline]
pub(super) fn found(block: &Block<'_>, k: u32, step: u64, hash: u64) -> Set {
    let kept = kept(block, step);
    // All words are loaded, so that their misses overlap; an early exit would wait for each.
    let mut found = kept;
    each_place(block, k, hash, |word, shift| found &= load(word) >> shift);
    found
}

/// Returns how many of the key's bits are set in each buffer, at `step`, which is not before the
/// block's own.
pub(super) fn set(block: &Block<'_>, k: u32, step: u64, hash: u64) -> [u32; 2] {
    let kept = kept(block, step);
    let mut set = [0; 2];
    each_place(block, k, hash, |word, shift| {
        let bits = load(word) >> shift & kept;
        set[0] += (bits & 1) as u32;
        set[1] += (bits >> 1) as u32;
    });
    set
}

/// Sets the key's bits in these buffers, after the clearing that is due until `step`.
#[inline]
pub(super) fn insert(block: &Block<'_>, k: u32, step: u64, buffers: Set, hash: u64) {
    catch_up(block, step);
    // Stored even if unchanged: a branch on that would be unpredictable and cost more.
    each_place(block, k, hash, |word, shift| store(word, load(word) | buffers << shift));
}

/// Clears what must be cleared until `step`. Idempotent: it may be interrupted anywhere and
/// repeated.
#[inline]
pub(super) fn catch_up(block: &Block<'_>, step: u64) {
    let behind = step.saturating_sub(caught_up(block));
    if behind > 0 {
        clear(block, if behind == 1 { EVEN * cleared_for(step) } else { u64::MAX });
        block.complete(step);
    }
}

/// Returns how many bits of each of these buffers are set, and how many there are.
pub(super) fn used(block: &Block<'_>, buffers: Set) -> (u64, u64) {
    let of_buffers = EVEN * buffers;
    let set = block.cells.iter().map(|word| u64::from((load(word) & of_buffers).count_ones()));
    (set.sum(), block.cells.len() as u64 * PLACES * u64::from(buffers.count_ones()))
}

/// Returns how many places of a block are set in either buffer, and how many there are.
pub(super) fn used_in_any(block: &Block<'_>) -> (u64, u64) {
    let either = |word: u64| u64::from(((word | word >> 1) & EVEN).count_ones());
    let used = block.cells.iter().map(|word| either(load(word)));
    (used.sum(), block.cells.len() as u64 * PLACES)
}

#[cold]
fn clear(block: &Block<'_>, bits: u64) {
    for word in block.cells {
        store(word, load(word) & !bits);
    }
}

/// Prefetches the key's words.
#[inline]
pub(super) fn fetch(block: &Block<'_>, k: u32, hash: u64) {
    each_place(block, k, hash, |word, _| prefetch(word));
}

/// Visits the key's places: their words, and the bit of buffer 0 in them. Functions may share a
/// place.
#[inline]
fn each_place<'a>(
    block: &Block<'a>,
    k: u32,
    hash: u64,
    mut visit: impl FnMut(&'a AtomicU64, usize),
) {
    let words = &block.cells[..block.cells.len().min(MOST_BLOCK_WORDS)];
    let positions = Positions::new(hash, words.len() as u32 * PLACES as u32);
    let at = |place: usize| {
        if let Some(word) = words.get(place / PLACES as usize) {
            visit(word, 2 * (place % PLACES as usize));
        }
    };
    positions.each(k, at);
}
