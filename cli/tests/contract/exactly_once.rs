//! `dedup --output`: however often a run is killed, the output is that of one undisturbed run.

use crate::support::{ok, refused, run, signal, start};
use ebbtide::{Any, Filter, Options};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// A limit longer than any step takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns `EBBTIDE_EFFORT` percent of this number, 40 if that is not set.
pub fn scaled(count: u64) -> u64 {
    let effort = std::env::var("EBBTIDE_EFFORT").ok();
    let percent = effort.map_or(40, |text| text.parse().expect("EBBTIDE_EFFORT is a number"));
    (count * percent / 100).max(1)
}

/// Random numbers of a fixed seed: a linear congruential generator.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

/// A directory with an input, and the arguments of a run.
pub struct Place {
    dir: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    pub fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).expect("space");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a file")
    }

    pub fn append(&self, name: &str, content: &[u8]) {
        let file = fs::File::options().append(true).open(self.path(name));
        file.and_then(|mut file| file.write_all(content)).expect("space");
    }

    /// Returns the arguments for these inputs, with a state and an output of this name.
    pub fn arguments(&self, name: &str, inputs: &[&str], more: &[&str]) -> Vec<String> {
        let (state, output) = (self.path(&format!("{name}.state")), self.path(name));
        let first = ["dedup", "--last", "5000", "--hash-seed", "7", "--batch", "700", "--state"];
        let mut all: Vec<String> = first.map(str::to_owned).into();
        all.extend([state, "--output".to_owned(), output]);
        all.extend(more.iter().map(|&option| option.to_owned()));
        all.extend(inputs.iter().map(|input| self.path(input)));
        all
    }

    pub fn run(&self, name: &str, inputs: &[&str], more: &[&str]) {
        let arguments = self.arguments(name, inputs, more);
        let outcome = ok(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), b"");
        assert!(outcome.stdout.is_empty(), "{outcome:?}");
    }

    pub fn refuse(&self, name: &str, inputs: &[&str]) -> String {
        self.refuse_with(name, inputs, &[])
    }

    pub fn refuse_with(&self, name: &str, inputs: &[&str], more: &[&str]) -> String {
        let arguments = self.arguments(name, inputs, more);
        refused(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), b"")
    }

    /// Runs, and kills the run as often, when its output has grown by a random length below this;
    /// then lets it end.
    fn run_with_kills(&self, name: &str, inputs: &[&str], kills: u64, below: u64) -> u64 {
        let arguments = self.arguments(name, inputs, &[]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut random = Random::new(kills);
        let length = || fs::metadata(self.path(name)).map_or(0, |found| found.len());
        let mut killed = 0;
        for kill in 0..kills {
            // Each fourth one is killed when it begins.
            let begins = kill % 4 == 3;
            let until = if begins { 0 } else { length() + random.below(below) };
            let (mut child, began) = (start(&arguments), Instant::now());
            while length() < until && child.try_wait().expect("a status").is_none() {
                assert!(began.elapsed() < LIMIT, "{} of {until} bytes", length());
                std::thread::sleep(Duration::from_millis(1));
            }
            let moment = random.below(if begins { 100_000 } else { 10_000 });
            std::thread::sleep(Duration::from_micros(moment));
            if let Some(status) = child.try_wait().expect("a status") {
                // It has read everything: the next kill meets a run from the beginning.
                assert!(status.success(), "{status:?} after {killed} kills");
                fs::remove_dir_all(self.path(&format!("{name}.state"))).expect("a state");
                fs::remove_file(self.path(name)).expect("an output");
            } else {
                signal(&child, "KILL");
                killed += 1;
                let _ = child.wait();
            }
        }
        // What the last one had written and not recorded is kept beside the output.
        let outcome = run(&arguments, b"");
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let is_cut = outcome.stderr.starts_with("ebbtide: cut ");
        assert!(outcome.stderr.is_empty() || is_cut, "{outcome:?}");
        assert!(!is_cut || Path::new(&self.path(&format!("{name}.cut"))).exists());
        killed
    }
}

/// Lines of which many repeat within the window, and some long after it.
pub fn lines(count: u64, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut all = Vec::new();
    for number in 0..count {
        let key = match random.below(3) {
            0 => number,
            1 => number.saturating_sub(random.below(3000)),
            _ => number.saturating_sub(random.below(40_000)),
        };
        all.extend(format!("message {key} {}\n", "x".repeat((key % 50) as usize)).bytes());
    }
    all
}

