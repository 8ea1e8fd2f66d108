//! Builds this program with a scheduler, and runs it.

use libtest_mimic::{Arguments, Failed, Trial};
use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The claims of the program.
const CLAIMS: [&str; 2] =
    ["whatever_a_seed_decides_the_filter_is_what_its_log_says", "two_runs_of_one_seed_are_equal"];
/// The options that only the program knows.
const OWN: [&str; 5] = ["--seed", "--seconds", "--worlds", "--trace", "--all"];

/// Builds the program, and runs it with these arguments.
fn run(arguments: &[String]) -> Result<(), Failed> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    // It lies in `<target>/<profile>/deps`.
    let target = program.ancestors().nth(3).ok_or("there is no target folder")?;
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(env::var("CARGO").unwrap_or(env!("CARGO").to_owned()));
    command
        .current_dir(checkout)
        .env("RUSTC_WORKSPACE_WRAPPER", checkout.join("tests/cfg/shuttle"));
    command.args(["test", "--quiet", "--workspace", "--features", "ebbtide/serde"]);
    command.args(["--test", "world", "--target-dir"]).arg(target).arg("--").args(arguments);
    let status = command.status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{status}; what it said is above").into()) }
}

/// Runs all claims.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| OWN.contains(&argument.as_str())) {
        return match run(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let claim = |name: &str| {
        let own = vec!["--exact".to_owned(), name.to_owned()];
        Trial::test(name, move || run(&own))
    };
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, CLAIMS.map(claim).into()).exit_code()
}
