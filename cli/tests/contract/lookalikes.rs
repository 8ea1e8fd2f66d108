//! Files that look like inputs of `dedup --output` and are none, and inputs that do not look like
//! it: other rotations than those of numbers and dates, and files that begin with the same header.

use crate::exactly_once::Place;
use crate::support::{ok, skipped};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, SystemTime};

fn output(place: &Place) -> String {
    String::from_utf8(place.read("out")).expect("UTF-8")
}

fn rename(place: &Place, from: &str, to: &str) {
    fs::rename(place.path(from), place.path(to)).expect("renamed");
}

/// Waits until the clock of the files has advanced.
fn tick() {
    std::thread::sleep(Duration::from_millis(20));
}

fn gzip(place: &Place, from: &str, to: &str) {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&place.read(from)).expect("memory");
    place.write(to, &packed.finish().expect("memory"));
    fs::remove_file(place.path(from)).expect("removed");
}

#[test]
fn a_part_that_a_rotation_of_an_unknown_kind_has_made_is_not_passed_over() {
    let tai = ["@40000000678f1a2b0a1b2c3d.s", "@40000000678f1a3c1b2c3d4e.s"];
    let dates = ["20261124_current", "20261125_current"];
    for ([first, second], more) in
        [(tai, &[][..]), (dates, &[]), (["current.Tue", "current.Wed"], &["--complete"])]
    {
        let place = Place::new();
        place.write("current", b"one\n");
        place.run("out", &["current"], more);
        tick();
        rename(&place, "current", first);
        place.write(second, b"two\nhal");
        tick();
        place.write("current", b"three\n");
        let sentence = place.refuse_with("out", &["current"], more);
        assert!(sentence.contains("no run has read"), "{sentence}");
        let (_, order) = sentence.split_once("in this order: ").expect("an order");
        let [two, three] = [second, "current"].map(|name| place.path(name));
        assert!(order.contains(&format!("{two} {three}")), "{sentence}");
        place.run("out", &[second, "current"], &["--complete"]);
        assert_eq!(output(&place), "one\ntwo\nhal\nthree\n");
        // Nothing is asked for again.
        rename(&place, "current", "@40000000678f1a4d1b2c3d4e.s");
        place.write("current", b"four\n");
        place.run("out", &["current"], &[]);
        assert_eq!(output(&place), "one\ntwo\nhal\nthree\nfour\n");
    }
}

#[test]
fn a_part_of_an_unknown_rotation_ends_when_the_log_follows() {
    let place = Place::new();
    place.write("current", b"one\n");
    place.run("out", &["current"], &[]);
    tick();
    rename(&place, "current", "@40000000678f1a2b0a1b2c3d.s");
    place.write("@40000000678f1a3c1b2c3d4e.s", b"two\nhal");
    tick();
    place.write("current", b"three\n");
    place.run("out", &["@40000000678f1a3c1b2c3d4e.s", "current"], &[]);
    assert_eq!(output(&place), "one\ntwo\nhal\nthree\n");
    // What it has made may go.
    for name in ["@40000000678f1a2b0a1b2c3d.s", "@40000000678f1a3c1b2c3d4e.s"] {
        fs::remove_file(place.path(name)).expect("removed");
    }
    place.append("current", b"four\n");
    place.run("out", &["current"], &[]);
    assert_eq!(output(&place), "one\ntwo\nhal\nthree\nfour\n");
}

