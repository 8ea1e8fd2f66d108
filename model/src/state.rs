//! The state of the model, and what recovery makes of it.

use crate::actions::Mistake;
use crate::log::{PAGES, Part, Slot, counted, end};

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Content {
    /// A bit for each part that was applied.
    pub parts: u32,
    /// The LSN after the one applied last: replay skips what lies below.
    pub next: usize,
}

impl Content {
    fn apply(&mut self, lsn: usize, part: Part) {
        self.parts |= 1 << part.id;
        self.next = lsn + 1;
    }
}

/// A page of the live image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Page {
    /// What processes read.
    pub memory: Content,
    /// What the system reads if it has dropped the page.
    pub disk: Content,
    /// As [`Slot::dirty`].
    pub dirty: bool,
}

/// A writer within an operation: what is not yet published.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Writer {
    /// The LSN of the first slot.
    pub first: usize,
    /// All parts.
    pub parts: Vec<Part>,
    /// How many are published.
    pub published: usize,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// Records from here on may be missing in it.
    pub start: usize,
    /// Records from here on are not in it.
    pub end: usize,
    /// The copied pages.
    pub pages: [Content; PAGES],
}

/// A checkpoint in progress.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    /// The tail when it began.
    pub start: usize,
    /// The pages copied so far.
    pub copied: Vec<Content>,
    /// The tail when the last page was copied.
    pub end: usize,
    /// Whether the log is durable through `end`.
    pub committed: bool,
    /// Whether the snapshot has its name.
    pub named: bool,
}

/// What is wrong after a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// Something that was acknowledged as durable, or in a process that was only killed.
    Lost,
    /// The state is not that of the records that count.
    Differs,
    /// The snapshot has records that the log has not.
    AheadOfLog,
    /// The log that the snapshot needs is not there.
    LogMissing,
}

/// The whole.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct State {
    /// The log by LSN. Slots below `removed` are empty.
    pub slots: Vec<Slot>,
    /// The log below is removed.
    pub removed: usize,
    /// The pages of the live image.
    pub pages: [Page; PAGES],
    /// Whether the system has noted a failed write-back of a page.
    pub noted: bool,
    /// The writer.
    pub writer: Option<Writer>,
    /// The newest snapshot that has its name.
    pub snapshot: Option<Snapshot>,
    /// The checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Records below were acknowledged as durable.
    pub durable: usize,
    /// A sync has failed, or the image is not trusted: nobody writes until all have closed.
    pub poisoned: bool,
    /// A write to the log was lost.
    pub log_failed: bool,
    /// What the log should hold.
    pub history: Vec<Part>,
    /// The number of parts so far.
    pub parts: u8,
    /// The numbers of operations, checkpoints, failures and crashes so far.
    pub counts: [u8; 4],
    /// What the last recovery found.
    pub wrong: Option<Wrong>,
}

impl State {
    /// Returns the tail: the LSN of the next record.
    pub fn tail(&self) -> usize {
        self.slots.len()
    }

    /// Applies a part to its page.
    pub fn apply(&mut self, lsn: usize, part: Part) {
        let page = &mut self.pages[part.effect.page()];
        page.memory.apply(lsn, part);
        page.dirty = true;
    }

    /// Ends all processes, and the system if `cut`, and opens the filter again. `reached`: which of
    /// the dirty slots have reached the disk at a power cut.
    pub fn recover(&mut self, cut: bool, reached: u32, mistake: Option<Mistake>) {
        let bare = mistake == Some(Mistake::BareEvents);
        if cut {
            for (at, slot) in self.slots.iter_mut().enumerate() {
                let left =
                    if slot.dirty && reached >> at & 1 == 1 { slot.memory } else { slot.disk };
                *slot = Slot { memory: left, disk: left, dirty: false };
            }
        }
        // Records after an operation that is not whole must not be taken for its rest.
        let by_prefix = cut || self.poisoned;
        if !by_prefix && let Some(writer) = self.writer.take() {
            self.void(&writer, bare);
        }
        let records: Vec<Option<Part>> = self.slots.iter().map(|slot| slot.memory).collect();
        let start = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.start);
        let reached = match (by_prefix, bare) {
            (true, false) => end(&records, start),
            (true, true) => {
                (start..).find(|&at| !matches!(records.get(at), Some(Some(_)))).unwrap_or(start)
            }
            (false, _) => records.len(),
        };
        self.wrong = self.judge(&records[..reached.max(start).min(records.len())], start, bare);
        self.begin_anew(reached);
    }

    /// Voids what a dead writer left.
    fn void(&mut self, writer: &Writer, bare: bool) {
        for (at, part) in writer.parts.iter().enumerate() {
            // A bare event stays: it counts if an insert follows.
            if bare && at < writer.published {
                continue;
            }
            let lsn = writer.first + at;
            let part = Part { void: true, left: 0, ..*part };
            if lsn < self.slots.len() {
                self.slots[lsn] = Slot { memory: Some(part), dirty: true, ..self.slots[lsn] };
                self.history[lsn] = part;
            }
        }
    }

    /// Rebuilds the state from the snapshot and these records, and compares it with the history.
    fn judge(&mut self, records: &[Option<Part>], start: usize, bare: bool) -> Option<Wrong> {
        if records.len() < self.durable {
            return Some(Wrong::Lost);
        }
        if self.removed > start {
            return Some(Wrong::LogMissing);
        }
        let snapshot = self.snapshot.as_ref();
        if snapshot.is_some_and(|snapshot| snapshot.end > records.len()) {
            return Some(Wrong::AheadOfLog);
        }
        let mut pages = snapshot.map_or([Content::default(); PAGES], |snapshot| snapshot.pages);
        let mut from_start = records.to_vec();
        from_start[..start].fill(None);
        for (lsn, part) in counted(&from_start, bare) {
            let page = &mut pages[part.effect.page()];
            if lsn >= page.next {
                page.apply(lsn, part);
            }
        }
        let history: Vec<Option<Part>> =
            self.history[..records.len()].iter().copied().map(Some).collect();
        let mut expected = [0_u32; PAGES];
        for (_, part) in counted(&history, bare) {
            expected[part.effect.page()] |= 1 << part.id;
        }
        for (page, rebuilt) in self.pages.iter_mut().zip(pages) {
            *page = Page { memory: rebuilt, disk: Content::default(), dirty: true };
        }
        (pages.map(|page| page.parts) != expected).then_some(Wrong::Differs)
    }

    /// Begins a new timeline at the end of what was recovered.
    fn begin_anew(&mut self, end: usize) {
        self.slots.truncate(end);
        self.history.truncate(end);
        let syncs = self.poisoned;
        for slot in self.slots.iter_mut() {
            slot.dirty |= slot.memory != slot.disk;
            if syncs {
                *slot = Slot { disk: slot.memory, dirty: false, ..*slot };
            }
        }
        if syncs {
            self.durable = end;
        }
        self.durable = self.durable.min(end);
        (self.writer, self.checkpoint) = (None, None);
        (self.noted, self.poisoned, self.log_failed) = (false, false, false);
    }
}
