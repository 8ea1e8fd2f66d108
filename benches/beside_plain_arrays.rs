//! Compares every kind with the same algorithm on a plain array: no persistence, no log, no locks,
//! no blocks.
//!
//! `cargo bench --bench beside_plain_arrays [-- KIND...]` times single inserts and queries at 64
//! MiB, in turns of the two, and prints the median of the turns in nanoseconds and their ratio.
//! Nothing is synced (`Durability::Never`); the log is written. `EBBTIDE_MIB` sets another size.

use ebbtide::{Any, Clock, Durability, Filter, Options, Parameters, Timestamp};
use std::hint::black_box;
use std::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The number of turns of each, and of operations in one.
const TURNS: usize = 11;
const OPERATIONS: u64 = 100_000;
const SEED: u64 = 42;
/// The number of operations that share a microsecond of stream time.
const PER_MICRO: u64 = 4;
const START: u64 = 1_700_000_000_000_000;

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns the positions of a key: two from each mix, over the whole array.
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

/// Bits in one or two arrays; the second is the younger.
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

/// Slices of bits, of which `k` receive an insert, shifted by count.
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

    /// The query of the paper: slices from the oldest on, skipping those in which no run can begin.
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

/// Counters; in decaying kinds the reader applies the decay.
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

/// Cells of any width, packed.
struct Packed {
    words: Vec<u64>,
    bits: u64,
}

impl Packed {
    fn new(cells: u64, bits: u64) -> Self {
        Self { words: vec![0; (cells * bits / 64 + 2) as usize], bits }
    }

    fn place(&self, at: usize) -> (usize, u64) {
        let bit = at as u64 * self.bits;
        ((bit / 64) as usize, bit % 64)
    }

    fn get(&self, at: usize) -> u64 {
        let (word, shift) = self.place(at);
        let both = u128::from(self.words[word + 1]) << 64 | u128::from(self.words[word]);
        (both >> shift) as u64 & ((1 << self.bits) - 1)
    }

    fn set(&mut self, at: usize, value: u64) {
        let (word, shift) = self.place(at);
        let mask = (1 << self.bits) - 1;
        self.words[word] = self.words[word] & !(mask << shift) | value << shift;
        if shift + self.bits > 64 {
            let done = 64 - shift;
            self.words[word + 1] = self.words[word + 1] & !(mask >> done) | value >> done;
        }
    }
}

/// Timers, swept as in the paper.
struct Timers {
    timers: Packed,
    count: usize,
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

    fn age(&self, timer: u64) -> Option<u64> {
        let value = timer.checked_sub(1)?;
        let age = (self.tick() % self.range + self.range - value) % self.range;
        (age <= self.window.div_ceil(self.batch)).then_some(age)
    }
}

impl Plain for Timers {
    fn insert(&mut self, key: u64) {
        let padding = self.range - self.window.div_ceil(self.batch);
        self.debt += self.count as f64 / (padding * self.batch) as f64;
        while self.debt >= 1.0 {
            self.debt -= 1.0;
            self.scanned = (self.scanned + 1) % self.count;
            if self.age(self.timers.get(self.scanned)).is_none() {
                self.timers.set(self.scanned, 0);
            }
        }
        let now = self.tick() % self.range + 1;
        for position in positions(key, self.k, self.count) {
            self.timers.set(position, now);
        }
        self.inserts += 1;
    }

