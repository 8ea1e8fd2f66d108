//! The command line: every command with its options, as `--help` shows them. No behaviour lives here.

use crate::kind_options::KindOptions;
use crate::priors::{DistinctOption, PriorOption, parse_distinct, parse_prior, parse_rate};
use crate::times::TimeUnit;
use crate::units::{parse_durability, parse_duration, parse_size};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ebbtide::{Durability, Options, Within};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

/// Remembers which keys a stream has shown within the last N items or minutes, in a few bits a key.
///
/// Keys are raw bytes, one a line. Exit codes: 0 done, 1 the answer is no (verify found damage,
/// salvage found none), 2 a usage or environment error. Commands that change a filter end by
/// SIGTERM, SIGINT or SIGHUP when they have answered what they have read and closed the filter; by
/// a second one at once.
#[derive(Debug, Parser)]
#[command(name = "ebbtide", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Prints each input line whose key was not seen within the window.
    Dedup(Dedup),
    /// Creates a filter.
    Create(Create),
    /// Inserts every key.
    Insert(Insert),
    /// Prints 1 or 0 per key: whether it is in the window.
    Contains(Query),
    /// Checks and inserts: prints 1 if the key was in the window before, else 0.
    Check(Check),
    /// Removes every key once: prints 1 if it was there, else 0 (counting kinds).
    Remove(Query),
    /// Prints how often each key was inserted, by estimate (counting and decaying kinds).
    ///
    /// An estimate that is a lower bound, for a counter is at its end, ends in a plus: 15+ is 15 or
    /// more. With --json the number stands in "estimate", and "at_least" is true for a lower bound.
    Estimate(Estimate),
    /// Prints the age of each key (inserts or seconds ago, a lower bound), or - if it is absent.
    Age(Query),
    /// Prints how probable it is that each key is in the window, given how likely it was before the filter was asked
    /// (bloom, timing, block-timing, age-partitioned, time-limited).
    Posterior(Posterior),
    /// Prints 1 or 0 per key: whichever costs less on average, given what wrong answers cost (the same kinds).
    Decide(Decide),
    /// Prints kind, parameters, fill, memory, disk and where the log stands.
    Stat(Look),
    /// Prints a hash of the logical state and the LSN it stands at.
    Digest(Look),
    /// Checks every checksum and replays the log; names each damaged place (exit code 1).
    Verify(Look),
    /// Prints the records of the log. A key is told by a tag, the same for equal keys within one output and another in the next.
    Wal(Look),
    /// Forgets all keys, in one step that every process using the filter sees at once.
    ///
    /// The way to reset a filter that is in use: removing its directory would leave the processes that have it open with a
    /// filter of their own, which ends with an error.
    Clear(Look),
    /// Writes a snapshot now.
    Snapshot(Look),
    /// Writes a consistent copy into a new directory.
    Backup(Backup),
    /// Makes a filter from a backup, in a new directory.
    Restore(Restore),
    /// Saves what a damaged filter still proves, in a new directory; tells what is lost.
    ///
    /// The new filter is in the state after the longest unbroken prefix of the damaged one's records: a sound snapshot, and
    /// the log up to the first damage. Records beyond are told and left out, for a state that skips operations is none that the
    /// filter ever had. SRC is not changed, may be read-only, and must not be in use. Exit codes: 0 the new filter is there,
    /// with what standard error (or --json) tells; 1 nothing is damaged, so SRC opens as it is and nothing was written; 2
    /// nothing could be saved (as without `meta`, of which any backup has a copy), or another error.
    Salvage(Salvage),
    /// Prints memory, disk, parameters and error rate of a filter before it is created.
    Plan(Plan),
}

/// What follows the options of `dedup`.
const DEDUP_HELP: &str = "\
With --state, which lines are printed when a run ends early:
  at most once (the default): a line is remembered, then printed. A run that is stopped by SIGTERM,
  SIGINT or SIGHUP prints all that it has remembered, closes the memory, and ends by the signal; a
  second signal ends it at once. A run that is killed, or stopped twice, has remembered up to one
  --batch of lines that it did not print. If the output fails, an error reports how many lines were
  remembered and not printed, and the first of them; the exit code is 2, or 0 if the reader of the
  output has closed it.
  --at-least-once: a line is printed, then remembered. A killed run may have printed up to one
  --batch of lines that the next run prints again, and loses none; runs that share the memory may each
  print a line.
  Of equal keys in a batch one line is printed all the same.

Examples:
  ebbtide dedup --window 10m access.log
  tail -F app.log | ebbtide dedup --last 100000 --field 2 --state /var/lib/app/seen
  ebbtide dedup --window 1h --event-time --time-unit s --skip-bad --max-lead 5m events.tsv";

