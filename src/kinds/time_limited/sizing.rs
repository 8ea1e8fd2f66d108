//! When generations close, and how large banks are.
//!
//! Pure decisions over the filter-wide state; what they come to is an event. Invariants:
//! - a generation closes a `pace` after it opened at the latest, and then its successor's column is always
//!   free: it closes earlier only if that stays so ([`room`]);
//! - a bank's capacity is what one generation may insert so that the wanted rate holds when all do;
//! - the need, the keys that come in a `pace`, is measured by newly set bits over closed generations.
//!
//! Knows nothing of blocks and cells.

use super::super::{BankEntry, Event, Kind, Micros, Moment, State};
use super::fills::Measure;
use super::generations::{Generations, RING};
use super::slices::COLUMNS;
use super::{FIRST_WORDS, TimeLimited};
use crate::cells::{Geometry, Layout, MAX_BANKS};

/// The fewest keys of a generation that a bank has room for: fewer would measure nothing.
const LEAST_KEYS: f64 = 64.0;

/// The room of a bank for what was measured.
pub(super) const MARGIN: f64 = 1.25;

/// The room if the need grows fast: if the bank before is younger than half a window.
const FAST_MARGIN: f64 = 2.5;

/// The most by which one measurement raises the need: a short burst measures little.
const MOST_GROWTH: f64 = 256.0;

/// The growth assumed of a bank that was used up within one tick of the caller's clock.
const GROWTH_IN_A_TICK: f64 = 4.0;

/// Numbers of generations over which the need is measured: the fewer, the newer; the more, the surer.
const LENGTHS: [u64; 4] = [1, 4, 16, 64];

/// Standard deviations by which a measured number of keys must exceed what there is room for.
const CERTAINTY: f64 = 2.0;

/// Keys a generation that a bank has room for.
///
/// `L·W/k`, less a little for the spread of keys over small blocks: the rate grows as about the power
/// `0.75·k` of the load, whose relative variance over blocks is about `2/(3·L·w)`, `w` the words of a block.
/// Only + × ÷: the state depends on it.
pub(super) fn capacity(kind: &TimeLimited, layout: Layout, geometry: Geometry) -> f64 {
    let k = f64::from(kind.k);
    let block = f64::from(geometry.words_per_block.max(1));
    let spread = k / (4.0 * kind.load * block);
    (kind.load * layout.words(geometry) as f64 / k / (1.0 + spread)).max(1.0)
}

/// The smallest geometry with room for so many keys a generation, and for [`LEAST_KEYS`].
pub(super) fn geometry_for(kind: &TimeLimited, layout: Layout, keys: f64) -> Geometry {
    let keys = keys.max(LEAST_KEYS);
    let mut words = f64::from(kind.k) * keys / kind.load;
    let mut geometry = layout.geometry(words as u64);
    // Smaller blocks need more words for the same keys, more words make larger blocks: two or three turns.
    for _ in 0..8 {
        let room = capacity(kind, layout, geometry);
        if room >= keys {
            break;
        }
        words *= keys / room * 1.001;
        geometry = layout.geometry(words as u64);
    }
    geometry
}

/// The event that must come before an insert at `moment`.
pub(super) fn due(
    kind: &TimeLimited,
    state: &State<'_>,
    layout: Layout,
    moment: &Moment,
) -> Option<Event> {
    let generations = kind.generations(state);
    let novelty = moment.totals.novelty;
    let over = moment.now >= generations.close();
    if !over && novelty < generations.full() {
        return None;
    }
    let newest = state.banks().max_by_key(|bank| (bank.since, bank.id))?;
    let step = Event::Step {
        step: next_generation(kind, &generations, moment.now),
        time: moment.now,
        word: novelty,
    };
    if newest.since > generations.current() {
        return Some(step);
    }
    let sizing = Sizing {
        kind,
        state,
        layout,
        generations,
        newest,
        now: moment.now,
    };
    if over {
        let before = sizing.dead_bank().or_else(|| sizing.shrink(novelty));
        return Some(before.unwrap_or(step));
    }
    let room = sizing.room();
    // A generation that filled before its time may have begun at a lower rate. The next one tells.
    let measured = !room || sizing.previous_was_full();
    let grown = if measured { sizing.grow(novelty) } else { None };
    grown.or(room.then_some(step))
}

/// The generation that opens at `now`. Those that would have opened and closed empty since the open one are
/// skipped, so that no slice is written both before and after a silence. More than `k` make no difference.
fn next_generation(kind: &TimeLimited, generations: &Generations<'_>, now: Micros) -> u64 {
    let open = generations.current();
    let silent = now >= generations.end(open).saturating_add(kind.window);
    let passed = now.saturating_sub(generations.opened(open)) / kind.pace;
    let most = u64::from(kind.k);
    open.saturating_add(if silent { most } else { passed.clamp(1, most) })
}

struct Sizing<'a> {
    kind: &'a TimeLimited,
    state: &'a State<'a>,
    layout: Layout,
    generations: Generations<'a>,
    newest: BankEntry,
    now: Micros,
}

