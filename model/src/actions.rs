//! What may happen, one at a time.

use crate::log::{Effect, PAGES, Part, Slot};
use crate::state::{Checkpoint, Page, Snapshot, State, Writer};
use stateright::{Model, Property};

/// How much may happen.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Operations.
    pub operations: u8,
    /// Checkpoints.
    pub checkpoints: u8,
    /// Syncs and write-backs that fail.
    pub failures: u8,
    /// Kills and power cuts.
    pub crashes: u8,
}

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A failed write-back of the image is not looked for: a fault that ebbtide had.
    LostWriteBack,
    /// An event is a record of its own, which counts only if an insert follows: a fault that
    /// ebbtide had.
    BareEvents,
    /// A failed sync does not poison: it is tried again.
    SyncAgain,
    /// A snapshot gets its name before the log is durable through its end.
    SnapshotAheadOfLog,
    /// Log is removed before the snapshot that replaces it has its name.
    RemovesFirst,
    /// A sync acknowledges what a writer has not published yet.
    AcknowledgesReserved,
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A writer begins an operation.
    Begin {
        /// The block that the key is in.
        block: usize,
        /// Whether the window steps before.
        steps: bool,
    },
    /// The writer publishes the next slot, and applies the operation after the last one.
    Publish,
    /// A leader syncs the log up to the tail.
    Sync,
    /// The same, but the disk fails: the slots count as clean.
    SyncFails,
    /// The system drops a clean slot, and reads it again.
    ForgetSlot(usize),
    /// The system writes a page of the image back.
    WriteBack(usize),
    /// The same, but the disk fails: the page counts as clean, and the failure is noted.
    WriteBackFails(usize),
    /// The system drops a clean page, and reads it again.
    ForgetPage(usize),
    /// A process looks whether a write-back has failed.
    Look,
    /// A checkpoint begins, copies the next page, commits the log, names the snapshot, removes log.
    CheckpointBegins,
    /// See above.
    CheckpointCopies,
    /// See above.
    CheckpointCommits,
    /// See above.
    CheckpointNames,
    /// See above.
    CheckpointRemoves,
    /// All processes are killed, and one opens the filter again.
    Kill,
    /// A power cut, and an opening.
    PowerCut {
        /// A bit for each dirty slot that has reached the disk.
        reached: u32,
    },
}

/// The protocol, or one with a mistake.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// How much may happen.
    pub bounds: Bounds,
    /// What is left out.
    pub mistake: Option<Mistake>,
}

impl Protocol {
    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn of_writer(&self, state: &State, actions: &mut Vec<Action>) {
        if state.writer.is_some() {
            actions.push(Action::Publish);
        } else if state.counts[0] < self.bounds.operations && !state.poisoned {
            for (block, steps) in [(0, false), (1, false), (0, true)] {
                actions.push(Action::Begin { block, steps });
            }
        }
    }

    fn of_checkpoint(&self, state: &State, actions: &mut Vec<Action>) {
        let Some(checkpoint) = &state.checkpoint else {
            if state.counts[1] < self.bounds.checkpoints && !state.poisoned {
                actions.push(Action::CheckpointBegins);
            }
            return;
        };
        let copied = checkpoint.copied.len();
        if copied < PAGES {
            // The state block first. A page is copied under its stripe.
            let page = page_copied(copied);
            let held = state.writer.as_ref().is_some_and(|writer| {
                // Each part of a bare event is written under its own stripe.
                let alone = self.has(Mistake::BareEvents);
                let parts = &writer.parts[if alone { writer.published } else { 0 }..];
                let parts = if alone { &parts[..1] } else { parts };
                parts.iter().any(|part| part.effect.page() == page)
            });
            if !held {
                actions.push(Action::CheckpointCopies);
            }
        } else if !checkpoint.committed && !self.has(Mistake::SnapshotAheadOfLog) {
            if state.writer.is_none() && !state.poisoned {
                actions.push(Action::CheckpointCommits);
            }
        } else if !checkpoint.named {
            let removes_first = self.has(Mistake::RemovesFirst);
            if removes_first && state.removed < checkpoint.start {
                actions.push(Action::CheckpointRemoves);
            } else if !state.poisoned {
                actions.push(Action::CheckpointNames);
            }
        } else {
            actions.push(Action::CheckpointRemoves);
        }
    }

