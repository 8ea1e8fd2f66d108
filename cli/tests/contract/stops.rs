//! Runs that are stopped or killed at any moment, and outputs that fail: no recorded line stays
//! unprinted without a report.

use crate::support::{Place, Talk, command, input, ok, run, signal, skipped, start};
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The signals that ask a command to stop, with their numbers.
const STOPS: [(&str, i32); 3] = [("TERM", 15), ("INT", 2), ("HUP", 1)];

/// A limit longer than any step takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits for the end of a child; a child that does not end is a failure, not a hang.
fn end(child: &mut Child) -> ExitStatus {
    let began = Instant::now();
    while began.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().expect("wait") {
            return status;
        }
        sleep(Duration::from_millis(2));
    }
    child.kill().expect("kill");
    panic!("the command did not end");
}

/// Pseudo-random lengths and durations, the same in each run.
struct Moments(u64);

impl Moments {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Waits until an output has grown from this length by a random one below `most`, or a child
    /// has ended, and for a few milliseconds more. Each third time only these: the child begins.
    fn pass(&mut self, child: &mut Child, path: &str, length: u64, most: u64) {
        let until = if self.below(3) == 0 { 0 } else { length + self.below(most) };
        let began = Instant::now();
        while size(path) < until && child.try_wait().expect("wait").is_none() {
            assert!(began.elapsed() < LIMIT, "{} of {until} bytes", size(path));
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_micros(self.below(if until == 0 { 50_000 } else { 3_000 })));
    }
}

/// Returns the length of a file; 0 if there is none.
fn size(path: &str) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

fn inserts(dir: &str) -> u64 {
    ok(&["stat", dir, "--json"], b"").json()[0]["inserts"].as_u64().expect("a number")
}

/// Returns distinct lines of 16 bytes, including the newline.
fn different(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key {number:011}")).collect()
}

/// Starts a command that appends to a file.
fn appending(arguments: &[&str], path: &str) -> Child {
    let file = OpenOptions::new().create(true).append(true).open(path).expect("open");
    let mut command = command(arguments);
    command.stdin(Stdio::null()).stdout(file).stderr(Stdio::piped()).spawn().expect("start")
}

#[test]
fn across_stops_and_restarts_each_line_is_printed_exactly_once() {
    let keys = different(40_000);
    let orders =
        STOPS.map(|stop| (stop, None)).into_iter().chain([(STOPS[0], Some("--at-least-once"))]);
    for (at, (stop, order)) in orders.enumerate() {
        let mut moments = Moments(0x9E37_79B9_7F4A_7C15 + at as u64);
        // On a busy machine a run may end before it is stopped: then all begins anew.
        let is_stopped = (0..10).any(|_| print_across_stops(&keys, stop, order, &mut moments) > 2);
        assert!(is_stopped, "runs ended before they were stopped with {stop:?}");
    }
}

/// Prints all keys with runs that are stopped, of which only the last one completes. Returns how
/// many were stopped.
fn print_across_stops(
    keys: &[String],
    (name, number): (&str, i32),
    order: Option<&str>,
    moments: &mut Moments,
) -> u32 {
    let place = Place::new();
    let (state, printed) = (place.at("state"), place.at("printed"));
    let file = place.file("keys", &input(keys));
    // A window of more inserts than all rounds make: each inserts the same keys again.
    let dedup = ["dedup", "--last", "1100000", "--fpr", "1e-9", "--state", &state];
    let mut arguments = [&dedup[..], &["--batch", "64", &file]].concat();
    arguments.extend(order);
    let mut stopped = 0;
    for round in 0.. {
        let length = size(&printed);
        let mut child = appending(&arguments, &printed);
        // The last rounds are not stopped, so that a slow machine finishes, too.
        if round < 15 {
            moments.pass(&mut child, &printed, length, 2 * keys.len() as u64);
            if child.try_wait().expect("wait").is_none() {
                signal(&child, name);
            }
        }
        let status = end(&mut child);
        if status.success() {
            break;
        }
        assert_eq!(status.signal(), Some(number), "{status:?}");
        stopped += 1;
    }
    let printed = fs::read(&printed).expect("what was printed");
    let printed: Vec<_> = printed.split_inclusive(|byte| *byte == b'\n').collect();
    let once: HashSet<_> = printed.iter().collect();
    let lines = (printed.len(), once.len());
    assert_eq!(lines, (keys.len(), keys.len()), "{name}, stopped {stopped} times");
    stopped
}

