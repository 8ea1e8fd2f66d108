//! A filter on a file system in memory that another program has filled. A page of a hole that is
//! read through a mapping takes space there, and a process that finds none gets a signal.

use crate::support::{Outcome, Place, Talk, command, input, ok, refused, run, skipped, stream};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

/// A mounted tmpfs, unmounted at the end.
struct Mounted(Place);

impl Mounted {
    /// Returns `None`, and says that the test is left out, where this user cannot mount.
    fn new() -> Option<Self> {
        let place = Place::new();
        let arguments = ["-t", "tmpfs", "-o", "size=16m", "tmpfs", &place.at("")];
        if Command::new("mount").args(arguments).output().is_ok_and(|it| it.status.success()) {
            return Some(Self(place));
        }
        skipped("this user cannot mount a tmpfs");
        None
    }

    fn at(&self, name: &str) -> String {
        self.0.at(name)
    }

    /// Fills all space.
    fn fill(&self) {
        let mut file = File::create(self.at("filling")).expect("an inode");
        for size in [1 << 20, 1 << 12, 1] {
            while file.write(&vec![1; size]).is_ok_and(|written| written > 0) {}
        }
    }

    /// Fills all space but this many bytes.
    fn fill_but(&self, bytes: u64) {
        self.fill();
        let file = File::options().write(true).open(self.at("filling")).expect("it is there");
        let length = file.metadata().expect("a length").len();
        file.set_len(length - bytes).expect("it is shorter now");
    }

