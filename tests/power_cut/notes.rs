//! What the workload notes outside the disk: what was acknowledged, and how long the block log was then.
//!
//! The log grows before a write or flush returns to whoever asked. So when an operation has been acknowledged, all that it
//! rests on is in the log, and a power cut after the length noted must not lose it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Threads, or processes, that have operations of their own.
pub const STREAMS: usize = 2;

/// Notes being taken.
#[derive(Debug)]
pub struct Notes {
    log: PathBuf,
    acknowledged: [File; STREAMS],
    moments: File,
}

fn stream(home: &Path, stream: usize) -> PathBuf {
    home.join(format!("acknowledged-{stream}"))
}

fn moments(home: &Path) -> PathBuf {
    home.join("moments")
}

/// What was acknowledged before the recording began, if there was a filter.
pub fn begin(home: &Path, acknowledged: Option<[u64; STREAMS]>) -> io::Result<()> {
    for at in 0..STREAMS {
        let entry = acknowledged.map(|counts| [counts[at], 0]);
        let bytes = entry.iter().flatten().flat_map(|word| word.to_le_bytes());
        std::fs::write(stream(home, at), bytes.collect::<Vec<u8>>())?;
    }
    std::fs::write(moments(home), 0_u64.to_le_bytes())
}

impl Notes {
    /// Those of a recording that has begun.
    pub fn new(home: &Path) -> io::Result<Self> {
        let open = |path| OpenOptions::new().append(true).open(path);
        let [first, second] = [0, 1].map(|at| open(stream(home, at)));
        Ok(Self {
            log: home.join("log.img"),
            acknowledged: [first?, second?],
            moments: open(moments(home))?,
        })
    }

    fn position(&self) -> u64 {
        self.log.metadata().expect("the log of the disk").size()
    }

    /// So many operations of the stream have been acknowledged as durable.
    pub fn acknowledge(&self, stream: usize, count: u64) {
        let note = [count, self.position()].map(u64::to_le_bytes);
        (&self.acknowledged[stream]).write_all(note.as_flattened()).expect("a note");
    }

    /// Something that does more than one thing begins or ends.
    pub fn moment(&self) {
        (&self.moments).write_all(&self.position().to_le_bytes()).expect("a note");
    }
}

/// Notes of a recording that has ended.
#[derive(Debug)]
pub struct Noted {
    /// For each stream how many operations had been acknowledged, and how long the log was.
    acknowledged: [Vec<(u64, u64)>; STREAMS],
    /// How long the log was at the moments noted.
    pub moments: Vec<u64>,
}

fn words(path: &Path) -> io::Result<Vec<u64>> {
    let bytes = std::fs::read(path)?;
    Ok(bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect())
}

impl Noted {
    /// Reads them.
    pub fn read(home: &Path) -> io::Result<Self> {
        let read = |at| {
            let words = words(&stream(home, at))?;
            Ok(words.as_chunks().0.iter().map(|&[count, position]| (count, position)).collect())
        };
        let [first, second] = [0, 1].map(read);
        let first: io::Result<Vec<_>> = first;
        let mut moments = words(&moments(home))?;
        // Two processes may note theirs in another order.
        moments.sort_unstable();
        Ok(Self { acknowledged: [first?, second?], moments })
    }

    /// How many operations of each stream had been acknowledged when the log was so long; nothing if there need not have been a
    /// filter.
    pub fn at(&self, position: u64) -> Option<[u64; STREAMS]> {
        let upto = |notes: &Vec<(u64, u64)>| {
            notes.iter().filter(|note| note.1 <= position).map(|note| note.0).max()
        };
        let counts = self.acknowledged.each_ref().map(upto);
        counts.iter().any(Option::is_some).then(|| counts.map(Option::unwrap_or_default))
    }

    /// How long the log was at each acknowledgement, and at the beginning.
    pub fn positions(&self) -> Vec<u64> {
        let all = self.acknowledged.iter().flatten();
        [0].into_iter().chain(all.map(|note| note.1)).collect()
    }

    /// The same with each acknowledgement given as early as the one before it: what an engine would do that does not wait.
    pub fn hastened(mut self) -> Self {
        for notes in &mut self.acknowledged {
            for at in 1..notes.len() {
                notes[at - 1].0 = notes[at].0;
            }
        }
        self
    }
}
