//! Inputs of `dedup --output` that are gone, what is accepted of them, and what happens if they
//! come back; and places of a state, of which there are not many.

use crate::exactly_once::Place;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, SystemTime};

fn output(place: &Place) -> String {
    String::from_utf8(place.read("out")).expect("UTF-8")
}

fn rename(place: &Place, from: &str, to: &str) {
    fs::rename(place.path(from), place.path(to)).expect("renamed");
}

fn numbers(all: std::ops::RangeInclusive<u64>) -> String {
    all.map(|number| format!("{number}\n")).collect()
}

/// The keys of a few lines only are known.
const SHORT: [&str; 4] = ["--fpr", "1e-9", "--durability", "never"];

#[test]
fn an_input_whose_loss_was_accepted_is_continued_when_it_comes_back() {
    let place = Place::new();
    place.write("a.log", numbers(1..=20).as_bytes());
    place.write("b.log", numbers(6001..=12_003).as_bytes());
    fs::create_dir(place.path("m")).expect("a directory");
    place.write("m/c.log", numbers(201..=210).as_bytes());
    // More lines follow than the window has.
    place.run("out", &["a.log", "m/c.log", "b.log"], &SHORT);
    let expected = output(&place);
    fs::remove_file(place.path("a.log")).expect("removed");
    rename(&place, "m", "m2");
    let sentence = place.refuse_with("out", &["b.log"], &SHORT);
    // Both that are gone are named.
    assert!(sentence.contains("51 bytes") && sentence.contains("40 bytes"), "{sentence}");
    let accepted = [&SHORT[..], &["--accept-missing"]].concat();
    place.run("out", &["b.log"], &accepted);
    place.run("out", &["b.log"], &SHORT);
    rename(&place, "m2", "m");
    place.run("out", &["b.log", "m/c.log"], &SHORT);
    assert_eq!(output(&place), expected);
    place.append("m/c.log", b"new\n");
    place.run("out", &["b.log", "m/c.log"], &SHORT);
    assert_eq!(output(&place), format!("{expected}new\n"));
    // It is an input again: its loss is noticed.
    fs::remove_dir_all(place.path("m")).expect("removed");
    let sentence = place.refuse_with("out", &["b.log"], &SHORT);
    assert!(sentence.contains("44 bytes"), "{sentence}");
}

#[test]
fn a_short_copy_of_an_input_whose_loss_was_accepted_is_not_read_again() {
    for (content, is_alike) in [("one\ntwo\nthree\n", true), ("six\nthree\n", false)] {
        let place = Place::new();
        place.write("a.log", b"one\ntwo\n");
        // More lines follow than the window has.
        place.write("b.log", numbers(6001..=12_003).as_bytes());
        place.run("out", &["a.log", "b.log"], &SHORT);
        let expected = output(&place);
        fs::remove_file(place.path("a.log")).expect("removed");
        let accepted = [&SHORT[..], &["--accept-missing"]].concat();
        place.run("out", &["b.log"], &accepted);
        place.write("a.log", content.as_bytes());
        if is_alike {
            let sentence = place.refuse_with("out", &["a.log", "b.log"], &SHORT);
            let what = "begins with all that was read of an earlier file of its name, 8 bytes";
            assert!(sentence.contains(what), "{sentence}");
            assert!(sentence.contains("--accept-missing to continue behind them"), "{sentence}");
            assert!(sentence.contains("--new-input to read all inputs"), "{sentence}");
            place.run("out", &["a.log", "b.log"], &accepted);
        } else {
            place.run("out", &["a.log", "b.log"], &SHORT);
        }
        let new = if is_alike { "three\n" } else { content };
        assert_eq!(output(&place), expected + new);
        place.append("a.log", b"four\n");
        place.run("out", &["a.log", "b.log"], &SHORT);
        assert!(output(&place).ends_with(&format!("{new}four\n")));
    }
}

#[test]
fn a_log_that_was_truncated_and_its_earlier_content_are_two_inputs() {
    let place = Place::new();
    let first = numbers(1..=200);
    place.write("h.log", first.as_bytes());
    place.run("out", &["h.log"], &SHORT);
    let content = place.read("h.log");
    place.write("h.log", b"other\n");
    let sentence = place.refuse_with("out", &["h.log"], &SHORT);
    assert!(sentence.contains("was truncated"), "{sentence}");
    place.run("out", &["h.log"], &[&SHORT[..], &["--accept-missing"]].concat());
    // More lines follow than the window has.
    let rest = numbers(6001..=12_000);
    place.append("h.log", rest.as_bytes());
    place.run("out", &["h.log"], &SHORT);
    place.write("h.log.1", &[&content[..], b"the end\n"].concat());
    place.run("out", &["h.log.1", "h.log"], &SHORT);
    assert_eq!(output(&place), format!("{first}other\n{rest}the end\n"));
}

