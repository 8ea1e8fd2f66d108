//! `EB.RESERVE`: a new filter.

use super::effects::{created, exists};
use super::key::present;
use super::limits;
use crate::arguments::{Reader, is, number, refused, seed, syntax, text, wrong};
use crate::config;
use crate::ffi::{About, Access, Call, Command, Failure, Outcome, Slot, random};
use crate::value::Value;
use ebbtide_core::block::Layout;
use ebbtide_core::kinds::spec::{Any, Spec};
use ebbtide_core::machine::{Machine, MachineOptions};
use ebbtide_core::units::{parse_parameter, parse_size, shown};
use ebbtide_core::{KeyHash, Kind, Parameters};
use std::fmt::Display;
use std::sync::Arc;

const FORM: &str = "EB.RESERVE key kind [name value ...] [HASH fast|keyed] [SEED n] [STRIPES n] \
                    [BLOCK size] [SAME]";

/// The words that are no parameters of kinds. An alteration does not choose what they are about.
pub const WORDS: [&str; 5] = ["HASH", "SEED", "STRIPES", "BLOCK", "SAME"];

/// The limit of memory of a filter that grows.
const MAX_MEMORY: &str = "max-memory";

/// `EB.RESERVE key kind ...`.
pub struct Reserve;

/// What the arguments ask for.
struct Asked {
    spec: Any,
    hash: Option<KeyHash>,
    seed: Option<u128>,
    stripes: Option<u32>,
    block_bytes: Option<u64>,
    is_same_enough: bool,
}

impl Command for Reserve {
    const ABOUT: About = About {
        name: c"EB.RESERVE",
        arity: -3,
        // Without `deny-oom`: with `SAME` the filter may be there.
        flags: c"write",
        categories: c"write",
        key: 1,
        access: Access::Create,
        summary: c"Creates a filter: kind, parameters, and how keys are hashed and stored.",
        complexity: c"O(1)",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let asked = asked(call)?;
        let options = asked.options();
        let kind = limited(&asked.spec, |kind| options.layout(kind));
        let kind = kind.map_err(|error| refused(&error))?;
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        if let Some(value) = slot.value() {
            if !asked.is_same_enough {
                return Err(exists());
            }
            compare(&asked, &*kind, value.machine()?)?;
            call.ok();
            return Ok(());
        }
        check_seed(asked.hash.unwrap_or_else(config::key_hash), asked.seed)?;
        limits::memory(call)?;
        let machine = machine(call, kind, &options, asked.seed)?;
        created(call, &mut slot, machine);
        call.ok();
        Ok(())
    }
}

/// Creates a filter, if it is not too large.
fn machine(
    call: &Call<'_>,
    kind: Arc<dyn Kind>,
    options: &MachineOptions,
    seed: Option<u128>,
) -> Result<Machine, Failure> {
    let secret = seed.unwrap_or_else(random);
    let machine = Machine::create(kind, options, secret, random());
    let machine = machine.map_err(|error| refused(&error))?;
    limits::new_filter(call, machine.planned_bytes())?;
    Ok(machine)
}

/// Creates the filter of a spec, with the settings of the module, if it is not too large.
///
/// # Errors
/// `PARAMETER`, `TOOLARGE`.
pub fn new_filter(call: &Call<'_>, spec: &Any) -> Result<Machine, Failure> {
    let options = MachineOptions::new().key_hash(config::key_hash()).max_lead(config::max_lead());
    let kind = limited(spec, |kind| options.layout(kind)).map_err(|error| refused(&error))?;
    machine(call, kind, &options, None)
}

/// What a command that adds does to a key without a filter.
pub enum Missing {
    /// It fails like this.
    Fail(Failure),
    /// It creates the filter of `ebbtide.default-spec`; without one it fails.
    Default,
    /// It creates the filter of this spec.
    Create(Any),
}

