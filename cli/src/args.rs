//! Declares the command line: every command with its options, as `--help` shows them. Contains no
//! behaviour.

use crate::kind_options::KindOptions;
use crate::operator_args::{Report, Stat, Top};
use crate::priors::{DistinctOption, PriorOption, parse_distinct, parse_prior, parse_rate};
use crate::times::TimeUnit;
use crate::units::parse_positive;
use clap::{Args, Parser, Subcommand, ValueEnum};
use ebbtide::kinds::REGISTRY;
use ebbtide::units::{parse_count, parse_durability, parse_duration, parse_size};
use ebbtide::{Durability, Options, Within};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

/// Suppresses keys that a stream has shown within the last N items or minutes, in a few bits per
/// key.
///
/// Keys are raw bytes, one per line. Exit codes: 0 success, 1 the answer is no (verify found
/// damage, salvage found none), 2 a usage or environment error. On SIGTERM, SIGINT or SIGHUP,
/// commands that change a filter answer the keys that they have read, close the filter and end; a
/// second signal ends them at once.
#[derive(Debug, Parser)]
#[command(name = "ebbtide", version, arg_required_else_help = true)]
pub struct Cli {
    /// The command to run.
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
    /// Prints 1 or 0 for each key: whether it is in the window.
    Contains(Query),
    /// Checks and inserts: prints 1 if the key was already in the window, else 0.
    Check(Check),
    /// Removes each key once: prints 1 if it was present, else 0 (counting kinds).
    Remove(Query),
    /// Prints an estimate of how often each key was inserted (counting and decaying kinds).
    ///
    /// An estimate is a lower bound if a counter has reached its maximum. It then ends in a plus:
    /// 15+ means 15 or more. With --json the number is in "estimate", and "at_least" is true for a
    /// lower bound.
    Estimate(Estimate),
    /// Prints the age of each key (inserts or seconds ago, a lower bound), or - if the key is
    /// absent.
    Age(Query),
    /// Prints the probability that each key is in the window, given its prior probability (bloom,
    /// timing, block-timing, age-partitioned, time-limited, fingerprint).
    Posterior(Posterior),
    /// Prints 1 or 0 for each key: the answer with the lower expected cost, given what wrong
    /// answers cost (the same kinds).
    Decide(Decide),
    /// Prints kind, parameters, fill, memory, disk space and the positions in the log.
    Stat(Stat),
    /// Shows filters live: throughput, fill, false-positive rate, log, handles, stalls.
    ///
    /// Changes nothing in the directories. Filters that no process has open are rebuilt in memory.
    /// Keys: Tab or the right arrow for the next filter, Shift-Tab or the left arrow for the one
    /// before, 1 to 9 for a filter by number, q to quit.
    Top(Top),
    /// Writes a page about a filter with diagrams: fill, ages, false-positive rate, log, handles.
    ///
    /// The page is one file without scripts and without outside resources. Changes nothing in the
    /// directory.
    Report(Report),
    /// Prints a hash of the logical state and its LSN.
    Digest(Look),
    /// Checks every checksum and replays the log; names each damaged location (exit code 1).
    Verify(Look),
    /// Prints the records of the log. A tag replaces each key: equal keys have equal tags within
    /// one output only.
    Wal(Look),
    /// Removes all keys in one step that every process using the filter sees at once.
    ///
    /// Use this command to reset a filter that is in use. If its directory were removed instead,
    /// processes that have the filter open would continue on a detached filter, which ends with an
    /// error.
    Clear(Look),
    /// Writes a snapshot now.
    Snapshot(Look),
    /// Writes a consistent copy to a new directory.
    Backup(Backup),
    /// Creates a filter from a backup, in a new directory.
    Restore(Restore),
    /// Recovers the longest provable prefix of a damaged filter into a new directory and reports
    /// what is lost.
    ///
    /// The new filter has the state after the longest unbroken prefix of the damaged filter's
    /// records: an intact snapshot, and the log up to the first damage. Later records are reported
    /// and left out, because a state that skips operations never existed. SRC is not changed, may
    /// be read-only, and must not be in use. Exit codes: 0 the new filter exists, and standard
    /// error (or --json) describes it; 1 nothing is damaged, so SRC opens as it is and nothing was
    /// written; 2 nothing could be recovered (for example without `meta`, of which every backup has
    /// a copy), or another error.
    Salvage(Salvage),
    /// Prints memory, disk space, parameters and error rate of a filter before it is created.
    Plan(Plan),
}

