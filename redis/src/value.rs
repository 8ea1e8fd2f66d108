//! What a key holds: a filter, also the former one while it is being altered, or the part of one
//! whose pieces are still coming.

use crate::ffi::Failure;
use crate::figures::{ALTERING, APPLIED, DIVERGED, EMITTED, FILTERS, Figure, LOADING, SATURATED};
use crate::former::{Former, View, may_follow};
use crate::leases::Leases;
use crate::pieces::{self, Import, Place, Places};
use ebbtide_core::hash::DigestHasher;
use ebbtide_core::kind::Micros;
use ebbtide_core::machine::Machine;
use ebbtide_core::{Error, hash};

/// How often, in records, a filter is measured for `INFO`; earlier when their number passes a power
/// of two, because small filters are full by then.
const MEASURED_EVERY: u64 = 1 << 16;
/// The blocks that are measured then.
const MEASURED_BLOCKS: u64 = 8;

/// What a key holds: a filter, or pieces of one.
pub struct Value {
    /// `None` until the last piece has come.
    machine: Option<Machine>,
    /// The former filter, while it is being altered.
    former: Option<Box<Former>>,
    /// The pieces so far, until the last one has come. (Boxes: these are aligned to more than 16
    /// bytes, and the server could not move the value.)
    restore: Option<Box<Import>>,
    /// Whether a record came that does not continue the filter. It answers no questions then.
    is_diverged: bool,
    is_saturated: bool,
    leases: Leases,
    /// Where `EB.SCANDUMP` has been. Not part of the filter's memory: a question changes nothing.
    places: Places,
}

impl Drop for Value {
    fn drop(&mut self) {
        FILTERS.subtract(1);
        self.set_diverged(false);
        self.set_saturated(false);
        self.set_former(None);
        if self.restore.is_some() {
            LOADING.subtract(1);
        }
    }
}

/// Changes a flag, and the figure that counts those that are set.
fn set(flag: &mut bool, to: bool, figure: &Figure) {
    match (*flag, to) {
        (false, true) => figure.add(1),
        (true, false) => figure.subtract(1),
        (false, false) | (true, true) => {}
    }
    *flag = to;
}

#[cold]
fn diverged() -> Failure {
    let message = "the filter got a record that does not continue it; delete the key, or let this \
                   replica synchronise in full";
    Failure::new("DIVERGED", message)
}

#[cold]
fn waiting(import: Option<&Import>) -> Failure {
    let next = import.map_or(0, Import::number);
    Failure::new("NOTREADY", format!("the filter waits for its piece {next}"))
}

impl Value {
    fn new(machine: Option<Machine>, restore: Option<Box<Import>>) -> Self {
        FILTERS.add(1);
        LOADING.add(restore.is_some().into());
        let (is_diverged, is_saturated, leases) = (false, false, Leases::begin());
        let (former, places) = (None, Places::default());
        Self { machine, former, restore, is_diverged, is_saturated, leases, places }
    }

    /// Creates the value of a filter.
    pub fn ready(machine: Machine) -> Self {
        Self::new(Some(machine), None)
    }

    /// Creates the value of a filter whose pieces are coming.
    pub fn loading(import: Import) -> Self {
        Self::new(None, Some(Box::new(import)))
    }

    /// Creates the value of a filter all of whose pieces have come.
    ///
    /// # Errors
    /// As [`Import::finish`].
    pub fn imported(import: Import) -> Result<Self, Error> {
        let (machine, former) = import.finish()?;
        let mut value = Self::ready(machine);
        value.set_former(former);
        value.measure();
        Ok(value)
    }

