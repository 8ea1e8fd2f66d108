//! The evidence of a key's timers about its age: lemmas 1 and 2 of the Inferential paper (sections
//! 4.2 and 4.3, Fig. 6).

use super::{Now, Timing, theory};
use crate::block::packed::Packed;
use crate::block::{Block, Blocks};
use crate::hash::Positions;
use crate::inference::{Belief, Form, Piece};
use crate::kind::{Inference, Query, State, Totals, Within};

/// The key's oldest timestamp: its age `λ_x` in ticks (equation 19), and how many of its timers
/// have it, `c_x` (equation 20).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Oldest {
    age: u64,
    count: u32,
}

/// With fewer timers in a block for each pair of a key's functions, functions are checked for
/// sharing a timer.
const ROOM_FOR_A_PAIR: u64 = 64;

impl Inference for Timing {
    fn window(&self, _: &Totals) -> Within {
        Within::Items(self.plan.window)
    }

    /// Passes to `tell` the pieces of ages at which the key's timers have the same likelihood.
    fn evidence(
        &self,
        _: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        belief: &Belief<'_>,
        tell: &mut dyn FnMut(Piece),
    ) {
        let Some(block) = blocks.get(0) else {
            return;
        };
        let now = self.now(block, &query.totals);
        let Oldest { age, count } = oldest_of(self, block, query.hash, now);
        let (batch, into_batch) = (self.plan.batch, now.into_batch);
        if age > theory::reach(self.plan.window, batch, into_batch) {
            // Theorem 2: an expired key was inserted before all inserts that the timers cover.
            let from = theory::covered(self.plan.window, batch, into_batch);
            return tell(Piece { from, to: Piece::ENDLESS, likelihood: 1.0 });
        }
        let from = theory::least_inserts_since(age, batch, into_batch);
        // (A block may be in a later batch than the sums indicate: then at least one insert was in
        // that batch.)
        let inserts = if age == 0 { into_batch.max(1) } else { batch };
        let to = from.saturating_add(inserts);
        // Lemma 2, i in the batch of the oldest timestamp: its timers were not touched since, the
        // others were. That is F(r_x, c_x, a0), by which all likelihoods are divided here. Lemma 1,
        // i < b: the timers are as the key set them.
        tell(Piece { from, to, likelihood: 1.0 });
        // i before that batch: others touched these timers in it, and none since. Lemma 1, i >= b:
        // the same with age 0.
        let likelihood = touched(self, block, belief, count, from, inserts);
        tell(Piece { from: to, to: Piece::ENDLESS, likelihood });
    }
}

/// Returns `G/F`: the probability that these timers were touched by one of `inserts` inserts,
/// `since` inserts ago, given that no later insert touched them.
fn touched(
    kind: &Timing,
    block: &Block<'_>,
    belief: &Belief<'_>,
    count: u32,
    since: u64,
    inserts: u64,
) -> f64 {
    // Computed once (section 4.4).
    let scatter = kind.scatter.of(kind.timers(block).cells as f64, kind.plan.k, block.of as f64);
    let distinct = |inserts: u64| belief.distinct.of(inserts as f64);
    match belief.form {
        // Equation 25: F(c_x, 0, B).
        Form::Paper => scatter.touched_of_all(count, distinct(inserts)),
        // A key that repeated since did not touch them in that batch either.
        Form::Refined => {
            let gone = distinct(since.saturating_add(inserts)) - distinct(since);
            scatter.touched(count, gone)
        }
    }
}

#[inline]
fn oldest_of(kind: &Timing, block: &Block<'_>, hash: u64, now: Now) -> Oldest {
    let timers = kind.timers(block);
    let stamp = kind.ring.stamp(now.own);
    let (mut oldest, mut count) = (0, 0);
    kind.each_timer(&timers, hash, |at| {
        let age = kind.ring.age(stamp, timers.get(block, at));
        count = if age == oldest {
            count + 1
        } else if age > oldest {
            1
        } else {
            count
        };
        oldest = oldest.max(age);
    });
    let k = u64::from(kind.plan.k);
    if (timers.cells as u64) < ROOM_FOR_A_PAIR * k * k {
        count = distinct_of(kind, &timers, block, hash, |stamped| {
            kind.ring.age(stamp, stamped) == oldest
        });
    }
    Oldest { age: oldest.saturating_add(now.tick - now.own), count }
}

/// Returns how many different timers of the key hold a matching value.
#[cold]
fn distinct_of(
    kind: &Timing,
    timers: &Packed,
    block: &Block<'_>,
    hash: u64,
    holds: impl Fn(u64) -> bool,
) -> u32 {
    let positions = Positions::new(hash, timers.cells as u32);
    let met =
        |function: u32| (0..function).any(|other| positions.get(other) == positions.get(function));
    let holding = |function: &u32| holds(timers.get(block, positions.get(*function)));
    (0..kind.plan.k).filter(holding).filter(|&function| !met(function)).count() as u32
}