#[test]
fn a_run_that_is_killed_anywhere_any_number_of_times_writes_what_an_undisturbed_one_writes() {
    let place = Place::new();
    place.write("first", &lines(150_000, 1));
    place.write("second", &lines(60_000, 2));
    let inputs = ["first", "second"];
    place.run("undisturbed", &inputs, &[]);
    let length = place.read("undisturbed").len() as u64;
    // Several kills a run: together they cover the whole of it.
    let kills = scaled(25);
    let killed = place.run_with_kills("killed", &inputs, kills, length / 4);
    assert!(killed > kills / 4, "{killed} of {kills} runs were killed");
    let [undisturbed, killed] = ["undisturbed", "killed"].map(|name| place.read(name));
    assert!(undisturbed.len() > 1_000_000 && undisturbed == killed);
    // Compared with the command without an output: only the moments of answers differ.
    let plain = ok(&["dedup", "--last", "5000", "--hash-seed", "7", &place.path("first")], b"");
    let same = undisturbed.iter().zip(&plain.stdout).take_while(|(one, other)| one == other);
    assert!(same.count() > 100_000, "they begin equally, up to the first false positive");
}

#[test]
fn what_was_appended_is_read_later_and_a_rotated_file_to_its_end() {
    let place = Place::new();
    let whole = lines(20_000, 3);
    let cut = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let cuts: Vec<usize> = cut.step_by(4001).collect();
    let [one, two, three] = [cuts[1], cuts[2], cuts[3]];
    place.write("log", &whole[..one]);
    place.run("out", &["log"], &[]);
    place.append("log", &whole[one..two]);
    place.run("out", &["log"], &[]);
    // Rotated with an unread rest.
    place.append("log", &whole[two..three]);
    fs::rename(place.path("log"), place.path("log.1")).expect("renamed");
    place.write("log", &whole[three..]);
    place.run("out", &["log"], &[]);
    // Once more: there is nothing new.
    place.run("out", &["log"], &[]);
    place.run("out", &["log.1", "log"], &[]);
    place.write("all", &whole);
    place.run("expected", &["all"], &[]);
    let (found, expected) = (place.read("out"), place.read("expected"));
    let unique = |bytes: &[u8]| {
        let mut lines: Vec<_> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        lines.sort();
        lines
    };
    // Batches end elsewhere, so a false positive more or less is possible, but no line twice.
    let (found, expected) = (unique(&found), unique(&expected));
    assert!(found.len().abs_diff(expected.len()) <= 10, "{} {}", found.len(), expected.len());
}

