//! How a value is saved, loaded, copied, written as commands, hashed and moved.
//!
//! A snapshot holds, of one value: the format (a number), its state (a number), and its pieces
//! (`ebbtide_core::machine`: at most 1 MiB each, with checksums), ended by empty bytes. A value
//! whose pieces are still coming is saved as those that have come, so a replica or a restart in
//! between does not lose them. Blocks are saved as they are, so what is loaded is the same bit by
//! bit.

use crate::commands::effects::{LOAD_CHUNK, diverging};
use crate::ffi::{Emitter, Loader, Saver, Stored, Summary, WORDS_THAT_MOVE};
use crate::value::Value;
use ebbtide_core::atomic::AtomicU64;
use ebbtide_core::machine::{Machine, Restore};
use std::ffi::CStr;

/// The format of what is saved.
const FORMAT: u64 = 1;

const READY: u64 = 0;
const LOADING: u64 = 1;
const DIVERGED: u64 = 2;

/// Returns the pieces of a value, in any state.
fn pieces(value: &Value) -> impl Iterator<Item = Vec<u8>> + '_ {
    let whole = value.any_machine().map(Machine::pieces);
    let part = value.pieces_so_far().map(Restore::pieces);
    whole.into_iter().chain(part).flatten()
}

/// Loads the pieces of a value.
fn restored(from: &mut Loader) -> Result<Restore, String> {
    const SHORT: &str = "the value ends early";
    let first = from.bytes().ok_or(SHORT)?;
    let mut restore = Restore::begin(&first).map_err(|error| error.to_string())?;
    drop(first);
    loop {
        let piece = from.bytes().ok_or(SHORT)?;
        if piece.is_empty() {
            return Ok(restore);
        }
        restore.add(&piece).map_err(|error| error.to_string())?;
    }
}

impl Stored for Value {
    const NAME: &'static CStr = c"ebbfilter";
    const VERSION: i32 = 1;

    fn save(&self, to: &mut Saver) {
        to.number(FORMAT);
        to.number(match (self.any_machine(), self.is_diverged()) {
            (None, _) => LOADING,
            (Some(_), false) => READY,
            (Some(_), true) => DIVERGED,
        });
        pieces(self).for_each(|piece| to.bytes(&piece));
        to.bytes(&[]);
    }

    fn load(from: &mut Loader, _: i32) -> Result<Box<Self>, String> {
        match from.number() {
            Some(FORMAT) => {}
            found => return Err(format!("expected format {FORMAT}, found {found:?}")),
        }
        let state = from.number().filter(|&state| state <= DIVERGED);
        let state = state.ok_or("expected a state from 0 to 2")?;
        let restore = restored(from)?;
        if state == LOADING {
            let is_part = !restore.is_complete();
            return is_part.then(|| Box::new(Self::loading(restore))).ok_or("it is whole".into());
        }
        let machine = restore.finish().map_err(|error| error.to_string())?;
        let mut value = Box::new(Self::ready(machine));
        value.set_diverged(state == DIVERGED);
        Ok(value)
    }

    fn rewrite(&self, to: &mut Emitter) {
        for (number, piece) in pieces(self).enumerate() {
            to.numbered(LOAD_CHUNK, number as u64, &piece);
        }
        if self.is_diverged() {
            let (command, lsn, record) = diverging();
            to.numbered(command, lsn, &record);
        }
    }

    fn memory_bytes(&self) -> usize {
        let part = self.pieces_so_far().map_or(0, Restore::memory_bytes);
        // A filter's own bytes are part of both sizes.
        let whole = self.any_machine();
        let whole = whole.map_or(0, |machine| machine.memory_bytes() - size_of_val(machine));
        size_of_val(self) + whole + part
    }

    fn effort(&self) -> usize {
        // Chunks of a filter have at most 1 MiB.
        1 + (self.memory_bytes() >> 20)
    }

    fn digest(&self, to: &mut Summary) {
        match self.any_machine() {
            Some(machine) => to.bytes(&machine.digest().to_le_bytes()),
            None => pieces(self).for_each(|piece| to.bytes(&piece)),
        }
        to.bytes(self.state().as_bytes());
    }

    fn copy(&self) -> Option<Box<Self>> {
        let mut pieces = pieces(self);
        let mut restore = Restore::begin(&pieces.next()?).ok()?;
        pieces.try_for_each(|piece| restore.add(&piece)).ok()?;
        if !restore.is_complete() {
            return Some(Box::new(Self::loading(restore)));
        }
        let mut copied = Box::new(Self::ready(restore.finish().ok()?));
        copied.set_diverged(self.is_diverged());
        Some(copied)
    }

    fn relocate(&mut self, relocate: &mut dyn FnMut(Box<[AtomicU64]>) -> Box<[AtomicU64]>) {
        if let Some(machine) = self.any_machine_mut() {
            machine.relocate(WORDS_THAT_MOVE, relocate);
        }
    }
}