    fn of_system(&self, state: &State, actions: &mut Vec<Action>) {
        let fails = state.counts[2] < self.bounds.failures;
        let walked = state.writer.is_none() || self.has(Mistake::AcknowledgesReserved);
        if !state.poisoned && walked && state.durable < state.tail() {
            actions.push(Action::Sync);
            if fails {
                actions.push(Action::SyncFails);
            }
        }
        for (at, slot) in state.slots.iter().enumerate() {
            if !slot.dirty && slot.memory != slot.disk {
                actions.push(Action::ForgetSlot(at));
            }
        }
        for (at, page) in state.pages.iter().enumerate() {
            // Without a failure it does not matter what the disk holds: a cut loses the image.
            if page.dirty && fails {
                actions.push(Action::WriteBack(at));
                actions.push(Action::WriteBackFails(at));
            } else if !page.dirty && page.memory != page.disk {
                actions.push(Action::ForgetPage(at));
            }
        }
        if state.noted && !state.poisoned && !self.has(Mistake::LostWriteBack) {
            actions.push(Action::Look);
        }
        if state.counts[3] < self.bounds.crashes {
            actions.push(Action::Kill);
            let dirty = state.slots.iter().enumerate().filter(|(_, slot)| slot.dirty);
            let dirty = dirty.fold(0_u32, |all, (at, _)| all | 1 << at);
            // All subsets.
            let mut reached = dirty;
            loop {
                actions.push(Action::PowerCut { reached });
                if reached == 0 {
                    break;
                }
                reached = (reached - 1) & dirty;
            }
        }
    }

    fn begin(&self, state: &mut State, block: usize, steps: bool) {
        let effects = [steps.then_some(Effect::Step), Some(Effect::Insert(block))];
        let effects: Vec<Effect> = effects.into_iter().flatten().collect();
        let last = effects.len() - 1;
        let parts = effects.iter().enumerate().map(|(at, &effect)| {
            let left = if self.has(Mistake::BareEvents) { 0 } else { (last - at) as u8 };
            Part { id: state.parts + at as u8, effect, left, void: false }
        });
        let parts: Vec<Part> = parts.collect();
        state.parts += parts.len() as u8;
        state.counts[0] += 1;
        // All slots are reserved at once; bare events one by one.
        let reserved = if self.has(Mistake::BareEvents) { 1 } else { parts.len() };
        let first = state.tail();
        for part in &parts[..reserved] {
            state.slots.push(Slot::default());
            state.history.push(*part);
        }
        state.writer = Some(Writer { first, parts, published: 0 });
    }

    fn publish(&self, state: &mut State) {
        let Some(mut writer) = state.writer.take() else { return };
        let bare = self.has(Mistake::BareEvents);
        let (lsn, part) = (writer.first + writer.published, writer.parts[writer.published]);
        state.slots[lsn] = Slot { memory: Some(part), dirty: true, ..state.slots[lsn] };
        writer.published += 1;
        if bare {
            state.apply(lsn, part);
        }
        if let Some(next) = writer.parts.get(writer.published) {
            if bare {
                state.slots.push(Slot::default());
                state.history.push(*next);
            }
            state.writer = Some(writer);
        } else if !bare {
            for (at, part) in writer.parts.iter().enumerate() {
                state.apply(writer.first + at, *part);
            }
        }
    }

    fn sync(&self, state: &mut State) {
        for slot in state.slots.iter_mut().filter(|slot| slot.dirty) {
            *slot = Slot { disk: slot.memory, dirty: false, ..*slot };
        }
        state.durable = state.tail();
    }

