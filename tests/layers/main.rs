//! The rules of the house that can be checked by text: layers, sizes, words that must not appear,
//! circles of imports, and the places of methods. They hold for both crates, the engine in `src/`
//! and the algorithms in `core/src/`, whose rooms and files are called `core/…` here.
//! The source is read as text with comments and literals blanked out, so no rule trips over prose.
//! Test modules are free of the rules about layers, but not of those about sizes.

mod documents;
mod files;
mod homes;
mod methods;
mod prose;
mod text;

use homes::{
    ORDERINGS, ORDERINGS_OF_A_PROCESS, UNSAFE_FILES, UNSAFE_FILES_OF_C, UNSAFE_FILES_OF_REDIS,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use text::{
    CORE, Source, blank, closing_brace, is_word, library, names, rooms_named, root, sources,
};

/// The floor of each room; an import may point down or sideways, never up.
const FLOORS: &[(&str, u32)] = &[
    ("core/error", 1),
    ("core/atomic", 1),
    ("core/hash", 1),
    ("core/inference", 1),
    ("core/text", 1),
    ("core/units", 1),
    ("core/block", 2),
    ("core/log_record", 2),
    ("core/event", 2),
    ("core/state", 2),
    ("core/time", 2),
    ("core/kind", 3),
    ("core/kinds", 3),
    ("core/claims", 3),
    ("core/digest", 4),
    ("core/identity", 3),
    ("core/machine", 5),
    ("core/conformance", 6),
    ("core/serial", 4),
    ("error", 1),
    ("primitives", 1),
    ("telemetry", 1),
    ("platform", 1),
    ("media", 2),
    ("clock", 2),
    ("format", 1),
    ("meta", 3),
    ("wal", 3),
    ("image", 3),
    ("options", 3),
    ("snapshot", 4),
    ("locks", 4),
    ("recovery", 5),
    ("archive", 5),
    ("engine", 6),
    ("admin", 7),
    ("api", 8),
    ("serial", 9),
];

/// Doors for tools, outside the house: compiled for fuzzing only.
const DOORS: &[&str] = &["lib.rs", "fuzzing.rs", "core/lib.rs"];

/// The files of the engine, from the top to the bottom: each may use only those after it. `mod` is
/// the parts of a handle together.
const ENGINE: &[&str] = &[
    "lifecycle/alter",
    "lifecycle/snapshot_of_memory",
    "lifecycle/open",
    "lifecycle/full_disk_at_open",
    "lifecycle/close",
    "background/maintenance",
    "mod",
    "write/clear",
    "write/claims",
    "batch/commit",
    "batch/before_commit",
    "write/single",
    "write/events_first",
    "write/decide_and_apply",
    "batch/append_staged",
    "batch/staging",
    "batch/overlay",
    "write/stripe_0_records",
    "write/writer",
    "write/full_disk_while_writing",
    "read/infer",
    "read/query",
    "read/details",
    "read/stats",
    "read/distinct",
    "checkpoints/checkpoint",
    "checkpoints/reclaim_disk",
    "stripes",
    "dead_owners",
    "log/tickets",
    "log/group_commit",
    "log/append",
    "log/space",
    "checkpoints/backpressure",
    "checkpoints/due",
    "background/wakeup",
    "time/filter_time",
    "time/clock_copy",
    "time/time_over_reboots",
    "time/lease_time",
    "shared",
    "poisoned",
    "temporary_files",
    "lifecycle/vacant_directory",
    "lifecycle/options_match",
    "lifecycle/closed_mark",
    "write/request",
    "log/ticket_list",
    "background/threads",
    "background/scheduled_threads",
    "background/task",
];

/// Where the sources of what is shipped, and of what tests and measures it, are.
const FOLDERS: &[&str] = &[
    "src",
    "core/src",
    "cli/src",
    "capi/src",
    "redis/src",
    "adapters",
    "testkit/src",
    "tests",
    "cli/tests",
    "capi/tests",
    "redis/tests",
    "examples",
    "benches",
    "capi/benches",
];

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;
const LIB_LINES: usize = 200;

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
        for other in source.looks_into() {
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

/// The shipped files of the engine, each with its name in [`ENGINE`]. The `mod.rs` of a folder in
/// it only declares the others.
fn files_of_the_engine() -> Vec<(String, Source)> {
    let files = sources("src/engine").into_iter().filter(|source| !source.test);
    let named = files.map(|source| (source.name.trim_end_matches(".rs").to_owned(), source));
    named.filter(|(name, _)| !name.ends_with("/mod")).collect()
}

/// The names in [`ENGINE`] of the files that this code names.
fn parts_named(code: &str, files: &[(String, Source)]) -> BTreeSet<String> {
    let is_file = |name: &str| files.iter().any(|(file, _)| file == name);
    let mut found = BTreeSet::new();
    for part in rooms_named(code, "crate::engine::", "") {
        if !files.iter().any(|(file, _)| file.starts_with(&format!("{part}/"))) {
            // What is no file is an item of `mod`.
            found.insert(if is_file(&part) { part } else { "mod".to_owned() });
            continue;
        }
        // What is in a folder is imported by a path of its own.
        let inner = rooms_named(code, &format!("crate::engine::{part}::"), &format!("{part}/"));
        found.extend(if inner.is_empty() { BTreeSet::from([part]) } else { inner });
    }
    found
}

#[test]
fn the_engine_is_a_list_and_each_file_uses_only_files_below_it() {
    let place = |name: &str| ENGINE.iter().position(|&file| file == name);
    let (files, mut wrong) = (files_of_the_engine(), Vec::new());
    for (name, source) in &files {
        let code = source.shipped();
        let Some(here) = place(name) else {
            wrong.push(format!("{name} has no place"));
            continue;
        };
        if names(&code, "super") {
            wrong.push(format!("{name} names files by `super`"));
        }
        for other in parts_named(&code, &files) {
            if place(&other).is_none_or(|there| there <= here) && other != *name {
                wrong.push(format!("{name} names {other}"));
            }
        }
    }
    let gone = ENGINE.iter().filter(|&file| !files.iter().any(|(name, _)| name == file));
    wrong.extend(gone.map(|file| format!("{file} is no file")));
    assert_none(&wrong, "an import points to a later file of the list");
}

#[test]
fn a_part_of_the_engine_has_all_its_methods_in_its_own_file() {
    let declared = |code: &str, name: &str| {
        ["struct", "enum"].iter().any(|word| names(code, &format!("{word} {name}")))
    };
    let parts = files_of_the_engine();
    let mut wrong = Vec::new();
    for source in library().iter().filter(|source| source.house().is_empty() && !source.test) {
        let code = source.shipped();
        for line in code.lines().filter(|line| line.starts_with("impl")) {
            let Some(name) = inherent(line) else { continue };
            let is_part = parts.iter().any(|(_, part)| declared(&part.shipped(), name));
            if is_part && !declared(&code, name) {
                wrong.push(format!("{}: {line}", source.name));
            }
        }
    }
    assert_none(&wrong, "methods far from their type");
}

/// The type of an inherent `impl` that begins with this line.
fn inherent(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generics) => generics.split_once("> ")?.1,
        None => rest.trim_start(),
    };
    let end = rest.bytes().position(|byte| !is_word(byte)).unwrap_or(rest.len());
    (!line.contains(" for ")).then_some(&rest[..end])
}

