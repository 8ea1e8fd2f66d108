//! Filters on media of adjustable size.

use ebbtide::media::{Access, Media, Memory};
use ebbtide::{AgePartitioned, Clock, Digest, Durability, Filter, ManualClock, Options, Timestamp};
use std::io;
use std::sync::Arc;

/// Returns options of a handle without threads and with a stopped clock, so that no background work
/// happens.
pub fn options() -> Options {
    let clock = ManualClock::new(Timestamp::from_unix_millis(1_000_000));
    Options::new()
        .hash_seed(7)
        .stripes(2)
        .segment_bytes(4096)
        .durability(Durability::Never)
        .background(false)
        .clock(Clock::from(clock))
}

/// Returns the spec of a filter of some ten kilobytes.
pub fn spec() -> AgePartitioned {
    AgePartitioned::last(10_000)
}

/// Returns the medium in the form that an engine takes.
pub fn shared<M: Media + Clone + 'static>(media: &M) -> Arc<dyn Media> {
    Arc::new(media.clone())
}

/// Returns the digest of the filter.
pub fn digest<K>(filter: &Filter<K>) -> Digest {
    filter.digest().expect("a digest")
}

/// Returns the bytes that the files on a medium take. Looks again if one of them was renamed or
/// removed meanwhile.
pub fn used(memory: &Memory) -> u64 {
    let bytes = |name: &String| memory.open(name, Access::Read)?.allocated_bytes();
    loop {
        let names = memory.list().expect("a directory");
        match names.iter().map(bytes).sum() {
            Err(error) if io::Error::kind(&error) == io::ErrorKind::NotFound => {}
            used => return used.expect("a length"),
        }
    }
}
