//! Files of `dedup --output` that begin with all lines of an input that was read to its end and is
//! gone: another log or export with the same lines, or that input.

use crate::exactly_once::Place;
use crate::support::ok;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write;

/// Runs with a window of one message: what was read long ago is printed again.
fn run(place: &Place, inputs: &[&str]) {
    let mut words = place.arguments("out", inputs, &[]);
    let last = words.iter_mut().find(|word| **word == "5000").expect("a window");
    *last = "1".to_owned();
    ok(&words.iter().map(String::as_str).collect::<Vec<_>>(), b"");
}

fn output(place: &Place) -> String {
    String::from_utf8(place.read("out")).expect("UTF-8")
}

fn rename(place: &Place, from: &str, to: &str) {
    fs::rename(place.path(from), place.path(to)).expect("renamed");
}

/// Waits until the clock of the files has advanced.
fn tick() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

fn gzip(place: &Place, from: &str, to: &str) {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&place.read(from)).expect("memory");
    place.write(to, &packed.finish().expect("memory"));
    fs::remove_file(place.path(from)).expect("removed");
}

/// Lines that are written by each start of a service.
const START: &str = "the service starts, with its usual settings\nit listens on the usual port\n";

#[test]
fn a_new_log_that_begins_with_all_lines_of_a_removed_part_is_read_from_its_beginning() {
    let place = Place::new();
    let run = || run(&place, &["h.log"]);
    let mut expected = START.to_owned();
    place.write("h.log", START.as_bytes());
    run();
    for day in 2..5 {
        if fs::exists(place.path("h.log.2")).expect("a directory") {
            fs::remove_file(place.path("h.log.2")).expect("removed");
        }
        if day > 2 {
            rename(&place, "h.log.1", "h.log.2");
        }
        rename(&place, "h.log", "h.log.1");
        tick();
        let more = if day < 4 { format!("of day {day}\n") } else { START.to_owned() };
        place.write("h.log", more.as_bytes());
        run();
        expected += &more;
    }
    assert_eq!(output(&place), expected);
}

#[test]
fn exports_that_begin_with_all_rows_of_a_removed_one_are_read_from_their_beginning() {
    for (rows, ending) in [(2, ""), (2, ".gz"), (400, ""), (400, ".gz")] {
        let place = Place::new();
        let of = |rows: u64| (0..rows).map(|row| format!("the row {row}\n")).collect::<String>();
        let mut expected = String::new();
        for day in 3..8 {
            let [name, last, former] =
                [day, day - 1, day - 2].map(|day| format!("export-2026120{day}.csv{ending}"));
            place.write("new", of(rows + day).as_bytes());
            match ending {
                "" => rename(&place, "new", &name),
                _ => gzip(&place, "new", &name),
            }
            expected += &of(rows + day);
            if day > 4 {
                fs::remove_file(place.path(&former)).expect("removed");
            }
            let inputs = if day > 3 { vec![&*last, &*name] } else { vec![&*name] };
            run(&place, &inputs);
            tick();
        }
        assert_eq!(output(&place), expected, "{rows}{ending}");
    }
}

#[test]
fn a_part_that_no_run_has_read_is_not_taken_for_a_removed_one_of_a_number_that_it_has_now() {
    let place = Place::new();
    place.write("h.log.2", b"start\n");
    place.write("h.log.1", b"one\n");
    place.write("h.log", b"two\n");
    let all = ["h.log.2", "h.log.1", "h.log"];
    run(&place, &all);
    tick();
    // Two rotations, which keep two parts.
    rename(&place, "h.log", "h.log.2");
    fs::remove_file(place.path("h.log.1")).expect("removed");
    place.write("h.log.1", b"start\nthree\n");
    tick();
    place.write("h.log", b"four\n");
    run(&place, &all);
    assert_eq!(output(&place), "start\none\ntwo\nstart\nthree\nfour\n");
}

#[test]
fn parts_that_were_copied_without_their_times_are_known_by_their_names() {
    for ending in ["", ".gz"] {
        let place = Place::new();
        let parts = [2, 1].map(|part| format!("h.log.{part}{ending}"));
        for part in &parts {
            place.write("part", format!("of {part}\n").as_bytes());
            match ending {
                "" => rename(&place, "part", part),
                _ => gzip(&place, "part", part),
            }
        }
        place.write("h.log", START.as_bytes());
        let all = [&*parts[0], &*parts[1], "h.log"];
        run(&place, &all);
        let before = output(&place);
        tick();
        for name in &parts {
            let content = place.read(name);
            rename(&place, name, "former");
            place.write(name, &content);
            fs::remove_file(place.path("former")).expect("removed");
        }
        place.append("h.log", b"more\n");
        run(&place, &all);
        assert_eq!(output(&place), format!("{before}more\n"));
    }
}
