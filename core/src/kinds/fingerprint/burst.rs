//! Banks of a burst: memory in proportion to the keys, at any moment.
//!
//! Keys that would fill the newest bank within a 32nd of the window are too fast to predict
//! anything. When that bank is full, its successor has room for about as many keys as are there
//! already, and from [`SETTLED_KEYS`] on for as many as [`MOST_BITS`] a key allow. Such banks have
//! longer fingerprints in fewer slots (`plan::Design::in_burst`), and a number of full ones add
//! little to the rate of false positives. Soon after the burst a bank of the size that is needed
//! then takes the inserts, and the others close a window later.

use super::plan::{self, Designs};
use crate::block::Layout;
use crate::block::places::head_bytes;
use crate::kind::{BankEntry, State};

/// Keys of a burst would fill the newest bank within this part of the window.
const BURST: f64 = 32.0;

/// The part of its capacity at which a bank gets a successor in a burst.
pub(super) const FULL_IN_BURST: f64 = 0.98;

/// When a bank opens from this number of keys on, [`MOST_BITS`] hold.
const SETTLED_KEYS: f64 = 105_000.0;

/// From this number of keys on, the next bank has room up to [`SETTLED_KEYS`]: few banks, because
/// small ones take more bits a key.
const NEAR_KEYS: f64 = 30_000.0;

/// The part of the keys that are there, fewer than [`NEAR_KEYS`], that the next bank takes.
const FIRST_GROWTH: f64 = 1.6;

/// The bits of memory for each key that all banks of a burst take at most when one has opened, from
/// [`LARGE_KEYS`] on and at [`SETTLED_KEYS`]; for fingerprints of which three take a word. Blocks
/// of small banks are filled less well, and the room to save one is a larger part.
const MOST_BITS: [f64; 2] = [38.5, 40.0];

/// See [`MOST_BITS`].
const LARGE_KEYS: f64 = 700_000.0;

/// The bits of a slot of such fingerprints.
const SLOT_BITS: f64 = 64.0 / 3.0;

/// The next bank takes at least this part of the keys: the number of banks is limited.
const LEAST_GROWTH: f64 = 0.12;

/// The same when [`FEW_LEFT`] slots or fewer are left.
const LAST_GROWTH: f64 = 3.0;

/// See [`LAST_GROWTH`].
const FEW_LEFT: usize = 3;

/// Returns whether a bank has the form of a burst's banks.
pub(super) fn is_of_burst(bank: &BankEntry) -> bool {
    plan::is_of_burst(bank.geometry.words_per_block as usize)
}

/// Returns whether the need, in live keys of a window, is that of a burst.
pub(super) fn is_burst(designs: &Designs, need: f64, capacity: f64) -> bool {
    designs.burst.is_some() && need >= BURST * capacity
}

/// Returns the keys that the next bank of a burst is for, if the newest bank has `newest`.
pub(super) fn next_keys(
    designs: &Designs,
    state: &State<'_>,
    layout: Layout,
    newest: (u32, f64),
) -> f64 {
    let began = state.banks().filter(|bank| !is_of_burst(bank)).map(|bank| bank.id).max();
    let mut taken = head_bytes(layout.stripes, state.words());
    let mut all = newest.1;
    for bank in state.banks().filter(|bank| Some(bank.id) >= began) {
        taken += designs.memory.of_bank(layout, bank.geometry);
        if bank.id != newest.0 {
            all += FULL_IN_BURST * designs.capacity(layout, bank.geometry);
        }
    }
    if state.banks().count() + FEW_LEFT >= state.slots() {
        return LAST_GROWTH * all;
    }
    if all < NEAR_KEYS {
        return FIRST_GROWTH * all;
    }
    if all < SETTLED_KEYS {
        return (SETTLED_KEYS - all).max(LEAST_GROWTH * all);
    }
    let shape = designs.burst.unwrap_or(designs.calm).shape;
    let slot_bits = f64::from(8 * shape.bytes) / f64::from(shape.slots);
    let small = ((LARGE_KEYS - all) / (LARGE_KEYS - SETTLED_KEYS)).max(0.0);
    let bits = MOST_BITS[0] + (MOST_BITS[1] - MOST_BITS[0]) * small;
    let most = all * bits / 8.0 * (slot_bits / SLOT_BITS) - taken as f64;
    let mut next = all;
    while next > LEAST_GROWTH * all {
        let geometry = designs.geometry(layout, next, true);
        if designs.memory.of_bank(layout, geometry) as f64 <= most {
            return next;
        }
        next *= 0.9;
    }
    LEAST_GROWTH * all
}