#[test]
fn the_earlier_file_of_a_name_is_not_called_by_the_path_of_the_new_one() {
    let place = Place::new();
    for (day, line) in [("24", b"one\n"), ("25", b"two\n")] {
        fs::create_dir(place.path(day)).expect("a directory");
        place.write(&format!("{day}/h.log"), line);
    }
    place.run("out", &["24/h.log"], &[]);
    fs::remove_dir_all(place.path("24")).expect("removed");
    let sentence = place.refuse("out", &["25/h.log"]);
    assert!(sentence.contains("an earlier file h.log, of which 4 bytes were read"), "{sentence}");
    assert!(!sentence.contains("earlier file /"), "{sentence}");
}

#[test]
fn more_files_than_places_may_be_left_out_and_the_log_be_rotated() {
    let place = Place::new();
    let part = |number: u64| format!("h.log.{number}");
    for number in 1..=70 {
        place.write(&part(number), format!("old {number}\n").as_bytes());
    }
    place.write("h.log", b"one\n");
    let all: Vec<String> = (1..=70).map(|number| place.path(&part(number))).collect();
    let options = all.iter().flat_map(|path| ["--leave-out", path]);
    place.run("out", &["h.log"], &options.collect::<Vec<_>>());
    for line in ["two\n", "three\n", "four\n"] {
        // What is old leaves the directory at some time.
        for number in
            (1..=72).rev().filter(|&number| fs::exists(place.path(&part(number))).unwrap())
        {
            rename(&place, &part(number), &part(number + 1));
        }
        rename(&place, "h.log", "h.log.1");
        place.write("h.log", line.as_bytes());
        place.run("out", &["h.log"], &[]);
    }
    assert_eq!(output(&place), "one\ntwo\nthree\nfour\n");
    // A file whose place was taken is not read as a new one.
    let forgotten = (4..=73).map(part).find(|name| {
        let sentence = crate::support::run(
            &place
                .arguments("out", &[name, "h.log"], &[])
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
            b"",
        );
        sentence.stderr.contains("may be an input that was read long ago")
    });
    assert!(forgotten.is_some());
    assert!(!output(&place).contains("old"), "{}", output(&place));
}

#[test]
fn more_parts_than_places_may_be_kept_once_they_were_read() {
    let place = Place::new();
    let part = |number: u64| format!("h.log.{number}");
    let parts: Vec<String> = (1..=61).rev().map(part).collect();
    for name in &parts {
        place.write(name, format!("of {name}\n").as_bytes());
    }
    place.write("h.log", b"one\n");
    let all: Vec<&str> = parts.iter().map(String::as_str).chain(["h.log"]).collect();
    place.run("out", &all, &SHORT);
    let mut expected = output(&place);
    assert_eq!(expected.lines().count(), 62);
    for (next, line) in (62..).zip(["two\n", "three\n", "four\n"]) {
        for number in (1..next).rev() {
            rename(&place, &part(number), &part(number + 1));
        }
        rename(&place, "h.log", "h.log.1");
        place.write("h.log", line.as_bytes());
        expected += line;
        // The second run finds nothing new, also not in the part that has no place any more.
        for _ in 0..2 {
            place.run("out", &["h.log"], &SHORT);
            assert_eq!(output(&place), expected);
        }
    }
    // That one has lines again, which no run has read.
    place.append(&part(64), b"more\n");
    let sentence = place.refuse_with("out", &["h.log"], &SHORT);
    assert!(sentence.contains("no run has read") && sentence.contains(&part(64)), "{sentence}");
}

#[test]
fn the_end_of_a_torn_record_may_be_that_of_other_systems() {
    let place = Place::new();
    let column = ["--csv-field", "id"];
    place.write("t.csv", b"id,n\r\n1,x");
    place.run("out", &["t.csv"], &[&column[..], &["--complete"]].concat());
    place.append("t.csv", b"\r\n2,y\r\n");
    place.run("out", &["t.csv"], &column);
    place.append("t.csv", b"2,y\r\n3,z\r\n");
    place.run("out", &["t.csv"], &column);
    assert_eq!(output(&place), "id,n\r\n1,x\n2,y\r\n3,z\r\n");
}

