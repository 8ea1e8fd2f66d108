//! The output of `dedup --output`: never another file of the user, never cut without a copy, and
//! on the disk before its lines count.

use crate::exactly_once::Place;
use crate::support::{ok, refused, run, skipped};
use ebbtide::{Any, Filter, Options};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

fn copy(from: &str, to: &str) {
    let ended = Command::new("cp").args(["-r", from, to]).status().expect("cp runs");
    assert!(ended.success());
}

#[test]
fn an_output_inside_the_state_is_refused_by_any_name_and_nothing_is_touched() {
    let place = Place::new();
    place.write("log", b"one\n");
    place.run("out", &["log"], &[]);
    let state = place.path("out.state");
    symlink(&state, place.path("link")).expect("a link");
    symlink(format!("{state}/meta"), place.path("link to meta")).expect("a link");
    fs::hard_link(format!("{state}/meta"), place.path("hard link")).expect("a link");
    let meta = fs::read(format!("{state}/meta")).expect("a file");
    let outputs = [format!("{state}/meta"), format!("{state}/new"), place.path("link to meta")];
    for output in outputs.into_iter().chain([place.path("link/new"), place.path("hard link")]) {
        let log = place.path("log");
        let words = ["dedup", "--last", "5000", "--state", &state, "--output", &output, &log];
        let sentence = refused(&words, b"");
        assert!(
            sentence.contains("state") || sentence.contains("file of the filter"),
            "{sentence}"
        );
        assert_eq!(fs::read(format!("{state}/meta")).expect("a file"), meta, "{output}");
        assert!(!Path::new(&format!("{state}/new")).exists());
    }
    place.run("out", &["log"], &[]);
}

#[test]
fn an_output_that_is_an_input_is_refused_by_any_name() {
    let place = Place::new();
    place.write("log", b"one\n");
    symlink(place.path("log"), place.path("link")).expect("a link");
    fs::hard_link(place.path("log"), place.path("hard link")).expect("a link");
    for output in ["log", "link", "hard link"] {
        let sentence = place.refuse(output, &["log"]);
        assert!(sentence.contains("is the input"), "{sentence}");
        assert!(!Path::new(&place.path(&format!("{output}.state"))).exists());
    }
    assert_eq!(place.read("log"), b"one\n");
}

#[test]
fn what_a_state_does_not_count_is_kept_and_only_after_the_inputs_were_found() {
    let place = Place::new();
    place.write("log", b"a line of the log, the first\n");
    place.run("out", &["log"], &[]);
    copy(&place.path("out.state"), &place.path("saved"));
    place.append("log", b"two\n");
    place.run("out", &["log"], &[]);
    let whole = place.read("out");
    fs::remove_dir_all(place.path("out.state")).expect("removed");
    fs::rename(place.path("saved"), place.path("out.state")).expect("renamed");
    // The input is another file, so nothing is cut.
    fs::create_dir(place.path("elsewhere")).expect("a directory");
    fs::rename(place.path("log"), place.path("elsewhere/log")).expect("renamed");
    place.write("log", b"quite another log, of more than thirty bytes\n");
    let sentence = place.refuse_with("out", &["log"], &[]);
    assert!(sentence.contains("neither among the inputs nor beside them"), "{sentence}");
    assert!(place.read("out") == whole && !Path::new(&place.path("out.cut")).exists());
    fs::rename(place.path("elsewhere/log"), place.path("log")).expect("renamed");
    let arguments = place.arguments("out", &["log"], &[]);
    let outcome = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), b"");
    assert!(outcome.code == Some(0) && outcome.stderr.contains("cut 4 bytes"), "{outcome:?}");
    assert_eq!((place.read("out"), place.read("out.cut")), (whole, b"two\n".to_vec()));
}

#[test]
fn a_state_and_its_output_may_be_copied_and_another_output_adopted() {
    let place = Place::new();
    place.write("log", b"one\n");
    place.run("out", &["log"], &[]);
    copy(&place.path("out.state"), &place.path("copy.state"));
    copy(&place.path("out"), &place.path("copy"));
    place.append("log", b"two\n");
    for name in ["out", "copy"] {
        place.run(name, &["log"], &[]);
        assert_eq!(place.read(name), b"one\ntwo\n");
    }
    place.write("copy", b"begun anew\n");
    place.append("log", b"three\n");
    let sentence = place.refuse("copy", &["log"]);
    assert!(sentence.contains("--adopt-output"), "{sentence}");
    place.run("copy", &["log"], &["--adopt-output"]);
    assert_eq!(place.read("copy"), b"begun anew\nthree\n");
    place.append("log", b"four\n");
    place.run("copy", &["log"], &[]);
    assert_eq!(place.read("copy"), b"begun anew\nthree\nfour\n");
}

