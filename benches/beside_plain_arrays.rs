//! Every kind beside the same algorithm on a plain array: no persistence, no log, no locks, no blocks.
//!
//! `cargo bench --bench beside_plain_arrays [-- KIND...]` times single inserts and queries at 64 MiB, in turns of the two, and prints
//! the median of the turns in nanoseconds and their ratio. Nothing is synced (`Durability::Never`); the log is written.
//! `EBBTIDE_MIB` sets another size.

use ebbtide::{Any, Clock, Durability, Filter, Options, Parameters, Timestamp};
use std::hint::black_box;
use std::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Turns of each, and operations in one.
const TURNS: usize = 11;
const OPERATIONS: u64 = 100_000;
const SEED: u64 = 42;
/// Operations share a microsecond of stream time.
const PER_MICRO: u64 = 4;
const START: u64 = 1_700_000_000_000_000;

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The positions of a key: two of each mix, over the whole array.
fn positions(key: u64, k: u32, range: usize) -> impl Iterator<Item = usize> {
    let hash = xxh3_64_with_seed(&key.to_le_bytes(), SEED);
    (0..k).map(move |function| {
        let step = (u64::from(function / 2) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = mix(hash.wrapping_add(step));
        let half = if function % 2 == 0 { bits as u32 } else { (bits >> 32) as u32 };
        ((u64::from(half) * range as u64) >> 32) as usize
    })
}

/// An algorithm on an array.
trait Plain {
    fn insert(&mut self, key: u64);
    fn ask(&self, key: u64) -> u64;
}

/// Bits in one or two arrays, the second the younger.
struct Bits {
    arrays: Vec<Vec<u64>>,
    k: u32,
    swap_at: u64,
    inserts: u64,
}

impl Bits {
    fn new(arrays: usize, bits: u64, k: u32, swap_at: u64) -> Self {
        let words = bits.div_ceil(64) as usize;
        Self { arrays: vec![vec![0; words]; arrays], k, swap_at, inserts: 0 }
    }
}

impl Plain for Bits {
    fn insert(&mut self, key: u64) {
        for array in &mut self.arrays {
            for position in positions(key, self.k, array.len() * 64) {
                array[position / 64] |= 1 << (position % 64);
            }
        }
        self.inserts += 1;
        if self.inserts == self.swap_at {
            self.inserts = 0;
            self.arrays.rotate_left(1);
            self.arrays.last_mut().expect("one").fill(0);
        }
    }

    fn ask(&self, key: u64) -> u64 {
        let array = &self.arrays[0];
        positions(key, self.k, array.len() * 64)
            .fold(1, |all, position| all & array[position / 64] >> (position % 64))
    }
}

/// Slices of bits, of which `k` take an insert, shifted by count.
struct Slices {
    slices: Vec<Vec<u64>>,
    k: usize,
    generation: u64,
    inserts: u64,
    shifted: usize,
}

impl Slices {
    fn position(&self, key: u64, slice: usize) -> (usize, u32) {
        let range = self.slices[0].len() * 64;
        let function = (slice % self.k) as u32;
        let position = positions(key, function + 1, range).last().expect("one");
        (position / 64, (position % 64) as u32)
    }

    fn at(&self, age: usize) -> usize {
        (self.shifted + self.slices.len() - age) % self.slices.len()
    }
}

impl Plain for Slices {
    fn insert(&mut self, key: u64) {
        for age in 0..self.k {
            let slice = self.at(age);
            let (word, bit) = self.position(key, slice);
            self.slices[slice][word] |= 1 << bit;
        }
        self.inserts += 1;
        if self.inserts == self.generation {
            self.inserts = 0;
            self.shifted = (self.shifted + 1) % self.slices.len();
            self.slices[self.shifted].fill(0);
        }
    }

    /// The query of the paper: slices from the oldest on, jumping as far as no run can begin before.
    fn ask(&self, key: u64) -> u64 {
        let (mut run, mut before, mut age) = (0, 0, self.slices.len() as i64 - self.k as i64);
        while age >= 0 {
            let slice = self.at(age as usize);
            let (word, bit) = self.position(key, slice);
            if self.slices[slice][word] >> bit & 1 == 1 {
                run += 1;
                age += 1;
                if run + before == self.k {
                    return 1;
                }
            } else {
                age -= self.k as i64;
                (before, run) = (run, 0);
            }
        }
        0
    }
}

/// Counters; of decaying kinds what an epoch leaves is seen to by the one who reads.
struct Counters {
    cells: Vec<u32>,
    k: u32,
    added: u32,
}

impl Plain for Counters {
    fn insert(&mut self, key: u64) {
        for position in positions(key, self.k, self.cells.len()) {
            self.cells[position] = self.cells[position].saturating_add(self.added);
        }
    }

    fn ask(&self, key: u64) -> u64 {
        let least = positions(key, self.k, self.cells.len()).map(|at| self.cells[at]).min();
        least.unwrap_or(0).into()
    }
}

/// Counters of four bits.
struct Nibbles {
    words: Vec<u64>,
    k: u32,
}

impl Plain for Nibbles {
    fn insert(&mut self, key: u64) {
        for position in positions(key, self.k, self.words.len() * 16) {
            let (word, shift) = (&mut self.words[position / 16], position % 16 * 4);
            if *word >> shift & 15 != 15 {
                *word += 1 << shift;
            }
        }
    }

    fn ask(&self, key: u64) -> u64 {
        let cell = |at: usize| self.words[at / 16] >> (at % 16 * 4) & 15;
        positions(key, self.k, self.words.len() * 16).map(cell).min().unwrap_or(0)
    }
}

/// Timers, scanned as the paper has it.
struct Timers {
    timers: Vec<u8>,
    k: u32,
    window: u64,
    batch: u64,
    range: u64,
    inserts: u64,
    scanned: usize,
    debt: f64,
}

impl Timers {
    fn tick(&self) -> u64 {
        self.inserts / self.batch
    }

    fn age(&self, timer: u8) -> Option<u64> {
        let value = u64::from(timer).checked_sub(1)?;
        let age = (self.tick() % self.range + self.range - value) % self.range;
        (age <= self.window.div_ceil(self.batch)).then_some(age)
    }
}

impl Plain for Timers {
    fn insert(&mut self, key: u64) {
        let padding = self.range - self.window.div_ceil(self.batch);
        self.debt += self.timers.len() as f64 / (padding * self.batch) as f64;
        while self.debt >= 1.0 {
            self.debt -= 1.0;
            self.scanned = (self.scanned + 1) % self.timers.len();
            if self.age(self.timers[self.scanned]).is_none() {
                self.timers[self.scanned] = 0;
            }
        }
        let now = (self.tick() % self.range) as u8 + 1;
        for position in positions(key, self.k, self.timers.len()) {
            self.timers[position] = now;
        }
        self.inserts += 1;
    }

    fn ask(&self, key: u64) -> u64 {
        let mut oldest = 0;
        for position in positions(key, self.k, self.timers.len()) {
            match self.age(self.timers[position]) {
                Some(age) => oldest = oldest.max(age),
                None => return 0,
            }
        }
        oldest + 1
    }
}

/// Cells that are decremented at random.
struct Stable {
    cells: Vec<u8>,
    k: u32,
    p: u32,
    max: u8,
    drawn: u64,
    spares: bool,
}

impl Plain for Stable {
    fn insert(&mut self, key: u64) {
        for _ in 0..self.p {
            for _ in 0..64 {
                self.drawn += 1;
                let drawn = mix(self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let at = (((drawn as u32 as u64) * self.cells.len() as u64) >> 32) as usize;
                let cell = &mut self.cells[at];
                // IBF-H: one over its value is the chance of a cell, and none that of a zero.
                let spared = *cell == 0 || !(drawn >> 32).is_multiple_of(u64::from(*cell));
                if !self.spares || !spared {
                    *cell = cell.saturating_sub(1);
                    break;
                }
            }
        }
        for position in positions(key, self.k, self.cells.len()) {
            self.cells[position] = self.max;
        }
    }

    fn ask(&self, key: u64) -> u64 {
        positions(key, self.k, self.cells.len())
            .fold(1, |all, at| all & u64::from(self.cells[at] != 0))
    }
}

/// What is asked of a filter.
#[derive(Clone, Copy, PartialEq)]
enum Question {
    Contains,
    Estimate,
}

struct Case {
    kind: &'static str,
    parameters: Parameters,
    question: Question,
    plain: Box<dyn Plain>,
    /// Keys inserted before anything is timed.
    filled: u64,
}

fn cases(mib: u64) -> Vec<Case> {
    let bits = mib << 23;
    let words = |bits: u64| vec![0_u64; (bits / 64) as usize];
    let with = |pairs: &[(&str, String)]| {
        pairs.iter().fold(Parameters::new(), |all, (name, value)| all.with(name, value))
    };
    let (k, keys) = (7, |cells: u64| cells / 10);
    let raw = |cells: u64, name: &'static str| {
        with(&[
            ("capacity", keys(cells).to_string()),
            (name, cells.to_string()),
            ("k", k.to_string()),
        ])
    };
    let counters =
        |cells: u64, added| Box::new(Counters { cells: vec![0; cells as usize], k, added });
    let decayed = |cells: u64| raw(cells, "cells").with("lambda", 0.9).with("epoch", 10_000_000);
    let stable = |cells: u64, spares| {
        let cells = vec![0; cells as usize];
        Box::new(Stable { cells, k: 4, p: 10, max: 3, drawn: 0, spares })
    };
    let forgetful = |cells: u64| {
        with(&[
            ("cells", cells.to_string()),
            ("max", "3".into()),
            ("K", "4".into()),
            ("P", "10".into()),
        ])
    };
    let window = bits / 27;
    let age_partitioned = {
        let (k, l) = (10_u32, 25_u32);
        let window = bits * u64::from(l) / (u64::from(k * (k + l)) as f64 / 0.693) as u64;
        let slice = bits / u64::from(k + l);
        Case {
            kind: "age-partitioned",
            parameters: with(&[
                ("window-items", window.to_string()),
                ("k", k.to_string()),
                ("l", l.to_string()),
            ]),
            question: Question::Contains,
            plain: Box::new(Slices {
                slices: vec![words(slice); (k + l) as usize],
                k: k as usize,
                generation: window / u64::from(l),
                inserts: 0,
                shifted: 0,
            }),
            filled: window,
        }
    };
    let timed = |batch: u64, timer_bits: u32| {
        let timers = bits / u64::from(timer_bits);
        let window = timers / 10;
        let range = (1 << timer_bits) - 1;
        let plain = Timers {
            timers: vec![0; timers as usize],
            k,
            window,
            batch: batch.max(window * 2 / range),
            range,
            inserts: 0,
            scanned: 0,
            debt: 0.0,
        };
        (window, timers, plain)
    };
    let (block_window, timers, block_timers) = timed(0, 5);
    vec![
        Case {
            kind: "bloom",
            parameters: raw(bits, "bits"),
            question: Question::Contains,
            plain: Box::new(Bits::new(1, bits, k, u64::MAX)),
            filled: keys(bits),
        },
        Case {
            kind: "counting",
            parameters: raw(bits / 4, "cells"),
            question: Question::Estimate,
            plain: Box::new(Nibbles { words: words(bits), k }),
            filled: keys(bits / 4),
        },
        Case {
            kind: "spectral",
            parameters: raw(bits / 8, "cells"),
            question: Question::Estimate,
            plain: counters(bits / 8, 1),
            filled: keys(bits / 8),
        },
        Case {
            kind: "dynamic-count",
            parameters: raw(bits / 8, "cells").with("mean-count", 1),
            question: Question::Estimate,
            plain: counters(bits / 8, 1),
            filled: keys(bits / 8),
        },
        Case {
            kind: "decaying",
            parameters: decayed(bits / 32),
            question: Question::Estimate,
            plain: counters(bits / 32, 256),
            filled: keys(bits / 32),
        },
        Case {
            kind: "decaying-optimized",
            parameters: decayed(bits / 32),
            question: Question::Estimate,
            plain: counters(bits / 32, 256),
            filled: keys(bits / 32),
        },
        Case {
            kind: "block-timing",
            parameters: with(&[
                ("window-items", block_window.to_string()),
                ("timers", timers.to_string()),
                ("bits", "5".into()),
                ("k", k.to_string()),
            ]),
            question: Question::Contains,
            plain: Box::new(block_timers),
            filled: block_window,
        },
        age_partitioned,
        Case {
            kind: "stable",
            parameters: forgetful(bits / 2),
            question: Question::Contains,
            plain: stable(bits / 2, false),
            filled: bits / 20,
        },
        Case {
            kind: "importance-2c",
            parameters: forgetful(bits / 2),
            question: Question::Contains,
            plain: stable(bits / 2, false),
            filled: bits / 20,
        },
        Case {
            kind: "importance-mc",
            parameters: forgetful(bits / 2),
            question: Question::Contains,
            plain: stable(bits / 2, false),
            filled: bits / 20,
        },
        Case {
            kind: "importance-h",
            parameters: forgetful(bits / 2),
            question: Question::Contains,
            plain: stable(bits / 2, true),
            filled: bits / 20,
        },
        Case {
            kind: "double-buffering",
            parameters: with(&[
                ("window-items", window.to_string()),
                ("bits", bits.to_string()),
                ("k", k.to_string()),
            ]),
            question: Question::Contains,
            plain: Box::new(Bits::new(2, bits / 2, k, window)),
            filled: window,
        },
        Case {
            kind: "two-buffer",
            parameters: with(&[
                ("window-items", window.to_string()),
                ("bits", bits.to_string()),
                ("k", k.to_string()),
            ]),
            question: Question::Contains,
            plain: Box::new(Bits::new(1, bits, k, window)),
            filled: window,
        },
    ]
}

/// Nanoseconds an operation, over one turn.
fn turn(mut operation: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..OPERATIONS).for_each(&mut operation);
    start.elapsed().as_nanos() as f64 / OPERATIONS as f64
}

