//! `run` does work once in the window, and `claims` shows who is doing it.

use crate::support::{Place, ok, refused, run, signal, skipped, start};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A limit longer than any step takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until a file has this content.
fn await_content(path: &str, content: &str) {
    let began = Instant::now();
    while fs::read_to_string(path).unwrap_or_default() != content {
        assert!(began.elapsed() < LIMIT, "{path}: {:?}", fs::read_to_string(path));
        sleep(Duration::from_millis(5));
    }
}

fn made() -> (Place, String) {
    let place = Place::new();
    let dir = place.at("jobs");
    ok(&["create", &dir, "--window", "1h"], b"");
    (place, dir)
}

/// Runs a script under a claim of a key.
fn under(dir: &str, key: &str, script: &str) -> crate::support::Outcome {
    run(&["run", "--claim", key, dir, "--", "sh", "-c", script], b"")
}

#[test]
fn work_is_done_once_and_work_that_fails_is_done_again() {
    let (place, dir) = made();
    let log = place.at("log");
    let work = |result: i32| format!("echo done >> {log}; exit {result}");
    assert_eq!(under(&dir, "a", &work(3)).code, Some(3));
    assert_eq!(under(&dir, "a", "kill -9 $$").code, Some(137));
    assert_eq!(under(&dir, "a", &work(0)).code, Some(0));
    assert_eq!(under(&dir, "a", &work(0)).code, Some(0), "it was done");
    assert_eq!(fs::read_to_string(&log).expect("a file"), "done\ndone\n");
    assert_eq!(run(&["contains", &dir, "--key", "a"], b"").code, Some(0));
    let missing = run(&["run", "--claim", "b", &dir, "--", "/nothing here"], b"");
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("cannot run /nothing here"), "{}", missing.stderr);
    assert!(ok(&["claims", &dir], b"").stdout.is_empty(), "it is released");
}

#[test]
fn work_is_confirmed_under_a_supervisor_that_ignores_the_ends_of_its_children() {
    let (place, dir) = made();
    let program = env!("CARGO_BIN_EXE_ebbtide");
    let words = ["--ignore-signal=CHLD", program, "run", "--claim", "a", &dir, "--", "true"];
    let output = Command::new("env").args(words).current_dir(place.at(".")).output();
    let output = output.expect("`env`, with the signal ignored");
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("unrecognized option") {
        return skipped("`env` cannot ignore signals");
    }
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert_eq!(run(&["contains", &dir, "--key", "a"], b"").code, Some(0));
}

#[test]
fn words_of_other_programs_and_keys_stay_as_they_are() {
    let (_place, dir) = made();
    for words in [&["--watch", "src"][..], &["--decay", "weights", "FILE"]] {
        let echo = [&["run", "--claim", words[0].trim_matches('-'), &dir, "--", "echo"], words];
        assert_eq!(ok(&echo.concat(), b"").text(), format!("{}\n", words.join(" ")));
    }
    ok(&["insert", &dir, "--key", "--watch", "--key", "b"], b"");
    assert_eq!(ok(&["contains", &dir], b"--watch\n--watch=2\nb\n").text(), "1\n0\n1\n");
}

#[test]
fn the_command_finds_tokens_that_grow() {
    let (place, dir) = made();
    let log = place.at("log");
    for key in ["a", "b"] {
        assert_eq!(under(&dir, key, &format!("echo $EBBTIDE_TOKEN >> {log}")).code, Some(0));
    }
    let text = fs::read_to_string(&log).expect("a file");
    let tokens: Vec<u64> = text.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(tokens.len() == 2 && tokens[0] < tokens[1], "{tokens:?}");
}

#[test]
fn a_second_run_beside_the_first_does_nothing_and_says_so() {
    let (place, dir) = made();
    let (begun, go) = (place.at("begun"), place.at("go"));
    let script = format!("echo yes > {begun}; until [ -e {go} ]; do sleep 0.02; done");
    // Renewed several times meanwhile, five seconds before it ends: on a busy machine a thread may
    // wait for some time.
    let lease = ["run", "--claim", "a", "--lease", "8s", &dir, "--", "sh", "-c", &script];
    let first = start(&lease);
    await_content(&begun, "yes\n");
    sleep(Duration::from_millis(8500));
    let second = under(&dir, "a", "exit 0");
    assert_eq!(second.code, Some(75), "{}", second.stderr);
    assert!(second.stderr.contains("somebody else does the work"), "{}", second.stderr);
    let listed = ok(&["claims", &dir, "--json"], b"").json();
    assert_eq!(listed.len(), 1);
    assert!(listed[0]["age_seconds"].as_f64().expect("a number") >= 8.5);
    assert!(listed[0]["remaining_seconds"].as_f64().expect("a number") <= 8.0);
    let stat = ok(&["stat", &dir, "--json"], b"").json();
    assert_eq!(stat[0]["claims"], 1);
    assert!(ok(&["stat", &dir], b"").text().contains("claims"));
    fs::write(&go, "").expect("space");
    assert!(first.wait_with_output().expect("its end").status.success());
    assert_eq!(under(&dir, "a", "exit 5").code, Some(0), "it was done");
}

