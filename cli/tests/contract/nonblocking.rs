//! Streams in non-blocking mode, as other programs that share them leave them: the command waits.

use crate::support::{Place, command, input};
use rustix::fs::{OFlags, fcntl_setfl};
use std::fs;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::thread::{self, sleep};
use std::time::Duration;

/// Creates a pipe whose ends do not block.
fn nonblocking() -> (PipeReader, PipeWriter) {
    let (reader, writer) = pipe().expect("a pipe");
    set(&reader);
    set(&writer);
    (reader, writer)
}

fn set(end: impl AsFd) {
    fcntl_setfl(end, OFlags::NONBLOCK).expect("a mode");
}

fn lines(count: usize) -> Vec<u8> {
    input(&(0..count).map(|number| format!("key {number}")).collect::<Vec<_>>())
}

const LATE: Duration = Duration::from_millis(300);

#[test]
fn an_output_that_does_not_block_loses_no_line_to_a_late_reader() {
    let place = Place::new();
    let state = place.at("state");
    let file = place.file("keys", &lines(20_000));
    let (reader, writer) = nonblocking();
    let dedup = ["dedup", "--last", "100000", "--fpr", "1e-9", "--state", &state, &file];
    let mut child = command(&dedup).stdin(Stdio::null()).stdout(writer).spawn().expect("start");
    sleep(LATE);
    // The mode is set on the reader's end only; from now on the reader waits.
    fcntl_setfl(&reader, OFlags::empty()).expect("a mode");
    let mut printed = Vec::new();
    (&reader).read_to_end(&mut printed).expect("read");
    assert!(child.wait().expect("wait").success());
    assert!(printed == fs::read(&file).expect("the keys"), "{} bytes", printed.len());
}

#[test]
fn an_input_that_does_not_block_is_waited_for() {
    let (reader, mut writer) = nonblocking();
    let dedup = ["dedup", "--last", "100000", "--fpr", "1e-9"];
    let child = command(&dedup).stdin(reader).spawn().expect("start");
    let all = lines(20_000);
    let expected = all.clone();
    fcntl_setfl(&writer, OFlags::empty()).expect("a mode");
    let late = thread::spawn(move || {
        for part in all.chunks(60_000) {
            sleep(LATE / 3);
            writer.write_all(part).expect("write");
        }
    });
    let output = child.wait_with_output().expect("output");
    late.join().expect("the writer");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
    assert!(output.stdout == expected);
}

#[test]
fn a_full_nonblocking_error_output_receives_its_whole_sentence() {
    let (mut reader, mut writer) = nonblocking();
    let mut before = 0;
    while let Ok(count) = writer.write(&[b'.'; 4096]) {
        before += count;
    }
    let mut child = command(&["stat", "/nonexistent/filter"])
        .stdin(Stdio::null())
        .stderr(writer)
        .spawn()
        .expect("start");
    sleep(LATE);
    fcntl_setfl(&reader, OFlags::empty()).expect("a mode");
    let mut said = Vec::new();
    reader.read_to_end(&mut said).expect("read");
    assert_eq!(child.wait().expect("wait").code(), Some(2));
    let said = String::from_utf8_lossy(&said[before..]).into_owned();
    assert!(said.starts_with("ebbtide: /nonexistent/filter ") && said.ends_with('\n'), "{said}");
}

#[test]
fn help_reaches_a_late_reader_of_a_full_nonblocking_pipe() {
    let (mut reader, mut writer) = nonblocking();
    let mut before = 0;
    while let Ok(count) = writer.write(&[b'.'; 4096]) {
        before += count;
    }
    let help = command(&["dedup", "--help"]).output().expect("run").stdout;
    let mut child =
        command(&["dedup", "--help"]).stdin(Stdio::null()).stdout(writer).spawn().expect("start");
    sleep(LATE);
    fcntl_setfl(&reader, OFlags::empty()).expect("a mode");
    let mut said = Vec::new();
    reader.read_to_end(&mut said).expect("read");
    assert!(child.wait().expect("wait").success());
    assert_eq!(String::from_utf8_lossy(&said[before..]), String::from_utf8_lossy(&help));
}
