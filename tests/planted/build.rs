//! Building the tests that are needed.

use crate::command::Test;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder with the builds with mistakes: this program lies in `<folder>/debug/deps`.
fn target() -> PathBuf {
    let program = std::env::current_exe().expect("this program's file");
    program.ancestors().nth(3).expect("a target folder").to_path_buf()
}

/// Builds these tests and says where each is.
///
/// # Panics
/// If one cannot be built.
pub fn build(tests: &[Test]) -> HashMap<Test, PathBuf> {
    let (models, others): (Vec<Test>, Vec<Test>) =
        tests.iter().partition(|&&test| test == Test::Loom);
    let mut built = HashMap::new();
    if !others.is_empty() {
        built.extend(build_in(&target(), "--cfg planted", &others));
    }
    if !models.is_empty() {
        let apart = target().join("loom");
        built.extend(build_in(&apart, "--cfg planted --cfg loom", &models));
    }
    built
}

fn build_in(target: &Path, flags: &str, tests: &[Test]) -> HashMap<Test, PathBuf> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--no-run", "--message-format", "json"]);
    command.args(["--package", "ebbtide", "--package", "ebbtide-core"]);
    command.arg("--target-dir").arg(target).env("RUSTFLAGS", flags);
    for test in tests {
        match test {
            Test::Core | Test::Lib => command.arg("--lib"),
            Test::Of(name) => command.args(["--test", name]),
            Test::Loom => command.args(["--release", "--test", "loom"]),
        };
    }
    let output = command.stderr(Stdio::inherit()).output().expect("cargo runs");
    assert!(output.status.success(), "the tests cannot be built");
    let messages = String::from_utf8_lossy(&output.stdout);
    let place = |test: &Test| {
        let name = match test {
            Test::Core => "ebbtide_core",
            Test::Lib => "ebbtide",
            Test::Of(name) => name,
            Test::Loom => "loom",
        };
        let found = messages.lines().find_map(|message| {
            let ours = message.contains(&format!("\"name\":\"{name}\""));
            let (_, rest) = message.split_once("\"executable\":\"").filter(|_| ours)?;
            Some(PathBuf::from(rest.split_once('"')?.0))
        });
        (*test, found.unwrap_or_else(|| panic!("cargo names no program for {name}")))
    };
    tests.iter().map(place).collect()
}
