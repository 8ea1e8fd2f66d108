//! The log: operations of one or two slots, of which all count or none.

/// The page that the steps of the window change.
pub const STATE: usize = 2;
/// Two blocks and the state block.
pub const PAGES: usize = 3;

/// What a slot does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Inserts a key into a block.
    Insert(usize),
    /// Moves the window: an event, which changes the state block.
    Step,
}

impl Effect {
    /// Returns the page that it changes.
    pub fn page(self) -> usize {
        match self {
            Self::Insert(block) => block,
            Self::Step => STATE,
        }
    }
}

/// One slot of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part {
    /// The number of this part among all that were ever written: what a page remembers of it.
    pub id: u8,
    /// What it does.
    pub effect: Effect,
    /// The number of slots of the operation that follow this one.
    pub left: u8,
    /// Whether it was voided: its operation does not count.
    pub void: bool,
}

/// A slot, in memory and on the disk. A slot without a part is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Slot {
    /// What processes read.
    pub memory: Option<Part>,
    /// What is left after a power cut.
    pub disk: Option<Part>,
    /// Whether the system knows that memory is newer. Without that it may drop what memory holds.
    pub dirty: bool,
}

/// Returns the end of the log that counts, from `start` on: before the first empty slot, and before
/// an operation that is not whole.
pub fn end(slots: &[Option<Part>], start: usize) -> usize {
    let (mut whole, mut at) = (start, start);
    while let Some(Some(part)) = slots.get(at) {
        at += 1;
        if part.left == 0 || part.void {
            whole = at;
        }
    }
    whole
}

/// Returns which of these slots count. With `bare_events`, the rule of format 5: every slot counts
/// alone, an event only if an insert follows it anywhere.
pub fn counted(slots: &[Option<Part>], bare_events: bool) -> impl Iterator<Item = (usize, Part)> {
    let is_insert = |part: &Part| matches!(part.effect, Effect::Insert(_)) && !part.void;
    let last = slots.iter().rposition(|slot| slot.as_ref().is_some_and(is_insert));
    let parts = slots.iter().enumerate().filter_map(|(at, slot)| slot.map(|part| (at, part)));
    parts.filter(move |(at, part)| {
        !part.void && (!bare_events || part.effect != Effect::Step || last > Some(*at))
    })
}
