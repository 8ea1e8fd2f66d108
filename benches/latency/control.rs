//! Work of about the duration of an insert that is unrelated to the engine.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// The number of words of a block, as in a filter.
const BLOCK: usize = 2048;
/// The bytes of the file that is written and synced repeatedly.
const FILE: u64 = 16 << 20;

/// A control workload.
pub enum Control {
    /// Stores to random words of a random block of an array.
    Stores {
        /// The array.
        words: Vec<u64>,
        /// The number of stores per unit of work.
        stores: u32,
        /// The state of the random numbers.
        state: u64,
    },
    /// Writes 32 bytes to a file and makes them durable.
    Syncs {
        /// The file.
        file: File,
        /// The offset of the next write.
        next: u64,
    },
}

impl Control {
    /// Creates a workload of stores to an array of this many bytes, with the number of stores that
    /// usually takes this long.
    pub fn stores(bytes: u64, nanos: f64, seed: u64) -> Self {
        // Not zeros, whose pages would be allocated only at the first stores.
        let mut words = vec![1; bytes as usize / 8];
        let mut state = seed * 2 + 1;
        let mut usual = |stores| {
            super::large::median((0..2001).map(|_| {
                let begin = Instant::now();
                store(&mut words, stores, &mut state);
                begin.elapsed().as_nanos() as f64
            }))
        };
        let stores = (1..1000).find(|&stores| usual(stores) >= nanos).unwrap_or(1000);
        Self::Stores { words, stores, state }
    }

    /// Creates a workload of writes to a file in this directory.
    pub fn syncs(directory: &Path, thread: u64) -> Self {
        let file = File::create(directory.join(format!("control-{thread}"))).expect("a file");
        file.write_all_at(&vec![1; FILE as usize], 0).expect("space");
        file.sync_all().expect("a sync");
        Self::Syncs { file, next: 0 }
    }

    /// Runs one unit of work.
    pub fn work(&mut self) {
        match self {
            Self::Stores { words, stores, state } => store(words, *stores, state),
            Self::Syncs { file, next } => {
                file.write_all_at(&[7; 32], *next).expect("space");
                file.sync_data().expect("a sync");
                *next = (*next + 32) % FILE;
            }
        }
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn store(words: &mut [u64], stores: u32, state: &mut u64) {
    let blocks = (words.len() / BLOCK) as u64;
    let block = (random(state) % blocks) as usize * BLOCK;
    let block = &mut words[block..block + BLOCK];
    for _ in 0..stores {
        let at = random(state);
        block[at as usize % BLOCK] |= 1 << (at >> 58);
    }
    black_box(block);
}
