//! Copies of inputs of `dedup --output`, compressed or not, whole or being made: their lines are
//! read once.

use crate::exactly_once::Place;
use crate::support::{run, signal, skipped, start};
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
    for length in [0, 1, 9, whole.len() / 2, whole.len() - 1] {
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
fn an_input_that_is_compressed_again_in_its_place_is_read_once() {
    // Every part of the compressed bytes that a run may see.
    for parts in [0, 1, 9, 50, 99, 100] {
        let (place, expected) = rotated();
        let whole = compress(&place, "h.log.1");
        let lines = place.read("h.log.1");
        fs::remove_file(place.path("h.log.1")).expect("removed");
        dedup(&place, &["h.log", "h.log.1.gz"]);
        place.write("h.log.1", &lines);
        place.write("h.log.1.gz", &whole[..whole.len() * parts / 100]);
        for inputs in [&["h.log"][..], &["h.log", "h.log.1", "h.log.1.gz"]] {
            dedup(&place, inputs);
            assert!(output(&place) == expected, "{parts} %: a line is there twice");
        }
        place.write("h.log.1.gz", &whole);
        fs::remove_file(place.path("h.log.1")).expect("removed");
        place.append("h.log", b"last\n");
        dedup(&place, &["h.log", "h.log.1.gz"]);
        assert!(output(&place) == expected + "last\n", "{parts} %: a line is there twice");
    }
}

#[test]
fn an_input_that_is_compressed_again_without_its_original_is_not_read_before_it_is_whole() {
    let (place, expected) = rotated();
    let whole = compress(&place, "h.log.1");
    fs::remove_file(place.path("h.log.1")).expect("removed");
    dedup(&place, &["h.log.1.gz", "h.log"]);
    place.append("h.log", b"last\n");
    place.write("h.log.1.gz", &whole[..whole.len() / 2]);
    let arguments = place.arguments("out", &["h.log.1.gz", "h.log"], &EXACT);
    let refused = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), b"");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("h.log.1.gz: incomplete deflate stream"), "{refused:?}");
    assert!(output(&place) == expected, "a line is there twice");
    place.write("h.log.1.gz", &whole);
    dedup(&place, &["h.log.1.gz", "h.log"]);
    assert!(output(&place) == expected + "last\n", "a line is there twice");
}

#[test]
fn a_part_in_the_place_of_a_header_that_was_left_out_is_not_passed_over() {
    let place = Place::new();
    let header = "# time level process thread module message and more that all files begin with\n";
    place.write("h.log", header.as_bytes());
    place.write("h.log.1", header.as_bytes());
    dedup(&place, &["h.log"]);
    fs::remove_file(place.path("h.log.1")).expect("removed");
    // As `cp --preserve` restores it.
    place.write("h.log.1", (header.to_owned() + &many(0)).as_bytes());
    let file = fs::File::options().write(true).open(place.path("h.log.1")).expect("it is there");
    let before = std::time::SystemTime::now() - Duration::from_secs(3600);
    file.set_modified(before).expect("its time");
    let refused = place.refuse_with("out", &["h.log"], &EXACT);
    assert!(refused.contains("no run has read"), "{refused}");
    dedup(&place, &["h.log.1", "h.log"]);
    assert!(output(&place) == header.to_owned() + &many(0), "a line is missing");
}