/// Returns the value of a key, which may be a new one. `check` says whether the command could then
/// be executed: nothing is created for one that is refused.
///
/// # Errors
/// `NOTFOUND`, or that of `missing`, if nothing is to be created; those of [`new_filter`], and
/// those of `check`.
pub fn present_or_new<'a>(
    call: &Call<'_>,
    slot: &'a mut Slot<'_, Value>,
    missing: Missing,
    check: impl FnOnce(&Machine) -> Outcome,
) -> Result<&'a mut Value, Failure> {
    let spec = match missing {
        _ if slot.value().is_some() => None,
        Missing::Fail(failure) => return Err(failure),
        Missing::Default => config::default_spec(),
        Missing::Create(spec) => Some(spec),
    };
    if let Some(spec) = spec {
        let machine = new_filter(call, &spec)?;
        check(&machine)?;
        created(call, slot, machine);
    }
    present(slot)
}

impl Asked {
    fn options(&self) -> MachineOptions {
        let mut options = MachineOptions::new()
            .key_hash(self.hash.unwrap_or_else(config::key_hash))
            .max_lead(config::max_lead());
        if let Some(stripes) = self.stripes {
            options = options.stripes(stripes);
        }
        if let Some(bytes) = self.block_bytes {
            options = options.block_bytes(bytes);
        }
        options
    }
}

/// Returns the kind of a new filter. One that grows is limited to the largest filter of a client,
/// unless a limit is given.
///
/// # Errors
/// As [`Spec::kind`].
pub fn limited(
    spec: &Any,
    layout: impl FnOnce(&dyn Kind) -> Layout,
) -> Result<Arc<dyn Kind>, ebbtide_core::Error> {
    let kind = spec.kind()?;
    let least = kind.least_max_memory(layout(&*kind));
    if least == 0 || kind.max_memory().is_some() {
        return Ok(kind);
    }
    let most = config::max_filter_bytes().max(least);
    let parameters = spec.parameters().clone().with(MAX_MEMORY, most);
    Any::new(spec.name(), parameters).kind()
}

/// Reads the arguments.
fn asked(call: &Call<'_>) -> Result<Asked, Failure> {
    let kind = &text("kind", call.argument(2))?.to_ascii_lowercase();
    let (mut parameters, mut reader) = (Parameters::new(), Reader::new(call, 3));
    let spec = Any::new(kind, Parameters::new());
    let (hash, seed_given, stripes, block_bytes) = (None, None, None, None);
    let mut asked =
        Asked { spec, hash, seed: seed_given, stripes, block_bytes, is_same_enough: false };
    while let Some(word) = reader.next() {
        if is(word, "SAME") && !asked.is_same_enough {
            asked.is_same_enough = true;
        } else if is(word, "HASH") && asked.hash.is_none() {
            asked.hash = Some(hash_named(reader.value("HASH")?)?);
        } else if is(word, "SEED") && asked.seed.is_none() {
            asked.seed = Some(seed(reader.value("SEED")?)?);
        } else if is(word, "STRIPES") && asked.stripes.is_none() {
            asked.stripes = Some(number("STRIPES", "a number", reader.value("STRIPES")?)?);
        } else if is(word, "BLOCK") && asked.block_bytes.is_none() {
            let size = text("BLOCK", reader.value("BLOCK")?)?;
            let bytes = parse_size(size).map_err(|error| Failure::new("PARAMETER", error))?;
            asked.block_bytes = Some(bytes);
        } else if WORDS.iter().any(|known| is(word, known)) {
            return Err(wrong("EB.RESERVE", "each word once", word));
        } else {
            parameter(&mut parameters, text("parameter", word)?, (&mut reader, FORM))?;
        }
    }
    asked.spec = Any::new(kind, parameters);
    Ok(asked)
}

