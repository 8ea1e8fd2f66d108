//! What a run is told by its arguments and environment.

use crate::effort::scaled;
use std::path::PathBuf;
use std::time::Duration;

/// No answer for so long is a hang, also on a machine that is busy with other work.
pub const HANG: Duration = Duration::from_secs(60);

/// How much to do, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Kills of the soak.
    pub kills: u64,
    /// How many of them have been done by an earlier run.
    pub from: u64,
    /// Where all randomness comes from, except the moments the machine adds.
    pub seed: u64,
    /// Whether directories stay.
    pub keep: bool,
    /// Processes of the soak.
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

/// The kills of the soak for which the numbers of the other scenes are written.
const KILLS: u64 = 500;
/// The kills of a run to which no number is given.
const DEFAULT_KILLS: u64 = 200;

impl Settings {
    /// The settings, and the arguments that are not ours.
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

    /// So many of something where the soak has 500 kills; at least `least`.
    pub fn share(&self, of: u64, least: u64) -> u64 {
        (self.kills * of / KILLS).max(least)
    }

    /// An empty directory.
    pub fn home(&self) -> tempfile::TempDir {
        let made = tempfile::Builder::new().prefix("ebbtide-").disable_cleanup(self.keep).tempdir();
        made.expect("a temporary directory")
    }
}

/// Where the filter is in such a directory.
pub fn filter_of(home: &std::path::Path) -> PathBuf {
    home.join("filter")
}
