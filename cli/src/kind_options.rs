//! The options of the kinds: one table from option to parameter. Which kind takes which, and what the
//! values must be, is the library's to say; nothing here knows a kind.

use crate::failure::{Failure, Result};
use crate::units;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use ebbtide::Parameters;

/// How the text of an option becomes the text of a parameter.
#[derive(Clone, Copy)]
enum Form {
    /// A number or a word, handed on as it is.
    Plain,
    /// A duration such as `10m`, handed on in microseconds.
    Duration,
}

/// An option and the parameter of the same name.
struct KindOption {
    name: &'static str,
    value: &'static str,
    form: Form,
    help: &'static str,
}

const fn plain(name: &'static str, value: &'static str, help: &'static str) -> KindOption {
    KindOption { name, value, form: Form::Plain, help }
}

const fn duration(name: &'static str, help: &'static str) -> KindOption {
    KindOption { name, value: "DURATION", form: Form::Duration, help }
}

/// A new kind adds its options here. Those of one letter are short ones.
const OPTIONS: &[KindOption] = &[
    plain("capacity", "N", "bloom, counting and decaying kinds: keys it is made for"),
    plain(
        "window-items",
        "N",
        "age-partitioned, timing and buffering kinds: a key is remembered for the next N inserts",
    ),
    duration("window", "time-limited: a key is remembered for so long, such as 10m"),
    plain("fpr", "P", "every kind: the share of new keys that may be taken for known ones"),
    plain("rate", "R", "time-limited: keys a second to expect; it adapts to other rates"),
    plain("bits", "N", "bloom, buffering kinds: bits in all; timing kinds: bits of a timer"),
    plain("k", "K", "every kind: hash functions, in place of what --fpr derives"),
    plain("l", "L", "age-partitioned, time-limited: generations in the window (with --k)"),
    plain("generation", "N", "age-partitioned: inserts in a generation, in place of window / l"),
    plain("columns", "16|32|64", "age-partitioned: bits in a row, at least k + l"),
    plain("words", "N", "age-partitioned: memory in 64-bit words"),
    plain("load", "L", "time-limited: highest load of a slice, in place of what --fpr derives"),
    plain("cells", "M", "counting, decaying and stable kinds: cells in all"),
    plain("counter-bits", "N", "counting, decaying: bits of a counter"),
    plain("policy", "ms|mi|rm", "spectral: minimum selection, minimal increase, recurring minimum"),
    plain("mean-count", "C", "dynamic-count: how often a key comes, on average"),
    plain(
        "lambda",
        "X",
        "decaying kinds: what an epoch leaves of a count; dynamic-count: when it shrinks",
    ),
    duration("epoch", "decaying kinds: counts decay once in so long, such as 60s"),
    plain("decay", "FUNCTION", "decaying: the decay function"),
    plain("fraction-bits", "F", "decaying kinds: binary digits of a counter below one"),
    plain("front", "swapped|plain", "decaying-optimized: the Bloom filter in front"),
    plain("block-size", "B", "block-timing: inserts that share a tick"),
    plain("timers", "M", "timing kinds: timers in all, in place of what --fpr derives"),
    plain("padding", "P", "timing kinds: ticks for which a timer may be found expired"),
    plain("max", "MAX", "stable and importance kinds: the highest value of a cell"),
    plain("K", "K", "stable and importance kinds: cells of a key"),
    plain("P", "P", "stable and importance kinds: cells that an insert decrements"),
    plain("importance-max", "Z", "importance kinds: the highest importance [default: --max]"),
];

/// The options of a kind as given, by the names of the parameters.
#[derive(Debug, Clone, Default)]
pub struct KindOptions(Vec<(&'static str, String)>);

impl KindOptions {
    /// The value of one of the options, in the parameter's form.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The kind's parameters.
    pub fn parameters(&self) -> Parameters {
        self.0.iter().fold(Parameters::new(), |all, (name, value)| all.with(name, value))
    }
}

impl FromArgMatches for KindOptions {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let mut options = Self::default();
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        for option in OPTIONS {
            if let Some(value) = matches.get_one::<String>(option.name) {
                self.0.retain(|(name, _)| *name != option.name);
                self.0.push((option.name, value.clone()));
            }
        }
        Ok(())
    }
}

impl Args for KindOptions {
    fn augment_args(command: Command) -> Command {
        OPTIONS.iter().fold(command, |command, option| {
            let argument = Arg::new(option.name)
                .long(option.name)
                .value_name(option.value)
                .help(option.help)
                .help_heading("The kind's options");
            let argument = match option.name.as_bytes() {
                [letter] => argument.short(char::from(*letter)),
                _ => argument,
            };
            command.arg(match option.form {
                Form::Plain => argument,
                Form::Duration => argument.value_parser(micros_text),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Reads a duration and writes it as microseconds, the way parameters hold it.
fn micros_text(text: &str) -> std::result::Result<String, String> {
    let duration = units::parse_duration(text)?;
    Ok(duration.as_micros().to_string())
}

/// The kind that is meant: the one named, else the one that `--window` or `--last` implies.
pub fn kind_or_implied<'a>(kind: Option<&'a str>, options: &KindOptions) -> Result<&'a str> {
    match kind {
        Some(kind) => Ok(kind),
        None if options.get("window").is_some() => Ok("time-limited"),
        None if options.get("window-items").is_some() => Ok("age-partitioned"),
        None => Err(Failure::Error(
            "what to plan is not clear; give --kind, or --window DURATION, or --last N".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> std::result::Result<KindOptions, clap::Error> {
        let command = KindOptions::augment_args(Command::new("test").no_binary_name(true));
        KindOptions::from_arg_matches(&command.try_get_matches_from(line)?)
    }

    #[test]
    fn options_become_parameters_of_the_same_name() {
        let options = parse(&["--window-items", "20000", "--fpr", "1e-3"]).expect("options");
        let expected = Parameters::new().with("window-items", 20000).with("fpr", "1e-3");
        assert_eq!(options.parameters(), expected);
    }

    #[test]
    fn durations_become_microseconds() {
        let options = parse(&["--window", "90s"]).expect("options");
        assert_eq!(options.get("window"), Some("90000000"));
        assert!(parse(&["--window", "soon"]).is_err());
    }

    #[test]
    fn a_window_implies_its_kind() {
        let window = parse(&["--window", "1s"]).expect("options");
        let items = parse(&["--window-items", "5"]).expect("options");
        assert_eq!(kind_or_implied(None, &window).expect("kind"), "time-limited");
        assert_eq!(kind_or_implied(None, &items).expect("kind"), "age-partitioned");
        assert_eq!(kind_or_implied(Some("bloom"), &items).expect("kind"), "bloom");
        assert!(kind_or_implied(None, &KindOptions::default()).is_err());
    }
}
