//! Figures of an open filter beyond its statistics, for operators: fill by generation and by block,
//! ends of the log, handles, held stripes.
//!
//! Everything is read without a stripe, so that a stopped process delays no look. Figures of one
//! call may therefore be of slightly different moments.

use crate::engine::shared::Shared;
use crate::engine::time::filter_time::Time;
use crate::error::Result;
use crate::locks::stripe_lock;
use crate::recovery::Listing;
use crate::wal::log_record::RECORD_BYTES;
use ebbtide_core::kind::GenerationFill;
use ebbtide_core::kind::copy::BlockCopy;
use ebbtide_core::kind::sample::sampled;

/// The most blocks of a bank that are sampled: enough for a picture.
const SAMPLE: u64 = 256;

/// Figures of a filter beyond [`Stat`](crate::Stat), as of the call; see
/// [`Reader::details`](crate::Reader::details).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Details {
    /// The fill by generation, the open one first, over the sampled blocks; empty for kinds without
    /// generations.
    pub generations: Vec<GenerationFill>,
    /// The fill of up to 256 blocks of each bank, evenly spread, in the order of banks and blocks.
    pub blocks: Vec<BlockFill>,
    /// The LSN from which the newest snapshot needs the log; 0 without a snapshot.
    pub snapshot_lsn: u64,
    /// Records below this LSN have space on the disk.
    pub allocated_lsn: u64,
    /// The bytes of a record in the log.
    pub record_bytes: u64,
    /// The bytes of log since the newest snapshot at which this handle would write the next one.
    /// Handles with other options differ.
    pub checkpoint_due_bytes: u64,
    /// Whether writers wait for a checkpoint.
    pub waits_for_checkpoint: bool,
    /// Whether writes are refused since a sync failed, or a change was left half done.
    pub poisoned: bool,
    /// The session slots of the live handles, ascending. A [`Reader`](crate::Reader) has none.
    pub slots: Vec<u16>,
    /// The stripes that are held at the moment.
    pub held: Vec<HeldStripe>,
}

/// The fill of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BlockFill {
    /// The bank's number.
    pub bank: u32,
    /// The block's number in the bank.
    pub block: u64,
    /// The cells in use.
    pub used: u64,
    /// All cells.
    pub cells: u64,
}

/// A stripe that a handle holds. Held by the same handle at the same LSN in two looks some seconds
/// apart, it most likely belongs to a stopped process: an insert takes less than a microsecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HeldStripe {
    /// The stripe: 0 guards the filter-wide state, others a share of the keys each.
    pub stripe: u32,
    /// The session slot of the handle that holds it.
    pub slot: u16,
    /// The LSN last counted under the stripe.
    pub lsn: u64,
}

/// Returns the details of an open filter.
///
/// # Errors
/// [`Error::Forked`](crate::Error::Forked), [`Error::Io`](crate::Error::Io).
pub(crate) fn details(shared: &Shared, clock: &Time) -> Result<Details> {
    shared.check_process()?;
    // Maps the banks that the state lists by now.
    shared.image.listed_banks()?;
    let header = shared.header();
    let (generations, blocks) = fills(shared, clock);
    let held = (0..header.stripe_count()).filter_map(|index| {
        let stripe = header.stripe(index);
        let slot = stripe_lock::holder_now(stripe.lock_word())?.slot;
        Some(HeldStripe { stripe: index as u32, slot, lsn: stripe.lsn() })
    });
    Ok(Details {
        generations,
        blocks,
        snapshot_lsn: newest_snapshot(shared)?,
        allocated_lsn: header.allocated().read(),
        record_bytes: RECORD_BYTES,
        checkpoint_due_bytes: shared.options.checkpoint_due(shared.image.memory_bytes()),
        waits_for_checkpoint: header.checkpoint_request().is_open(),
        poisoned: header.is_poisoned(),
        slots: shared.slots.alive()?,
        held: held.collect(),
    })
}

/// Returns the start of the newest snapshot; 0 without one.
fn newest_snapshot(shared: &Shared) -> Result<u64> {
    let header = shared.header();
    if header.allocated().read() > 0 {
        return Ok(header.snapshot().read());
    }
    // The private image of a reader has no log, and records no snapshots.
    let listing = Listing::of_filter(&*shared.media, shared.meta.log_uuid)?;
    Ok(listing.snapshots.first().copied().unwrap_or(0))
}