#[test]
fn a_compressed_form_that_was_empty_when_a_run_saw_it_is_no_input_later() {
    for is_alone in [false, true] {
        let (place, expected) = rotated();
        let whole = compress(&place, "h.log.1");
        place.write("h.log.1.gz", b"");
        if is_alone {
            // Nothing shows that run of what it will be the compressed form.
            fs::rename(place.path("h.log.1"), place.path("away")).expect("renamed");
            dedup(&place, &["h.log", "h.log.1.gz"]);
            fs::rename(place.path("away"), place.path("h.log.1")).expect("renamed");
            place.write("h.log.1.gz", &whole);
        }
        dedup(&place, &["h.log", "h.log.1", "h.log.1.gz"]);
        assert!(output(&place) == expected, "a line is there twice");
        place.write("h.log.1.gz", &whole);
        fs::remove_file(place.path("h.log.1")).expect("removed");
        place.append("h.log", b"last\n");
        dedup(&place, &["h.log", "h.log.1.gz"]);
        assert!(output(&place) == expected + "last\n", "a line is there twice");
    }
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
fn a_copy_that_is_being_made_of_the_successor_of_an_empty_log_is_no_input() {
    let (place, expected) = rotated();
    if fs::metadata(place.path("h.log")).and_then(|file| file.created()).is_err() {
        skipped("files have no time of creation here");
        return;
    }
    fs::rename(place.path("h.log.1"), place.path("h.log.2")).expect("renamed");
    fs::rename(place.path("h.log"), place.path("h.log.1")).expect("renamed");
    place.write("h.log", b"");
    dedup(&place, &["h.log"]);
    fs::remove_file(place.path("h.log")).expect("removed");
    place.write("h.log", b"one more\ntwo more\n");
    // The rotation copies: it has shifted the parts, and comes to the middle of a line.
    fs::rename(place.path("h.log.2"), place.path("h.log.3")).expect("renamed");
    fs::rename(place.path("h.log.1"), place.path("h.log.2")).expect("renamed");
    place.write("h.log.1", b"one more\nt");
    let sentence = place.refuse_with("out", &["h.log"], &EXACT);
    assert!(sentence.contains("h.log, of which 0 bytes were read, is neither"), "{sentence}");
    place.run("out", &["h.log"], &["--fpr", "1e-9", "--accept-missing"]);
    assert!(output(&place) == expected.clone() + "one more\ntwo more\n", "half a line is there");
    place.write("h.log.1", b"one more\ntwo more\n");
    place.write("h.log", b"last\n");
    dedup(&place, &["h.log"]);
    assert!(output(&place) == expected + "one more\ntwo more\nlast\n");
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

#[test]
fn a_copy_that_a_run_left_out_before_it_was_overtaken_is_read_when_it_is_compressed() {
    let place = Place::new();
    let member = ["--json-field", "id"];
    let line = |id: u64| format!("{{\"id\": {id}}}\n");
    place.write("b.json", line(1).as_bytes());
    place.write("h.json", (line(2) + &line(3)).as_bytes());
    place.run("out", &["b.json", "h.json"], &member);
    // A run sees the copy of the log, and ends before it reads the log.
    place.append("b.json", b"no object\n");
    place.append("h.json", line(4).as_bytes());
    place.write("h.json.1", &place.read("h.json"));
    let sentence = place.refuse_with("out", &["b.json", "h.json"], &member);
    assert!(sentence.contains("b.json, line 2"), "{sentence}");
    place.write("b.json", line(1).as_bytes());
    compress(&place, "h.json.1");
    fs::remove_file(place.path("h.json.1")).expect("removed");
    place.write("h.json", line(5).as_bytes());
    place.run("out", &["b.json", "h.json"], &member);
    assert_eq!(output(&place), (1..=5).map(line).collect::<String>());
}

#[test]
fn a_copy_that_ends_before_what_was_read_is_named_with_all_that_continues() {
    let place = Place::new();
    let lines: String = (0..300).map(|number| format!("line {number}\n")).collect();
    place.write("h.log", lines.as_bytes());
    dedup(&place, &["h.log"]);
    // The copy was complete before the last line came, which the run has read.
    let (copied, _) = lines.split_at(lines.len() - "line 299\n".len());
    place.write("h.log.1", copied.as_bytes());
    place.write("h.log", b"next\n");
    let sentence = place.refuse_with("out", &["h.log"], &EXACT);
    let copy = place.path("h.log.1");
    let options = ["--accept-missing", "--leave-out", &copy];
    assert!(sentence.contains(&options.join(" ")), "{sentence}");
    place.run("out", &["h.log"], &[&EXACT[..], &options].concat());
    assert_eq!(output(&place), lines.clone() + "next\n");
    place.append("h.log", b"last\n");
    dedup(&place, &["h.log"]);
    assert_eq!(output(&place), lines + "next\nlast\n");
}

#[test]
fn a_log_that_is_copied_truncated_and_grown_before_its_turn_is_not_read_in_the_middle_of_a_line() {
    // On a busy machine the run may have read both before the second one is changed.
    assert!((0..10).any(|_| is_grown_before_its_turn()), "the runs were faster than this test");
}

/// Tries it, and returns whether the second log was changed before its turn.
fn is_grown_before_its_turn() -> bool {
    let (place, first) = (Place::new(), many(0));
    place.write("a.log", b"");
    place.write("b.log", first.as_bytes());
    dedup(&place, &["a.log", "b.log"]);
    let before: String = (100_000..250_000).map(|number| format!("line {number}\n")).collect();
    place.append("a.log", before.as_bytes());
    let arguments = place.arguments("out", &["a.log", "b.log"], &EXACT);
    let mut child = start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let length = || fs::metadata(place.path("out")).expect("the output").len();
    // The run has looked at both, and reads the first one.
    while length() == first.len() as u64 {
        if let Some(status) = child.try_wait().expect("a status") {
            assert!(status.success(), "{status:?}");
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    signal(&child, "STOP");
    place.append("b.log", b"late\n");
    fs::copy(place.path("b.log"), place.path("b.log.1")).expect("a copy");
    let next: String = (0..20_000).map(|number| format!("the next {number}\n")).collect();
    place.write("b.log", next.as_bytes());
    let is_before_its_turn = length() < (first.len() + before.len()) as u64;
    signal(&child, "CONT");
    let ended = child.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&ended.stderr);
    if !is_before_its_turn {
        return false;
    }
    assert!(ended.status.code() == Some(2) && said.contains("run again"), "{said}");
    assert!(said.contains(&place.path("b.log")), "{said}");
    assert!(output(&place) == format!("{first}{before}"), "a line of the second one was read");
    dedup(&place, &["a.log", "b.log"]);
    assert!(output(&place) == format!("{first}{before}late\n{next}"));
    true
}

#[test]
fn a_compressed_part_that_was_read_to_its_end_and_is_not_given_is_not_decompressed_again() {
    let place = Place::new();
    fs::create_dir(place.path("old")).expect("a directory");
    place.write("old/h.log.3", b"one\n");
    place.write("old/h.log.2", b"two\n");
    let packed = compress(&place, "old/h.log.2");
    fs::remove_file(place.path("old/h.log.2")).expect("removed");
    place.write("h.log", b"three\n");
    dedup(&place, &["old/h.log.3", "old/h.log.2.gz", "h.log"]);
    // Who reads it fails now: it ends within the header of its format. The next run does not look
    // into its directory, so to the one after that it is as the last run left it.
    place.write("old/h.log.2.gz", &packed[..12]);
    place.append("h.log", b"four\n");
    dedup(&place, &["h.log"]);
    dedup(&place, &["old/h.log.3", "h.log"]);
    assert_eq!(output(&place), "one\ntwo\nthree\nfour\n");
}

#[test]
fn a_compressed_part_whose_news_a_failed_run_has_not_read_is_read_by_the_next_one() {
    let place = Place::new();
    let member = ["--json-field", "id"];
    let line = |id: u64| format!("{{\"id\": {id}}}\n");
    place.write("b.json", line(1).as_bytes());
    place.write("h.json", line(2).as_bytes());
    place.run("out", &["b.json", "h.json"], &[&member[..], &["--complete"]].concat());
    // What was read to its end has lines again when it is compressed.
    place.append("h.json", line(3).as_bytes());
    compress(&place, "h.json");
    fs::rename(place.path("h.json.gz"), place.path("h.json.1.gz")).expect("renamed");
    place.write("next", line(4).as_bytes());
    fs::rename(place.path("next"), place.path("h.json")).expect("renamed");
    for last in [4, 6] {
        // A run records that it has seen the part, and ends before it reads it.
        place.append("b.json", b"no object\n");
        let all = ["b.json", "h.json.1.gz", "h.json"];
        let sentence = place.refuse_with("out", &all, &member);
        assert!(sentence.contains("b.json, line 2"), "{sentence}");
        place.write("b.json", line(1).as_bytes());
        place.run("out", &["b.json", "h.json"], &member);
        assert_eq!(output(&place), (1..=last).map(line).collect::<String>());
        // Later a member is appended to it.
        place.write("more", line(5).as_bytes());
        let packed = compress(&place, "more");
        fs::remove_file(place.path("more.gz")).expect("removed");
        place.append("h.json.1.gz", &packed);
        place.append("h.json", line(6).as_bytes());
    }
}

/// The beginning of a file of each format that is recognised and not read.
const UNREADABLE: [(&str, &[u8], &str); 3] = [
    ("bz2", b"BZh91AY&SY\x8c\x2d\x11", "bunzip2"),
    ("lz4", b"\x04\x22\x4d\x18\x64\x40\xa7", "unlz4"),
    ("lz", b"LZIP\x01\x0c\0\x33", "lunzip"),
];

#[test]
fn a_part_of_a_format_that_is_not_read_is_refused_with_what_to_do() {
    for (ending, bytes, program) in UNREADABLE {
        let (place, expected) = rotated();
        let lines = place.read("h.log.1");
        let name = format!("h.log.1.{ending}");
        fs::remove_file(place.path("h.log.1")).expect("removed");
        place.write(&name, bytes);
        for inputs in [&["h.log"][..], &[&name, "h.log"]] {
            let sentence = place.refuse_with("out", inputs, &EXACT);
            assert!(sentence.contains(program) && sentence.contains(&name), "{sentence}");
            assert!(!sentence.contains("in this order"), "{sentence}");
        }
        // What the program makes is recognised.
        fs::remove_file(place.path(&name)).expect("removed");
        place.write("h.log.1", &lines);
        dedup(&place, &["h.log"]);
        assert!(output(&place) == expected);
        // Left out, it is left out under its next name, too.
        place.write(&format!("h.log.2.{ending}"), bytes);
        let left_out = place.path(&format!("h.log.2.{ending}"));
        place.run("out", &["h.log"], &[EXACT[0], EXACT[1], "--leave-out", &left_out]);
        fs::rename(left_out, place.path(&format!("h.log.3.{ending}"))).expect("renamed");
        dedup(&place, &["h.log"]);
        assert!(output(&place) == expected);
    }
}

#[test]
fn an_input_of_a_format_that_is_not_read_is_an_error_unless_it_is_read_as_it_is() {
    for (ending, bytes, program) in UNREADABLE {
        let place = Place::new();
        let name = format!("keys.{ending}");
        place.write(&name, bytes);
        let path = place.path(&name);
        let dedup = ["dedup", "--last", "10"];
        for (words, input) in [(&[path.as_str()][..], &b""[..]), (&[], bytes)] {
            let outcome = run(&[&dedup[..], words].concat(), input);
            assert_eq!((outcome.code, &*outcome.stdout), (Some(2), &b""[..]), "{outcome:?}");
            let said = ["cannot read ", program, "--no-decompress"];
            assert!(said.iter().all(|what| outcome.stderr.contains(what)), "{outcome:?}");
            let plain = [&dedup[..], &["--no-decompress"], words].concat();
            assert_eq!(run(&plain, input).stdout, [bytes, b"\n"].concat());
        }
    }
    // A line may begin like one.
    let mut child = crate::support::command(&["dedup", "--last", "10", "--hash-seed", "7"])
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("stdin");
    stdin.write_all(b"BZh9\nLZIP\nBZh91AY&S\n").expect("a pipe");
    drop(stdin);
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.stdout, b"BZh9\nLZIP\nBZh91AY&S\n");
}

#[test]
fn empty_inputs_of_one_name_in_different_directories_may_all_be_copied() {
    let place = Place::new();
    for name in ["a", "b"] {
        fs::create_dir_all(place.path(&format!("logs/{name}"))).expect("a directory");
        place.write(&format!("logs/{name}/h.log"), b"");
    }
    dedup(&place, &["logs/a/h.log", "logs/b/h.log"]);
    let copied = Command::new("cp").args(["-a", &place.path("logs"), &place.path("copy")]).status();
    assert!(copied.expect("cp runs").success());
    fs::remove_dir_all(place.path("logs")).expect("removed");
    let inputs = ["copy/a/h.log", "copy/b/h.log"];
    dedup(&place, &inputs);
    place.append(inputs[0], b"one\n");
    place.append(inputs[1], b"two\n");
    dedup(&place, &inputs);
    assert_eq!(output(&place), "one\ntwo\n");
}