#[test]
fn a_part_with_an_unknown_ending_is_named_and_may_be_left_out() {
    for part in ["h.log.1.lzma", "h-20261125.log.zip", "h.log.2026-11-25.br"] {
        let place = Place::new();
        place.write(part, b"packed");
        place.write("h.log", b"two\n");
        let sentence = place.refuse("out", &["h.log"]);
        let is_named = sentence.contains(&place.path(part)) && sentence.contains("--leave-out");
        assert!(is_named && sentence.contains("not read"), "{sentence}");
        place.run("out", &["h.log"], &["--leave-out", &place.path(part)]);
        place.append("h.log", b"three\n");
        place.run("out", &["h.log"], &[]);
        assert_eq!(output(&place), "two\nthree\n");
    }
    // What it was made from is there.
    let place = Place::new();
    place.write("h.log.1", b"one\n");
    place.write("h.log.1.lzma", b"packed");
    place.write("h.log.1.md5", b"a sum");
    place.write("h.log", b"two\n");
    place.run("out", &["h.log.1", "h.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\n");
    // Also in a format that is read.
    let place = Place::new();
    place.write("h.log.1", b"one\n");
    gzip(&place, "h.log.1", "h.log.1.gz");
    place.write("h.log.1.note", b"of somebody");
    place.write("h.log.2.gz.tmp", b"being made");
    place.write("h.log", b"two\n");
    place.run("out", &["h.log.1.gz", "h.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\n");
}

#[test]
fn a_log_of_its_own_is_no_part_of_one_that_was_renamed_by_hand() {
    let place = Place::new();
    place.write("app.log", b"one\n");
    if fs::metadata(place.path("app.log")).and_then(|file| file.created()).is_err() {
        skipped("files have no time of creation here");
        return;
    }
    place.write("app-audit.log", b"of another service\n");
    tick();
    place.run("out", &["app.log"], &[]);
    tick();
    rename(&place, "app.log", "app-before-upgrade.log");
    place.write("app.log", b"two\n");
    place.append("app-audit.log", b"and more\n");
    place.run("out", &["app.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\n");
}

#[test]
fn a_short_input_that_was_replaced_by_a_longer_one_is_continued_if_that_is_accepted() {
    let place = Place::new();
    place.write("h.log", b"one\n");
    place.run("out", &["h.log"], &[]);
    tick();
    place.write("new", b"one\ntwo\n");
    rename(&place, "new", "h.log");
    let sentence = place.refuse("out", &["h.log"]);
    let is_named = sentence.contains("continues behind what was read");
    assert!(is_named && !sentence.contains("the name that it had"), "{sentence}");
    place.run("out", &["h.log"], &["--accept-missing"]);
    assert_eq!(output(&place), "one\ntwo\n");
}

const HEADER: &str =
    "order_id,customer_id,created_at,updated_at,status,amount,currency,country,source\n";
const COLUMN: [&str; 2] = ["--csv-field", "order_id"];

#[test]
fn a_file_with_the_same_header_is_not_taken_for_one_that_is_gone() {
    // The next of a series, and another file of the same name.
    for next in ["export-20261125.csv", "export-20261124.csv", "export-20261125.csv.gz"] {
        let place = Place::new();
        let first = "export-20261124.csv";
        place.write(first, HEADER.as_bytes());
        place.run("out", &[first], &COLUMN);
        place.append(first, b"1,a\n");
        fs::create_dir(place.path("archive")).expect("a directory");
        rename(&place, first, "archive/first.csv");
        tick();
        place.write("next", format!("{HEADER}2,b\n").as_bytes());
        match next.ends_with(".gz") {
            true => gzip(&place, "next", next),
            false => rename(&place, "next", next),
        }
        let sentence = place.refuse_with("out", &[next], &COLUMN);
        assert!(sentence.contains("neither among the inputs"), "{sentence}");
        let alike = format!("{} begins like it", place.path(next));
        assert!(sentence.contains(&alike), "{sentence}");
        place.run("out", &["archive/first.csv", next], &COLUMN);
        assert_eq!(output(&place), format!("{HEADER}1,a\n2,b\n"));
    }
}

#[test]
fn a_file_left_out_that_is_gone_leaves_out_no_other_with_its_header() {
    let place = Place::new();
    place.write("h-20261124.csv", HEADER.as_bytes());
    place.write("h.csv", format!("{HEADER}1,a\n").as_bytes());
    let left_out = place.path("h-20261124.csv");
    place.run("out", &["h.csv"], &[&COLUMN[..], &["--leave-out", &left_out]].concat());
    fs::remove_file(left_out).expect("removed");
    rename(&place, "h.csv", "h-20261125.csv");
    place.write("h-20261126.csv", format!("{HEADER}2,a\n").as_bytes());
    tick();
    place.write("h.csv", format!("{HEADER}3,a\n").as_bytes());
    let sentence = place.refuse_with("out", &["h.csv"], &COLUMN);
    assert!(sentence.contains("no run has read") && sentence.contains("h-20261126.csv"));
    place.run("out", &["h-20261126.csv", "h.csv"], &COLUMN);
    assert_eq!(output(&place), format!("{HEADER}1,a\n2,a\n3,a\n"));
}

#[test]
fn a_header_that_was_left_out_leaves_out_no_compressed_part() {
    let place = Place::new();
    place.write("h.csv.3", HEADER.as_bytes());
    gzip(&place, "h.csv.3", "h.csv.3.gz");
    place.write("h.csv", format!("{HEADER}1,a\n").as_bytes());
    let left_out = place.path("h.csv.3.gz");
    place.run("out", &["h.csv"], &[&COLUMN[..], &["--leave-out", &left_out]].concat());
    fs::remove_file(left_out).expect("removed");
    tick();
    // Two rotations.
    gzip(&place, "h.csv", "h.csv.2.gz");
    place.write("h.csv", format!("{HEADER}2,a\n").as_bytes());
    gzip(&place, "h.csv", "h.csv.1.gz");
    tick();
    place.write("h.csv", format!("{HEADER}3,a\n").as_bytes());
    let sentence = place.refuse_with("out", &["h.csv"], &COLUMN);
    let is_named = format!("no run has read {}", place.path("h.csv.1.gz"));
    assert!(sentence.contains(&is_named), "{sentence}");
    place.run("out", &["h.csv.2.gz", "h.csv.1.gz", "h.csv"], &COLUMN);
    assert_eq!(output(&place), format!("{HEADER}1,a\n2,a\n3,a\n"));
}

#[test]
fn a_copy_of_a_header_leaves_out_no_later_part() {
    let place = Place::new();
    place.write("h.csv", HEADER.as_bytes());
    place.run("out", &["h.csv"], &COLUMN);
    tick();
    // A day without rows; the log was copied and truncated, and has its header again.
    place.write("h.csv.1", HEADER.as_bytes());
    place.run("out", &["h.csv"], &COLUMN);
    fs::remove_file(place.path("h.csv.1")).expect("removed");
    tick();
    place.write("h.csv.1", format!("{HEADER}1,a\n").as_bytes());
    gzip(&place, "h.csv.1", "h.csv.1.gz");
    place.write("h.csv", format!("{HEADER}2,a\n").as_bytes());
    let sentence = place.refuse_with("out", &["h.csv"], &COLUMN);
    let is_named = format!("no run has read {}", place.path("h.csv.1.gz"));
    assert!(sentence.contains(&is_named), "{sentence}");
    place.run("out", &["h.csv.1.gz", "h.csv"], &COLUMN);
    assert_eq!(output(&place), format!("{HEADER}1,a\n2,a\n"));
}

#[test]
fn a_log_is_found_in_its_compressed_part_though_the_new_one_has_its_header() {
    for lines in [0, 300] {
        let place = Place::new();
        let rows: String = (0..lines).map(|row| format!("{row},of the first log\n")).collect();
        place.write("h.csv", format!("{HEADER}{rows}").as_bytes());
        place.run("out", &["h.csv"], &COLUMN);
        place.append("h.csv", b"1000,a\n");
        gzip(&place, "h.csv", "h.csv.1.gz");
        tick();
        place.write("h.csv", format!("{HEADER}{rows}2000,b\n").as_bytes());
        place.run("out", &["h.csv.1.gz", "h.csv"], &COLUMN);
        assert_eq!(output(&place), format!("{HEADER}{rows}1000,a\n2000,b\n"));
    }
}

#[test]
fn a_new_log_that_has_only_the_header_of_a_part_that_is_gone_is_missed_when_it_is_gone() {
    let place = Place::new();
    place.write("h.csv", HEADER.as_bytes());
    place.run("out", &["h.csv"], &COLUMN);
    rename(&place, "h.csv", "h.csv.1");
    tick();
    place.write("h.csv", format!("{HEADER}1,a\n").as_bytes());
    place.run("out", &["h.csv"], &COLUMN);
    // The part was read to its end and may go. The new log is as long as it was.
    tick();
    place.write("next", HEADER.as_bytes());
    fs::remove_file(place.path("h.csv.1")).expect("removed");
    rename(&place, "h.csv", "h.csv.1");
    rename(&place, "next", "h.csv");
    place.run("out", &["h.csv"], &COLUMN);
    place.append("h.csv", b"2,b\n");
    fs::create_dir(place.path("archive")).expect("a directory");
    rename(&place, "h.csv", "archive/first.csv");
    tick();
    place.write("h.csv", format!("{HEADER}3,c\n").as_bytes());
    let sentence = place.refuse_with("out", &["h.csv"], &COLUMN);
    assert!(sentence.contains("neither among the inputs"), "{sentence}");
    place.run("out", &["archive/first.csv", "h.csv"], &COLUMN);
    assert_eq!(output(&place), format!("{HEADER}1,a\n2,b\n3,c\n"));
}

/// Runs with the log, the state of `out`, and another output.
fn into(place: &Place, output: &str, more: &[&str]) -> String {
    let mut words = place.arguments("out", &["h.csv"], &[&COLUMN[..], more].concat());
    let at = words.iter().position(|word| *word == place.path("out")).expect("the output");
    words[at] = place.path(output);
    ok(&words.iter().map(String::as_str).collect::<Vec<_>>(), b"");
    String::from_utf8(place.read(output)).expect("UTF-8")
}

#[test]
fn a_log_with_another_header_than_the_output_is_refused_in_every_run_and_goes_to_another_output() {
    let wide = HEADER.replace('\n', ",region\n");
    for packed in [false, true] {
        let place = Place::new();
        place.write("h.csv", format!("{HEADER}1,a\n").as_bytes());
        place.run("out", &["h.csv"], &COLUMN);
        let mut expected = format!("{HEADER}1,a\n");
        if packed {
            // What was read of it is in front of the log in every run.
            gzip(&place, "h.csv", "h.csv.1.gz");
            tick();
            place.write("h.csv", format!("{HEADER}2,b\n").as_bytes());
            place.run("out", &["h.csv"], &COLUMN);
            rename(&place, "h.csv.1.gz", "h.csv.2.gz");
            expected += "2,b\n";
        }
        place.append("h.csv", b"3,c\n");
        rename(&place, "h.csv", "h.csv.1");
        tick();
        place.write("h.csv", format!("{wide}4,d,north\n").as_bytes());
        for _ in 0..2 {
            let sentence = place.refuse_with("out", &["h.csv"], &COLUMN);
            let named = format!("{}: expected the header", place.path("h.csv"));
            assert!(sentence.contains(&named) && sentence.contains("--adopt-output"), "{sentence}");
            assert_eq!(output(&place), format!("{expected}3,c\n"));
        }
        assert_eq!(into(&place, "wide", &["--adopt-output"]), format!("{wide}4,d,north\n"));
        place.append("h.csv", b"5,e,south\n");
        assert_eq!(into(&place, "wide", &[]), format!("{wide}4,d,north\n5,e,south\n"));
    }
}

#[test]
fn a_second_header_is_refused_in_the_words_of_an_output_without_headers() {
    let place = Place::new();
    let wide = HEADER.replace('\n', ",region\n");
    place.write("a.csv", format!("{HEADER}1,a\n").as_bytes());
    place.write("b.csv", format!("{wide}2,b,north\n").as_bytes());
    let omitted = [&COLUMN[..], &["--omit-header"]].concat();
    let sentence = place.refuse_with("out", &["a.csv", "b.csv"], &omitted);
    let named = format!("{}: expected the header of the first file, found", place.path("b.csv"));
    assert!(sentence.contains(&named) && !sentence.contains("--omit-header"), "{sentence}");
    assert_eq!(output(&place), "1,a\n");
    place.run("out", &["b.csv"], &omitted);
    assert_eq!(output(&place), "1,a\n2,b,north\n");
}

#[test]
fn headers_that_differ_in_the_marks_of_a_system_are_those_of_one_table() {
    let headers = [HEADER.to_owned(), HEADER.replace('\n', "\r\n"), format!("\u{feff}{HEADER}")];
    for first in &headers {
        let place = Place::new();
        place.write("a.csv", format!("{first}1,a\n").as_bytes());
        place.run("out", &["a.csv"], &COLUMN);
        let mut expected = format!("{first}1,a\n");
        for (name, header) in ["b.csv", "c.csv", "d.csv"].into_iter().zip(&headers) {
            place.write(name, format!("{header}{name},b\n").as_bytes());
            place.run("out", &[name], &COLUMN);
            expected += &format!("{name},b\n");
            assert_eq!(output(&place), expected);
        }
    }
}

#[test]
fn logs_of_several_directories_of_which_only_the_header_was_read_are_found() {
    let place = Place::new();
    let logs = ["web1/h.csv", "web2/h.csv", "web3/h.csv"];
    for (log, directory) in logs.iter().zip(["web1", "web2", "web3"]) {
        fs::create_dir(place.path(directory)).expect("a directory");
        place.write(log, HEADER.as_bytes());
    }
    place.run("out", &logs, &COLUMN);
    for (log, row) in logs.iter().zip(["1,a\n", "2,b\n", "3,c\n"]) {
        place.append(log, row.as_bytes());
        gzip(&place, log, &format!("{log}.1.gz"));
        tick();
        place.write(log, HEADER.as_bytes());
    }
    // Two parts of one log are not those of two logs.
    rename(&place, "web2/h.csv.1.gz", "elsewhere");
    place.write("web1/h.csv.2", format!("{HEADER}4,d\n").as_bytes());
    gzip(&place, "web1/h.csv.2", "web1/h.csv.2.gz");
    let sentence = place.refuse_with("out", &logs, &COLUMN);
    assert!(sentence.contains("neither among the inputs nor beside them"), "{sentence}");
    rename(&place, "elsewhere", "web2/h.csv.1.gz");
    let sentence = place.refuse_with("out", &logs, &COLUMN);
    let is_named = format!("no run has read {},", place.path("web1/h.csv.1.gz"));
    assert!(sentence.contains(&is_named), "{sentence}");
    fs::remove_file(place.path("web1/h.csv.2.gz")).expect("removed");
    place.run("out", &logs, &COLUMN);
    assert_eq!(output(&place), format!("{HEADER}1,a\n2,b\n3,c\n"));
}

/// Reads the header of a log, which is then rotated twice: compressed to `first`, renamed to
/// `second`.
fn rotated_twice(first: &str, second: &str) -> Place {
    let place = Place::new();
    place.write("h.csv", HEADER.as_bytes());
    place.run("out", &["h.csv"], &COLUMN);
    place.append("h.csv", b"1,a\n2,b\n");
    tick();
    gzip(&place, "h.csv", first);
    tick();
    place.write("h.csv", format!("{HEADER}3,c\n4,d\n").as_bytes());
    tick();
    rename(&place, "h.csv", second);
    place.write("h.csv", format!("{HEADER}5,e\n").as_bytes());
    place
}

#[test]
fn two_parts_of_a_log_of_which_only_the_header_was_read_are_named_in_their_order() {
    let dates = ["h.csv-20261101.gz", "h.csv-20261102"];
    for [first, second] in [dates, ["h.csv.2.gz", "h.csv.1"]] {
        let all = [first, second, "h.csv"];
        let begin = || {
            let place = rotated_twice(first, second);
            for more in [&[][..], &["--accept-missing"]] {
                let more = [&COLUMN[..], more].concat();
                let sentence = place.refuse_with("out", &["h.csv"], &more);
                let order = all.map(|name| place.path(name)).join(" ");
                let said = format!(
                    "no run has read {}, which by name and time may be earlier parts of the \
                     inputs; give the inputs in this order: {order}, or",
                    place.path(second)
                );
                assert!(sentence.contains(&said), "{sentence}");
            }
            place
        };
        let place = begin();
        place.run("out", &all, &COLUMN);
        assert_eq!(output(&place), format!("{HEADER}1,a\n2,b\n3,c\n4,d\n5,e\n"));
        let place = begin();
        let left_out = place.path(second);
        place.run("out", &["h.csv"], &[&COLUMN[..], &["--leave-out", &left_out]].concat());
        assert_eq!(output(&place), format!("{HEADER}1,a\n2,b\n5,e\n"));
        // Without the first one: that is named then.
        let place = begin();
        let sentence = place.refuse_with("out", &all[1..], &COLUMN);
        let said = format!("no run has read {},", place.path(first));
        assert!(sentence.contains(&said), "{sentence}");
        place.run("out", &all, &COLUMN);
        assert_eq!(output(&place), format!("{HEADER}1,a\n2,b\n3,c\n4,d\n5,e\n"));
    }
}

#[test]
fn files_of_which_any_may_be_the_input_are_read_in_two_runs() {
    let place = rotated_twice("h-1.csv.gz", "h-2.csv");
    let sentence = place.refuse_with("out", &["h.csv"], &COLUMN);
    assert!(sentence.contains("more than one file begins like it"), "{sentence}");
    assert!(sentence.contains("give those of them that are wanted to the next run"), "{sentence}");
    fs::create_dir(place.path("away")).expect("a directory");
    rename(&place, "h-2.csv", "away/h-2.csv");
    place.run("out", &["h.csv"], &COLUMN);
    place.run("out", &["away/h-2.csv", "h.csv"], &COLUMN);
    assert_eq!(output(&place), format!("{HEADER}1,a\n2,b\n5,e\n3,c\n4,d\n"));
}

#[test]
fn a_long_input_is_found_under_any_name_also_if_it_was_copied_and_has_grown() {
    let place = Place::new();
    let lines: String = (0..300).map(|line| format!("the line {line} of the log\n")).collect();
    place.write("from-a-server.log", lines.as_bytes());
    place.run("out", &["from-a-server.log"], &[]);
    fs::remove_file(place.path("from-a-server.log")).expect("removed");
    tick();
    // As rsync does: another file, under the name of the former one.
    place.write("from-a-server.log", format!("{lines}more\n").as_bytes());
    place.run("out", &["from-a-server.log"], &[]);
    fs::remove_file(place.path("from-a-server.log")).expect("removed");
    place.write("moved.log", format!("{lines}more\nand more\n").as_bytes());
    place.run("out", &["moved.log"], &[]);
    assert_eq!(output(&place), format!("{lines}more\nand more\n"));
}

/// Writes parts of a log in this order, and the log; returns the order that a refusal names.
fn order(place: &Place, parts: &[&str]) -> String {
    let now = SystemTime::now();
    for (age, part) in (0..).zip(parts) {
        place.write(part, format!("part {age}\n").as_bytes());
        let file = File::options().write(true).open(place.path(part)).expect("it is there");
        file.set_modified(now - Duration::from_secs(100 - age)).expect("a time");
    }
    place.write("h.log", b"the log\n");
    let sentence = place.refuse("out", &["h.log"]);
    let (_, order) = sentence.split_once("in this order: ").expect("an order");
    let (order, _) = order.split_once(", or").expect("an alternative");
    order.replace(&place.path(""), "")
}

#[test]
fn numbers_that_grow_with_the_time_are_named_in_the_order_of_the_times() {
    let up = ["h.log.1", "h.log.2", "h.log.3"];
    assert_eq!(order(&Place::new(), &up), "h.log.1 h.log.2 h.log.3 h.log");
    let down = ["h.log.3", "h.log.2", "h.log.1"];
    assert_eq!(order(&Place::new(), &down), "h.log.3 h.log.2 h.log.1 h.log");
    // Of parts that were copied, the times tell nothing.
    let mixed = ["h.log.2", "h.log.3", "h.log.1"];
    assert_eq!(order(&Place::new(), &mixed), "h.log.3 h.log.2 h.log.1 h.log");
}

#[test]
fn a_part_with_the_number_zero_is_named_before_its_log() {
    let parts = ["h.log.2", "h.log.1", "h.log.0"];
    assert_eq!(order(&Place::new(), &parts), "h.log.2 h.log.1 h.log.0 h.log");
    assert_eq!(order(&Place::new(), &parts[2..]), "h.log.0 h.log");
}

#[test]
fn a_part_with_a_date_that_was_written_when_its_log_was_is_named_before_it() {
    let place = Place::new();
    let now = SystemTime::now();
    let names = ["h.log-20261124", "h.log-20261125", "h.log"];
    for (name, age) in names.into_iter().zip([9, 0, 0]) {
        place.write(name, format!("of {name}\n").as_bytes());
        let file = File::options().write(true).open(place.path(name)).expect("it is there");
        file.set_modified(now - Duration::from_secs(100 + age)).expect("a time");
    }
    let sentence = place.refuse("out", &["h.log"]);
    let order = names.map(|name| place.path(name)).join(" ");
    assert!(sentence.contains(&format!("in this order: {order}, or")), "{sentence}");
}

#[test]
fn a_rotation_that_begins_with_a_larger_number_is_followed_once_that_is_accepted() {
    let place = Place::new();
    place.write("h.log", b"one\n");
    place.run("out", &["h.log"], &[]);
    rename(&place, "h.log", "h.log.3");
    place.write("h.log", b"two\n");
    let sentence = place.refuse("out", &["h.log"]);
    assert!(sentence.contains("h.log.1 is not there"), "{sentence}");
    place.run("out", &["h.log"], &["--accept-missing"]);
    rename(&place, "h.log.3", "h.log.4");
    rename(&place, "h.log", "h.log.3");
    place.append("h.log.3", b"more\n");
    place.write("h.log", b"three\n");
    place.run("out", &["h.log"], &[]);
    assert_eq!(output(&place), "one\ntwo\nmore\nthree\n");
    // Two rotations, of which a part is gone.
    rename(&place, "h.log.4", "h.log.6");
    rename(&place, "h.log.3", "h.log.5");
    rename(&place, "h.log", "h.log.4");
    place.write("h.log", b"five\n");
    let sentence = place.refuse("out", &["h.log"]);
    assert!(sentence.contains("is not there"), "{sentence}");
}
