//! Declares the options that commands over keys share: where keys come from, which part of a line
//! is the key, and how answers are printed.

use crate::formatting::parse_positive;
use crate::key_syntax::{JsonPath, Separator, parse_field, parse_json_path, parse_separator};
use crate::moment::Past;
pub use crate::time_args::Times;
use clap::{Args, ValueEnum};
use ebbtide::Durability;
use ebbtide::units::{parse_durability, parse_size};
use ebbtide::{Error, ImagePlace, Keep, Options};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

/// The heading of the options about lines and keys.
const KEYS: &str = "Lines and keys";
/// The heading of the options about writing.
pub const WRITING: &str = "Writing";
/// The values of `--keep-log`.
pub const KEEPS: &str = "24h|10GiB|nothing";

/// Parses how much log is kept.
pub fn parse_keep(text: &str) -> std::result::Result<Keep, String> {
    text.parse().map_err(|error: Error| match error {
        Error::Parameter { expected, .. } => format!("expected {expected}"),
        other => other.to_string(),
    })
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
    #[arg(short = '0', long, help_heading = KEYS)]
    pub null: bool,
    /// Use the Nth field of a line as the key, counted from 1. Fields are separated by blanks, as
    /// in awk, or by --delimiter. A line without that field has the empty key. Several fields, as
    /// in 1,3 or by repeating the option, make a key together.
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_field,
        value_delimiter = ',',
        conflicts_with_all = ["json_field", "csv_field"],
        help_heading = KEYS
    )]
    pub field: Vec<NonZeroUsize>,
    /// The character between fields, such as , or \t for a tab: every one ends a field, as in cut.
    #[arg(
        long = "delimiter",
        value_name = "C",
        value_parser = parse_separator,
        help_heading = KEYS
    )]
    pub separator: Option<Separator>,
    /// Use this member of a JSON object in each line as the key, such as user.id (or /user/id, a
    /// JSON pointer). It must be a text, which is the key without quotes and escapes, or a number,
    /// true or false, as written. Repeat the option for a key of several members.
    #[arg(
        long,
        value_name = "NAME",
        value_parser = parse_json_path,
        conflicts_with_all = ["separator", "csv_field"],
        help_heading = KEYS
    )]
    pub json_field: Vec<JsonPath>,
    /// Use the column of this name in CSV as the key. The first record of each file is its header;
    /// quoted fields may contain newlines. --delimiter selects another separator than the comma.
    /// Repeat the option for a key of several columns.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["null", "event_time", "weight"],
        help_heading = KEYS
    )]
    pub csv_field: Vec<String>,
    /// The times of the lines.
    #[command(flatten)]
    pub times: Times,
    /// Skip lines that are malformed or that the filter refuses, such as lines too far ahead, and
    /// report their number at the end. Where every line has an answer, a skipped line has ? (with
    /// --json an object with "error").
    #[arg(long, help_heading = KEYS)]
    pub skip_bad: bool,
    /// The longest line, or record of CSV; a longer one ends the command with an error, before it
    /// takes more memory [default: 64MiB, for CSV 16MiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = KEYS)]
    pub max_line: Option<u64>,
    /// Read files that begin like gzip, Zstandard or XZ data as they are, without decompression.
    #[arg(long, help_heading = KEYS)]
    pub no_decompress: bool,
    /// Read a number at the end of each line, after a tab: how often the key counts (counting and
    /// decaying kinds), or its importance (importance-aware kinds).
    #[arg(long, help_heading = WRITING)]
    pub weight: bool,
    /// When an insert is acknowledged: when synced to disk (always), when handed to the kernel
    /// (never), or with a sync at least once per interval (1s). Applies to this run, in place of
    /// the filter's own setting.
    #[arg(
        long,
        value_name = "always|never|1s",
        value_parser = parse_durability,
        help_heading = WRITING
    )]
    pub durability: Option<Durability>,
    /// Where the live image lies if no other process has the filter open: in memory, beside the
    /// log, or in a directory [default: EBBTIDE_IMAGE, or memory except for small filters].
    #[arg(
        long,
        value_name = "memory|beside-log|DIR",
        value_parser = ImagePlace::from_str,
        help_heading = WRITING
    )]
    pub image: Option<ImagePlace>,
    /// How much of the log the filter keeps from now on, beyond what recovery needs: the operations
    /// of a time, an amount of disk, or nothing. With it the filter can be asked as of a moment of
    /// its past (--at). Later runs need not repeat it [default: as it is; nothing at first].
    #[arg(
        long,
        value_name = KEEPS,
        value_parser = parse_keep,
        help_heading = WRITING
    )]
    pub keep_log: Option<Keep>,
    /// The number of keys that share a sync (with always) and are answered together; fewer if the
    /// input pauses [default: 1024, for dedup --output up to 16384]
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_positive::<NonZeroUsize, usize>,
        help_heading = WRITING
    )]
    pub batch: Option<NonZeroUsize>,
}