#[test]
fn what_is_cut_may_be_read_by_those_who_may_read_the_output() {
    let place = Place::new();
    place.write("log", b"one\n");
    place.run("out", &["log"], &[]);
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(place.path("out"), private).expect("a mode");
    place.append("out", b"of a killed run\n");
    let arguments = place.arguments("out", &["log"], &[]);
    let outcome = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), b"");
    assert!(outcome.code == Some(0) && outcome.stderr.contains("cut 16 bytes"), "{outcome:?}");
    assert_eq!(place.read("out.cut"), b"of a killed run\n");
    let mode = fs::metadata(place.path("out.cut")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_root_cuts_from_the_output_of_another_user_is_that_users() {
    let place = Place::new();
    if fs::metadata("/proc/self").is_ok_and(|process| process.uid() != 0) {
        skipped("only root can give a file away");
        return;
    }
    place.write("log", b"one\n");
    place.run("out", &["log"], &[]);
    let out = place.path("out");
    chown(&out, Some(65534), Some(65533)).expect("root may");
    for (cut, mode) in [("of a killed run\n", 0o600), ("of another\n", 0o2640)] {
        let _ = fs::remove_file(place.path("out.cut"));
        fs::set_permissions(&out, fs::Permissions::from_mode(mode)).expect("a mode");
        place.append("out", cut.as_bytes());
        let arguments = place.arguments("out", &["log"], &[]);
        let outcome = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), b"");
        assert!(outcome.code == Some(0) && outcome.stderr.contains("cut "), "{outcome:?}");
        let found = fs::metadata(place.path("out.cut")).expect("it is there");
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (65534, 65533, mode));
    }
}

#[test]
fn an_output_that_is_empty_yet_is_not_taken_for_another_file() {
    let place = Place::new();
    place.write("log", b"");
    place.run("out", &["log"], &[]);
    place.append("log", b"one\n");
    fs::remove_file(place.path("out")).expect("removed");
    place.write("out", b"a file of the user\n");
    let sentence = place.refuse("out", &["log"]);
    assert!(sentence.contains("is another file"), "{sentence}");
    assert_eq!(place.read("out"), b"a file of the user\n");
    assert!(!Path::new(&place.path("out.cut")).exists());
    place.run("out", &["log"], &["--adopt-output"]);
    assert_eq!(place.read("out"), b"a file of the user\none\n");
}

#[test]
fn new_lines_do_not_continue_an_unfinished_line_of_the_output() {
    for more in [&[][..], &["--adopt-output"]] {
        for (delimiter, end) in [(&[][..], "\n"), (&["--null"], "\0")] {
            let place = Place::new();
            let text = |text: &str| text.replace('\n', end).into_bytes();
            place.write("log", b"");
            if !more.is_empty() {
                place.run("out", &["log"], delimiter);
            }
            place.write("out", b"torn-li");
            place.run("out", &["log"], &[delimiter, more].concat());
            assert_eq!(place.read("out"), b"torn-li", "nothing is written without a new line");
            for (line, said) in [("c\n", true), ("d\n", false)] {
                place.append("log", &text(line));
                let arguments = place.arguments("out", &["log"], delimiter);
                let outcome = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), b"");
                assert_eq!(outcome.code, Some(0), "{outcome:?}");
                assert_eq!(
                    outcome.stderr.contains("the last line had no end"),
                    said,
                    "{outcome:?}"
                );
            }
            assert_eq!(place.read("out"), text("torn-li\nc\nd\n"));
        }
    }
}

#[test]
fn a_header_without_its_end_is_one_line_of_the_table() {
    let place = Place::new();
    place.write("out", b"id,n");
    place.write("log.csv", b"id,n\n1,a\n");
    let arguments = place.arguments("out", &["log.csv"], &["--csv-field", "id"]);
    let outcome = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), b"");
    assert!(outcome.code == Some(0), "{outcome:?}");
    assert_eq!(place.read("out"), b"id,n\n1,a\n");
}