#[test]
fn a_stop_answers_every_key_that_check_has_inserted_and_names_the_last_line() {
    let keys = different(400_000);
    let place = Place::new();
    let (dir, answers) = (place.at("filter"), place.at("answers"));
    ok(&["create", &dir, "--kind", "bloom", "--capacity", "1000000"], b"");
    let file = place.file("keys", &input(&keys));
    let mut child = appending(&["check", &dir, &file], &answers);
    while fs::metadata(&answers).expect("the answers").len() == 0 {
        sleep(Duration::from_millis(1));
    }
    signal(&child, "TERM");
    let status = end(&mut child);
    let mut said = String::new();
    child.stderr.take().expect("stderr").read_to_string(&mut said).expect("UTF-8");
    let answered = fs::read(&answers).expect("answers").len() as u64 / 2;
    assert_eq!(inserts(&dir), answered);
    if status.signal() == Some(15) {
        assert_eq!(said, format!("ebbtide: stopped by SIGTERM after line {answered} of {file}\n"));
    }
    assert!(ok(&["verify", &dir], b"").text().contains("sound"));
}

#[test]
fn a_run_that_waits_for_input_is_stopped_at_once_and_nothing_is_lost() {
    for (name, number) in STOPS {
        for insert in [true, false] {
            let place = Place::new();
            let state = place.at("state");
            ok(&["dedup", "--last", "1000", "--state", &state], b"a\nb\n");
            let arguments: &[&str] =
                if insert { &["insert", &state] } else { &["dedup", "--state", &state] };
            let mut child = start(arguments);
            let mut stdin = child.stdin.take().expect("stdin");
            stdin.write_all(b"c\nhalf a line").expect("write");
            while inserts(&state) < 3 {
                sleep(Duration::from_millis(5));
            }
            signal(&child, name);
            assert_eq!(end(&mut child).signal(), Some(number));
            let out = child.wait_with_output().expect("output");
            assert_eq!(out.stdout, if insert { b"".as_slice() } else { b"c\n" });
            let note = format!("ebbtide: stopped by SIG{name} after line 1 of standard input\n");
            assert_eq!(String::from_utf8_lossy(&out.stderr), note);
            assert_eq!(inserts(&state), 3);
        }
    }
}

#[test]
fn a_run_that_waits_for_a_fifo_without_a_writer_is_stopped() {
    let place = Place::new();
    let (state, fifo) = (place.at("state"), place.at("fifo"));
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo runs").success());
    ok(&["dedup", "--last", "1000", "--state", &state], b"a\n");
    let mut child = start(&["dedup", "--state", &state, &fifo]);
    while ok(&["stat", &state, "--json"], b"").json()[0]["handles"] != 1 {
        sleep(Duration::from_millis(5));
    }
    // The command may be about to open the FIFO, or may wait for it: both waits end.
    signal(&child, "TERM");
    assert_eq!(end(&mut child).signal(), Some(15));
    // With a writer it reads the FIFO to its end, across pauses.
    let mut child = start(&["dedup", "--state", &state, &fifo]);
    let mut writer = File::options().write(true).open(&fifo).expect("a reader");
    for key in ["a\n", "b\n", "c\n"] {
        writer.write_all(key.as_bytes()).expect("write");
        sleep(Duration::from_millis(20));
    }
    drop(writer);
    assert!(end(&mut child).success());
    assert_eq!(child.wait_with_output().expect("output").stdout, b"b\nc\n");
}

