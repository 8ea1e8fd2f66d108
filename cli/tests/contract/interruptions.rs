//! Input that pauses, readers that close the output, runs that are killed.

use crate::support::{Place, Talk, command, input, ok, signal as send, skipped, start, stream};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

#[test]
fn an_answer_is_written_before_the_next_key_arrives() {
    let place = Place::new();
    let dir = place.at("filter");
    let bloom = ["create", &dir, "--kind", "bloom", "--capacity", "1000", "--fpr", "0.001"];
    ok(&bloom, b"");
    let mut talk = Talk::new(&["check", &dir]);
    for (question, answer) in [("a\n", "0\n"), ("b\n", "0\n"), ("a\n", "1\n")] {
        talk.say(question);
        assert_eq!(talk.hear(), answer);
    }
    // Half a line is not a key yet.
    talk.say("b\nhalf");
    assert_eq!(talk.hear(), "1\n");
    talk.say(" a line\n");
    assert_eq!(talk.hear(), "0\n");
    talk.end();
}

#[test]
fn new_lines_are_printed_when_the_input_pauses() {
    let mut talk = Talk::new(&["dedup", "--last", "100", "--hash-seed", "7"]);
    talk.say("a\na\nb\n");
    assert_eq!((talk.hear(), talk.hear()), ("a\n".into(), "b\n".into()));
    talk.say("a\nc\n");
    assert_eq!(talk.hear(), "c\n");
    talk.end();
}

#[test]
fn a_reader_that_closes_the_output_ends_the_command_quietly() {
    let place = Place::new();
    // More than pipes and buffers hold, so that the command does write to a closed pipe.
    let keys: Vec<_> = (0..200_000).map(|number| format!("key {number}")).collect();
    let file = place.file("keys", &input(&keys));
    let dir = place.at("filter");
    ok(&["create", &dir, "--kind", "bloom", "--capacity", "300000", "--fpr", "0.001"], b"");
    for arguments in
        [&["dedup", "--last", "1000000", &file][..], &["contains", &dir, "--json", &file]]
    {
        let mut child = start(arguments);
        let mut first = [0; 5];
        let mut stdout = child.stdout.take().expect("stdout");
        stdout.read_exact(&mut first).expect("read");
        drop(stdout);
        let output = child.wait_with_output().expect("wait");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn an_output_that_is_full_is_an_error() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
        skipped("no /dev/full here");
        return;
    };
    for arguments in [&["plan", "--last", "10"][..], &["--help"], &["--version"]] {
        let full = full.try_clone().expect("a descriptor");
        let child = command(arguments).stdout(full).spawn().expect("start");
        let output = child.wait_with_output().expect("wait");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(sentence.starts_with("ebbtide: cannot write to standard output: "), "{sentence}");
    }
}

#[test]
fn lines_printed_before_a_kill_are_recorded_after_it() {
    for wanted in [1, 500, 3_000, 20_000] {
        let place = Place::new();
        let state = place.at("state");
        let arguments = ["dedup", "--last", "100000", "--state", &state, "--hash-seed", "7"];
        let keys: Vec<_> = (0..60_000).map(|number| format!("key {number}")).collect();
        let file = place.file("keys", &input(&keys));
        let mut child = command(&[&arguments[..], &[&file]].concat())
            .stdin(Stdio::null())
            .spawn()
            .expect("start");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let mut seen = Vec::new();
        for _ in 0..wanted {
            stdout.read_until(b'\n', &mut seen).expect("read");
        }
        child.kill().expect("kill");
        child.wait().expect("wait");
        // The lines still in the pipe were printed as well; the last one may be incomplete.
        stdout.read_to_end(&mut seen).expect("read");
        let whole = seen.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let printed = &seen[..whole];
        assert!(printed.iter().filter(|byte| **byte == b'\n').count() >= wanted);
        assert_eq!(ok(&arguments, printed).stdout, b"", "printed lines were not recorded");
    }
}

#[test]
fn a_kill_loses_the_answers_of_at_most_one_batch() {
    for batch in [1_u64, 64] {
        let place = Place::new();
        let state = place.at("state");
        let keys: Vec<_> = (0..50_000).map(|number| format!("key {number}")).collect();
        let file = place.file("keys", &input(&keys));
        let size = batch.to_string();
        let arguments =
            ["dedup", "--last", "100000", "--fpr", "1e-9", "--state", &state, "--batch", &size];
        let mut child = command(&[&arguments[..], &[&file]].concat())
            .stdin(Stdio::null())
            .spawn()
            .expect("start");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let mut seen = Vec::new();
        for _ in 0..2000 {
            stdout.read_until(b'\n', &mut seen).expect("read");
        }
        child.kill().expect("kill");
        child.wait().expect("wait");
        stdout.read_to_end(&mut seen).expect("read");
        let printed = seen.iter().filter(|byte| **byte == b'\n').count() as u64;
        let inserts = ok(&["stat", &state, "--json"], b"").json()[0]["inserts"].as_u64();
        let lost = inserts.expect("a number") - printed;
        assert!(lost <= batch, "{lost} lines of {printed} with batches of {batch}");
    }
}

#[test]
fn a_run_without_a_state_writes_no_file_and_ends_by_the_first_signal() {
    for signal in ["INT", "TERM", "HUP", "KILL"] {
        let place = Place::new();
        let temporary = place.at("tmp");
        std::fs::create_dir(&temporary).expect("a directory");
        let mut child =
            command(&["dedup", "--last", "10"]).env("TMPDIR", &temporary).spawn().expect("start");
        let mut stdin = child.stdin.take().expect("stdin");
        stdin.write_all(b"a\n").expect("write");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("an answer");
        assert_eq!(line, "a\n");
        let files = || std::fs::read_dir(&temporary).expect("a directory").count();
        assert_eq!(files(), 0);
        send(&child, signal);
        assert!(!child.wait().expect("wait").success());
        assert_eq!(files(), 0, "after {signal}");
    }
}

#[test]
fn repeated_kills_change_no_answer() {
    let place = Place::new();
    let state = place.at("state");
    // Each line has its number, which shows which lines an unbroken run prints. The window is
    // short: keys expire and return during the run.
    let keys = stream(2_000, 300);
    let lines: Vec<_> =
        keys.iter().enumerate().map(|(number, key)| format!("{key} {number}\n")).collect();
    let dedup = ["dedup", "--last", "100", "--field", "1", "--hash-seed", "3"];
    let unbroken = ok(&dedup, lines.concat().as_bytes()).stdout;
    let unbroken: Vec<_> =
        unbroken.split_inclusive(|byte| *byte == b'\n').map(String::from_utf8_lossy).collect();
    let printed: HashSet<_> = unbroken.iter().map(|line| line.as_ref()).collect();

    let mut heard = Vec::new();
    let mut rest = lines.as_slice();
    while heard.len() < unbroken.len() {
        // A piece ends with a line that is printed: its answer shows that all lines before it are
        // processed.
        let mut end = rest.len().min(150);
        while end > 0 && !printed.contains(rest[end - 1].as_str()) {
            end -= 1;
        }
        let (piece, later) = rest.split_at(end);
        rest = later;
        let mut talk = Talk::new(&[&dedup[..], &["--state", &state]].concat());
        talk.say(&piece.concat());
        let answers = piece.iter().filter(|line| printed.contains(line.as_str())).count();
        heard.extend((0..answers).map(|_| talk.hear()));
        talk.kill();
    }
    assert_eq!(heard, unbroken);
}
