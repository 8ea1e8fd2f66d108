//! What is checked without a build: every patch is complete and applies.

use crate::patch::{all, checkout};
use crate::{git, run};
use ebbtide_testkit::skipped::skipped;
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

/// Checks the patches as a test does.
pub fn check(arguments: Vec<String>) -> ExitCode {
    let trials = vec![
        Trial::test("every_patch_says_what_it_breaks_and_names_a_test_that_exists", || {
            fails_with(incomplete()?)
        }),
        Trial::test("every_patch_applies", || fails_with(inapplicable()?)),
    ];
    libtest_mimic::run(&Arguments::from_iter(arguments), trials).exit_code()
}

fn fails_with(wrong: Vec<String>) -> Result<(), Failed> {
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

fn incomplete() -> Result<Vec<String>, String> {
    let patches = all()?;
    let mut wrong = Vec::new();
    for patch in &patches {
        let is_kebab = patch.name.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase());
        let is_bug = ["memory order", "replication"].contains(&patch.bug)
            || patch.bug.parse().is_ok_and(|number: u32| (1..=12).contains(&number));
        let file = patch.catcher.test.file();
        let has_test = file.iter().any(|file| checkout().join(file).exists());
        if !is_kebab || !is_bug || !has_test || patch.files.is_empty() {
            wrong.push(format!("{}: {:?}", patch.name, patch.head));
        }
    }
    let missing = run::FEW.iter().filter(|&&name| patches.iter().all(|patch| patch.name != name));
    wrong.extend(missing.map(|name| format!("no patch is called {name}")));
    if patches.len() < run::FEW.len() {
        wrong.push(format!("{} patches only", patches.len()));
    }
    Ok(wrong)
}

/// Returns what git says of each patch that does not apply; nothing where there is no git.
pub fn inapplicable() -> Result<Vec<String>, String> {
    if !git::is_there() {
        skipped("there is no git, so no patch can be applied");
        return Ok(Vec::new());
    }
    let applied = all()?.into_iter().map(|patch| git::apply(checkout(), &patch, &["--check"]));
    let wrong: Vec<String> = applied.filter_map(Result::err).collect();
    let hint = "`-- --repair` of this test may help; tests/planted/main.rs says what else";
    let hint = (!wrong.is_empty()).then(|| hint.to_owned());
    Ok(wrong.into_iter().chain(hint).collect())
}
