//! The children: this binary, executed again with a role.

use super::ptrace::{self, Stop, Tracee};
use super::scenes::{Operation, Scene};
use super::table;
use super::wave::{Beside, Stood, Wave};
use ebbtide::Filter;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "EBBTIDE_STEPPED_ROLE";
/// The exit codes of a child that must not be traced, and of one that may be but has randomised
/// addresses.
const REFUSED: i32 = 77;
const SHUFFLED: i32 = 78;

/// The role of a child.
#[derive(Debug)]
pub enum Role {
    /// Only offers to be traced.
    Offer,
    /// Is killed or stopped during an operation.
    Victim(&'static Scene, PathBuf, Plan),
    /// Continues to work.
    Survivor(&'static Scene, PathBuf),
}

/// The plan of a victim: some inserts, one more to warm up, then the operation under test.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The inserts before.
    pub before: Range<u64>,
    /// The last insert before the mark.
    pub warm: u64,
    /// The insert that is single-stepped.
    pub tested: u64,
}

/// The system's permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// No tracing.
    Nothing,
    /// Tracing, but addresses differ from child to child.
    Steps,
    /// Tracing with constant addresses.
    Leaps,
}

/// Determines the permissions by trying.
pub fn allowed() -> Allowed {
    let mut command = myself("offer");
    let status = ptrace::tame(&mut command).stdin(Stdio::null()).status();
    match status.ok().and_then(|status| status.code()) {
        Some(0) => Allowed::Leaps,
        Some(SHUFFLED) => Allowed::Steps,
        _ => Allowed::Nothing,
    }
}

fn myself(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test's file"));
    command.env(ROLE, role);
    command
}

impl Role {
    /// Returns the role, if this process is a child.
    pub fn from_environment() -> Option<Self> {
        let text = std::env::var(ROLE).ok()?;
        let mut parts = text.split('\n');
        let role = parts.next()?;
        if role == "offer" {
            return Some(Self::Offer);
        }
        let (scene, dir) = (table::named(parts.next()?)?, PathBuf::from(parts.next()?));
        if role == "survivor" {
            return Some(Self::Survivor(scene, dir));
        }
        let mut number = || parts.next()?.parse().ok();
        let before = number()?..number()?;
        let plan = Plan { before, warm: number()?, tested: number()? };
        Some(Self::Victim(scene, dir, plan))
    }

    /// Runs the role, to the end of the process.
    pub fn play(self) -> ! {
        match self {
            Self::Offer => std::process::exit(match (ptrace::offer(), ptrace::is_tame()) {
                (false, _) => REFUSED,
                (true, false) => SHUFFLED,
                (true, true) => 0,
            }),
            Self::Victim(scene, dir, plan) => suffer(scene, &dir, &plan),
            Self::Survivor(scene, dir) => survive(scene, &dir),
        }
    }
}

fn suffer(scene: &Scene, dir: &Path, plan: &Plan) -> ! {
    // If the victim itself opens the filter, others have made the inserts.
    let filter = (scene.operation != Operation::Open).then(|| {
        let filter = scene.open(dir).expect("the filter opens");
        for number in plan.before.clone().chain([plan.warm]) {
            scene.insert(&filter, number).expect("an insert");
        }
        filter
    });
    let claims = filter.as_ref().filter(|_| scene.operation.needs_claim());
    let token = claims.map_or(0, |filter| {
        scene.claim(filter, plan.tested).expect("an answer").expect("nobody has it")
    });
    assert!(ptrace::offer(), "tracing was allowed before");
    ptrace::mark();
    let done = scene.operate(filter, dir, plan, token);
    ptrace::mark();
    // Only stopped victims reach this line.
    done.expect("the operation ends well, later than usual");
    std::process::exit(0)
}

/// A child that is killed or stopped during an operation.
#[derive(Debug)]
pub struct Victim {
    /// The traced process, under the parent's control.
    pub tracee: Tracee,
}

impl Victim {
    /// Starts a victim.
    pub fn start(scene: &Scene, dir: &Path, plan: &Plan) -> Result<Self, String> {
        let Plan { before: Range { start, end }, warm, tested } = plan;
        let dir = dir.display();
        let role = format!("victim\n{}\n{dir}\n{start}\n{end}\n{warm}\n{tested}", scene.path);
        let mut command = myself(&role);
        let child = ptrace::tame(&mut command).stdin(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("cannot start a victim: {error}"))?;
        Ok(Self { tracee: Tracee::new(&child) })
    }

    /// Waits until the victim has reached the operation under test.
    pub fn stand(&mut self) -> Result<(), String> {
        match self.tracee.wait().and_then(|stop| self.tracee.bind().map(|()| stop)) {
            Ok(Stop::Mark) => Ok(()),
            other => Err(format!("the victim did not reach its operation: {other:?}")),
        }
    }
}

/// The survivor's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The number of inserts that the filter counts.
    pub inserts: u64,
    /// The LSN of the next record.
    pub lsn: u64,
    /// The position that the last batch set.
    pub position: u64,
    /// The claims that are held.
    pub claims: u64,
    /// The digest.
    pub digest: String,
    /// How many of the requested keys were present.
    pub present: u64,
}