    /// Returns the name of the state in `EB.INFO`.
    pub fn state(&self) -> &'static str {
        match (&self.machine, self.is_diverged) {
            (None, _) => "loading",
            (Some(_), true) => "diverged",
            (Some(_), false) => "ready",
        }
    }

    /// Returns the filter.
    ///
    /// # Errors
    /// `NOTREADY` before its last piece has come, `DIVERGED` after a record that does not continue
    /// it.
    #[inline]
    pub fn machine(&mut self) -> Result<&mut Machine, Failure> {
        match &mut self.machine {
            Some(machine) if !self.is_diverged => Ok(machine),
            Some(_) => Err(diverged()),
            None => Err(waiting(self.restore.as_deref())),
        }
    }

    /// Returns the filter and the former one, if it is being altered.
    ///
    /// # Errors
    /// As [`Value::machine`].
    #[inline]
    pub fn both(&mut self) -> Result<Option<(&mut Machine, &mut Former)>, Failure> {
        if self.former.is_none() {
            return Ok(None);
        }
        self.machine()?;
        Ok(self.machine.as_mut().zip(self.former.as_deref_mut()))
    }

    /// Returns the filters for a question; `time` returns its time for one of them.
    ///
    /// # Errors
    /// As [`Value::machine`].
    #[inline]
    pub fn view(&self, time: impl Fn(&Machine) -> Micros) -> Result<View<'_>, Failure> {
        match &self.machine {
            Some(machine) if !self.is_diverged => Ok(View::new(machine, self.former(), time)),
            Some(_) => Err(diverged()),
            None => Err(waiting(self.restore.as_deref())),
        }
    }

    /// Returns the former filter, while it is being altered, in any state.
    #[inline]
    pub fn former(&self) -> Option<&Former> {
        self.former.as_deref()
    }

    fn set_former(&mut self, former: Option<Former>) {
        match (self.former.is_some(), former.is_some()) {
            (false, true) => ALTERING.add(1),
            (true, false) => ALTERING.subtract(1),
            (false, false) | (true, true) => {}
        }
        self.former = former.map(Box::new);
    }

    /// Puts a filter in the place of the present one, which becomes the former one.
    ///
    /// # Errors
    /// As [`Former::new`]: then nothing has changed.
    pub fn alter(&mut self, current: Machine) -> Result<(), &'static str> {
        if let Some(machine) = &self.machine {
            may_follow(current.as_identity(), machine.as_identity())?;
        }
        if let Some(machine) = self.machine.replace(current) {
            let current = self.machine.as_ref();
            let former = current.map(|current| Former::new(machine, current, None)).transpose()?;
            self.set_former(former);
        }
        // The new filter is empty.
        self.set_saturated(false);
        Ok(())
    }

    /// Notes records that were applied to the current filter, from an LSN on, and drops the former
    /// filter if the current one has its whole window.
    #[inline]
    pub fn settle(&mut self, lsn: u64, records: &[u8]) {
        if self.former.is_some() {
            self.settle_altered(lsn, records);
        }
    }

    #[cold]
    fn settle_altered(&mut self, lsn: u64, records: &[u8]) {
        let (Some(current), Some(former)) = (&self.machine, &mut self.former) else { return };
        former.note(current, lsn, records);
        if former.is_over(current, 0) {
            self.set_former(None);
        }
    }

    /// Returns the digest of the filter, and of the former one.
    pub fn state_digest(&self) -> Option<u128> {
        let current = self.machine.as_ref()?.digest();
        let Some(former) = self.former() else { return Some(current) };
        let mut both = DigestHasher::default();
        for digest in [current, former.machine().digest()] {
            both.words(&[digest as u64, (digest >> 64) as u64]);
        }
        both.words(&[former.began().map_or(0, |began| began + 1)]);
        Some(both.finish())
    }

    /// Returns a number that differs after each change of the filter.
    ///
    /// # Errors
    /// As [`Value::machine`].
    pub fn chain(&mut self) -> Result<u64, Failure> {
        let current = self.machine()?.position();
        let former = self.former().map(|former| former.machine().position());
        Ok(former.map_or(current.chain, |former| {
            hash::mix(current.chain ^ current.uuid as u64) ^ former.chain
        }))
    }

    /// Returns the filter, if its last piece has come, in any state.
    pub fn any_machine(&self) -> Option<&Machine> {
        self.machine.as_ref()
    }

    /// Returns all filters, to be changed, in any state.
    pub fn machines_mut(&mut self) -> impl Iterator<Item = &mut Machine> {
        let former = self.former.iter_mut().map(|former| former.machine_mut());
        self.machine.iter_mut().chain(former)
    }

    /// Returns the pieces so far, if the last one has not come.
    pub fn pieces_so_far(&self) -> Option<&Import> {
        self.restore.as_deref()
    }

    /// Returns all pieces, or those that have come.
    pub fn pieces(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let whole = self.machine.iter().flat_map(|machine| pieces::of(machine, self.former()));
        whole.chain(self.restore.iter().flat_map(|import| import.pieces()))
    }

    /// As [`Value::pieces_so_far`], to be added to.
    pub fn pieces_so_far_mut(&mut self) -> Option<&mut Import> {
        self.restore.as_deref_mut()
    }

    /// Makes the filter of its pieces, if the last one has come.
    ///
    /// # Errors
    /// As [`Import::finish`].
    pub fn complete(&mut self) -> Result<bool, Error> {
        let Some(restore) = self.restore.take_if(|restore| restore.is_complete()) else {
            return Ok(false);
        };
        LOADING.subtract(1);
        let (machine, former) = restore.finish()?;
        self.machine = Some(machine);
        self.set_former(former);
        self.measure();
        Ok(true)
    }

    /// Returns whether the filter got a record that does not continue it.
    pub fn is_diverged(&self) -> bool {
        self.is_diverged
    }

    /// Sets whether the filter got a record that does not continue it.
    pub fn set_diverged(&mut self, diverged: bool) {
        set(&mut self.is_diverged, diverged, &DIVERGED);
    }

    /// Returns what is known here of the claims, with their time.
    pub fn leases(&mut self) -> Leases {
        if let Some(machine) = &self.machine {
            self.leases.learn_time(machine);
        }
        self.leases
    }

    /// Stores what is known of the claims.
    pub fn set_leases(&mut self, leases: Leases) {
        self.leases = leases;
    }

    /// Returns a piece of a filter that is ready, and whether it is the last one; `None` beyond it.
    /// Pieces before it are made once more if none behind them was asked for since the last change.
    ///
    /// # Errors
    /// As [`Value::machine`].
    pub fn piece(&mut self, number: u32) -> Result<Option<(Vec<u8>, bool)>, Failure> {
        let chain = self.chain()?;
        let Some(machine) = &self.machine else { return Ok(None) };
        let former = self.former.as_deref();
        let make = |place: &mut Place| place.piece(machine, former);
        Ok(self.places.piece((chain, number), former.is_some(), make))
    }

    /// Counts records that were decided here, from one LSN to before another.
    #[inline]
    pub fn emitted(&mut self, from: u64, to: u64) {
        EMITTED.add(to - from);
        self.wrote(from, to);
    }

    /// Counts records that were applied as another server has decided them.
    #[inline]
    pub fn applied(&mut self, from: u64, to: u64) {
        APPLIED.add(to - from);
        self.leases = self.leases.of_another();
        self.wrote(from, to);
    }

    /// Now and then the filter is measured for `INFO`.
    #[inline]
    fn wrote(&mut self, from: u64, to: u64) {
        let passes_power = from.leading_zeros() != to.leading_zeros();
        if passes_power || from / MEASURED_EVERY != to / MEASURED_EVERY {
            self.measure();
        }
    }

    #[cold]
    fn measure(&mut self) {
        let machine = self.machine.as_ref();
        let stat = machine.map(|machine| machine.stat(machine.latest().time, MEASURED_BLOCKS));
        self.set_saturated(stat.is_some_and(|stat| stat.saturated));
    }

    /// Sets whether the filter is clearly fuller than planned.
    fn set_saturated(&mut self, saturated: bool) {
        set(&mut self.is_saturated, saturated, &SATURATED);
    }
}
