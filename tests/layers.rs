//! The rules of the house that can be checked by text: layers, sizes, words that must not appear.
//!
//! The source is read as text with comments and literals blanked out, so no rule trips over prose. Test
//! modules are free of the rules about layers, but not of those about sizes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The floor of each room; an import may point down or sideways, never up.
const FLOORS: &[(&str, u32)] = &[
    ("error", 1),
    ("hash", 1),
    ("sync", 1),
    ("names", 1),
    ("bytes", 1),
    ("fork", 1),
    ("threads", 1),
    ("undo", 1),
    ("inference", 1),
    ("media", 2),
    ("cells", 2),
    ("clock", 2),
    ("wal", 3),
    ("live", 3),
    ("meta", 3),
    ("options", 3),
    ("kinds", 3),
    ("snapshot", 4),
    ("processes", 4),
    ("recovery", 5),
    ("filter", 6),
    ("serial", 7),
];

/// Doors for tools, outside the house: compiled for fuzzing only.
const DOORS: &[&str] = &["lib.rs", "fuzzing.rs"];

/// Where `unsafe` is at home: prefetching, what fork does, mappings and byte locks, the futex, and what a stripe lock
/// guards.
const UNSAFE_FILES: &[&str] = &[
    "cells.rs",
    "filter/background.rs",
    "fork.rs",
    "media/disk/locks.rs",
    "media/disk/mapping.rs",
    "media/mapped.rs",
    "media/memory.rs",
    "media/mod.rs",
    "processes/futex.rs",
    "processes/stripes.rs",
    "threads.rs",
];

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;
const LIB_LINES: usize = 200;

/// A source file.
struct Source {
    /// Its path below the folder it was looked for in.
    name: String,
    text: String,
    /// The text without comments and literals, line by line the same.
    code: String,
    /// Compiled for tests only.
    test: bool,
}

impl Source {
    /// The room it belongs to.
    fn room(&self) -> &str {
        let first = self.name.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// The code without its test modules.
    fn shipped(&self) -> String {
        let mut code = self.code.clone();
        while let Some((at, end)) = test_module(&code) {
            code.replace_range(at..end, "");
        }
        code
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// All sources below a folder of the project; none if it is not there.
fn sources(folder: &str) -> Vec<Source> {
    let folder = root().join(folder);
    let mut paths = Vec::new();
    rust_files(&folder, &mut paths);
    paths.sort();
    let mut all: Vec<Source> = paths
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).expect("a readable file");
            let name = path.strip_prefix(&folder).expect("it was found there");
            Source {
                name: name.to_string_lossy().into_owned(),
                code: blank(&text),
                text,
                test: false,
            }
        })
        .collect();
    let tests: BTreeSet<String> = all.iter().flat_map(test_files).collect();
    for source in &mut all {
        let below = |test: &String| source.name.starts_with(&format!("{test}/"));
        let is = |test: &String| source.name == format!("{test}.rs");
        source.test = tests.iter().any(|test| below(test) || is(test));
    }
    all
}

fn library() -> Vec<Source> {
    let all = sources("src");
    assert!(all.len() > 20, "the library has more files than that");
    all
}

fn is_test_attribute(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")
}

/// The files that a source declares as modules for tests, without `.rs`.
fn test_files(source: &Source) -> Vec<String> {
    let folder = source.name.strip_suffix("mod.rs").map(str::to_owned);
    let folder = folder.unwrap_or_else(|| match source.name.strip_suffix(".rs") {
        Some("lib") | None => String::new(),
        Some(stem) => format!("{stem}/"),
    });
    let lines: Vec<&str> = source.code.lines().collect();
    let pairs = lines.windows(2).filter(|pair| is_test_attribute(pair[0]));
    let names = pairs.filter_map(|pair| {
        let (_, name) = pair[1].trim().split_once("mod ")?;
        Some(format!("{folder}{}", name.strip_suffix(';')?))
    });
    names.collect()
}

/// Where the first test module written out in this code begins and ends.
fn test_module(code: &str) -> Option<(usize, usize)> {
    let mut offset = 0;
    let mut attribute = None;
    for line in code.split_inclusive('\n') {
        if is_test_attribute(line) {
            attribute = Some(offset);
        } else if let Some(begin) = attribute.take()
            && line.contains("mod ")
            && line.contains('{')
        {
            return Some((begin, closing_brace(code, offset)));
        }
        offset += line.len();
    }
    None
}