impl Reading {
    /// The largest number of lines that are answered together, if none is given.
    const BATCH: usize = 1024;

    /// Returns the largest number of lines that are answered together.
    pub fn batch(&self) -> usize {
        self.batch.map_or(Self::BATCH, NonZeroUsize::get)
    }

    /// Returns options with the place of the live image, and how much log is kept.
    pub fn options(&self) -> Options {
        let mut options = Options::new();
        if let Some(place) = &self.image {
            options = options.image(place.clone());
        }
        if let Some(keep) = self.keep_log {
            options = options.keep_log(keep);
        }
        options
    }

    /// Returns the byte that ends a line.
    pub fn delimiter(&self) -> u8 {
        if self.null { 0 } else { b'\n' }
    }
}

/// Where lines come from.
#[derive(Debug, Default)]
pub struct Origin {
    /// Lines of the command line, in place of files.
    pub lines: Vec<OsString>,
    /// Files; `-`, and none, mean standard input.
    pub files: Vec<PathBuf>,
    /// What an error about a missing file suggests.
    pub hint: &'static str,
}

impl Origin {
    /// Returns whether lines come from standard input because nothing is named.
    pub fn is_stdin(&self) -> bool {
        self.lines.is_empty() && self.files.is_empty()
    }
}

/// A filter and the keys for it.
#[derive(Debug, Args)]
pub struct Keys {
    /// The filter's directory. Without any argument it is the value of EBBTIDE_DIR.
    #[arg(env = "EBBTIDE_DIR", hide_env = true)]
    pub dir: PathBuf,
    /// Files of keys to read in this order, also compressed ones; - or no file means standard
    /// input.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Take KEY as a line, in place of files; may be repeated.
    #[arg(
        long = "key",
        value_name = "KEY",
        allow_hyphen_values = true,
        conflicts_with_all = ["files", "csv_field"],
        help_heading = KEYS
    )]
    pub lines: Vec<OsString>,
    /// How keys are read and stored.
    #[command(flatten)]
    pub reading: Reading,
}

impl Keys {
    /// Returns where the lines come from.
    pub fn origin(&self) -> Origin {
        Origin {
            lines: self.lines.clone(),
            files: self.files.clone(),
            hint: "; it is taken for a file of keys, and a key itself is given by --key",
        }
    }
}

/// Options of commands that answer each key.
#[derive(Debug, Args)]
pub struct Query {
    /// The filter and the keys.
    #[command(flatten)]
    pub keys: Keys,
    /// Print one JSON object per key.
    #[arg(long)]
    pub json: bool,
    /// Print each key behind its answer, after a tab. With -0 such lines end with NUL.
    #[arg(long, conflicts_with = "json")]
    pub with_keys: bool,
}

/// Options of commands that answer each key and change nothing.
#[derive(Debug, Args)]
pub struct Question {
    /// The filter, the keys, and the form of the answers.
    #[command(flatten)]
    pub query: Query,
    /// The moment in question.
    #[command(flatten)]
    pub past: Past,
}

/// Options of `estimate`.
#[derive(Debug, Args)]
pub struct Estimate {
    /// The filter, the keys, and the moment in question.
    #[command(flatten)]
    pub question: Question,
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