/// Starts a run of `dedup` whose reader does not read: it records 5 batches and prints 4.
fn blocked(state: &str, file: &str, more: &[&str]) -> Child {
    // A batch is a quarter of the capacity of a pipe.
    let dedup = ["dedup", "--last", "100000", "--fpr", "1e-9", "--state", state, file];
    let child = start(&[&dedup[..], more].concat());
    let began = Instant::now();
    let expected = if more.is_empty() { 5 * 1024 } else { 4 * 1024 };
    // The filter may not exist yet.
    let inserts = || match run(&["stat", state, "--json"], b"") {
        done if done.code == Some(0) => done.json()[0]["inserts"].as_u64().expect("a number"),
        _ => 0,
    };
    while inserts() < expected {
        assert!(began.elapsed() < LIMIT, "{} of {expected} inserts", inserts());
        sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn a_second_signal_ends_a_run_whose_output_is_stuck_at_once() {
    let place = Place::new();
    let state = place.at("state");
    let file = place.file("keys", &input(&different(10_000)));
    let mut child = blocked(&state, &file, &[]);
    signal(&child, "TERM");
    sleep(Duration::from_millis(500));
    assert!(child.try_wait().expect("wait").is_none(), "the run did not wait for its reader");
    // On a busy machine the next signal may still come too soon after the command noticed the
    // first.
    let mut sent = 0;
    while child.try_wait().expect("wait").is_none() && sent < 100 {
        signal(&child, "TERM");
        sleep(Duration::from_millis(300));
        sent += 1;
    }
    assert_eq!(end(&mut child).signal(), Some(15));
}

#[test]
fn a_stop_waits_for_a_slow_reader_and_prints_all_recorded_lines() {
    let place = Place::new();
    let state = place.at("state");
    let keys = different(10_000);
    let file = place.file("keys", &input(&keys));
    let child = blocked(&state, &file, &[]);
    // As `timeout` does: a signal to the process, and immediately after to its group. Of two that
    // are the same a stopped process receives one.
    for name in ["STOP", "TERM", "INT", "CONT"] {
        signal(&child, name);
    }
    sleep(Duration::from_millis(300));
    let output = child.wait_with_output().expect("output");
    // Whichever it took first.
    assert!(matches!(output.status.signal(), Some(2 | 15)), "{:?}", output.status);
    let printed = output.stdout.len() as u64 / 16;
    assert_eq!((printed, inserts(&state)), (5 * 1024, 5 * 1024));
}

#[test]
fn after_a_reader_abandons_a_stuck_pipe_the_recorded_unprinted_lines_are_counted() {
    let place = Place::new();
    let state = place.at("state");
    let file = place.file("keys", &input(&different(10_000)));
    let mut child = blocked(&state, &file, &[]);
    drop(child.stdout.take());
    assert!(end(&mut child).success());
    let said = child.wait_with_output().expect("output").stderr;
    let expected = "ebbtide: the output is closed; lines recorded but not printed: \
                    1024, the first is line 4097 of ";
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(said, format!("{expected}{file}\n"));
    assert_eq!(inserts(&state), 5 * 1024);
}

#[test]
fn at_least_once_a_reader_that_closes_the_output_loses_nothing() {
    let place = Place::new();
    let state = place.at("state");
    let file = place.file("keys", &input(&different(10_000)));
    let mut child = blocked(&state, &file, &["--at-least-once"]);
    drop(child.stdout.take());
    assert!(end(&mut child).success());
    let said = child.wait_with_output().expect("output").stderr;
    assert_eq!(String::from_utf8_lossy(&said), "");
    let left = ok(&["dedup", "--state", &state, &file], b"").lines().len();
    assert_eq!(left, 10_000 - 4 * 1024);
}

#[test]
fn a_reader_that_closes_the_output_ends_a_run_that_waits_for_input() {
    let place = Place::new();
    let state = place.at("state");
    let mut talk = Talk::new(&["dedup", "--last", "1000", "--state", &state]);
    assert_eq!(talk.ask("a"), "a");
    let mut child = start(&["dedup", "--state", &state]);
    drop(child.stdout.take());
    assert!(end(&mut child).success(), "standard input is open, and the output is closed");
    talk.end();
    assert_eq!(inserts(&state), 1);
}

#[test]
fn after_a_full_output_the_recorded_unprinted_lines_are_counted() {
    let place = Place::new();
    let fails = |arguments: &[&str], lines: &[u8]| {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let mut child = command(arguments).stdout(full).spawn().expect("start");
        child.stdin.take().expect("stdin").write_all(lines).expect("write");
        let output = child.wait_with_output().expect("output");
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let dedup = |state| ["dedup", "--last", "10", "--fpr", "1e-9", "--state", state];
    let state = place.at("state");
    ok(&dedup(&state), b"known\n");
    let said = fails(&dedup(&state), b"known\n1\n1\n2\n3\n");
    let lost = "; lines recorded but not printed: 3, the first is line 2 of standard input\n";
    assert!(said.ends_with(lost), "{said}");
    // `check` prints a line for each key.
    let said = fails(&["check", &state], b"known\n1\n4\n");
    let lost = "; lines recorded but not answered: 3, the first is line 1 of standard input\n";
    assert!(said.ends_with(lost), "{said}");
    // Without a state, or if lines are printed before they are recorded, nothing is lost.
    let other = place.at("other");
    for arguments in
        [&["dedup", "--last", "10"][..], &[&dedup(&other)[..], &["--at-least-once"]].concat()]
    {
        let said = fails(arguments, b"1\n2\n");
        assert!(!said.contains("remembered"), "{said}");
    }
    assert_eq!(ok(&dedup(&other), b"1\n2\n").stdout, b"1\n2\n");
}

#[test]
fn a_hangup_that_was_ignored_at_the_start_stays_ignored() {
    let place = Place::new();
    let state = place.at("state");
    for more in [&["--state", &state][..], &[]] {
        let script = "trap '' HUP; exec \"$0\" dedup --last 100 \"$@\"";
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_ebbtide")]).args(more);
        let mut talk = Talk::of(&mut shell);
        assert_eq!(talk.ask("a"), "a");
        signal(&talk.child, "HUP");
        sleep(Duration::from_millis(50));
        talk.say("a\n");
        assert_eq!(talk.ask("b"), "b");
        talk.end();
    }
}

#[test]
fn at_least_once_a_kill_at_any_moment_loses_no_line() {
    let (keys, mut moments) = (different(20_000), Moments(7));
    // On a busy machine a run may end before it is killed: then all begins anew.
    let is_killed = (0..10).any(|_| print_across_kills(&keys, &mut moments) > 5);
    assert!(is_killed, "runs ended before they were killed");
}

/// Prints all keys at least once with runs that are killed, of which only the last one completes.
/// Returns how many were killed.
fn print_across_kills(keys: &[String], moments: &mut Moments) -> usize {
    // Each key occurs twice in a row: one of the two lines is printed, except those that a kill
    // repeats.
    let twice: Vec<_> = keys.iter().flat_map(|key| [key.clone(), key.clone()]).collect();
    let place = Place::new();
    let state = place.at("state");
    let file = place.file("keys", &input(&twice));
    let dedup = ["dedup", "--last", "1700000", "--fpr", "1e-9", "--state", &state];
    let arguments = [&dedup[..], &["--at-least-once", "--batch", "64", &file]].concat();
    let mut printed = Vec::new();
    let mut kills = 0;
    for round in 0.. {
        let out = place.at(&format!("printed-{round}"));
        let mut child = appending(&arguments, &out);
        if round < 40 {
            moments.pass(&mut child, &out, 0, 4 * keys.len() as u64);
            child.kill().expect("kill");
        }
        let status = end(&mut child);
        let mut bytes = fs::read(&out).expect("what was printed");
        // A kill may have cut the last line.
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        printed.extend(
            bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec),
        );
        if status.success() {
            break;
        }
        kills += 1;
    }
    let once: HashSet<_> = printed.iter().collect();
    assert_eq!(once.len(), keys.len(), "lines are lost after {kills} kills");
    let again = printed.len() - once.len();
    assert!(again <= kills * 64, "{again} lines were printed again after {kills} kills");
    kills
}

#[test]
fn a_stop_of_the_first_process_of_a_container_is_an_exit_with_the_number_of_the_signal() {
    let contained = ["--pid", "--fork", "--kill-child"];
    let is_able = Command::new("unshare").args(contained).arg("true").output();
    if !is_able.is_ok_and(|ended| ended.status.success()) {
        skipped("this user cannot make a namespace of processes");
        return;
    }
    for (name, number) in [("TERM", 15), ("INT", 2)] {
        let place = Place::new();
        let program = command(&["dedup", "--last", "500", "--state", &place.at("state")]);
        let mut outside = Command::new("unshare");
        outside.args(contained).arg(program.get_program()).args(program.get_args());
        let mut talk = Talk::of(outside.stderr(Stdio::null()));
        assert_eq!(talk.ask("one"), "one");
        let id = talk.child.id();
        let inside = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("a list");
        let sent = Command::new("kill").args(["-s", name, inside.trim()]).status();
        assert!(sent.expect("kill runs").success());
        assert_eq!(end(&mut talk.child).code(), Some(128 + number), "{name}");
    }
}
