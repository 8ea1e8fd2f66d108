//! The figures of README.md, and of the pages that it leads to first, are what the program says.

use crate::support::{Place, input, ok, project_file};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The parameters that a kind needs beside its capacity, and how a million keys are planned.
fn plan(kind: &str, constructor: &str) -> Vec<&'static str> {
    let decays = ["--lambda", "0.5", "--epoch", "1h"];
    match constructor {
        _ if constructor.contains("::window(") => vec!["--window", "1000s", "--rate", "1000"],
        _ if constructor.contains("::last(") => vec!["--last", "1000000"],
        _ if kind.starts_with("decaying") => [&["--capacity", "1000000"][..], &decays].concat(),
        _ => vec!["--capacity", "1000000"],
    }
}

/// Returns the bits a key of a million keys, as `ebbtide plan` says.
fn bits(kind: &str, constructor: &str) -> u64 {
    let words = [&["plan", "--json", "--kind", kind][..], &plan(kind, constructor)].concat();
    let plan = &ok(&words, b"").json()[0];
    let bytes = plan["memory_bytes"].as_f64().expect("a number");
    (bytes * 8.0 / 1e6).round() as u64
}

#[test]
fn the_table_of_kinds_has_the_bits_that_plan_prints() {
    let page = fs::read_to_string(project_file("docs/kinds.md")).expect("the page");
    let mut compared = 0;
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, kind, constructor, _, stated, ..] = cells[..] else { continue };
        let numbers = |text: &str| -> Vec<u64> {
            text.split(|character: char| !character.is_ascii_digit())
                .filter_map(|number| number.parse().ok())
                .collect()
        };
        let (kind, stated) = (kind.trim_matches('`'), numbers(stated));
        if stated.is_empty() || kind.contains(' ') {
            continue;
        }
        let constructors = constructor.split(", `");
        let found: Vec<u64> =
            constructors.clone().map(|constructor| bits(kind, constructor)).collect();
        // One number may stand for two constructors.
        assert_eq!(found[..stated.len()], stated, "{row}");
        compared += 1;
    }
    assert_eq!(compared, 13, "the kinds with a number");
}

#[test]
fn the_first_sentence_has_the_bits_of_the_kinds_that_are_recommended_for_windows() {
    let page = fs::read_to_string(project_file("README.md")).expect("the page");
    let all = [
        bits("fingerprint", "::last("),
        bits("fingerprint", "::window("),
        bits("age-partitioned", "::last("),
        bits("time-limited", "::window("),
    ];
    let (least, most) = (all.iter().min().expect("four"), all.iter().max().expect("four"));
    for name in ["README.md", "src/lib.rs", "redis/README.md", "python/README.md"] {
        let page = fs::read_to_string(project_file(name)).expect("the page");
        assert!(page.contains(&format!("{least} to {most} bits")), "{name}: {least} to {most}");
    }
    assert!(page.contains(&format!("{} to {} bytes per key", least / 8, most.div_ceil(8))));
}

#[test]
#[cfg_attr(not(all(target_os = "linux", not(ebbtide_portable))), ignore = "no space is given back")]
fn new_filters_take_the_disk_space_that_the_limits_say() {
    let page = fs::read_to_string(project_file("docs/operating.md")).expect("the page");
    let place = Place::new();
    let keys = input(&(0..1000).map(|key| key.to_string()).collect::<Vec<_>>());
    let disk = |name: &str, words: &[&str]| {
        let dir = place.at(name);
        ok(&[&["create", &dir][..], words].concat(), b"");
        ok(&["insert", &dir], &keys);
        let files = fs::read_dir(&dir).expect("a directory");
        let blocks = |path: &std::path::Path| fs::metadata(path).expect("it is there").blocks();
        let of_files: u64 = files.map(|file| blocks(&file.expect("an entry").path())).sum();
        (of_files + blocks(dir.as_ref())) / 2
    };
    let (items, time) = (disk("items", &["--last", "1000"]), disk("time", &["--window", "10m"]));
    let stated = |text: &str| {
        let (_, rest) = page.split_once(text).expect("the sentence");
        let number = rest.split_whitespace().next().expect("a number");
        number.parse::<u64>().expect("a number")
    };
    assert!(items <= stated("A new filter of 1,000 keys takes at most "), "{items} KiB");
    assert!(time <= stated("one with a window in time "), "{time} KiB");
}