/// A child that continues to work.
#[derive(Debug)]
pub struct Survivor {
    child: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Survivor {
    /// Starts a survivor, which opens the filter at once.
    pub fn start(scene: &Scene, dir: &Path) -> Result<Self, String> {
        let mut command = myself(&format!("survivor\n{}\n{}", scene.path, dir.display()));
        let child = ptrace::tame(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("cannot start a survivor: {error}"))?;
        let tell = child.stdin.take().expect("a pipe");
        let hear = BufReader::new(child.stdout.take().expect("a pipe"));
        Ok(Self { child, tell, hear })
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Inserts these numbers.
    pub fn insert(&mut self, numbers: Range<u64>) -> Result<Answer, String> {
        self.ask(&format!("insert {} {}", numbers.start, numbers.end))
    }

    /// Counts how many of these keys are present.
    pub fn count(&mut self, numbers: Range<u64>) -> Result<Answer, String> {
        self.ask(&format!("count {} {}", numbers.start, numbers.end))
    }

    /// Ends the claims of these keys. Returns how many there were.
    pub fn end_claims(&mut self, numbers: Range<u64>) -> Result<Answer, String> {
        self.ask(&format!("end-claims {} {}", numbers.start, numbers.end))
    }

    /// Counts how many of these keys are present, without the digest and its locks.
    pub fn glance(&mut self, numbers: Range<u64>) -> Result<u64, String> {
        Ok(self.ask(&format!("glance {} {}", numbers.start, numbers.end))?.present)
    }

    /// Inserts the keys of the first range concurrently and those of the second one by one, each
    /// durable when it returns, beside a victim that is stopped. [`Survivor::join`] waits for the
    /// inserts that it blocks.
    pub fn stand(&mut self, beside: &Beside) -> Result<Stood, String> {
        let Beside { at_once, in_turn, held_up } = beside;
        let line = self.tell(&format!(
            "stand {} {} {} {held_up}",
            at_once.start, in_turn.start, in_turn.end
        ))?;
        Stood::from_line(&line).ok_or_else(|| format!("the survivor printed {line}"))
    }

    /// Waits for the blocked inserts.
    pub fn join(&mut self) -> Result<Answer, String> {
        self.ask("join 0 0")
    }

    /// Writes a checkpoint.
    pub fn checkpoint(&mut self) -> Result<Answer, String> {
        self.ask("checkpoint 0 0")
    }

    /// Syncs.
    pub fn sync(&mut self) -> Result<Answer, String> {
        self.ask("sync 0 0")
    }

    fn tell(&mut self, what: &str) -> Result<String, String> {
        let mut line = String::new();
        let asked = writeln!(self.tell, "{what}").and_then(|()| self.hear.read_line(&mut line));
        if asked.is_err() || line.is_empty() {
            let status = self.child.wait();
            return Err(format!("asked to `{what}` the survivor ended: {status:?}"));
        }
        Ok(line)
    }

    fn ask(&mut self, what: &str) -> Result<Answer, String> {
        let line = self.tell(what)?;
        let mut parts = line.split_whitespace();
        let mut number = || parts.next().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        let (inserts, lsn, present, position) = (number(), number(), number(), number());
        let claims = number();
        let digest = parts.next().unwrap_or_default().to_owned();
        Ok(Answer { inserts, lsn, position, claims, digest, present })
    }

    /// Kills and reaps it.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Survivor {
    fn drop(&mut self) {
        // It may have died already; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn survive(scene: &'static Scene, dir: &Path) -> ! {
    // The threads live as long as the process.
    let filter: &'static Filter = Box::leak(Box::new(scene.open(dir).expect("the filter opens")));
    let mut wave = Wave::default();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("the parent writes");
        if let Some(beside) = Beside::from_line(&line) {
            println!("{}", wave.stand(scene, filter, &beside));
            continue;
        }
        if line.starts_with("join") {
            wave.join(scene, filter);
        }
        let answer =
            answer(scene, filter, &line).unwrap_or_else(|| panic!("unknown command `{line}`"));
        println!("{answer}");
    }
    // The parent has ended. It does not expect a clean close.
    std::process::exit(0)
}

fn answer(scene: &Scene, filter: &Filter, line: &str) -> Option<String> {
    let mut parts = line.split_whitespace();
    let what = parts.next()?;
    let numbers = parts.next()?.parse().ok()?..parts.next()?.parse().ok()?;
    let mut present = 0;
    match what {
        "insert" => {
            numbers.for_each(|number| scene.insert(filter, number).expect("an insert"));
        }
        "count" | "glance" => {
            present = numbers.filter(|&number| scene.contains(filter, number)).count();
        }
        "end-claims" => {
            let ends = |&number: &u64| scene.end_claim(filter, number).expect("no error");
            present = numbers.filter(ends).count();
        }
        "checkpoint" => drop(filter.checkpoint().expect("a checkpoint")),
        "sync" => filter.sync().expect("a sync"),
        "join" => {}
        _ => return None,
    }
    if what == "glance" {
        return Some(format!("0 0 {present}"));
    }
    let digest = filter.digest().expect("a digest");
    let position = scene.position(filter);
    let claims = filter.claims().expect("claims").len();
    Some(format!("{} {} {present} {position} {claims} {digest}", digest.inserts, digest.lsn))
}