impl Sizing<'_> {
    /// Whether a generation may open in the newest bank now, and each `pace` from now on, without
    /// recycling a slice or a record that is alive.
    fn room(&self) -> bool {
        self.room_in(COLUMNS - u64::from(self.kind.k), self.newest.since) && self.room_on_record()
    }

    /// The same for the records of generations alone, which all banks share.
    fn room_on_record(&self) -> bool {
        self.room_in(RING - 1, 0)
    }

    /// The generation `back` before the open one must be dead now, the one after it a pace from now, and so
    /// on: each is the last that wrote the slice (or the record) whose place is taken then. Those before
    /// `since` left nothing there.
    fn room_in(&self, back: u64, since: u64) -> bool {
        let open = self.generations.current();
        let since = since.max(self.generations.oldest());
        (0..back).rev().all(|ago| {
            let Some(generation) = open.checked_sub(ago + 1).filter(|&g| g >= since) else {
                return true;
            };
            let later = (back - 1 - ago).saturating_mul(self.kind.pace);
            let dead = self
                .generations
                .end(generation)
                .saturating_add(self.kind.window);
            dead <= self.now.saturating_add(later)
        })
    }

    fn previous_was_full(&self) -> bool {
        let Some(before) = self.generations.current().checked_sub(1) else {
            return false;
        };
        before >= self.newest.since.max(self.generations.oldest())
            && self.generations.lasted(before) < self.kind.pace
            && self.generations.keys(before) > 0
    }

    /// The oldest bank, if all its generations are dead and it is not the newest.
    fn dead_bank(&self) -> Option<Event> {
        let oldest = self
            .state
            .banks()
            .min_by_key(|bank| (bank.since, bank.id))?;
        let last = self.kind.last_generation(self.state, &oldest);
        let dead = oldest.id != self.newest.id
            && last < self.generations.first_since(self.now, self.kind.window);
        dead.then_some(Event::CloseBank {
            id: oldest.id,
            time: self.now,
        })
    }

    /// A larger bank, if the need exceeds the newest one's capacity beyond doubt.
    fn grow(&self, novelty: u64) -> Option<Event> {
        if !self.room_on_record() {
            return None;
        }
        let capacity = capacity(self.kind, self.layout, self.newest.geometry);
        let need = self.need_above(capacity, novelty)?;
        let young = self.now.saturating_sub(self.generations.bank_time()) < self.kind.window / 2;
        // The first bank is a guess: that it was wrong says nothing of growth.
        let margin = if young && self.newest.id > 0 {
            FAST_MARGIN
        } else {
            MARGIN
        };
        let geometry = geometry_for(self.kind, self.layout, margin * need);
        let more = self.layout.words(geometry) > self.layout.words(self.newest.geometry);
        if more { self.open(geometry) } else { None }
    }

    /// The need, if over some number of generations it is surely above `capacity`.
    fn need_above(&self, capacity: f64, novelty: u64) -> Option<f64> {
        let open = self.generations.current();
        let pace = self.kind.pace as f64;
        let (mut keys, mut first) = (self.open_keys(novelty) as f64, open);
        let mut need: Option<f64> = None;
        for count in LENGTHS {
            while open - first + 1 < count && first > self.generations.oldest() {
                first -= 1;
                keys += self.generations.keys(first) as f64;
            }
            let paces = self.now.saturating_sub(self.generations.opened(first)) as f64 / pace;
            if keys - CERTAINTY * keys.sqrt() > capacity * paces {
                let measured = if paces > 0.0 {
                    (keys / paces).min(MOST_GROWTH * capacity)
                } else {
                    GROWTH_IN_A_TICK * capacity
                };
                need = Some(need.unwrap_or(0.0).max(measured));
            }
        }
        need
    }

    /// A smaller bank, if for a whole window the need stayed under a quarter of the capacity.
    fn shrink(&self, novelty: u64) -> Option<Event> {
        let open = self.generations.current();
        // A silence as long as the window says nothing of what comes after it.
        let silent = self.now >= self.generations.end(open).saturating_add(self.kind.window);
        if silent || self.now.saturating_sub(self.generations.watched_since()) < self.kind.window {
            return None;
        }
        let closed = self.generations.first_since(self.now, self.kind.window)..open;
        let most = closed
            .map(|generation| self.need_of(generation))
            .fold(self.open_keys(novelty) as f64, f64::max);
        let capacity = capacity(self.kind, self.layout, self.newest.geometry);
        if 4.0 * most >= capacity || !self.room_on_record() {
            return None;
        }
        // Below the first bank's size there is nothing to gain.
        let least = self
            .layout
            .geometry(self.kind.first_words().min(FIRST_WORDS));
        let keys = (MARGIN * most).max(self::capacity(self.kind, self.layout, least));
        let geometry = geometry_for(self.kind, self.layout, keys);
        let less = self.layout.words(geometry) <= self.layout.words(self.newest.geometry) / 2;
        if less { self.open(geometry) } else { None }
    }

    /// Keys a pace in a closed generation.
    fn need_of(&self, generation: u64) -> f64 {
        let share = self.kind.pace as f64 / self.generations.lasted(generation).max(1) as f64;
        self.generations.keys(generation) as f64 * share.clamp(1.0, MOST_GROWTH)
    }

    fn open_keys(&self, novelty: u64) -> u64 {
        let words = self.layout.words(self.newest.geometry);
        Measure::new(&self.generations, self.kind.k, self.newest.since, words)
            .keys(novelty.saturating_sub(self.generations.novelty()))
    }

    fn open(&self, geometry: Geometry) -> Option<Event> {
        let id = self.state.next_bank();
        let since = self.generations.current().saturating_add(1);
        (self.state.banks().count() < MAX_BANKS).then_some(Event::OpenBank {
            id,
            geometry,
            since,
            time: self.now,
        })
    }
}
