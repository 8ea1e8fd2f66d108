//! Commands that only inspect a filter leave no trace, for any user and in any state of the filter.

use crate::support::{Place, Talk, input, ok, signal, start, stream};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Shorter than the time for which an opener waits for another one.
const LIMIT: Duration = Duration::from_secs(30);

/// The data of `ls -li` about a file: inode, size, mode, owner, and modification time.
pub type Entry = (u64, u64, u32, u32, (i64, i64));

/// Returns the entries of a directory and of all files in it.
pub fn listing(dir: &str) -> BTreeMap<String, Entry> {
    let entry = |name: &str| {
        let file = fs::symlink_metadata(format!("{dir}/{name}")).expect("a file");
        (file.ino(), file.size(), file.mode(), file.uid(), (file.mtime(), file.mtime_nsec()))
    };
    let names = fs::read_dir(dir).expect("a directory");
    let names = names.map(|entry| entry.expect("an entry").file_name().into_string());
    let names = names.map(|name| name.expect("UTF-8")).chain([".".to_owned()]);
    names.map(|name| (name.clone(), entry(&name))).collect()
}

/// Runs every command that only inspects this filter; `counts` is another filter.
fn look(dir: &str, counts: &str) {
    let keys = b"key-1\nkey-2\nabsent\n";
    for more in [&[][..], &["--json"]] {
        for command in ["stat", "digest", "verify", "wal", "history", "claims"] {
            ok(&[&[command, dir], more].concat(), b"");
        }
        ok(&[&["contains", dir], more].concat(), keys);
        ok(&[&["age", dir], more].concat(), keys);
        ok(&[&["estimate", counts], more].concat(), keys);
        let counted = format!("counted:{counts}");
        let prior = ["--prior", &counted];
        ok(&[&["posterior", dir, "--ages"], &prior[..], more].concat(), keys);
        let costs = ["--false-positive", "2", "--false-negative", "1"];
        ok(&[&["decide", dir], &prior[..], &costs, more].concat(), keys);
    }
    ok(&["plan", "--last", "1000"], b"");
}

fn filters(place: &Place) -> (String, String) {
    let (dir, counts) = (place.at("filter"), place.at("counts"));
    ok(&["create", &dir, "--kind", "block-timing", "--window-items", "1000"], b"");
    ok(
        &["create", &counts, "--kind", "counting", "--capacity", "1000", "--counter-bits", "16"],
        b"",
    );
    for filter in [&dir, &counts] {
        ok(&["insert", filter], &input(&stream(3_000, 400)));
    }
    (dir, counts)
}

#[test]
fn inspecting_a_closed_filter_changes_nothing() {
    let place = Place::new();
    let (dir, counts) = filters(&place);
    let before = [listing(&dir), listing(&counts)];
    look(&dir, &counts);
    assert_eq!([listing(&dir), listing(&counts)], before);
}

#[test]
fn inspecting_a_filter_whose_writer_was_killed_changes_nothing() {
    let place = Place::new();
    let (dir, counts) = filters(&place);
    for filter in [&dir, &counts] {
        let mut talk = Talk::new(&["check", filter]);
        assert_eq!(talk.ask("new"), "0");
        talk.kill();
    }
    let before = [listing(&dir), listing(&counts)];
    look(&dir, &counts);
    assert_eq!([listing(&dir), listing(&counts)], before);
    // The inserts of the killed writers are visible.
    assert_eq!(ok(&["contains", &dir], b"new\n").text(), "1\n");
}

#[test]
fn inspecting_beside_a_writer_changes_nothing_but_the_files_the_writer_writes() {
    let place = Place::new();
    let (dir, counts) = filters(&place);
    let mut writers = [&dir, &counts].map(|filter| Talk::new(&["check", filter]));
    for writer in &mut writers {
        assert_eq!(writer.ask("new"), "0");
    }
    // A stopped writer writes nothing; its mapped files may still get a later modification time.
    for writer in &writers {
        signal(&writer.child, "STOP");
        let status = format!("/proc/{}/status", writer.child.id());
        while !fs::read_to_string(&status).expect("a status").contains("\nState:\tT") {
            std::thread::yield_now();
        }
    }
    let without_times = |dir: &str| -> BTreeMap<_, _> {
        let strip = |(name, (ino, size, mode, uid, _))| (name, (ino, size, mode, uid));
        listing(dir).into_iter().map(strip).collect()
    };
    let before = [without_times(&dir), without_times(&counts)];
    look(&dir, &counts);
    assert_eq!([without_times(&dir), without_times(&counts)], before);
    for writer in &mut writers {
        signal(&writer.child, "CONT");
        assert_eq!(writer.ask("new"), "1");
    }
    writers.into_iter().for_each(Talk::end);
}

#[test]
fn a_lookup_that_waits_for_its_key_follows_a_later_writer() {
    let place = Place::new();
    let (dir, _) = filters(&place);
    let mut talk = Talk::new(&["contains", &dir]);
    assert_eq!(talk.ask("late"), "0");
    let mut writer = Talk::new(&["check", &dir]);
    assert_eq!(writer.ask("late"), "0");
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(talk.ask("late"), "1");
    writer.end();
    talk.end();
}

/// Whoever looks holds nobody up: also not if it is stopped at any moment, as by Ctrl-Z, or prints
/// into a pipe that nobody reads.
#[test]
fn a_stopped_look_delays_no_writer() {
    let place = Place::new();
    let dir = place.at("filter");
    // Kept, so that the log which a stopped look has begun to read stays.
    ok(&["create", "--last", "20000", "--stripes", "4", "--keep-log", "1h", &dir], b"");
    ok(&["insert", &dir], &input(&stream(20_000, 30_000)));
    let keys = place.at("keys");
    fs::write(&keys, input(&stream(3000, 30_000))).expect("space");
    let page = place.at("page.html");
    let commands: [&[&str]; 9] = [
        &["stat", &dir],
        &["digest", &dir],
        &["verify", &dir],
        &["wal", &dir],
        &["history", &dir],
        &["contains", &dir, &keys],
        &["age", &dir, &keys],
        &["report", &dir, "--output", &page],
        &["top", &dir, "--once"],
    ];
    let mut stopped = 0;
    for (number, command) in commands.iter().enumerate() {
        for moment in [0, 2, 5, 9, 14, 20] {
            // Its output stays in the pipe.
            let mut child = start(command);
            std::thread::sleep(Duration::from_millis(moment + number as u64 % 3));
            let is_running = child.try_wait().expect("a status").is_none();
            if is_running {
                signal(&child, "STOP");
                stopped += 1;
            }
            let began = Instant::now();
            ok(&["insert", &dir, "--key", &format!("{number} {moment}")], b"");
            assert!(began.elapsed() < LIMIT, "{command:?}, stopped after {moment} ms");
            if is_running {
                signal(&child, "CONT");
            }
            let outcome = child.wait_with_output().expect("an end");
            assert!(outcome.status.success(), "{command:?}: {outcome:?}");
        }
    }
    assert!(stopped > 10, "{stopped} looks were stopped");
}
