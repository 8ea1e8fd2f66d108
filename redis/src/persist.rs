//! How a value is saved, loaded, copied, written as commands, hashed and moved.
//!
//! A snapshot holds, of one value: the format (a number), its state (a number), and its pieces
//! (`crate::pieces`: at most 1 MiB each, with checksums), ended by empty bytes. The format is 2 of
//! a filter that is being altered, otherwise 1, which versions before alterations load. A value
//! whose pieces are still coming is saved as those that have come, so a replica or a restart in
//! between does not lose them. Blocks are saved as they are, so what is loaded is the same bit by
//! bit.

use crate::commands::effects::{LOAD_CHUNK, diverging};
use crate::ffi::{Emitter, Loader, Saver, Stored, Summary, WORDS_THAT_MOVE};
use crate::former::Former;
use crate::pieces::Import;
use crate::value::Value;
use ebbtide_core::Error;
use ebbtide_core::atomic::AtomicU64;
use ebbtide_core::machine::Machine;
use std::ffi::CStr;

/// The format of a filter.
const PLAIN: u64 = 1;
/// The format of a filter that is being altered.
const ALTERED: u64 = 2;

const READY: u64 = 0;
const LOADING: u64 = 1;
const DIVERGED: u64 = 2;

/// Admits filters of any size: what was saved is loaded.
fn admit(_: u64) -> Result<(), Error> {
    Ok(())
}

/// Loads the pieces of a value.
fn imported(from: &mut Loader, format: u64) -> Result<Import, String> {
    const SHORT: &str = "the value ends early";
    let first = from.bytes().ok_or(SHORT)?;
    let mut import = Import::begin(&first).map_err(|error| error.to_string())?;
    drop(first);
    if import.is_altered() != (format == ALTERED) {
        return Err(format!("expected pieces of format {format}, found others"));
    }
    loop {
        let piece = from.bytes().ok_or(SHORT)?;
        if piece.is_empty() {
            return Ok(import);
        }
        import.add(&piece, admit).map_err(|error| error.to_string())?;
    }
}

impl Stored for Value {
    const NAME: &'static CStr = c"ebbfilter";
    const VERSION: i32 = 1;

    fn save(&self, to: &mut Saver) {
        let is_altered =
            self.former().is_some() || self.pieces_so_far().is_some_and(Import::is_altered);
        to.number(if is_altered { ALTERED } else { PLAIN });
        to.number(match (self.any_machine(), self.is_diverged()) {
            (None, _) => LOADING,
            (Some(_), false) => READY,
            (Some(_), true) => DIVERGED,
        });
        self.pieces().for_each(|piece| to.bytes(&piece));
        to.bytes(&[]);
    }

    fn load(from: &mut Loader, _: i32) -> Result<Box<Self>, String> {
        let format = from.number().filter(|&format| [PLAIN, ALTERED].contains(&format));
        let format = format.ok_or("expected format 1 or 2: use a later version")?;
        let state = from.number().filter(|&state| state <= DIVERGED);
        let state = state.ok_or("expected a state from 0 to 2")?;
        let import = imported(from, format)?;
        if state == LOADING {
            let is_part = !import.is_complete();
            return is_part.then(|| Box::new(Self::loading(import))).ok_or("it is whole".into());
        }
        let mut value = Box::new(Self::imported(import).map_err(|error| error.to_string())?);
        value.set_diverged(state == DIVERGED);
        Ok(value)
    }

    fn rewrite(&self, to: &mut Emitter) {
        for (number, piece) in self.pieces().enumerate() {
            to.numbered(LOAD_CHUNK, number as u64, &piece);
        }
        if self.is_diverged() {
            let (command, lsn, record) = diverging();
            to.numbered(command, lsn, &record);
        }
    }

    fn memory_bytes(&self) -> usize {
        // A filter's own bytes are part of both sizes.
        let whole = |machine: &Machine| machine.memory_bytes() - size_of_val(machine);
        let former =
            self.former().map_or(0, |former| size_of::<Former>() + whole(former.machine()));
        let part = self.pieces_so_far().map_or(0, Import::memory_bytes);
        size_of_val(self) + self.any_machine().map_or(0, whole) + former + part
    }

    fn effort(&self) -> usize {
        // The server frees what counts for more than 64 in the background: from 1 MiB on.
        1 + (self.memory_bytes() >> 14)
    }

    fn digest(&self, to: &mut Summary) {
        match self.state_digest() {
            Some(digest) => to.bytes(&digest.to_le_bytes()),
            None => self.pieces().for_each(|piece| to.bytes(&piece)),
        }
        to.bytes(self.state().as_bytes());
    }

    fn copy(&self) -> Option<Box<Self>> {
        let mut pieces = self.pieces();
        let mut import = Import::begin(&pieces.next()?).ok()?;
        pieces.try_for_each(|piece| import.add(&piece, admit)).ok()?;
        if !import.is_complete() {
            return Some(Box::new(Self::loading(import)));
        }
        let mut copied = Box::new(Self::imported(import).ok()?);
        copied.set_diverged(self.is_diverged());
        Some(copied)
    }

    fn relocate(&mut self, relocate: &mut dyn FnMut(Box<[AtomicU64]>) -> Box<[AtomicU64]>) {
        self.machines_mut().for_each(|machine| machine.relocate(WORDS_THAT_MOVE, &mut *relocate));
    }
}
