//! Sequences of operations on a filter in memory, single failures among them: nothing that returned is ever
//! lost, and a filter that is opened again is what it was.
#![no_main]

use ebbtide::media::{Media, Memory};
use ebbtide::{Any, Clock, Durability, Filter, Options, Parameters, Timestamp};
use libfuzzer_sys::fuzz_target;
use std::io::ErrorKind;
use std::sync::Arc;

fn options() -> Options {
    Options::new()
        .hash_seed(1)
        .stripes(2)
        .block_bytes(512)
        .segment_bytes(4096)
        .durability(Durability::Never)
        .background(false)
        .clock(Clock::stream())
}

fn open(memory: &Memory) -> Filter {
    let media: Arc<dyn Media> = Arc::new(memory.clone());
    Filter::open_on(media, options()).expect("nothing fails now")
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    let spec = match first % 3 {
        0 => Any::new("bloom", Parameters::new().with("capacity", 1000)),
        1 => Any::new(
            "age-partitioned",
            Parameters::new().with("window-items", 200),
        ),
        _ => Any::new(
            "time-limited",
            Parameters::new().with("window", 1_000_000).with("rate", 1),
        ),
    };
    let memory = Memory::new();
    let media: Arc<dyn Media> = Arc::new(memory.clone());
    let mut filter = Filter::create_on(media, spec, options()).expect("nothing fails yet");
    let mut now = 1_000_000_u64;
    for pair in bytes.chunks_exact(2) {
        let (operation, value) = (pair[0] % 16, pair[1]);
        let call = filter.call().time(Timestamp::from_unix_micros(now));
        match operation {
            0..=7 => {
                if let Ok(true) = call.insert([value]) {
                    assert!(call.contains([value]).expect("an answer"), "just inserted");
                }
            }
            8 | 9 => {
                let keys: Vec<[u8; 2]> = (0..=value).map(|key| [key, value]).collect();
                let _ = call.insert_all(&keys);
            }
            10 => now += 1 << (value % 24),
            11 => now = now.saturating_sub(1 << (value % 24)),
            12 => drop(filter.checkpoint()),
            13 => drop(filter.sync()),
            14 => memory.fail_after(u64::from(value), ErrorKind::StorageFull),
            _ => {
                let before = filter.digest().expect("a digest");
                drop(filter);
                memory.clear_faults();
                filter = open(&memory);
                let after = filter.digest().expect("a digest");
                assert_eq!((before.value, before.inserts), (after.value, after.inserts));
            }
        }
    }
});
