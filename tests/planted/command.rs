//! A test with its arguments, and its run.

use rustix::process::{Pid, Signal, kill_process_group};
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// What prints nothing for so long hangs.
const HANG: Duration = Duration::from_secs(120);

/// What takes so long hangs, whatever it prints.
const LONGEST: Duration = Duration::from_secs(1200);

/// How a test is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Test {
    /// The unit tests of the algorithms.
    Core,
    /// The unit tests of the engine.
    Lib,
    /// A test of its own.
    Of(&'static str),
    /// The models, which loom runs.
    Loom,
    /// One world from one seed, whose steps a schedule chooses.
    World,
    /// The tests of the module for Redis and Valkey, on real servers.
    Module,
}

impl Test {
    /// The test that the head of a patch calls so.
    pub fn named(name: &'static str) -> Self {
        match name {
            "core" => Self::Core,
            "lib" => Self::Lib,
            "loom" => Self::Loom,
            "world" => Self::World,
            "module" => Self::Module,
            name => Self::Of(name),
        }
    }

    /// What cargo calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Core => "ebbtide_core",
            Self::Lib => "ebbtide",
            Self::Of(name) => name,
            Self::Loom => "loom",
            Self::World => "world",
            Self::Module => "module",
        }
    }

    /// The file that it begins with is one of these.
    pub fn file(self) -> [String; 2] {
        match self {
            Self::Core => ["core/src/lib.rs".into(), "core/src/lib.rs".into()],
            Self::Lib => ["src/lib.rs".into(), "src/lib.rs".into()],
            Self::Module => ["redis/Cargo.toml".into(), "redis/tests/module/main.rs".into()],
            // The tests of the command.
            Self::Of("contract") => [1, 2].map(|_| "cli/tests/contract/main.rs".into()),
            test => {
                let name = test.name();
                [format!("tests/{name}.rs"), format!("tests/{name}/main.rs")]
            }
        }
    }
}

/// A test with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    pub test: Test,
    /// Separated by blanks; those of the form `NAME=value` go into the environment.
    pub arguments: &'static str,
}

/// How a run ended, and after how long.
#[derive(Debug)]
pub struct Ended {
    /// It found nothing wrong.
    pub well: bool,
    pub after: Duration,
    /// What it printed.
    pub told: String,
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let test = match self.test {
            Test::Core => "unit tests of the algorithms",
            Test::Lib => "unit tests",
            test => test.name(),
        };
        // A name without its seed says enough.
        let words = self.arguments.split(" --seed ").next().unwrap_or_default();
        write!(f, "{test} `{words}`")
    }
}

impl Command {
    /// Returns the library that the tests of the module load; it lies in the folder above theirs.
    fn module(&self, program: &Path) -> Option<PathBuf> {
        let folder = program.ancestors().nth(2).filter(|_| self.test == Test::Module)?;
        Some(folder.join("libebbtide_redis.so"))
    }

    /// Runs it with this program.
    pub fn run(&self, program: &Path) -> std::io::Result<Ended> {
        let mut output = tempfile::tempfile()?;
        let mut command = std::process::Command::new(program);
        command.stdout(output.try_clone()?).stderr(output.try_clone()?);
        // So that its children end with it, and what it leaves when it is ended in the middle goes.
        command.process_group(0);
        let memory = Path::new("/dev/shm");
        let place = if self.arguments.contains("stepped::") && memory.exists() {
            tempfile::tempdir_in(memory)?
        } else {
            tempfile::tempdir()?
        };
        command.env("TMPDIR", place.path());
        for word in self.arguments.split_whitespace() {
            match word.split_once('=') {
                Some((name, value)) => command.env(name, value),
                None => command.arg(word),
            };
        }
        command.env("RUST_BACKTRACE", "0");
        if let Some(module) = self.module(program) {
            command.env("EBBTIDE_MODULE", module);
        }
        // What fails here is to be forgotten.
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        let start = Instant::now();
        let status = wait(command.spawn()?, &output, start)?;
        let after = start.elapsed();
        Ok(Ended {
            well: status.is_some_and(|status| status.success()),
            after,
            told: read(&mut output)?,
        })
    }
}

/// Waits for its end; none if it hangs. Nothing of it is left then.
fn wait(mut child: Child, output: &File, start: Instant) -> std::io::Result<Option<ExitStatus>> {
    let (mut status, mut printed, mut since) = (None, 0, start);
    while status.is_none() && since.elapsed() < HANG && start.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_millis(5));
        status = child.try_wait()?;
        let bytes = output.metadata()?.len();
        if bytes > printed {
            (printed, since) = (bytes, Instant::now());
        }
    }
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // Nobody is left, if all is well.
        let _ = kill_process_group(group, Signal::KILL);
    }
    if status.is_none() {
        child.wait()?;
    }
    Ok(status)
}

fn read(output: &mut File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