    fn ask(&self, key: u64) -> u64 {
        let mut oldest = 0;
        for position in positions(key, self.k, self.count) {
            match self.age(self.timers.get(position)) {
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
                // IBF-H: a cell is decremented with a probability of one over its value, and never
                // at zero.
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

/// The lookup that is timed.
#[derive(Clone, Copy, PartialEq)]
enum Question {
    Contains,
    Estimate,
}

impl Question {
    fn ask(self, filter: &Filter, key: u64) {
        let key = key.to_le_bytes();
        match self {
            Self::Contains => {
                black_box(filter.contains(key).expect("an answer"));
            }
            Self::Estimate => {
                black_box(filter.estimate(key).expect("an answer"));
            }
        }
    }
}

struct Case {
    kind: &'static str,
    parameters: Parameters,
    question: Question,
    plain: Box<dyn Plain>,
    /// The number of keys inserted before the timing.
    filled: u64,
}

/// The number of hash functions of kinds that do not choose it.
const K: u32 = 7;

fn words(bits: u64) -> Vec<u64> {
    vec![0; (bits / 64) as usize]
}

fn with(pairs: &[(&str, String)]) -> Parameters {
    pairs.iter().fold(Parameters::new(), |all, (name, value)| all.with(name, value))
}

/// Returns the number of keys for this many cells.
fn keys(cells: u64) -> u64 {
    cells / 10
}

/// Returns parameters with this many cells, under this name, and [`K`].
fn raw(cells: u64, name: &'static str) -> Parameters {
    let capacity = keys(cells).to_string();
    with(&[("capacity", capacity), (name, cells.to_string()), ("k", K.to_string())])
}

fn bloom(bits: u64) -> Case {
    Case {
        kind: "bloom",
        parameters: raw(bits, "bits"),
        question: Question::Contains,
        plain: Box::new(Bits::new(1, bits, K, u64::MAX)),
        filled: keys(bits),
    }
}

fn counting(bits: u64) -> Case {
    Case {
        kind: "counting",
        parameters: raw(bits / 4, "cells"),
        question: Question::Estimate,
        plain: Box::new(Nibbles { words: words(bits), k: K }),
        filled: keys(bits / 4),
    }
}

/// Kinds whose plain form is an array of `u32`.
fn counters(kind: &'static str, cells: u64, decays: bool) -> Case {
    let parameters = raw(cells, "cells");
    let parameters =
        if decays { parameters.with("lambda", 0.9).with("epoch", 10_000_000) } else { parameters };
    let added = if decays { 256 } else { 1 };
    Case {
        kind,
        parameters,
        question: Question::Estimate,
        plain: Box::new(Counters { cells: vec![0; cells as usize], k: K, added }),
        filled: keys(cells),
    }
}

/// Timers of these bits, and the smallest number of inserts per tick that the bits allow.
fn timed(kind: &'static str, bits: u64, timer_bits: u64) -> Case {
    let timers = bits / timer_bits;
    let (window, range) = (timers / 10, (1_u64 << timer_bits) - 1);
    let plain = Timers {
        timers: Packed::new(timers, timer_bits),
        count: timers as usize,
        k: K,
        window,
        batch: (window * 2).div_ceil(range),
        range,
        inserts: 0,
        scanned: 0,
        debt: 0.0,
    };
    Case {
        kind,
        parameters: with(&[
            ("window-items", window.to_string()),
            ("timers", timers.to_string()),
            ("bits", timer_bits.to_string()),
            ("k", K.to_string()),
        ]),
        question: Question::Contains,
        plain: Box::new(plain),
        filled: window,
    }
}

fn age_partitioned(bits: u64) -> Case {
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
}

fn stable(kind: &'static str, bits: u64) -> Case {
    let cells = bits / 2;
    let spares = kind == "importance-h";
    Case {
        kind,
        parameters: with(&[
            ("cells", cells.to_string()),
            ("max", "3".into()),
            ("K", "4".into()),
            ("P", "10".into()),
        ]),
        question: Question::Contains,
        plain: Box::new(Stable {
            cells: vec![0; cells as usize],
            k: 4,
            p: 10,
            max: 3,
            drawn: 0,
            spares,
        }),
        filled: cells / 20,
    }
}

/// `arrays` of bits in the plain form.
fn buffering(kind: &'static str, bits: u64, arrays: usize) -> Case {
    let window = bits / 27;
    Case {
        kind,
        parameters: with(&[
            ("window-items", window.to_string()),
            ("bits", bits.to_string()),
            ("k", K.to_string()),
        ]),
        question: Question::Contains,
        plain: Box::new(Bits::new(arrays, bits / arrays as u64, K, window)),
        filled: window,
    }
}

/// Creates the case of a kind for this many bits.
type Make = fn(u64) -> Case;

/// Each kind's case is created when its turn comes: all of them together would not fit in memory.
const CASES: [(&str, Make); 15] = [
    ("bloom", bloom),
    ("counting", counting),
    ("spectral", |bits| counters("spectral", bits / 8, false)),
    ("dynamic-count", |bits| counters("dynamic-count", bits / 8, false)),
    ("decaying", |bits| counters("decaying", bits / 32, true)),
    ("decaying-optimized", |bits| counters("decaying-optimized", bits / 22, true)),
    ("timing", |bits| timed("timing", bits, 26)),
    ("block-timing", |bits| timed("block-timing", bits, 5)),
    ("age-partitioned", age_partitioned),
    ("stable", |bits| stable("stable", bits)),
    ("importance-2c", |bits| stable("importance-2c", bits)),
    ("importance-mc", |bits| stable("importance-mc", bits)),
    ("importance-h", |bits| stable("importance-h", bits)),
    ("double-buffering", |bits| buffering("double-buffering", bits, 2)),
    ("two-buffer", |bits| buffering("two-buffer", bits, 1)),
];

/// Returns nanoseconds per operation, over one turn.
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
        // Keys from the whole range inserted so far.
        let key = |number: u64| mix(base ^ number) % (base + OPERATIONS);
        figures[2].push(turn(|number| question.ask(&filter, key(number))));
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
    for (kind, case) in CASES {
        if wanted.is_empty() || wanted.iter().any(|name| name == kind) {
            run(case(mib << 23));
        }
    }
}
