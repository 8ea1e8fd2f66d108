//! The measured filters, at their planned fill, and their keys.

use crate::common::{directory, key};
use ebbtide::kinds::registry;
use ebbtide::{Any, Call, Clock, Durability, Filter, Options, Parameters, Timestamp, inspect};
use std::cell::{Cell, LazyCell};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub type Key = [u8; 16];

/// An operation that threads or processes repeat.
#[derive(Debug, Clone, Copy)]
pub enum Operation {
    Insert,
    CheckAndInsert,
}

impl Operation {
    pub const ALL: [Self; 2] = [Self::Insert, Self::CheckAndInsert];

    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::CheckAndInsert => "check-and-insert",
        }
    }

    /// Runs it with the keys of these numbers.
    pub fn run(self, filter: &Filter, numbers: Range<u64>) {
        for key in numbers.map(key) {
            match self {
                Self::Insert => filter.insert(key).map(drop),
                Self::CheckAndInsert => filter.check_and_insert(key).map(drop),
            }
            .expect("an operation");
        }
    }
}

/// The first number of the keys that no filter contains.
const ABSENT: u64 = 1 << 60;

/// In kinds with time, this many inserts share a microsecond of the inserts' own time.
const PER_MICRO: u64 = 4;
const START: u64 = 1_700_000_000_000_000;

/// The parameters for a number of keys.
type ForKeys = fn(u64) -> Parameters;

/// A kind, with the properties needed to fill it.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    parameters: ForKeys,
    /// Whether old keys expire: then all inserted keys are new, otherwise they are already
    /// present.
    forgets: bool,
    by_time: bool,
    weighs: bool,
    pub ages: bool,
}

impl Kind {
    /// Returns a kind by its name, with the first of these parameters that it takes.
    pub fn named(name: &'static str) -> Self {
        const ALL: [(ForKeys, bool); 5] = [
            (capacity, false),
            (decaying, false),
            (window, true),
            (time_limited, true),
            (cells, true),
        ];
        let fitting = ALL.into_iter().find_map(|(parameters, forgets)| {
            let kind = registry::build(name, &parameters(1000)).ok()?;
            Some((parameters, forgets, kind))
        });
        let (parameters, forgets, kind) = fitting.unwrap_or_else(|| panic!("unknown kind {name}"));
        Self {
            name,
            parameters,
            forgets,
            by_time: kind.uses_time(),
            weighs: kind.weights().is_some() && kind.counts().is_none(),
            ages: kind.ages().is_some(),
        }
    }

    /// Returns how many keys the kind is planned for when it takes this much memory.
    fn keys_in(self, bytes: u64) -> u64 {
        const KEYS: u64 = 1 << 20;
        let plan = inspect::plan(self.name, &(self.parameters)(KEYS), &Options::new());
        let plan = plan.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        (KEYS as f64 * bytes as f64 / plan.memory_bytes as f64) as u64
    }
}

fn capacity(keys: u64) -> Parameters {
    Parameters::new().with("capacity", keys)
}

/// An epoch ends after as many inserts as there are keys.
fn decaying(keys: u64) -> Parameters {
    capacity(keys).with("lambda", 0.9).with("epoch", keys / PER_MICRO)
}

fn window(keys: u64) -> Parameters {
    Parameters::new().with("window-items", keys)
}

fn time_limited(keys: u64) -> Parameters {
    let rate = PER_MICRO * 1_000_000;
    Parameters::new().with("window", keys / PER_MICRO).with("rate", rate)
}

/// By the kinds' defaults an insert decrements about a hundred of the cells, whose highest value is
/// 7: about as many inserts as there are keys lower a cell from there to zero.
fn cells(keys: u64) -> Parameters {
    Parameters::new().with("cells", keys * 16)
}

/// A size of memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mebibytes(pub u64);

impl fmt::Display for Mebibytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1024 => f.write_str("1 GiB"),
            mebibytes => write!(f, "{mebibytes} MiB"),
        }
    }
}

impl Mebibytes {
    fn bytes(self) -> u64 {
        if is_test() { 1 << 18 } else { self.0 << 20 }
    }
}

/// Returns whether everything is only tried once: with `--test`, or under `cargo test`. All filters
/// are small then.
fn is_test() -> bool {
    let given = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    given("--test") || !given("--bench")
}

