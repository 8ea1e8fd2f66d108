//! Declares the options of `run` and `claims`.

use clap::Args;
use ebbtide::units::parse_duration;
use ebbtide_core::claims::LONGEST_LEASE;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The shortest lease that `run` renews in time also on a busy machine.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// Parses the time of a lease.
fn parse_lease(text: &str) -> Result<Duration, String> {
    let lease = parse_duration(text)?;
    let is_kept = (SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease);
    is_kept.then_some(lease).ok_or_else(|| {
        "expected 100ms to 97 days: a shorter lease may be over before it is renewed".to_owned()
    })
}

/// Options of `run`.
#[derive(Debug, Args)]
pub struct RunOnce {
    /// The key that stands for the work.
    #[arg(long, value_name = "KEY")]
    pub claim: OsString,
    /// The time after which others may have the key if this command dies, from 100ms to 97
    /// days. While it lives, it renews the lease.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_lease)]
    pub lease: Duration,
    /// The filter's directory.
    pub dir: PathBuf,
    /// The command to run, with its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Options of `claims`.
#[derive(Debug, Args)]
pub struct Claims {
    /// The filter's directory. Without any argument it is the value of EBBTIDE_DIR.
    #[arg(env = "EBBTIDE_DIR", hide_env = true)]
    pub dir: PathBuf,
    /// End the claim of this key, whoever holds it, instead of listing all.
    #[arg(long, value_name = "KEY")]
    pub end: Option<OsString>,
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
}
