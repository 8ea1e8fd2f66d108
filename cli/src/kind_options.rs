//! Declares the options of the kinds: one table from option to parameter. The library checks the
//! values. The names of kinds are here for `--help` only, and a test compares them with the
//! library's.

use crate::failure::{Failure, Result};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use ebbtide::Parameters;
use ebbtide::units::parse_parameter;
use std::ffi::OsString;
use std::num::NonZeroU64;

/// The meaning of an option for some kinds.
struct Use {
    /// The names of the kinds, separated by commas; `all` kinds, or all `but` those named.
    kinds: &'static str,
    help: &'static str,
}

/// An option, and the parameter of the same name.
pub struct KindOption {
    pub name: &'static str,
    value: &'static str,
    uses: &'static [Use],
}

impl KindOption {
    fn help(&self) -> String {
        let uses = self.uses.iter().map(|Use { kinds, help }| match kinds.strip_prefix("but ") {
            Some(others) => format!("all kinds but {others}: {help}"),
            None if *kinds == "all" => format!("all kinds: {help}"),
            None => format!("{kinds}: {help}"),
        });
        uses.collect::<Vec<_>>().join("; ")
    }
}

const fn plain(name: &'static str, value: &'static str, uses: &'static [Use]) -> KindOption {
    KindOption { name, value, uses }
}

const fn duration(name: &'static str, uses: &'static [Use]) -> KindOption {
    KindOption { name, value: "DURATION", uses }
}

const fn of(kinds: &'static str, help: &'static str) -> Use {
    Use { kinds, help }
}