#[test]
fn a_run_that_was_stopped_until_its_lease_was_over_claims_its_key_again() {
    let (place, dir) = made();
    let (begun, go) = (place.at("begun"), place.at("go"));
    let script = format!("echo yes > {begun}; until [ -e {go} ]; do sleep 0.02; done");
    let lease = ["run", "--claim", "a", "--lease", "1s", &dir, "--", "sh", "-c", &script];
    let child = start(&lease);
    await_content(&begun, "yes\n");
    signal(&child, "STOP");
    sleep(Duration::from_millis(1200));
    assert!(ok(&["claims", &dir, "--json"], b"").json().is_empty(), "its lease is over");
    signal(&child, "CONT");
    let end = Instant::now() + Duration::from_secs(60);
    while ok(&["claims", &dir, "--json"], b"").json().is_empty() {
        assert!(Instant::now() < end, "it does not claim its key again");
        sleep(Duration::from_millis(20));
    }
    fs::write(&go, "").expect("space");
    assert!(child.wait_with_output().expect("its end").status.success());
    assert_eq!(under(&dir, "a", "exit 5").code, Some(0), "it was done");
}

#[test]
fn a_claim_that_was_ended_is_not_claimed_again_by_the_run_that_had_it() {
    let (place, dir) = made();
    let (begun, go) = (place.at("begun"), place.at("go"));
    let script = format!("echo yes > {begun}; until [ -e {go} ]; do sleep 0.02; done");
    let lease = ["run", "--claim", "a", "--lease", "8s", &dir, "--", "sh", "-c", &script];
    let child = start(&lease);
    await_content(&begun, "yes\n");
    ok(&["claims", &dir, "--end", "a"], b"");
    // Longer than until the next renewal.
    sleep(Duration::from_secs(4));
    assert!(ok(&["claims", &dir, "--json"], b"").json().is_empty());
    fs::write(&go, "").expect("space");
    let ended = child.wait_with_output().expect("its end");
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert_eq!(under(&dir, "a", "exit 5").code, Some(5), "the key is free");
}

#[test]
fn a_signal_reaches_the_command_and_the_key_is_free_again() {
    let (place, dir) = made();
    let begun = place.at("begun");
    let script = format!(
        "trap 'echo ended > {begun}; exit 9' TERM; echo yes > {begun}; \
                          while :; do sleep 0.02; done"
    );
    let child = start(&["run", "--claim", "a", &dir, "--", "sh", "-c", &script]);
    await_content(&begun, "yes\n");
    signal(&child, "TERM");
    let status = child.wait_with_output().expect("its end").status;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
    assert_eq!(fs::read_to_string(&begun).expect("a file"), "ended\n");
    assert_eq!(under(&dir, "a", "exit 0").code, Some(0));
}

/// Ctrl-C in a terminal, which `script` makes.
#[test]
fn a_signal_of_the_terminal_reaches_the_command_once() {
    // A shell may have started the tests with SIGINT ignored.
    let heeded = ["--default-signal=INT", "script"];
    let tried = Command::new("env").args(heeded).arg("--version").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        skipped("there is no command `script`, or `env` sets no signal");
        return;
    }
    let (place, dir) = made();
    let (begun, ends) = (place.at("begun"), place.at("ends"));
    // A shell runs a trap when the command before it has ended: two signals are two lines.
    let script = format!(
        "trap 'echo INT >> {ends}' INT; echo yes > {begun}; for i in 1 2 3 4 5 6 7 8 9 10; \
         do sleep 0.05; done; while [ ! -s {ends} ]; do sleep 0.02; done; \
         for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done; exit 9"
    );
    let file = place.file("script", script.as_bytes());
    let program = env!("CARGO_BIN_EXE_ebbtide");
    let under = format!("exec {program} run --claim a {dir} -- sh {file}");
    let mut terminal = Command::new("env");
    terminal
        .args(heeded)
        .args(["-qec", &under, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = terminal.spawn().expect("a terminal");
    await_content(&begun, "yes\n");
    let stdin = child.stdin.as_mut().expect("a pipe");
    stdin.write_all(b"\x03").expect("Ctrl-C");
    stdin.flush().expect("Ctrl-C");
    assert!(!child.wait_with_output().expect("its end").status.success());
    assert_eq!(fs::read_to_string(&ends).expect("a file"), "INT\n");
}

#[test]
fn the_key_of_a_run_that_was_killed_is_free_when_its_lease_is_over_or_is_ended() {
    let (place, dir) = made();
    let begun = place.at("begun");
    let script = format!("echo yes > {begun}; sleep 1000");
    let mut child =
        start(&["run", "--claim", "a", "--lease", "1h", &dir, "--", "sh", "-c", &script]);
    await_content(&begun, "yes\n");
    child.kill().expect("it lives");
    child.wait().expect("its end");
    assert_eq!(under(&dir, "a", "exit 0").code, Some(75));
    assert_eq!(run(&["claims", &dir, "--end", "b"], b"").code, Some(1));
    assert_eq!(run(&["claims", &dir, "--end", "a"], b"").code, Some(0));
    assert_eq!(under(&dir, "a", "exit 0").code, Some(0));
}

#[test]
fn a_lease_that_cannot_be_renewed_in_time_or_longer_than_97_days_is_refused() {
    let (_place, dir) = made();
    for lease in ["0s", "1ns", "1ms", "20ms", "99ms", "98days"] {
        let words = ["run", "--claim", "a", "--lease", lease, &dir, "--", "true"];
        let sentence = refused(&words, b"");
        assert!(sentence.contains("expected 100ms to 97 days"), "{sentence}");
    }
    assert_eq!(run(&["contains", &dir, "--key", "a"], b"").code, Some(1));
}