    fn empty(&self) {
        fs::remove_file(self.at("filling")).expect("it is there");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").args(["-l", &self.at("")]).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

/// Returns the space that each file takes.
fn blocks(dir: &str) -> BTreeMap<String, u64> {
    let names = fs::read_dir(dir).expect("a directory");
    let names = names.map(|entry| entry.expect("an entry").file_name().into_string());
    let names = names.map(|name| name.expect("UTF-8"));
    let blocks = |name: &String| fs::metadata(format!("{dir}/{name}")).expect("a file").blocks();
    names.map(|name| (name.clone(), blocks(&name))).collect()
}

/// The kinds: one with few banks, one whose banks change, one whose blocks grow, one in time.
const KINDS: [&[&str]; 4] = [
    &["--kind", "age-partitioned", "--window-items", "1000"],
    &["--kind", "fingerprint", "--window", "10m"],
    &["--kind", "spectral", "--capacity", "1000"],
    &["--kind", "time-limited", "--window", "10m", "--rate", "100"],
];

const KEYS: &[u8] = b"key-1\nkey-2\nabsent\n";

/// Asserts that a command was not ended by a signal, and that it failed for lack of space if it
/// failed.
#[track_caller]
fn assert_no_signal(outcome: &Outcome, arguments: &[&str]) {
    let full = outcome.stderr.contains("o space left");
    let fine = outcome.code == Some(0) || outcome.code == Some(2) && full;
    assert!(fine, "{arguments:?}: {outcome:?}");
}

/// Looks in every way at a filter in full space.
fn look(dir: &str, elsewhere: &Place) {
    let before = blocks(dir);
    let page = elsewhere.at("page.html");
    let mut asked = vec![vec!["report", dir, "--output", &page]];
    asked.extend(["stat", "digest", "verify", "wal", "history"].map(|command| vec![command, dir]));
    for arguments in asked {
        let outcome = run(&arguments, b"");
        assert_eq!(outcome.code, Some(0), "{arguments:?}: {outcome:?}");
        assert_eq!(blocks(dir), before, "{arguments:?}");
    }
    for command in ["contains", "explain"] {
        ok(&[command, dir], KEYS);
        assert_eq!(blocks(dir), before, "{command}");
    }
    assert_eq!(ok(&["contains", dir], KEYS).text(), "1\n1\n0\n");
    let restored = elsewhere.at("restored");
    ok(&["restore", dir, &restored], b"");
    assert_eq!(ok(&["contains", &restored], KEYS).text(), "1\n1\n0\n");
    fs::remove_dir_all(&restored).expect("it is there");
    let saved = run(&["salvage", dir, &elsewhere.at("saved")], b"");
    assert_eq!(saved.code, Some(1), "nothing is damaged: {saved:?}");
    assert_eq!(blocks(dir), before);
}

/// Opens a filter in full space for writing, in every way.
fn open(dir: &str, elsewhere: &Place) {
    for command in ["check", "insert", "snapshot", "clear"] {
        let arguments = [command, dir];
        assert_no_signal(&run(&arguments, b"more\n"), &arguments);
    }
    let arguments = ["backup", dir, &elsewhere.at("copy")];
    assert_no_signal(&run(&arguments, b""), &arguments);
}

fn every_command(args: &[&str], killed: bool) {
    let Some(mounted) = Mounted::new() else { return };
    let (dir, elsewhere) = (mounted.at("filter"), Place::new());
    ok(&[&["create", &dir], args].concat(), b"");
    let keys = input(&stream(3000, 400));
    ok(&["insert", &dir], &[&keys, &b"key-1\nkey-2\n"[..]].concat());
    if killed {
        let mut talk = Talk::new(&["check", &dir]);
        talk.ask("new");
        talk.kill();
    }
    mounted.fill();
    look(&dir, &elsewhere);
    open(&dir, &elsewhere);
    mounted.empty();
    let report = run(&["verify", &dir], b"");
    assert_eq!(report.code, Some(0), "{args:?}: {report:?}");
    ok(&["check", &dir], b"more\n");
}

#[test]
#[cfg_attr(not(all(target_os = "linux", not(ebbtide_portable))), ignore = "no space is reserved")]
fn a_closed_filter_in_full_memory_is_looked_at_without_space_and_opened_with_an_error() {
    for args in KINDS {
        every_command(args, false);
    }
}

#[test]
#[cfg_attr(not(all(target_os = "linux", not(ebbtide_portable))), ignore = "no space is reserved")]
fn a_filter_of_killed_processes_in_full_memory_likewise() {
    for args in KINDS {
        every_command(args, true);
    }
}

#[test]
#[cfg_attr(not(all(target_os = "linux", not(ebbtide_portable))), ignore = "no space is reserved")]
fn a_damaged_filter_in_full_memory_is_saved_to_another_place() {
    let Some(mounted) = Mounted::new() else { return };
    let (dir, elsewhere) = (mounted.at("filter"), Place::new());
    ok(&[&["create", &dir], KINDS[0]].concat(), b"");
    ok(&["insert", &dir], KEYS);
    ok(&["insert", &dir], b"last\n");
    let names = blocks(&dir);
    let newest = names.keys().rfind(|name| name.starts_with("snap-"));
    let path = format!("{dir}/{}", newest.expect("a snapshot"));
    let mut bytes = fs::read(&path).expect("a file");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, bytes).expect("as much as before");
    mounted.fill();
    let before = blocks(&dir);
    let saved = elsewhere.at("saved");
    let outcome = run(&["salvage", &dir, &saved], b"");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(blocks(&dir), before);
    assert_eq!(ok(&["contains", &saved], b"key-1\nlast\n").text(), "1\n1\n");
}

#[test]
#[cfg_attr(not(all(target_os = "linux", not(ebbtide_portable))), ignore = "no space is reserved")]
fn a_command_whose_last_snapshot_found_no_space_says_that_all_is_recorded_and_ends_with_0() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.at("filter");
    ok(&["create", &dir, "--kind", "counting", "--capacity", "100000"], b"");
    ok(&["insert", &dir], &input(&stream(1000, 400)));
    mounted.fill_but(300 << 10);
    let recorded = |arguments: &[&str], input: &[u8]| {
        let outcome = run(arguments, input);
        assert_eq!(outcome.code, Some(0), "{arguments:?}: {outcome:?}");
        let said = "ebbtide: all is recorded: do not repeat it; only the snapshot";
        assert!(outcome.stderr.starts_with(said), "{arguments:?}: {outcome:?}");
        assert!(!outcome.stderr.contains("try again"), "{arguments:?}: {outcome:?}");
    };
    for count in ["1", "2", "3"] {
        recorded(&["insert", &dir], b"a\n");
        assert_eq!(ok(&["estimate", &dir, "--key", "a"], b"").text(), format!("{count}\n"));
    }
    recorded(&["check", &dir], b"a\n");
    recorded(&["remove", &dir], b"a\n");
    assert_eq!(ok(&["estimate", &dir, "--key", "a"], b"").text(), "3\n");
    mounted.empty();
    // The command of a claim fills the space.
    let filling = mounted.at("filling");
    let script =
        format!("head -c 32M /dev/zero > {filling} 2> /dev/null; truncate -s -300K {filling}");
    recorded(&["run", "--claim", "job", &dir, "--", "sh", "-c", &script], b"");
    let again = run(&["run", "--claim", "job", &dir, "--", "false"], b"");
    assert_eq!(again.code, Some(0), "it was done: {again:?}");
    mounted.empty();
    ok(&["insert", &dir], b"b\n");
    assert_eq!(ok(&["estimate", &dir], b"a\nb\njob\n").text(), "3\n1\n1\n");
}

