//! The settings of one operation.

use crate::failure::{Failure, Result};
use engine::{Any, Call, Durability, Filter, Handle, Since, Timestamp};
use std::time::Duration;

/// Flag of a call: its time is time_us instead of the clock's.
pub const EBBTIDE_WITH_TIME: u32 = 1;
/// Flag of a call: each key has the weight in the member weight.
pub const EBBTIDE_WITH_WEIGHT: u32 = 2;
/// Flag of a call to ebbtide_check_and_insert, ebbtide_check_and_insert_all and ebbtide_batch_new:
/// only new keys are inserted, so that a key stays in the window since it was last accepted.
/// Without the flag every check inserts, and a key stays in the window since it was last seen.
pub const EBBTIDE_SINCE_LAST_ACCEPTED: u32 = 4;
/// Flag of a call: it fails with EBBTIDE_WOULD_WAIT where it would have to wait, for example for a
/// sync, a checkpoint or another process. Nothing has happened then; of a call with several keys,
/// those before the one that would wait are inserted, see ebbtide_insert_all.
pub const EBBTIDE_WITHOUT_WAITING: u32 = 8;

/// The call has the filter's durability.
pub const EBBTIDE_DURABILITY_OF_FILTER: u32 = 0;
/// The call returns when its records are on the disk.
pub const EBBTIDE_DURABILITY_ALWAYS: u32 = 1;
/// The call never causes a sync.
pub const EBBTIDE_DURABILITY_NEVER: u32 = 2;
/// The records of the call are on the disk after interval_us microseconds at the latest, or 100 if
/// that is more. The filter's handle syncs as often from then on.
pub const EBBTIDE_DURABILITY_INTERVAL: u32 = 3;

const FLAGS: u32 =
    EBBTIDE_WITH_TIME | EBBTIDE_WITH_WEIGHT | EBBTIDE_SINCE_LAST_ACCEPTED | EBBTIDE_WITHOUT_WAITING;

/// Settings of one call. Set size to sizeof(struct ebbtide_call) and all other members to 0, or
/// initialise it with EBBTIDE_CALL_INIT; then set what differs. A later version may add members at
/// the end; size then keeps programs built with this one working.
///
/// Settings that an operation does not use are checked and have no effect: the weight of a query,
/// for example.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// sizeof(struct ebbtide_call).
    pub size: usize,
    /// EBBTIDE_WITH_TIME, EBBTIDE_WITH_WEIGHT, EBBTIDE_SINCE_LAST_ACCEPTED and
    /// EBBTIDE_WITHOUT_WAITING, joined by |.
    pub flags: u32,
    /// EBBTIDE_DURABILITY_OF_FILTER, _ALWAYS, _NEVER or _INTERVAL.
    pub durability: u32,
    /// The longest time between two syncs in microseconds, from 1 to 86400000000 (a day), for
    /// EBBTIDE_DURABILITY_INTERVAL; otherwise 0.
    pub interval_us: u64,
    /// The time of the operation in microseconds since the Unix epoch, with EBBTIDE_WITH_TIME;
    /// otherwise 0. Keys may be inserted out of order within the window.
    pub time_us: u64,
    /// The weight of each key, with EBBTIDE_WITH_WEIGHT; otherwise 0. For kinds that count it is
    /// the count, a whole number from 1 to 1099511562240; for kinds with importances it is the
    /// importance.
    pub weight: f64,
    /// How long the call waits at most for a live owner of a lock that it needs, such as a stopped
    /// process, in microseconds, and at least 10000; then it fails with EBBTIDE_WOULD_WAIT, and
    /// nothing has happened; in a call with several keys the limit is that of each key, and those
    /// before are inserted. 0, and programs built without this member: as long as it takes. It
    /// waits as long as it takes for what makes progress, such as a sync. Not together with
    /// EBBTIDE_WITHOUT_WAITING.
    pub wait_us: u64,
}

impl Settings {
    /// The size in the first version; smaller ones are refused.
    pub(crate) const FIRST: usize = 40;

