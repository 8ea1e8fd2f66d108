//! All parts of an image. How a record is applied to it: `apply_record`.

use crate::error::Result;
use crate::image::bank::{Bank, BankForm, BankSet};
use crate::image::bank_files::{BankFiles, most_bytes};
use crate::image::identity::Identity;
use crate::image::live_file::Control;
use crate::image::mapped_banks::{Banks, FixedBanks};
use crate::image::rare_space;
use crate::media::{Access, Media};
use crate::primitives::{AtomicU64, Hint, Mutex};
use arc_swap::ArcSwap;
use ebbtide_core::block::Layout;
use ebbtide_core::kind::{Event, Kind, State, Totals};
use std::sync::{Arc, OnceLock};

/// A mapped image.
#[derive(Debug)]
pub struct Image {
    header: Control,
    layout: Layout,
    form: BankForm,
    banks: ArcSwap<BankSet>,
    /// The banks of a kind that never changes them, until the filter is cleared: read without an
    /// atomic swap.
    fixed: OnceLock<FixedBanks>,
    /// 1 once others are mapped than the fixed ones, after a clear.
    has_cleared: Hint,
    /// Held while the set of banks is updated to the state block.
    following: Mutex<()>,
    media: Arc<dyn Media>,
    /// The name of the file `live` before it has that name, in its creator.
    temporary: Option<String>,
    files: BankFiles,
    access: Access,
}

/// The initial state of a filter that is cleared: its banks exist, but are not listed yet.
#[derive(Debug)]
pub struct Cleared {
    words: Box<[AtomicU64]>,
    banks: Vec<Bank>,
}

impl Image {
    /// Creates an empty image for a timeline under the temporary name `temporary`. No bank is open
    /// yet.
    ///
    /// # Errors
    /// [`crate::Error::Io`], including a full disk.
    pub fn create(
        media: Arc<dyn Media>,
        temporary: &str,
        identity: Identity,
        layout: Layout,
        kind: &dyn Kind,
    ) -> Result<Self> {
        let form = BankForm::of(kind);
        let first = Bank::bytes(layout, kind.geometry(layout), form)?;
        let header = Control::create(&*media, temporary, identity)?;
        let files = BankFiles::create(&media, (&header, temporary), most_bytes(kind, first))?;
        let image = Self::over(header, layout, form, (media, files), Access::Write);
        Ok(Self { temporary: Some(temporary.to_owned()), ..image })
    }

    /// Opens the image that other handles use; see [`Control::attach`].
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    pub fn attach(
        media: Arc<dyn Media>,
        header: Control,
        layout: Layout,
        kind: &dyn Kind,
        access: Access,
    ) -> Result<Self> {
        let Identity { stripes, state_words, .. } = *header.identity();
        if (stripes, state_words as usize) != (layout.stripes, kind.state_words()) {
            let expected = format!("{} stripes, {} words", layout.stripes, kind.state_words());
            let found = format!("{stripes} stripes, {state_words} words");
            return Err(header.damaged(media.path(), expected, found));
        }
        let files = BankFiles::find(&media, &header, access)?;
        let image = Self::over(header, layout, BankForm::of(kind), (media, files), access);
        image.follow()?;
        while !image.fix_banks(kind) {
            image.follow()?;
        }
        Ok(image)
    }

    fn over(
        header: Control,
        layout: Layout,
        form: BankForm,
        (media, files): (Arc<dyn Media>, BankFiles),
        access: Access,
    ) -> Self {
        let (banks, fixed) = (ArcSwap::default(), OnceLock::new());
        let (following, has_cleared) = (Mutex::new(()), Hint::default());
        let temporary = None;
        Self {
            header,
            layout,
            form,
            banks,
            fixed,
            has_cleared,
            following,
            media,
            temporary,
            files,
            access,
        }
    }

    /// Notes the mapped banks, for a kind whose banks change with a clear only. Returns false if
    /// there was one since they were mapped.
    fn fix_banks(&self, kind: &dyn Kind) -> bool {
        if kind.changes_banks() {
            return true;
        }
        let fixed = FixedBanks::of(&self.header, self.banks.load_full());
        fixed.map(|fixed| self.fixed.get_or_init(|| fixed)).is_some()
    }

    /// Returns where the banks lie.
    pub fn files(&self) -> &BankFiles {
        &self.files
    }

    /// Returns the medium of its files.
    pub fn media(&self) -> &dyn Media {
        &*self.media
    }

    /// Returns the file `live`.
    #[must_use]
    #[inline]
    pub fn header(&self) -> &Control {
        &self.header
    }

    /// Returns the layout that all banks share.
    #[must_use]
    #[inline]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns whether its blocks grow.
    #[inline]
    pub(super) fn grows(&self) -> bool {
        self.form.grows
    }

