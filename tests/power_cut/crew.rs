//! The users of the filter while the disk is logged: a director, and the processes that it starts
//! one after another, or two at a time. They end by closing the filter, or kill themselves during
//! their work.

use crate::notes::{Notes, STREAMS};
use crate::scenes::{Crew, Scene};
use ebbtide::{Durability, Error, Filter};
use ebbtide_testkit::random::{Random, mix};
use rustix::process::{Signal, getpid, kill_process};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

const ROLE: &str = "EBBTIDE_POWER_CUT_ROLE";

/// The recording: on an empty disk, or on one after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Three processes, or pairs of them, run some hundred operations each.
    First,
    /// One process, or one pair, recovers and runs a few.
    Second,
}

impl Part {
    fn stints(self) -> u64 {
        if self == Self::First { 3 } else { 1 }
    }

    fn operations(self, random: &mut Random) -> u64 {
        if self == Self::First { 100 + random.below(500) } else { 10 + random.below(60) }
    }
}

/// The role of a process.
#[derive(Debug, Clone)]
pub struct Role {
    /// The directory of the notes and the mounted disk.
    pub dir: PathBuf,
    /// The workload.
    pub scene: &'static Scene,
    /// The seed of its random choices.
    pub seed: u64,
    /// The recording.
    pub part: Part,
    /// The turn, and the process within it; `None` for the director.
    stint: Option<(u64, u64)>,
}

/// Returns the directory of the filter on a disk mounted there.
pub fn filter_of(mounted: &Path) -> PathBuf {
    mounted.join("filter")
}

impl Role {
    /// Returns the role of the director of a recording.
    pub fn director(dir: &Path, scene: &'static Scene, seed: u64, part: Part) -> Self {
        Self { dir: dir.to_owned(), scene, seed, part, stint: None }
    }

    /// Returns the role, if this process has one.
    pub fn from_environment() -> Option<Self> {
        let text = std::env::var(ROLE).ok()?;
        let mut parts = text.split('\n');
        let dir = PathBuf::from(parts.next()?);
        let scene = Scene::named(parts.next()?)?;
        let mut numbers = parts.map(|part| part.parse::<u64>().expect("a number"));
        let (seed, part) = (numbers.next()?, numbers.next()?);
        let part = if part == 0 { Part::First } else { Part::Second };
        let stint = numbers.next().zip(numbers.next());
        Some(Self { dir, scene, seed, part, stint })
    }

    /// Passes the role to a command that runs this program.
    pub fn give(&self, command: &mut Command) {
        let mut text = format!(
            "{}\n{}\n{}\n{}",
            self.dir.display(),
            self.scene.name,
            self.seed,
            u64::from(self.part == Part::Second)
        );
        if let Some((stint, process)) = self.stint {
            text += &format!("\n{stint}\n{process}");
        }
        command.env(ROLE, text);
    }

    /// Runs the role.
    pub fn play(self) {
        match self.stint {
            Some((stint, process)) => self.work(stint, process),
            None => self.direct(),
        }
    }

    fn filter(&self) -> PathBuf {
        filter_of(&self.dir.join("mnt"))
    }

    fn direct(&self) {
        let processes = if self.scene.crew == Crew::Processes { 2 } else { 1 };
        let mut stirrer = Stirrer::new(&self.dir.join("mnt"), self.seed);
        for stint in 0..self.part.stints() {
            let start = |process| {
                let program = std::env::current_exe().expect("this test's file");
                let mut command = Command::new(program);
                Self { stint: Some((stint, process)), ..self.clone() }.give(&mut command);
                command.spawn().expect("a process")
            };
            let mut working: Vec<Child> = (0..processes).map(start).collect();
            while !working.is_empty() {
                stirrer.stir(&self.filter());
                working.retain_mut(|child| match child.try_wait().expect("it is ours") {
                    Some(status) => {
                        assert!(status.success() || status.signal() == Some(9), "{status}");
                        false
                    }
                    None => true,
                });
            }
        }
    }

