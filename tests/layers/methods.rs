//! The rule about inherent methods: they stand in the file that defines their type.

use crate::assert_none;
use crate::files::FOLDERS;
use crate::text::{names, sources};
use std::collections::BTreeSet;

/// Inherent methods that still stand apart from their type: a type, a folder, and files in it.
const APART: &[(&str, &str, &[&str])] = &[
    ("Call", "src/api", &["claim", "distinct"]),
    ("Filter", "src/api", &["abilities", "administer", "claim", "distinct", "filter", "paths"]),
    ("Machine", "core/src/machine", &["distinct"]),
    ("Reader", "src/api", &["distinct"]),
    ("Search", "cli/src/commands/exactly_once/find_inputs", &["copies", "search", "unread"]),
];

/// Returns the type of the inherent `impl` that begins here; `None` for one of a trait.
fn type_of_methods(code: &str) -> Option<&str> {
    let (head, _) = code.split_once('{')?;
    let mut rest = head.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0;
        let close = rest.char_indices().find_map(|(at, letter)| {
            match letter {
                '<' => depth += 1,
                '>' if !rest[..at].ends_with('-') => depth -= 1,
                _ => {}
            }
            (depth == 0).then_some(at + 1)
        })?;
        rest = &rest[close..];
    }
    if !rest.starts_with(' ') || names(head, "for") {
        return None;
    }
    let path = rest.trim().trim_start_matches("dyn ").split(['<', ' ', '\n']).next()?;
    path.rsplit("::").next()
}

/// Returns whether this code defines a type of that name, itself or by a macro as
/// `spec! { Name, ... }`.
fn defines(code: &str, name: &str) -> bool {
    let by_macro =
        |line: &str| line.trim().strip_prefix(name).is_some_and(|rest| rest.starts_with(','));
    let words = ["struct", "enum", "union", "trait"];
    words.iter().any(|word| names(code, &format!("{word} {name}"))) || code.lines().any(by_macro)
}

/// Returns file and type of the inherent `impl` blocks of a folder that stand apart from their
/// type.
fn apart(folder: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for source in sources(folder).iter().filter(|source| !source.test) {
        let code = source.shipped();
        let mut from = 0;
        while let Some(at) = code[from..].find("impl").map(|at| from + at) {
            from = at + 4;
            let begins = code[..at].rsplit('\n').next().is_some_and(|line| line.trim().is_empty());
            let found_type = type_of_methods(&code[at..]).filter(|_| begins);
            let is_apart = |name: &&str| !name.starts_with('$') && !defines(&code, name);
            if let Some(name) = found_type.filter(is_apart) {
                found.insert((format!("{folder}/{}", source.name), name.to_owned()));
            }
        }
    }
    found
}

#[test]
fn inherent_methods_stand_in_the_file_of_their_type() {
    let mut found: BTreeSet<_> = FOLDERS.iter().flat_map(|folder| apart(folder)).collect();
    let mut wrong: Vec<String> = Vec::new();
    for (name, folder, files) in APART {
        for file in files.iter().map(|file| format!("{folder}/{file}.rs")) {
            if !found.remove(&(file.clone(), (*name).to_owned())) {
                wrong.push(format!("{file}: impl {name}: not apart any more, remove its line"));
            }
        }
    }
    wrong.extend(found.iter().map(|(file, name)| format!("{file}: impl {name}")));
    assert_none(&wrong, "inherent methods stand in the file of their type");
}

#[test]
fn types_and_their_methods_are_read_from_the_source() {
    assert_eq!(type_of_methods("impl<'a, T: Fn() -> X> a::Y<'a, T> {"), Some("Y"));
    assert_eq!(type_of_methods("impl<T> X for Y<T> {"), None);
    assert!(defines("pub struct Y<T> {", "Y") && !defines("struct Yes;", "Y"));
    assert!(defines("spec! {\n    Y, NAME\n}", "Y") && !defines("let x = (Y, 1);", "Y"));
}
