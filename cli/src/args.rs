//! Declares the command line: every command with its options, as `--help` shows them. Contains no
//! behaviour.

use crate::claim_args::{Claims, RunOnce};
use crate::explain_args::Explain;
use crate::formatting::parse_positive;
use crate::kind_options::KindOptions;
use crate::moment::{Past, parse_moment};
use crate::operator_args::{Distinct, History, Report, Stat, Top};
use crate::remake_args::{Alter, Merge, Split};
#[cfg(feature = "ship")]
use crate::ship_args::{Fetch, Follow, Promote, Ship};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use ebbtide::history::At;
use ebbtide::kinds::REGISTRY;
use ebbtide::units::{parse_count, parse_durability, parse_duration, parse_size};
use ebbtide::{Durability, Keep, Options};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

pub use crate::key_args::*;
pub use crate::model_args::*;

/// Suppresses keys that a stream has shown within the last N items or minutes, in a few bits per
/// key.
///
/// Keys are raw bytes, one per line. Exit codes: 0 success, 1 the answer is no (verify found
/// damage, salvage found none, contains was asked for one --key that is absent), 2 a usage or
/// environment error. On SIGTERM, SIGINT or SIGHUP,
/// commands that change a filter answer the keys that they have read, close the filter and end; a
/// second signal ends them at once. EBBTIDE_DIR names the filter's directory where no argument is
/// given.
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
    Insert(Keys),
    /// Prints 1 or 0 for each key: whether it is in the window.
    ///
    /// With a single --key, the exit code is 1 if the key is absent, or skipped by --skip-bad.
    Contains(Question),
    /// Checks and inserts: prints 1 if the key was already in the window, else 0.
    Check(Check),
    /// Removes each key once: prints 1 if it was present, else 0 (counting kinds).
    Remove(Query),
    /// Runs a command once in the window: not if its key was confirmed before, nor beside another
    /// `run` of the key.
    ///
    /// The key is confirmed, and then in the window, if the command ends with exit code 0.
    /// Otherwise it is released for the next attempt, and `run` ends with the command's exit code.
    /// If `run` is killed, the key is free when the lease is over. The command finds a number that
    /// grows from claim to claim in EBBTIDE_TOKEN. Exit codes: 0 the work is done, now or before;
    /// 75 somebody else is doing it; 2 an error, also if the lease was lost, and the work may be
    /// done twice.
    Run(RunOnce),
    /// Lists the keys that somebody works on, by their tokens, or ends the claim of one (exit code
    /// 1 if nobody has it).
    Claims(Claims),
    /// Prints an estimate of how often each key was inserted (counting and decaying kinds).
    ///
    /// An estimate is a lower bound if a counter has reached its maximum. It then ends in a plus:
    /// 15+ means 15 or more. With --json the number is in "estimate", and "at_least" is true for a
    /// lower bound.
    Estimate(Estimate),
    /// Prints the age of each key (inserts or seconds ago, a lower bound), or - if the key is
    /// absent.
    Age(Question),
    /// Prints the probability that each key is in the window, given its prior probability (bloom,
    /// counting, two-buffer, double-buffering, timing, block-timing, age-partitioned, time-limited,
    /// fingerprint).
    Posterior(Posterior),
    /// Prints 1 or 0 for each key: the answer with the lower expected cost, given what wrong
    /// answers cost (the same kinds).
    Decide(Decide),
    /// Prints how many distinct keys are in the window or in a part of it, and the standard error.
    ///
    /// It is known from the cells, in all kinds except those that decay or forget at random. Keys
    /// that are up to one generation older than was asked for count too: the answer says how far
    /// back it reaches.
    Distinct(Distinct),
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
    Digest(Digest),
    /// Checks every checksum and replays the log; names each damaged location (exit code 1).
    Verify(Look),
    /// Prints the records of the log. A tag replaces each key: equal keys have equal tags within
    /// one output only.
    Wal(Look),
    /// Prints the operations in the log, one per line: LSN, timeline, time, operation, what it
    /// changed.
    ///
    /// They are in the order in which they happened, from the oldest that is kept (--keep-log).
    /// Operations that happened together, as one batch, are marked. A key is its hash, which is as
    /// secret as the filter's seed. Nothing is changed, and no writer waits. By default only what
    /// survives a power cut is printed.
    History(History),
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
    /// Creates a filter from a backup, in a new directory, or what a filter was at a moment of its
    /// past.
    ///
    /// The filter from a backup keeps as much log from then on as the original did (--keep-log). A
    /// backup that an earlier build has made does not say how much: give the option again.
    Restore(Restore),
    /// Copies a filter to object storage while it changes, until a signal comes, or until another
    /// machine does (exit code 3: fetch before you ship again).
    #[cfg(feature = "ship")]
    Ship(Ship),
    /// Creates a filter, in a new directory, from object storage.
    #[cfg(feature = "ship")]
    Fetch(Fetch),
    /// Prints 1 or 0 for each key of standard input, from a copy of a shipped filter; ? if that is
    /// too far behind.
    #[cfg(feature = "ship")]
    Follow(Follow),
    /// Makes a new directory, or a follower's, the writer: fetches the rest, fences whoever ships.
    #[cfg(feature = "ship")]
    Promote(Promote),
    /// Gives a filter another window, rate, capacity or kind, while it is in use, from the log that
    /// is kept.
    ///
    /// Afterwards it answers as one that has had its parameters since the log began. Processes that
    /// have it open continue with it; at the end writers wait for about two seconds for each GiB of
    /// the filter. Parameters that are not named stay as they are; with --kind they have their
    /// defaults. If the log begins within the new window, that needs --forget.
    /// plan --alter says what it takes.
    ///
    /// With NEW a filter in another directory is made instead. Parameters that are not named have
    /// their defaults. DIR stays as it is, and may be in use; what comes after the end of its log
    /// was read is not in the new filter.
    Alter(Alter),
    /// Unites filters with the same hash of keys (--hash-seed) in a new directory.
    ///
    /// The new filter answers as one that has had the operations of all of them, in the order of
    /// their times.
    Merge(Merge),
    /// Divides a filter into several by the hash of its keys.
    Split(Split),
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
    /// Prints memory, disk space, parameters and error rate of a filter before it is created, or
    /// what it takes to alter one.
    Plan(Plan),
    /// Explains the answer about each key: which records of the kept log inserted it, when, where
    /// it lies, and how probable a false positive is.
    ///
    /// The log begins at the oldest record that no snapshot has made superfluous. A key that is
    /// present without a record was inserted before that, or is a false positive. Records hold a
    /// 64-bit hash of the key: records of another key with the same hash are shown as well, which
    /// happens for one pair of keys in 2^64. Nothing is changed, and other processes may write
    /// meanwhile.
    Explain(Explain),
    /// Shows in about two minutes what the command does, in a temporary directory.
    Demo(Demo),
    /// Prints the completions of a shell.
    Completions(Completions),
    /// Prints the manual page of a command, or writes those of all commands to a directory.
    Man(Man),
}