fn median(mut turns: Vec<f64>) -> f64 {
    turns.sort_by(f64::total_cmp);
    turns[turns.len() / 2]
}

fn run(case: Case) {
    let Case { kind, parameters, question, mut plain, filled } = case;
    let home = tempfile::tempdir().expect("a temporary directory");
    let options = Options::new().durability(Durability::Never).clock(Clock::stream());
    let spec = Any::new(kind, parameters);
    let filter = Filter::create(home.path().join("filter"), spec, options);
    let filter = filter.unwrap_or_else(|error| panic!("{kind}: {error}"));
    let mut next = 0_u64;
    let mut insert = |filter: &Filter, number: u64| {
        next = next.max(number);
        let time = Timestamp::from_unix_micros(START + next / PER_MICRO);
        filter.call().time(time).insert(number.to_le_bytes()).expect("an insert");
    };
    for number in 0..filled {
        insert(&filter, number);
        plain.insert(number);
    }
    let mut figures = [const { Vec::new() }; 4];
    for at in 0..TURNS as u64 {
        let base = filled + at * OPERATIONS;
        figures[0].push(turn(|number| insert(&filter, base + number)));
        figures[1].push(turn(|number| plain.insert(base + number)));
        // Keys from all over what is there.
        let key = |number: u64| mix(base ^ number) % (base + OPERATIONS);
        figures[2].push(turn(|number| {
            let key = key(number).to_le_bytes();
            match question {
                Question::Contains => black_box(filter.contains(key).expect("an answer")) as u64,
                Question::Estimate => {
                    black_box(filter.estimate(key).expect("an answer").count) as u64
                }
            };
        }));
        figures[3].push(turn(|number| {
            black_box(plain.ask(key(number)));
        }));
    }
    let [ours, theirs, asked, plainly] = figures.map(median);
    println!(
        "{kind:20} {ours:7.0} {theirs:7.0} {:6.2}   {asked:7.0} {plainly:7.0} {:6.2}",
        ours / theirs,
        asked / plainly
    );
    filter.close().expect("closed");
}

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let mib = std::env::var("EBBTIDE_MIB").map_or(64, |text| text.parse().expect("a number"));
    println!("{mib} MiB, ns an operation, median of {TURNS} turns of {OPERATIONS}");
    println!(
        "{:20} {:>7} {:>7} {:>6}   {:>7} {:>7} {:>6}",
        "kind", "insert", "plain", "ratio", "query", "plain", "ratio"
    );
    for case in cases(mib) {
        if wanted.is_empty() || wanted.iter().any(|name| name == case.kind) {
            run(case);
        }
    }
}
