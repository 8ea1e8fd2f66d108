//! The files of a filter as bytes: read from a directory in memory, damaged, and written to another
//! one.

use crate::samples::{SAMPLES, Sample, options};
use ebbtide::media::{Access, ByteLocks, Media, Memory};
use ebbtide::{Filter, Timestamp};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// The capacity of a directory in bytes: far more than any filter here needs, so that wild sizes
/// meet a full disk.
const CAPACITY: u64 = 4 << 20;
/// The words of a file's header; the last is its checksum.
const HEADER_WORDS: usize = 16;
/// The word of the header of `live` that contains its inode.
const INODE_WORD: usize = 7;
/// The lock byte of the last session slot.
const LAST_SLOT_BYTE: u64 = 126;

/// The files of a filter, without `lock`.
#[derive(Debug, Clone)]
pub struct Files(pub BTreeMap<String, Vec<u8>>);

/// The state of a filter when its files were read.
#[derive(Debug, Clone, Copy)]
pub enum Course {
    /// Only log, no snapshot.
    Logged,
    /// Two snapshots, and log after each.
    Checkpointed,
    /// Closed and opened again.
    Reopened,
}

impl Course {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Logged, Self::Checkpointed, Self::Reopened];
}

/// Creates an empty directory in memory.
pub fn directory() -> Memory {
    let memory = Memory::with_capacity(CAPACITY);
    memory.make().expect("nothing fails yet");
    memory
}

fn insert(sample: &Sample, filter: &Filter, keys: std::ops::Range<u8>) {
    for key in keys {
        let time = Timestamp::from_unix_micros(1_000_000 + u64::from(key) * 5_000);
        let call = filter.call().time(time);
        let call = if sample.heaviest > 1 {
            call.weight(f64::from(1 + key % sample.heaviest))
        } else {
            call
        };
        call.insert([key]).expect("an insert");
    }
}

impl Files {
    /// Returns the files of a sample's filter while it is open.
    pub fn of(sample: &Sample, course: Course) -> Self {
        let memory = directory();
        let media: Arc<dyn Media> = Arc::new(memory.clone());
        let mut filter =
            Filter::create_on(media.clone(), sample.spec(), options()).expect("a filter");
        insert(sample, &filter, 0..60);
        match course {
            Course::Logged => {}
            Course::Checkpointed => {
                filter.checkpoint().expect("a snapshot");
                insert(sample, &filter, 60..120);
                filter.checkpoint().expect("another");
                insert(sample, &filter, 120..180);
                filter.sync().expect("a sync");
            }
            Course::Reopened => {
                filter.close().expect("all is well");
                filter = Filter::open_on(media, options()).expect("a filter");
                insert(sample, &filter, 60..100);
            }
        }
        Self::read(&memory)
    }

    /// Reads the files of a directory.
    pub fn read(memory: &Memory) -> Self {
        let mut names = memory.list().expect("a directory");
        names.retain(|name| name != "lock");
        let read = |name: String| {
            let file = memory.open(&name, Access::Read).expect("it is listed");
            let mut bytes = vec![0; file.bytes().expect("a length") as usize];
            file.read_at(&mut bytes, 0).expect("its bytes");
            (name, bytes)
        };
        Self(names.into_iter().map(read).collect())
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Creates a directory with these files. A file `live` is adapted so that it belongs there.
    pub fn lay(&self) -> Memory {
        let memory = directory();
        for (name, bytes) in &self.0 {
            if bytes.len() % 8 != 0 || name == "meta" {
                let file = memory.create(name, 0).expect("room");
                file.write_at(bytes, 0).expect("room");
                continue;
            }
            let file = memory.create(name, bytes.len() as u64).expect("room");
            let mapping = file.map(Access::Write).expect("whole words");
            for (word, bytes) in mapping.words().iter().zip(bytes.chunks_exact(8)) {
                let value = u64::from_le_bytes(bytes.try_into().expect("eight"));
                if value != 0 {
                    word.store(value, Ordering::Relaxed);
                }
            }
            if name == "live" && bytes.len() >= HEADER_WORDS * 8 {
                let inode = file.identity().expect("an inode");
                let header = &mapping.words()[..HEADER_WORDS];
                let mut words: Vec<u64> =
                    header.iter().map(|word| word.load(Ordering::Relaxed)).collect();
                // A damaged header stays damaged.
                let sound = words[HEADER_WORDS - 1] == header_sum(&words);
                words[INODE_WORD] = inode;
                header[INODE_WORD].store(inode, Ordering::Relaxed);
                if sound {
                    header[HEADER_WORDS - 1].store(header_sum(&words), Ordering::Relaxed);
                }
            }
        }
        memory
    }
}

fn header_sum(words: &[u64]) -> u64 {
    let bytes: Vec<u8> =
        words[..HEADER_WORDS - 1].iter().flat_map(|word| word.to_le_bytes()).collect();
    crc32fast::hash(&bytes).into()
}

/// Simulates another process that has the filter open, as far as its locks show.
#[derive(Debug)]
pub struct Alive {
    _locks: Box<dyn ByteLocks>,
}

impl Alive {
    /// Takes the lock, until this is dropped.
    pub fn on(memory: &Memory) -> Self {
        let locks = memory.locks("lock", Access::Write).expect("a file of locks");
        assert!(locks.try_lock(LAST_SLOT_BYTE, Access::Write).expect("no error"), "it is free");
        Self { _locks: locks }
    }
}

/// Returns the files of a sample in a state, created at the first call.
pub fn files(sample: u8, course: u8) -> &'static Files {
    const COURSES: usize = Course::ALL.len();
    static ALL: [OnceLock<Files>; SAMPLES.len() * COURSES] =
        [const { OnceLock::new() }; SAMPLES.len() * COURSES];
    let (sample, course) = (usize::from(sample) % SAMPLES.len(), usize::from(course) % COURSES);
    ALL[sample * COURSES + course].get_or_init(|| Files::of(&SAMPLES[sample], Course::ALL[course]))
}