    /// Returns the currently mapped banks.
    #[inline]
    pub fn banks(&self) -> Banks<'_> {
        self.banks_near(&self.header.state())
    }

    /// As [`Image::banks`], for a caller that has read the state.
    #[inline]
    pub fn banks_near(&self, state: &State<'_>) -> Banks<'_> {
        match self.fixed.get() {
            Some(fixed) if fixed.next_bank == state.next_bank() => Banks::Fixed(&fixed.banks),
            _ => Banks::Current(self.banks.load()),
        }
    }

    /// Returns the banks that the state of this version lists, if they are mapped; otherwise see
    /// [`Image::follow`].
    #[must_use]
    #[inline]
    pub fn banks_of(&self, state: &State<'_>, version: u64) -> Option<Banks<'_>> {
        let banks = self.banks_near(state);
        let are_listed = match &banks {
            Banks::Fixed(_) => true,
            Banks::Current(banks) => banks.is_of(version),
        };
        are_listed.then_some(banks)
    }

    /// Returns recently mapped banks, for prefetching. Reads no mapped word: a forked child, which
    /// has no mapping, gets here before it is refused.
    #[inline]
    pub fn recent_banks(&self) -> Banks<'_> {
        match self.fixed.get() {
            // After a clear these are freed, and to read there would allocate their pages again.
            Some(fixed) if self.has_cleared.get() == 0 => Banks::Fixed(&fixed.banks),
            _ => Banks::Current(self.banks.load()),
        }
    }

    /// Returns the currently mapped banks, to be kept over many operations.
    #[must_use]
    pub fn keep_banks(&self) -> Arc<BankSet> {
        self.banks.load_full()
    }

    /// Maps the banks that the state block lists now and unmaps the others.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    pub fn follow(&self) -> Result<()> {
        let _following = self.following.lock();
        let state_block = self.header.state_block();
        loop {
            let version = state_block.version();
            if self.banks.load().is_of(version) {
                return Ok(());
            }
            let state = state_block.state(version);
            let (listed, next_bank) = (self.listed(&state), state.next_bank());
            if state_block.unchanged(version) {
                self.banks.store(Arc::new(listed?.of_version(version)));
                if self.fixed.get().is_some_and(|fixed| fixed.next_bank != next_bank) {
                    self.has_cleared.set(1);
                }
                return Ok(());
            }
            // An event came in between: the list may have been inconsistent, or its banks may be
            // gone.
        }
    }

    /// Returns the banks that a state lists, mapped.
    fn listed(&self, state: &State<'_>) -> Result<BankSet> {
        let (mapped, mut listed) = (self.banks.load(), BankSet::default());
        for entry in state.banks() {
            let known = mapped.get(entry.slot);
            let known =
                known.filter(|bank| bank.id() == entry.id && bank.geometry() == entry.geometry);
            let bank = match known {
                Some(bank) => bank.clone(),
                None => {
                    let Identity { uuid, timeline, .. } = *self.header.identity();
                    let (layout, geometry) = (self.layout, entry.geometry);
                    let (image, how) = ((uuid, timeline), (self.form, self.access));
                    Arc::new(Bank::open(
                        self.files.store(),
                        image,
                        entry.id,
                        layout,
                        geometry,
                        how,
                    )?)
                }
            };
            listed = listed.with(entry.slot, Some(bank));
        }
        Ok(listed)
    }

    /// Returns whether the state block lists a bank. If so, what was read of the bank before is
    /// what was stored there.
    #[must_use]
    pub fn lists(&self, bank: u32) -> bool {
        let state_block = self.header.state_block();
        loop {
            let version = state_block.version_after_reads();
            let is_listed = state_block.state(version).banks().any(|entry| entry.id == bank);
            if state_block.unchanged(version) {
                return is_listed;
            }
        }
    }

    /// Initialises a new filter: the kind's initial state, and its first bank.
    ///
    /// # Errors
    /// [`crate::Error::Io`], including a full disk.
    pub fn start(&self, kind: &dyn Kind) -> Result<()> {
        self.header.state_block().change(0, |state| kind.start(state, self.layout));
        self.create_listed_banks()
    }

    /// Creates every bank that the state block lists, in an image that has none.
    ///
    /// # Errors
    /// [`crate::Error::Io`], including a full disk.
    pub fn create_listed_banks(&self) -> Result<()> {
        for entry in self.header.state().banks() {
            drop(self.create_bank(entry.id, entry.geometry)?);
        }
        self.follow()
    }

    /// Returns the banks that the state block lists, mapped. Consistent for the holder of stripe 0.
    ///
    /// # Errors
    /// As [`Image::follow`].
    pub fn listed_banks(&self) -> Result<Vec<Arc<Bank>>> {
        self.follow()?;
        Ok(self.banks().iter().map(|(_, bank)| bank.clone()).collect())
    }

    fn create_bank(&self, id: u32, geometry: ebbtide_core::block::Geometry) -> Result<Bank> {
        let Identity { uuid, timeline, .. } = *self.header.identity();
        Bank::create(self.files.store(), uuid, timeline, id, self.layout, geometry, self.form)
    }

    /// Allocates the initial state of the filter to be cleared. The caller holds stripe 0, or is
    /// alone.
    ///
    /// # Errors
    /// [`crate::Error::Io`], including a full disk: then nothing has changed.
    pub fn prepare_clear(&self, kind: &dyn Kind) -> Result<Cleared> {
        let words: Box<[AtomicU64]> = (0..kind.state_words()).map(|_| AtomicU64::new(0)).collect();
        let state = State::new(&words);
        state.begin_after(&self.header.state());
        kind.start(&state, self.layout);
        // Unused ones, allocated for a record that found no room, are replaced.
        let banks = state.banks().map(|entry| self.create_bank(entry.id, entry.geometry));
        let banks = banks.collect::<Result<_>>()?;
        Ok(Cleared { words, banks })
    }

    /// Clears the filter-wide state. The caller holds all stripes, has exclusive access, or repairs
    /// stripe 0 after a dead owner of all stripes.
    pub fn clear_state(&self, lsn: u64, cleared: &Cleared) {
        let before: Vec<_> = self.header.state().banks().collect();
        for bank in &cleared.banks {
            bank.begin_at(lsn);
        }
        self.header.state_block().change(lsn, |state| state.become_as(&State::new(&cleared.words)));
        for entry in before {
            self.remove_bank(entry.id);
        }
    }

    /// Creates the bank that an event opens, before its record is written, unless it is open. The
    /// caller holds stripe 0, or has exclusive access. An unused bank of the same number, created
    /// for a record that found no room, is replaced.
    ///
    /// # Errors
    /// [`crate::Error::Io`], including a full disk: then nothing has changed.
    pub fn prepare(&self, event: &Event) -> Result<Option<Bank>> {
        match *event {
            Event::OpenBank { id, geometry, .. } if id >= self.header.state().next_bank() => {
                self.create_bank(id, geometry).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Removes the bank that an event closes, once the state block no longer lists it.
    pub fn remove_closed(&self, event: &Event) {
        if let Event::CloseBank { id, .. } = *event {
            self.remove_bank(id);
        }
    }

    /// Removes a bank that the state block no longer lists.
    fn remove_bank(&self, bank: u32) {
        let listed: Vec<u32> = self.header.state().banks().map(|entry| entry.id).collect();
        // If this fails, the space is free at the latest when the image ends.
        let _ = self.files.store().remove(bank, &listed);
    }

    /// Allocates the space of positions, unless there are any. The caller holds stripe 0, or has
    /// exclusive access.
    ///
    /// # Errors
    /// As [`Image::allocate_claims`].
    pub fn allocate_positions(&self) -> Result<()> {
        rare_space::allocate_positions(&self.header, self.media(), self.temporary.as_deref())
    }

    /// Allocates the table of claims, unless it has its space. The caller holds stripe 0, or has
    /// exclusive access.
    ///
    /// # Errors
    /// [`crate::Error::Io`], including a full disk: then nothing has changed.
    pub fn allocate_claims(&self) -> Result<()> {
        rare_space::allocate_claims(&self.header, self.media(), self.temporary.as_deref())
    }

    /// Returns the sums over all stripes; exact for a caller that holds them all, or has exclusive
    /// access.
    #[must_use]
    pub fn sum_stripes(&self) -> (Totals, u64) {
        let (mut totals, mut time) = (Totals::default(), 0);
        for index in 0..self.header.stripe_count() {
            let sums = self.header.stripe(index).sums();
            totals.inserts = totals.inserts.wrapping_add(sums.inserts);
            totals.new_bits = totals.new_bits.wrapping_add(sums.new_bits);
            time = time.max(sums.time);
        }
        (totals, time)
    }

    /// Finishes a rebuild: fills the header's caches from the stripes, and sets the ends of the
    /// log.
    pub fn finish(&self, kind: &dyn Kind, tail: u64) {
        let are_fixed = self.fix_banks(kind);
        debug_assert!(are_fixed, "nobody else changes the banks of a rebuild");
        let (totals, time) = self.sum_stripes();
        self.header.counters().begin(totals);
        self.header.time().begin_at(time);
        self.header.tail().begin_at(tail);
        self.header.durable().begin_at(tail);
    }

    /// Returns the LSN of the last record that changed the state: the largest of all stripes and
    /// the state block.
    #[must_use]
    pub fn last_change(&self) -> u64 {
        let stripes = (0..self.header.stripe_count()).map(|at| self.header.stripe(at).lsn());
        stripes.max().unwrap_or(0).max(self.header.state_block().current().lsn())
    }

    /// Returns the bytes of memory: everything except the log.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let banks = self.banks();
        self.header.bytes() + banks.iter().map(|(_, bank)| bank.memory_bytes()).sum::<u64>()
    }
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests;
