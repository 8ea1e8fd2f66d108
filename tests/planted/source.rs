//! The copy of the sources that patches are applied to.

use crate::patch::checkout;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the target folder. This program lies in `<target>/<profile>/deps`.
pub fn target() -> PathBuf {
    let program = std::env::current_exe().expect("this program's file");
    program.ancestors().nth(3).expect("a target folder").to_path_buf()
}

/// Returns the folder of this test in the target folder.
pub fn folder() -> PathBuf {
    target().join("planted")
}

/// What the manifest of the workspace says, and what it says in the copy: cargo tells packages
/// apart by their versions, not by their folders. With the same one it would take a library with a
/// mistake for that of the checkout.
const VERSIONS: [&str; 2] =
    ["[workspace.package]\nversion = \"0.1.0\"", "[workspace.package]\nversion = \"0.1.999\""];

/// Makes the copy equal to the checkout, but for the version, and returns its folder. Files that
/// are equal already are not written, so that cargo builds only what has changed.
///
/// # Errors
/// Names the file.
pub fn copy() -> Result<PathBuf, String> {
    let to = folder().join("source");
    copy_folder(checkout(), &to)?;
    let manifest = to.join("Cargo.toml");
    let failed = |error: io::Error| format!("{}: {error}", manifest.display());
    let text = fs::read_to_string(&manifest).map_err(failed)?;
    let [before, after] = VERSIONS;
    if !text.contains(before) {
        return Err(format!("{}: expected {before:?}", manifest.display()));
    }
    fs::write(&manifest, text.replacen(before, after, 1)).map_err(failed)?;
    Ok(to)
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", from.display());
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(to).map_err(failed)?.flatten() {
        let is_left_over = !from.join(entry.file_name()).exists();
        if is_left_over && entry.path().is_dir() {
            fs::remove_dir_all(entry.path()).map_err(failed)?;
        } else if is_left_over {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    for entry in fs::read_dir(from).map_err(failed)?.flatten() {
        let name = entry.file_name();
        let (from, to) = (entry.path(), to.join(&name));
        if from.is_dir() && name != "target" && name != ".git" {
            copy_folder(&from, &to)?;
        } else if from.is_file() && fs::read(&from).ok() != fs::read(&to).ok() {
            fs::copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
        }
    }
    Ok(())
}
