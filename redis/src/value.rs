//! What a key holds: a filter, or the part of one whose pieces are still coming.

use crate::ffi::Failure;
use crate::figures::{APPLIED, DIVERGED, EMITTED, FILTERS, Figure, LOADING, SATURATED};
use crate::leases::Leases;
use ebbtide_core::Error;
use ebbtide_core::machine::{Machine, PieceCursor, Position, Restore};

/// How often, in records, a filter is measured for `INFO`.
const MEASURED_EVERY: u64 = 1 << 16;
/// The blocks that are measured then.
const MEASURED_BLOCKS: u64 = 8;

/// What a key holds: a filter, or pieces of one.
pub struct Value {
    /// `None` until the last piece has come.
    machine: Option<Machine>,
    /// The pieces so far, until the last one has come. (Boxes: both are aligned to more than 16
    /// bytes, and the server could not move the value.)
    restore: Option<Box<Restore>>,
    /// Whether a record came that does not continue the filter. It answers no questions then.
    is_diverged: bool,
    is_saturated: bool,
    leases: Leases,
    /// Where `EB.SCANDUMP` stopped last, at this position of the filter.
    dump: Option<Box<(Position, PieceCursor)>>,
}

impl Drop for Value {
    fn drop(&mut self) {
        FILTERS.subtract(1);
        self.set_diverged(false);
        self.set_saturated(false);
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

impl Value {
    fn new(machine: Option<Machine>, restore: Option<Box<Restore>>) -> Self {
        FILTERS.add(1);
        LOADING.add(restore.is_some().into());
        let (is_diverged, is_saturated, leases) = (false, false, Leases::default());
        Self { machine, restore, is_diverged, is_saturated, leases, dump: None }
    }

    /// Creates the value of a filter.
    pub fn ready(machine: Machine) -> Self {
        Self::new(Some(machine), None)
    }

    /// Creates the value of a filter whose pieces are coming.
    pub fn loading(restore: Restore) -> Self {
        Self::new(None, Some(Box::new(restore)))
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
            Some(_) => Err(Failure::new(
                "DIVERGED",
                "the filter got a record that does not continue it; delete the key, or let this \
                 replica synchronise in full",
            )),
            None => {
                let next = self.restore.as_ref().map_or(0, |restore| restore.number());
                Err(Failure::new("NOTREADY", format!("the filter waits for its piece {next}")))
            }
        }
    }

    /// Returns the filter, if its last piece has come, in any state.
    pub fn any_machine(&self) -> Option<&Machine> {
        self.machine.as_ref()
    }

    /// As [`Value::any_machine`], to be changed.
    pub fn any_machine_mut(&mut self) -> Option<&mut Machine> {
        self.machine.as_mut()
    }

    /// Returns the pieces so far, if the last one has not come.
    pub fn pieces_so_far(&self) -> Option<&Restore> {
        self.restore.as_deref()
    }

    /// As [`Value::pieces_so_far`], to be added to.
    pub fn pieces_so_far_mut(&mut self) -> Option<&mut Restore> {
        self.restore.as_deref_mut()
    }

    /// Makes the filter of its pieces, if the last one has come.
    ///
    /// # Errors
    /// As [`Restore::finish`].
    pub fn complete(&mut self) -> Result<bool, Error> {
        let Some(restore) = self.restore.take_if(|restore| restore.is_complete()) else {
            return Ok(false);
        };
        LOADING.subtract(1);
        self.machine = Some(restore.finish()?);
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

    /// Takes where `EB.SCANDUMP` stopped, if it was at this position of the filter and piece.
    pub fn take_dump(&mut self, position: Position, number: u32) -> Option<PieceCursor> {
        let (at, cursor) = *self.dump.take()?;
        (at == position && cursor.number() == number).then_some(cursor)
    }

    /// Stores where `EB.SCANDUMP` stopped.
    pub fn keep_dump(&mut self, position: Position, cursor: PieceCursor) {
        self.dump = Some(Box::new((position, cursor)));
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
        if from / MEASURED_EVERY != to / MEASURED_EVERY {
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
    pub fn set_saturated(&mut self, saturated: bool) {
        set(&mut self.is_saturated, saturated, &SATURATED);
    }
}