#[test]
#[cfg_attr(not(all(target_os = "linux", not(ebbtide_portable))), ignore = "no space is reserved")]
fn a_command_that_finds_no_space_names_the_line_with_which_to_continue() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.at("filter");
    let settings = ["--kind", "counting", "--capacity", "100000", "--counter-bits", "16"];
    ok(&[&["create", &dir, "--segment-bytes", "8KiB"], &settings[..]].concat(), b"");
    let mut command = command(&["check", &dir]);
    let mut talk = Talk::of(command.stderr(Stdio::piped()));
    assert_eq!(talk.ask("a"), "0");
    mounted.fill();
    // Line 1 is the question above; the pipe has room for all of it.
    let lines: String = (2..5000).map(|number| format!("{number}\n")).collect();
    talk.say(&lines);
    let mut said = String::new();
    let stderr = talk.child.stderr.as_mut().expect("a pipe");
    stderr.read_to_string(&mut said).expect("a sentence");
    assert_eq!(talk.child.wait().expect("its end").code(), Some(2), "{said}");
    let next = said.split_once("continue with line ").expect(&said).1;
    let next = next.strip_suffix(" of standard input: those before are recorded\n").expect(&said);
    let next: usize = next.parse().expect("a number");
    assert_eq!(talk.rest().lines().count(), next - 2);
    mounted.empty();
    let known = ok(&["estimate", &dir], lines.as_bytes());
    let (before, behind) = known.text().split_at(2 * (next - 2));
    assert!(!before.contains('0') && !behind.contains('1'), "{next}: {}", known.text());
}

#[test]
#[cfg_attr(not(all(target_os = "linux", not(ebbtide_portable))), ignore = "no space is reserved")]
fn lines_that_are_printed_first_and_find_no_space_are_named_to_continue_with() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.at("filter");
    ok(&["create", &dir, "--last", "100000", "--fpr", "1e-9", "--segment-bytes", "8KiB"], b"");
    let elsewhere = Place::new();
    let lines: Vec<String> = (0..60_000).map(|number| format!("line {number}")).collect();
    let log = elsewhere.file("log", &input(&lines));
    mounted.fill_but(200 << 10);
    let outcome = run(&["dedup", "--at-least-once", "--state", &dir, &log], b"");
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    let said = &outcome.stderr;
    let next = said.split_once("continue with line ").expect(said).1;
    let next = next.strip_suffix(&format!(" of {log}: those before are recorded\n")).expect(said);
    let next: usize = next.parse().expect("a number");
    assert!(outcome.lines().len() >= next - 1, "{next}: {} printed", outcome.lines().len());
    mounted.empty();
    let known = ok(&["contains", &dir], &input(&lines));
    let (before, behind) = known.text().split_at(2 * (next - 1));
    assert!(!before.contains('0') && !behind.contains('1'), "{next}");
    assert!(next > 1, "the first lines find space");
}

#[test]
fn lines_whose_commit_finds_no_space_are_not_left_in_the_output() {
    let Some(full) = Mounted::new() else { return };
    let place = Place::new();
    let (state, output) = (full.at("state"), place.at("output"));
    let lines: String = (0..100_000).map(|number| format!("line {number}\n")).collect();
    let file = place.file("lines", b"line 0\n");
    let arguments = ["dedup", "--last", "100000", "--fpr", "1e-9", "--state", &state];
    let arguments = [&arguments[..], &["--output", &output, &file]].concat();
    ok(&arguments, b"");
    full.fill_but(2 << 20);
    fs::write(&file, &lines).expect("space");
    let printed = || fs::read_to_string(&output).expect("an output");
    for _ in 0..4 {
        // One sentence: nothing that an earlier run has left had to be cut.
        assert!(refused(&arguments, b"").contains("o space left"));
        let now = printed();
        assert!(lines.starts_with(&now) && now.len() > 7 && now.len() < lines.len());
        assert!(!fs::exists(place.at("output.cut")).expect("an answer"));
    }
    full.empty();
    ok(&arguments, b"");
    assert!(printed() == lines && !fs::exists(place.at("output.cut")).expect("an answer"));
}

#[test]
fn what_is_cut_from_an_output_takes_no_space_if_there_is_too_little_for_all_of_it() {
    let Some(full) = Mounted::new() else { return };
    let place = Place::new();
    let (state, output) = (place.at("state"), full.at("output"));
    let file = place.file("lines", b"one\n");
    let arguments = ["dedup", "--last", "500", "--state", &state, "--output", &output, &file];
    ok(&arguments, b"");
    fs::write(&output, [b"one\n", &[b'x'; 1 << 20][..]].concat()).expect("space");
    full.fill_but(1 << 19);
    let length = || fs::metadata(full.at("output.cut")).expect("a file").len();
    for _ in 0..2 {
        assert!(refused(&arguments, b"").contains("o space left"));
        assert_eq!(length(), 0);
    }
    full.empty();
    assert!(run(&arguments, b"").stderr.contains("cut "));
    assert_eq!((length(), fs::read(&output).expect("a file")), (1 << 20, b"one\n".to_vec()));
}
