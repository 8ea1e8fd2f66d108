//! Builds the command line with what its declarations do not say: the examples of each command, and
//! which shared options do not concern a command.

use crate::args::Cli;
use crate::kind_options::{WEIGHTS, with_table};
use crate::operator_args::{WATCH, with_interval};
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Command, CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// The exactness of `dedup --state`, above its examples.
const DEDUP: &str = "\
With --state, output when a run ends early:
  at most once (the default): a line is recorded, then printed. On SIGTERM, SIGINT or SIGHUP a run
  prints every line that it has recorded, closes the filter, and ends by the signal; a second signal
  ends it at once. If a run is killed, or stopped twice, up to one --batch of lines may be recorded
  but not printed. If the output fails, an error reports the number of lines recorded but not
  printed, and the first of them; the exit code is 2, or 0 if the reader has closed the output.
  --at-least-once: a line is printed, then recorded. A killed run loses no line; the next run may
  print up to one --batch of lines again. Runs that share a filter may each print the same line.
  Of equal keys within a batch, one line is printed.

CSV: every run prints the header of its first file; the other files need the same header.";

/// The examples of each command.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "dedup",
        &[
            "ebbtide dedup --window 10m --field 1 --time-field 4 access.log",
            "tail -F app.log | ebbtide dedup --last 100000 --field 2 --state /var/lib/app/seen",
            "ebbtide dedup --last 9000 --json-field user --json-field item --stats events.jsonl.gz",
            "ebbtide dedup --window 1h --csv-field order --time-field created --utc orders.csv",
            "ebbtide dedup --window 1h --event-time --time-unit s --skip-bad events.tsv",
        ],
    ),
    (
        "create",
        &[
            "ebbtide create seen --window 10m",
            "ebbtide create recent --kind age-partitioned --window-items 1000000 --fpr 0.01",
            "ebbtide create clients --kind counting --capacity 100000 --counter-bits 8",
            "ebbtide create orders --window 7d --keep-log 24h",
        ],
    ),
    (
        "insert",
        &[
            "ebbtide insert seen ids.txt more.txt.gz",
            "ebbtide insert seen --key 'order 17'",
            "ebbtide insert seen --keep-log 24h ids.txt",
        ],
    ),
    (
        "contains",
        &[
            "ebbtide contains seen --with-keys ids.txt",
            "if ebbtide contains seen --key 'order 17' > /dev/null; then echo seen; fi",
            "ebbtide contains seen --at 2026-11-24T10:00:00Z --key 'order 17'",
        ],
    ),
    ("check", &["ebbtide check seen ids.txt", "ebbtide check seen --key 'order 17' --json"]),
    ("remove", &["ebbtide remove clients left.txt"]),
    (
        "run",
        &[
            "ebbtide run --claim report-17 jobs -- ./send-report 17",
            "ebbtide run --claim 'order 17' --lease 30s orders -- ./ship 17",
        ],
    ),
    ("claims", &["ebbtide claims jobs", "ebbtide claims jobs --end 'order 17'"]),
    (
        "estimate",
        &[
            "ebbtide estimate clients --with-keys --key 10.228.121.147",
            "ebbtide estimate clients --csv-field client requests.csv --json",
        ],
    ),
    ("age", &["ebbtide age recent --with-keys ids.txt"]),
    ("posterior", &["ebbtide posterior recent --prior 0.0001 --ages --with-keys ids.txt"]),
    (
        "decide",
        &["ebbtide decide recent --prior 0.0001 --false-positive 40 --false-negative 5 ids.txt"],
    ),
    (
        "distinct",
        &[
            "ebbtide distinct seen",
            "ebbtide distinct seen --within 1m",
            "ebbtide distinct recent --last 100000 --json",
        ],
    ),
    (
        "stat",
        &[
            "ebbtide stat seen",
            "ebbtide stat seen --watch 5",
            "EBBTIDE_DIR=seen ebbtide stat --json",
            "ebbtide stat seen --format prometheus > /var/lib/node_exporter/seen.prom",
        ],
    ),
    ("top", &["ebbtide top seen", "ebbtide top /var/lib/app/* --interval 500ms"]),
    (
        "report",
        &[
            "ebbtide report seen -o seen.html",
            "ebbtide report seen -o before.html --at 2026-11-24T10:00:00Z",
        ],
    ),
    ("digest", &["ebbtide digest seen", "ebbtide digest seen --at lsn:120000"]),
    ("verify", &["ebbtide verify seen"]),
    ("wal", &["ebbtide wal seen --json"]),
    (
        "history",
        &[
            "ebbtide history seen --after 2026-11-24T10:00:00Z",
            "ebbtide history seen --after lsn:120000 --follow --format json",
        ],
    ),
    ("clear", &["ebbtide clear seen"]),
    ("snapshot", &["ebbtide snapshot seen"]),
    ("backup", &["ebbtide backup seen seen-backup"]),
    (
        "restore",
        &[
            "ebbtide restore seen-backup seen-again",
            "ebbtide restore --at 2026-11-24T10:00:00Z seen seen-before",
        ],
    ),
    (
        "alter",
        &[
            "ebbtide alter seen --window 48h",
            "ebbtide alter seen --kind time-limited --window 48h --fpr 1e-4 --keep-log 48h",
            "ebbtide alter seen larger --window 48h --rate 2000",
            "ebbtide alter seen exact --kind fingerprint --last 1e6 --fpr 1e-6 --keep-log 24h",
        ],
    ),
    ("merge", &["ebbtide merge seen-a seen-b seen-c seen"]),
    ("split", &["ebbtide split seen seen --into 4"]),
    ("salvage", &["ebbtide salvage damaged saved"]),
    (
        "plan",
        &[
            "ebbtide plan --last 1000000",
            "ebbtide plan --kind counting --capacity 100000 --json",
            "ebbtide plan --last 1e6 --plot bits.svg",
            "ebbtide plan --alter seen --window 48h",
        ],
    ),
    (
        "explain",
        &[
            "ebbtide explain seen 'order 17'",
            "ebbtide explain recent 10.97.254.154 --prior 0.0001",
            "ebbtide explain seen --file ids.txt --json",
        ],
    ),
    #[cfg(feature = "ship")]
    (
        "ship",
        &[
            "ebbtide ship seen s3://bucket/seen",
            "ebbtide ship seen s3://bucket/seen --once",
            "ebbtide ship verify s3://bucket/seen --against seen",
        ],
    ),
    #[cfg(feature = "ship")]
    (
        "fetch",
        &[
            "ebbtide fetch s3://bucket/seen seen",
            "ebbtide fetch s3://bucket/seen before --at 2026-11-24T10:00:00Z",
            "ebbtide fetch --if-empty s3://bucket/seen /var/lib/app/seen",
        ],
    ),
    #[cfg(feature = "ship")]
    (
        "follow",
        &["ebbtide follow s3://bucket/seen --max-lag 30s", "ebbtide follow s3://b/seen copy"],
    ),
    #[cfg(feature = "ship")]
    ("promote", &["ebbtide promote s3://bucket/seen seen", "ebbtide promote copy"]),
    ("demo", &["ebbtide demo", "ebbtide demo --fast"]),
    (
        "completions",
        &["ebbtide completions bash > ~/.local/share/bash-completion/completions/ebbtide"],
    ),
    ("man", &["ebbtide man dedup | man -l -", "ebbtide man --output /usr/share/man/man1"]),
];

