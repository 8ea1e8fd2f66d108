//! Inputs of `dedup --output` that are gone, what is accepted of them, and what happens if they
//! come back; and places of a state, of which there are not many.

use crate::exactly_once::Place;
use std::fs;

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
