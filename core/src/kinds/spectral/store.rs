//! The compact counter store of a block: counters of variable width (Cohen and Matias's
//! string-array index; section 2.2 of the DCF paper).
//!
//! The counters lie in consecutive groups. A block's words are first the [headers](super::header)
//! of all groups (the coarse and offset vectors), then the groups' data in their order, with
//! *slack*: the unused bits of a group's last word, and unused words between groups. A counter that
//! outgrows its width is *expanded*: it pushes its neighbours into the slack of the group. If that
//! is used up, the group pushes its neighbours into the next unused words. When unused words run
//! out, the store is *rebuilt*: each counter gets its least width, and new slack is spread evenly.
//! A group then lies near its *home*, its share of the data, and can be fetched before its header
//! has been read.
//!
//! Counters that fall keep their width until a rebuild, which happens when the block needs far
//! fewer words.
//!
//! The slack is known before an operation ([`Store::room`]), and an operation begins with a rebuild
//! unless there is enough for everything that it may do. It therefore never runs out inside an
//! operation. The largest data of all groups, 64 bits for each counter, always fit into a block, so
//! no counter saturates below `2^64 - 1`.
//!
//! Unused words may hold anything up to the end of the room; beyond it they are zero. Content of
//! any kind is read and written without panic, within the block.

use super::header::{GROUP, HEADER_WORDS, Header, MOST_GROUP_WORDS, bits_of};
use crate::block::{Block, Layout, OWN_WORDS, prefetch};

/// Kind word of a block: the number of words in use; 0 at first.
const END: usize = 0;
/// Words that the groups' data take.
pub(super) const LIVE: usize = 1;
/// The bits that all counters need beyond the first bit of each: the paper's `N`, less the number
/// of counters.
const NEEDED: usize = 2;
/// Counters that outgrew their width. It is the closest equivalent of what the DCF paper counts as
/// rebuilds of the spectral filter (section 4: each "involves only one counter at a time"). It
/// counts every bit by which a counter grows, whether slack absorbs it or not.
pub(super) const EXPANSIONS: usize = 3;
/// Rebuilds of the whole store of a block.
pub(super) const REBUILDS: usize = 4;
/// Counters rewritten: those expanded, those pushed, and all of them in a rebuild.
pub(super) const REWRITTEN: usize = 5;

/// Room is allocated in pages of this many words.
const PAGE_WORDS: usize = 512;

/// The most words by which one counter's change makes its group longer: less than two words for its
/// own width, and at a larger scale 3 bits for each of 27 others.
const MOST_GROWTH: usize = 3;

/// The greatest number of groups whose counters fit into a block at 64 bits each.
const MOST_GROUPS: usize = Layout::MOST_BLOCK_WORDS as usize / (HEADER_WORDS + MOST_GROUP_WORDS);

/// The layout of a block's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Store {
    /// The number of groups.
    groups: usize,
    /// Words by which an operation may make the data longer.
    reserve: usize,
}

impl Store {
    /// The greatest number of counters of a block.
    pub const MOST_COUNTERS: usize = MOST_GROUPS * GROUP;

    /// Creates a store of at most [`Store::MOST_COUNTERS`] counters, of which an operation changes
    /// at most `changes`.
    pub fn new(counters: usize, changes: usize) -> Self {
        let groups = counters.div_ceil(GROUP).clamp(1, MOST_GROUPS);
        Self { groups, reserve: changes.saturating_mul(MOST_GROWTH) }
    }

    /// Returns the word in which the groups' data begin.
    fn first(&self) -> usize {
        self.groups * HEADER_WORDS
    }

    /// Returns the greatest number of words of a block: 64 bits for each counter.
    pub fn most_words(&self) -> usize {
        self.groups * (HEADER_WORDS + MOST_GROUP_WORDS)
    }

    /// Returns the words that the next increase needs: the present number, or that of the rebuild
    /// that it will begin with.
    #[inline]
    pub fn room(&self, block: &Block<'_>) -> usize {
        let (end, live) = (room_now(block), self.live(block));
        let unused = end.saturating_sub(self.first() + live);
        // Slightly more than necessary, so that the next unused word is never far.
        if end >= self.most_words() || (end > 0 && unused >= self.reserve + live / 32) {
            end
        } else {
            self.end_for(live.max(self.groups)).max(end)
        }
    }