#[test]
fn the_algorithms_see_no_files_threads_clocks_or_locks() {
    let words = ["env", "fs", "io", "net", "path", "process", "thread", "time"];
    let mut words: Vec<_> = words.iter().map(|module| format!("std::{module}")).collect();
    words.extend(["Mutex", "RwLock", "Condvar", "Instant", "SystemTime"].map(String::from));
    let mut wrong = Vec::new();
    for source in library().iter().filter(|source| source.house() == CORE && is_shipped(source)) {
        let code = source.shipped();
        for word in words.iter().filter(|word| names(&code, word)) {
            wrong.push(format!("{} names {word}", source.name));
        }
    }
    assert_none(&wrong, "what makes an algorithm depend on more than its input");
}

#[test]
fn log_and_snapshot_see_no_kinds() {
    let mut wrong = Vec::new();
    // What a snapshot holds of an image is apart from how it lies in the file.
    let is_format = |source: &&Source| {
        let is_content = ["snapshot/load.rs", "snapshot/save.rs"].contains(&source.name.as_str());
        ["wal", "snapshot"].contains(&source.room()) && !is_content
    };
    for source in library().iter().filter(is_format) {
        let rooms = if source.test { BTreeSet::new() } else { source.looks_into() };
        for room in ["event", "inference", "kind", "kinds", "state"] {
            if rooms.contains(&format!("{CORE}{room}")) {
                wrong.push(format!("{} looks into {CORE}{room}", source.name));
            }
        }
    }
    assert_none(&wrong, "rooms that must not know each other");
}

#[test]
fn orderings_are_chosen_where_the_words_are() {
    let is_home = |name: &str| {
        let below = |home: &str| name == home || name.starts_with(&format!("{home}/"));
        let shared = ORDERINGS.iter().any(|home| below(home) || name == format!("{home}.rs"));
        shared || ORDERINGS_OF_A_PROCESS.iter().any(|&(home, _)| name == home)
    };
    let (mut wrong, mut choosing) = (Vec::new(), BTreeSet::new());
    for source in library().into_iter().filter(is_shipped) {
        let code = source.shipped();
        let orderings = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
        if !orderings.iter().any(|ordering| code.contains(&format!("Ordering::{ordering}"))) {
            continue;
        }
        if !is_home(&source.name) {
            wrong.push(format!("{}: an ordering far from its word", source.name));
        }
        choosing.insert(source.name);
    }
    for (home, of) in ORDERINGS_OF_A_PROCESS.iter().filter(|(home, _)| !choosing.contains(*home)) {
        wrong.push(format!("{home}: chooses no ordering any more ({of})"));
    }
    assert_none(
        &wrong,
        "`src/image/words.rs` and `primitives::Hint` have operations without orderings",
    );
}

