//! Rewriting patches whose surroundings have changed.

use crate::patch::{Patch, all, checkout};
use crate::{git, source};
use std::fs;
use std::path::Path;

/// Rewrites the patches that apply with one line of context, with three lines and their numbers as
/// they are now.
///
/// # Errors
/// Names the patches that do not apply, and why.
pub fn repair() -> Result<(), String> {
    let folder = source::folder().join("repair");
    let mut wrong = Vec::new();
    for patch in all()? {
        match rewritten(&folder, &patch) {
            Ok(text) if fs::read_to_string(&patch.path).is_ok_and(|old| old == text) => {}
            Ok(text) => {
                fs::write(&patch.path, text).map_err(|error| format!("{}: {error}", patch.name))?;
                println!("{}: rewritten", patch.name);
            }
            Err(why) => wrong.push(why),
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// The patch as it should be, made in this folder.
fn rewritten(folder: &Path, patch: &Patch) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", patch.name);
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    for (side, file) in patch.files.iter().flat_map(|file| [("a", file), ("b", file)]) {
        let to = folder.join(side).join(file);
        fs::create_dir_all(to.parent().unwrap_or(folder)).map_err(failed)?;
        fs::copy(checkout().join(file), to)
            .map_err(|error| format!("{}: {file}: {error}", patch.name))?;
    }
    git::apply(&folder.join("b"), patch, &["-C1"])?;
    Ok(format!("{}{}", patch.head, git::difference(folder)?))
}