/// The options of all kinds. A new kind adds its options here. A capital letter is a short option.
pub const OPTIONS: &[KindOption] = &[
    plain(
        "capacity",
        "N",
        &[of(
            "bloom, counting, spectral, dynamic-count, decaying, decaying-optimized",
            "the number of distinct keys to plan for",
        )],
    ),
    plain(
        "window-items",
        "N",
        &[of(
            "timing, block-timing, age-partitioned, fingerprint, double-buffering, two-buffer",
            "a key stays in the window for the next N inserts",
        )],
    ),
    duration(
        "window",
        &[of("time-limited, fingerprint", "a key stays in the window for this time, such as 10m")],
    ),
    plain(
        "fpr",
        "P",
        &[of("all", "false-positive rate: the share of new keys reported as present")],
    ),
    plain(
        "error",
        "P",
        &[of(
            "decaying-optimized",
            "the share of keys that may be counted too high [default: 0.03, at least --fpr]",
        )],
    ),
    plain(
        "rate",
        "R",
        &[of(
            "time-limited, fingerprint",
            "expected new keys per second at first; the filter adapts to other rates",
        )],
    ),
    plain(
        "max-memory",
        "SIZE",
        &[of(
            "time-limited, fingerprint",
            "the most memory of a --window, such as 64MiB: at the limit no key is lost, but more \
             new keys are reported as present [default: no limit]",
        )],
    ),
    plain(
        "max-load",
        "SHARE",
        &[of(
            "fingerprint",
            "the highest share of slots in use: 0.8 takes a fifth more memory, and inserts are \
             faster [default: as high as possible]",
        )],
    ),
    plain(
        "growth",
        "keys|rate",
        &[of(
            "fingerprint",
            "what a --window grows by in a burst: the keys that have come, or their rate, as \
             filters of older versions do [default: keys]",
        )],
    ),
    plain(
        "bits",
        "N",
        &[
            of(
                "bloom, double-buffering, two-buffer",
                "total bits, instead of the number derived from --fpr",
            ),
            of("timing, block-timing", "bits of a timer"),
            of("fingerprint", "bits of a fingerprint (with --slots and --generations)"),
        ],
    ),
    plain(
        "k",
        "K",
        &[of(
            "but fingerprint, stable, importance-2c, importance-mc, importance-h",
            "hash functions, instead of the number derived from --fpr",
        )],
    ),
    plain("l", "L", &[of("age-partitioned, time-limited", "generations in the window (with --k)")]),
    plain(
        "generation",
        "N",
        &[of("age-partitioned", "inserts in a generation, instead of window / l")],
    ),
    plain(
        "columns",
        "16|32|64",
        &[of("age-partitioned, time-limited", "bits in a row, at least k + l")],
    ),
    plain(
        "aim",
        "worst|steady",
        &[of(
            "time-limited",
            "the moment at which --fpr holds: the worst one of a burst, or the mean of a steady \
             stream, in less memory [default: worst]",
        )],
    ),
    plain("words", "N", &[of("age-partitioned, fingerprint", "memory in 64-bit words")]),
    plain("slots", "B", &[of("fingerprint", "fingerprints in a bucket (with --bits)")]),
    plain(
        "generations",
        "G",
        &[of("fingerprint", "generations in the window (with --slots and --bits)")],
    ),
    plain("bytes", "N", &[of("fingerprint", "bytes of a bucket, 8 to 32 (with --slots)")]),
    plain(
        "moves",
        "N",
        &[of("fingerprint", "the most slots that an insert moves, 1 to 8 (with --slots)")],
    ),
    plain(
        "load",
        "L",
        &[of(
            "time-limited",
            "the highest load of a slice, instead of the load derived from --fpr",
        )],
    ),
    plain(
        "cells",
        "M",
        &[
            of(
                "counting, spectral, dynamic-count, decaying, decaying-optimized",
                "total counters, instead of the number derived from --fpr",
            ),
            of("stable, importance-2c, importance-mc, importance-h", "total cells"),
        ],
    ),
    plain(
        "counter-bits",
        "N",
        &[
            of("counting", "bits of a counter"),
            of(
                "decaying, decaying-optimized",
                "the largest number of bits of a counter; with --window-epochs, of one epoch's \
                 counter",
            ),
        ],
    ),
    plain(
        "policy",
        "ms|mi|rm",
        &[of("spectral", "minimum selection, minimal increase or recurring minimum [default: ms]")],
    ),
    plain("mean-count", "C", &[of("dynamic-count", "the mean number of inserts per key")]),
    plain(
        "lambda",
        "X",
        &[
            of(
                "decaying, decaying-optimized",
                "the factor by which an epoch reduces a count, between 0 and 1",
            ),
            of("dynamic-count", "when counters shrink again, from 0 (late) to 1 (early)"),
        ],
    ),
    duration(
        "epoch",
        &[of("decaying, decaying-optimized", "the time between two decays, such as 60s")],
    ),
    plain(
        "decay",
        "FUNCTION",
        &[of(
            "decaying",
            "exponential, polynomial, sliding-window, linear, or weights FILE: one number for \
             each age in epochs, from 1 downwards [default: exponential]",
        )],
    ),
    plain(WEIGHTS, "LIST|@FILE", &[of("decaying", "the numbers of --decay weights")]),
    plain("exponent", "A", &[of("decaying", "the a of (1+x)^-a, with --decay polynomial")]),
    plain(
        "horizon",
        "N",
        &[of("decaying", "epochs for which --decay polynomial never counts too little")],
    ),
    plain(
        "excess",
        "P",
        &[of(
            "decaying",
            "the share by which --decay polynomial may count too much [default: 0.03]",
        )],
    ),
    plain(
        "terms",
        "LIST",
        &[of("decaying", "weight:lambda,... of --decay polynomial, instead of those planned")],
    ),
    plain(
        "window-epochs",
        "N",
        &[of(
            "decaying",
            "epochs until a count has decayed to zero, with --decay sliding-window or linear",
        )],
    ),
    plain(
        "fraction-bits",
        "F",
        &[of("decaying, decaying-optimized", "binary digits of a counter below one")],
    ),
    plain(
        "front",
        "swapped|plain|none",
        &[of(
            "decaying-optimized",
            "the Bloom filter in front: two swapped filters, one that keeps all keys, or none \
             [default: swapped; none if --error needs no front]",
        )],
    ),
    plain("front-bits", "N", &[of("decaying-optimized", "bits of each Bloom filter in front")]),
    plain(
        "front-k",
        "K",
        &[of("decaying-optimized", "hash functions of the Bloom filter in front")],
    ),
    plain(
        "front-keys",
        "N",
        &[of(
            "decaying-optimized",
            "distinct keys inserted while a full counter decays to zero [default: 2 x --capacity]",
        )],
    ),
    plain(
        "pool",
        "X",
        &[of("decaying-optimized", "4-bit digits in the pool for each counter [default: 0.5]")],
    ),
    plain("block-size", "B", &[of("block-timing", "inserts that share a tick")]),
    plain(
        "timers",
        "M",
        &[of("timing, block-timing", "total timers, instead of the number derived from --fpr")],
    ),
    plain(
        "padding",
        "P",
        &[of("timing, block-timing", "ticks for which an expired timer may remain uncleared")],
    ),
    plain(
        "max",
        "MAX",
        &[of("stable, importance-2c, importance-mc, importance-h", "the highest value of a cell")],
    ),
    plain("K", "K", &[of("stable, importance-2c, importance-mc, importance-h", "cells per key")]),
    plain(
        "P",
        "P",
        &[of(
            "stable, importance-2c, importance-mc, importance-h",
            "cells that an insert decrements, instead of the number derived from --fpr",
        )],
    ),
    plain(
        "importance-max",
        "Z",
        &[of(
            "importance-2c, importance-mc, importance-h",
            "the highest importance [default: --max]",
        )],
    ),
];