    fn live(&self, block: &Block<'_>) -> usize {
        (block.own(LIVE) as usize).min(self.groups * MOST_GROUP_WORDS)
    }

    /// Returns the words of a block just rebuilt whose groups take `live` words: with an eighth of
    /// slack, and the rest of the last page.
    fn end_for(&self, live: usize) -> usize {
        let words = self.first() + live + live / 8 + 2 * self.reserve;
        words.next_multiple_of(PAGE_WORDS).min(self.most_words())
    }

    /// Returns the words of a block, after a rebuild, whose counters take `bits` bits on average.
    pub fn words_at(&self, bits: f64) -> usize {
        // On average a group uses half of its last word.
        let words = self.groups as f64 * (GROUP as f64 * bits / 64.0 + 0.5);
        self.end_for(words.ceil() as usize)
    }

    /// Returns whether a block needs so few words that it is rebuilt: it has more than twice what
    /// its counters need.
    ///
    /// Even at the largest scale a group takes less than twice the size estimated here (its bits,
    /// and a word for the rounding). A rebuild therefore always releases a page, and no other one
    /// follows at once.
    fn has_shrunk(&self, block: &Block<'_>) -> bool {
        let bits = (block.own(NEEDED) as usize).saturating_add(self.groups * GROUP);
        let needed = bits / 64 + self.groups;
        self.end_for(needed.saturating_mul(2).min(self.most_words())) < room_now(block)
    }

    /// Returns the header of a group.
    #[inline]
    fn header(block: &Block<'_>, group: usize) -> Header {
        let at = group * HEADER_WORDS;
        Header::of_words([block.word(at), block.word(at + 1)])
    }

    /// Returns where a counter lies.
    #[inline]
    pub fn locate(&self, block: &Block<'_>, counter: usize) -> Located {
        let (group, at) = (counter / GROUP, counter % GROUP);
        self.located(Self::header(block, group), at)
    }

    #[inline]
    fn located(&self, header: Header, at: usize) -> Located {
        Located::new(self.first() + header.place(), header.offset(at), header.width(at))
    }

    /// Reads a counter.
    #[inline]
    pub fn get(&self, block: &Block<'_>, counter: usize) -> u64 {
        self.locate(block, counter).read(block)
    }

    /// Returns what is needed to prefetch counters before their headers have been read.
    #[inline]
    pub fn guess(&self, block: &Block<'_>) -> Guess {
        Guess::of(self.first(), room_now(block), self.groups)
    }
}

/// Binary places of [`Guess::step`]: a block's words times it stay below 2^32.
const GUESS_BITS: u32 = 16;

/// Where groups are likely to lie: near their share of the data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guess {
    first: usize,
    /// Words from group to group.
    step: u32,
}

impl Guess {
    /// Creates the guess for groups that share the words from `first` to `end`.
    #[inline]
    fn of(first: usize, end: usize, groups: usize) -> Self {
        let region = end.saturating_sub(first) as u32;
        Self { first, step: (region << GUESS_BITS) / groups.max(1) as u32 }
    }

    /// Returns the word in which a group's data should begin.
    #[inline]
    fn home(self, group: usize) -> usize {
        (group * self.step as usize) >> GUESS_BITS
    }

    /// Prefetches a counter's header and its likely place, so that the two cache misses overlap.
    #[inline]
    pub fn prefetch(self, block: &Block<'_>, counter: usize) {
        let group = counter / GROUP;
        let data = self.first + self.home(group);
        for word in [group * HEADER_WORDS, data, data + NEAR] {
            if let Some(word) = block.cells.get(word) {
                prefetch(word);
            }
        }
    }
}

/// Most data lie within this many words after their home.
const NEAR: usize = 5;

/// Returns the words in use; 0 at first.
#[inline]
pub(super) fn room_now(block: &Block<'_>) -> usize {
    (block.own(END) as usize).min(block.cells.len())
}

/// The place of a counter's bits in a block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Located {
    word: u16,
    shift: u8,
    width: u8,
}

impl Located {
    /// Creates the place of `width` bits from bit `bit` on, in data that begin in word `first`.
    #[inline]
    fn new(first: usize, bit: u32, width: u32) -> Self {
        let word = first as u32 + bit / 64;
        Self { word: word as u16, shift: (bit % 64) as u8, width: width as u8 }
    }