/// Returns a pseudo-random number below `range`, a function of `index`.
fn pick(index: u64, range: u64) -> u64 {
    let mixed = (index ^ (index >> 32)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((u128::from(mixed) * u128::from(range)) >> 64) as u64
}

/// A filter at its planned fill, and the stream of its keys.
pub struct Subject {
    pub filter: Filter,
    kind: Kind,
    /// The number of keys that it is planned for.
    planned: u64,
    /// The number of inserts so far.
    inserts: Cell<u64>,
    questions: Cell<u64>,
    home: tempfile::TempDir,
}

/// A [`Subject`] that is created at its first use.
pub type Lazy = LazyCell<Subject, Box<dyn FnOnce() -> Subject>>;

pub fn lazily(kind: Kind, size: Mebibytes, durability: Durability) -> Lazy {
    LazyCell::new(Box::new(move || Subject::new(kind, size, durability)))
}

impl Subject {
    fn new(kind: Kind, size: Mebibytes, durability: Durability) -> Self {
        let start = Instant::now();
        let home = directory();
        let planned = kind.keys_in(size.bytes());
        let mut options = Options::new().durability(durability);
        if kind.by_time {
            options = options.clock(Clock::stream());
        }
        let spec = Any::new(kind.name, (kind.parameters)(planned));
        let filter = Filter::create(home.path().join("filter"), spec, options);
        let filter = filter.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        // If old keys expire, fill until some have.
        let inserts = if kind.forgets { planned + planned / 8 } else { planned };
        fill(&filter, kind, inserts);
        let took = start.elapsed();
        let (inserts, questions) = (Cell::new(inserts), Cell::new(0));
        let subject = Self { filter, kind, planned, inserts, questions, home };
        if !is_test() {
            eprintln!("\n{}", subject.describe(took));
        }
        subject
    }

    /// Describes the created filter, so that a wrong filter is noticed.
    fn describe(&self, took: Duration) -> String {
        let stat = self.filter.stat().expect("figures");
        let found = |ask: fn(&Self) -> Key| {
            (0..1000).filter(|_| self.filter.contains(ask(self)).expect("an answer")).count()
        };
        format!(
            "{}: {:.1} million inserts in {:.1} s; {:.1} MiB; of 1000 present keys it finds {}, of \
             as many absent ones {}",
            self.kind.name,
            self.inserts.get() as f64 / 1e6,
            took.as_secs_f64(),
            stat.memory_bytes as f64 / f64::from(1 << 20),
            found(Self::present),
            found(Self::absent),
        )
    }

    /// Returns the path of the filter.
    pub fn path(&self) -> PathBuf {
        self.home.path().join("filter")
    }

    /// Returns a call for the next insert: at its time, with its importance.
    pub fn call(&self) -> Call<'_> {
        call(&self.filter, self.kind, self.inserts.get())
    }

    /// Returns the next key to insert.
    pub fn fresh(&self) -> Key {
        let number = self.inserts.replace(self.inserts.get() + 1);
        key(if self.kind.forgets { number } else { pick(number, self.planned) })
    }

    /// Returns the numbers of keys that were never inserted, for a kind whose keys expire.
    pub fn take(&self, count: u64) -> u64 {
        assert!(self.kind.forgets, "{} is planned for a fixed number of keys", self.kind.name);
        self.inserts.replace(self.inserts.get() + count)
    }

    /// Returns a key of any age that was inserted and has not expired (except in kinds with random
    /// decay).
    pub fn present(&self) -> Key {
        let question = self.questions.replace(self.questions.get() + 1);
        key(if self.kind.forgets {
            self.inserts.get() - 1 - pick(question, self.planned - self.planned / 8)
        } else {
            pick(question, self.planned)
        })
    }

    /// Returns a key that was never inserted.
    pub fn absent(&self) -> Key {
        let question = self.questions.replace(self.questions.get() + 1);
        key(ABSENT + question)
    }
}

fn call(filter: &Filter, kind: Kind, number: u64) -> Call<'_> {
    let call = filter.call();
    if kind.by_time {
        call.time(Timestamp::from_unix_micros(START + number / PER_MICRO))
    } else if kind.weighs {
        // Importances from 1 to 7 in turn.
        call.weight((number % 7 + 1) as f64)
    } else {
        call
    }
}

/// Inserts the first keys of the stream on all cores, and syncs the whole log.
fn fill(filter: &Filter, kind: Kind, inserts: u64) {
    const SHARE: u64 = 4096;
    let next = AtomicU64::new(0);
    let work = || {
        loop {
            let first = next.fetch_add(SHARE, Ordering::Relaxed);
            let keys: Vec<_> = (first..inserts.min(first + SHARE)).map(key).collect();
            if keys.is_empty() {
                return;
            }
            let call = call(filter, kind, first).durability(Durability::Never);
            call.insert_all(&keys).expect("inserts");
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    filter.sync().expect("a sync");
}