#[test]
fn every_module_opens_with_its_head() {
    let mut wrong = Vec::new();
    for &folder in FOLDERS {
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
    for &folder in FOLDERS {
        for source in sources(folder) {
            let (name, lines) = (&source.name, source.text.lines().count());
            if lines >= FILE_LINES {
                wrong.push(format!("{folder}/{name}: {lines} lines"));
            }
            let long = long_functions(&source.code);
            wrong.extend(long.iter().map(|function| format!("{folder}/{name}: fn {function}")));
        }
    }
    assert_none(&wrong, &format!("too long (files have less than {FILE_LINES} lines)"));
}

#[test]
fn the_front_page_is_a_page() {
    for page in ["src/lib.rs", "core/src/lib.rs"] {
        let text = fs::read_to_string(root().join(page)).expect("a library");
        let lines = text.lines().count();
        assert!(
            lines < LIB_LINES,
            "{page} has {lines} lines, and should have less than {LIB_LINES}"
        );
        let functions = names(&blank(&text), "fn");
        assert!(!functions, "{page} holds no logic");
    }
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
    for folder in ["src", "core/src", "cli/src", "capi/src", "redis/src"] {
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

/// What the library depends on. Before a name is added: does it keep a table, a lock or a thread
/// for the whole process? A forked child inherits that in whatever state it is.
const DEPENDENCIES: &[&str] =
    &["arc-swap", "crc32fast", "crossbeam", "ebbtide-core", "libc", "memmap2", "rustix"];

/// What it depends on under a feature of the same name, none of which is a default one. A forked
/// child does not reach `metrics` and `tracing`: see `src/telemetry.rs`.
const OPTIONAL_DEPENDENCIES: &[&str] = &["metrics", "serde", "tracing"];

/// What the crate of the algorithms depends on, likewise.
const CORE_DEPENDENCIES: &[&str] = &["once_cell", "siphasher", "xxhash-rust"];

/// Files of harnesses, which are not in what is shipped.
const NOT_SHIPPED: &[&str] = &["core/atomic/scheduled.rs", "primitives/scheduled.rs"];

fn is_shipped(source: &Source) -> bool {
    !source.test && !NOT_SHIPPED.contains(&source.name.as_str())
}

/// The names under `[dependencies]` of a manifest: of those that are optional, or of the others.
fn dependencies(manifest: &str, optional: bool) -> Vec<String> {
    let manifest = fs::read_to_string(root().join(manifest)).expect("a manifest");
    let section = manifest.split("[dependencies]").nth(1).expect("dependencies");
    let lines = section.lines().skip(1).take_while(|line| !line.is_empty());
    let found = lines.filter(|line| line.contains("optional = true") == optional);
    found.filter_map(|line| line.split([' ', '.', '=']).next()).map(str::to_owned).collect()
}

#[test]
fn nothing_that_a_forked_child_can_reach_waits_through_a_table_of_the_process() {
    for (manifest, known) in [("Cargo.toml", DEPENDENCIES), ("core/Cargo.toml", CORE_DEPENDENCIES)]
    {
        assert_eq!(dependencies(manifest, false), known, "a dependency has to be looked at first");
    }
    assert_eq!(dependencies("Cargo.toml", true), OPTIONAL_DEPENDENCIES);
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    assert!(!manifest.contains("\ndefault = "), "every feature is off by default");
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
    for source in library().into_iter().filter(is_shipped) {
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
    let c = sources("capi/src").into_iter().map(|source| (source, UNSAFE_FILES_OF_C));
    let redis = sources("redis/src").into_iter().map(|source| (source, UNSAFE_FILES_OF_REDIS));
    let library = library().into_iter().map(|source| (source, UNSAFE_FILES));
    for (source, homes) in library.chain(c).chain(redis) {
        let text: Vec<&str> = source.text.lines().collect();
        for (at, line) in source.code.lines().enumerate() {
            // The functions that C calls; their header says what callers must do.
            let exported = line == "#[unsafe(no_mangle)]" || line.contains("pub unsafe extern ");
            // Types of functions: whoever calls one says why.
            if !names(line, "unsafe") || exported || line.contains(" fn(") {
                continue;
            }
            let place = format!("{}:{}", source.name, at + 1);
            if !homes.contains(&source.name.as_str()) {
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
    let code =
        "use crate::{error::{Error, Result}, wal::Op}; crate::live::Image; ebbtide_core::hash";
    let [engine, core] = [("crate::", ""), ("ebbtide_core::", CORE)]
        .map(|(root, house)| Vec::from_iter(rooms_named(code, root, house)));
    assert_eq!(engine, ["error", "live", "wal"]);
    assert_eq!(core, ["core/hash"]);
}