/// Help text after the options of `dedup`.
const DEDUP_HELP: &str = "\
With --state, output when a run ends early:
  at most once (the default): a line is recorded, then printed. On SIGTERM, SIGINT or SIGHUP a run
  prints every line that it has recorded, closes the filter, and ends by the signal; a second signal
  ends it at once. If a run is killed, or stopped twice, up to one --batch of lines may be recorded
  but not printed. If the output fails, an error reports the number of lines recorded but not
  printed, and the first of them; the exit code is 2, or 0 if the reader has closed the output.
  --at-least-once: a line is printed, then recorded. A killed run loses no line; the next run may
  print up to one --batch of lines again. Runs that share a filter may each print the same line.
  Of equal keys within a batch, one line is printed.

Examples:
  ebbtide dedup --window 10m access.log
  tail -F app.log | ebbtide dedup --last 100000 --field 2 --state /var/lib/app/seen
  ebbtide dedup --window 1h --event-time --time-unit s --skip-bad --max-lead 5m events.tsv";

/// Help text after the options of `create`.
const CREATE_HELP: &str = "\
Examples:
  ebbtide create seen --kind time-limited --window 10m --fpr 0.001
  ebbtide create recent --kind age-partitioned --window-items 1000000 --fpr 0.01 --durability always
  ebbtide create clients --kind counting --capacity 100000 --fpr 0.001 --counter-bits 8";

/// Options of `dedup`.
#[derive(Debug, Args)]
#[command(after_help = DEDUP_HELP)]
pub struct Dedup {
    /// Remove a key from the window after this time, such as 10m.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "last")]
    pub window: Option<Duration>,
    /// Remove a key from the window after N further lines.
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub last: Option<u64>,
    /// The kind of a new filter: with --window fingerprint or time-limited, with --last
    /// fingerprint, age-partitioned, double-buffering, two-buffer, timing or block-timing
    /// [default: fingerprint].
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// Keep the filter in this directory for the next run; it is created if necessary. An existing
    /// filter needs neither --window nor --last, and refuses values other than its own. A
    /// directory of other files is refused. Several runs may share a filter at the same time:
    /// one of them prints each line. Without --state the filter is a temporary directory,
    /// removed at the end.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print lines before they are recorded: a killed run loses no line, and may print some twice.
    #[arg(long)]
    pub at_least_once: bool,
    /// False-positive rate: the share of new lines that may be suppressed [default: 0.001].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub fpr: Option<f64>,
    /// Use the Nth blank-separated field as the key, counted from 1, instead of the whole line; a
    /// line without that field has the empty key.
    #[arg(long, value_name = "N")]
    pub field: Option<NonZeroUsize>,
    /// The event that starts the window of a key.
    #[arg(long, value_enum, default_value = "last-seen")]
    pub since: Since,
    /// The function that hashes the keys of a new filter.
    #[arg(long, value_enum, value_name = "FUNCTION")]
    pub hash: Option<KeyHash>,
    /// The seed of the hash function of a new filter, for runs that are reproducible bit by bit.
    #[arg(long, value_name = "N")]
    pub hash_seed: Option<u64>,
    /// The number of stripes (locks) of a new filter.
    #[arg(long, value_name = "N")]
    pub stripes: Option<u32>,
    /// The largest lead of the times of a new filter's lines over the wall clock, such as 5m
    /// [default: 1h].
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub max_lead: Option<Duration>,
    /// How keys are read and stored.
    #[command(flatten)]
    pub reading: Reading,
    /// Files to read in this order; - is standard input.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// The event that starts the window of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Since {
    /// The last appearance: each appearance refreshes the key.
    LastSeen,
    /// The last acceptance: only keys that are not in the window are inserted and counted.
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
    /// Read each line as TIME<TAB>KEY and use these times as the clock. TIME is a number (see
    /// --time-unit) or a date with its zone, as in 2026-11-22T15:04:05Z or
    /// 2026-11-22T16:04:05.250+01:00.
    #[arg(long)]
    pub event_time: bool,
    /// The unit of numeric times since the Unix epoch.
    #[arg(long, value_enum, value_name = "UNIT", default_value = "ms", requires = "event_time")]
    pub time_unit: TimeUnit,
    /// Skip lines that are malformed or that the filter refuses, such as lines too far ahead, and
    /// report their number at the end. Where every line has an answer, a skipped line has ? (with
    /// --json an object with "error").
    #[arg(long)]
    pub skip_bad: bool,
    /// Read a number at the end of each line, after a tab: how often the key counts (counting and
    /// decaying kinds), or its importance (importance-aware kinds).
    #[arg(long)]
    pub weight: bool,
    /// When an insert is acknowledged: when synced to disk (always), when handed to the kernel
    /// (never), or with a sync at least once per interval (1s). Applies to this run, in place of
    /// the filter's own setting.
    #[arg(long, value_name = "always|never|1s", value_parser = parse_durability)]
    pub durability: Option<Durability>,
    /// The number of keys that share a sync (with always) and are answered together; fewer if the
    /// input pauses.
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_positive::<NonZeroUsize, usize>,
        default_value = "1024"
    )]
    pub batch: NonZeroUsize,
}

