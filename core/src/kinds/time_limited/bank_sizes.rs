//! When generations close, and how large banks are.
//!
//! All decisions are pure functions of the filter-wide state, and their result is an event.
//! Invariants:
//! - A generation closes at most a `pace` after it opened, and then there is a column for its
//!   successor: a free one, or one of a new bank, for which a slot is reserved (`room_for_haste`,
//!   `succeed`).
//! - A bank's capacity is the number of keys that each generation may insert so that the planned
//!   rate holds when all do.
//! - The need, the number of keys in a `pace`, is measured by newly set bits over closed
//!   generations.
//!
//! A need above the capacity first uses up the free columns: generations close as soon as they have
//! used their allowance, and all slices are as full as planned. A bank that has just opened thus
//! takes many times its capacity. Only then does a larger bank follow: by now the need has been
//! measured over all that time, and is not extrapolated from the first millisecond of a file that
//! is being read.
//!
//! No bank opens beyond the limit of memory, and generations close early only as long as there is
//! room for the smallest bank as a successor.
//!
//! This module is independent of blocks and cells.

use super::fills::Measure;
use super::generations::{Generations, RING, last_generation};
use super::plan::{MARGIN, Plan};
use crate::block::{Geometry, Layout};
use crate::kind::{BankEntry, Event, Micros, Moment, State};
use crate::kinds::age_partitioned::MOST_WORDS;

/// Words of the first bank if no rate is given: 32 KiB.
const FIRST_WORDS: u64 = 4096;

/// The layout for which the first bank is planned.
const PLANNED: Layout = Layout { stripes: 16, block_words: 2048 };

/// The least capacity of a bank, in keys of a generation: fewer would measure nothing.
const LEAST_KEYS: f64 = 64.0;

/// That factor if the need grows fast: if the previous bank is younger than half a window.
const FAST_MARGIN: f64 = 2.5;

/// The greatest factor from one bank to the next, unless the new one has at most [`GROWN_WORDS`].
/// Memory therefore stays in proportion to the number of keys, at any rate.
const MOST_GROWTH: u64 = 8;

/// The size up to which a bank may grow in one step: 4 MiB, a hundred times the first bank of a
/// filter without a planned rate.
const GROWN_WORDS: u64 = 1 << 19;

/// The part of its keys by which a bank may be smaller than wanted, again and again, until it fits
/// the limit of memory.
const LESS: f64 = 0.85;

/// More keys of a generation than any bank has capacity for.
const MOST_KEYS: f64 = (1_u64 << 50) as f64;

/// The greatest weight of a generation that closed early, relative to its own keys: a short burst
/// measures little.
const MOST_EXTRAPOLATION: f64 = 256.0;

/// The part of the capacity that is allowed while consecutive generations close early. It leaves a
/// seventh of the false positives, so that several banks used up by one burst together keep the
/// planned rate.
pub(super) const HURRIED: f64 = 0.8;

/// Numbers of generations over which the need is measured: few are more recent, many more certain.
const LENGTHS: [u64; 4] = [1, 4, 16, 64];

/// Standard deviations by which a measured number of keys must exceed the capacity.
const CERTAINTY: f64 = 2.0;

/// Returns the keys of a generation that a bank has capacity for.
///
/// `L·W/k`, slightly reduced for the spread of keys over small blocks: the rate grows as about the
/// power `0.75·k` of the load, whose relative variance over blocks is about `2/(3·L·w)`, `w` the
/// words of a block. Only + × ÷ are used, because the state depends on the result.
pub(super) fn capacity(plan: &Plan, layout: Layout, geometry: Geometry) -> f64 {
    capacity_of(plan, layout.words(geometry) as f64, geometry).max(1.0)
}

/// Returns the capacity for each row of a slice, a cell of each of its columns.
pub(super) fn keys_a_row(plan: &Plan, geometry: Geometry) -> f64 {
    capacity_of(plan, 1.0 / f64::from(64 / plan.columns), geometry)
}

fn capacity_of(plan: &Plan, words: f64, geometry: Geometry) -> f64 {
    let k = f64::from(plan.k);
    // Rows of a slice; with 64 columns a row is a word.
    let lanes = f64::from(64 / plan.columns);
    let block = f64::from(geometry.words_per_block.max(1)) * lanes;
    let spread = k / (4.0 * plan.load * block);
    plan.load * (words * lanes) / k / (1.0 + spread)
}

