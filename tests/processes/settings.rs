//! The settings of a run, from its arguments and environment.

use ebbtide_testkit::environment::{self, SEED, parsed, scaled};
use std::path::PathBuf;
use std::time::Duration;

pub use ebbtide_testkit::child::HANG;

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

/// The number of kills of the soak to which the numbers of the other scenes refer.
const KILLS: u64 = 500;
/// The default number of kills.
const DEFAULT_KILLS: u64 = 200;

impl Settings {
    /// Returns the settings, and the remaining arguments.
    pub fn read() -> (Self, Vec<String>) {
        let (mut kills, mut seed) =
            (environment::number("EBBTIDE_KILLS"), environment::number("EBBTIDE_SEED"));
        let mut from = 0;
        let mut keep = false;
        let mut rest = Vec::new();
        let mut arguments = std::env::args();
        while let Some(argument) = arguments.next() {
            let mut value = || parsed(&argument, &arguments.next().unwrap_or_default());
            match argument.as_str() {
                "--kills" => kills = Some(value()),
                "--seed" => seed = Some(value()),
                "--from" => from = value(),
                "--keep" => keep = true,
                _ => rest.push(argument),
            }
        }
        let churn = if kills.is_some_and(|kills| kills > KILLS) { 60 } else { 8 };
        let churn = environment::number("EBBTIDE_CHURN_SECONDS").unwrap_or(churn);
        let settings = Self {
            kills: kills.unwrap_or_else(|| scaled(DEFAULT_KILLS)),
            from,
            seed: seed.unwrap_or(SEED),
            keep,
            processes: environment::number("EBBTIDE_PROCESSES").unwrap_or(8).max(1),
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
        environment::home(self.keep)
    }
}

/// Returns the directory of the filter in such a directory.
pub fn filter_of(home: &std::path::Path) -> PathBuf {
    home.join("filter")
}
