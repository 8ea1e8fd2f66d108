//! The filter of a key, and the time of an operation on it.

use crate::arguments::clock;
use crate::ffi::{Failure, Slot};
use crate::value::Value;
use ebbtide_core::machine::Machine;
use ebbtide_core::time::OperationTime;

/// Returns the value of a key.
///
/// # Errors
/// `NOTFOUND`.
#[inline]
pub fn present<'a>(slot: &'a mut Slot<'_, Value>) -> Result<&'a mut Value, Failure> {
    slot.value().ok_or_else(|| {
        Failure::new(
            "NOTFOUND",
            "there is no such key; EB.RESERVE creates a filter, or ebbtide.default-spec",
        )
    })
}

/// Returns the time of an operation without a given one. The clock is read for kinds only that use
/// time.
#[inline]
pub fn now(machine: &Machine) -> OperationTime {
    let wall = if machine.kind().uses_time() { clock() } else { 0 };
    let time = machine.time(Some(wall), None);
    time.unwrap_or_else(|_| machine.latest())
}
