//! Applying patches.

use crate::patch::Patch;
use std::io;
use std::path::Path;
use std::process::{Command, Output};

/// Runs git with these arguments in a folder, which may lie in another repository.
fn git(folder: &Path, arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("git");
    command.current_dir(folder).args(arguments);
    // Without a ceiling git would skip all files of the copy, which the repository around it
    // ignores.
    command.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder));
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    command.output()
}

/// Whether the command is there.
pub fn is_there() -> bool {
    Command::new("git").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Applies a patch to the sources in a folder, with more options of `git apply`.
///
/// # Errors
/// Names the patch and the lines that it does not find.
pub fn apply(folder: &Path, patch: &Patch, options: &[&str]) -> Result<(), String> {
    let path = patch.path.to_string_lossy();
    let arguments = [&["apply", "--whitespace=nowarn"], options, &[&*path]].concat();
    let output = git(folder, &arguments).map_err(|error| format!("git: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", patch.name, String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Returns the patch that makes the folder `b` in this one of `a`.
pub fn difference(folder: &Path) -> Result<String, String> {
    let arguments = ["diff", "--no-index", "--no-color", "--no-ext-diff", "--no-prefix", "a", "b"];
    let output = git(folder, &arguments).map_err(|error| format!("git: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