/// The heading of the options of `dedup` that an existing filter does not need.
const NEW_FILTER: &str = "A new filter";
/// The heading of the options of `create` that do not depend on the kind.
const SETTINGS: &str = "The filter's settings";

/// Options of `dedup`.
#[derive(Debug, Args)]
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
    #[arg(long, value_name = "KIND", help_heading = NEW_FILTER)]
    pub kind: Option<String>,
    /// Keep the filter in this directory for the next run; it is created if necessary. An existing
    /// filter needs neither --window nor --last, and refuses values other than its own. A directory
    /// of other files is refused. Several runs may share a filter at the same time: one of them
    /// prints each line. Without --state the filter is in the memory of this run, and no file is
    /// written.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Print lines before they are recorded: a killed run loses no line, and may print some twice.
    #[arg(long)]
    pub at_least_once: bool,
    /// Write the new lines to this file, each exactly once: a run that is killed is resumed by the
    /// next one with the same --state, whose output equals that of one undisturbed run, byte for
    /// byte. The inputs must be files; they may grow, and be renamed and compressed by a rotation.
    /// A run that may miss lines is refused and says what is missing. Of a new state, what the
    /// output holds already stays. Without this option a kill loses the answers of a batch that was
    /// recorded and not printed, or with --at-least-once prints some twice.
    #[arg(long, value_name = "OUT", requires = "state", conflicts_with = "at_least_once")]
    pub output: Option<PathBuf>,
    /// Read the inputs from their beginning, whatever earlier runs with --output have read.
    #[arg(long, requires = "output")]
    pub new_input: bool,
    /// Take the last line of each input as a line, even if it has no end: nothing more is written
    /// to these files. Without this option it waits for its end, or for a newer file that follows.
    #[arg(long, requires = "output")]
    pub complete: bool,
    /// Continue although an input of an earlier run is gone, whose end may not have been read.
    #[arg(long, requires = "output", conflicts_with = "new_input")]
    pub accept_missing: bool,
    /// Do not read this file, which looks like a part of an input's rotation that no run has read.
    #[arg(long, value_name = "FILE", requires = "output")]
    pub leave_out: Vec<PathBuf>,
    /// Continue behind what the output holds now, although it is not the file that earlier runs
    /// have written.
    #[arg(long, requires = "output")]
    pub adopt_output: bool,
    /// False-positive rate: the share of new lines that may be suppressed [default: 0.001].
    #[arg(long, value_name = "P", allow_negative_numbers = true, help_heading = NEW_FILTER)]
    pub fpr: Option<f64>,
    /// Print the suppressed lines instead of the others.
    #[arg(long)]
    pub invert: bool,
    /// Report the numbers of lines read, printed, suppressed, late and bad on standard error at the
    /// end.
    #[arg(long)]
    pub stats: bool,
    /// Leave the header of CSV out of the output, as for a run that continues an earlier output.
    #[arg(long, requires = "csv_field")]
    pub omit_header: bool,
    /// The event that starts the window of a key.
    #[arg(long, value_enum, default_value = "last-seen")]
    pub since: Since,
    /// The function that hashes the keys of a new filter.
    #[arg(long, value_enum, value_name = "FUNCTION", help_heading = NEW_FILTER)]
    pub hash: Option<KeyHash>,
    /// The seed of the hash function of a new filter, for runs that are reproducible bit by bit.
    #[arg(long, value_name = "N", help_heading = NEW_FILTER)]
    pub hash_seed: Option<u64>,
    /// The number of stripes (locks) of a new filter.
    #[arg(long, value_name = "N", help_heading = NEW_FILTER)]
    pub stripes: Option<u32>,
    /// The largest lead of the times of a new filter's lines over the wall clock, such as 5m
    /// [default: 1h].
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = parse_duration,
        help_heading = NEW_FILTER
    )]
    pub max_lead: Option<Duration>,
    /// How keys are read and stored.
    #[command(flatten)]
    pub reading: Reading,
    /// Files to read in this order, also compressed ones; - or no file means standard input.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

