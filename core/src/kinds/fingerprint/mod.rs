//! Generational fingerprints: a window of the last `N` insert operations, or of a time `T` at any
//! rate, that stores for each key a fingerprint and how many generations it has left.
//!
//! Inserts are counted, including duplicates, in generations of `g = ceil(N/G)`. A key is present
//! for exactly `G` shifts after its own generation, so for at least `N` further inserts and fewer
//! than `(G+1)·g`. Then it is absent at once, except for false positives: no expired key leaves a
//! trace. A key that comes again renews its slot and takes no more memory. A question reads the
//! block's header and two words. In windows of time a generation is a `G`-th of the window by the
//! clock, and banks follow the number of keys.
//!
//! | file | owns |
//! |---|---|
//! | `word`, `wide` | buckets as numbers, and where they lie in a block |
//! | `codes` | the code of the lives in a bucket |
//! | `bucket` | one bucket as a number: fingerprints, lives, closed buckets |
//! | `moves` | the moves that make room |
//! | `table` | a block of buckets: questions, inserts, generations |
//! | `shape`, `plan`, `theory` | shapes and sizes |
//! | `items` | windows of inserts |
//! | `timed`, `bank_sizes`, `burst` | windows of time, and the sizes of their banks |
//! | `evidence` | posteriors |
//! | `distinct` | the number of distinct keys |
//!
//! # Layout
//!
//! A bucket of 8 bytes (up to 32 for low rates) has `b` slots of `f` bits, youngest first, and
//! above them the code of their lives (`codes`): how many generations each slot has left. A key has
//! two buckets of its block, `i` and `j = g(fp) - i`: either follows from the other and the key's
//! fingerprint `fp` (partial-key cuckoo hashing). If both are full, up to eight slots move to their
//! other buckets. If that makes no room, one of the two buckets is
//! *closed*: it holds no slots, and stands for every key that has it until the last of its keys has
//! expired. So no insert fails and no key is lost; an overflow costs false positives of the keys of
//! one bucket, for one window. In windows of inserts whose
//! size follows from the window, a block of which an eighth of the buckets is closed is closed as a
//! whole: it answers "present" for every key until the keys that find no room meanwhile have
//! expired, within about two windows if new keys come.
//!
//! # No key is missed
//!
//! Claim: from its insert until its last generation is over, a key has a slot with its fingerprint
//! in one of its two buckets that lives at least as long as the key, or one of the two, or the
//! block, is closed for at least as long. By induction over the operations on the key's block:
//!
//! - *Insert of the key itself.* A slot that is found gets the greater of both lives. Otherwise the
//!   key gets a slot of its own, or one of its buckets, or the block, is closed for at least its
//!   life.
//! - *Insert of another key that finds the same slot.* The slot's life never decreases. Both keys
//!   have the same fingerprint and a bucket in common, so they have both buckets in common, because
//!   each bucket determines the other one.
//! - *A move* keeps fingerprint and life and takes the slot to its other bucket. That is the other
//!   bucket of every key that relies on the slot, by the same argument. Where both are one bucket
//!   (`i = j`), its slots do not move.
//! - *Closing* replaces the slots of a bucket by the longest of their lives and the new key's, so
//!   it covers all of them. A bucket that is closed already stays closed for the longer of its time
//!   and the new key's life. Closed buckets take no slots, and no slot of theirs moves.
//! - *Closing the block* changes no bucket, and never shortens its time.
//! - *Catching up* subtracts the number of generations that have ended since from all lives, of
//!   slots, of closed buckets and of the block.
//!   A slot at 0 is empty, a closed bucket at 0 is open and empty. Any number of generations may
//!   pass at once. A question subtracts them without changing the block.
//! - *A late key*, whose generation is before the block's, gets a life that is shorter by the
//!   difference; it ends with its own generation's.
//! - *A question during a change* sees buckets half moved. It runs under the block's version, and
//!   is repeated if that has changed.
//!
//! A closed bucket takes no part in placing. If it took keys it would have to be renewed for each
//! of them, and would never open again. Nor is one renewed while the block is closed, whose buckets
//! take keys as before: otherwise the open ones, which then get more keys than planned, overflow
//! again and again, and a block that overflowed once by chance never recovers.
//!
//! `docs/fingerprint.md` has sizes, scenarios, and when another kind is the better choice.
//!
//! # Removal
//!
//! There is none: a slot may stand for several keys, and removing one would lose the others.

mod bank_sizes;
mod bucket;
mod burst;
mod codes;
mod distinct;
mod evidence;
mod items;
mod moves;
mod plan;
mod shape;
pub mod spec;
mod table;
pub mod theory;
mod timed;
mod wide;
mod word;

