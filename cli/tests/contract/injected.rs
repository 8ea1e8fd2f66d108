//! System calls that fail in a running command, once or from some call on: the command prints one
//! sentence or continues, and loses no existing data.
//!
//! `strace` injects the failures from outside, in the main thread only. Without `strace`, or where
//! a process may not trace another, the test reports that it was skipped.

use crate::support::{Outcome, Place, input, ok, run, skipped};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// System calls, an error for each, and the text that marks those calls that concern the filter; an
/// empty text marks all.
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
    // A question mark means that some architectures lack the call.
    ("?rename,?renameat,renameat2", "EIO", "filter"),
    ("fcntl", "ENOLCK", "OFD"),
    ("fcntl", "EIO", "OFD"),
    ("?unlink,unlinkat", "EACCES", "filter"),
    ("getdents64", "EIO", ""),
    ("statfs,fstatfs", "EIO", ""),
    // No thread can be created.
    ("clone,clone3", "EAGAIN", ""),
];

/// The number of runs in which one call of a kind fails, and of runs in which all calls from some
/// number on fail.
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

/// Returns which calls of a kind, numbered from 1, concern the filter.
fn calls(place: &Place, dir: &str, keys: &Path, call: &str, mark: &str) -> Vec<usize> {
    let trace = place.at("trace");
    // Show the paths of descriptors: files are opened by name, relative to the descriptor of the
    // directory.
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

/// Returns whether all these keys are present.
fn all_there(dir: &str, keys: &[u8]) -> bool {
    ok(&["contains", dir], keys).lines().iter().all(|answer| *answer == b"1")
}

#[test]
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    ignore = "other system calls are made"
)]
fn a_failing_system_call_is_reported_in_one_sentence_and_loses_nothing() {
    let traced = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    if !traced.is_ok_and(|output| output.status.success()) {
        skipped("no strace here, or no right to trace");
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
    println!("{runs} system calls failed, {refused} of them were reported in one sentence");
    assert!(runs > 60 && refused > 20, "{runs} runs, {refused} refused");
}

/// Inserts while calls fail, and checks the result. Returns whether the command succeeded.
fn fails(inject: &str, dir: &str, file: &Path) -> bool {
    let outcome = insert(&["-qq", "-o", "/dev/null", "-e", inject], dir, file);
    let named = format!("{inject}: {outcome:?}");
    match outcome.code {
        Some(0) => {
            let note = outcome.stderr.starts_with("ebbtide: all is recorded: do not repeat it");
            assert!(outcome.stderr.is_empty() || note, "{named}");
            assert!(outcome.stderr.lines().count() <= 1, "{named}");
        }
        Some(2) => {
            assert!(outcome.stderr.starts_with("ebbtide: "), "{named}");
            assert_eq!(outcome.stderr.lines().count(), 1, "{named}");
        }
        _ => panic!("{named}"),
    }
    recovers(dir, outcome.code == Some(0), &named);
    outcome.code == Some(0)
}

/// Checks that no existing key is lost, nor an inserted one if the insert succeeded, and that the
/// filter remains usable.
fn recovers(dir: &str, well: bool, named: &str) {
    let verified = run(&["verify", dir], b"");
    assert_eq!(verified.code, Some(0), "{named}: {verified:?}");
    assert!(all_there(dir, &keys(0, 1000)), "{named}");
    assert!(!well || all_there(dir, &keys(1000, 1500)), "{named}");
    ok(&["insert", dir], &keys(1000, 1500));
    assert!(all_there(dir, &keys(0, 1500)), "{named}");
}

/// Creates a filter with 1000 keys and two snapshots, so that there are files to remove, and a file
/// of 500 more keys.
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

/// The signal by which the runtime ends a process if memory runs out. (A file that exceeds its
/// limit is an error.)
const ABORT: i32 = 6;

#[test]
fn a_process_limit_is_reported_in_one_sentence_or_ends_the_process_and_loses_nothing() {
    if !Command::new("prlimit").arg("true").output().is_ok_and(|output| output.status.success()) {
        skipped("no prlimit here");
        return;
    }
    let place = Place::new();
    let (base, file) = base(&place);
    // Limits of open files, of the bytes of a file (a write beyond is an error), and of bytes of
    // memory.
    let files = (3..24).map(|files| format!("--nofile={files}"));
    let sizes = (0..12).map(|size| format!("--fsize={}", size * 4096));
    // Without backtraces: if memory runs out while the standard library prints one, it waits for
    // its own lock.
    let limited = || {
        let mut command = Command::new("prlimit");
        command.env_remove("RUST_BACKTRACE");
        command
    };
    // With less than the program itself takes a process cannot start.
    let starts = |limit: &String| {
        let started = limited()
            .args([limit, "--core=0", env!("CARGO_BIN_EXE_ebbtide"), "--version"])
            .output();
        started.expect("prlimit").status.success()
    };
    let memory = (8..40).map(|size| format!("--as={}", size * (1 << 19))).filter(starts);
    let (mut well, mut refused, mut ended) = (0, 0, 0);
    for limit in files.chain(sizes).chain(memory) {
        let dir = place.at(&format!("filter{limit}"));
        copy(&base, &dir);
        let output = limited()
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
            // The process did not start: there was no memory for its libraries.
            (Some(1 | 126 | 127), _) => ended += 1,
            _ => panic!("{named}"),
        }
        recovers(&dir, output.status.success(), &named);
    }
    println!("{well} succeeded, {refused} were reported in one sentence, {ended} were ended");
    assert!(well > 0 && refused > 10, "{well} succeeded, {refused} were refused");
}

#[test]
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    ignore = "other system calls are made"
)]
fn a_failure_at_the_end_of_a_command_is_reported_whoever_reads_its_output() {
    let traced = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    if !traced.is_ok_and(|output| output.status.success()) {
        skipped("no strace here, or no right to trace");
        return;
    }
    let place = Place::new();
    let base = place.at("base");
    ok(&["create", &base, "--last", "1000"], b"");
    ok(&["insert", &base], &keys(0, 10));
    let dir = place.at("filter");
    for words in [&["clear", &dir][..], &["snapshot", &dir], &["alter", &dir, "--last", "2000"]] {
        for when in 1..=6 {
            let inject = format!("inject=msync:error=EIO:when={when}+");
            let ends = |output: Stdio| {
                let _ = std::fs::remove_dir_all(&dir);
                copy(&base, &dir);
                let mut command = Command::new("strace");
                command.args(["-qq", "-o", "/dev/null", "-e", &inject]);
                command.arg(env!("CARGO_BIN_EXE_ebbtide")).args(words).stdout(output);
                let ended = command.output().expect("strace");
                (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
            };
            let (read, closed) = std::io::pipe().expect("a pipe");
            drop(read);
            assert_eq!(ends(closed.into()), ends(Stdio::piped()), "{words:?}, {inject}");
        }
    }
}
