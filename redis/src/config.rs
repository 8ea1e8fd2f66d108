//! The settings of the module, `ebbtide.NAME` in the server's configuration.

use crate::ffi::{Choice, Context, Number, Text, register_choice, register_number, register_text};
use ebbtide_core::KeyHash;
use ebbtide_core::kinds::spec::{Any, Spec};
use ebbtide_core::units::{micros_text, parse_duration};
use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

const HOUR: u64 = 3_600_000_000;
/// The longest lead that is taken: a thousand years.
const MOST_LEAD: u64 = 1000 * 8766 * HOUR;

static MAX_FILTER_BYTES: Number = Number {
    name: c"max-filter-bytes",
    default: 256 << 20,
    bounds: (1 << 12, i64::MAX),
    is_bytes: true,
    value: AtomicI64::new(256 << 20),
};

/// The default of the most records of a command: 8 MiB of them, some 30 ms.
const COMMAND_RECORDS: i64 = 1 << 18;

static MAX_COMMAND_RECORDS: Number = Number {
    name: c"max-command-records",
    default: COMMAND_RECORDS,
    bounds: (1, i64::MAX),
    is_bytes: false,
    value: AtomicI64::new(COMMAND_RECORDS),
};

/// The words of [`HASH`], in the order of [`HASHES`].
const HASH_WORDS: &[&CStr] = &[c"keyed", c"fast"];
const HASHES: [KeyHash; 2] = [KeyHash::Keyed, KeyHash::Fast];

static HASH: Choice =
    Choice { name: c"hash", words: HASH_WORDS, is_fixed: false, value: AtomicI64::new(0) };

/// Whether the commands `BF.*` are registered. Not by default: another module may have them.
static BF_COMMANDS: Choice = Choice {
    name: c"bf-commands",
    words: &[c"no", c"yes"],
    is_fixed: true,
    value: AtomicI64::new(0),
};

/// The spec of a filter that the first item of a key creates, as `fingerprint window=10m`.
static DEFAULT_SPEC: Mutex<Option<Any>> = Mutex::new(None);

static DEFAULT: Text =
    Text { name: c"default-spec", default: c"", get: default_spec_text, set: set_default_spec };

fn default_spec_text() -> String {
    default_spec().map_or_else(String::new, |spec| spec.to_string())
}

fn set_default_spec(text: &str) -> Result<(), String> {
    let spec = if text.trim().is_empty() {
        None
    } else {
        let spec: Any = text.parse().map_err(|error: ebbtide_core::Error| error.to_string())?;
        spec.kind().map_err(|error| error.to_string())?;
        Some(spec)
    };
    *DEFAULT_SPEC.lock().unwrap_or_else(PoisonError::into_inner) = spec;
    Ok(())
}

static MAX_LEAD_MICROS: AtomicU64 = AtomicU64::new(HOUR);

static MAX_LEAD: Text =
    Text { name: c"max-lead", default: c"1h", get: max_lead_text, set: set_max_lead };

fn max_lead_text() -> String {
    micros_text(max_lead())
}

fn set_max_lead(text: &str) -> Result<(), String> {
    let micros = parse_duration(text)?.as_micros();
    let micros = u64::try_from(micros).ok().filter(|&micros| micros <= MOST_LEAD);
    MAX_LEAD_MICROS.store(micros.ok_or("expected at most a thousand years")?, Ordering::Relaxed);
    Ok(())
}

/// Registers the settings; false if the server refuses one.
#[must_use]
pub fn register(context: &Context) -> bool {
    register_number(context, &MAX_FILTER_BYTES)
        && register_number(context, &MAX_COMMAND_RECORDS)
        && register_choice(context, &HASH)
        && register_choice(context, &BF_COMMANDS)
        && register_text(context, &DEFAULT)
        && register_text(context, &MAX_LEAD)
}

/// Returns the most bytes that a new filter may need.
pub fn max_filter_bytes() -> u64 {
    MAX_FILTER_BYTES.value.load(Ordering::Relaxed).unsigned_abs()
}

/// Returns the most records that a command of a client may emit.
pub fn max_command_records() -> u64 {
    MAX_COMMAND_RECORDS.value.load(Ordering::Relaxed).unsigned_abs()
}

/// Returns the hash function of new filters.
pub fn key_hash() -> KeyHash {
    let chosen = usize::try_from(HASH.value.load(Ordering::Relaxed)).unwrap_or(0);
    HASHES[chosen.min(HASHES.len() - 1)]
}

/// Returns whether the commands `BF.*` are registered.
pub fn has_bf_commands() -> bool {
    BF_COMMANDS.value.load(Ordering::Relaxed) == 1
}

/// Returns the spec of a filter that the first item of a key creates; `None` if none is created.
pub fn default_spec() -> Option<Any> {
    DEFAULT_SPEC.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns how far ahead of the clock a time may lie in new filters, in microseconds.
pub fn max_lead() -> u64 {
    MAX_LEAD_MICROS.load(Ordering::Relaxed)
}
