//! The names of parameters in messages: those of the options that set them.

use crate::args::Cli;
use clap::CommandFactory;
use std::env;

/// The options that set the parameters whose names differ, the usual one first.
const OTHERS: &[(&str, &[&str])] =
    &[("window-items", &["last", "window-items"]), ("within", &["within", "last", "window"])];

/// Returns the option, with its hyphens, by which the command that runs sets this parameter: of
/// several the one that was given. `None` if it has none.
pub fn option(parameter: &str) -> Option<String> {
    option_of(
        parameter,
        &env::args_os().filter_map(|word| word.into_string().ok()).collect::<Vec<_>>(),
    )
}

fn option_of(parameter: &str, line: &[String]) -> Option<String> {
    let command = Cli::command();
    let command = command.find_subcommand(line.get(1)?)?;
    let has = |name: &&str| command.get_arguments().any(|it| it.get_long() == Some(*name));
    let names = OTHERS.iter().find(|(name, _)| *name == parameter);
    let names: Vec<&str> = match names {
        Some((_, names)) => names.iter().copied().filter(has).collect(),
        None => [parameter].into_iter().filter(has).collect(),
    };
    let is_given = |name: &&&str| {
        let word = format!("--{name}");
        line.iter().any(|it| *it == word || it.starts_with(&format!("{word}=")))
    };
    names.iter().find(is_given).or(names.first()).map(|name| format!("--{name}"))
}

/// Describes a parameter that is refused, by the option that sets it.
pub fn refused(parameter: &str, expected: &str, found: &str) -> String {
    let Some(named) = option(parameter) else {
        return format!("parameter {parameter}: expected {expected}, found {found}");
    };
    // A kind names the first parameter that it does not have.
    let found = match option(found) {
        Some(other) if parameter == "kind" => other,
        _ => found.to_owned(),
    };
    format!("{named}: expected {expected}, found {found}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_has_the_name_of_the_option_that_was_given() {
        for (line, parameter, option) in [
            ("ebbtide dedup --last 9", "window-items", Some("--last")),
            ("ebbtide dedup", "window-items", Some("--last")),
            ("ebbtide create d --window-items=9", "window-items", Some("--window-items")),
            ("ebbtide create d --last 9", "window-items", Some("--last")),
            ("ebbtide create d", "epoch", Some("--epoch")),
            ("ebbtide distinct d --last 9", "within", Some("--last")),
            ("ebbtide distinct d --within 9s", "within", Some("--within")),
            ("ebbtide digest d", "fpr", None),
            ("ebbtide", "fpr", None),
        ] {
            let line: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(option_of(parameter, &line).as_deref(), option, "{parameter}: {line:?}");
        }
    }
}