/// Commands that write nothing, and the shared options that they accept without an effect other
/// than on how lines are read.
const LOOKUPS: [&str; 6] = ["contains", "estimate", "age", "posterior", "decide", "explain"];
const WRITE_OPTIONS: [&str; 5] = ["weight", "durability", "image", "keep_log", "batch"];

/// Returns the whole command line.
pub fn command() -> Command {
    let mut command = Cli::command().styles(styles());
    for &(name, examples) in EXAMPLES {
        let examples = examples.iter().map(|example| format!("\n  {example}"));
        let examples = format!("Examples:{}", examples.collect::<String>());
        let text = if name == "dedup" { format!("{DEDUP}\n\n{examples}") } else { examples };
        command = command.mut_subcommand(name, |command| command.after_help(text));
    }
    for name in LOOKUPS {
        command = command.mut_subcommand(name, |command| {
            command.mut_args(|argument| {
                let hidden = WRITE_OPTIONS.contains(&argument.get_id().as_str());
                if hidden { argument.hide(true) } else { argument }
            })
        });
    }
    command
}

/// Parses the arguments of the process.
pub fn parse() -> Result<Cli, clap::Error> {
    let mut command = command();
    let words = written_out(&command, std::env::args_os());
    let matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Returns the arguments with options that may have a value in front of other arguments as clap
/// tells them apart. Only of the commands that have these options, and not behind `--`: all other
/// words may be keys, or those of a program to run.
fn written_out(command: &Command, words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<_> = words.collect();
    let of = words.get(1).and_then(|name| command.find_subcommand(name));
    let has = |option| {
        let mut options = of.into_iter().flat_map(Command::get_arguments);
        options.any(|it| it.get_long() == Some(option))
    };
    let rest = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let rest = words.split_off(rest);
    if has(WATCH) {
        words = with_interval(words.into_iter()).collect();
    }
    if has(WEIGHTS) {
        words = with_table(words.into_iter()).collect();
    }
    words.extend(rest);
    words
}

/// Returns the colours of help on a terminal.
fn styles() -> Styles {
    Styles::styled()
        .header(AnsiColor::Green.on_default().bold())
        .usage(AnsiColor::Green.on_default().bold())
        .literal(AnsiColor::Cyan.on_default().bold())
        .placeholder(AnsiColor::Cyan.on_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn the_declarations_are_consistent() {
        command().debug_assert();
    }

    #[test]
    fn only_options_of_the_command_are_written_out() {
        let of = |line: &str| {
            let words = line.split(' ').map(OsString::from);
            let words = written_out(&command(), words);
            words.join(OsStr::new(" ")).into_string().expect("UTF-8")
        };
        for (line, expected) in [
            ("ebbtide stat --watch DIR", "ebbtide stat --watch=2 DIR"),
            (
                "ebbtide create DIR --decay weights F --capacity 5",
                "ebbtide create DIR --decay weights --weights=@F --capacity 5",
            ),
        ] {
            assert_eq!(of(line), expected);
        }
        for same in [
            "ebbtide stat --json -- --watch DIR",
            "ebbtide insert DIR --key --watch --key b",
            "ebbtide insert DIR --key --decay=weights FILE",
            "ebbtide run --claim k DIR -- tsc --watch src",
            "ebbtide run --claim k DIR prog --decay weights F",
            "ebbtide --watch src",
            "ebbtide",
        ] {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn every_command_has_examples() {
        let names: Vec<_> =
            Cli::command().get_subcommands().map(|one| one.get_name().to_owned()).collect();
        for name in &names {
            assert!(EXAMPLES.iter().any(|(of, _)| of == name), "{name} has no examples");
        }
        for (name, _) in EXAMPLES {
            assert!(names.iter().any(|of| of == name), "{name} is no command");
        }
    }

    #[test]
    fn every_example_is_accepted() {
        for line in EXAMPLES.iter().flat_map(|(_, examples)| *examples) {
            let (_, line) = line.split_once("ebbtide ").expect("the command");
            let line = line.split([';', '|', '>']).next().expect("its beginning").trim();
            let mut words = vec!["ebbtide".to_owned()];
            for (at, part) in line.split('\'').enumerate() {
                match at % 2 {
                    0 => words.extend(part.split_whitespace().map(str::to_owned)),
                    _ => words.push(part.to_owned()),
                }
            }
            let environment = line.starts_with("stat --json");
            let parsed = command().try_get_matches_from(&words);
            assert!(environment || parsed.is_ok(), "{line}: {:?}", parsed.err());
        }
    }

    #[test]
    fn lookups_do_not_list_options_of_writes_but_accept_them() {
        let mut command = command();
        let contains = command.find_subcommand_mut("contains").expect("a command");
        let help = contains.render_long_help().to_string();
        for option in ["--weight", "--durability", "--image", "--keep-log", "--batch"] {
            let mut lines = help.lines().map(str::trim_start);
            assert!(!lines.any(|line| line.starts_with(option)), "{help}");
        }
        assert!(help.contains("--json-field") && help.contains("Examples:"), "{help}");
        let line = ["ebbtide", "contains", "seen", "--weight", "--batch", "7"];
        assert!(command.try_get_matches_from(line).is_ok());
    }
}