#[cfg(test)]
mod burst_tests;
#[cfg(test)]
mod evidence_tests;
#[cfg(test)]
mod rate_tests;
#[cfg(test)]
mod scenario_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod timed_tests;

pub use plan::{Design, NAME};
pub use shape::{NARROW, Shape, wide_shapes};

use crate::error::{Error, Result};
use crate::kind::parameters::within;
use crate::kind::{Kind, Micros, Parameters};
use crate::kinds::memory_limit::{MAX_MEMORY, Memory};
use items::Items;
use plan::{GROWTH, Growth, MAX_LOAD, MOST_ITEMS, MOST_WORDS, live_keys};
use std::sync::Arc;
use timed::Timed;
use wide::Wide;

/// The parameters of this kind.
const KNOWN: [&str; 13] = [
    "window-items",
    "window",
    "fpr",
    "rate",
    GROWTH,
    MAX_MEMORY,
    "slots",
    "bits",
    "generations",
    "bytes",
    "moves",
    MAX_LOAD,
    "words",
];

/// The longest window of time: 36,000 years in microseconds.
const MOST_WINDOW: Micros = 1 << 60;

/// Builds the kind from `window-items` or `window` (microseconds), and `fpr` (0.001 if absent).
///
/// `rate`, the expected new keys a second, sizes the first bank of a window of time. `growth` says
/// what its later banks grow by in a burst, `keys` or `rate` (see `bank_sizes`), and `max-memory`
/// how many bytes they may take with all that belongs to them. `slots` (of a bucket), `bits` (of a
/// fingerprint) and `generations` (in the window), all three, override what would be derived from
/// the rate of false positives. `bytes` (of a bucket) and `moves` (that an insert makes at most, up
/// to 8) may come with them. `max-load` is the highest share of slots in use: less than what a plan
/// would use costs memory and makes inserts faster. `words` overrides the memory of a window of
/// inserts, and then there is no guarantee of that rate.
///
/// # Errors
/// [`Error::Parameter`] for unknown names, for values out of bounds or that do not fit each other,
/// and for filters above 8 TiB.
pub fn build(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    parameters.only(NAME, &KNOWN)?;
    if parameters.get("window").is_some() { timed(parameters) } else { items(parameters) }
}

/// Builds a window of inserts.
fn items(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    let window = parameters.required("window-items", "how many inserts it looks back")?;
    let window = within("window-items", window, 1, MOST_ITEMS)?;
    for name in ["rate", GROWTH, MAX_MEMORY] {
        if let Some(given) = parameters.get(name) {
            return Err(Error::parameter(name, "none for a window of inserts", given));
        }
    }
    let (design, fpr) = Design::from_parameters(parameters, Some(window), Some(window))?;
    let words = parameters.count("words", "a number of 64-bit words", MOST_WORDS)?;
    if design.words(live_keys(design.shape, window) as f64) > MOST_WORDS {
        let expected = format!("a window that {MOST_WORDS} words (8 TiB) can hold at fpr {fpr}");
        return Err(Error::parameter("window-items", expected, window));
    }
    Ok(match design.shape.bytes {
        0..=8 => Arc::new(Items::<u64>::new(window, fpr, design, words)),
        9..=16 => Arc::new(Items::<u128>::new(window, fpr, design, words)),
        _ => Arc::new(Items::<Wide>::new(window, fpr, design, words)),
    })
}

/// Builds a window of time.
fn timed(parameters: &Parameters) -> Result<Arc<dyn Kind>> {
    for name in ["window-items", "words"] {
        if let Some(given) = parameters.get(name) {
            return Err(Error::parameter(name, "none for a window of time", given));
        }
    }
    let window = parameters.required("window", "a duration such as 10m")?;
    let window = within("window", window, 1, MOST_WINDOW)?;
    let rate = parameters.optional("rate", "new keys a second")?;
    if let Some(rate) = rate.filter(|&rate: &f64| !(rate >= 0.0 && rate.is_finite())) {
        return Err(Error::parameter("rate", "a number of new keys a second", rate));
    }
    let growth = Growth::of(parameters)?;
    let most = Memory::limit(parameters)?;
    let (design, fpr) = Design::from_parameters(parameters, Some(window), None)?;
    let grown = (design, growth);
    let kind: Arc<dyn Kind> = match design.shape.bytes {
        0..=8 => Arc::new(Timed::<u64>::new(window, fpr, rate, grown, most)),
        9..=16 => Arc::new(Timed::<u128>::new(window, fpr, rate, grown, most)),
        _ => Arc::new(Timed::<Wide>::new(window, fpr, rate, grown, most)),
    };
    if kind.first_words() > MOST_WORDS {
        let most = format!("a rate that {MOST_WORDS} words (8 TiB) can hold");
        return Err(Error::parameter("rate", most, rate.unwrap_or(0.0)));
    }
    Ok(kind)
}
