//! Where the banks of an image lie, for the handle that has it open: in files of the filter's
//! directory, or in one file without a name, which it hands out to others.

use crate::error::{Error, Result};
use crate::format::names::FileName;
use crate::image::live_file::Control;
use crate::image::named_banks::NamedBanks;
use crate::image::rare_space;
use crate::media::{Access, BankPlace, BankStore, HandedOut, Media};
use crate::primitives::Mutex;
use ebbtide_core::kind::Kind;
use std::io;
use std::sync::Arc;

/// Returns the size that decides where a kind's banks lie: that of the first bank, `first`, or the
/// most that a kind whose banks follow the number of keys may take.
#[must_use]
pub fn most_bytes(kind: &dyn Kind, first: u64) -> u64 {
    if kind.changes_banks() { kind.max_memory().unwrap_or(u64::MAX) } else { first }
}

/// The files of an image's banks.
#[derive(Debug)]
pub struct BankFiles {
    store: Arc<dyn BankStore>,
    /// What makes the file without a name available to other processes.
    handed_out: Mutex<Option<Box<dyn HandedOut>>>,
}

impl BankFiles {
    /// Decides where the banks of a new image lie, which may take `bytes`, and notes it in its
    /// header, whose file has the name `temporary`.
    ///
    /// # Errors
    /// [`Error::Io`], also if there is too little memory.
    pub fn create(
        media: &Arc<dyn Media>,
        (header, temporary): (&Control, &str),
        bytes: u64,
    ) -> Result<Self> {
        let failed = Error::io("allocate the live image of", media.path());
        let store = match media.create_unnamed(bytes).map_err(failed)? {
            Some(store) => store,
            None => Self::named(media, header),
        };
        if let Some(file) = store.unnamed() {
            rare_space::allocate_holders(header, &**media, temporary)?;
            header.holders().set_file(file.identity());
        }
        Ok(Self::over(store))
    }

    /// Finds where the banks of an image lie that other handles use.
    ///
    /// # Errors
    /// [`Error::Io`], also if no process that has the file hands it out.
    pub fn find(media: &Arc<dyn Media>, header: &Control, access: Access) -> Result<Self> {
        let holders = header.holders();
        let Some(wanted) = holders.file() else {
            return Ok(Self::over(Self::named(media, header)));
        };
        let live = FileName::Live.to_string();
        let found = media.find_unnamed(&wanted, (&live, &holders.all()), access);
        found.map(Self::over).map_err(Error::io("attach to the live image of", media.path()))
    }

    fn named(media: &Arc<dyn Media>, header: &Control) -> Arc<dyn BankStore> {
        Arc::new(NamedBanks::new(media.clone(), header.identity().timeline))
    }

    fn over(store: Arc<dyn BankStore>) -> Self {
        Self { store, handed_out: Mutex::new(None) }
    }

    /// Makes the file that contains the banks available to other processes, for the handle in this
    /// session slot.
    pub fn hand_out(&self, header: &Control, slot: u16) {
        let Some(file) = self.store.unnamed() else { return };
        header.holders().note(slot, file.holder());
        // Where it fails, processes of the same user can attach nevertheless, and the task of the
        // log tries again.
        let _ = self.hand_out_if_missing(slot);
    }

    /// Makes the file available as [`BankFiles::hand_out`] does, if that has failed so far.
    ///
    /// # Errors
    /// The system's error.
    pub fn hand_out_if_missing(&self, slot: u16) -> io::Result<()> {
        let Some(file) = self.store.unnamed() else { return Ok(()) };
        let mut handed_out = self.handed_out.lock();
        if handed_out.is_none() {
            let name = FileName::Attach { slot }.to_string();
            *handed_out = Some(file.hand_out(&name, &FileName::Live.to_string())?);
        }
        Ok(())
    }

    /// Hands the file out no more. The handle still has its session slot.
    pub fn stop_handing_out(&self) {
        let handed_out = self.handed_out.lock().take();
        drop(handed_out);
    }

    /// Frees the space of these banks, of an image that was retired by an alteration: what is read
    /// of them from here on must not be an answer.
    pub fn free(&self, banks: impl Iterator<Item = u32>) {
        for bank in banks {
            // If this fails, the space is free when the last handle has left. A file with a name
            // keeps its space for as long as a handle has it mapped.
            if let Ok(file) = self.store.open(bank, Access::Write) {
                let _ = file.bytes().and_then(|bytes| file.free(0..bytes));
            }
            let _ = self.store.remove(bank, &[]);
        }
    }

    /// Returns where they take space.
    #[must_use]
    pub fn place(&self) -> BankPlace {
        self.store.unnamed().map_or(BankPlace::BesideLog, |file| file.place())
    }

    /// Returns the banks by their numbers.
    #[must_use]
    pub fn store(&self) -> &dyn BankStore {
        &*self.store
    }
}