/// The option of a table of weights.
pub const WEIGHTS: &str = "weights";

/// Returns the arguments with `--decay weights FILE` as two options, of one value each.
pub fn with_table(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut given: Vec<OsString> = Vec::new();
    for argument in arguments {
        let is_table = given.ends_with(&["--decay".into(), WEIGHTS.into()])
            || given.last().is_some_and(|last| last == "--decay=weights");
        if is_table && !argument.as_encoded_bytes().starts_with(b"-") {
            let mut option = OsString::from("--weights=@");
            option.push(&argument);
            given.push(option);
        } else {
            given.push(argument);
        }
    }
    given.into_iter()
}

/// Returns the numbers of a table, separated by commas: from a list, or from a file if the text
/// begins with `@`. There, blanks and line ends separate them too, and lines with `#` are skipped.
fn table(text: &str) -> std::result::Result<String, String> {
    let Some(file) = text.strip_prefix('@') else {
        return Ok(text.to_owned());
    };
    let content = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read the weights from {file}: {error}"))?;
    let lines = content.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words = lines.flat_map(|line| line.split([',', ' ', '\t']));
    Ok(words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(","))
}

/// The given kind options, by parameter name.
#[derive(Debug, Clone, Default)]
pub struct KindOptions(Vec<(&'static str, String)>);

impl KindOptions {
    /// Returns the kind's parameters.
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
                .value_name(option.value)
                .help(option.help())
                .help_heading("The kind's options");
            // Capital letters are short options only, small ones long options only: no two options
            // differ by case alone.
            let argument = match option.name.as_bytes() {
                [letter] if letter.is_ascii_uppercase() => argument.short(char::from(*letter)),
                _ => argument.long(option.name),
            };
            let name = option.name;
            command.arg(argument.value_parser(move |text: &str| match name {
                WEIGHTS => table(text),
                _ => parse_parameter(name, text),
            }))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The kind of a window, unless another one is named.
pub const KIND_OF_WINDOWS: &str = "fingerprint";

/// The false-positive rate of a kind that a window implies.
pub const FPR: f64 = 0.001;

/// Returns the kind and its parameters: the named kind, else the kind that `--window` or `--last`
/// implies, with a false-positive rate of [`FPR`] unless another one is given.
pub fn described<'a>(
    kind: Option<&'a str>,
    last: Option<NonZeroU64>,
    options: &KindOptions,
) -> Result<(&'a str, Parameters)> {
    let mut parameters = options.parameters();
    if let Some(last) = last {
        parameters.set("window-items", last);
    }
    if let Some(kind) = kind {
        return Ok((kind, parameters));
    }
    if parameters.get("window").or(parameters.get("window-items")).is_none() {
        return Err(Failure::Error(
            "the kind is missing; give --kind, or --window DURATION, or --last N".to_owned(),
        ));
    }
    if parameters.get("fpr").is_none() {
        parameters.set("fpr", FPR);
    }
    Ok((KIND_OF_WINDOWS, parameters))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::kinds::{Error, registry};

    fn parse(line: &[&str]) -> std::result::Result<KindOptions, clap::Error> {
        let command = KindOptions::augment_args(Command::new("test").no_binary_name(true));
        KindOptions::from_arg_matches(&command.try_get_matches_from(line)?)
    }

    /// Returns whether an option's help names the kind.
    fn names(option: &KindOption, kind: &str) -> bool {
        option.uses.iter().any(|Use { kinds, .. }| {
            let listed = |list: &str| list.split(", ").any(|name| name == kind);
            *kinds == "all" || kinds.strip_prefix("but ").map_or(listed(kinds), |but| !listed(but))
        })
    }

    /// Returns the parameters that a kind accepts, from its refusal of an unknown one.
    fn taken(kind: &str, parameters: Parameters) -> Vec<String> {
        let refused = registry::build(kind, &parameters.with("", 1)).expect_err("no such name");
        let Error::Parameter { expected, .. } = refused else {
            panic!("{kind}: {refused}");
        };
        let (_, list) = expected.split_once('(').expect("a list in brackets");
        list.trim_end_matches(')').split(", ").map(str::to_owned).collect()
    }

    #[test]
    fn every_parameter_of_every_kind_has_an_option_whose_help_names_the_kind() {
        for entry in registry::REGISTRY {
            let mut all = taken(entry.name, Parameters::new());
            if entry.name == "decaying" {
                for decay in ["linear", "polynomial", "weights"] {
                    all.extend(taken(entry.name, Parameters::new().with("decay", decay)));
                }
            }
            for name in &all {
                let option = OPTIONS.iter().find(|option| option.name == name);
                let option = option.unwrap_or_else(|| panic!("--{name}, for {}", entry.name));
                assert!(names(option, entry.name), "--{name} does not name {}", entry.name);
            }
            for option in OPTIONS.iter().filter(|option| names(option, entry.name)) {
                let known = all.iter().any(|name| name == option.name);
                assert!(known, "{} takes no --{}", entry.name, option.name);
            }
        }
    }

    #[test]
    fn help_names_only_existing_kinds() {
        let known = |kind: &str| registry::REGISTRY.iter().any(|entry| entry.name == kind);
        for Use { kinds, .. } in OPTIONS.iter().flat_map(|option| option.uses) {
            let list = kinds.strip_prefix("but ").unwrap_or(kinds);
            assert!(*kinds == "all" || list.split(", ").all(known), "{kinds}");
        }
    }

    #[test]
    fn options_become_parameters_of_the_same_name() {
        let options = parse(&["--window-items", "20000", "--fpr", "1e-3"]).expect("options");
        let expected = Parameters::new().with("window-items", 20000).with("fpr", "1e-3");
        assert_eq!(options.parameters(), expected);
    }

    #[test]
    fn the_file_of_a_table_follows_the_name_of_the_function() {
        let rewritten = |line: &[&str]| -> Vec<_> {
            with_table(line.iter().map(OsString::from)).map(|all| all.into_string()).collect()
        };
        for (line, expected) in [
            (
                &["--decay", "weights", "F", "D"][..],
                &["--decay", "weights", "--weights=@F", "D"][..],
            ),
            (&["--decay=weights", "F"], &["--decay=weights", "--weights=@F"]),
            (&["--decay", "weights", "--weights", "1"], &["--decay", "weights", "--weights", "1"]),
            (&["--decay", "linear", "D"], &["--decay", "linear", "D"]),
        ] {
            let expected: Vec<_> = expected.iter().map(|&all| Ok(all.to_owned())).collect();
            assert_eq!(rewritten(line), expected);
        }
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("table");
        std::fs::write(&file, "# half a day\n1 1\n0.5,0.25\n").expect("space");
        let table = |name: &std::path::Path| {
            parse(&["--decay", "weights", &format!("--weights=@{}", name.display())])
        };
        let options = table(&file).expect("options");
        assert_eq!(options.parameters().get("weights"), Some("1,1,0.5,0.25"));
        assert!(table(&home.path().join("none")).is_err());
    }

    #[test]
    fn durations_become_microseconds() {
        let options = parse(&["--window", "90s"]).expect("options");
        assert_eq!(options.parameters().get("window"), Some("90000000"));
        let options = parse(&["--epoch", "1m"]).expect("options");
        assert_eq!(options.parameters().get("epoch"), Some("60000000"));
        assert!(parse(&["--window", "soon"]).is_err());
    }

    #[test]
    fn counts_take_underscores_exponents_and_suffixes() {
        for text in ["1M", "1e6", "1_000_000", "1000k"] {
            let options = parse(&["--window-items", text]).expect("options");
            assert_eq!(options.parameters().get("window-items"), Some("1000000"), "{text}");
        }
        // The library refuses what is no count, with the parameter's own message.
        assert_eq!(
            parse(&["--capacity", "many"]).expect("text").parameters().get("capacity"),
            Some("many")
        );
    }

    #[test]
    fn a_window_implies_its_kind_and_rate() {
        let window = parse(&["--window", "1s"]).expect("options");
        let items = parse(&["--window-items", "5"]).expect("options");
        let none = KindOptions::default();
        for (last, options) in [(None, &window), (None, &items), (NonZeroU64::new(5), &none)] {
            let (kind, parameters) = described(None, last, options).expect("a kind");
            assert_eq!((kind, parameters.get("fpr")), (KIND_OF_WINDOWS, Some("0.001")));
        }
        let (kind, parameters) = described(Some("bloom"), None, &items).expect("a kind");
        assert_eq!((kind, parameters.get("fpr")), ("bloom", None));
        assert!(described(None, None, &none).is_err());
    }

    #[test]
    fn no_two_options_differ_by_case_alone() {
        assert!(parse(&["-K", "5", "-P", "17", "--k", "3"]).is_ok());
        for line in [["-k", "5"], ["-l", "5"], ["--K", "5"], ["--P", "5"]] {
            assert!(parse(&line).is_err(), "{line:?}");
        }
    }
}