    /// Checks the settings.
    ///
    /// # Errors
    /// Flags and durabilities that do not exist, and values without their flag.
    pub fn check(&self) -> Result<()> {
        let unknown = self.flags & !FLAGS;
        if unknown != 0 {
            return Err(Failure::argument(format!(
                "flags of the call: expected EBBTIDE_WITH_TIME, EBBTIDE_WITH_WEIGHT, \
                 EBBTIDE_SINCE_LAST_ACCEPTED and EBBTIDE_WITHOUT_WAITING, found {unknown:#x}"
            )));
        }
        let without = |name: &str, flag: &str| {
            Err(Failure::argument(format!("{name} of the call is set, but not {flag}")))
        };
        if self.time_us != 0 && !self.has(EBBTIDE_WITH_TIME) {
            return without("time_us", "the flag EBBTIDE_WITH_TIME");
        }
        if self.weight != 0.0 && !self.has(EBBTIDE_WITH_WEIGHT) {
            return without("weight", "the flag EBBTIDE_WITH_WEIGHT");
        }
        if self.interval_us != 0 && self.durability != EBBTIDE_DURABILITY_INTERVAL {
            return without("interval_us", "the durability EBBTIDE_DURABILITY_INTERVAL");
        }
        if self.wait_us != 0 && self.has(EBBTIDE_WITHOUT_WAITING) {
            return Err(Failure::argument(
                "wait_us of the call is set together with the flag EBBTIDE_WITHOUT_WAITING",
            ));
        }
        self.durability().map(|_| ())
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns the time, if one is set.
    pub fn time(&self) -> Option<u64> {
        self.has(EBBTIDE_WITH_TIME).then_some(self.time_us)
    }

    /// Returns the weight, if one is set.
    pub fn weight(&self) -> Option<f64> {
        self.has(EBBTIDE_WITH_WEIGHT).then_some(self.weight)
    }

    /// Returns the durability, `None` for that of the filter.
    fn durability(&self) -> Result<Option<Durability>> {
        Ok(Some(match (self.durability, self.interval_us) {
            (EBBTIDE_DURABILITY_OF_FILTER, _) => return Ok(None),
            (EBBTIDE_DURABILITY_ALWAYS, _) => Durability::Always,
            (EBBTIDE_DURABILITY_NEVER, _) => Durability::Never,
            (EBBTIDE_DURABILITY_INTERVAL, micros) => {
                let durability = Durability::Interval(Duration::from_micros(micros));
                durability.check().map_err(|_| wrong_interval(micros))?;
                durability
            }
            (other, _) => {
                return Err(Failure::argument(format!(
                    "durability of the call: expected 0 to 3, found {other}"
                )));
            }
        }))
    }
}

#[cold]
fn wrong_interval(found: u64) -> Failure {
    Failure::argument(format!(
        "interval_us of the call: expected 1 to 86400000000 (a day), found {found}"
    ))
}

/// Returns the call with the settings of a query.
#[inline]
pub fn query<'a, H: Handle>(mut call: Call<'a, H>, settings: Option<&Settings>) -> Call<'a, H> {
    let Some(settings) = settings else { return call };
    if settings.has(EBBTIDE_WITH_TIME) {
        call = call.time(Timestamp::from_unix_micros(settings.time_us));
    }
    if settings.has(EBBTIDE_WITHOUT_WAITING) {
        call = call.without_waiting();
    }
    if settings.wait_us != 0 {
        call = call.waiting_at_most(Duration::from_micros(settings.wait_us));
    }
    call
}

/// Returns the call with all settings.
#[inline]
pub fn write<'a>(
    call: Call<'a, Filter<Any>>,
    settings: Option<&Settings>,
) -> Result<Call<'a, Filter<Any>>> {
    let mut call = query(call, settings);
    let Some(settings) = settings else { return Ok(call) };
    if let Some(durability) = settings.durability()? {
        call = call.durability(durability);
    }
    if settings.has(EBBTIDE_WITH_WEIGHT) {
        call = call.weight(settings.weight);
    }
    if settings.has(EBBTIDE_SINCE_LAST_ACCEPTED) {
        call = call.since(Since::LastAccepted);
    }
    Ok(call)
}
