//! Declares the options of the commands for operators: `stat`, `distinct`, `top`, `report` and
//! `history`.

use crate::moment::{Past, parse_moment};
use clap::{Args, ValueEnum};
use ebbtide::Within;
use ebbtide::history::At;
use ebbtide::units::{parse_count, parse_duration};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `stat`.
#[derive(Debug, Args)]
pub struct Stat {
    /// The filter's directory. Without any argument it is the value of EBBTIDE_DIR.
    #[arg(env = "EBBTIDE_DIR", hide_env = true)]
    pub dir: PathBuf,
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
    /// The form of the answer; --json is the same as --format json.
    #[arg(long, value_enum, default_value = "text", conflicts_with = "json")]
    pub format: Format,
    /// Print the figures again every two seconds, or at another interval in seconds or as 500ms,
    /// until a signal.
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = parse_interval,
        num_args = 0..=1,
        default_missing_value = "2",
        conflicts_with = "at"
    )]
    pub watch: Option<Duration>,
    /// The moment in question.
    #[command(flatten)]
    pub past: Past,
}

/// The form of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table.
    Text,
    /// One JSON object per line.
    Json,
    /// The text format of Prometheus.
    Prometheus,
}

/// Options of `distinct`.
#[derive(Debug, Args)]
pub struct Distinct {
    /// The filter's directory. Without any argument it is the value of EBBTIDE_DIR.
    #[arg(env = "EBBTIDE_DIR", hide_env = true)]
    pub dir: PathBuf,
    /// Count the keys of the last N inserts, not of the whole window.
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_count,
        conflicts_with = "within",
        allow_negative_numbers = true
    )]
    last: Option<u64>,
    /// Count the keys of this time, such as 10m, not of the whole window.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    within: Option<Duration>,
    /// Print a JSON object.
    #[arg(long)]
    pub json: bool,
    /// The moment in question.
    #[command(flatten)]
    pub past: Past,
}

impl Distinct {
    /// Returns the part of the window in question, if it is not the whole.
    pub fn part(&self) -> Option<Within> {
        self.within.map(Within::Time).or(self.last.map(Within::Items))
    }
}

/// Options of `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// The directories of the filters.
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// The time between two looks, in seconds or as 500ms.
    #[arg(long, value_name = "SECONDS", value_parser = parse_interval, default_value = "1")]
    pub interval: Duration,
    /// Print one view of each filter as text, after one interval, and end.
    #[arg(long)]
    pub once: bool,
    /// The size of that text in characters, as WIDTHxHEIGHT.
    #[arg(long, value_name = "SIZE", value_parser = parse_frame, requires = "once")]
    #[arg(default_value = "100x40")]
    pub size: (u16, u16),
}

/// Options of `report`.
#[derive(Debug, Args)]
pub struct Report {
    /// The filter's directory. Without any argument it is the value of EBBTIDE_DIR.
    #[arg(env = "EBBTIDE_DIR", hide_env = true)]
    pub dir: PathBuf,
    /// The file to write: a page if it ends in .html, one picture if it ends in .svg.
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// The moment in question.
    #[command(flatten)]
    pub past: Past,
}

/// Options of `history`.
#[derive(Debug, Args)]
pub struct History {
    /// The filter's directory. Without any argument it is the value of EBBTIDE_DIR.
    #[arg(env = "EBBTIDE_DIR", hide_env = true)]
    pub dir: PathBuf,
    /// Begin with the first operation that had not happened at this moment: lsn:N,
    /// position:SOURCE=N or a time, as for contains --at.
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    pub after: Option<At>,
    /// Wait for more, also from other processes, until a signal. If the command falls so far behind
    /// that the log it needs is removed, it ends with an error.
    #[arg(long)]
    pub follow: bool,
    /// Also print what is not durable yet, which a power cut may take back.
    #[arg(long)]
    pub undurable: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
    /// The form of the lines; --json is the same as --format json.
    #[arg(long, value_enum, default_value = "text", conflicts_with = "json")]
    pub format: Lines,
}

/// The form of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Lines {
    /// Columns.
    Text,
    /// One JSON object per line.
    Json,
}

/// The bounds of an interval: shorter ones would mostly measure the command, longer ones are
/// mistakes.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(86_400));

/// Parses a number of seconds, or a duration.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let interval = seconds.map_or_else(|| parse_duration(text), Ok)?;
    if (INTERVALS.0..=INTERVALS.1).contains(&interval) {
        Ok(interval)
    } else {
        Err("expected a time from 100ms to 1day".to_owned())
    }
}

/// The option with an interval that may be left out.
pub const WATCH: &str = "watch";

/// Returns the arguments with `--watch` as `--watch=2` where no interval follows: what follows it
/// then is the directory.
pub fn with_interval(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut arguments = arguments.peekable();
    std::iter::from_fn(move || {
        let argument = arguments.next()?;
        let is_interval = |next: &OsString| {
            let is_time = |text: &str| text.parse::<f64>().is_ok() || parse_duration(text).is_ok();
            next.to_str().is_some_and(is_time)
        };
        let has_interval = arguments.peek().is_none_or(is_interval);
        Some(if argument == "--watch" && !has_interval { "--watch=2".into() } else { argument })
    })
}

/// Parses a width and a height.
fn parse_frame(text: &str) -> Result<(u16, u16), String> {
    let sizes = text.split_once('x').and_then(|(width, height)| {
        let (width, height) = (width.parse().ok()?, height.parse().ok()?);
        ((20..=500).contains(&width) && (5..=500).contains(&height)).then_some((width, height))
    });
    sizes.ok_or_else(|| "expected WIDTHxHEIGHT from 20x5 to 500x500, as in 100x40".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_number_of_seconds_or_a_duration_within_bounds() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_interval("250ms"), Ok(Duration::from_millis(250)));
        for text in ["0", "-1", "nan", "1e300", "2days", "soon", ""] {
            assert!(parse_interval(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_follows_watch_is_an_interval_only_if_it_is_one() {
        let of = |line: &str| {
            let words = line.split(' ').map(OsString::from);
            let words: Vec<_> = with_interval(words).collect();
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("stat --watch DIR"), "stat --watch=2 DIR");
        assert_eq!(of("stat --watch --json DIR"), "stat --watch=2 --json DIR");
        for same in
            ["stat --watch 5 DIR", "stat DIR --watch 500ms", "stat DIR --watch", "stat --watch=5 5"]
        {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn a_size_has_two_numbers_within_bounds() {
        assert_eq!(parse_frame("80x24"), Ok((80, 24)));
        for text in ["80", "80x", "80x4", "19x24", "501x24", "80x24x1", "-80x24"] {
            assert!(parse_frame(text).is_err(), "{text:?}");
        }
    }
}
