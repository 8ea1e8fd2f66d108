//! System calls that fail under a running command: it says one sentence or goes on, and nothing that was there is lost.
//!
//! `strace` makes the calls fail, from outside; only those of the main thread. Without it, or where one process must not trace
//! another, this says that it was skipped.

use crate::support::{Outcome, Place, input, ok, run};
use std::path::Path;
use std::process::Command;

/// Calls with an error that they may end with, and what marks those of them that concern the filter; nothing if all do.
const INJECTED: [(&str, &str, &str); 13] = [
    ("fdatasync", "EIO", ""),
    ("fdatasync", "EINTR", ""),
    ("fsync", "EIO", ""),
    ("fallocate", "ENOSPC", ""),
    ("ftruncate", "EIO", ""),
    ("pwrite64", "ENOSPC", ""),
    ("pread64", "EIO", "EBBT"),
    ("openat", "EMFILE", "filter"),
    ("openat", "EACCES", "filter"),
    ("mmap", "ENOMEM", "MAP_SHARED"),
    ("rename,renameat2", "EIO", "filter"),
    ("fcntl", "ENOLCK", "OFD"),
    ("unlink", "EACCES", "filter"),
];

/// Of the calls of a kind so many fail, one a run.
const RUNS: usize = 5;

fn keys(from: u64, upto: u64) -> Vec<u8> {
    let keys: Vec<_> = (from..upto).map(|number| format!("key {number}")).collect();
    input(&keys)
}

/// Inserts keys under `strace`.
fn insert(strace: &[&str], dir: &str, keys: &Path) -> Outcome {
    let output = Command::new("strace")
        .args(strace)
        .args([env!("CARGO_BIN_EXE_ebbtide"), "insert", dir])
        .arg(keys)
        .output()
        .expect("strace");
    Outcome {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Which calls of a kind, from 1, concern the filter.
fn calls(place: &Place, dir: &str, keys: &Path, call: &str, mark: &str) -> Vec<usize> {
    let trace = place.at("trace");
    let outcome = insert(&["-qq", "-o", &trace, "-e", &format!("trace={call}")], dir, keys);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let trace = std::fs::read_to_string(trace).expect("a trace");
    let lines = trace.lines().filter(|line| line.contains('(')).enumerate();
    lines.filter(|(_, line)| line.contains(mark)).map(|(at, _)| at + 1).collect()
}

fn copy(from: &str, to: &str) {
    std::fs::create_dir(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = Path::new(to).join(entry.file_name());
        std::fs::copy(entry.path(), to).expect("a copy");
    }
}

/// Whether all these keys are there.
fn all_there(dir: &str, keys: &[u8]) -> bool {
    ok(&["contains", dir], keys).lines().iter().all(|answer| *answer == b"1")
}

#[test]
fn a_system_call_that_fails_is_one_sentence_and_loses_nothing() {
    let traced = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    if !traced.is_ok_and(|output| output.status.success()) {
        println!("skipped: no strace here, or no right to trace");
        return;
    }
    let place = Place::new();
    let (base, file) = (place.at("base-filter"), place.at("keys"));
    let kind = ["--kind", "bloom", "--capacity", "10000", "--fpr", "0.000001"];
    let settings = ["--durability", "always", "--segment-bytes", "8KiB"];
    ok(&[&["create", &base][..], &kind, &settings].concat(), b"");
    // Two snapshots, so that there is something to remove.
    ok(&["insert", &base], &keys(0, 600));
    ok(&["insert", &base], &keys(600, 1000));
    std::fs::write(&file, keys(1000, 1500)).expect("write");
    let (mut runs, mut refused) = (0, 0);
    for (which, (call, error, mark)) in INJECTED.into_iter().enumerate() {
        let counted = place.at(&format!("counted-filter-{which}"));
        copy(&base, &counted);
        let calls = calls(&place, &counted, Path::new(&file), call, mark);
        for at in calls.iter().step_by(calls.len().div_ceil(RUNS).max(1)) {
            let dir = place.at(&format!("filter-{which}-{at}"));
            copy(&base, &dir);
            let inject = format!("inject={call}:error={error}:when={at}");
            let outcome =
                insert(&["-qq", "-o", "/dev/null", "-e", &inject], &dir, Path::new(&file));
            let named = format!("{inject}: {outcome:?}");
            runs += 1;
            match outcome.code {
                Some(0) => assert_eq!(outcome.stderr, "", "{named}"),
                Some(2) => {
                    refused += 1;
                    assert!(outcome.stderr.starts_with("ebbtide: "), "{named}");
                    assert_eq!(outcome.stderr.lines().count(), 1, "{named}");
                }
                _ => panic!("{named}"),
            }
            let verified = run(&["verify", &dir], b"");
            assert_eq!(verified.code, Some(0), "{named}: {verified:?}");
            assert!(all_there(&dir, &keys(0, 1000)), "{named}");
            assert!(outcome.code != Some(0) || all_there(&dir, &keys(1000, 1500)), "{named}");
            ok(&["insert", &dir], &keys(1000, 1500));
            assert!(all_there(&dir, &keys(0, 1500)), "{named}");
        }
    }
    println!("{runs} system calls failed, {refused} of them were told as one sentence");
    assert!(runs > 30 && refused > 10, "{runs} runs, {refused} refused");
}