impl Dedup {
    /// Returns where the lines come from.
    pub fn origin(&self) -> Origin {
        Origin { files: self.files.clone(), ..Origin::default() }
    }
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
    format!(
        "The kind of filter: {} or {last}; --window and --last imply fingerprint, with --fpr 0.001",
        others.join(", ")
    )
}

/// Options of `create`.
#[derive(Debug, Args)]
pub struct Create {
    /// The directory of the new filter: empty or not existing.
    pub dir: PathBuf,
    /// The kind of filter.
    #[arg(long, help = kind_help())]
    pub kind: Option<String>,
    /// The window in inserts; the same as --window-items.
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
    #[command(flatten, next_help_heading = SETTINGS)]
    pub creation: Creation,
    /// How much of the log is kept beyond what recovery needs: the operations of a time such as
    /// 24h, at most this much disk, such as 10GiB, or nothing, the default. With it the filter can
    /// be asked as of a moment of its past (--at). It may be changed later, by the same option of
    /// the commands that insert.
    #[arg(long, value_name = KEEPS, value_parser = parse_keep, help_heading = SETTINGS)]
    pub keep_log: Option<Keep>,
}

/// Options of commands that inspect a filter.
#[derive(Debug, Args)]
pub struct Look {
    /// The filter's directory. Without any argument it is the value of EBBTIDE_DIR.
    #[arg(env = "EBBTIDE_DIR", hide_env = true)]
    pub dir: PathBuf,
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
}

/// Options of `digest`.
#[derive(Debug, Args)]
pub struct Digest {
    /// The filter, and the form of the answer.
    #[command(flatten)]
    pub look: Look,
    /// The moment in question.
    #[command(flatten)]
    pub past: Past,
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
    /// The directory of the backup, or with --at of the filter, which others may use meanwhile.
    pub src: PathBuf,
    /// The directory of the new filter, which must not contain a filter.
    pub dir: PathBuf,
    /// Create what the filter was at a moment of its past, from the log that is kept (--keep-log):
    /// lsn:N, position:SOURCE=N or a time, as for contains. The new filter keeps no log until an
    /// option says so.
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    pub at: Option<At>,
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
    /// Print what it takes to give the filter in this directory these parameters (alter): how long,
    /// how long writers wait, memory, disk, and what is forgotten. Changes nothing. Parameters that
    /// are not named stay as they are; with --kind they have their defaults.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = [
            "plot", "hash", "hash_seed", "stripes", "durability", "block_bytes", "segment_bytes",
            "max_lead", "downtime"
        ]
    )]
    pub alter: Option<PathBuf>,
    /// Also draw bits a key against false-positive rate and window for the kinds, as SVG.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// Options of `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Make no pauses; there are none either if the output is not a terminal.
    #[arg(long)]
    pub fast: bool,
}

/// Options of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Options of `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// The command whose page is printed; without it, the page of ebbtide.
    #[arg(conflicts_with = "output")]
    pub name: Option<String>,
    /// Write the pages of all commands to this directory.
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}
