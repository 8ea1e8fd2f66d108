//! The files of a filter, damaged behind correct checksums. Opening, verifying, reading and
//! salvaging may fail with a typed error, but nothing panics, hangs, or allocates a length that it
//! read. A filter that opens is usable, and a salvaged filter opens.
#![no_main]

use ebbtide::fuzzing::seal;
use ebbtide::media::{Media, Memory};
use ebbtide::{Any, Filter, Reader, Timestamp, inspect};
use ebbtide_fuzz::files::{Files, directory, files};
use ebbtide_fuzz::input::Input;
use ebbtide_fuzz::samples::options;
use ebbtide_fuzz::{limit, questions};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// Bytes in addition to twice the files: the write buffer of a snapshot, and the rebuilt state
/// (blocks of zero cells take no space in a snapshot).
const WORK_BYTES: usize = 8 << 20;
const MOST_CHANGES: usize = 12;

/// Changes some bytes of one file, or its length, or removes it.
fn change(files: &mut Files, input: &mut Input<'_>) {
    let at = input.below(files.0.len().max(1));
    let Some(name) = files.0.keys().nth(at).cloned() else {
        return;
    };
    let bytes = files.0.get_mut(&name).expect("it is there");
    let how = input.byte();
    match how % 16 {
        0 => drop(files.0.remove(&name)),
        1 => bytes.truncate(input.short()),
        2 => bytes.resize(bytes.len() + input.below(5000), input.byte()),
        3 => {
            // Under another name: of another timeline, LSN or start.
            let (prefix, _) = name.split_at(name.find('-').map_or(name.len(), |at| at + 1));
            let other = match prefix {
                "wal-" => format!("wal-{:06}-{:016}", input.byte(), input.word()),
                "snap-" => format!("snap-{:016}", input.word()),
                _ => return,
            };
            let bytes = files.0.remove(&name).expect("it is there");
            files.0.insert(other, bytes);
        }
        4 if name == "meta" => {
            let at = input.below(bytes.len().max(1));
            bytes.splice(at..at.saturating_add(1).min(bytes.len()), [input.byte()]);
            seal(&name, bytes);
        }
        _ => {
            // One word: of the header, of the first page after it, or anywhere.
            let words = bytes.len() / 8;
            let word = match how % 4 {
                0 => input.below(16),
                1 => 512 + input.below(64),
                _ => input.below(words.max(1)),
            };
            if let Some(place) = bytes.get_mut(word * 8..word * 8 + 8) {
                let old = u64::from_le_bytes((&*place).try_into().expect("eight"));
                place.copy_from_slice(&input.changed(old).to_le_bytes());
            }
            if how & 0x80 == 0 {
                seal(&name, bytes);
            }
        }
    }
}

fn open(memory: &Memory) -> Option<Filter> {
    let media: Arc<dyn Media> = Arc::new(memory.clone());
    Filter::<Any>::open_on(media, options()).ok()
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let (kind, course) = (input.byte(), input.byte());
    let mut files = files(kind, course).clone();
    for _ in 0..MOST_CHANGES {
        if input.0.len() > 4 {
            change(&mut files, &mut input);
        }
    }
    let memory = files.lay();
    limit::within(2 * files.bytes() + WORK_BYTES, || {
        let sound = inspect::verify_on(&memory).is_ok_and(|report| report.is_sound());
        let saved = directory();
        if let Ok(Some(_)) = inspect::salvage_on(&memory, &saved) {
            let filter = open(&saved).expect("what was saved opens");
            filter.digest().expect("it is a state");
        }
        let reader = Reader::<Any>::open_on(Arc::new(memory.clone()), options());
        let read = reader.as_ref().ok().and_then(|reader| {
            questions::read(reader, kind, 2_000_000);
            reader.digest().ok()
        });
        let Some(filter) = open(&memory) else {
            assert!(!sound, "a verified filter must open");
            return;
        };
        if let Some(read) = read {
            let digest = filter.digest().expect("nothing fails");
            assert_eq!((read.value, read.inserts), (digest.value, digest.inserts));
        }
        questions::ask(&filter, kind, 2_000_000);
        questions::infer(&filter, kind, 2_000_000);
        let call = filter.call().time(Timestamp::from_unix_micros(2_000_000));
        for key in 0..input.byte() % 64 {
            let _ = call.check_and_insert([key]);
        }
        let _ = filter.stat();
        if let Ok(digest) = filter.digest() {
            let closed = filter.close().is_ok();
            if closed {
                let again = open(&memory).expect("it was closed").digest().expect("nothing fails");
                assert_eq!((again.value, again.inserts), (digest.value, digest.inserts));
            }
        }
    });
});
