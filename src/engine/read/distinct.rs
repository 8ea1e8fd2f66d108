//! How many distinct keys an open filter has.
//!
//! Blocks are copied one by one, each under its version, without a lock: a stopped process delays
//! nobody. A block that changes all the time, or that a dead writer left half changed, is copied as
//! it is after some attempts; it is one of many. If the filter makes a step meanwhile, the walk
//! begins anew, at most [`WALKS`] times. After that, the blocks that are ahead are counted without
//! the generation that they have dropped.

use crate::engine::shared::Shared;
use crate::engine::time::filter_time::{Stamp, Time};
use crate::engine::write::request::Given;
use crate::error::Result;
use crate::image::BankSet;
use crate::image::seqlock;
use crate::primitives::spin_hint;
use ebbtide_core::kind::copy::BlockCopy;
use ebbtide_core::kind::distinct_query::CardinalityQuery;
use ebbtide_core::kind::{Cardinality, Moment, State};

/// How often counting begins anew if the state has changed meanwhile.
const WALKS: u32 = 3;

/// The most attempts to copy a block without a concurrent change.
const COPIES: u32 = 100;

/// Answers how many distinct keys there are, at the time that is given or the filter's own.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) if a bank cannot be mapped.
pub(crate) fn count(
    shared: &Shared,
    time: &Time,
    given: Given,
    query: &CardinalityQuery<'_>,
) -> Result<Cardinality> {
    let stamp = match given.time {
        Some(time) => Stamp { time, stream: true },
        None => time.now(),
    };
    count_at(shared, &time.exact_moment(stamp), query)
}

/// Answers how many distinct keys there are at a moment.
///
/// # Errors
/// As [`count`].
pub(crate) fn count_at(
    shared: &Shared,
    moment: &Moment,
    query: &CardinalityQuery<'_>,
) -> Result<Cardinality> {
    let state_block = shared.header().state_block();
    let mut walks = 0;
    loop {
        let version = state_block.version();
        let words = state_block.words_of(version);
        if !state_block.unchanged(version) {
            continue;
        }
        let state = State::new(&words);
        let banks = shared.image.keep_banks();
        if state.banks().any(|bank| banks.get(bank.slot).is_none_or(|of| of.id() != bank.id)) {
            shared.image.follow()?;
            walks += 1;
            if walks <= WALKS {
                continue;
            }
        }
        let answer = query.answer(&state, shared.meta.layout, moment, |slot, number| {
            copy(shared, &banks, slot, number)
        });
        walks += 1;
        if walks > WALKS || state_block.unchanged(version) {
            return Ok(answer);
        }
    }
}

/// Returns a copy of a block, whole if nobody changes it all the time.
fn copy(shared: &Shared, banks: &BankSet, slot: usize, number: u64) -> Option<BlockCopy> {
    let bank = banks.get(slot).filter(|bank| number < bank.blocks())?;
    let (header, block) = bank.block(usize::try_from(number).ok()?);
    for _ in 0..COPIES {
        if let Some(before) = seqlock::read(header.version()) {
            let copy = BlockCopy::new(shared.kind(), block);
            if seqlock::unchanged(header.version(), before) {
                return Some(copy);
            }
        }
        spin_hint();
    }
    Some(BlockCopy::new(shared.kind(), block))
}
