//! Claims: items that a client is working on, and which it adds when its work is done.

use super::both;
use super::effects::emit;
use super::key::{now, present};
use super::reserve::{Missing, present_or_new};
use crate::arguments::{lease, number};
use crate::ffi::{About, Access, Call, Command, Failure, Outcome};
use crate::value::Value;
use ebbtide_core::machine::ClaimAnswer;

/// Reads the token of a claim.
fn token(call: &Call<'_>) -> Result<u64, Failure> {
    number("token", "the number that EB.CLAIM returned", call.argument(3))
}

/// `EB.CLAIM key item lease-ms`.
pub struct Claim;

impl Command for Claim {
    const ABOUT: About = About {
        name: c"EB.CLAIM",
        arity: 4,
        flags: c"write deny-oom fast",
        categories: c"write fast",
        key: 1,
        access: Access::Change,
        summary: c"Claims an item for work: YOURS and a token, INPROGRESS and ms left, or SEEN.",
        complexity: c"O(log N) for N claims",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let lease = lease(call.argument(3))?;
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = present_or_new(call, &mut slot, Missing::Default, |_| Ok(()))?;
        let mut leases = value.leases();
        let event = c"eb.claim";
        let answer = match both::claim(call, value, (event, &mut leases), lease)? {
            Some(answer) => answer,
            None => emit(call, value, event, |machine, log| {
                let (hash, time) = (machine.hash(call.argument(2)), now(machine));
                leases.claim(machine, (hash, lease), time, &mut |record| log.push(record))
            })?,
        };
        value.set_leases(leases);
        let (word, number) = match answer {
            ClaimAnswer::Seen => ("SEEN", 0),
            // At least 1, and never less than what is left.
            ClaimAnswer::InProgress(until) => {
                ("INPROGRESS", until.saturating_sub(leases.now()).div_ceil(1000).max(1))
            }
            ClaimAnswer::Yours(held) => ("YOURS", held.token),
        };
        call.array(2);
        call.bytes(word.as_bytes());
        call.integer(number as i64);
        Ok(())
    }
}

/// `EB.CONFIRM key item token`.
pub struct Confirm;

impl Command for Confirm {
    const ABOUT: About = About {
        name: c"EB.CONFIRM",
        summary: c"Adds a claimed item, whose work is done, and ends its claim.",
        ..Claim::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        let token = token(call)?;
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = present(&mut slot)?;
        let leases = value.leases();
        let event = c"eb.confirm";
        if both::confirm(call, value, (event, leases), token)?.is_none() {
            emit(call, value, event, |machine, log| {
                let (hash, time) = (machine.hash(call.argument(2)), now(machine));
                machine.confirm((hash, token), leases.now(), time, &mut |record| log.push(record))
            })?;
        }
        call.ok();
        Ok(())
    }
}

/// `EB.RELEASE key item token`.
pub struct Release;

impl Command for Release {
    const ABOUT: About = About {
        name: c"EB.RELEASE",
        flags: c"write fast",
        access: Access::Remove,
        summary: c"Ends a claim and adds nothing: 1 if it was held, otherwise 0.",
        ..Claim::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        let token = token(call)?;
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = present(&mut slot)?;
        let leases = value.leases();
        let released = emit(call, value, c"eb.release", |machine, log| {
            let hash = machine.hash(call.argument(2));
            Ok(machine.release((hash, token), leases.now(), &mut |record| log.push(record)))
        })?;
        call.integer(released.into());
        Ok(())
    }
}

/// `EB.EXTEND key item token lease-ms`.
pub struct Extend;

impl Command for Extend {
    const ABOUT: About = About {
        name: c"EB.EXTEND",
        arity: 5,
        flags: c"write fast",
        summary: c"Renews a claim: its lease ends this many milliseconds after now.",
        ..Claim::ABOUT
    };

    fn run(call: &Call<'_>) -> Outcome {
        let (token, lease) = (token(call)?, lease(call.argument(4))?);
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = present(&mut slot)?;
        let mut leases = value.leases();
        emit(call, value, c"eb.extend", |machine, log| {
            let key = (machine.hash(call.argument(2)), token);
            leases.extend(machine, key, lease, &mut |record| log.push(record))
        })?;
        value.set_leases(leases);
        call.ok();
        Ok(())
    }
}