impl Reading {
    /// Returns the byte that ends a line.
    pub fn delimiter(&self) -> u8 {
        if self.null { 0 } else { b'\n' }
    }
}

/// A filter and the keys for it.
#[derive(Debug, Args)]
pub struct Insert {
    /// The filter's directory.
    pub dir: PathBuf,
    /// The file of keys; - or no file means standard input.
    pub file: Option<PathBuf>,
    /// How keys are read and stored.
    #[command(flatten)]
    pub reading: Reading,
}

/// Options of commands that answer each key.
#[derive(Debug, Args)]
pub struct Query {
    /// The filter and the keys.
    #[command(flatten)]
    pub keys: Insert,
    /// Print one JSON object per key.
    #[arg(long)]
    pub json: bool,
}

/// Options of `estimate`.
#[derive(Debug, Args)]
pub struct Estimate {
    /// The filter, the keys, and the form of the answers.
    #[command(flatten)]
    pub query: Query,
    /// Print the decayed count times 1 - lambda: the key's count per epoch (decaying kinds).
    #[arg(long)]
    pub normalised: bool,
}

/// Options of `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The filter, the keys, and the form of the answers.
    #[command(flatten)]
    pub query: Query,
    /// The event that starts the window of a key.
    #[arg(long, value_enum, default_value = "last-seen")]
    pub since: Since,
}

/// The assumed model of the stream, and the window in question.
#[derive(Debug, Args)]
pub struct Believing {
    /// The prior probability that an insert is of the key. A probability from 0 to 1 applies to
    /// all keys. uniform:U: U equally likely keys. power-law:U[:EXPONENT]: keys are their
    /// ranks, 1 to U, with probabilities that fall with this power of the rank, 1 by default.
    /// table:FILE: lines KEY<TAB>COUNT; other keys count as half an insert. counted:DIR: a
    /// counting, spectral or dynamic-count filter that counts the same stream. line: each line
    /// ends in <TAB>P (after a weight, before penalties).
    #[arg(long, value_name = "PRIOR", value_parser = parse_prior, allow_negative_numbers = true)]
    pub prior: Option<PriorOption>,
    /// How keys repeat: all (each insert is of another key), uniform:U, power-law:U[:EXPONENT], or
    /// points:FILE with lines J<TAB>D: J inserts contain D distinct keys on average. Defaults to
    /// the model of --prior, or to all if --prior has none.
    #[arg(long, value_name = "REPEATS", value_parser = parse_distinct)]
    pub distinct: Option<DistinctOption>,
    /// Inserts per second, over all keys; for filters whose window is a time.
    #[arg(long, value_name = "R", value_parser = parse_rate, allow_negative_numbers = true)]
    pub rate: Option<f64>,
    /// The formulas to use.
    #[arg(long, value_enum, default_value = "refined")]
    pub form: Form,
    /// Use the last N inserts as the window, not the filter's own window.
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_count,
        conflicts_with = "window",
        allow_negative_numbers = true
    )]
    window_items: Option<u64>,
    /// Use this time as the window, such as 10m, not the filter's own window.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    window: Option<Duration>,
}

impl Believing {
    /// Returns the window in question, if it is not the filter's own.
    pub fn window(&self) -> Option<Within> {
        let micros = |window: Duration| u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
        let time = self.window.map(|window| Within::Time(micros(window)));
        time.or(self.window_items.map(Within::Items))
    }
}

/// The formulas that compute a posterior.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Formulas with better calibration.
    Refined,
    /// Formulas as printed in the paper.
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
    /// The assumed model of the stream.
    #[command(flatten)]
    pub believing: Believing,
    /// Print the most likely and the expected age of each key as well, in inserts or seconds.
    #[arg(long)]
    pub ages: bool,
}

