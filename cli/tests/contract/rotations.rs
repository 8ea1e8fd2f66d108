//! What happens to the inputs of `dedup --output` between two runs, each case by name: a run reads
//! every line once, or names what it misses, and what it then asks for works.

use crate::exactly_once::Place;
use crate::support::run;
use ebbtide::{Any, Filter, Options, Parameters};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Runs; expects that this many bytes of an input are left for a later run.
fn leaves(place: &Place, input: &str, more: &[&str], bytes: usize) {
    let arguments = place.arguments("out", &[input], more);
    let outcome = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), b"");
    let what = format!("{}: {bytes} bytes behind byte ", place.path(input));
    assert!(outcome.code == Some(0) && outcome.stderr.contains(&what), "{outcome:?}");
}

fn output(place: &Place) -> String {
    String::from_utf8(place.read("out")).expect("UTF-8")
}

fn rename(place: &Place, from: &str, to: &str) {
    fs::rename(place.path(from), place.path(to)).expect("renamed");
}

fn gzip(place: &Place, name: &str) {
    let ended = Command::new("gzip").arg(place.path(name)).status().expect("gzip runs");
    assert!(ended.success());
}

#[test]
fn a_first_run_names_the_earlier_parts_that_it_is_not_given() {
    let place = Place::new();
    place.write("h.log.1", b"one\ntwo\n");
    place.write("h.log", b"");
    let sentence = place.refuse("out", &["h.log"]);
    assert!(sentence.contains("no run has read") && sentence.contains("h.log.1"), "{sentence}");
    let order = format!("in this order: {} {}", place.path("h.log.1"), place.path("h.log"));
    assert!(sentence.contains(&order), "{sentence}");
    place.run("out", &["h.log.1", "h.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\n");
}

#[test]
fn parts_that_are_left_out_stay_out_also_renamed_and_compressed() {
    let place = Place::new();
    place.write("h.log.1", b"one\ntwo\n");
    place.write("h.log", b"three\n");
    let left_out = place.path("h.log.1");
    place.run("out", &["h.log"], &["--leave-out", &left_out]);
    assert_eq!(output(&place), "three\n");
    rename(&place, "h.log.1", "h.log.2");
    gzip(&place, "h.log.2");
    rename(&place, "h.log", "h.log.1");
    place.write("h.log", b"four\n");
    place.run("out", &["h.log"], &[]);
    assert_eq!(output(&place), "three\nfour\n");
}

#[test]
fn a_path_with_a_blank_is_one_word_of_what_a_refusal_says() {
    let place = Place::new();
    place.write("my h.log.1", b"one\n");
    place.write("my h.log", b"two\n");
    let sentence = place.refuse("out", &["my h.log"]);
    let word = format!("--leave-out '{}'", place.path("my h.log.1"));
    assert!(sentence.contains(&word), "{sentence}");
}

#[test]
fn a_middle_part_that_is_gone_is_named_by_its_number() {
    let place = Place::new();
    place.write("h.log", b"one\n");
    place.run("out", &["h.log"], &[]);
    rename(&place, "h.log", "h.log.2");
    // Its lines came and went between the two runs.
    place.write("h.log", b"three\n");
    let sentence = place.refuse("out", &["h.log"]);
    assert!(sentence.contains("h.log.1 is not there"), "{sentence}");
    assert_eq!(output(&place), "one\n", "a refused run changes nothing");
    place.write("h.log.1", b"two\n");
    let sentence = place.refuse("out", &["h.log"]);
    assert!(sentence.contains("no run has read") && sentence.contains("h.log.1"), "{sentence}");
    place.run("out", &["h.log.1", "h.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\nthree\n");
}

#[test]
fn a_middle_part_whose_number_has_zeros_in_front_is_missed() {
    for [first, second] in [["h.log.01", "h.log.02"], ["h.log.001.gz", "h.log.002"]] {
        let place = Place::new();
        place.write("h.log", b"one\n");
        place.run("out", &["h.log"], &[]);
        rename(&place, "h.log", second);
        place.write("h.log", b"three\n");
        let sentence = place.refuse("out", &["h.log"]);
        assert!(sentence.contains("h.log.1 is not there"), "{sentence}");
        place.write("two", b"two\n");
        gzip(&place, "two");
        rename(&place, "two.gz", first);
        place.run("out", &[first, "h.log"], &[]);
        assert_eq!(output(&place), "one\ntwo\nthree\n");
    }
}

#[test]
fn a_part_whose_date_looks_like_a_number_has_no_parts_before_it() {
    // The day in the year, and in its month.
    for days in [["329", "330"], ["1125", "1126"], ["0105", "0106"]] {
        let place = Place::new();
        place.write("h.log", b"one\n");
        place.run("out", &["h.log"], &[]);
        for (day, line) in days.into_iter().zip(["two\n", "three\n"]) {
            rename(&place, "h.log", &format!("h.log.{day}"));
            place.write("h.log", line.as_bytes());
            place.run("out", &["h.log"], &[]);
        }
        assert_eq!(output(&place), "one\ntwo\nthree\n");
    }
}

#[test]
fn a_middle_part_that_is_gone_is_passed_over_if_that_is_accepted() {
    let place = Place::new();
    place.write("h.log", b"one\n");
    place.run("out", &["h.log"], &[]);
    rename(&place, "h.log", "h.log.3");
    place.write("h.log", b"two\n");
    place.run("out", &["h.log"], &["--accept-missing"]);
    assert_eq!(output(&place), "one\ntwo\n");
}

#[test]
fn a_part_that_keeps_an_old_time_is_noticed() {
    let place = Place::new();
    place.write("h.log", b"one\n");
    place.run("out", &["h.log"], &[]);
    rename(&place, "h.log", "h.log.2");
    place.write("h.log.1", b"two\n");
    let part = File::options().write(true).open(place.path("h.log.1")).expect("it is there");
    let before = SystemTime::now() - Duration::from_secs(86_400);
    part.set_modified(before).expect("as cp --preserve does");
    place.write("h.log", b"three\n");
    let sentence = place.refuse("out", &["h.log"]);
    assert!(sentence.contains("no run has read") && sentence.contains("h.log.1"), "{sentence}");
}

#[test]
fn two_rotations_between_two_runs_name_the_part_that_no_run_has_seen() {
    let place = Place::new();
    place.write("h.log", b"one\n");
    place.run("out", &["h.log"], &[]);
    for (last, line) in [("h.log.1", "two\n"), ("h.log.1", "three\n")] {
        if fs::exists(place.path(last)).expect("a directory") {
            rename(&place, "h.log.1", "h.log.2");
        }
        rename(&place, "h.log", "h.log.1");
        place.write("h.log", line.as_bytes());
    }
    let sentence = place.refuse("out", &["h.log"]);
    let names = ["h.log.2", "h.log.1", "h.log"].map(|name| place.path(name));
    assert!(sentence.contains(&names.join(" ")), "{sentence}");
    place.run("out", &["h.log.2", "h.log.1", "h.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\nthree\n");
}

#[test]
fn an_empty_log_that_was_read_first_is_read_after_its_rotation() {
    let place = Place::new();
    place.write("h.log", b"");
    place.run("out", &["h.log"], &[]);
    place.append("h.log", b"one\n");
    rename(&place, "h.log", "h.log.1");
    place.write("h.log", b"two\n");
    place.run("out", &["h.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\n");
}

#[test]
fn each_input_may_grow_and_a_new_one_may_sort_in_front() {
    let place = Place::new();
    place.write("b", b"b1\n");
    place.write("c", b"c1\n");
    place.run("out", &["b", "c"], &[]);
    place.append("b", b"b2\n");
    place.append("c", b"c2\n");
    place.write("a", b"a1\n");
    place.run("out", &["a", "b", "c"], &[]);
    assert_eq!(output(&place), "b1\nc1\na1\nb2\nc2\n");
}

#[test]
fn a_log_that_was_copied_and_truncated_is_read_to_its_end_in_the_copy() {
    let place = Place::new();
    let first = "message 1 of the log\nmessage 2 of the log\nmessage 3 of the log\nmessage 4\n";
    place.write("h.log", first.as_bytes());
    place.run("out", &["h.log"], &[]);
    place.append("h.log", b"the end\n");
    fs::copy(place.path("h.log"), place.path("h.log.1")).expect("a copy");
    place.write("h.log", b"the next\n");
    place.run("out", &["h.log"], &[]);
    assert_eq!(output(&place), format!("{first}the end\nthe next\n"));
    gzip(&place, "h.log.1");
    place.run("out", &["h.log"], &[]);
    assert_eq!(output(&place), format!("{first}the end\nthe next\n"));
}

#[test]
fn a_copy_that_was_made_slowly_and_is_compressed_is_found() {
    let place = Place::new();
    let line = |number: u64| format!("message {number} of the log\n");
    let [one, two]: [String; 2] = [(0..30).map(line).collect(), (30..50).map(line).collect()];
    place.write("h.log", one.as_bytes());
    place.run("out", &["h.log"], &[]);
    place.write("h.log.1", &one.as_bytes()[..231]);
    place.run("out", &["h.log"], &[]);
    place.append("h.log", two.as_bytes());
    place.run("out", &["h.log"], &[]);
    place.append("h.log", b"the end\n");
    place.write("h.log.1", &place.read("h.log"));
    place.write("h.log", b"the next\n");
    let ended = Command::new("gzip").args(["-k", &place.path("h.log.1")]).status();
    assert!(ended.expect("gzip runs").success());
    place.run("out", &["h.log"], &[]);
    assert_eq!(output(&place), format!("{one}{two}the end\nthe next\n"));
}

#[test]
fn a_log_that_was_compressed_after_its_rotation_is_read_to_its_end() {
    let place = Place::new();
    place.write("h.log", b"one\n");
    place.run("out", &["h.log"], &[]);
    place.append("h.log", b"two\n");
    rename(&place, "h.log", "h.log.1");
    gzip(&place, "h.log.1");
    place.write("h.log", b"three\n");
    place.run("out", &["h.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\nthree\n");
}

#[test]
fn an_unfinished_line_waits_for_its_end_or_for_a_newer_file() {
    let place = Place::new();
    place.write("h.log", b"one\ntw");
    leaves(&place, "h.log", &[], 2);
    assert_eq!(output(&place), "one\n");
    place.append("h.log", b"o\nthr");
    leaves(&place, "h.log", &[], 3);
    assert_eq!(output(&place), "one\ntwo\n");
    rename(&place, "h.log", "h.log.1");
    place.write("h.log", b"four\nfi");
    leaves(&place, "h.log", &[], 2);
    assert_eq!(output(&place), "one\ntwo\nthr\nfour\n");
    place.run("out", &["h.log"], &["--complete"]);
    assert_eq!(output(&place), "one\ntwo\nthr\nfour\nfi\n");
}

#[test]
fn unfinished_records_of_tables_and_objects_wait_for_their_end() {
    let place = Place::new();
    let column = ["--csv-field", "id"];
    place.write("t.csv", b"id,text\n1,\"two\nlines\"\n2,\"half\n");
    leaves(&place, "t.csv", &column, 8);
    assert_eq!(output(&place), "id,text\n1,\"two\nlines\"\n");
    place.append("t.csv", b"a record\"\n");
    place.run("out", &["t.csv"], &column);
    assert_eq!(output(&place), "id,text\n1,\"two\nlines\"\n2,\"half\na record\"\n");

    let place = Place::new();
    let member = ["--json-field", "id", "--skip-bad"];
    place.write("o.json", b"{\"id\": 1}\n{\"id\":");
    leaves(&place, "o.json", &member, 6);
    place.append("o.json", b" 2}\n");
    place.run("out", &["o.json"], &member);
    assert_eq!(output(&place), "{\"id\": 1}\n{\"id\": 2}\n");
}

#[test]
fn inputs_read_anew_bring_no_second_header() {
    let place = Place::new();
    let column = ["--csv-field", "id"];
    place.write("t.csv", b"id\n1\n2\n");
    place.run("out", &["t.csv"], &column);
    place.write("u.csv", b"id\n2\n3\n");
    place.run("out", &["u.csv"], &["--csv-field", "id", "--new-input"]);
    assert_eq!(output(&place), "id\n1\n2\n3\n");
}

#[test]
fn a_state_has_places_for_62_inputs_and_uses_those_of_files_that_are_gone_again() {
    let place = Place::new();
    let name = |number: u64| format!("log-{number:06}");
    let names: Vec<String> = (0..63).map(name).collect();
    for name in &names {
        place.write(name, format!("of {name}\n").as_bytes());
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let sentence = place.refuse("out", &all);
    assert!(sentence.contains("at most 62 inputs"), "{sentence}");
    place.run("out", &all[..62], &[]);
    // The files are numbered: those in front of another one have come to their end.
    for name in &names[..20] {
        fs::remove_file(place.path(name)).expect("removed");
    }
    place.run("out", &all[20..], &[]);
    let text = output(&place);
    let expected: Vec<String> = names.iter().map(|name| format!("of {name}")).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn an_input_whose_place_another_one_took_is_refused_when_it_comes_back() {
    let place = Place::new();
    let names: Vec<String> = (0..63).map(|number| format!("log-{number:06}")).collect();
    for name in &names {
        place.write(name, format!("of {name}\n").as_bytes());
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    fs::create_dir(place.path("elsewhere")).expect("a directory");
    place.run("out", &all[..62], &[]);
    for name in &names[..20] {
        rename(&place, name, &format!("elsewhere/{name}"));
    }
    place.run("out", &all[20..], &[]);
    // It keeps its time, and its lines have been read.
    rename(&place, "elsewhere/log-000000", "log-000000");
    let sentence = place.refuse("out", &[&["log-000000"], &all[20..]].concat());
    assert!(sentence.contains("may be an input that was read long ago"), "{sentence}");
}

#[test]
fn an_input_that_was_abandoned_is_not_missed_again() {
    let place = Place::new();
    place.write("a.log", b"one\n");
    place.write("b.log", b"two\n");
    place.run("out", &["a.log", "b.log"], &[]);
    fs::remove_file(place.path("a.log")).expect("removed");
    let sentence = place.refuse("out", &["b.log"]);
    assert!(sentence.contains("neither among the inputs nor beside them"), "{sentence}");
    place.run("out", &["b.log"], &["--accept-missing"]);
    place.append("b.log", b"three\n");
    place.run("out", &["b.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\nthree\n");
}

#[test]
fn a_line_that_was_taken_without_its_end_stays_one_line_after_a_run_without_news() {
    for (rest, expected) in [("\nthree\n", Some("one\ntwo\nthree\n")), ("ice\nthree\n", None)] {
        let place = Place::new();
        place.write("h.log", b"one\ntwo");
        place.run("out", &["h.log"], &["--complete"]);
        assert_eq!(output(&place), "one\ntwo\n");
        place.run("out", &["h.log"], &[]);
        place.append("h.log", rest.as_bytes());
        match expected {
            Some(expected) => {
                place.run("out", &["h.log"], &[]);
                assert_eq!(output(&place), expected);
            }
            None => {
                let sentence = place.refuse("out", &["h.log"]);
                assert!(sentence.contains("continues its last line"), "{sentence}");
            }
        }
    }
}

/// Such a state has one place for all inputs: the inode of the last one, the offset in it, its
/// lines, and the checksum of the last bytes; and of the output the inode and the length.
#[test]
fn a_state_of_the_version_before_is_continued() {
    for grown in [false, true] {
        let place = Place::new();
        place.write("first", b"one\ntwo\n");
        place.write("second", b"three\nfour\n");
        place.write("out", b"one\ntwo\nthree\n");
        let kind = Any::new("fingerprint", Parameters::new().with("window-items", 5000));
        let options = Options::new().hash_seed(7);
        let filter = Filter::create(place.path("out.state"), kind, options).expect("a filter");
        let inode = |name: &str| fs::metadata(place.path(name)).expect("a file").ino();
        let mut batch = filter.batch();
        for line in ["one", "two", "three"] {
            batch.check_and_insert(line).expect("a key");
        }
        let place_in_second = [inode("second"), 6, 2, u64::from(crc32fast::hash(b"three\n"))];
        let values = [[inode("out"), 14].as_slice(), &place_in_second].concat();
        for (source, value) in (0..).map(|at| u64::MAX - at).zip(values) {
            batch.set_position(source, value).expect("a position");
        }
        batch.commit().expect("space");
        filter.close().expect("closed");
        if grown {
            place.append("second", b"five\n");
        }
        place.run("out", &["first", "second"], &[]);
        let five = if grown { "five\n" } else { "" };
        assert_eq!(output(&place), format!("one\ntwo\nthree\nfour\n{five}"));
        place.append("first", b"late\n");
        place.run("out", &["first", "second"], &[]);
        assert_eq!(output(&place), format!("one\ntwo\nthree\nfour\n{five}late\n"));
    }
}

#[test]
fn a_live_log_whose_name_looks_like_a_rotation_keeps_its_unfinished_line() {
    for name in ["app-2.log", "app.1.log", "app_12.log"] {
        let place = Place::new();
        place.write("app.log", b"a\n");
        place.write(name, b"b\nhalf");
        place.append("app.log", b"c\n");
        let arguments = place.arguments("out", &["app.log", name], &[]);
        for _ in 0..2 {
            let outcome = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), b"");
            assert!(outcome.stderr.contains("4 bytes behind byte 2 are left"), "{outcome:?}");
            place.append("app.log", b"d\n");
        }
        place.append(name, b"-rest\n");
        place.run("out", &["app.log", name], &[]);
        assert_eq!(output(&place), "a\nc\nb\nd\nhalf-rest\n");
        // Nor may it disappear: lines may have come before it did.
        fs::remove_file(place.path(name)).expect("removed");
        place.write(name, b"other\n");
        let sentence = place.refuse("out", &["app.log", name]);
        assert!(sentence.contains("--accept-missing"), "{sentence}");
    }
}

#[test]
fn a_log_that_was_renamed_ends_when_a_newer_file_has_its_name() {
    let place = Place::new();
    place.write("app.log", b"one\nhal");
    leaves(&place, "app.log", &[], 3);
    rename(&place, "app.log", "app-2.log");
    place.write("app.log", b"two\n");
    place.run("out", &["app.log"], &[]);
    assert_eq!(output(&place), "one\nhal\ntwo\n");
}

#[test]
fn a_file_that_was_left_out_stays_out_when_it_grows() {
    let place = Place::new();
    place.write("h.log", b"one\n");
    place.write("h-2.log", b"other\n");
    let left_out = place.path("h-2.log");
    place.run("out", &["h.log"], &["--leave-out", &left_out]);
    for more in [&["--leave-out", &left_out][..], &[]] {
        place.append("h-2.log", b"another\n");
        place.append("h.log", b"two\n");
        place.run("out", &["h.log"], more);
        assert_eq!(output(&place), "one\ntwo\n");
    }
    // Also if all names are given.
    place.append("h.log", b"three\n");
    place.run("out", &["h-2.log", "h.log"], &["--leave-out", &left_out]);
    assert_eq!(output(&place), "one\ntwo\nthree\n");
}

#[test]
fn a_file_that_was_left_out_in_the_middle_of_a_line_is_read_from_its_beginning() {
    let place = Place::new();
    place.write("h.log", b"one\n");
    place.write("h-2.log", b"other\nhal");
    place.run("out", &["h.log"], &["--leave-out", &place.path("h-2.log")]);
    place.append("h-2.log", b"f\nnext\n");
    place.run("out", &["h-2.log", "h.log"], &[]);
    assert_eq!(output(&place), "one\nhalf\nnext\n");
}

#[test]
fn an_input_that_is_left_out_later_is_read_no_further() {
    let place = Place::new();
    place.write("h.log", b"one\n");
    place.run("out", &["h.log"], &[]);
    place.append("h.log", b"two\n");
    rename(&place, "h.log", "h.log.1");
    place.write("h.log", b"three\n");
    place.run("out", &["h.log"], &["--leave-out", &place.path("h.log.1")]);
    assert_eq!(output(&place), "one\nthree\n");
}

#[test]
fn a_part_that_was_read_to_its_end_may_go_after_a_time_without_lines() {
    let place = Place::new();
    place.write("h.log.1", b"one\n");
    place.write("h.log", b"two\n");
    place.run("out", &["h.log.1", "h.log"], &[]);
    rename(&place, "h.log.1", "h.log.2");
    rename(&place, "h.log", "h.log.1");
    place.write("h.log", b"");
    let all = ["h.log.2", "h.log.1", "h.log"];
    place.run("out", &all, &[]);
    place.run("out", &all, &[]);
    fs::remove_file(place.path("h.log.2")).expect("removed");
    rename(&place, "h.log.1", "h.log.2");
    rename(&place, "h.log", "h.log.1");
    place.write("h.log", b"three\n");
    place.run("out", &all, &[]);
    assert_eq!(output(&place), "one\ntwo\nthree\n");
}

#[test]
fn a_part_with_the_number_zero_that_is_gone_is_named_once_a_run_has_seen_one() {
    let place = Place::new();
    place.write("h.log.0", b"one\n");
    place.write("h.log", b"two\n");
    place.run("out", &["h.log.0", "h.log"], &[]);
    rename(&place, "h.log.0", "h.log.2");
    rename(&place, "h.log", "h.log.1");
    place.write("h.log", b"four\n");
    let sentence = place.refuse("out", &["h.log"]);
    assert!(sentence.contains("h.log.0 is not there"), "{sentence}");
}

#[test]
fn blank_lines_at_the_end_of_a_table_are_no_unfinished_line() {
    let column = ["--csv-field", "id"];
    for blank in ["\n", "\n\n\n", "\r\n", "\r\n\n"] {
        let place = Place::new();
        place.write("t.csv", format!("id,n\n1,x\n{blank}").as_bytes());
        place.run("out", &["t.csv"], &column);
        place.append("t.csv", b"\n2,y\n3,z");
        leaves(&place, "t.csv", &column, 3);
        assert_eq!(output(&place), "id,n\n1,x\n2,y\n");
    }
}

/// Lines are kept until they are recorded: not more than some of the longest ones.
#[test]
#[cfg(target_os = "linux")]
fn the_memory_of_a_run_does_not_grow_with_the_number_of_long_lines() {
    const LINE: usize = 1 << 20;
    let place = Place::new();
    let lines: Vec<u8> =
        (0..128_u8).flat_map(|number| [&vec![number + 128; LINE][..], b"\n"].concat()).collect();
    place.write("log", &lines);
    let arguments = place.arguments("out", &["log"], &["--durability", "never"]);
    let mut child =
        crate::support::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let mut peak = 0;
    let status = format!("/proc/{}/status", child.id());
    while child.try_wait().expect("a status").is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let kib = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = kib.and_then(|kib| kib.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(kib.unwrap_or(0_u64));
    }
    assert!(place.read("out") == lines);
    assert!((1..96 << 10).contains(&peak), "{peak} KiB");
}

#[test]
fn the_output_is_the_same_for_every_size_of_the_pieces() {
    let place = Place::new();
    place.write("log", &crate::exactly_once::lines(20_000, 10));
    for window in ["50", "1000"] {
        let path = place.path("log");
        let plain = ["dedup", "--last", window, "--hash-seed", "7", &path];
        let expected = crate::support::ok(&plain, b"").stdout;
        assert!(expected.len() > 10_000);
        for batch in ["1", "7", "999", "65536"] {
            let [state, out] =
                ["state", "out"].map(|of| place.path(&format!("{of}-{batch}-{window}")));
            let words = ["--batch", batch, "--state", &state, "--output", &out];
            crate::support::ok(&[&plain[..], &words, &["--durability", "never"]].concat(), b"");
            let found = fs::read(&out).expect("the output");
            assert!(found == expected, "pieces of {batch}, a window of {window}");
        }
    }
}
