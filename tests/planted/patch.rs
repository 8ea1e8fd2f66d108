//! Reading the patches.
//!
//! A patch begins with three lines like these; after an empty one comes what `git diff` prints:
//!
//! ```text
//! Breaks: the error of a sync is ignored
//! Likely bug: 6
//! Caught by: durability after_a_failed_sync
//! ```

use crate::command::{Command, Test};
use std::fs;
use std::path::{Path, PathBuf};

/// A known mistake. Patches stay in memory until the program ends.
#[derive(Debug, Clone)]
pub struct Patch {
    /// The name of its file, without the ending.
    pub name: String,
    pub path: PathBuf,
    /// The lines above the changes.
    pub head: &'static str,
    /// What the mistake breaks.
    pub breaks: &'static str,
    /// The number of the likely bug in `docs/reliability.md`, `memory order` or `replication`.
    pub bug: &'static str,
    /// The test that must fail.
    pub catcher: Command,
    /// The paths of the files that it changes.
    pub files: Vec<&'static str>,
}

/// The folder with the project.
pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All patches, in the order of the likely bugs.
///
/// # Errors
/// Names a patch whose head is not complete.
pub fn all() -> Result<Vec<Patch>, String> {
    let folder = checkout().join("tests/planted");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let patches = paths.filter(|path| path.extension().is_some_and(|ending| ending == "patch"));
    let mut all = patches
        .map(|path| read(&path).map_err(|why| format!("{}: {why}", path.display())))
        .collect::<Result<Vec<_>, _>>()?;
    let number = |patch: &Patch| patch.bug.parse().unwrap_or(u32::MAX);
    all.sort_by_key(|patch| (number(patch), patch.name.clone()));
    Ok(all)
}

fn read(path: &Path) -> Result<Patch, String> {
    let text: &'static str = fs::read_to_string(path).map_err(|error| error.to_string())?.leak();
    let changes = text.find("diff --git ").ok_or("changes nothing")?;
    let (head, changes) = text.split_at(changes);
    let line = |name: &str| {
        let found = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.ok_or(format!("its head has no line `{name}: ...`"))
    };
    let caught_by = line("Caught by")?;
    let (test, arguments) = caught_by.split_once(' ').unwrap_or((caught_by, ""));
    Ok(Patch {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        path: path.to_path_buf(),
        head,
        breaks: line("Breaks")?,
        bug: line("Likely bug")?,
        catcher: Command { test: Test::named(test), arguments },
        files: changes.lines().filter_map(|line| line.strip_prefix("+++ b/")).collect(),
    })
}
