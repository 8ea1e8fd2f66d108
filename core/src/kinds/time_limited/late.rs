//! Which generation takes a key that comes late.
//!
//! A late key belongs to the generation of its own time. That one has closed, and when it used its allowance nobody knew of the
//! keys still to come: after a burst, before a bank that has become too small was followed, before the first generation or after a
//! silence there may be more of them than its slices have room for. So a block is looked at before it takes a late key: where
//! the slices are as full as planned the open generation takes the key, under whose allowance it is. The key then stays for longer
//! than it needs to.
//!
//! What is decided goes into the record: replay does not ask.
//!
//! Whatever generation takes them, keys that are late all the time are measured right: in the end a slice has as many bits as if its keys
//! had come in time, and one slice is filled for each generation.

use super::fills::zeros_left;
use super::{COLUMNS, TimeLimited, sizing};
use crate::block::{Block, Blocks};
use crate::kind::BankEntry;
use crate::kind::State;

/// Words of a block that tell whether there is room: with 12 slices the load to 5 %.
pub(super) const WORDS: usize = 64;

/// The generation that takes a late key: its own one, `step`, if that has room in the key's block or has the key, else the open one.
pub(super) fn step(
    kind: &TimeLimited,
    state: &State<'_>,
    blocks: &Blocks<'_>,
    hash: u64,
    step: u64,
) -> u64 {
    let open = kind.generations(state).current();
    if step >= open {
        return step;
    }
    let Some(bank) = state.bank_of_step(step) else { return open };
    let Some(block) = blocks.get(bank.slot) else { return open };
    let free =
        has_room(kind, state, &bank, block, step) || kind.slices.novelty(block, step, hash) == 0;
    if free { step } else { open }
}

/// Whether the slices of a generation are less full than they may be by now.
fn has_room(
    kind: &TimeLimited,
    state: &State<'_>,
    bank: &BankEntry,
    block: &Block<'_>,
    step: u64,
) -> bool {
    let (open, last) = (kind.generations(state).current(), kind.last_generation(state, bank));
    // A bank that others have followed leaves them their part of the false positives.
    let part = if last < open { sizing::HURRIED } else { 1.0 };
    // What a slice has left of its zeros after so many generations that have used their allowance.
    let each = zeros_left(part * sizing::keys_a_word(kind, bank.geometry));
    let mut zeros = [1.0; COLUMNS as usize];
    (1..=kind.k as usize).for_each(|count| zeros[count] = zeros[count - 1] * each);
    let (k, end) = (u64::from(kind.k), last.min(open).saturating_add(1));
    let planned = |age| {
        let slice = step.saturating_sub(age);
        let taken = slice.saturating_add(k).min(end).saturating_sub(slice.max(bank.since));
        1.0 - zeros[taken as usize % zeros.len()]
    };
    let planned: f64 = (0..k).map(planned).sum();
    let (set, bits) = kind.slices.set_in(block, step, WORDS);
    (set as f64) < planned * bits as f64 / f64::from(kind.k)
}
