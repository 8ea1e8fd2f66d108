//! The notes of the workload, stored outside the disk: the acknowledgements, and the length of the
//! block log at each.
//!
//! The log grows before a write or flush returns to its caller. When an operation has been
//! acknowledged, all the writes that it depends on are therefore in the log, and a power cut after
//! the noted length must not lose it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The number of threads, or processes, with their own operations.
pub const STREAMS: usize = 2;

/// The notes of a running recording.
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

/// Notes the acknowledgements before the recording, if there was a filter.
pub fn begin(home: &Path, acknowledged: Option<[u64; STREAMS]>) -> io::Result<()> {
    for at in 0..STREAMS {
        let entry = acknowledged.map(|counts| [counts[at], 0]);
        let bytes = entry.iter().flatten().flat_map(|word| word.to_le_bytes());
        std::fs::write(stream(home, at), bytes.collect::<Vec<u8>>())?;
    }
    std::fs::write(moments(home), 0_u64.to_le_bytes())
}

impl Notes {
    /// Opens the notes of a running recording.
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

    /// Notes that this many operations of the stream have been acknowledged as durable.
    pub fn acknowledge(&self, stream: usize, count: u64) {
        let note = [count, self.position()].map(u64::to_le_bytes);
        (&self.acknowledged[stream]).write_all(note.as_flattened()).expect("a note");
    }

    /// Notes that an action of several steps begins or ends.
    pub fn moment(&self) {
        (&self.moments).write_all(&self.position().to_le_bytes()).expect("a note");
    }
}

/// The notes of a finished recording.
#[derive(Debug)]
pub struct Noted {
    /// For each stream the number of acknowledged operations, with the length of the log.
    acknowledged: [Vec<(u64, u64)>; STREAMS],
    /// The lengths of the log at the noted moments.
    pub moments: Vec<u64>,
}

fn words(path: &Path) -> io::Result<Vec<u64>> {
    let bytes = std::fs::read(path)?;
    Ok(bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect())
}

impl Noted {
    /// Reads the notes.
    pub fn read(home: &Path) -> io::Result<Self> {
        let read = |at| {
            let words = words(&stream(home, at))?;
            Ok(words.as_chunks().0.iter().map(|&[count, position]| (count, position)).collect())
        };
        let [first, second] = [0, 1].map(read);
        let first: io::Result<Vec<_>> = first;
        let mut moments = words(&moments(home))?;
        // Two processes may have noted theirs in another order.
        moments.sort_unstable();
        Ok(Self { acknowledged: [first?, second?], moments })
    }

    /// Returns how many operations of each stream had been acknowledged at this length of the log;
    /// `None` if there may have been no filter.
    pub fn at(&self, position: u64) -> Option<[u64; STREAMS]> {
        let upto = |notes: &Vec<(u64, u64)>| {
            notes.iter().filter(|note| note.1 <= position).map(|note| note.0).max()
        };
        let counts = self.acknowledged.each_ref().map(upto);
        counts.iter().any(Option::is_some).then(|| counts.map(Option::unwrap_or_default))
    }

    /// Returns the length of the log at each acknowledgement, and at the beginning.
    pub fn positions(&self) -> Vec<u64> {
        let all = self.acknowledged.iter().flatten();
        [0].into_iter().chain(all.map(|note| note.1)).collect()
    }

    /// Moves each acknowledgement to the time of the one before it: this simulates an engine that
    /// does not wait.
    pub fn hastened(mut self) -> Self {
        for notes in &mut self.acknowledged {
            for at in 1..notes.len() {
                notes[at - 1].0 = notes[at].0;
            }
        }
        self
    }
}
