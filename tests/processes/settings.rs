//! The settings of a run, from its arguments and environment.

use crate::effort::scaled;
use std::path::PathBuf;
use std::time::Duration;

/// A longer wait means that something hangs, even on a busy machine.
pub const HANG: Duration = Duration::from_secs(60);

/// The amount and the mode of the work.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The number of kills of the soak.
    pub kills: u64,
    /// How many of them an earlier run has done.
    pub from: u64,
    /// The seed of all random choices; the machine adds its own timing.
    pub seed: u64,
    /// Whether directories are kept.
    pub keep: bool,
    /// The number of processes of the soak.
    pub processes: u64,
    /// How long processes open and close.
    pub churn: Duration,
}

fn number(name: &str, text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{name} must be a number, found {text:?}"))
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| number(name, &text))
}

/// The number of kills of the soak to which the numbers of the other scenes refer.
const KILLS: u64 = 500;
/// The default number of kills.
const DEFAULT_KILLS: u64 = 200;

impl Settings {
    /// Returns the settings, and the remaining arguments.
    pub fn read() -> (Self, Vec<String>) {
        let (mut kills, mut seed) =
            (from_environment("EBBTIDE_KILLS"), from_environment("EBBTIDE_SEED"));
        let mut from = 0;
        let mut keep = std::env::var_os("EBBTIDE_KEEP").is_some();
        let mut rest = Vec::new();
        let mut arguments = std::env::args();
        while let Some(argument) = arguments.next() {
            let mut value = || number(&argument, &arguments.next().unwrap_or_default());
            match argument.as_str() {
                "--kills" => kills = Some(value()),
                "--seed" => seed = Some(value()),
                "--from" => from = value(),
                "--keep" => keep = true,
                _ => rest.push(argument),
            }
        }
        let churn = if kills.is_some_and(|kills| kills > KILLS) { 60 } else { 8 };
        let churn = from_environment("EBBTIDE_CHURN_SECONDS").unwrap_or(churn);
        let settings = Self {
            kills: kills.unwrap_or_else(|| scaled(DEFAULT_KILLS)),
            from,
            seed: seed.unwrap_or(0x0EBB),
            keep,
            processes: from_environment("EBBTIDE_PROCESSES").unwrap_or(8).max(1),
            churn: Duration::from_secs(churn),
        };
        (settings, rest)
    }

    /// Scales a number that is `of` for 500 kills of the soak; returns at least `least`.
    pub fn share(&self, of: u64, least: u64) -> u64 {
        (self.kills * of / KILLS).max(least)
    }

    /// Creates an empty directory.
    pub fn home(&self) -> tempfile::TempDir {
        let made = tempfile::Builder::new().prefix("ebbtide-").disable_cleanup(self.keep).tempdir();
        made.expect("a temporary directory")
    }
}

/// Returns the directory of the filter in such a directory.
pub fn filter_of(home: &std::path::Path) -> PathBuf {
    home.join("filter")
}
