//! `icount KIND OPERATION`: one operation of a filter in a steady state, repeated.
//!
//! `.ci/icount` runs it under callgrind, which counts the instructions below [`measured`] alone.
//! Everything is fixed: keys, seed, times, and no thread works in the background. Prints the number
//! of operations.

use ebbtide::{Any, Durability, Filter, Options};
use std::error::Error;
use std::hint::black_box;

const OPERATIONS: u64 = 20_000;
const KEYS: u64 = 100_000;

/// Each with its parameters for [`KEYS`] keys.
const KINDS: [(&str, &str); 4] = [
    ("fingerprint", "window-items=100000 fpr=0.001"),
    ("block-timing", "window-items=100000 fpr=0.001"),
    ("counting", "capacity=100000 fpr=0.001"),
    ("bloom", "capacity=100000 fpr=0.001"),
];

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key[8..].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    key
}

/// An operation of a filter that holds the keys up to [`KEYS`].
fn operate(filter: &Filter<Any>, operation: &str, number: u64) -> ebbtide::Result<()> {
    // Every other key is a new one.
    let mixed = if number.is_multiple_of(2) { number } else { KEYS + number };
    match operation {
        "insert" => filter.insert(key(KEYS + number)).map(drop),
        "check-and-insert" => filter.check_and_insert(key(mixed)).map(drop),
        "contains" => filter.contains(key(mixed)).map(|found| {
            black_box(found);
        }),
        other => panic!("expected insert, check-and-insert or contains, found {other}"),
    }
}

/// What is counted.
#[inline(never)]
fn measured(filter: &Filter<Any>, operation: &str) -> ebbtide::Result<()> {
    (0..OPERATIONS).try_for_each(|number| operate(filter, operation, number))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (kind, operation) = arguments.next().zip(arguments.next()).ok_or("a kind, an operation")?;
    let known = KINDS.iter().find(|(name, _)| *name == kind);
    let (_, parameters) = known.ok_or_else(|| format!("unknown kind {kind}"))?;
    let spec: Any = format!("{kind} {parameters}").parse()?;
    let home = tempfile::tempdir()?;
    let options = Options::new()
        .hash_seed(7)
        .durability(Durability::Never)
        .background(false)
        .segment_bytes(64 << 20);
    let filter = Filter::create(home.path().join("filter"), spec, options)?;
    (0..KEYS).try_for_each(|number| filter.insert(key(number)).map(drop))?;
    measured(&filter, &operation)?;
    println!("{OPERATIONS}");
    Ok(filter.close()?)
}
