//! An input that is the file of standard output, which would grow as long as it is read.

use crate::support::{Place, command, ok};
use std::fs::{self, File};
use std::process::{Output, Stdio};

/// With so few false positives that all lines are printed: the hash has another secret in each run.
const DEDUP: [&str; 5] = ["dedup", "--last", "5", "--fpr", "1e-9"];

/// More lines than the window has, so that each would be new again and again.
fn lines() -> String {
    (0..50).map(|number| format!("line {number}\n")).collect()
}

fn appending(path: &str) -> File {
    File::options().append(true).open(path).expect("a file")
}

/// Runs the command with these streams, at most for a minute.
fn with(arguments: &[&str], stdin: Stdio, stdout: File) -> Output {
    let mut child = command(arguments).stdin(stdin).stdout(stdout).spawn().expect("it starts");
    let began = std::time::Instant::now();
    while child.try_wait().expect("a status").is_none() {
        if began.elapsed().as_secs() >= 60 {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it does not end");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.wait_with_output().expect("its output")
}

fn is_refused(output: &Output, name: &str) {
    let sentence = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{sentence}");
    let expected = format!("ebbtide: cannot read {name}: standard output goes to the same file");
    assert!(sentence.starts_with(&expected), "{sentence}");
}

#[test]
fn a_file_to_which_the_output_is_appended_is_refused_by_any_name() {
    let place = Place::new();
    let file = place.file("lines", lines().as_bytes());
    let (link, other) = (place.at("link"), place.file("other", b"x\n"));
    fs::hard_link(&file, &link).expect("a link");
    for name in [&file, &link] {
        is_refused(&with(&[&DEDUP[..], &[name]].concat(), Stdio::null(), appending(&file)), name);
        let second = [&DEDUP[..], &[&other, name]].concat();
        is_refused(&with(&second, Stdio::null(), appending(&file)), name);
    }
    let input = File::open(&file).expect("a file");
    is_refused(&with(&DEDUP, input.into(), appending(&file)), "standard input");
    let dir = place.at("filter");
    ok(&["create", &dir, "--last", "100"], b"");
    let asked = ["check", &dir, &file];
    is_refused(&with(&asked, Stdio::null(), appending(&file)), &file);
    assert_eq!(fs::read_to_string(&file).expect("the lines"), lines(), "nothing is written");
    assert_eq!(ok(&["contains", &dir, "--key", "line 0", "--key", "x"], b"").text(), "0\n0\n");
}

#[test]
fn an_output_that_gets_lines_of_another_input_first_is_refused_then() {
    let place = Place::new();
    let first = place.file("first", lines().as_bytes());
    let dir = place.at("filter");
    ok(&["create", &dir, "--last", "100"], b"");
    for arguments in [&DEDUP[..], &["contains", &dir]] {
        let file = place.file("output", b"");
        let arguments = [arguments, &[&first, &file]].concat();
        let output = with(&arguments, Stdio::null(), appending(&file));
        is_refused(&output, &file);
        assert_eq!(fs::read_to_string(&file).expect("lines").lines().count(), 50);
    }
}

#[test]
fn other_files_and_an_empty_one_are_read() {
    let place = Place::new();
    let file = place.file("lines", lines().as_bytes());
    let empty = place.file("empty", b"");
    let output = with(&[&DEDUP[..], &[&empty]].concat(), Stdio::null(), appending(&empty));
    assert_eq!((output.status.code(), fs::read(&empty).expect("a file")), (Some(0), vec![]));
    // Only read, and only written.
    let dir = place.at("filter");
    ok(&["create", &dir, "--last", "100"], b"");
    let inserted = with(&["insert", &dir, &file], Stdio::null(), appending(&file));
    assert_eq!(inserted.status.code(), Some(0), "it prints nothing");
    let input = File::open(&file).expect("a file");
    let other = with(&DEDUP, input.into(), appending(&empty));
    assert_eq!((other.status.code(), fs::read_to_string(&empty).expect("it")), (Some(0), lines()));
    // In place, from the beginning: the output stays in front of what is read.
    let over = File::options().write(true).open(&file).expect("a file");
    let output = with(&[&DEDUP[..], &[&file]].concat(), Stdio::null(), over);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(fs::read_to_string(&file).expect("it"), lines());
}
