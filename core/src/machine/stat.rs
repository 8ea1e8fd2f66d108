//! Statistics of a filter in memory.

use super::parts::Parts;
use crate::kind::copy::BlockCopy;
use crate::kind::sample::sampled;
use crate::kind::{Micros, Moment, Sample};

/// Statistics of a filter in memory.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MachineStat {
    /// Insert operations applied since creation or the last clear.
    pub inserts: u64,
    /// Operations of all types applied since then: inserts and removals.
    pub operations: u64,
    /// The present step (generation, epoch, tick), if the kind has steps.
    pub step: Option<u64>,
    /// The latest time, if the kind uses time and there is one: microseconds since the Unix epoch.
    pub time: Option<Micros>,
    /// The share of cells (bits, counters, timers) in use, in the sampled blocks.
    pub fill: f64,
    /// The cells of all blocks, by those of the sampled ones.
    pub cells: u64,
    /// The expected false-positive rate at present, by theory.
    pub estimated_fpr: f64,
    /// The planned false-positive rate: when the filter is as full as planned, by theory.
    pub planned_fpr: f64,
    /// Whether the filter is clearly fuller than planned.
    pub saturated: bool,
    /// Banks.
    pub banks: u32,
    /// Blocks, in all banks.
    pub blocks: u64,
}

impl MachineStat {
    /// Measures a filter; fill and rates on at most this number of blocks of each bank.
    pub(super) fn of(parts: &Parts, now: Micros, blocks: u64) -> Self {
        let (kind, layout) = (parts.kind(), parts.identity.layout);
        let (state, totals) = (parts.state(), parts.ledger.totals());
        let latest = parts.ledger.latest().time;
        let moment = Moment { time: now.max(latest), now: now.max(latest), totals };
        let (mut sample, mut cells) = (Sample::default(), 0.0);
        for (slot, bank) in parts.memory.banks() {
            let (mut looked_at, mut counted) = (0, 0);
            for index in sampled(bank.blocks(), blocks) {
                let copied = BlockCopy::new(kind, bank.block(index as usize));
                kind.settle(&state, slot, &copied.block(), &moment);
                let fpr = kind.block_fpr(&state, slot, &copied.block(), &moment);
                let fill = kind.fill(&copied.block());
                sample.add(slot, fill, fpr);
                (looked_at, counted) = (looked_at + 1, counted + fill.1);
            }
            cells += counted as f64 / f64::from(looked_at.max(1)) * bank.blocks() as f64;
        }
        let removals = if kind.removal().is_some() { totals.new_bits } else { 0 };
        Self {
            inserts: totals.inserts,
            operations: totals.inserts.wrapping_add(removals),
            step: kind.step(&state, &moment),
            time: (latest > 0).then_some(latest),
            fill: sample.fill(),
            cells: cells as u64,
            estimated_fpr: kind.estimated_fpr(&state, layout, &moment, &sample),
            planned_fpr: kind.planned_fpr(layout),
            saturated: kind.is_saturated(&state, layout, &moment, &sample),
            banks: parts.memory.banks().count() as u32,
            blocks: parts.memory.banks().map(|(_, bank)| bank.blocks()).sum(),
        }
    }
}
