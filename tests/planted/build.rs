//! Building tests from the copy of the sources.

use crate::command::Test;
use crate::source;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs of tests.
pub type Built = HashMap<Test, PathBuf>;

/// Builds these tests.
///
/// # Errors
/// What cargo printed, if one cannot be built.
pub fn build(tests: &[Test]) -> Result<Built, String> {
    let (models, others): (Vec<Test>, Vec<Test>) =
        tests.iter().partition(|&&test| test == Test::Loom);
    let mut built = Built::new();
    let target = source::target();
    if !others.is_empty() {
        built.extend(build_in(&target, "", &others)?);
    }
    if !models.is_empty() {
        built.extend(build_in(&target.join("loom"), "--cfg loom", &models)?);
    }
    Ok(built)
}

/// Builds into the target folder of CI, where the dependencies have been built already.
fn build_in(target: &Path, flags: &str, tests: &[Test]) -> Result<Built, String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--no-run", "--message-format", "json", "--workspace"]);
    command.current_dir(source::folder().join("source")).arg("--target-dir").arg(target);
    // Most of a build is the same as the one before. The flags of the build of this program are not
    // used.
    command.env("CARGO_INCREMENTAL", "1");
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", flags);
    // Of both libraries at once, and cargo takes it only once.
    if tests.iter().any(|test| matches!(test, Test::Core | Test::Lib)) {
        command.arg("--lib");
    }
    for test in tests {
        match test {
            Test::Core | Test::Lib => &mut command,
            Test::Of(name) => command.args(["--test", name]),
            Test::Loom => command.args(["--release", "--test", "loom"]),
        };
    }
    let output = command.output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    tests.iter().map(|&test| Ok((test, program(&messages, test)?))).collect()
}

/// Where cargo says that a test's program is.
fn program(messages: &str, test: Test) -> Result<PathBuf, String> {
    let name = format!("\"name\":\"{}\"", test.name());
    let found = messages.lines().find_map(|message| {
        let (_, rest) = message.split_once("\"executable\":\"")?;
        let path = rest.split_once('"')?.0;
        message.contains(&name).then(|| Path::new(path).to_path_buf())
    });
    found.ok_or(format!("cargo names no program for {test:?}"))
}