    /// Returns the masks of the bits in the first word, and in the next one.
    #[inline]
    fn masks(self) -> (u64, u64) {
        let mask = u64::MAX >> (64 - self.width.clamp(1, 64));
        (mask << self.shift, mask >> 1 >> (63 - self.shift))
    }

    /// Prefetches the counter.
    #[inline]
    pub fn prefetch(self, block: &Block<'_>) {
        if let Some(word) = block.cells.get(usize::from(self.word)) {
            prefetch(word);
        }
    }

    /// Reads the counter.
    #[inline]
    pub fn read(self, block: &Block<'_>) -> u64 {
        let (word, (low, high)) = (usize::from(self.word), self.masks());
        let mut value = (block.word(word) & low) >> self.shift;
        if high != 0 {
            value |= (block.word(word + 1) & high) << (64 - self.shift);
        }
        value
    }
}

/// A block whose counters are being changed. Changes of its kind words are kept here until
/// [`Writer::finish`].
pub(super) struct Writer<'a> {
    store: Store,
    /// The block, without the words that it has no room for.
    block: Block<'a>,
    own: [u64; OWN_WORDS],
    /// A bit for each group, by its number modulo 64: whether its counters may have moved.
    moved: u64,
}

impl<'a> Writer<'a> {
    /// Begins a change in which counters may rise; the block has [`Store::room`].
    pub fn to_raise(store: Store, block: &Block<'a>) -> Self {
        let (end, room) = (room_now(block), store.room(block));
        let mut writer = Self::new(store, block, room);
        if room > end {
            if end > 0 {
                writer.count_rebuild();
            }
            writer.rebuild(Some(room));
        }
        writer
    }

    /// Begins a change in which counters only fall.
    pub fn to_lower(store: Store, block: &Block<'a>) -> Self {
        let mut writer = Self::new(store, block, room_now(block));
        if store.has_shrunk(block) {
            writer.count_rebuild();
            writer.rebuild(None);
        }
        writer
    }

    fn new(store: Store, block: &Block<'a>, room: usize) -> Self {
        let cells = &block.cells[..room.min(block.cells.len())];
        let own = std::array::from_fn(|at| block.own(at));
        Self { store, block: Block { cells, ..*block }, own, moved: 0 }
    }

    /// Writes back the changed kind words.
    pub fn finish(self) {
        for (at, value) in self.own.into_iter().enumerate() {
            if value != self.block.own(at) {
                self.block.set_own(at, value);
            }
        }
    }

