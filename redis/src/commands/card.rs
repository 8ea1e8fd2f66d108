//! How many different items a filter holds.

use super::key::now;
use crate::arguments::{reach, refused, syntax};
use crate::ffi::{About, Access, Call, Command, Failure, Outcome};
use crate::value::Value;
use ebbtide_core::machine::Machine;
use ebbtide_core::{Error, Within};

/// The most blocks of each bank that are looked at.
const SAMPLED: u64 = 256;

/// `EB.CARD key [reach]`.
pub struct Card;

impl Command for Card {
    const ABOUT: About = About {
        name: c"EB.CARD",
        arity: -2,
        flags: c"readonly",
        categories: c"read",
        key: 1,
        access: Access::Read,
        summary: c"Returns how many different items are in the window or in a part of it, as an \
                   estimate.",
        complexity: c"O(1): at most 256 blocks of each bank are looked at",
    };

    fn run(call: &Call<'_>) -> Outcome {
        if call.count() > 3 {
            return Err(syntax("EB.CARD key [reach]"));
        }
        let within = (call.count() == 3).then(|| reach(call.argument(2))).transpose()?;
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let Some(value) = slot.value() else {
            call.integer(0);
            return Ok(());
        };
        let machine = value.machine()?;
        let known = cardinality(machine, within).map_err(|error| match error {
            Error::Unsupported { kind, .. } if within.is_none() => {
                let message = format!(
                    "a filter of kind {kind} does not contain how many different items it has; \
                     EB.INFO key inserts counts what was added"
                );
                Failure::new("UNSUPPORTED", message)
            }
            error => refused(&error),
        })?;
        call.integer(known as i64);
        Ok(())
    }
}

/// Returns how many different items a filter has in its window or in a part of it, as an estimate.
///
/// # Errors
/// [`Error::Unsupported`] if its kind does not contain that, [`Error::Parameter`] for a part in
/// another unit than the window's.
pub fn cardinality(machine: &Machine, within: Option<Within>) -> Result<u64, Error> {
    let answer = machine.distinct(now(machine).time, within, SAMPLED)?;
    Ok(answer.keys.round() as u64)
}
