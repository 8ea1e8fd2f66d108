//! The mutants, as cargo-mutants lists them.

use serde::Deserialize;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// One change to the code.
pub struct Mutant {
    /// Its number in this list, from 1; the number of its switch.
    pub id: u32,
    pub package: String,
    /// The file, relative to the repository.
    pub file: String,
    /// The function, and what is changed in it: names the mutant in each list of the same code.
    pub name: String,
    pub genre: Genre,
    pub replacement: String,
    span: Span,
}

/// What kind of change it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct Listed {
    package: String,
    file: String,
    name: String,
    genre: Genre,
    replacement: String,
    span: Span,
}

#[derive(Clone, Copy, Deserialize)]
struct Span {
    start: Place,
    end: Place,
}

/// Line and column, both from 1; columns count characters.
#[derive(Clone, Copy, Deserialize)]
struct Place {
    line: usize,
    column: usize,
}

impl Mutant {
    /// Returns the bytes of `text` that it replaces.
    pub fn bytes(&self, text: &str, line_starts: &[usize]) -> Range<usize> {
        let offset = |place: Place| {
            let line = &text[line_starts[place.line - 1]..];
            let column = line.char_indices().nth(place.column - 1).map_or(line.len(), |(at, _)| at);
            line_starts[place.line - 1] + column
        };
        offset(self.span.start)..offset(self.span.end)
    }
}

/// Lists the mutants of the files that match one of `globs`.
///
/// # Panics
/// If cargo-mutants cannot be run.
pub fn list(repository: &Path, globs: &[String]) -> Vec<Mutant> {
    let mut command = Command::new("cargo");
    command.current_dir(repository).args(["mutants", "--list", "--json", "--no-config"]);
    command.args(["--workspace", "--exclude-re", " tests::"]);
    for glob in globs {
        command.args(["--file", glob]);
    }
    let listed = command.output().expect("cargo mutants runs");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed: Vec<Listed> = serde_json::from_slice(&listed.stdout).expect("a list of mutants");
    // Not all modules of tests are recognised as such.
    let of_tests = |file: &str| file.ends_with("tests.rs") || file.contains("/tests/");
    (1..)
        .zip(listed.into_iter().filter(|listed| !of_tests(&listed.file)))
        .map(|(id, listed)| Mutant {
            id,
            package: listed.package,
            file: listed.file,
            name: listed.name,
            genre: listed.genre,
            replacement: listed.replacement,
            span: listed.span,
        })
        .collect()
}
