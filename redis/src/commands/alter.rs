//! `EB.ALTER`: other parameters for a filter that is in use.

use super::effects::{Log, not_altered, succeed};
use super::key::{now, present};
use super::limits;
use super::reserve::{WORDS, limited, parameter};
use crate::arguments::{Reader, is, refused, syntax, text};
use crate::config;
use crate::ffi::{About, Access, Call, Command, Failure, Outcome, random};
use crate::former::window;
use crate::value::Value;
use ebbtide_core::block::Layout;
use ebbtide_core::claims::{Claimant, HeldClaim, LONGEST_LEASE, LatestClaim, LeaseTime};
use ebbtide_core::identity::{Identity, check_max_memory};
use ebbtide_core::kind::Micros;
use ebbtide_core::kinds::spec::Any;
use ebbtide_core::kinds::{altered_parameters, registry};
use ebbtide_core::machine::{ClaimAnswer, Machine, MachineOptions};
use ebbtide_core::{Error, Kind, Parameters, Result as Decided};
use std::sync::Arc;
use std::time::Duration;

const FORM: &str = "EB.ALTER key kind [name value ...]";

/// `EB.ALTER key kind [name value ...]`.
pub struct Alter;

impl Command for Alter {
    const ABOUT: About = About {
        name: c"EB.ALTER",
        arity: -3,
        // Without `deny-oom`: the filter may have these parameters.
        flags: c"write",
        categories: c"write",
        key: 1,
        access: Access::Change,
        summary: c"Gives a filter in use another kind or other parameters.",
        complexity: c"O(N) for N claims",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let (kind, given) = asked(call)?;
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let value = present(&mut slot)?;
        let before = value.machine()?.as_identity().clone();
        if has_already(&before, &kind, &given) {
            call.ok();
            return Ok(());
        }
        let kind = kind_after(&before, &kind, &given)?;
        if kind.name() == before.kind.name() && kind.parameters() == before.kind.parameters() {
            call.ok();
            return Ok(());
        }
        not_altered(value)?;
        limits::memory(call)?;
        let (layout, uuid) = (layout_after(&before, &*kind), random());
        check_max_memory(&*kind, layout).map_err(|error| refused(&error))?;
        let current = Machine::new(Identity { uuid, layout, kind, ..before });
        let mut current = current.map_err(|error| refused(&error))?;
        let former_bytes = value.machine()?.planned_bytes();
        limits::altered_filter(call, current.planned_bytes(), former_bytes)?;
        let (leases, former) = (value.leases(), value.machine()?);
        let claims = held(former, leases.now());
        limit_claims(claims.len())?;
        let mut log = Log::new();
        begin(&mut current, former, &claims, &mut log).map_err(|error| refused(&error))?;
        let done = succeed(call, value, current, &log);
        done.map_err(|why| Failure::new("PARAMETER", why))?;
        call.ok();
        Ok(())
    }
}

/// Reads the arguments: the kind and its parameters.
fn asked(call: &Call<'_>) -> Result<(String, Parameters), Failure> {
    let kind = text("kind", call.argument(2))?.to_ascii_lowercase();
    let (mut parameters, mut reader) = (Parameters::new(), Reader::new(call, 3));
    while let Some(word) = reader.next() {
        if WORDS.iter().any(|known| is(word, known)) {
            return Err(syntax(&format!("{FORM}: {}", chosen_otherwise(word))));
        }
        parameter(&mut parameters, text("parameter", word)?, (&mut reader, FORM))?;
    }
    Ok((kind, parameters))
}

/// Returns what becomes of that which one of these words is about.
fn chosen_otherwise(word: &[u8]) -> &'static str {
    if is(word, "SAME") {
        "without SAME, an alteration to what the filter is changes nothing"
    } else if is(word, "STRIPES") || is(word, "BLOCK") {
        "stripes and blocks become those of a new filter, unless EB.RESERVE chose others than the \
         defaults, which stay"
    } else {
        "hash and seed stay as they are"
    }
}

fn without_window(name: &str) -> Failure {
    let message = format!(
        "a filter of kind {name} has no window, and this server keeps no items to fill it with: \
         create another key with EB.RESERVE, add items to both, and ask both"
    );
    Failure::new("UNSUPPORTED", message)
}

/// Returns whether a filter with a window has this kind and these parameters. All that it has
/// besides are taken as they are: this version may derive others than an earlier one did, or limit
/// the memory.
fn has_already(before: &Identity, name: &str, given: &Parameters) -> bool {
    let present = &before.kind;
    if name != present.name() || window(&**present).is_none() {
        return false;
    }
    let all = present.parameters();
    let both = all.iter().chain(given.iter());
    let both = both.fold(Parameters::new(), |both, (name, value)| both.with(name, value));
    registry::build(name, &both).is_ok_and(|built| built.parameters() == all)
}