/// Options of `decide`.
#[derive(Debug, Args)]
pub struct Decide {
    /// The filter, the keys, and the form of the answers.
    #[command(flatten)]
    pub query: Query,
    /// The assumed model of the stream.
    #[command(flatten)]
    pub believing: Believing,
    /// The cost of answering 1 for a key that is not in the window.
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        required_unless_present = "penalties"
    )]
    pub false_positive: Option<f64>,
    /// The cost of answering 0 for a key that is in the window, in the same unit.
    #[arg(
        long,
        value_name = "Y",
        allow_negative_numbers = true,
        required_unless_present = "penalties"
    )]
    pub false_negative: Option<f64>,
    /// Read <TAB>X<TAB>Y at the end of each line instead: the costs of the two mistakes for this
    /// key.
    #[arg(long, conflicts_with_all = ["false_positive", "false_negative"])]
    pub penalties: bool,
}

/// Settings of a new filter that do not depend on its kind.
#[derive(Debug, Args)]
pub struct Creation {
    /// The function that hashes keys.
    #[arg(long, value_enum, value_name = "FUNCTION")]
    pub hash: Option<KeyHash>,
    /// The seed of the hash function; random by default. It is as secret as the command line.
    #[arg(long, value_name = "N")]
    pub hash_seed: Option<u64>,
    /// The number of stripes (locks); derived from the size by default.
    #[arg(long, value_name = "N")]
    pub stripes: Option<u32>,
    /// When an insert is acknowledged: when synced to disk (always), when handed to the kernel
    /// (never), or with a sync at least once per interval (1s).
    #[arg(long, value_name = "always|never|1s", value_parser = parse_durability)]
    pub durability: Option<Durability>,
    /// The size of a block, the share of memory that one key touches, such as 16KiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub block_bytes: Option<u64>,
    /// The size of a segment of the log, such as 4MiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub segment_bytes: Option<u64>,
    /// The largest lead of a key's time over the wall clock, such as 1h.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub max_lead: Option<Duration>,
    /// Whether the system clock advances while no process has the filter open.
    #[arg(long, value_enum, default_value = "age")]
    pub downtime: Downtime,
}

/// The function that hashes keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyHash {
    /// XXH3 with a random seed, the default.
    Fast,
    /// SipHash with a random key, for untrusted keys.
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

/// Whether the system clock of a filter advances while no process has it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Downtime {
    /// The clock advances: keys age.
    Age,
    /// The clock stops: keys do not age.
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
    /// Returns the library's options, with its defaults where no option was given.
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

/// Returns the help of `--kind`, which lists all kinds.
fn kind_help() -> String {
    let names: Vec<_> = REGISTRY.iter().map(|entry| entry.name).collect();
    let (last, others) = names.split_last().unwrap_or((&"none", &[]));
    format!("The kind of filter: {} or {last}", others.join(", "))
}

/// Options of `create`.
#[derive(Debug, Args)]
#[command(after_help = CREATE_HELP)]
pub struct Create {
    /// The directory of the new filter: empty or not existing.
    pub dir: PathBuf,
    /// The kind of filter.
    #[arg(long, help = kind_help())]
    pub kind: String,
    /// The kind's parameters.
    #[command(flatten)]
    pub kind_options: KindOptions,
    /// The filter's settings.
    #[command(flatten)]
    pub creation: Creation,
}

/// Options of commands that inspect a filter.
#[derive(Debug, Args)]
pub struct Look {
    /// The filter's directory.
    pub dir: PathBuf,
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
}

/// Options of `backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// The filter's directory.
    pub dir: PathBuf,
    /// The directory of the copy, which must not contain a filter.
    pub dest: PathBuf,
}

/// Options of `restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// The directory of the backup.
    pub src: PathBuf,
    /// The directory of the new filter, which must not contain a filter.
    pub dir: PathBuf,
}

/// Options of `salvage`.
#[derive(Debug, Args)]
pub struct Salvage {
    /// The directory of the damaged filter.
    pub src: PathBuf,
    /// The directory of the new filter, which must not contain a filter.
    pub dest: PathBuf,
    /// Print one JSON object on standard output instead of sentences on standard error.
    #[arg(long)]
    pub json: bool,
}

/// Options of `plan`.
#[derive(Debug, Args)]
pub struct Plan {
    /// The kind of filter, as for create; --window and --last imply one.
    #[arg(long)]
    pub kind: Option<String>,
    /// The window in lines, as for dedup; the same as --window-items.
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_positive::<NonZeroU64, u64>,
        conflicts_with_all = ["window-items", "window"]
    )]
    pub last: Option<NonZeroU64>,
    /// The kind's parameters.
    #[command(flatten)]
    pub kind_options: KindOptions,
    /// The filter's settings.
    #[command(flatten)]
    pub creation: Creation,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Also draw bits a key against false-positive rate and window for the kinds, as SVG.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}
