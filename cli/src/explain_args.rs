//! Declares the options of `explain`.

use crate::key_args::Reading;
use crate::model_args::Assumed;
use crate::moment::Past;
use clap::Args;
use ebbtide::units::parse_count;
use std::ffi::OsString;
use std::path::PathBuf;

/// Options of `explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The filter's directory. Without any argument it is the value of EBBTIDE_DIR.
    #[arg(env = "EBBTIDE_DIR", hide_env = true)]
    pub dir: PathBuf,
    /// The keys; without any, lines of standard input.
    #[arg(value_name = "KEY", conflicts_with_all = ["lines", "files", "csv_field"])]
    pub keys: Vec<OsString>,
    /// The same as KEY; may be repeated.
    #[arg(
        long = "key",
        value_name = "KEY",
        allow_hyphen_values = true,
        conflicts_with_all = ["files", "csv_field"]
    )]
    pub lines: Vec<OsString>,
    /// Read keys from this file; may be repeated.
    #[arg(long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The number of records to show for a key, from the newest back.
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "10")]
    pub records: u64,
    /// Print one JSON object per key.
    #[arg(long)]
    pub json: bool,
    /// The moment that the answers are of.
    #[command(flatten)]
    pub past: Past,
    /// How keys are read.
    #[command(flatten)]
    pub reading: Reading,
    /// The assumed model of the stream.
    #[command(flatten, next_help_heading = "The probability of a false positive")]
    pub assumed: Assumed,
}