/// What follows the options of `create`.
const CREATE_HELP: &str = "\
Examples:
  ebbtide create seen --kind time-limited --window 10m --fpr 0.001
  ebbtide create recent --kind age-partitioned --window-items 1000000 --fpr 0.01 --durability always
  ebbtide create clients --kind counting --capacity 100000 --fpr 0.001 --counter-bits 8";

/// Options of `dedup`.
#[derive(Debug, Args)]
#[command(after_help = DEDUP_HELP)]
pub struct Dedup {
    /// Forget a key after so long, such as 10m.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "last")]
    pub window: Option<Duration>,
    /// Forget a key after so many further lines.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub last: Option<u64>,
    /// Keep the memory in this directory for the next run; it is created if need be. One that
    /// exists needs neither --window nor --last, and refuses others than its own. A directory of
    /// other files is refused. Several runs may share a memory at the same time: each line is
    /// printed by one of them. Without --state the memory is a temporary directory, removed at the
    /// end.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print lines before they are remembered: a run that is killed loses none, and may print some
    /// twice.
    #[arg(long)]
    pub at_least_once: bool,
    /// The share of new lines that may be taken for known ones and be suppressed [default: 0.001].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub fpr: Option<f64>,
    /// The key is the Nth blank-separated field, from 1, not the whole line; a line without that field
    /// has the empty key.
    #[arg(long, value_name = "N")]
    pub field: Option<NonZeroUsize>,
    /// Where the window of a key begins.
    #[arg(long, value_enum, default_value = "last-seen")]
    pub since: Since,
    /// The function that hashes the keys of a new filter.
    #[arg(long, value_enum, value_name = "FUNCTION")]
    pub hash: Option<KeyHash>,
    /// The seed of the hash function of a new filter, for runs that can be repeated bit by bit.
    #[arg(long, value_name = "N")]
    pub hash_seed: Option<u64>,
    /// The stripes (locks) of a new filter.
    #[arg(long, value_name = "N")]
    pub stripes: Option<u32>,
    /// How far ahead of the wall clock the times of a new filter's lines may lie, such as 5m
    /// [default: 1h].
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub max_lead: Option<Duration>,
    /// How keys are read and kept.
    #[command(flatten)]
    pub reading: Reading,
    /// Files to read in this order; - is standard input.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Where the window of a key begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Since {
    /// At its last appearance: each one refreshes the key.
    LastSeen,
    /// At its last acceptance: only keys that were not in the window are inserted, and count.
    Accepted,
}

impl From<Since> for ebbtide::Since {
    fn from(since: Since) -> Self {
        match since {
            Since::LastSeen => Self::LastSeen,
            Since::Accepted => Self::LastAccepted,
        }
    }
}

/// Options of all commands that take keys.
#[derive(Debug, Args)]
pub struct Reading {
    /// Keys end with a NUL byte, not with a newline.
    #[arg(short = '0', long)]
    pub null: bool,
    /// Each line is TIME<TAB>KEY, and that is the clock. TIME is a number (see --time-unit) or a
    /// date with its zone, as in 2026-11-22T15:04:05Z or 2026-11-22T16:04:05.250+01:00.
    #[arg(long)]
    pub event_time: bool,
    /// The unit of times that are numbers, since the Unix epoch.
    #[arg(long, value_enum, value_name = "UNIT", default_value = "ms", requires = "event_time")]
    pub time_unit: TimeUnit,
    /// Skip lines that are malformed or that the filter refuses, such as those too far ahead, and
    /// report their number at the end. Where every line has an answer, theirs is ? (with --json
    /// an object with "error").
    #[arg(long)]
    pub skip_bad: bool,
    /// Each line ends in <TAB>NUMBER: how often the key counts (counting and decaying kinds), or how important it is
    /// (importance-aware kinds).
    #[arg(long)]
    pub weight: bool,
    /// When an insert counts as done: synced to disk (always), handed to the kernel (never), or synced
    /// at least so often (1s). For this run, in place of the filter's own setting.
    #[arg(long, value_name = "always|never|1s", value_parser = parse_durability)]
    pub durability: Option<Durability>,
    /// Keys that share a sync (with always) and are answered together; fewer if the input pauses.
    #[arg(long, value_name = "N", default_value = "1024")]
    pub batch: NonZeroUsize,
}

impl Reading {
    /// The byte that ends a line.
    pub fn delimiter(&self) -> u8 {
        if self.null { 0 } else { b'\n' }
    }
}

/// A filter and the keys for it.
#[derive(Debug, Args)]
pub struct Insert {
    /// The filter's directory.
    pub dir: PathBuf,
    /// The file of keys; - or none is standard input.
    pub file: Option<PathBuf>,
    /// How keys are read and kept.
    #[command(flatten)]
    pub reading: Reading,
}