fn gzip(place: &Place, from: &str, to: &str) {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&place.read(from)).expect("memory");
    place.write(to, &packed.finish().expect("memory"));
    fs::remove_file(place.path(from)).expect("removed");
}

/// Gives the parts of `h.log` with this ending the next number, those with the largest one first.
fn shift(place: &Place, ending: &str) {
    for number in (1..9).rev() {
        let [from, to] = [number, number + 1].map(|number| format!("h.log.{number}{ending}"));
        if fs::exists(place.path(&from)).expect("a directory") {
            rename(place, &from, &to);
        }
    }
}

#[test]
fn a_log_that_was_empty_at_the_last_run_is_read_in_its_compressed_part() {
    let place = Place::new();
    place.write("part", b"one\n");
    gzip(&place, "part", "h.log.1.gz");
    place.write("h.log", b"");
    place.run("out", &["h.log.1.gz", "h.log"], &[]);
    // Each run follows a rotation; one day is quiet.
    for line in ["two\n", "", "three\n"] {
        place.append("h.log", line.as_bytes());
        shift(&place, ".gz");
        gzip(&place, "h.log", "h.log.1.gz");
        place.write("h.log", b"");
        place.run("out", &["h.log"], &[]);
    }
    assert_eq!(output(&place), "one\ntwo\nthree\n");
    // The part that holds the lines may be given as well.
    place.append("h.log", b"four\n");
    shift(&place, ".gz");
    gzip(&place, "h.log", "h.log.1.gz");
    place.write("h.log", b"five\n");
    place.run("out", &["h.log.1.gz", "h.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\nthree\nfour\nfive\n");
}

#[test]
fn of_two_rotations_of_an_empty_log_the_part_that_is_gone_is_missed() {
    let place = Place::new();
    place.write("part", b"one\n");
    gzip(&place, "part", "h.log.1.gz");
    place.write("h.log", b"");
    place.run("out", &["h.log.1.gz", "h.log"], &[]);
    for line in ["two\n", "three\n"] {
        place.append("h.log", line.as_bytes());
        shift(&place, ".gz");
        gzip(&place, "h.log", "h.log.1.gz");
        place.write("h.log", b"");
    }
    // The parts are now one, two and three.
    rename(&place, "h.log.2.gz", "kept");
    let sentence = place.refuse("out", &["h.log"]);
    assert!(sentence.contains("of which 0 bytes were read"), "{sentence}");
    rename(&place, "kept", "h.log.2.gz");
    place.refuse("out", &["h.log"]);
    assert_eq!(output(&place), "one\n");
}

#[test]
fn parts_of_a_log_that_was_empty_are_read_as_the_refusal_says_if_nothing_shows_which_it_was() {
    let numbers = ["h.log.2.gz", "h.log.1.gz"];
    for parts in [&numbers[..], &numbers[1..], &["h.log-20261125.gz"], &["h.log.1"]] {
        let place = Place::new();
        place.write("h.log", b"");
        place.run("out", &["h.log"], &[]);
        let mut expected = String::new();
        for part in parts {
            place.write("h.log", format!("of {part}\n").as_bytes());
            expected += &format!("of {part}\n");
            match part.ends_with(".gz") {
                true => gzip(&place, "h.log", part),
                // As a program that copies: another file.
                false => place.write(part, &place.read("h.log")),
            }
            std::thread::sleep(Duration::from_millis(20));
            let _ = fs::remove_file(place.path("h.log"));
        }
        place.write("h.log", b"of the log\n");
        let all = [parts, &["h.log"]].concat();
        let order: Vec<String> = all.iter().map(|name| place.path(name)).collect();
        let said =
            format!("give --accept-missing and the inputs in this order: {}, or", order.join(" "));
        // Also if they are given, for a part may be gone.
        for given in [&all[all.len() - 1..], &all] {
            let sentence = place.refuse("out", given);
            assert!(sentence.contains(&said), "{sentence}");
        }
        place.run("out", &all, &["--accept-missing"]);
        assert_eq!(output(&place), expected + "of the log\n");
        place.run("out", &["h.log"], &[]);
    }
}

#[test]
fn a_log_that_was_empty_at_the_last_run_is_read_in_its_copy_after_truncation() {
    let place = Place::new();
    place.write("h.log.1", b"one\n");
    place.write("h.log", b"");
    place.run("out", &["h.log.1", "h.log"], &[]);
    for line in ["two\n", "three\n"] {
        place.append("h.log", line.as_bytes());
        shift(&place, "");
        place.write("h.log.1", &place.read("h.log"));
        place.write("h.log", b"");
        place.run("out", &["h.log"], &[]);
    }
    place.append("h.log", b"four\n");
    place.run("out", &["h.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\nthree\nfour\n");
    // Two rotations; the first copy is gone.
    place.write("h.log", b"");
    place.run("out", &["h.log"], &["--accept-missing"]);
    shift(&place, "");
    shift(&place, "");
    place.write("h.log.1", b"six\n");
    let sentence = place.refuse("out", &["h.log"]);
    assert!(sentence.contains("no run has read"), "{sentence}");
}

#[test]
fn a_log_that_was_empty_is_read_in_a_part_with_a_date_if_an_older_one_is_there() {
    for is_copied in [false, true] {
        let place = Place::new();
        let part = |day: u64| format!("h.log-202611{day}.gz");
        let rotate = |line: &str, day: u64| {
            place.append("h.log", line.as_bytes());
            let from = if is_copied { "copy" } else { "h.log" };
            place.write(from, &place.read("h.log"));
            gzip(&place, from, &part(day));
            place.write("h.log", b"");
        };
        place.write("h.log", b"");
        rotate("one\n", 24);
        place.run("out", &[&part(24), "h.log"], &[]);
        for (line, day) in [("two\n", 25), ("three\n", 26)] {
            rotate(line, day);
            place.run("out", &["h.log"], &[]);
        }
        // The part of another day may be gone.
        (24..=26).for_each(|day| fs::remove_file(place.path(&part(day))).expect("removed"));
        rotate("four\n", 27);
        let sentence = place.refuse("out", &["h.log"]);
        let said = if is_copied { "no run has read" } else { "of which 0 bytes were read" };
        assert!(sentence.contains(said), "{sentence}");
        assert_eq!(output(&place), "one\ntwo\nthree\n");
    }
}

#[test]
fn an_older_part_that_comes_later_is_not_taken_for_a_log_that_was_empty() {
    let place = Place::new();
    place.write("h.log-20261125", b"two\n");
    place.write("h.log", b"");
    place.run("out", &["h.log-20261125", "h.log"], &[]);
    place.write("h.log-20261124", b"one\n");
    let part = fs::File::options().write(true).open(place.path("h.log-20261124"));
    let before = SystemTime::now() - Duration::from_secs(86_400);
    part.and_then(|part| part.set_modified(before)).expect("as a copy that keeps its time");
    let sentence = place.refuse("out", &["h.log"]);
    assert!(sentence.contains("no run has read"), "{sentence}");
    assert_eq!(output(&place), "two\n");
}

#[test]
fn a_part_whose_place_was_taken_is_not_taken_for_a_log_that_was_empty() {
    let place = Place::new();
    let part = |number: u64| format!("h.log-202601{number:02}");
    let parts: Vec<String> = (1..=61).map(part).collect();
    for name in &parts {
        place.write(name, format!("of {name}\n").as_bytes());
    }
    place.write("h.log", b"");
    let all: Vec<&str> = parts.iter().map(String::as_str).chain(["h.log"]).collect();
    place.run("out", &all, &SHORT);
    place.append("h.log", b"one\n");
    rename(&place, "h.log", &part(62));
    place.write("h.log", b"");
    place.run("out", &["h.log"], &SHORT);
    let expected = output(&place);
    // It keeps the time of its lines.
    let ended = Command::new("gzip").arg(place.path(&part(1))).status().expect("gzip runs");
    assert!(ended.success());
    let sentence = place.refuse_with("out", &["h.log"], &SHORT);
    assert!(sentence.contains("no run has read") && sentence.contains(&part(1)), "{sentence}");
    let packed = format!("{}.gz", part(1));
    let sentence = place.refuse_with("out", &[&packed, "h.log"], &SHORT);
    assert!(sentence.contains("may be an input that was read long ago"), "{sentence}");
    assert_eq!(output(&place), expected);
}

#[test]
fn an_empty_part_is_found_when_it_is_compressed_a_rotation_later() {
    let place = Place::new();
    place.write("h.log", b"one\n");
    place.run("out", &["h.log"], &[]);
    for line in ["", "", "two\n"] {
        shift(&place, ".gz");
        if fs::exists(place.path("h.log.1")).expect("a directory") {
            gzip(&place, "h.log.1", "h.log.2.gz");
        }
        rename(&place, "h.log", "h.log.1");
        place.write("h.log", line.as_bytes());
        place.run("out", &["h.log"], &[]);
    }
    assert_eq!(output(&place), "one\ntwo\n");
}

#[test]
fn a_part_without_lines_that_is_compressed_after_its_log_has_lines_is_passed_over() {
    for dated in [false, true] {
        let place = Place::new();
        place.write("h.log", b"line 0\n");
        place.run("out", &["h.log"], &[]);
        let mut expected = "line 0\n".to_owned();
        let mut last: Option<String> = None;
        for (day, lines) in [1, 0, 1, 0, 0, 1].into_iter().enumerate() {
            for line in 0..lines {
                let line = format!("line {line} of day {day}\n");
                place.append("h.log", line.as_bytes());
                expected += &line;
            }
            place.run("out", &["h.log"], &[]);
            // Rotated, and the part before compressed.
            match (dated, &last) {
                (_, None) => {}
                (false, Some(_)) => {
                    shift(&place, ".gz");
                    gzip(&place, "h.log.1", "h.log.2.gz");
                }
                (true, Some(last)) => gzip(&place, last, &format!("{last}.gz")),
            }
            let part = if dated { format!("h.log-2026112{day}") } else { "h.log.1".to_owned() };
            rename(&place, "h.log", &part);
            last = Some(part);
            place.write("h.log", b"");
            place.run("out", &["h.log"], &[]);
        }
        assert_eq!(output(&place), expected, "dated: {dated}");
    }
}

#[test]
fn a_compressed_part_that_is_being_written_is_none_without_lines() {
    let place = Place::new();
    place.write("h.log", b"one\n");
    place.run("out", &["h.log"], &[]);
    place.write("h.log.2", b"two\n");
    gzip(&place, "h.log.2", "h.log.2.gz");
    let whole = place.read("h.log.2.gz");
    for bytes in [10, 12, whole.len()] {
        place.write("h.log.2.gz", &whole[..bytes]);
        let sentence = place.refuse("out", &["h.log"]);
        assert!(sentence.contains("no run has read"), "{bytes}: {sentence}");
    }
}

#[test]
fn parts_of_a_quiet_log_may_go_when_enough_rotations_have_passed() {
    let place = Place::new();
    place.write("h.log", b"one\n");
    place.run("out", &["h.log"], &[]);
    for _ in 0..6 {
        shift(&place, "");
        rename(&place, "h.log", "h.log.1");
        place.write("h.log", b"");
        if fs::exists(place.path("h.log.4")).expect("a directory") {
            fs::remove_file(place.path("h.log.4")).expect("removed");
        }
        place.run("out", &["h.log"], &[]);
    }
    place.append("h.log", b"two\n");
    place.run("out", &["h.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\n");
}

#[test]
fn an_unfinished_line_of_a_part_waits_while_the_log_is_empty() {
    let place = Place::new();
    place.write("h.log", b"one\ntw");
    let arguments = place.arguments("out", &["h.log"], &[]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    for round in 0..3 {
        let outcome = crate::support::run(&arguments, b"");
        assert!(outcome.stderr.contains("2 bytes behind byte 4 are left"), "{outcome:?}");
        if round == 0 {
            rename(&place, "h.log", "h.log.1");
            place.write("h.log", b"");
        }
    }
    place.append("h.log.1", b"o\n");
    place.run("out", &["h.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\n");
}

#[test]
fn empty_logs_of_one_name_in_different_directories_are_read_in_their_compressed_parts() {
    let place = Place::new();
    let inputs = ["a/h.log", "b/h.log"];
    let compress = |name: &str| {
        gzip(&place, name, &format!("{name}.1.gz"));
        place.write(name, b"");
    };
    for name in inputs {
        fs::create_dir(place.path(&name[..1])).expect("a directory");
        place.write(name, b"");
        place.write(&format!("{name}.0"), format!("first of {name}\n").as_bytes());
        gzip(&place, &format!("{name}.0"), &format!("{name}.1.gz"));
    }
    place.run("out", &["a/h.log.1.gz", "b/h.log.1.gz", "a/h.log", "b/h.log"], &[]);
    for name in inputs {
        place.append(name, format!("next of {name}\n").as_bytes());
        let parts = [1, 2].map(|number| format!("{name}.{number}.gz"));
        rename(&place, &parts[0], &parts[1]);
        compress(name);
    }
    place.run("out", &inputs, &[]);
    let expected = "first of a/h.log\nfirst of b/h.log\nnext of a/h.log\nnext of b/h.log\n";
    assert_eq!(output(&place), expected);
}
