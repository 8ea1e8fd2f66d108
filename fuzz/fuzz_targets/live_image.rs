//! A live image of arbitrary words, joined and used as if other processes had left it: answers may
//! be wrong and errors typed, but nothing panics, hangs, or allocates a length that it read.
#![no_main]

use ebbtide::media::{Access, Media, Memory};
use ebbtide::{Any, Durability, Filter, Reader, Since, Timestamp, inspect};
use ebbtide_fuzz::files::{Alive, directory, files};
use ebbtide_fuzz::input::Input;
use ebbtide_fuzz::samples::{Sample, options};
use ebbtide_fuzz::{limit, questions};
use libfuzzer_sys::fuzz_target;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

// As in `src/image/live_file.rs`, in words.
const TERMS: Range<usize> = 128..256;
const STRIPES: usize = TERMS.end;
const STRIPE_WORDS: usize = 8;
/// The number of stripes of the samples, including stripe 0.
const STRIPE_COUNT: usize = 3;
const STATE_BLOCK: usize = STRIPES + STRIPE_COUNT * STRIPE_WORDS;
/// Where banks begin behind their own header: small ones are packed.
const BANK: usize = 16;
/// Bytes in addition to the files: the write buffer of a snapshot, a rebuilt copy, segments.
const WORK_BYTES: usize = 8 << 20;
const MOST_OPERATIONS: usize = 48;

/// The meaningful words of the image: the beginning of a file name, and the range of words; if a
/// file ends before it, as many words at its end.
const REGIONS: [(&str, Range<usize>); 11] = [
    // Ends of the log, status, turns, time, the head of the counter shards.
    ("live", 16..72),
    ("live", TERMS),
    ("live", STRIPES..STATE_BLOCK),
    // The version, and the state of both copies: of kinds with few banks, and of the others.
    ("live", STATE_BLOCK..STATE_BLOCK + 80),
    ("live", STATE_BLOCK + 80..STATE_BLOCK + 152),
    ("live", STATE_BLOCK + 528..STATE_BLOCK + 592),
    // The shards of the counters, and the first positions.
    ("live", STATE_BLOCK + 152..STATE_BLOCK + 240),
    // Headers of blocks, undo areas, cells.
    ("live-", BANK..BANK + 64),
    ("live-", 512..576),
    ("live-", BANK..usize::MAX),
    ("live", 16..usize::MAX),
];

/// Changes a word. `used` means that a handle has joined, and uses the locks and incarnations.
fn change(memory: &Memory, input: &mut Input<'_>, used: bool) {
    let (start, words) = &REGIONS[input.below(REGIONS.len())];
    let names = memory.list().expect("a directory");
    let mut names = names.iter().filter(|name| match *start {
        "live" => *name == "live",
        start => name.starts_with(start),
    });
    let Some(name) = names.next() else { return };
    let mapping = memory
        .open(name, Access::Write)
        .and_then(|file| file.map(Access::Write))
        .expect("whole words");
    let length = mapping.words().len();
    let words = match words.start < length {
        true => words.start..words.end.min(length),
        false => length.saturating_sub(words.len())..length,
    };
    if words.is_empty() {
        return;
    }
    let at = words.start + input.below(words.len());
    let is_lock =
        (STRIPES..STATE_BLOCK).contains(&at) && (at - STRIPES).is_multiple_of(STRIPE_WORDS);
    let is_term = TERMS.contains(&at);
    let word = &mapping.words()[at];
    let value = input.changed(word.load(Ordering::Relaxed));
    if !(used && name == "live" && (is_lock || is_term)) {
        word.store(value, Ordering::Relaxed);
    }
}

fn operate(memory: &Memory, sample: &Sample, filter: &Filter, input: &mut Input<'_>) {
    let mut now = 1_300_000;
    for _ in 0..MOST_OPERATIONS {
        if input.is_empty() {
            return;
        }
        let (operation, key) = (input.byte(), input.byte());
        let call = filter.call().time(Timestamp::from_unix_micros(now));
        let weighing = if sample.heaviest > 1 {
            call.weight(f64::from(1 + key % sample.heaviest))
        } else {
            call
        };
        match operation % 20 {
            0..=3 => drop(weighing.insert([key])),
            4 => drop(weighing.since(Since::LastAccepted).check_and_insert([key])),
            5 => drop(call.durability(Durability::Always).check_and_insert([key])),
            6 => {
                let keys: Vec<[u8; 1]> = (0..key / 4).map(|key| [key]).collect();
                let _ = call.insert_all(&keys);
            }
            7 => drop(weighing.remove([key])),
            8 => questions::ask(filter, key, now),
            9 => questions::infer(filter, key, now),
            10 => drop(filter.checkpoint()),
            11 => drop(filter.sync()),
            12 => drop(filter.digest()),
            13 => drop(filter.stat()),
            14 => drop(inspect::verify_on(memory)),
            15 => {
                if let Ok(reader) = Reader::open_on(Arc::new(memory.clone()), options()) {
                    questions::read(&reader, key, now);
                }
            }
            16 => now = now.saturating_add(1 << (key % 40)),
            17 => {
                if let Ok(second) = Filter::<Any>::open_on(Arc::new(memory.clone()), options()) {
                    let _ = second.insert([key]);
                    questions::ask(&second, key, now);
                }
            }
            _ => change(memory, input, true),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let (kind, form) = (input.byte(), input.byte());
    let (sample, files) = (Sample::of(kind), files(kind, form));
    let memory = files.lay();
    let other = Alive::on(&memory);
    for _ in 0..(form >> 2) % 16 {
        change(&memory, &mut input, false);
    }
    let media: Arc<dyn Media> = Arc::new(memory.clone());
    limit::within(2 * files.bytes() + WORK_BYTES, || {
        if let Ok(filter) = Filter::open_on(media.clone(), options()) {
            // The other process has died; its locks and changes remain.
            drop(other);
            operate(&memory, sample, &filter, &mut input);
            drop(filter);
        } else {
            // Readers join as well.
            drop(Reader::<Any>::open_on(media.clone(), options()));
            drop(other);
        }
        // The next opener recovers, or salvages.
        if form & 0x40 != 0 {
            let _ = inspect::salvage_on(&*media, &directory());
        }
        if form & 0x80 != 0 {
            if let Ok(filter) = Filter::<Any>::open_on(media, options()) {
                let _ = filter.digest();
            }
        }
    });
});
