//! What a client may not exceed: the server's memory, the size of a filter, the records of a
//! command.
//!
//! What the primary or the append-only file says has been decided, so it is never refused: a
//! replica with less memory, or with lower settings, has the same filters.

use crate::config;
use crate::ffi::{Call, Failure, Outcome};
use ebbtide_core::Kind;
use ebbtide_core::kind::split_weight::count_records;

/// Checks the size of a new filter against the configured limit, and against the server's memory.
///
/// # Errors
/// `TOOLARGE`.
pub fn new_filter(call: &Call<'_>, planned: u64) -> Outcome {
    if call.is_replayed() {
        return Ok(());
    }
    let most = config::max_filter_bytes();
    if planned > most {
        let message = format!(
            "the filter needs {planned} bytes, ebbtide.max-filter-bytes allows {most}: raise it, \
             or spread the keys over several filters"
        );
        return Err(Failure::new("TOOLARGE", message));
    }
    match call.memory_left() {
        Some(left) if planned > left => {
            let message =
                format!("the filter needs {planned} bytes, maxmemory allows {left}: raise it");
            Err(Failure::new("TOOLARGE", message))
        }
        _ => Ok(()),
    }
}

/// Checks the size of the filter that takes the place of another one, beside which it exists until
/// its window is whole.
///
/// # Errors
/// `TOOLARGE`.
pub fn altered_filter(call: &Call<'_>, planned: u64, former: u64) -> Outcome {
    let (both, most) = (planned.saturating_add(former), config::max_filter_bytes());
    if !call.is_replayed() && both > most {
        let message = format!(
            "the filter needs {planned} bytes beside the {former} of the former one, \
             ebbtide.max-filter-bytes allows {most} for both: raise it"
        );
        return Err(Failure::new("TOOLARGE", message));
    }
    new_filter(call, planned)
}

/// Checks that the server may allocate memory, for commands that the server itself does not check:
/// it would also refuse those of the primary, and those that find that there is nothing to do.
///
/// # Errors
/// `OOM`.
pub fn memory(call: &Call<'_>) -> Outcome {
    if !call.is_out_of_memory() || call.is_replayed() {
        return Ok(());
    }
    let message = "command not allowed when used memory > 'maxmemory': raise maxmemory, or delete \
                   keys, and send the command again";
    Err(Failure::new("OOM", message))
}

/// Checks how many records a command may emit: those of a number of items of this weight. Each is
/// sent to every replica and to the append-only file, and the server serves nobody meanwhile.
///
/// # Errors
/// `TOOLARGE`.
pub fn records(kind: &dyn Kind, items: usize, weight: u64) -> Outcome {
    let (needed, most) =
        ((items as u64).saturating_mul(count_records(kind, weight)), config::max_command_records());
    if needed <= most {
        return Ok(());
    }
    let message = format!(
        "the command needs up to {needed} records, ebbtide.max-command-records allows {most}: send \
         fewer items in a command, a lower TIMES, or raise it"
    );
    Err(Failure::new("TOOLARGE", message))
}

/// Checks how many records a client may give to a command that applies them.
///
/// # Errors
/// `TOOLARGE`.
pub fn given_records(call: &Call<'_>, count: usize) -> Outcome {
    let most = config::max_command_records();
    if count as u64 <= most || call.is_replayed() {
        return Ok(());
    }
    let message = format!(
        "the command has {count} records, ebbtide.max-command-records allows {most}: send fewer, \
         or raise it"
    );
    Err(Failure::new("TOOLARGE", message))
}
