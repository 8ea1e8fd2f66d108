//! Walks the table of docs/exactly-once.md at random: what happens to the inputs between two runs
//! of `dedup --output`, and what happens to the runs.
//!
//! A logger writes a log, which is rotated, compressed, copied, truncated and removed. Each run is
//! successful, killed, or refused. A refused run says what is missing; the walk does what it says,
//! and the next run succeeds. At the end the output contains each line of the log exactly once: no
//! key expires, and the false-positive rate is 1e-9.

use crate::exactly_once::{Random, scaled};
use crate::support::{Outcome, command, copy, signal};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// Rounds of a walk, and the walks, unless `EBBTIDE_EFFORT` says otherwise.
const ROUNDS: u64 = 12;
const WALKS: u64 = 18;

/// What all files begin with in some walks: more than the bytes that tell one file from another.
const HEADER: &str =
    "# time level process thread module message and more that each of the files begins with\n";

/// What a walk is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Rotated files are beside the log, with numbers.
    Plain,
    /// They are in a directory of their own, of which one is given.
    Elsewhere,
    /// They have names of another kind.
    Strange,
    /// All files begin with the same line.
    Headed,
    /// No line is written twice, and the filter is small: what is read again comes twice.
    Brief,
}

const MANNERS: [Manner; 5] =
    [Manner::Plain, Manner::Elsewhere, Manner::Strange, Manner::Headed, Manner::Brief];

/// A log, its rotated files, and everything that was ever written.
struct Walk {
    home: TempDir,
    /// The directory of everything: a copy of the first one if the walk has moved.
    dir: PathBuf,
    manner: Manner,
    random: Random,
    /// Whether the inputs are given by their names alone.
    is_bare: bool,
    /// The number of the next line.
    next: u64,
    /// Every line that was written, also without an end.
    written: BTreeSet<String>,
    /// The unfinished line at the end of each live log.
    half: [String; 2],
    /// Removed files, with their content and the time of its last change.
    removed: Vec<(String, Vec<u8>, SystemTime)>,
    /// The bytes of each live log that a run has read for certain.
    read: [u64; 2],
    /// The log of which a copy is being made, which is truncated then.
    copying: Option<usize>,
    /// Whether the next run is given the rotated files, too.
    gives_all: bool,
    /// The state at an earlier moment.
    saved: Option<PathBuf>,
    /// What has happened, for the report of a failure.
    story: Vec<String>,
    /// Options of the next run, which refusals have asked for.
    options: Vec<&'static str>,
    refused: u64,
    killed: u64,
}

const LOGS: [&str; 2] = ["h.log", "a.log"];

