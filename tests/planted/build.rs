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
    let (worlds, others): (Vec<Test>, Vec<Test>) =
        others.iter().partition(|&&test| test == Test::World);
    let (module, others): (Vec<Test>, Vec<Test>) =
        others.iter().partition(|&&test| test == Test::Module);
    let mut built = Built::new();
    let target = source::target();
    if !module.is_empty() {
        built.insert(Test::Module, build_module(&target.join("redis"))?);
    }
    if !others.is_empty() {
        built.extend(build_in(&target, None, &others)?);
    }
    if !worlds.is_empty() {
        built.extend(build_in(&target, Some("shuttle"), &worlds)?);
    }
    if !models.is_empty() {
        built.extend(build_in(&target, Some("loom"), &models)?);
    }
    Ok(built)
}

/// Builds the module, which is a workspace of its own, and its tests; returns their program.
fn build_module(target: &Path) -> Result<PathBuf, String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--no-run", "--message-format", "json", "--test", "module"]);
    command.current_dir(source::folder().join("source/redis")).arg("--target-dir").arg(target);
    let messages = output(&mut command)?;
    let mut library = Command::new(env!("CARGO"));
    library.args(["build", "--lib"]).current_dir(source::folder().join("source/redis"));
    output(library.arg("--target-dir").arg(target))?;
    program(&messages, Test::Module)
}

/// Runs cargo, without the flags of the build of this program; returns what it printed.
fn output(command: &mut Command) -> Result<String, String> {
    // Most of a build is the same as the one before.
    command.env("CARGO_INCREMENTAL", "1");
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("RUSTFLAGS");
    let output = command.output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Builds, in a configuration of `tests/cfg`, into the target folder of CI, where the dependencies
/// have been built already.
fn build_in(target: &Path, configuration: Option<&str>, tests: &[Test]) -> Result<Built, String> {
    let sources = source::folder().join("source");
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--no-run", "--message-format", "json", "--workspace"]);
    command.current_dir(&sources).arg("--target-dir").arg(target);
    const WRAPPER: &str = "RUSTC_WORKSPACE_WRAPPER";
    match configuration {
        Some(name) => command.env(WRAPPER, sources.join("tests/cfg").join(name)),
        None => command.env_remove(WRAPPER),
    };
    // Of both libraries at once, and cargo takes it only once.
    if tests.iter().any(|test| matches!(test, Test::Core | Test::Lib)) {
        command.arg("--lib");
    }
    for test in tests {
        match test {
            Test::Core | Test::Lib | Test::Module => &mut command,
            Test::Of(name) => command.args(["--test", name]),
            Test::World => command.args(["--test", "world"]),
            Test::Loom => command.args(["--release", "--test", "loom"]),
        };
    }
    let messages = output(&mut command)?;
    tests.iter().map(|&test| Ok((test, program(&messages, test)?))).collect()
}

/// Where cargo says that a test's program is.
fn program(messages: &str, test: Test) -> Result<PathBuf, String> {
    let name = format!("\"name\":\"{}\"", test.name());
    // The command has the name of the library.
    let kind = if matches!(test, Test::Core | Test::Lib) { "lib" } else { "test" };
    let kind = format!("\"kind\":[\"{kind}\"]");
    let found = messages.lines().find_map(|message| {
        let (_, rest) = message.split_once("\"executable\":\"")?;
        let path = rest.split_once('"')?.0;
        (message.contains(&name) && message.contains(&kind)).then(|| Path::new(path).to_path_buf())
    });
    found.ok_or(format!("cargo names no program for {test:?}"))
}