#[test]
fn inputs_that_are_not_those_that_were_read_are_refused() {
    let place = Place::new();
    let content = lines(5000, 4);
    place.write("log", &content);
    place.run("out", &["log"], &[]);
    let written = place.read("out");
    // Truncated in place, as `copytruncate` does.
    fs::write(place.path("log"), &content[..1000]).expect("space");
    let sentence = place.refuse("out", &["log"]);
    assert!(sentence.contains("truncated") && sentence.contains("log"), "{sentence}");
    // Written anew, and longer.
    let mut other = lines(9000, 5);
    other.extend(&content);
    fs::write(place.path("log"), &other).expect("space");
    let sentence = place.refuse("out", &["log"]);
    assert!(
        sentence.contains("was replaced") && sentence.contains("--accept-missing"),
        "{sentence}"
    );
    // Another file in its place; the old one is gone.
    place.write("new", &other);
    fs::rename(place.path("new"), place.path("log")).expect("renamed");
    let sentence = place.refuse("out", &["log"]);
    assert!(sentence.contains("neither among the inputs nor beside them"), "{sentence}");
    assert_eq!(place.read("out"), written, "a refused run changes nothing");
    place.run("out", &["log"], &["--new-input"]);
    assert!(place.read("out").len() > written.len());
    // Standard input cannot be read again.
    let arguments = place.arguments("out", &[], &[]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert!(refused(&arguments, b"a\n").contains("standard input"));
}

#[test]
fn an_output_that_is_not_the_one_that_was_written_is_refused() {
    let place = Place::new();
    place.write("log", &lines(5000, 6));
    place.write("out", b"the first line\n");
    place.run("out", &["log"], &[]);
    let written = place.read("out");
    assert!(written.starts_with(b"the first line\nmessage "), "what was there stays");
    fs::write(place.path("out"), &written[..100]).expect("space");
    let sentence = place.refuse("out", &["log"]);
    assert!(sentence.contains("is shorter"), "{sentence}");
    fs::remove_file(place.path("out")).expect("removed");
    place.write("keep the inode", b"");
    let sentence = place.refuse("out", &["log"]);
    assert!(sentence.contains("another file") || sentence.contains("is shorter"), "{sentence}");
}

#[test]
fn two_runs_do_not_write_one_output_at_once() {
    let place = Place::new();
    place.write("log", &lines(1000, 7));
    let file = fs::File::create(place.path("out")).expect("a file");
    file.try_lock().expect("the first");
    let sentence = place.refuse("out", &["log"]);
    assert!(sentence.contains("another run"), "{sentence}");
}

/// Whoever inserts a key of a piece before its batch counts makes the run check the piece again.
#[test]
fn of_a_run_and_a_program_with_the_same_lines_exactly_one_has_each() {
    const LINES: u64 = 4000;
    let key = |number: u64| format!("message {number}");
    let all: String = (0..LINES).map(|number| key(number) + "\n").collect();
    // At this rate no answer is wrong.
    let exact = ["--fpr", "1e-9", "--durability", "always"];
    for round in 0..6 {
        let place = Place::new();
        place.write("empty", b"");
        place.run("out", &["empty"], &exact);
        place.write("log", all.as_bytes());
        let filter = Filter::<Any>::open(place.path("out.state"), Options::new());
        let filter = filter.expect("the state");
        let arguments = place.arguments("out", &["empty", "log"], &exact);
        let mut child = start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let (mut random, mut own) = (Random::new(round), Vec::new());
        while child.try_wait().expect("a status").is_none() {
            // Some lines are left to the run, however late it begins.
            let key = key(random.below(LINES / 2) * 2);
            if filter.check_and_insert(&key).expect("an answer").is_new() {
                own.push(key);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        assert!(child.wait().expect("a status").success());
        let written = String::from_utf8(place.read("out")).expect("UTF-8");
        let mut holders = BTreeMap::new();
        for line in written.lines().chain(own.iter().map(String::as_str)) {
            *holders.entry(line).or_insert(0) += 1;
        }
        let wrong = all.lines().find(|line| holders.remove(line) != Some(1));
        assert_eq!((wrong, holders.len()), (None, 0), "round {round}");
    }
}

#[test]
fn a_bad_line_is_counted_once_however_often_its_piece_is_checked_again() {
    const LINES: u64 = 4000;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs();
    // The filter refuses each tenth line: its time is too far ahead of the clock.
    let line = |number: u64| match number % 10 {
        0 => format!("{} ahead {number}\n", now + 1_000_000),
        _ => format!("{now} message{number}\n"),
    };
    let all: String = (0..LINES).map(line).collect();
    for round in 0..6 {
        let place = Place::new();
        place.write("empty", b"");
        place.write("log", all.as_bytes());
        let (state, output) = (place.path("state"), place.path("out"));
        let first = ["dedup", "--window", "1h", "--fpr", "1e-9", "--time-field", "1", "--field"];
        let rest = ["2", "--skip-bad", "--batch", "700", "--state", &state, "--output", &output];
        let options = [&first[..], &rest, &["--durability", "always"]].concat();
        let (empty, log) = (place.path("empty"), place.path("log"));
        ok(&[&options[..], &[&empty]].concat(), b"");
        let filter = Filter::<Any>::open(&state, Options::new()).expect("the state");
        let mut child = start(&[&options[..], &[&empty, &log]].concat());
        let mut random = Random::new(round);
        while child.try_wait().expect("a status").is_none() {
            let _ = filter.check_and_insert(format!("message{}", random.below(LINES)));
            std::thread::sleep(Duration::from_micros(50));
        }
        let output = child.wait_with_output().expect("an end");
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = format!("bad lines skipped: {}, ", LINES / 10);
        assert!(said.contains(&expected), "round {round}: {said}");
    }
}

#[test]
fn a_run_waits_for_the_end_of_a_killed_one_that_still_has_the_output() {
    let place = Place::new();
    place.write("log", &lines(1000, 7));
    let arguments = place.arguments("out", &["log"], &[]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_open = |pid: u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut names = files.filter_map(|file| fs::read_link(file.path()).ok());
        names.any(|name| name.ends_with("out"))
    };
    // On a busy machine a run may have refused, after two seconds, when the other one ends.
    let waits = (0..5).any(|_| {
        let file = fs::File::create(place.path("out")).expect("a file");
        file.try_lock().expect("the first");
        let (mut child, began) = (start(&arguments), Instant::now());
        while !is_open(child.id()) && child.try_wait().expect("a status").is_none() {
            assert!(began.elapsed() < LIMIT, "the run does not open its output");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(200));
        drop(file);
        let ended = child.wait_with_output().expect("an end");
        let said = String::from_utf8_lossy(&ended.stderr);
        let (waited, is_refused) = (ended.status.success(), said.contains("another run"));
        assert!(waited && said.is_empty() || is_refused, "{said}");
        waited
    });
    assert!(waits, "each run refused");
    assert!(!fs::read(place.path("out")).expect("the output").is_empty());
}

#[test]
fn compressed_inputs_and_tables_are_resumed() {
    let place = Place::new();
    let content = lines(60_000, 8);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&content).expect("memory");
    place.write("log.gz", &packed.finish().expect("memory"));
    place.write("log", &content);
    place.run("plain", &["log"], &[]);
    let length = place.read("plain").len() as u64;
    place.run_with_kills("packed", &["log.gz"], scaled(8), length / 2);
    assert_eq!(place.read("plain"), place.read("packed"));

    let table: String = (0..9000_u64).map(|row| format!("{row},\"key {}\"\n", row / 3)).collect();
    place.write("table", format!("number,key\n{table}").as_bytes());
    let column = ["--csv-field", "key"];
    place.run("rows", &["table"], &column);
    place.append("table", b"9000,key 9\n9001,fresh\n");
    place.run("rows", &["table"], &column);
    let rows = String::from_utf8(place.read("rows")).expect("UTF-8");
    assert!(rows.starts_with("number,key\n0,\"key 0\"\n3,\"key 1\"\n"));
    assert!(rows.ends_with("9001,fresh\n") && rows.matches("number,key").count() == 1);
}

/// The header in front of the place and the rows behind it are read from one open file.
#[test]
fn compressed_tables_that_have_grown_are_resumed() {
    let packed = |rows: std::ops::Range<u64>, header: &str| {
        let rows: String = rows.map(|row| format!("{row},key {row}\n")).collect();
        let mut member = GzEncoder::new(Vec::new(), Compression::fast());
        member.write_all(format!("{header}{rows}").as_bytes()).expect("memory");
        member.finish().expect("memory")
    };
    for rows in [100, 3_000, 4_000, 5_000, 60_000] {
        let place = Place::new();
        let run = || place.run("rows", &["table.gz"], &["--csv-field", "key", "--fpr", "1e-9"]);
        place.write("table.gz", &packed(0..rows, "number,key\n"));
        run();
        for more in [rows, rows + 50] {
            place.append("table.gz", &packed(more..more + 50, ""));
            run();
        }
        let found = String::from_utf8(place.read("rows")).expect("UTF-8");
        let expected: String = (0..rows + 100).map(|row| format!("{row},key {row}\n")).collect();
        assert!(found == format!("number,key\n{expected}"), "{rows} rows");
    }
}

#[test]
fn a_signal_stops_a_run_between_two_pieces_and_nothing_is_lost() {
    let place = Place::new();
    place.write("log", &lines(150_000, 9));
    place.run("whole", &["log"], &[]);
    let arguments = place.arguments("stopped", &["log"], &[]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    for _ in 0..5 {
        let child = start(&arguments);
        std::thread::sleep(Duration::from_millis(40));
        signal(&child, "TERM");
        let _ = child.wait_with_output().expect("an end");
    }
    place.run("stopped", &["log"], &[]);
    assert_eq!(place.read("whole"), place.read("stopped"));
    assert!(Path::new(&place.path("stopped.state")).is_dir());
}

#[test]
fn the_line_after_which_a_signal_stops_a_run_is_the_last_that_is_recorded() {
    let place = Place::new();
    let pad = "x".repeat(200);
    let line = |number: u64| format!("{{\"pad\": \"{pad}\", \"id\": {number}}}\n");
    place.write("log", (0..200_000).map(line).collect::<String>().as_bytes());
    let options = ["--json-field", "id", "--fpr", "1e-9", "--durability", "never"];
    let arguments = place.arguments("out", &["log"], &options);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let length = || fs::metadata(place.path("out")).map_or(0, |found| found.len());
    let mut stopped = 0;
    for round in 0..12 {
        let (before, mut child, began) = (length(), start(&arguments), Instant::now());
        while length() == before && child.try_wait().expect("a status").is_none() {
            assert!(began.elapsed() < LIMIT, "the run writes nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(3 * round));
        if let Some(status) = child.try_wait().expect("a status") {
            // It has read everything: the next one begins anew.
            assert!(status.success());
            fs::remove_dir_all(place.path("out.state")).expect("a state");
            fs::remove_file(place.path("out")).expect("an output");
            continue;
        }
        signal(&child, "TERM");
        let ended = child.wait_with_output().expect("an end");
        let said = String::from_utf8_lossy(&ended.stderr);
        let Some((_, after)) = said.split_once("stopped by SIGTERM after line ") else { continue };
        let line: usize = after.split(' ').next().expect("a word").parse().expect("a number");
        // Each line is new, so the output has as many.
        let written = place.read("out").iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(line, written, "{said}");
        stopped += 1;
    }
    assert!(stopped > 0, "no run was stopped");
}

/// Starts a run of two inputs, lets something happen to the second one while the first one is read,
/// and expects the lines of both; false if the run was too fast for that.
fn reads_both(happens: impl Fn(&Place)) -> bool {
    let place = Place::new();
    let first: Vec<u8> = (0..30_000).flat_map(|at| format!("line {at}\n").into_bytes()).collect();
    place.write("a.log", &first);
    place.write("b.log", b"the last\n");
    let arguments = place.arguments("out", &["a.log", "b.log"], &["--fpr", "1e-9"]);
    let mut child = start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let length = || fs::metadata(place.path("out")).map_or(0, |found| found.len());
    let began = Instant::now();
    while length() == 0 && child.try_wait().expect("a status").is_none() {
        assert!(began.elapsed() < LIMIT, "the run writes nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    signal(&child, "STOP");
    let is_in_time = length() < first.len() as u64;
    if is_in_time {
        happens(&place);
    }
    signal(&child, "CONT");
    let ended = child.wait_with_output().expect("an end");
    assert_eq!((ended.status.code(), &*ended.stderr), (Some(0), &b""[..]), "{ended:?}");
    assert!(place.read("out") == [&first[..], b"the last\n"].concat());
    is_in_time
}

#[test]
fn an_input_that_is_renamed_or_removed_before_its_turn_is_read() {
    let [renamed, replaced, removed]: [fn(&Place); 3] = [
        |place| fs::rename(place.path("b.log"), place.path("moved")).expect("renamed"),
        |place| {
            fs::rename(place.path("b.log"), place.path("moved")).expect("renamed");
            fs::create_dir(place.path("b.log")).expect("a directory");
        },
        |place| fs::remove_file(place.path("b.log")).expect("removed"),
    ];
    for happens in [renamed, replaced, removed] {
        assert!((0..10).any(|_| reads_both(happens)), "every run was too fast");
    }
}

#[test]
fn a_header_behind_blank_lines_that_an_earlier_run_has_read_is_no_record() {
    for blank in ["\n", "\r\n", "\n\n\r\n", &"\n".repeat(5000)] {
        let place = Place::new();
        let run = || place.run("out", &["t.csv"], &["--csv-field", "id"]);
        let output = || String::from_utf8(place.read("out")).expect("UTF-8");
        place.write("t.csv", blank.as_bytes());
        run();
        place.append("t.csv", blank.as_bytes());
        run();
        assert_eq!(output(), "");
        place.append("t.csv", b"id,n\n1,x\n");
        run();
        assert_eq!(output(), "id,n\n1,x\n", "{blank:?}");
        place.append("t.csv", b"\n1,y\n2,z\n");
        run();
        assert_eq!(output(), "id,n\n1,x\n2,z\n", "{blank:?}");
    }
}

#[test]
fn a_blank_table_that_was_rotated_ends_and_may_disappear() {
    let place = Place::new();
    let run = || place.run("out", &["t.csv"], &["--csv-field", "id"]);
    place.write("t.csv", b"\n\n");
    run();
    fs::rename(place.path("t.csv"), place.path("t.csv.1")).expect("renamed");
    place.write("t.csv", b"id\n1\n");
    run();
    fs::remove_file(place.path("t.csv.1")).expect("removed");
    place.append("t.csv", b"2\n");
    run();
    assert_eq!(place.read("out"), b"id\n1\n2\n");
}