/// Checks that a hash takes all bits of a seed.
fn check_seed(function: KeyHash, seed: Option<u128>) -> Outcome {
    match (function, seed) {
        (KeyHash::Fast, Some(seed)) if u64::try_from(seed).is_err() => Err(Failure::new(
            "PARAMETER",
            "SEED: HASH fast takes a number below 2^64, HASH keyed one of 128 bits",
        )),
        _ => Ok(()),
    }
}

fn hash_named(word: &[u8]) -> Result<KeyHash, Failure> {
    match word {
        _ if is(word, "fast") => Ok(KeyHash::Fast),
        _ if is(word, "keyed") => Ok(KeyHash::Keyed),
        other => Err(wrong("HASH", "fast or keyed", other)),
    }
}

/// Reads a parameter of the kind: `name value`, or `name=value` as on the command line. `form` is
/// that of the command.
///
/// # Errors
/// `PARAMETER`.
pub fn parameter(
    parameters: &mut Parameters,
    word: &str,
    (reader, form): (&mut Reader<'_, '_>, &str),
) -> Result<(), Failure> {
    let (name, value) = match word.split_once('=') {
        Some(both) => both,
        None => {
            let value = reader.next().ok_or_else(|| syntax(form))?;
            (word, text(word, value)?)
        }
    };
    // As for all words of the server; of one letter there are both.
    let name = if name.len() > 1 { &*name.to_ascii_lowercase() } else { name };
    let name = if name == "last" { "window-items" } else { name };
    let is_word = !name.is_empty() && !value.is_empty();
    let is_word = is_word && !(name.to_owned() + value).contains(char::is_whitespace);
    if !is_word || parameters.get(name).is_some() {
        return Err(wrong(name, "one value, without blanks", value.as_bytes()));
    }
    let value = parse_parameter(name, value)
        .map_err(|error| wrong(name, format!("a duration ({error})"), value.as_bytes()))?;
    parameters.set(name, value);
    Ok(())
}

/// Checks a filter that is there against what is asked for. Only parameters that are given are
/// compared: another version, or other settings, may derive the others differently.
fn compare(asked: &Asked, kind: &dyn Kind, there: &Machine) -> Outcome {
    let has = there.as_identity();
    same("kind", kind.name(), has.kind.name(), ALTERABLE)?;
    let (expected, found) = (kind.parameters(), has.kind.parameters());
    for (name, _) in asked.spec.parameters().iter() {
        let of = |all: &Parameters| match all.get(name) {
            Some(value) => shown(name, value),
            None => "nothing".to_owned(),
        };
        same(name, of(&expected), of(&found), ALTERABLE)?;
    }
    if let Some(hash) = asked.hash {
        let name = |hash| if hash == KeyHash::Fast { "fast" } else { "keyed" };
        same("hash", name(hash), name(has.hasher.function()), CHOSEN_ONCE)?;
    }
    check_seed(has.hasher.function(), asked.seed)?;
    if let Some(seed) = asked.seed {
        let given = ebbtide_core::hash::KeyHasher::new(has.hasher.function(), seed);
        if given.secret() != has.hasher.secret() {
            let message = format!("seed: the filter has another one; {CHOSEN_ONCE}");
            return Err(Failure::new("MISMATCH", message));
        }
    }
    if let Some(stripes) = asked.stripes {
        same("stripes", stripes, has.layout.stripes, CHOSEN_ONCE)?;
    }
    if let Some(bytes) = asked.block_bytes {
        let found = u64::from(has.layout.block_words) * 8;
        same("block", bytes / 8 * 8, found, CHOSEN_ONCE)?;
    }
    Ok(())
}

/// What changes that in which a filter differs.
const ALTERABLE: &str = "EB.ALTER changes kinds and their parameters";
const CHOSEN_ONCE: &str = "use another key: EB.ALTER does not choose it";

fn same<T: PartialEq + Display>(what: &str, expected: T, found: T, remedy: &str) -> Outcome {
    if expected == found {
        return Ok(());
    }
    let message = format!("{what}: expected {expected}, found {found}; {remedy}");
    Err(Failure::new("MISMATCH", message))
}