/// Returns the fill by generation and by block.
fn fills(shared: &Shared, clock: &Time) -> (Vec<GenerationFill>, Vec<BlockFill>) {
    let (kind, moment) = (shared.kind(), clock.exact_moment(clock.now()));
    let (state, banks) = (shared.header().state(), shared.image.banks());
    let (mut generations, mut blocks) = (Vec::new(), Vec::new());
    for entry in state.banks() {
        let Some(bank) = banks.get(entry.slot) else {
            continue;
        };
        for block in sampled(bank.blocks(), SAMPLE) {
            let copied = BlockCopy::new(kind, bank.block(block as usize).1);
            kind.settle(&state, entry.slot, &copied.block(), &moment);
            let fills = kind.generation_fills(&state, entry.slot, &copied.block(), &moment);
            GenerationFill::add_all(&mut generations, &fills);
            let (used, cells) = kind.fill(&copied.block());
            blocks.push(BlockFill { bank: entry.id, block, used, cells });
        }
    }
    (generations, blocks)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::kinds::Parameters;
    use crate::kinds::registry::REGISTRY;
    use crate::locks::stripe_lock::{self, Owner};
    use crate::media::Memory;
    use crate::{Age, AgePartitioned, Any, Durability, Filter, Options};
    use std::sync::Arc;

    #[test]
    fn the_fill_by_generation_follows_the_inserts_and_a_held_stripe_is_reported() {
        let options = Options::new().durability(Durability::Never).background(false);
        let filter =
            Filter::create_on(Arc::new(Memory::new()), AgePartitioned::last(1000), options);
        let filter = filter.expect("a filter");
        let empty = filter.details().expect("details");
        assert!(empty.generations.iter().all(|generation| generation.used == 0));
        assert_eq!(
            (empty.slots.as_slice(), empty.held.as_slice()),
            ([0].as_slice(), [].as_slice())
        );
        (0..300_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        let details = filter.details().expect("details");
        let [open, .., oldest] = details.generations.as_slice() else { panic!("{details:?}") };
        assert!(open.used > 0 && oldest.used == 0 && oldest.began == Age::Items(300));
        let used: u64 = details.generations.iter().map(|generation| generation.used).sum();
        assert_eq!(used, details.blocks.iter().map(|block| block.used).sum::<u64>());
        let header = filter.engine().header();
        let owner = Owner { slot: 3, incarnation: 1 };
        assert!(stripe_lock::try_lock(header.stripe(0).lock_word(), owner));
        let held = filter.details().expect("details").held;
        assert_eq!(held.iter().map(|held| (held.stripe, held.slot)).collect::<Vec<_>>(), [(0, 3)]);
        assert!(stripe_lock::unlock(header.stripe(0).lock_word(), owner).is_ok());
    }

    /// Parameters with which any kind can be made.
    fn parameters(kind: &str) -> Parameters {
        let text = match kind {
            "bloom" | "counting" | "spectral" | "dynamic-count" => "capacity=1000 fpr=0.01",
            "decaying" | "decaying-optimized" => "capacity=1000 fpr=0.01 lambda=0.5 epoch=60000000",
            "time-limited" => "window=60000000 fpr=0.01",
            "stable" | "importance-2c" | "importance-mc" | "importance-h" => {
                "cells=10000 max=3 K=3 P=10"
            }
            _ => "window-items=1000 fpr=0.01",
        };
        let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.fold(Parameters::new(), |all, (name, value)| all.with(name, value))
    }

    #[test]
    fn in_kinds_whose_generations_share_the_cells_their_uses_add_up_to_the_fill() {
        for kind in REGISTRY {
            let options = Options::new().durability(Durability::Never).background(false);
            let spec = Any::new(kind.name, parameters(kind.name));
            let made = Filter::create_on(Arc::new(Memory::new()), spec, options);
            let filter = made.expect(kind.name);
            (0..5000_u64).for_each(|key| _ = filter.insert((key % 3000).to_le_bytes()));
            let details = filter.details().expect(kind.name);
            let generations = &details.generations;
            let cells: u64 = details.blocks.iter().map(|block| block.cells).sum();
            assert!(cells > 0, "{}", kind.name);
            let names = ["fingerprint", "timing", "block-timing"];
            if names.contains(&kind.name) {
                let used: u64 = generations.iter().map(|generation| generation.used).sum();
                let filled: u64 = details.blocks.iter().map(|block| block.used).sum();
                assert_eq!(used, filled, "{}", kind.name);
                assert!(generations.iter().all(|generation| generation.cells == cells));
            }
            let has = generations.iter().any(|generation| generation.used > 0);
            assert_eq!(has, !generations.is_empty(), "{}", kind.name);
        }
    }
}