    /// Returns the block in its current state.
    #[inline]
    pub fn block(&self) -> &Block<'a> {
        &self.block
    }

    /// Writes a counter, which was located after this change of the block began.
    #[inline]
    pub fn set(&mut self, counter: usize, mut at: Located, value: u64) {
        let (group, counter) = (counter / GROUP, counter % GROUP);
        if self.moved >> (group % 64) & 1 == 1 {
            at = self.store.located(Store::header(&self.block, group), counter);
        }
        let (old, bits) = (at.read(&self.block), bits_of(value));
        let more = u64::from(bits).wrapping_sub(bits_of(old).into());
        self.own[NEEDED] = self.own[NEEDED].wrapping_add(more);
        if bits > at.width.into() {
            at = self.expand(group, counter, bits);
        }
        self.write(at, value);
    }

    /// Writes a counter that is wide enough.
    #[inline]
    fn write(&self, at: Located, value: u64) {
        let (word, (low, high)) = (usize::from(at.word), at.masks());
        self.put(word, self.block.word(word) & !low | value << at.shift);
        if high != 0 {
            self.put(word + 1, self.block.word(word + 1) & !high | value >> (64 - at.shift));
        }
    }

    /// Writes a word unless it has this value already.
    #[inline]
    fn put(&self, word: usize, value: u64) {
        if value != self.block.word(word) {
            self.block.set_word(word, value);
        }
    }

    fn put_header(&self, group: usize, header: Header) {
        let words = header.words_of().into_iter().enumerate();
        words.for_each(|(at, value)| self.put(group * HEADER_WORDS + at, value));
    }

    /// Widens a counter to at least `bits` bits and returns its new place; the counters behind it
    /// are pushed into the slack.
    fn expand(&mut self, group: usize, at: usize, bits: u32) -> Located {
        self.own[EXPANSIONS] = self.own[EXPANSIONS].wrapping_add(1);
        self.moved |= 1 << (group % 64);
        let header = Store::header(&self.block, group);
        if !header.can_hold(bits) {
            return self.change_scale(group, at, bits);
        }
        let mut wider = header.with_width(at, bits);
        let (from, to) = (header.offset(at + 1), header.offset(GROUP));
        let by = wider.width(at) - header.width(at);
        if (to + by).div_ceil(64) > to.div_ceil(64) {
            wider = wider.at_place(self.lengthen(group, wider.words()));
        }
        self.push_bits(self.store.first() + wider.place(), from, to, by);
        self.put_header(group, wider);
        self.count_rewritten(GROUP - at);
        self.store.located(wider, at)
    }

    /// Moves the bits from `from` to `to` of a group up by `by` bits, from 1 to 63; zeros take
    /// their place.
    fn push_bits(&self, first: usize, from: u32, to: u32, by: u32) {
        for word in (from / 64..(to + by).div_ceil(64)).rev() {
            let at = first + word as usize;
            let (old, start) = (self.block.word(at), word * 64);
            let below = if start > from { self.block.word(at - 1) } else { 0 };
            let pushed = old << by | below >> (64 - by);
            // Bits before `from` stay, those from `from + by` on are pushed.
            let stay = low_bits(from.saturating_sub(start));
            let gone = low_bits((from + by).saturating_sub(start));
            self.put(at, old & stay | pushed & !gone);
        }
    }

    /// Rewrites a group at the scale that a counter of `bits` bits needs.
    #[cold]
    fn change_scale(&mut self, group: usize, at: usize, bits: u32) -> Located {
        let values = self.values(group);
        let mut widened = values;
        widened[at] = u64::MAX >> (64 - bits);
        let header = Header::narrowest(&widened);
        let header = header.at_place(self.lengthen(group, header.words()));
        let first = self.store.first() + header.place();
        let words = data(header, &values);
        (0..header.words()).for_each(|word| self.put(first + word, words[word]));
        self.put_header(group, header);
        self.count_rewritten(GROUP);
        self.store.located(header, at)
    }

    /// Returns the counters of a group.
    fn values(&self, group: usize) -> [u64; GROUP] {
        let header = Store::header(&self.block, group);
        let (first, mut bit) = (self.store.first() + header.place(), 0);
        std::array::from_fn(|at| {
            let width = header.width(at);
            let located = Located::new(first, bit, width);
            bit += width;
            located.read(&self.block)
        })
    }

    /// Returns where a group's data begin and end.
    fn extent(&self, group: usize) -> (usize, usize) {
        let header = Store::header(&self.block, group);
        (header.place(), header.place() + header.words())
    }

    /// Makes a group's data `words` long and returns where they begin; new words are zero. Groups
    /// between it and the nearest unused words are moved: those behind it first, and only if no
    /// unused words are left there, those before, itself included.
    #[cold]
    fn lengthen(&mut self, group: usize, words: usize) -> usize {
        let (mut start, end) = self.extent(group);
        let old = end - start;
        self.own[LIVE] = self.own[LIVE].wrapping_add(words as u64).wrapping_sub(old as u64);
        if words <= old {
            return start;
        }
        self.moved = u64::MAX;
        let more = words - old;
        let behind = self.push_behind(group, more);
        if behind < more {
            start = self.push_before(group, more - behind);
        }
        let first = self.store.first() + start;
        (old..words).for_each(|word| self.put(first + word, 0));
        start
    }

    /// Pushes the groups behind this one up to leave `more` unused words after it; returns the
    /// number of unused words there now, at most `more`.
    fn push_behind(&mut self, group: usize, more: usize) -> usize {
        let limit = self.block.cells.len().saturating_sub(self.store.first());
        let (mut next, mut end, mut unused) = (group + 1, self.extent(group).1, 0_usize);
        let mut bound = limit;
        while next <= self.store.groups {
            let (start, after) =
                if next < self.store.groups { self.extent(next) } else { (limit, limit) };
            bound = start;
            unused += start.saturating_sub(end);
            if unused >= more {
                break;
            }
            (next, end) = (next + 1, after);
        }
        for pushed in (group + 1..next.min(self.store.groups)).rev() {
            let (start, end) = self.extent(pushed);
            let to = (start + more).min(bound.saturating_sub(end - start));
            self.move_group(pushed, to);
            bound = to;
        }
        unused.min(more)
    }

    /// Pushes a group and those before it down by `more` words; returns its new beginning.
    fn push_before(&mut self, group: usize, more: usize) -> usize {
        let (mut first, mut unused) = (group, 0_usize);
        let mut bound;
        loop {
            bound = if first == 0 { 0 } else { self.extent(first - 1).1 };
            unused += self.extent(first).0.saturating_sub(bound);
            if unused >= more || first == 0 {
                break;
            }
            first -= 1;
        }
        for pushed in first..=group {
            let (start, end) = self.extent(pushed);
            let to = start.saturating_sub(more).max(bound);
            self.move_group(pushed, to);
            bound = to + (end - start);
        }
        self.extent(group).0
    }

    /// Moves a group's data; the old and the new place may overlap.
    fn move_group(&mut self, group: usize, to: usize) {
        let header = Store::header(&self.block, group);
        if header.place() == to {
            return;
        }
        let from = self.store.first() + header.place();
        let mut words = [0; MOST_GROUP_WORDS];
        let words = &mut words[..header.words()];
        words.iter_mut().enumerate().for_each(|(at, word)| *word = self.block.word(from + at));
        for (at, &word) in words.iter().enumerate() {
            self.put(self.store.first() + to + at, word);
        }
        self.put_header(group, header.at_place(to));
        self.count_rewritten(GROUP);
    }

    /// Lays the store out anew in `end` words, or in the suitable number of words.
    #[cold]
    fn rebuild(&mut self, end: Option<usize>) {
        let store = self.store;
        let empty = self.own[END] == 0;
        let groups: Vec<_> = (0..store.groups)
            .map(|group| {
                let values = if empty { [0; GROUP] } else { self.values(group) };
                let header = Header::narrowest(&values);
                (header, data(header, &values))
            })
            .collect();
        let live: usize = groups.iter().map(|(header, _)| header.words()).sum();
        let end = end.unwrap_or_else(|| store.end_for(live).min(room_now(&self.block)));
        self.own[END] = end as u64;
        self.own[LIVE] = live as u64;
        let guess = Guess::of(store.first(), end, store.groups);
        let (mut free, mut left) = (0, live);
        let mut image = vec![0; self.block.cells.len()];
        for (group, (header, words)) in groups.iter().enumerate() {
            // At its home, unless the groups before it need that space, or those after it all the
            // rest.
            let last = end.saturating_sub(store.first() + left);
            let at = guess.home(group).min(last).max(free);
            fill(&mut image, group * HEADER_WORDS, &header.at_place(at).words_of());
            fill(&mut image, store.first() + at, &words[..header.words()]);
            (free, left) = (at + header.words(), left - header.words());
        }
        image.iter().enumerate().for_each(|(at, &word)| self.put(at, word));
    }

    fn count_rebuild(&mut self) {
        self.own[REBUILDS] = self.own[REBUILDS].wrapping_add(1);
        self.count_rewritten(self.store.groups * GROUP);
    }

    fn count_rewritten(&mut self, counters: usize) {
        self.own[REWRITTEN] = self.own[REWRITTEN].wrapping_add(counters as u64);
    }
}

/// Returns the data of a group's counters in the layout of its header.
fn data(header: Header, values: &[u64; GROUP]) -> [u64; MOST_GROUP_WORDS] {
    let mut words = [0; MOST_GROUP_WORDS];
    let mut bit = 0;
    for (at, &value) in values.iter().enumerate() {
        let (word, shift, width) = ((bit / 64) as usize, bit % 64, header.width(at));
        words[word] |= value << shift;
        if shift + width > 64 {
            words[word + 1] |= value >> (64 - shift);
        }
        bit += width;
    }
    words
}

/// Copies words to their place; those beyond the end are omitted.
fn fill(image: &mut [u64], at: usize, words: &[u64]) {
    for (to, from) in image.iter_mut().skip(at).zip(words) {
        *to = *from;
    }
}

/// Returns the lowest `count` bits as a mask, all 64 for more.
#[inline]
fn low_bits(count: u32) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

const _: () = assert!(MOST_GROUPS * MOST_GROUP_WORDS < 1 << 13);