/// Returns the kind that a filter will have. One of the same name keeps what is not given; another
/// one has its defaults.
fn kind_after(before: &Identity, name: &str, given: &Parameters) -> Result<Arc<dyn Kind>, Failure> {
    let present = &before.kind;
    // No parameter gives such a kind a window, and which ones it keeps takes long to find for some.
    if name == present.name() && window(&**present).is_none() {
        return Err(without_window(name));
    }
    let spec = if name == present.name() {
        altered_parameters::over(name, &present.parameters(), given).map_err(|error| {
            let message = format!("{error}; the filter keeps the parameters that are not given");
            Failure::new("PARAMETER", message)
        })?
    } else {
        Any::new(name, given.clone())
    };
    let kind = limited(&spec, |kind| layout_after(before, kind));
    let kind = kind.map_err(|error| refused(&error))?;
    if window(&*kind).is_none() {
        return Err(without_window(name));
    }
    Ok(kind)
}

/// Returns the layout of a filter after an alteration: that of a new one, unless it was chosen when
/// the filter was created.
fn layout_after(before: &Identity, kind: &dyn Kind) -> Layout {
    let options = MachineOptions::new();
    let is_default = options.layout(&*before.kind) == before.layout;
    if is_default { options.layout(kind) } else { before.layout }
}

/// Returns the claims that are held, by token.
fn held(former: &Machine, now: Micros) -> Vec<HeldClaim> {
    let now = now.max(former.content().latest_claim().time);
    let held = former.claims().filter(|claim| claim.deadline > now);
    let mut held: Vec<_> = held.copied().collect();
    held.sort_unstable_by_key(|claim| claim.token);
    held
}

/// Checks how many records the claims need.
fn limit_claims(claims: usize) -> Outcome {
    // Two for the latest claim, one for the time.
    let (needed, most) = (claims as u64 + 3, config::max_command_records());
    if needed <= most {
        return Ok(());
    }
    let message = format!(
        "the command needs {needed} records for the claims that are held, \
         ebbtide.max-command-records allows {most}: raise it"
    );
    Err(Failure::new("TOOLARGE", message))
}

/// Lets a new filter begin at the time of the former one, and with its claims.
fn begin(
    current: &mut Machine,
    former: &Machine,
    claims: &[HeldClaim],
    log: &mut Log,
) -> Decided<()> {
    if current.kind().uses_time() && former.latest().time > 0 {
        current.clear(now(former), &mut |record| log.push(record));
    }
    claims.iter().try_for_each(|claim| take_over(current, claim, log))?;
    continue_tokens(current, former.content().latest_claim(), claims.last(), log)
}

/// Claims an item as it is claimed in the former filter: with the same token, and until the same
/// time. (Leases are whole milliseconds, long ones whole seconds; they are rounded up.)
fn take_over(current: &mut Machine, held: &HeldClaim, log: &mut Log) -> Decided<()> {
    let &HeldClaim { hash, token, since, deadline } = held;
    let earliest = deadline.saturating_sub(LONGEST_LEASE.as_micros() as u64);
    let since = since.max(earliest).max(current.content().latest_claim().time);
    let lease = LeaseTime::new(Duration::from_micros(deadline.saturating_sub(since)))?;
    let claimant = Claimant { hash, now: since, lease, above: token - 1 };
    let time = current.latest();
    match current.claim(&claimant, time, &mut |record| log.push(record))? {
        ClaimAnswer::Yours(claim) if claim.token == token => Ok(()),
        other => Err(Error::Damaged {
            what: "the claims of the filter".to_owned(),
            expected: format!("the claim with token {token}"),
            found: format!("{other:?}"),
        }),
    }
}

/// Lets the tokens and the times of claims continue from the latest claim of the former filter:
/// no token is given twice.
fn continue_tokens(
    current: &mut Machine,
    latest: LatestClaim,
    last: Option<&HeldClaim>,
    log: &mut Log,
) -> Decided<()> {
    let mut log = |record| log.push(record);
    match last.filter(|last| last.token == latest.token) {
        Some(last) if last.deadline > latest.time => {
            let left = Duration::from_micros(last.deadline - latest.time);
            let lease = LeaseTime::new(left.min(LONGEST_LEASE))?;
            current.extend((last.hash, last.token), latest.time, lease, &mut log)?;
        }
        None if latest.token > 0 => {
            let is_free = |hash: &u64| !current.claims().any(|claim| claim.hash == *hash);
            let hash = (0..).find(is_free).unwrap_or(0);
            let held = Claimant {
                hash,
                now: latest.time,
                lease: LeaseTime::new(Duration::from_millis(1))?,
                above: latest.token - 1,
            };
            let time = current.latest();
            current.claim(&held, time, &mut log)?;
            current.release((hash, latest.token), latest.time, &mut log);
        }
        _ => {}
    }
    Ok(())
}
