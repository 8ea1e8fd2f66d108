//! The evidence of a key's bits in both buffers about its age in inserts. The Inferential paper
//! does not treat these kinds: see `docs/inference.md`.

use super::buffers::{self, caught_up, cleared_for};
use super::{Buffering, Scheme};
use crate::block::Blocks;
use crate::inference::{Belief, Form, Piece, Scatter};
use crate::kind::{CountedGenerations, Inference, Query, State, Totals, Within};

/// The generations of a block's buffers by age in inserts, and what other keys have done since.
struct Others<'a> {
    scatter: Scatter,
    belief: &'a Belief<'a>,
    /// Inserts of the open generation.
    open: u64,
    /// Inserts of it and of the generation before, as far as there was one.
    both: u64,
}

/// The least probability that a key was not inserted in the generation before. A prior that expects
/// many inserts in each must not make a key impossible that has just come: the prior is wrong then,
/// and the bits count.
const LEAST: f64 = 1e-150;

impl Inference for Buffering {
    fn window(&self, _: &Totals) -> Within {
        Within::Items(self.plan.window)
    }

    /// Passes to `tell` the likelihood of the key's bits at the ages of the open generation, of the
    /// one before, and beyond.
    fn evidence(
        &self,
        state: &State<'_>,
        blocks: &Blocks<'_>,
        query: &Query,
        belief: &Belief<'_>,
        tell: &mut dyn FnMut(Piece),
    ) {
        let Some(block) = blocks.get(0) else {
            return;
        };
        let current = CountedGenerations::current(state);
        let generation = current.max(caught_up(block));
        let set = buffers::set(block, self.plan.k, generation, query.hash);
        let [last, other] = match cleared_for(generation) {
            0b01 => set,
            _ => [set[1], set[0]],
        };
        let k = self.plan.k;
        let is_ahead = current < generation;
        let open =
            if is_ahead { 0 } else { CountedGenerations::open_inserts(state, &query.totals) };
        // (Bits may prove an insert that the sums do not count yet.)
        let open = open.max(u64::from(last == k));
        let both = if generation == 0 { open } else { open.saturating_add(self.plan.window) };
        let places = block.cells.len() as f64 * buffers::PLACES as f64;
        let scatter = self.scatter.of(places, k, block.of as f64);
        let others = Others { scatter, belief, open, both };
        let [young, aged, older] = match self.scheme {
            Scheme::Two => others.of_two_buffers(k, last == k, other == k),
            // In generation 0 the first buffer is the active one, and nothing warms up.
            Scheme::Double if generation == 0 => {
                [f64::from(last == k), 0.0, if last == k { others.set_open(k) } else { 1.0 }]
            }
            Scheme::Double => others.of_double_buffering(k, last, other == k),
        };
        if open > 0 {
            tell(Piece { from: 0, to: open, likelihood: young });
        }
        if open < both {
            tell(Piece { from: open, to: both, likelihood: aged });
        }
        tell(Piece { from: both, to: Piece::ENDLESS, likelihood: older });
    }
}

impl Others<'_> {
    /// Returns the probability that other keys set `bits` bits of a buffer, by the number of
    /// distinct keys, or for the paper's form of inserts.
    fn set(&self, bits: u32, distinct: f64) -> f64 {
        match self.belief.form {
            Form::Paper => self.scatter.touched_of_all(bits, distinct),
            Form::Refined => self.scatter.touched(bits, distinct),
        }
    }

    /// Returns the probability that the keys of the open generation set `bits` bits.
    fn set_open(&self, bits: u32) -> f64 {
        self.set(bits, self.belief.distinct.of(self.open as f64))
    }

    /// Returns the likelihoods of two-buffer ageing, of which each buffer holds a generation: in
    /// the open generation, in the one before, and beyond.
    ///
    /// A buffer with a missing bit excludes its generation. How many are missing has the same
    /// likelihood at the other ages, so it does not matter. Where the last insert was in the open
    /// generation, the key may have been inserted in the one before as well.
    fn of_two_buffers(&self, k: u32, is_in_open: bool, is_in_aged: bool) -> [f64; 3] {
        let of_aged = self.belief.distinct.of((self.both - self.open) as f64);
        let (open, aged) = (self.set_open(k), self.set(k, of_aged));
        let not_again = self.belief.survival.beyond(self.both - self.open).max(LEAST);
        match (is_in_open, is_in_aged) {
            (true, true) => [1.0 - not_again * (1.0 - aged), open, open * aged],
            (true, false) => [not_again, 0.0, open],
            (false, true) => [0.0, 1.0, aged],
            (false, false) => [0.0, 0.0, 1.0],
        }
    }

    /// Returns the likelihoods of double buffering: the buffer that warms up holds the open
    /// generation, of which `warm` bits are set, and the active one both generations. All bits of
    /// the first are also set in the second.
    ///
    /// With a bit missing in the first, the key was not inserted in the open generation. It was in
    /// the one before, or the keys of that generation, as far as they did not come again, have set
    /// the other bits.
    fn of_double_buffering(&self, k: u32, warm: u32, is_in_active: bool) -> [f64; 3] {
        let gone =
            self.belief.distinct.of(self.both as f64) - self.belief.distinct.of(self.open as f64);
        match (warm == k, is_in_active) {
            (true, _) => {
                let open = self.set_open(k);
                [1.0, open, open]
            }
            (false, true) => [0.0, 1.0, self.set(k - warm, gone.max(0.0))],
            (false, false) => [0.0, 0.0, 1.0],
        }
    }
}