/// Returns the smallest geometry with a capacity of `keys` keys a generation, and of
/// [`LEAST_KEYS`].
fn geometry_for(plan: &Plan, layout: Layout, keys: f64) -> Geometry {
    let keys = keys.max(LEAST_KEYS);
    let mut words = f64::from(plan.k) * keys / plan.load / f64::from(64 / plan.columns);
    // Beyond the greatest size of a filter the result need only be too large.
    let geometry_of = |words: f64| layout.geometry((words as u64).min(2 * MOST_WORDS));
    let mut geometry = geometry_of(words);
    // Smaller blocks need more words for the same keys, and more words make larger blocks: two or
    // three rounds.
    for _ in 0..8 {
        let room = capacity(plan, layout, geometry);
        if room >= keys {
            break;
        }
        words *= keys / room * 1.001;
        geometry = geometry_of(words);
    }
    geometry
}

/// Returns the words of the first bank.
pub(super) fn first_words(plan: &Plan) -> u64 {
    let Some(rate) = plan.rate else {
        return FIRST_WORDS;
    };
    let keys = MARGIN * rate * plan.pace as f64 / 1e6;
    PLANNED.words(geometry_for(plan, PLANNED, keys))
}

/// Returns the words of the smallest later bank.
pub(super) fn least_words(plan: &Plan) -> u64 {
    first_words(plan).min(FIRST_WORDS)
}

/// Returns the event that must come before an insert at `moment`.
pub(super) fn due(
    plan: &Plan,
    state: &State<'_>,
    layout: Layout,
    moment: &Moment,
) -> Option<Event> {
    let generations = plan.generations(state);
    let new_bits = moment.totals.new_bits;
    let over = moment.now >= generations.close();
    if !over && new_bits < generations.full() {
        return None;
    }
    let newest = state.banks().max_by_key(|bank| (bank.since, bank.id))?;
    let step = Event::Step {
        step: next_generation(plan, &generations, moment.now),
        time: moment.now,
        word: new_bits,
    };
    if newest.since > generations.current() {
        return Some(step);
    }
    let sizing = Sizing { plan, state, layout, generations, newest, now: moment.now };
    if over {
        let before = sizing.dead_bank().or_else(|| sizing.shrink(new_bits));
        let before = before.or_else(|| sizing.succeed(&step, new_bits));
        return Some(before.unwrap_or(step));
    }
    if sizing.room() {
        return Some(step);
    }
    let hastens = sizing.free_column(&step) && sizing.room_for_haste();
    if !hastens && !sizing.has_memory(2) {
        // At the limit of memory this comes before every insert: the need is not worth measuring.
        return None;
    }
    let need = sizing.need_above_capacity(new_bits)?;
    if hastens { Some(step) } else { sizing.grow(need, new_bits) }
}

/// Returns the generation that opens at `now`. Those that would have opened and closed empty since
/// the open one are skipped, so that no slice is written both before and after a silence. Skipping
/// more than `k` makes no difference.
fn next_generation(plan: &Plan, generations: &Generations<'_>, now: Micros) -> u64 {
    let open = generations.current();
    let silent = now >= generations.end(open).saturating_add(plan.window);
    let passed = now.saturating_sub(generations.opened(open)) / plan.pace;
    let most = u64::from(plan.k);
    open.saturating_add(if silent { most } else { passed.clamp(1, most) })
}

/// The inserts of the last window, as far as they determine sizes.
struct Lately {
    /// Keys in a pace: the mean over the window, or the open generation's rate if that is higher.
    need: f64,
    /// The capacity at which the window's bursts, if they recurred, would take half the columns of
    /// a bank.
    bursts_again: f64,
    /// Whether the present burst is still smaller than the earlier ones in the window.
    recur: bool,
}

struct Sizing<'a> {
    plan: &'a Plan,
    state: &'a State<'a>,
    layout: Layout,
    generations: Generations<'a>,
    newest: BankEntry,
    now: Micros,
}