/// The offset after the brace that closes the first one opened from `from` on.
fn closing_brace(code: &str, from: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Replaces comments and the insides of literals by spaces; line breaks stay.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = vec![b' '; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_or_comment(&text[at..]).map_or(at, |length| at + length);
        if end == at {
            out[at] = bytes[at];
            at += 1;
        }
        while at < end {
            if bytes[at] == b'\n' {
                out[at] = b'\n';
            }
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The length of the comment or literal that begins here.
fn literal_or_comment(text: &str) -> Option<usize> {
    if !text.is_char_boundary(1) {
        return None;
    }
    let after = |from: usize, end: &str| {
        let found = text.get(from..).and_then(|rest| rest.find(end));
        found.map_or(text.len(), |at| from + at + end.len())
    };
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(after(2, "*/"));
    }
    if text.starts_with("r\"") {
        return Some(after(2, "\""));
    }
    if text.starts_with("r#\"") {
        return Some(after(3, "\"#"));
    }
    let quote = match text.as_bytes()[0] {
        b'"' => '"',
        // A lifetime has no second quote after one character or escape.
        b'\'' if text[1..].starts_with('\\') || text[1..].chars().nth(1) == Some('\'') => '\'',
        _ => return None,
    };
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return Some(at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether the code names `word`, whole words only.
fn names(code: &str, word: &str) -> bool {
    let bytes = code.as_bytes();
    code.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).map(|before| bytes[before]);
        let after = bytes.get(at + word.len()).copied();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// What follows each `crate::` of this code: the rooms it looks into.
fn rooms_named(code: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for (at, path) in code.match_indices("crate::") {
        let rest = &code[at + path.len()..];
        let list = match rest.strip_prefix('{') {
            Some(_) => top_level_items(&rest[..closing_brace(rest, 0)]),
            None => vec![rest],
        };
        for item in list {
            let end = item.bytes().position(|byte| !is_word(byte));
            rooms.insert(item[..end.unwrap_or(item.len())].to_owned());
        }
    }
    rooms.remove("");
    rooms
}

/// The items of a list in braces, those in inner braces apart.
fn top_level_items(list: &str) -> Vec<&str> {
    let (mut depth, mut items) = (0, Vec::new());
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 1 && matches!(byte, b'{' | b',') {
            items.push(list[at + 1..].trim_start());
        }
    }
    items
}

fn floor(room: &str) -> Option<u32> {
    let found = FLOORS.iter().find(|(name, _)| *name == room);
    found.map(|&(_, floor)| floor)
}

/// Who looks into whom, with one file that does for each.
fn edges() -> BTreeMap<(String, String), String> {
    let mut edges = BTreeMap::new();
    for source in library() {
        if source.test || DOORS.contains(&source.name.as_str()) {
            continue;
        }
        let room = source.room().to_owned();
        for other in rooms_named(&source.shipped()) {
            if other != room {
                edges.insert((room.clone(), other), source.name.clone());
            }
        }
    }
    edges
}

fn assert_none(wrong: &[String], rule: &str) {
    assert!(wrong.is_empty(), "{rule}:\n  {}", wrong.join("\n  "));
}

#[test]
fn every_room_has_a_floor_and_no_import_points_up() {
    let mut wrong = Vec::new();
    for ((room, other), file) in edges() {
        match (floor(&room), floor(&other)) {
            (Some(here), Some(there)) if there <= here => {}
            (Some(here), Some(there)) => {
                wrong.push(format!("{file}: {room} ({here}) names {other} ({there})"));
            }
            (Some(_), None) => {
                wrong.push(format!("{file}: {room} names {other}, which is no room"))
            }
            (None, _) => wrong.push(format!("{file}: {room} has no floor")),
        }
    }
    assert_none(&wrong, "imports point down or sideways");
}

#[test]
fn rooms_form_no_circle() {
    let mut left: BTreeSet<(String, String)> = edges().into_keys().collect();
    // Takes away rooms that look into no other until none is left; a circle stays.
    loop {
        let looking: BTreeSet<String> = left.iter().map(|(room, _)| room.clone()).collect();
        let before = left.len();
        left.retain(|(_, other)| looking.contains(other));
        if left.len() == before {
            break;
        }
    }
    let wrong: Vec<String> =
        left.iter().map(|(room, other)| format!("{room} -> {other}")).collect();
    assert_none(&wrong, "some of these imports form a circle");
}

#[test]
fn kinds_see_no_files_clocks_or_locks_and_wal_and_snapshot_see_no_kinds() {
    let forbidden: &[(&str, &[&str])] = &[
        ("kinds", &["std::fs", "std::time", "parking_lot", "clock", "media"]),
        ("wal", &["kinds"]),
        ("snapshot", &["kinds"]),
    ];
    let mut wrong = Vec::new();
    for source in library().iter().filter(|source| !source.test) {
        let code = source.shipped();
        for (room, words) in forbidden {
            if source.room() != *room {
                continue;
            }
            for word in words.iter().filter(|word| names(&code, word)) {
                wrong.push(format!("{} names {word}", source.name));
            }
        }
    }
    assert_none(&wrong, "rooms that must not know each other");
}

#[test]
fn every_module_opens_with_its_head() {
    let mut wrong = Vec::new();
    for folder in ["src", "cli/src", "tests", "cli/tests", "examples", "benches"] {
        for source in sources(folder) {
            if !source.text.starts_with("//!") {
                wrong.push(format!("{folder}/{}", source.name));
            }
        }
    }
    assert_none(&wrong, "files that do not open with `//!`");
}

/// The lines of the functions in this code that are too long, with their names.
fn long_functions(code: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let starts = at == 0 || !is_word(code.as_bytes()[at - 1]);
        let rest = &code[at..];
        // A declaration ends in a semicolon before any brace; one inside brackets is an array's.
        let body = rest.find('{').unwrap_or(rest.len());
        let declared = rest.find(";\n").is_some_and(|end| end < body);
        if !starts || declared {
            continue;
        }
        let begin = code[..at].rfind('\n').map_or(0, |line| line + 1);
        let lines = code[begin..closing_brace(code, at)].lines().count();
        if lines >= FUNCTION_LINES {
            let name: String = rest[3..].chars().take_while(|&c| c != '(').collect();
            wrong.push(format!("{name}: {lines} lines"));
        }
    }
    wrong
}

#[test]
fn files_and_functions_are_short() {
    let mut wrong = Vec::new();
    for folder in ["src", "cli/src", "tests", "cli/tests", "examples", "benches"] {
        for source in sources(folder) {
            let (name, lines) = (&source.name, source.text.lines().count());
            if lines >= FILE_LINES {
                wrong.push(format!("{folder}/{name}: {lines} lines"));
            }
            let long = long_functions(&source.code);
            wrong.extend(long.iter().map(|function| format!("{folder}/{name}: fn {function}")));
        }
    }
    assert_none(&wrong, "too long");
}

#[test]
fn the_front_page_is_a_page() {
    let text = fs::read_to_string(root().join("src/lib.rs")).expect("a library");
    assert!(text.lines().count() < LIB_LINES, "lib.rs is too long");
    let functions = names(&blank(&text), "fn");
    assert!(!functions, "lib.rs holds no logic");
}

#[test]
fn nothing_unfinished_and_nothing_waved_through() {
    let words = [
        "todo!",
        "unimplemented!",
        "dbg!",
        "#[allow(",
        "#![allow(",
        "to_ne_bytes",
        "from_ne_bytes",
    ];
    let mut wrong = Vec::new();
    for folder in ["src", "cli/src"] {
        for source in sources(folder) {
            for word in words.iter().filter(|&&word| source.code.contains(word)) {
                wrong.push(format!("{folder}/{}: {word}", source.name));
            }
        }
    }
    assert_none(&wrong, "words that must not appear");
}

#[test]
fn the_engine_holds_no_trace_of_the_mistakes_that_tests_plant() {
    let mut wrong = Vec::new();
    for folder in ["src", "core/src", "cli/src"] {
        for source in sources(folder) {
            let text = source.text.to_lowercase();
            for word in ["planted", "mistake::"].iter().filter(|&&word| text.contains(word)) {
                wrong.push(format!("{folder}/{}: {word}", source.name));
            }
        }
    }
    assert_none(&wrong, "known mistakes belong in tests/planted");
}

/// What the library depends on. Before a name is added: does it keep a table, a lock or a thread for the whole process? A
/// forked child inherits that in whatever state it is.
const DEPENDENCIES: &[&str] = &[
    "arc-swap",
    "crc32fast",
    "crossbeam-utils",
    "libc",
    "memmap2",
    "rustix",
    "siphasher",
    "xxhash-rust",
];

/// Files of harnesses, which are not in what is shipped.
const NOT_SHIPPED: &[&str] = &["sync/scheduled.rs"];

#[test]
fn nothing_that_a_forked_child_can_reach_waits_through_a_table_of_the_process() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    let section = manifest.split("[dependencies]").nth(1).expect("dependencies");
    let lines = section.lines().skip(1).take_while(|line| !line.is_empty());
    let found = lines.filter(|line| !line.contains("optional = true"));
    let found: Vec<_> = found.filter_map(|line| line.split([' ', '.', '=']).next()).collect();
    assert_eq!(found, DEPENDENCIES, "a dependency has to be looked at first");
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("a lock file");
    let packages: BTreeMap<&str, &str> = lock
        .split("[[package]]")
        .filter_map(|package| {
            Some((package.split("name = \"").nth(1)?.split('"').next()?, package))
        })
        .collect();
    let (mut reached, mut open) = (BTreeSet::new(), DEPENDENCIES.to_vec());
    while let Some(name) = open.pop().filter(|name| packages.contains_key(name)) {
        if reached.insert(name) {
            let list = packages[name].split("dependencies = [").nth(1).unwrap_or_default();
            let names = list.split('"').skip(1).step_by(2);
            open.extend(names.filter_map(|name| name.split(' ').next()));
        }
    }
    let mut wrong: Vec<String> = Vec::new();
    for name in ["parking_lot", "parking_lot_core", "crossbeam-epoch"] {
        if reached.contains(name) {
            wrong.push(format!("{name} keeps a table of the process's threads"));
        }
    }
    let locks = ["Mutex", "RwLock", "Once", "OnceLock", "LazyLock", "Condvar", "Barrier"];
    let shipped = |source: &Source| !source.test && !NOT_SHIPPED.contains(&source.name.as_str());
    for source in library().into_iter().filter(shipped) {
        let code = source.shipped();
        if names(&code, "parking_lot") || code.contains("thread::park") {
            wrong.push(format!("{}: waits through a table", source.name));
        }
        let statics = code.lines().filter(|line| names(line, "static") && line.contains(':'));
        for line in statics.filter(|line| locks.iter().any(|lock| names(line, lock))) {
            wrong.push(format!("{}: a child may inherit it locked: {line}", source.name));
        }
    }
    assert_none(&wrong, "what a fork leaves in disorder");
}

#[test]
fn every_unsafe_is_at_home_and_says_why() {
    let mut wrong = Vec::new();
    for source in library() {
        let text: Vec<&str> = source.text.lines().collect();
        for (at, line) in source.code.lines().enumerate() {
            if !names(line, "unsafe") {
                continue;
            }
            let place = format!("{}:{}", source.name, at + 1);
            if !UNSAFE_FILES.contains(&source.name.as_str()) {
                wrong.push(format!("{place}: not at home here"));
            }
            // Attributes may stand between the comment and the code.
            let mut above = text[..at].iter().rev().take_while(|line| !line.is_empty());
            if !above.any(|line| line.contains("SAFETY:") || line.contains("# Safety")) {
                wrong.push(format!("{place}: no SAFETY comment above it"));
            }
        }
    }
    assert_none(&wrong, "unsafe code");
}

#[test]
fn the_reader_of_this_file_is_not_fooled_by_literals() {
    let text = "let a = \"} // { \\\" x\"; // unsafe\nlet b = '{'; let c: &'a str = r#\"\"{\"#; d";
    let code = blank(text);
    assert_eq!(code.len(), text.len());
    assert!(!code.contains(['{', '}']) && !names(&code, "unsafe"), "{code}");
    assert!(code.contains("&'a str") && code.ends_with('d'), "{code}");
    let rooms =
        rooms_named("use crate::{error::{Error, Result}, hash, wal::Op}; crate::live::Image");
    assert_eq!(rooms.into_iter().collect::<Vec<_>>(), ["error", "hash", "live", "wal"]);
}
