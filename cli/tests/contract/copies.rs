//! Copies of inputs of `dedup --output`, compressed or not, whole or being made: their lines are
//! read once.

use crate::exactly_once::Place;
use crate::support::run;
use std::fs;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

/// At this rate no answer is wrong.
const EXACT: [&str; 2] = ["--fpr", "1e-9"];

fn dedup(place: &Place, inputs: &[&str]) {
    place.run("out", inputs, &EXACT);
}

fn output(place: &Place) -> String {
    String::from_utf8(place.read("out")).expect("UTF-8")
}

/// Returns more lines than the window of a run holds.
fn many(from: u64) -> String {
    (from..from + 9000).map(|number| format!("line {number}\n")).collect()
}

/// Compresses a file, which stays.
fn compress(place: &Place, name: &str) -> Vec<u8> {
    let ended = Command::new("gzip").args(["-k", &place.path(name)]).status().expect("gzip runs");
    assert!(ended.success());
    place.read(&format!("{name}.gz"))
}

/// A log whose first part was renamed, after it was read.
fn rotated() -> (Place, String) {
    let (place, lines) = (Place::new(), many(0));
    place.write("h.log", lines.as_bytes());
    dedup(&place, &["h.log"]);
    fs::rename(place.path("h.log"), place.path("h.log.1")).expect("renamed");
    place.write("h.log", b"next\n");
    dedup(&place, &["h.log"]);
    (place, lines + "next\n")
}

#[test]
fn a_part_and_its_compressed_form_are_one_input() {
    let (place, expected) = rotated();
    compress(&place, "h.log.1");
    dedup(&place, &["h.log", "h.log.1", "h.log.1.gz"]);
    assert!(output(&place) == expected, "a line is there twice");
    fs::remove_file(place.path("h.log.1")).expect("removed");
    place.append("h.log", b"last\n");
    dedup(&place, &["h.log", "h.log.1.gz"]);
    assert!(output(&place) == expected + "last\n", "a line is there twice");
}

#[test]
fn a_compressed_form_that_is_being_written_is_no_input() {
    let (place, expected) = rotated();
    let whole = compress(&place, "h.log.1");
    for length in [1, 9, whole.len() / 2, whole.len() - 1] {
        place.write("h.log.1.gz", &whole[..length]);
        dedup(&place, &["h.log", "h.log.1", "h.log.1.gz"]);
        assert!(output(&place) == expected, "{length} bytes: a line is there twice");
    }
    // It is stopped.
    fs::remove_file(place.path("h.log.1.gz")).expect("removed");
    dedup(&place, &["h.log", "h.log.1"]);
    assert!(output(&place) == expected, "a line is there twice");
}

#[test]
fn a_first_run_reads_a_part_and_its_compressed_form_once() {
    let (place, lines) = (Place::new(), many(0));
    place.write("h.log.1", lines.as_bytes());
    place.write("h.log", b"next\n");
    let whole = compress(&place, "h.log.1");
    for length in [whole.len() / 2, whole.len()] {
        place.write("h.log.1.gz", &whole[..length]);
        dedup(&place, &["h.log.1", "h.log.1.gz", "h.log"]);
        assert!(output(&place) == format!("{lines}next\n"), "a line is there twice");
    }
}

#[test]
fn a_copy_beside_a_log_is_no_input_while_it_is_made_and_after() {
    let (place, lines) = (Place::new(), many(0));
    place.write("h.log", lines.as_bytes());
    dedup(&place, &["h.log"]);
    for length in [100, lines.len() / 2, lines.len()] {
        place.write("h.log.1", &lines.as_bytes()[..length]);
        dedup(&place, &["h.log"]);
        dedup(&place, &["h.log.1", "h.log"]);
        assert!(output(&place) == lines, "a copy of {length} bytes was read");
    }
    // Now it is truncated, as copytruncate does, and what came meanwhile is in the copy.
    place.append("h.log.1", b"late\n");
    place.write("h.log", b"next\n");
    dedup(&place, &["h.log"]);
    assert!(output(&place) == format!("{lines}late\nnext\n"));
    // And the next time.
    fs::rename(place.path("h.log.1"), place.path("h.log.2")).expect("renamed");
    fs::copy(place.path("h.log"), place.path("h.log.1")).expect("a copy");
    dedup(&place, &["h.log.2", "h.log.1", "h.log"]);
    place.write("h.log", b"more\n");
    dedup(&place, &["h.log.2", "h.log.1", "h.log"]);
    assert!(output(&place) == format!("{lines}late\nnext\nmore\n"));
}

#[test]
fn a_copy_that_was_there_at_the_first_run_is_no_input_later() {
    let (place, lines) = (Place::new(), many(0));
    place.write("h.log", lines.as_bytes());
    // It must be newer than the log to be a copy.
    std::thread::sleep(Duration::from_millis(20));
    place.write("h.log.bak", lines.as_bytes());
    dedup(&place, &["h.log.bak", "h.log"]);
    assert!(output(&place) == lines, "a line is there twice");
    place.append("h.log", b"late\n");
    fs::rename(place.path("h.log"), place.path("h.log.1")).expect("renamed");
    place.write("h.log", b"next\n");
    dedup(&place, &["h.log.1", "h.log.bak", "h.log"]);
    assert!(output(&place) == format!("{lines}late\nnext\n"), "a line is there twice");
}

#[test]
fn a_copied_and_truncated_log_is_found_while_its_copy_is_compressed() {
    for kept in [1, 2] {
        let (place, lines) = (Place::new(), many(0));
        place.write("h.log", lines.as_bytes());
        dedup(&place, &["h.log"]);
        place.append("h.log", b"late\n");
        fs::copy(place.path("h.log"), place.path("h.log.1")).expect("a copy");
        let whole = compress(&place, "h.log.1");
        place.write("h.log.1.gz", &whole[..whole.len() * kept / 2]);
        place.write("h.log", b"next\n");
        dedup(&place, &["h.log"]);
        assert!(output(&place) == format!("{lines}late\nnext\n"));
    }
}

/// The beginning of a file of each format that is recognised and not read.
const UNREADABLE: [(&str, &[u8], &str); 3] = [
    ("bz2", b"BZh91AY&SY\x8c\x2d\x11", "bunzip2"),
    ("lz4", b"\x04\x22\x4d\x18\x64\x40\xa7", "unlz4"),
    ("lz", b"LZIP\x01\x0c\0\x33", "lunzip"),
];