    /// Opens the filter and works on it.
    fn work(&self, stint: u64, process: u64) {
        let salt = (stint << 1 | process) << 1 | u64::from(self.part == Part::Second);
        let mut random = Random::new(mix(self.seed) ^ salt);
        let notes = Notes::new(&self.dir).expect("files for notes");
        let options = Scene::options(&mut random);
        notes.moment();
        let filter = match Filter::open(self.filter(), options.clone()) {
            Err(Error::NotAFilter { .. }) => {
                let options = options.segment_bytes(Scene::segment_bytes(self.seed));
                Filter::open_or_create(self.filter(), self.scene.spec(), options)
            }
            opened => opened,
        };
        let filter = filter.expect("the filter opens");
        notes.moment();
        let streams = match self.scene.crew {
            Crew::Processes => process as usize..process as usize + 1,
            _ => 0..self.scene.streams(),
        };
        let found = counts(self.scene, &filter);
        if self.scene.crew != Crew::Processes {
            // A single opener has made durable what it found.
            streams.clone().for_each(|stream| notes.acknowledge(stream, found[stream]));
        }
        let most = self.part.operations(&mut random);
        let dies = random.below(5) < 3;
        std::thread::scope(|scope| {
            for (at, stream) in streams.clone().enumerate() {
                let random = Random::new(random.below(u64::MAX));
                let (filter, notes) = (&filter, &notes);
                scope.spawn(move || {
                    let mut hand = Hand { scene: self.scene, filter, notes, stream, random };
                    hand.operate(found[stream], self.end(found[stream], most));
                    if dies && at == 0 {
                        kill_process(getpid(), Signal::KILL).expect("one may kill oneself");
                    }
                });
            }
        });
        notes.moment();
        filter.close().expect("the filter closes");
        streams.for_each(|stream| notes.acknowledge(stream, self.end(found[stream], most)));
        notes.moment();
    }

    /// Returns the number after the last operation, if at least this many are run.
    fn end(&self, start: u64, most: u64) -> u64 {
        self.scene.boundary(start + most)
    }
}

/// Returns how many operations of each stream a filter contains. They are a prefix of the stream.
pub fn counts(scene: &Scene, filter: &Filter) -> [u64; STREAMS] {
    if scene.crew == Crew::One {
        return [filter.stat().expect("figures").operations, 0];
    }
    // False positives are negligible at this fill.
    let there = |stream, number| filter.contains(scene.key(stream, number)).expect("an answer");
    [0, 1].map(|stream| {
        (0..).find(|&number| !there(stream, number)).expect("no filter holds all numbers")
    })
}

/// One stream of operations.
struct Hand<'a> {
    scene: &'static Scene,
    filter: &'a Filter,
    notes: &'a Notes,
    stream: usize,
    random: Random,
}

impl Hand<'_> {
    /// Runs the operations from `start` to `end`, some of them durable, among checkpoints and
    /// syncs.
    fn operate(&mut self, start: u64, end: u64) {
        let one_in = [3, 10, 50][self.random.below(3) as usize];
        let mut number = start;
        while number < end {
            match self.random.below(150) {
                0 => {
                    self.notes.moment();
                    self.filter.checkpoint().expect("a checkpoint");
                    self.notes.acknowledge(self.stream, number);
                    self.notes.moment();
                }
                1 | 2 => {
                    self.filter.sync().expect("a sync");
                    self.notes.acknowledge(self.stream, number);
                }
                // Time for the background threads.
                3 | 4 => std::thread::sleep(Duration::from_millis(1)),
                _ => {}
            }
            let durable = self.random.below(one_in) == 0;
            let lazy = Durability::Interval(Duration::from_millis(3));
            let durability = match self.random.below(2) {
                _ if durable => Durability::Always,
                0 => Durability::Never,
                _ => lazy,
            };
            number = self.scene.run(self.filter, self.stream, number, durability);
            if durable {
                self.notes.acknowledge(self.stream, number);
            }
        }
    }
}

/// Simulates other activity of the machine: the kernel writes back some files, and other programs
/// sync their own.
struct Stirrer {
    other: PathBuf,
    random: Random,
}

impl Stirrer {
    fn new(mounted: &Path, seed: u64) -> Self {
        Self { other: mounted.join("other"), random: Random::new(!seed) }
    }

    fn stir(&mut self, filter: &Path) {
        std::thread::sleep(Duration::from_micros(self.random.below(3000)));
        match self.random.below(40) {
            0 => {
                let root = File::open(self.other.parent().expect("a directory")).expect("the disk");
                sync_disk(&root);
            }
            1..4 => {
                let other = OpenOptions::new().create(true).append(true).open(&self.other);
                let mut other = other.expect("a file");
                other.write_all(&[7; 100]).and_then(|()| other.sync_all()).expect("a sync");
            }
            4..30 => self.write_back(filter),
            _ => {}
        }
    }

    /// Starts the write-back of a file of the filter, without a flush.
    fn write_back(&mut self, filter: &Path) {
        let Ok(entries) = std::fs::read_dir(filter) else { return };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        // Locks belong to descriptors, and other programs do not open that file.
        files.retain(|file| !file.ends_with("lock"));
        files.sort();
        if files.is_empty() {
            return;
        }
        let file = &files[self.random.below(files.len() as u64) as usize];
        // It may be removed by now.
        if let Ok(file) = File::open(file) {
            forget(&file);
        }
    }
}

/// Syncs the file system of a file. Elsewhere than on Linux the rig does not run.
fn sync_disk(file: &File) {
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(file).expect("a sync");
    #[cfg(not(target_os = "linux"))]
    file.sync_all().expect("a sync");
}

/// Takes the clean pages of a file out of memory.
fn forget(file: &File) {
    #[cfg(target_os = "linux")]
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).expect("advice is free");
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}