/// A question per key.
#[derive(Debug, Args)]
pub struct Query {
    /// The filter and the keys.
    #[command(flatten)]
    pub keys: Insert,
    /// One JSON object per key.
    #[arg(long)]
    pub json: bool,
}

/// Options of `estimate`.
#[derive(Debug, Args)]
pub struct Estimate {
    /// The filter, the keys, and the form of the answers.
    #[command(flatten)]
    pub query: Query,
    /// The decayed count times 1 - lambda: what the key comes to in an epoch (decaying kinds).
    #[arg(long)]
    pub normalised: bool,
}

/// Options of `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The filter, the keys, and the form of the answers.
    #[command(flatten)]
    pub query: Query,
    /// Where the window of a key begins.
    #[arg(long, value_enum, default_value = "last-seen")]
    pub since: Since,
}

/// What is believed of the stream, and of which window it is asked.
#[derive(Debug, Args)]
pub struct Believing {
    /// How likely each insert is one of the key, before the filter is asked. A probability from 0 to 1: all keys have this one.
    /// uniform:U: so many keys are equally likely. power-law:U[:EXPONENT]: keys are their ranks, 1 to U, with probabilities
    /// that fall with the rank to this power, 1 if not given. table:FILE: lines KEY<TAB>COUNT; others count
    /// as half an insert. counted:DIR: a counting, spectral or dynamic-count filter that counts the same stream. line: each line ends in
    /// <TAB>P (behind a weight, in front of penalties).
    #[arg(long, value_name = "PRIOR", value_parser = parse_prior, allow_negative_numbers = true)]
    pub prior: Option<PriorOption>,
    /// How keys repeat: all (each insert is of another key), uniform:U, power-law:U[:EXPONENT], or points:FILE, lines J<TAB>D:
    /// among J inserts are D different keys on average. Else it is what the prior says, and all if that says nothing.
    #[arg(long, value_name = "REPEATS", value_parser = parse_distinct)]
    pub distinct: Option<DistinctOption>,
    /// Inserts a second, of all keys together; for filters whose window is a time.
    #[arg(long, value_name = "R", value_parser = parse_rate, allow_negative_numbers = true)]
    pub rate: Option<f64>,
    /// The formulas.
    #[arg(long, value_enum, default_value = "refined")]
    pub form: Form,
    /// Another window than the filter's own: the last N inserts.
    #[arg(long, value_name = "N", conflicts_with = "window", allow_negative_numbers = true)]
    window_items: Option<u64>,
    /// Another window than the filter's own, such as 10m.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    window: Option<Duration>,
}

impl Believing {
    /// The window that is asked of, if it is not the filter's own.
    pub fn window(&self) -> Option<Within> {
        let micros = |window: Duration| u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
        let time = self.window.map(|window| Within::Time(micros(window)));
        time.or(self.window_items.map(Within::Items))
    }
}

/// Which formulas a posterior is made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Better calibrated ones.
    Refined,
    /// Those that the paper prints.
    Paper,
}

impl From<Form> for ebbtide::Form {
    fn from(form: Form) -> Self {
        match form {
            Form::Refined => Self::Refined,
            Form::Paper => Self::Paper,
        }
    }
}

/// Options of `posterior`.
#[derive(Debug, Args)]
pub struct Posterior {
    /// The filter, the keys, and the form of the answers.
    #[command(flatten)]
    pub query: Query,
    /// What is believed of them.
    #[command(flatten)]
    pub believing: Believing,
    /// Tell the most likely and the expected age of each key as well, in inserts or seconds.
    #[arg(long)]
    pub ages: bool,
}

/// Options of `decide`.
#[derive(Debug, Args)]
pub struct Decide {
    /// The filter, the keys, and the form of the answers.
    #[command(flatten)]
    pub query: Query,
    /// What is believed of them.
    #[command(flatten)]
    pub believing: Believing,
    /// What it costs to answer 1 for a key that is not in the window.
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        required_unless_present = "penalties"
    )]
    pub false_positive: Option<f64>,
    /// What it costs to answer 0 for a key that is, in the same unit.
    #[arg(
        long,
        value_name = "Y",
        allow_negative_numbers = true,
        required_unless_present = "penalties"
    )]
    pub false_negative: Option<f64>,
    /// Each line ends in <TAB>X<TAB>Y instead: what the two mistakes cost for this key.
    #[arg(long, conflicts_with_all = ["false_positive", "false_negative"])]
    pub penalties: bool,
}