impl Walk {
    fn new(seed: u64, manner: Manner) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        let dir = home.path().join("work");
        fs::create_dir(&dir).expect("a directory");
        fs::create_dir(dir.join("old")).expect("a directory");
        let mut random = Random::new(seed);
        random.below(9);
        let mut walk = Self {
            home,
            dir,
            manner,
            random,
            is_bare: seed % 2 == 1,
            next: 0,
            written: BTreeSet::new(),
            half: Default::default(),
            removed: Vec::new(),
            read: [0; 2],
            copying: None,
            gives_all: false,
            saved: None,
            story: Vec::new(),
            options: Vec::new(),
            refused: 0,
            killed: 0,
        };
        walk.begin(0);
        walk
    }

    fn begin(&mut self, log: usize) {
        self.read[log] = 0;
        let is_headed = self.manner == Manner::Headed;
        fs::write(self.at(LOGS[log]), if is_headed { HEADER } else { "" }).expect("a log");
        if is_headed {
            self.written.insert(HEADER.trim_end().to_owned());
        }
    }

    /// Returns the name of a rotated file.
    fn part(&self, log: usize, number: u64, ending: &str) -> String {
        let directory = if self.manner == Manner::Elsewhere { "old/" } else { "" };
        format!("{directory}{}.{number}{ending}", LOGS[log])
    }

    /// Returns the names of the rotated files of a kind that is not known.
    fn strange_parts(&self, log: usize) -> Vec<String> {
        let names = fs::read_dir(&self.dir).expect("a directory").flatten();
        let names = names.map(|entry| entry.file_name().into_string().expect("UTF-8"));
        let of = format!("@{log}");
        let mut names: Vec<_> = names.filter(|name| name.starts_with(&of)).collect();
        names.sort();
        names
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn chance(&mut self, of: u64) -> bool {
        self.random.below(of) == 0
    }

    fn tell(&mut self, what: impl Into<String>) {
        self.story.push(what.into());
    }

    /// Appends bytes to a file.
    fn append(&self, name: &str, bytes: &[u8]) {
        let file = fs::File::options().create(true).append(true).open(self.at(name));
        file.and_then(|mut file| file.write_all(bytes)).expect("space");
    }

    /// Writes some lines to a live log; every third repeats an earlier one. The last may be
    /// unfinished.
    fn write(&mut self, log: usize, most: u64) {
        let count = self.random.below(most) + 1;
        let mut text = String::new();
        for _ in 0..count {
            let repeats = self.manner != Manner::Brief && self.half[log].is_empty();
            let mut line = if repeats && self.next > 0 && self.chance(3) {
                let back = self.random.below(self.next.min(50));
                format!("message {}", self.next - 1 - back)
            } else {
                self.next += 1;
                format!("message {}", self.next - 1)
            };
            if !self.half[log].is_empty() {
                // The rest of the line whose beginning is written.
                line = " continued".to_owned();
            }
            text.push_str(&line);
            text.push('\n');
            let whole = std::mem::take(&mut self.half[log]) + &line;
            self.written.insert(whole);
        }
        if self.chance(4) {
            self.next += 1;
            self.half[log] = format!("message {}", self.next - 1);
            text.push_str(&self.half[log]);
        }
        self.tell(format!("write {count} lines to {}, rest {:?}", LOGS[log], self.half[log]));
        if !self.at(LOGS[log]).exists() {
            self.begin(log);
        }
        self.append(LOGS[log], text.as_bytes());
    }

    /// Ends a live log where it is: its unfinished line is a line.
    fn end_half(&mut self, log: usize) {
        let half = std::mem::take(&mut self.half[log]);
        if !half.is_empty() {
            self.written.insert(half);
        }
    }

    /// Gives the rotated files of a log the next number, from the oldest on.
    fn shift(&mut self, log: usize) {
        self.finish_copy();
        for number in (1..30).rev() {
            for ending in ["", ".gz"] {
                let from = self.at(&self.part(log, number, ending));
                if from.exists() {
                    let to = self.at(&self.part(log, number + 1, ending));
                    fs::rename(from, to).expect("renamed");
                }
            }
        }
    }

    fn rotate(&mut self, log: usize) {
        self.tell(format!("rotate {}", LOGS[log]));
        self.shift(log);
        let name = match self.manner {
            Manner::Strange => format!("@{log}{:022x}.s", 0x678f_1a2b_0000_0000 + self.story.len()),
            _ => self.part(log, 1, ""),
        };
        fs::rename(self.at(LOGS[log]), self.at(&name)).expect("renamed");
        self.begin(log);
        self.end_half(log);
    }

    fn copy_and_truncate(&mut self, log: usize) {
        self.tell(format!("copy and truncate {}", LOGS[log]));
        self.shift(log);
        fs::copy(self.at(LOGS[log]), self.at(&self.part(log, 1, ""))).expect("a copy");
        self.begin(log);
        self.end_half(log);
    }

    /// Begins what [`Walk::finish_copy`] ends.
    fn begin_copy(&mut self, log: usize) {
        self.shift(log);
        let content = fs::read(self.at(LOGS[log])).expect("a log");
        let length = self.random.below(content.len() as u64 + 1) as usize;
        self.tell(format!("copy {length} of {} bytes of {}", content.len(), LOGS[log]));
        fs::write(self.at(&self.part(log, 1, "")), &content[..length]).expect("space");
        self.copying = Some(log);
    }

    fn finish_copy(&mut self) {
        let Some(log) = self.copying.take() else { return };
        self.tell(format!("end the copy of {}, and truncate", LOGS[log]));
        fs::copy(self.at(LOGS[log]), self.at(&self.part(log, 1, ""))).expect("a copy");
        self.begin(log);
        self.end_half(log);
    }

    /// Compresses a rotated file, which stays; or only a part of it.
    fn begin_compression(&mut self, log: usize) {
        self.finish_copy();
        let number = 1 + self.random.below(3);
        let from = self.part(log, number, "");
        let Ok(content) = fs::read(self.at(&from)) else { return };
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&content).expect("memory");
        let packed = packed.finish().expect("memory");
        let length = self.random.below(packed.len() as u64 + 1) as usize;
        let length = if self.chance(3) { packed.len() } else { length };
        self.tell(format!("compress {from}: {length} of {} bytes", packed.len()));
        fs::write(self.at(&format!("{from}.gz")), &packed[..length]).expect("space");
    }

    /// Compresses a rotated file.
    fn compress(&mut self, log: usize) {
        self.finish_copy();
        let number = 1 + self.random.below(3);
        let (from, to) = (self.part(log, number, ""), self.part(log, number, ".gz"));
        let Ok(content) = fs::read(self.at(&from)) else { return };
        self.tell(format!("compress {from}"));
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&content).expect("memory");
        fs::write(self.at(&to), packed.finish().expect("memory")).expect("space");
        fs::remove_file(self.at(&from)).expect("removed");
    }

    /// Removes a file, which comes back if a run misses it.
    fn remove(&mut self, log: usize) {
        self.finish_copy();
        let number = 1 + self.random.below(4);
        let strange = self.strange_parts(log).into_iter().rev().nth(number as usize - 1);
        let name = strange.unwrap_or_else(|| self.part(log, number, ""));
        if self.at(&name).exists() && self.at(&format!("{name}.gz")).exists() {
            self.tell(format!("remove {name}.gz, which has not replaced it"));
            fs::remove_file(self.at(&format!("{name}.gz"))).expect("removed");
        }
        for name in [name.clone(), format!("{name}.gz")] {
            let Ok(content) = fs::read(self.at(&name)) else { continue };
            self.tell(format!("remove {name}"));
            let written = self.written_at(&name);
            fs::remove_file(self.at(&name)).expect("removed");
            self.removed.push((name, content, written));
        }
    }

    /// Replaces a live log by another file; the content comes back as a rotated file. Nothing shows
    /// that, if no more was read of it than what all begin with.
    fn replace(&mut self, log: usize) {
        self.finish_copy();
        if self.read[log] <= HEADER.len() as u64 {
            return self.write(log, 9);
        }
        self.tell(format!("replace {}", LOGS[log]));
        let content = fs::read(self.at(LOGS[log])).expect("a log");
        let (in_place, written) = (self.chance(2), self.written_at(LOGS[log]));
        if !in_place {
            fs::remove_file(self.at(LOGS[log])).expect("removed");
        }
        self.begin(log);
        self.end_half(log);
        self.removed.push((format!("{}.lost", LOGS[log]), content, written));
        self.write(log, 9);
    }

    fn written_at(&self, name: &str) -> SystemTime {
        let found = fs::metadata(self.at(name)).and_then(|found| found.modified());
        found.expect("it is there")
    }

    /// Puts a file back, half of the times as `cp --preserve` does.
    fn put(&mut self, name: &str, content: &[u8], written: SystemTime) {
        let mut file = fs::File::create(self.at(name)).expect("space");
        file.write_all(content).expect("space");
        if self.chance(2) {
            file.set_modified(written).expect("its time");
        }
    }

    /// Puts everything back that was removed.
    fn put_back(&mut self) {
        self.finish_copy();
        for (name, content, written) in std::mem::take(&mut self.removed) {
            if let Some(log) = name.strip_suffix(".lost") {
                let which = usize::from(log != LOGS[0]);
                self.shift(which);
                let part = self.part(which, 1, "");
                self.tell(format!("put {log} back as {part}"));
                self.put(&part, &content, written);
            } else if name.starts_with('@') {
                self.put(&name, &content, written);
                self.tell(format!("put back {name}"));
            } else {
                let (stem, ending) = name.strip_suffix(".gz").map_or((&*name, ""), |s| (s, ".gz"));
                let (log, number) = stem.rsplit_once('.').expect("a number");
                let mut number: u64 = number.parse().expect("a number");
                let at = |number: u64, end: &str| self.at(&format!("{log}.{number}{end}"));
                while at(number, "").exists() || at(number, ".gz").exists() {
                    number += 1;
                }
                let name = format!("{log}.{number}{ending}");
                self.put(&name, &content, written);
                self.tell(format!("put back {name}"));
            }
        }
    }

    /// Something happens to the inputs or the state.
    fn happen(&mut self) {
        let log = usize::from(self.at(LOGS[1]).exists() && self.chance(3));
        match self.random.below(23) {
            21..=22 => self.begin_compression(log),
            0..=7 => self.write(log, 40),
            8..=10 => self.rotate(log),
            // They make names with numbers.
            11 | 15 | 20 if self.manner == Manner::Strange => self.rotate(log),
            11 => self.copy_and_truncate(log),
            12..=13 => self.compress(log),
            14 => self.remove(log),
            15 => self.replace(log),
            16 => self.write(1, 9),
            17 => self.save(),
            18 => self.restore(),
            20 => self.begin_copy(log),
            // Short files are found by their names only.
            _ if self.manner == Manner::Strange => self.write(log, 40),
            _ => self.move_away(),
        }
    }

    fn save(&mut self) {
        if !self.at("state").exists() {
            return;
        }
        self.tell("save the state");
        let to = self.home.path().join("saved");
        let _ = fs::remove_dir_all(&to);
        copy(&self.at("state"), &to);
        self.saved = Some(to);
    }

    /// Continues with the saved state, while the output is longer.
    fn restore(&mut self) {
        let Some(saved) = self.saved.clone() else { return };
        self.tell("restore the state");
        fs::remove_dir_all(self.at("state")).expect("removed");
        copy(&saved, &self.at("state"));
        // What runs after it had read may be missing.
    }

    /// Continues with a copy of everything in another directory.
    fn move_away(&mut self) {
        let to = self.home.path().join(format!("work-{}", self.story.len()));
        self.tell("copy everything to another directory");
        copy(&self.dir, &to);
        self.dir = to;
    }

    fn arguments(&self, inputs: Option<Vec<String>>, complete: bool) -> Vec<String> {
        let window = if self.manner == Manner::Brief { "5" } else { "1000000" };
        let first = ["dedup", "--last", window, "--fpr", "1e-9", "--hash-seed"];
        let mut all: Vec<String> = first.map(str::to_owned).into();
        all.extend(["7", "--batch", "16", "--durability", "never"].map(str::to_owned));
        let path = |name: &str| self.at(name).to_str().expect("UTF-8").to_owned();
        all.extend(["--state".to_owned(), path("state"), "--output".to_owned(), path("out")]);
        all.extend(complete.then(|| "--complete".to_owned()));
        all.extend(inputs.unwrap_or_else(|| {
            let spelled = |name: &String| if self.is_bare { name.clone() } else { path(name) };
            self.names().iter().map(spelled).collect()
        }));
        all
    }

    /// Returns the names of the inputs: the live logs, or all files, the oldest first.
    fn names(&self) -> Vec<String> {
        let mut all = Vec::new();
        for log in (0..LOGS.len()).filter(|&log| self.at(LOGS[log]).exists()) {
            let mut parts = self.strange_parts(log);
            for number in (1..30).rev() {
                parts.extend([".gz", ""].map(|ending| self.part(log, number, ending)));
            }
            parts.retain(|name| self.at(name).exists());
            let given = match self.manner {
                _ if self.gives_all => parts.len(),
                // Else nothing names their directory.
                Manner::Elsewhere => parts.len().min(1),
                _ => 0,
            };
            all.extend(parts.split_off(parts.len() - given));
            all.push(LOGS[log].to_owned());
        }
        all
    }

    /// Starts a run in the directory of the inputs.
    fn start(&self, arguments: &[String]) -> Child {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        command(&arguments).current_dir(&self.dir).spawn().expect("it runs")
    }

    /// Runs, and kills the run; or two runs at once; or something happens meanwhile.
    fn run_disturbed(&mut self) {
        let arguments = self.arguments(None, false);
        match self.random.below(4) {
            0 => {
                self.tell("run, killed");
                let mut child = self.start(&arguments);
                std::thread::sleep(Duration::from_micros(self.random.below(30_000)));
                signal(&child, "KILL");
                let _ = child.wait();
                self.killed += 1;
            }
            1 => {
                self.tell("two runs at once");
                let (one, other) = (self.start(&arguments), self.start(&arguments));
                for child in [one, other] {
                    let output = child.wait_with_output().expect("an end");
                    assert!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
                }
            }
            _ => {
                self.tell("run, overtaken");
                let child = self.start(&arguments);
                let log = usize::from(self.at(LOGS[1]).exists() && self.chance(3));
                for _ in 0..1 + self.random.below(3) {
                    match self.random.below(4) {
                        0 => self.rotate(log),
                        1 if self.manner == Manner::Strange => self.rotate(log),
                        1 => self.copy_and_truncate(log),
                        _ => self.write(log, 40),
                    }
                }
                let output = child.wait_with_output().expect("an end");
                assert!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
            }
        }
    }

    /// Runs until a run succeeds, and does what refused ones say: a user adds to the command what
    /// each asks for.
    fn run(&mut self, complete: bool) {
        let (mut inputs, mut refusals) = (None, Vec::new());
        // Of strange names nothing else shows which were given once.
        self.gives_all = self.chance(4) || complete && self.manner == Manner::Strange;
        self.options.clear();
        for _ in 0..8 {
            let mut arguments = self.arguments(inputs.clone(), complete);
            arguments.extend(self.options.iter().map(|&option| option.to_owned()));
            let output = self.start(&arguments).wait_with_output().expect("an end");
            let outcome = Outcome {
                code: output.status.code(),
                stdout: output.stdout,
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            };
            if outcome.code == Some(0) {
                let bytes = |name| fs::metadata(self.at(name)).map_or(0, |found| found.len());
                self.read = LOGS.map(bytes);
                self.tell(format!("run: {}", outcome.stderr.trim_end()));
                return;
            }
            assert_eq!(outcome.code, Some(2), "{outcome:?}");
            self.refused += 1;
            self.tell(format!("refused: {}", outcome.stderr.trim_end()));
            inputs = self.obey(&outcome).or(inputs);
            refusals.push(outcome.stderr);
        }
        self.fail(&format!("never succeeds: {refusals:#?}"));
    }

    /// Does what a refusal says; returns the inputs that it names.
    fn obey(&mut self, outcome: &Outcome) -> Option<Vec<String>> {
        let sentence = &outcome.stderr;
        if let Some((_, order)) = sentence.split_once("in this order: ") {
            let (order, _) = order.split_once(", or").expect("an alternative");
            let accepts = sentence.contains("give --accept-missing and the inputs");
            self.options.extend(accepts.then_some("--accept-missing"));
            return Some(order.split(' ').map(str::to_owned).collect());
        }
        let says = |part: &str| sentence.contains(part);
        let is_missing = says("put it back") || says("put the file with its earlier content");
        // What is gone may come back later, too.
        let waits = self.manner != Manner::Strange && self.chance(3);
        if is_missing && !self.removed.is_empty() && !waits {
            self.put_back();
        } else if says("expected the 0 bytes that were written") {
            fs::write(self.at("out"), "").expect("space");
        } else if says("--accept-missing") {
            // Everything is there, or comes back. No copy is left out: each holds all that its log
            // had when it was truncated.
            self.options = vec!["--accept-missing"];
        } else if says("or give --new-input") && self.manner == Manner::Headed {
            self.options.push("--new-input");
        } else if !says("run again") {
            self.fail(&format!("refused without a reason: {sentence}"));
        }
        None
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{what}\nstory {:#?}", self.story)
    }

    /// Ends the walk: after all has been put back and read, each line is there once.
    fn end(&mut self) {
        self.put_back();
        self.run(true);
        (0..LOGS.len()).for_each(|log| self.end_half(log));
        self.run(true);
        let output = fs::read_to_string(self.at("out")).expect("the output");
        let lines: Vec<&str> = output.lines().collect();
        let found: BTreeSet<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let missing: Vec<_> = self.written.difference(&found).take(5).collect();
        let extra: Vec<_> = found.difference(&self.written).take(5).collect();
        if lines.len() != found.len() || !missing.is_empty() || !extra.is_empty() {
            let twice = lines.len() - found.len();
            self.fail(&format!("{twice} lines twice, missing {missing:?}, extra {extra:?}"));
        }
    }
}

#[test]
fn every_line_is_written_once_or_a_run_is_refused_and_says_what_is_missing() {
    let seed = std::env::var("EBBTIDE_SEED").ok().map_or(1, |seed| seed.parse().expect("a seed"));
    let (mut refused, mut killed) = (0, 0);
    // In fewer, no run may be refused, or none killed.
    let walks = scaled(WALKS).max(8);
    for (number, manner) in (0..walks).zip(MANNERS.into_iter().cycle()) {
        let mut walk = Walk::new(seed * 1_000_000 + number, manner);
        walk.tell(format!("walk {number} of seed {seed}, {manner:?}"));
        if manner == Manner::Strange {
            // A first run does not know such names.
            walk.run(false);
        }
        for _ in 0..ROUNDS {
            for _ in 0..1 + walk.random.below(3) {
                walk.happen();
            }
            if walk.chance(3) {
                walk.run_disturbed();
            }
            walk.run(false);
        }
        walk.end();
        (refused, killed) = (refused + walk.refused, killed + walk.killed);
    }
    println!("{} rounds, {refused} runs refused, {killed} killed", walks * ROUNDS);
    assert!(refused > 0 && killed > 0, "{refused} refused, {killed} killed");
}