impl Sizing<'_> {
    /// Returns whether a generation may open in the newest bank now, and each `pace` from now on,
    /// without recycling a slice or a record that is alive.
    fn room(&self) -> bool {
        self.room_in(u64::from(self.plan.columns - self.plan.k), self.newest.since)
            && self.room_on_record()
    }

    /// Returns the same for the records of generations alone, which all banks share.
    fn room_on_record(&self) -> bool {
        self.room_in(RING - 1, 0)
    }

    /// Returns whether the generation `back` before the open one is dead now, the one after it a
    /// pace from now, and so on. Each is the last writer of the slice (or the record) whose place
    /// is taken then. Generations before `since` left nothing there.
    fn room_in(&self, back: u64, since: u64) -> bool {
        let open = self.generations.current();
        let since = since.max(self.generations.oldest());
        (0..back).rev().all(|ago| {
            let Some(generation) = open.checked_sub(ago + 1).filter(|&g| g >= since) else {
                return true;
            };
            let later = (back - 1 - ago).saturating_mul(self.plan.pace);
            let dead = self.generations.end(generation).saturating_add(self.plan.window);
            dead <= self.now.saturating_add(later)
        })
    }

    /// Returns whether the generation that `step` opens finds a free column in the newest bank: the
    /// column of the slice that was last written by the generation `n-k` before it.
    fn free_column(&self, step: &Event) -> bool {
        let Event::Step { step, .. } = *step else {
            return true;
        };
        let last = step.checked_sub(1 + u64::from(self.plan.columns - self.plan.k));
        last.is_none_or(|last| last < self.newest.since || last < self.alive())
    }

    /// Returns whether generations may close early and use up the newest bank's columns. Another
    /// bank must then follow even if keys arrive slowly, which needs a slot for it, and records.
    /// The records that bursts may use are shared out: a bank takes at most as many as it leaves.
    fn room_for_haste(&self) -> bool {
        let by_time = self.plan.window.div_ceil(self.plan.pace).saturating_add(2);
        let (alive, next) = (self.alive(), self.generations.current().saturating_add(1));
        let (used, own) = (next - alive, next - alive.max(self.newest.since).min(next));
        self.state.banks().count() < self.state.slots()
            && self.has_memory(1)
            && self.room_on_record()
            && own.saturating_add(used).saturating_add(by_time) < RING
    }

    /// Returns the oldest generation that is alive.
    fn alive(&self) -> u64 {
        self.generations.first_since(self.now, self.plan.window)
    }

    /// Returns the event that closes the oldest bank, if all its generations are dead and it is not
    /// the newest.
    fn dead_bank(&self) -> Option<Event> {
        let oldest = self.state.banks().min_by_key(|bank| (bank.since, bank.id))?;
        let last = last_generation(self.state, &oldest);
        let dead = oldest.id != self.newest.id && last < self.alive();
        dead.then_some(Event::CloseBank { id: oldest.id, time: self.now })
    }

    /// Returns a bank for a need above the newest one's capacity. Where bursts recur, the need in
    /// the middle of one is a poor measure: the next bank is sized for bursts as large as the
    /// earlier ones.
    fn grow(&self, need: f64, new_bits: u64) -> Option<Event> {
        if !self.room_on_record() {
            return None;
        }
        let young = self.now.saturating_sub(self.generations.bank_time()) < self.plan.window / 2;
        // The first bank is a guess: an error in it does not measure growth.
        let margin = if young && self.newest.id > 0 { FAST_MARGIN } else { MARGIN };
        let lately = self.lately(new_bits);
        let keys = if lately.recur {
            let known = lately.bursts_again.max(MARGIN * lately.need);
            known.min(margin * need)
        } else {
            margin * need
        };
        let left = self.memory_left().saturating_sub(self.least_bytes());
        self.open_within(left, keys)
    }

    /// Returns the geometry for `keys` keys a generation, limited by how much the newest bank may
    /// grow at once.
    fn geometry_within_reach(&self, keys: f64) -> Geometry {
        let words = self.layout.words(self.newest.geometry);
        let most = words.saturating_mul(MOST_GROWTH).max(GROWN_WORDS);
        let most = self.layout.geometry(most.min(MOST_WORDS));
        if keys < capacity(self.plan, self.layout, most) {
            geometry_for(self.plan, self.layout, keys)
        } else {
            most
        }
    }

    /// Returns the need, if over some number of generations it is certainly above the capacity;
    /// measured over the number with the highest certain need. Infinite if all keys came in one
    /// tick of the caller's clock.
    fn need_above_capacity(&self, new_bits: u64) -> Option<f64> {
        let capacity = capacity(self.plan, self.layout, self.newest.geometry);
        let open = self.generations.current();
        let pace = self.plan.pace as f64;
        let (mut keys, mut first) = (self.open_keys(new_bits) as f64, open);
        let mut surest = (0.0, None);
        let mut at_once = false;
        for count in LENGTHS {
            while open - first + 1 < count && first > self.generations.oldest() {
                first -= 1;
                keys += self.generations.keys(first) as f64;
            }
            let paces = self.now.saturating_sub(self.generations.opened(first)) as f64 / pace;
            let least = keys - CERTAINTY * keys.sqrt();
            if least <= capacity * paces {
                continue;
            }
            if paces == 0.0 {
                at_once = true;
            } else if least / paces > surest.0 {
                surest = (least / paces, Some(keys / paces));
            }
        }
        surest.1.or(at_once.then_some(f64::INFINITY))
    }

    /// Returns the bank that must open now because the newest one, used up by a burst, has no
    /// column for the generation that `step` opens. It has capacity for the recent need, and for
    /// the window's bursts if they recur.
    fn succeed(&self, step: &Event, new_bits: u64) -> Option<Event> {
        if self.free_column(step) {
            return None;
        }
        let lately = self.lately(new_bits);
        let keys = lately.bursts_again.max(MARGIN * lately.need);
        self.open_within(self.memory_left(), self.worthwhile(keys))
    }

    /// Returns the measures of the last window.
    fn lately(&self, new_bits: u64) -> Lately {
        let open = self.generations.current();
        let late = self.open_keys(new_bits) as f64;
        // The present burst reaches back to two consecutive generations that did not close early.
        // (A single one may have been cut between two ticks of a coarse clock.)
        let (mut all, mut bursts, mut present, mut calm) = (late, 0.0, 0.0, 0);
        for generation in (self.alive().min(open)..open).rev() {
            let keys = self.generations.keys(generation) as f64;
            let early = self.generations.early(generation);
            calm = match calm {
                2 => 2,
                _ if early => 0,
                calm => calm + 1,
            };
            all += keys;
            if early {
                bursts += keys;
                present += if calm < 2 { keys } else { 0.0 };
            }
        }
        let columns = f64::from(self.plan.columns - self.plan.k);
        let pace = self.plan.pace as f64;
        let lasted = self.now.saturating_sub(self.generations.opened(open)) as f64;
        let mean = all * pace / self.plan.window as f64;
        Lately {
            need: mean.max(late * pace / lasted.max(pace)),
            bursts_again: bursts / (HURRIED * columns / 2.0),
            recur: present < bursts / 2.0,
        }
    }

    /// Returns `keys`, but at least those of the first bank: a smaller one would gain nothing.
    fn worthwhile(&self, keys: f64) -> f64 {
        keys.max(capacity(self.plan, self.layout, self.layout.geometry(least_words(self.plan))))
    }

    /// Returns a smaller bank, if the need stayed under a quarter of the capacity for a whole
    /// window.
    fn shrink(&self, new_bits: u64) -> Option<Event> {
        let open = self.generations.current();
        // A silence of a whole window does not predict the need after it.
        let silent = self.now >= self.generations.end(open).saturating_add(self.plan.window);
        if silent || self.now.saturating_sub(self.generations.watched_since()) < self.plan.window {
            return None;
        }
        let closed = self.alive()..open;
        let most = closed
            .map(|generation| self.need_of(generation))
            .fold(self.open_keys(new_bits) as f64, f64::max);
        let capacity = capacity(self.plan, self.layout, self.newest.geometry);
        if 4.0 * most >= capacity || !self.room_on_record() {
            return None;
        }
        let geometry = geometry_for(self.plan, self.layout, self.worthwhile(MARGIN * most));
        let less = self.layout.words(geometry) <= self.layout.words(self.newest.geometry) / 2;
        let fits = self.plan.memory.of_bank(self.layout, geometry) <= self.memory_left();
        if less && fits { self.open(geometry) } else { None }
    }

    /// Returns the keys in a pace for a closed generation.
    fn need_of(&self, generation: u64) -> f64 {
        let share = self.plan.pace as f64 / self.generations.lasted(generation).max(1) as f64;
        self.generations.keys(generation) as f64 * share.clamp(1.0, MOST_EXTRAPOLATION)
    }

    fn open_keys(&self, new_bits: u64) -> u64 {
        let words = self.layout.words(self.newest.geometry);
        Measure::new(&self.generations, self.plan.k, self.newest.since, self.plan.rows(words))
            .keys(new_bits.saturating_sub(self.generations.new_bits()))
    }

    /// Returns the bytes that further banks may take.
    fn memory_left(&self) -> u64 {
        self.plan.memory.left(self.layout, self.state)
    }

    /// Returns whether this many of the smallest banks may open.
    fn has_memory(&self, banks: u64) -> bool {
        self.plan.memory.most.is_none() || self.memory_left() >= banks * self.least_bytes()
    }

    /// Returns the bytes of the smallest bank.
    fn least_bytes(&self) -> u64 {
        let geometry = geometry_for(self.plan, self.layout, self.worthwhile(0.0));
        self.plan.memory.of_bank(self.layout, geometry)
    }

    /// Returns the opening of a bank for `keys` keys a generation, or of a smaller one that takes
    /// at most `bytes`; none if not even the smallest does.
    fn open_within(&self, bytes: u64, keys: f64) -> Option<Event> {
        let (mut keys, least) = (keys.min(MOST_KEYS), self.worthwhile(0.0));
        loop {
            let geometry = self.geometry_within_reach(keys);
            if self.plan.memory.of_bank(self.layout, geometry) <= bytes {
                return self.open(geometry);
            }
            if keys <= least {
                return None;
            }
            let reach = capacity(self.plan, self.layout, geometry);
            keys = (LESS * keys.min(reach)).max(least);
        }
    }

    fn open(&self, geometry: Geometry) -> Option<Event> {
        let id = self.state.next_bank();
        let since = self.generations.current().saturating_add(1);
        (self.state.banks().count() < self.state.slots()).then_some(Event::OpenBank {
            id,
            geometry,
            since,
            time: self.now,
        })
    }
}