/// Settings of a new filter that no kind cares about.
#[derive(Debug, Args)]
pub struct Creation {
    /// The function that hashes keys.
    #[arg(long, value_enum, value_name = "FUNCTION")]
    pub hash: Option<KeyHash>,
    /// The seed of the hash function; random if not given. It is as secret as the command line.
    #[arg(long, value_name = "N")]
    pub hash_seed: Option<u64>,
    /// The stripes (locks); by size if not given.
    #[arg(long, value_name = "N")]
    pub stripes: Option<u32>,
    /// When an insert counts as done: synced to disk (always), handed to the kernel (never), or synced
    /// at least so often (1s).
    #[arg(long, value_name = "always|never|1s", value_parser = parse_durability)]
    pub durability: Option<Durability>,
    /// The size of a block, the share of memory that one key touches, such as 16KiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub block_bytes: Option<u64>,
    /// The size of a segment of the log, such as 4MiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub segment_bytes: Option<u64>,
    /// How far ahead of the wall clock a key's time may lie, such as 1h.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub max_lead: Option<Duration>,
    /// What the system clock does while nobody has the filter open.
    #[arg(long, value_enum, default_value = "age")]
    pub downtime: Downtime,
}

/// The function that hashes keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyHash {
    /// XXH3 with a random seed, the default.
    Fast,
    /// SipHash with a random key, for keys that strangers choose.
    Keyed,
}

impl From<KeyHash> for ebbtide::KeyHash {
    fn from(hash: KeyHash) -> Self {
        match hash {
            KeyHash::Fast => Self::Fast,
            KeyHash::Keyed => Self::Keyed,
        }
    }
}

/// What the system clock of a filter does while nobody has it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Downtime {
    /// It goes on: keys age.
    Age,
    /// It stands still: keys do not age.
    Freeze,
}

impl From<Downtime> for ebbtide::Downtime {
    fn from(downtime: Downtime) -> Self {
        match downtime {
            Downtime::Age => Self::Age,
            Downtime::Freeze => Self::Freeze,
        }
    }
}

impl Creation {
    /// The library's options, with its defaults for what is not given.
    pub fn options(&self) -> Options {
        let mut options = Options::new().downtime(self.downtime.into());
        if let Some(hash) = self.hash {
            options = options.key_hash(hash.into());
        }
        if let Some(seed) = self.hash_seed {
            options = options.hash_seed(seed);
        }
        if let Some(stripes) = self.stripes {
            options = options.stripes(stripes);
        }
        if let Some(durability) = self.durability {
            options = options.durability(durability);
        }
        if let Some(bytes) = self.block_bytes {
            options = options.block_bytes(bytes);
        }
        if let Some(bytes) = self.segment_bytes {
            options = options.segment_bytes(bytes);
        }
        if let Some(lead) = self.max_lead {
            options = options.max_lead(lead);
        }
        options
    }
}

/// Options of `create`.
#[derive(Debug, Args)]
#[command(after_help = CREATE_HELP)]
pub struct Create {
    /// The directory of the new filter: empty, or not there yet.
    pub dir: PathBuf,
    /// The kind of filter: bloom, counting, spectral, dynamic-count, decaying, decaying-optimized, timing, block-timing,
    /// age-partitioned, time-limited, stable, importance-2c, importance-mc, importance-h, double-buffering or two-buffer.
    #[arg(long)]
    pub kind: String,
    /// The kind's parameters.
    #[command(flatten)]
    pub kind_options: KindOptions,
    /// The filter's settings.
    #[command(flatten)]
    pub creation: Creation,
}

/// A filter to look at.
#[derive(Debug, Args)]
pub struct Look {
    /// The filter's directory.
    pub dir: PathBuf,
    /// One JSON object per line.
    #[arg(long)]
    pub json: bool,
}

/// Options of `backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// The filter's directory.
    pub dir: PathBuf,
    /// The directory of the copy, in which there must be no filter.
    pub dest: PathBuf,
}

/// Options of `restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// The directory of the backup.
    pub src: PathBuf,
    /// The directory of the new filter, in which there must be none.
    pub dir: PathBuf,
}

/// Options of `salvage`.
#[derive(Debug, Args)]
pub struct Salvage {
    /// The directory of the damaged filter.
    pub src: PathBuf,
    /// The directory of the new filter, in which there must be none.
    pub dest: PathBuf,
    /// One JSON object on standard output in place of the sentences on standard error.
    #[arg(long)]
    pub json: bool,
}

/// Options of `plan`.
#[derive(Debug, Args)]
pub struct Plan {
    /// The kind of filter, as for create; --window and --last imply theirs.
    #[arg(long)]
    pub kind: Option<String>,
    /// The window in lines, as for dedup; the same as --window-items.
    #[arg(long, value_name = "N", conflicts_with_all = ["window-items", "window"])]
    pub last: Option<NonZeroU64>,
    /// The kind's parameters.
    #[command(flatten)]
    pub kind_options: KindOptions,
    /// The filter's settings.
    #[command(flatten)]
    pub creation: Creation,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}
