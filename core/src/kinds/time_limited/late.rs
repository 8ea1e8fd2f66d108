//! Which generation takes a late key.
//!
//! A late key belongs to the generation of its own time. That generation has closed, and when it
//! used its allowance the keys still to come were unknown. There may be more of them than its
//! slices have room for: after a burst, before a bank that has become too small got a successor,
//! before the first generation or after a silence. The block is therefore checked before it takes a
//! late key. Where its slices are as full as planned, the open generation takes the key, and counts
//! it against its allowance. The key then stays longer than necessary.
//!
//! The decision is recorded, so replay does not repeat it.
//!
//! The measurement stays correct for keys that are always late, whatever generation takes them: in
//! the end a slice has as many bits as if its keys had arrived in time, and one slice is filled for
//! each generation.

use super::bank_sizes;
use super::fills::zeros_left;
use super::generations::last_generation;
use super::plan::{MOST_COLUMNS, Plan};
use crate::block::{Block, Blocks};
use crate::kind::BankEntry;
use crate::kind::State;
use crate::kinds::slice_columns::Columns;

/// Words of a block that are sampled for room: with 12 slices they give the load to 5 %.
pub(super) const WORDS: usize = 64;

/// Returns the generation that takes a late key: its own one, `step`, if that has room in the key's
/// block or contains the key, else the open one.
pub(super) fn step(
    plan: &Plan,
    slices: &Columns,
    state: &State<'_>,
    blocks: &Blocks<'_>,
    hash: u64,
    step: u64,
) -> u64 {
    let open = plan.generations(state).current();
    if step >= open {
        return step;
    }
    let Some(bank) = state.bank_of_step(step) else { return open };
    let Some(block) = blocks.get(bank.slot) else { return open };
    let free = has_room(plan, slices, state, &bank, block, step)
        || slices.new_bits(block, step, hash) == 0;
    if free { step } else { open }
}

/// Returns whether the slices of a generation are less full than allowed at this point.
fn has_room(
    plan: &Plan,
    slices: &Columns,
    state: &State<'_>,
    bank: &BankEntry,
    block: &Block<'_>,
    step: u64,
) -> bool {
    let (open, last) = (plan.generations(state).current(), last_generation(state, bank));
    // A bank with successors leaves them their part of the false positives.
    let part = if last < open { bank_sizes::HURRIED } else { 1.0 };
    // The share of zeros that one generation leaves in a slice when it has used its allowance.
    let each = zeros_left(part * bank_sizes::keys_a_row(plan, bank.geometry));
    let mut zeros = [1.0; MOST_COLUMNS as usize];
    (1..=plan.k as usize).for_each(|count| zeros[count] = zeros[count - 1] * each);
    let (k, end) = (u64::from(plan.k), last.min(open).saturating_add(1));
    let planned = |age| {
        let slice = step.saturating_sub(age);
        let taken = slice.saturating_add(k).min(end).saturating_sub(slice.max(bank.since));
        1.0 - zeros[taken as usize % zeros.len()]
    };
    let planned: f64 = (0..k).map(planned).sum();
    let (set, bits) = slices.set_in(block, step, WORDS);
    (set as f64) < planned * bits as f64 / f64::from(plan.k)
}
