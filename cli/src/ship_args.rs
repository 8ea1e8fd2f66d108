//! Options of the commands about object storage.

use crate::moment::parse_moment;
use clap::{Args, Subcommand};
use ebbtide::history::At;
use ebbtide::units::parse_duration;
use std::path::PathBuf;
use std::time::Duration;

/// The shortest time between two looks at a place.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// Parses the time between two looks at a place.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let every = parse_duration(text)?;
    let is_kept = every >= SHORTEST_INTERVAL;
    is_kept.then_some(every).ok_or_else(|| "expected at least 10ms, as in 10s".to_owned())
}

/// Options of `ship`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Ship {
    /// What else is done with a shipped filter.
    #[command(subcommand)]
    pub other: Option<ShipOther>,
    /// The directory of the filter, which others may use meanwhile.
    #[arg(required = true)]
    pub dir: Option<PathBuf>,
    /// The place of this filter alone: s3://BUCKET/PREFIX, file:///DIRECTORY, or a directory.
    /// Credentials and settings come from the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL).
    #[arg(required = true)]
    pub url: Option<String>,
    /// How often what has become durable is shipped: the most that the loss of the machine takes,
    /// besides what was not durable yet.
    #[arg(long, value_name = "DURATION", value_parser = parse_interval, default_value = "10s")]
    pub every: Duration,
    /// Ship once, and end.
    #[arg(long)]
    pub once: bool,
    /// How long snapshots and log stay in the store, beyond the two newest snapshots: moments of
    /// this time can be fetched (fetch --at).
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0s")]
    pub keep: Duration,
    /// Begin although this directory cannot be shown to have what the store has: what only the
    /// store has is discarded.
    #[arg(long)]
    pub take_over: bool,
    /// End with an error when nothing could be shipped for so long.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "10m")]
    pub stall: Duration,
    /// Write figures for Prometheus to this file every second, for a textfile collector.
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
}

/// What else is done with a shipped filter.
#[derive(Debug, Subcommand)]
pub enum ShipOther {
    /// Reads everything in the store, rebuilds the filter in memory from each snapshot, and
    /// compares the digests.
    Verify(ShipVerify),
}

/// Options of `ship verify`.
#[derive(Debug, Args)]
pub struct ShipVerify {
    /// The place of the filter, as for ship.
    pub url: String,
    /// Also compare with the filter in this directory, as of the same LSN.
    #[arg(long, value_name = "DIR")]
    pub against: Option<PathBuf>,
}

/// Options of `fetch`.
#[derive(Debug, Args)]
pub struct Fetch {
    /// The place of the filter, as for ship.
    pub url: String,
    /// The directory of the new filter, which must be empty or missing.
    pub dir: PathBuf,
    /// Fetch what the filter was at a moment of its past, if the store has it: lsn:N,
    /// position:SOURCE=N or a time, as for contains.
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment, conflicts_with = "if_empty")]
    pub at: Option<At>,
    /// Do nothing if DIR has a filter, or if the store has none yet: for containers that start.
    #[arg(long)]
    pub if_empty: bool,
}

/// Options of `follow`.
#[derive(Debug, Args)]
pub struct Follow {
    /// The place of the filter, as for ship.
    pub url: String,
    /// Keep a copy of what the place has in this directory, which is new, or that of a follower
    /// that has ended: then only the rest is downloaded. It continues after the end of standard
    /// input, until a signal. promote makes the directory a filter; until then it is none.
    #[arg(value_name = "NEW")]
    pub dir: Option<PathBuf>,
    /// How often something new is expected. The place is asked so often if nothing comes, and up to
    /// 16 times as often when it is due.
    #[arg(long, value_name = "DURATION", value_parser = parse_interval, default_value = "1s")]
    pub every: Duration,
    /// Print `?` for a key, and a sentence on standard error, when the end of what the place has
    /// was not seen for so long.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1m")]
    pub max_lag: Duration,
}

/// Options of `promote`.
#[derive(Debug, Args)]
pub struct Promote {
    /// The place of the filter, as for ship; it may be left out for the directory of a follower.
    /// Then the directory of the filter: new, or that of a follower of this place that has ended.
    #[arg(required = true, num_args = 1..=2, value_names = ["URL", "NEW"])]
    pub places: Vec<String>,
}