#[test]
fn a_piece_that_does_not_fit_on_the_disk_is_taken_back() {
    let place = Place::new();
    fs::create_dir(place.path("small")).expect("a directory");
    let small = place.path("small");
    let mount = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", &small];
    if !Command::new("mount").args(mount).output().is_ok_and(|it| it.status.success()) {
        skipped("this user cannot mount a tmpfs");
        return;
    }
    place.write("log", &crate::exactly_once::lines(60_000, 12));
    let (state, output) = (place.path("state"), format!("{small}/out"));
    let first = ["dedup", "--last", "5000", "--hash-seed", "7", "--batch", "20000"];
    let log = place.path("log");
    let words = [&first[..], &["--state", &state, "--output", &output, &log]].concat();
    let outcome = run(&words, b"");
    let length = fs::metadata(&output).map(|found| found.len());
    let filter = Filter::<Any>::open(&state, Options::new()).expect("the state");
    let recorded = filter.position(u64::MAX - 1).expect("a position");
    drop(filter);
    let unmounted = Command::new("umount").args(["-l", &small]).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("cannot write"), "{outcome:?}");
    assert_eq!(Some(length.expect("the output")), recorded);
}

#[test]
fn a_line_without_end_is_an_error_that_names_its_place() {
    let place = Place::new();
    place.write("log", &[b"one\n".as_slice(), &[b'x'; 3000], b"\ntwo\n"].concat());
    let path = place.path("log");
    let sentence = refused(&["dedup", "--last", "9", "--max-line", "2KiB", &path], b"");
    assert!(sentence.contains("begins at byte 4 within 2048 bytes"), "{sentence}");
    assert!(sentence.contains(&path) && sentence.contains("--max-line"), "{sentence}");
    ok(&["dedup", "--last", "9", "--max-line", "3000", &path], b"");
    let sentence = place.refuse_with("out", &["log"], &["--max-line", "2KiB"]);
    assert!(sentence.contains("begins at byte 4"), "{sentence}");
    place.run("out", &["log"], &[]);
    assert_eq!(place.read("out"), place.read("log"));
}

/// Seen from outside, by the system calls: after lines were written to the output, it is synced
/// before the log of the filter is.
#[test]
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    ignore = "other system calls are made"
)]
fn lines_are_on_the_disk_before_a_batch_counts_them() {
    let place = Place::new();
    let traced = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    if !traced.is_ok_and(|output| output.status.success()) {
        skipped("strace cannot trace here");
        return;
    }
    place.write("log", &crate::exactly_once::lines(5000, 11));
    let (trace, output) = (place.path("trace"), place.path("out"));
    let calls = "trace=write,fdatasync,msync";
    let ended = Command::new("strace")
        .args(["-f", "-qq", "-y", "-o", &trace, "-e", calls, env!("CARGO_BIN_EXE_ebbtide")])
        .args(place.arguments("out", &["log"], &["--durability", "always"]))
        .status();
    assert!(ended.expect("strace runs").success());
    let trace = fs::read_to_string(trace).expect("a trace");
    let (mut is_dirty, mut writes, mut counted) = (false, 0, 0);
    let of_output = format!("{output}>");
    for line in trace.lines() {
        if line.contains(" write(") && line.contains(&of_output) {
            (is_dirty, writes) = (true, writes + 1);
        } else if line.contains(" fdatasync(") && line.contains(&of_output) {
            is_dirty = false;
        } else if line.contains(" msync(") && writes > 0 {
            // Of the log, which is mapped.
            assert!(!is_dirty, "the log is synced before the output:\n{trace}");
            counted += 1;
        }
    }
    assert!(writes > 3 && counted >= writes && !is_dirty, "{writes}, {counted} syncs\n{trace}");
}

#[test]
fn standard_output_is_no_output_that_can_be_cut_back_and_no_file_is_named_so() {
    let place = Place::new();
    place.write("log", b"one\n");
    let (state, log) = (place.path("state"), place.path("log"));
    let words = ["dedup", "--last", "5000", "--state", &state, "--output", "-", &log];
    let sentence = refused(&words, b"");
    assert!(sentence.contains("leave --output out, or name ./-"), "{sentence}");
    assert!(!Path::new("-").exists() && !Path::new(&state).exists());
}
