//! System calls that fail under a running command, once or from one on: it says one sentence or goes on, and nothing that
//! was there is lost.
//!
//! `strace` makes the calls fail, from outside; only those of the main thread. Without it, or where one process must not trace
//! another, this says that it was skipped.

use crate::support::{Outcome, Place, input, ok, run};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

/// Calls with an error that they may end with, and what marks those of them that concern the filter; nothing if all do.
const INJECTED: [(&str, &str, &str); 21] = [
    ("fdatasync", "EIO", ""),
    ("msync", "EIO", ""),
    ("fdatasync", "EINTR", ""),
    ("fdatasync", "ENOSPC", ""),
    ("fsync", "EIO", ""),
    ("fallocate", "ENOSPC", ""),
    ("fallocate", "EDQUOT", ""),
    ("pwrite64", "ENOSPC", ""),
    ("pread64", "EIO", "EBBT"),
    ("openat", "EMFILE", "filter"),
    ("openat", "EACCES", "filter"),
    ("openat", "EROFS", "filter"),
    ("mmap", "ENOMEM", "MAP_SHARED"),
    ("madvise", "ENOMEM", "DONTFORK"),
    // Some architectures lack those behind a question mark.
    ("?rename,?renameat,renameat2", "EIO", "filter"),
    ("fcntl", "ENOLCK", "OFD"),
    ("fcntl", "EIO", "OFD"),
    ("?unlink,unlinkat", "EACCES", "filter"),
    ("getdents64", "EIO", ""),
    ("statfs,fstatfs", "EIO", ""),
    // No thread can be had.
    ("clone,clone3", "EAGAIN", ""),
];

/// Of the calls of a kind so many fail, one a run; and from so many on all do.
const RUNS: usize = 4;
const STICKY_RUNS: usize = 2;

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
    // With the paths of descriptors: files are opened by their names, below the descriptor of the directory.
    let outcome = insert(&["-qq", "-y", "-o", &trace, "-e", &format!("trace={call}")], dir, keys);
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
    let (base, file) = base(&place);
    let (mut runs, mut refused) = (0, 0);
    for (which, (call, error, mark)) in INJECTED.into_iter().enumerate() {
        let counted = place.at(&format!("counted-filter-{which}"));
        copy(&base, &counted);
        let calls = calls(&place, &counted, Path::new(&file), call, mark);
        assert!(!calls.is_empty(), "{call} of {mark:?} is never called");
        let some = |runs: usize| calls.iter().step_by(calls.len().div_ceil(runs).max(1));
        let once = some(RUNS).map(usize::to_string);
        for when in once.chain(some(STICKY_RUNS).map(|at| format!("{at}+"))) {
            let dir = place.at(&format!("filter-{which}-{when}"));
            copy(&base, &dir);
            let inject = format!("inject={call}:error={error}:when={when}");
            runs += 1;
            refused += u64::from(!fails(&inject, &dir, Path::new(&file)));
        }
    }
    println!("{runs} system calls failed, {refused} of them were told as one sentence");
    assert!(runs > 60 && refused > 20, "{runs} runs, {refused} refused");
}

/// Inserts while calls fail, and looks at what came of it. Whether it went well all the same.
fn fails(inject: &str, dir: &str, file: &Path) -> bool {
    let outcome = insert(&["-qq", "-o", "/dev/null", "-e", inject], dir, file);
    let named = format!("{inject}: {outcome:?}");
    match outcome.code {
        Some(0) => assert_eq!(outcome.stderr, "", "{named}"),
        Some(2) => {
            assert!(outcome.stderr.starts_with("ebbtide: "), "{named}");
            assert_eq!(outcome.stderr.lines().count(), 1, "{named}");
        }
        _ => panic!("{named}"),
    }
    recovers(dir, outcome.code == Some(0), &named);
    outcome.code == Some(0)
}

/// Nothing that was there is lost, nor what was inserted if that went well; and it goes on.
fn recovers(dir: &str, well: bool, named: &str) {
    let verified = run(&["verify", dir], b"");
    assert_eq!(verified.code, Some(0), "{named}: {verified:?}");
    assert!(all_there(dir, &keys(0, 1000)), "{named}");
    assert!(!well || all_there(dir, &keys(1000, 1500)), "{named}");
    ok(&["insert", dir], &keys(1000, 1500));
    assert!(all_there(dir, &keys(0, 1500)), "{named}");
}

/// A filter with 1000 keys and two snapshots, so that there is something to remove, and a file of 500 keys more.
fn base(place: &Place) -> (String, String) {
    let (base, file) = (place.at("base-filter"), place.at("keys"));
    let kind = ["--kind", "bloom", "--capacity", "10000", "--fpr", "0.000001"];
    let settings = ["--durability", "always", "--segment-bytes", "8KiB"];
    ok(&[&["create", &base][..], &kind, &settings].concat(), b"");
    ok(&["insert", &base], &keys(0, 600));
    ok(&["insert", &base], &keys(600, 1000));
    std::fs::write(&file, keys(1000, 1500)).expect("write");
    (base, file)
}

/// The signal by which the runtime ends a process where memory runs out. (A file that would grow
/// too large is an error.)
const ABORT: i32 = 6;

#[test]
fn a_limit_of_the_process_is_one_sentence_or_its_end_and_loses_nothing() {
    if !Command::new("prlimit").arg("true").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: no prlimit here");
        return;
    }
    let place = Place::new();
    let (base, file) = base(&place);
    // Open files; bytes of a file, beyond which a write is an error; bytes of memory.
    let files = (3..24).map(|files| format!("--nofile={files}"));
    let sizes = (0..12).map(|size| format!("--fsize={}", size * 4096));
    // With less no process begins.
    let memory = (8..40).map(|size| format!("--as={}", size * (1 << 19)));
    let (mut well, mut refused, mut ended) = (0, 0, 0);
    for limit in files.chain(sizes).chain(memory) {
        let dir = place.at(&format!("filter{limit}"));
        copy(&base, &dir);
        let output = Command::new("prlimit")
            .args([&limit, "--core=0", env!("CARGO_BIN_EXE_ebbtide"), "insert", &dir, &file])
            .output()
            .expect("prlimit");
        let named = format!("{limit}: {output:?}");
        match (output.status.code(), output.status.signal()) {
            (Some(0), _) => well += 1,
            (Some(2), _) if output.stderr.starts_with(b"ebbtide: ") => {
                refused += 1;
                assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{named}");
            }
            (_, Some(ABORT)) => ended += 1,
            // It did not even begin: the libraries found no room.
            (Some(1 | 126 | 127), _) => ended += 1,
            _ => panic!("{named}"),
        }
        recovers(&dir, output.status.success(), &named);
    }
    println!("{well} went well, {refused} were told as one sentence, {ended} were ended");
    assert!(well > 0 && refused > 10, "{well} went well, {refused} were refused");
}