    fn sync_fails(&self, state: &mut State) {
        for slot in &mut state.slots {
            slot.dirty = false;
        }
        state.counts[2] += 1;
        (state.log_failed, state.poisoned) = (true, !self.has(Mistake::SyncAgain));
    }

    /// Names the snapshot, unless a page may have been lost before it was copied.
    fn name(&self, state: &mut State) {
        if state.noted && !self.has(Mistake::LostWriteBack) {
            (state.poisoned, state.checkpoint) = (true, None);
            return;
        }
        let Some(checkpoint) = &mut state.checkpoint else { return };
        let mut pages = [Default::default(); PAGES];
        for (at, content) in checkpoint.copied.iter().enumerate() {
            pages[page_copied(at)] = *content;
        }
        checkpoint.named = true;
        state.snapshot = Some(Snapshot { start: checkpoint.start, end: checkpoint.end, pages });
        if self.has(Mistake::RemovesFirst) {
            state.checkpoint = None;
        }
    }

    fn remove(&self, state: &mut State) {
        let Some(checkpoint) = &state.checkpoint else { return };
        state.removed = checkpoint.start;
        let named = checkpoint.named;
        state.slots[..state.removed].fill(Slot::default());
        if named {
            state.checkpoint = None;
        }
    }
}

/// Returns the page that is copied at this place.
fn page_copied(at: usize) -> usize {
    (at + PAGES - 1) % PAGES
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_none() {
            self.of_writer(state, actions);
            self.of_checkpoint(state, actions);
            self.of_system(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Begin { block, steps } => self.begin(&mut state, block, steps),
            Action::Publish => self.publish(&mut state),
            Action::Sync => self.sync(&mut state),
            Action::SyncFails => self.sync_fails(&mut state),
            Action::ForgetSlot(at) => state.slots[at].memory = state.slots[at].disk,
            Action::WriteBack(at) => {
                let memory = state.pages[at].memory;
                state.pages[at] = Page { memory, disk: memory, dirty: false };
            }
            Action::WriteBackFails(at) => {
                state.pages[at].dirty = false;
                state.counts[2] += 1;
                state.noted = true;
            }
            Action::ForgetPage(at) => state.pages[at].memory = state.pages[at].disk,
            Action::Look => (state.poisoned, state.checkpoint) = (true, None),
            Action::CheckpointBegins => {
                state.counts[1] += 1;
                let (start, copied) = (state.tail(), Vec::new());
                let checkpoint =
                    Checkpoint { start, copied, end: 0, committed: false, named: false };
                state.checkpoint = Some(checkpoint);
            }
            Action::CheckpointCopies => {
                let end = state.tail();
                if let Some(checkpoint) = &mut state.checkpoint {
                    checkpoint
                        .copied
                        .push(state.pages[page_copied(checkpoint.copied.len())].memory);
                    checkpoint.end = end;
                }
            }
            Action::CheckpointCommits => {
                self.sync(&mut state);
                if let Some(checkpoint) = &mut state.checkpoint {
                    checkpoint.committed = true;
                }
            }
            Action::CheckpointNames => self.name(&mut state),
            Action::CheckpointRemoves => self.remove(&mut state),
            Action::Kill | Action::PowerCut { .. } => {
                state.counts[3] += 1;
                let reached = if let Action::PowerCut { reached } = action { reached } else { 0 };
                let cut = action != Action::Kill;
                state.recover(cut, reached, self.mistake);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what is recovered is right", |_, state: &State| {
                state.wrong.is_none()
            }),
            Property::sometimes("a crash after log was removed", |_, state: &State| {
                state.removed > 0 && state.counts[3] > 0
            }),
            Property::sometimes(
                "a write-back has failed, and the image was rebuilt",
                |_, state: &State| {
                    state.counts[2] > 0
                        && state.counts[3] > 0
                        && !state.log_failed
                        && state.tail() > 0
                },
            ),
            Property::sometimes("operations after two crashes", |_, state: &State| {
                state.counts[3] > 1 && state.writer.is_some()
            }),
        ]
    }
}
