//! The tests, each a process of its own: what it takes, and which mutants it reaches.

use crate::tree::Tree;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// One test.
pub struct Test {
    program: PathBuf,
    folder: PathBuf,
    /// The name of its program and its own.
    pub name: String,
    exact: String,
    /// What it took without a mutant.
    pub time: Duration,
    /// The mutants that it reaches.
    pub reaches: BTreeSet<u32>,
}

/// How a test ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Passed,
    Failed,
    TimedOut,
}

/// Builds the tests and runs each once, with all mutants off. Those that fail are left out.
///
/// # Panics
/// If they do not build.
pub fn measure(tree: &Tree, work: &Path, programs: &[String], workers: usize) -> Vec<Test> {
    let known = work.join("measured");
    println!("building the tests");
    let listed = Mutex::new(list(tree, programs));
    let total = listed.lock().unwrap().len();
    let _ = fs::create_dir_all(&known);
    let measured = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (listed, measured, known) = (&listed, &measured, &known);
            scope.spawn(move || {
                let reached = work.join(format!("reached-{worker}"));
                loop {
                    let Some(mut test) = listed.lock().unwrap().pop() else { return };
                    let kept = known.join(test.name.replace(['/', ':', ' '], "-"));
                    if let Ok(text) = fs::read_to_string(&kept) {
                        let mut lines = text.lines();
                        let time = lines.next().and_then(|line| line.parse().ok());
                        test.time = Duration::from_millis(time.expect("a time"));
                        test.reaches = lines.map(|line| line.parse().expect("a number")).collect();
                        measured.lock().unwrap().push(test);
                        continue;
                    }
                    let _ = fs::remove_file(&reached);
                    let began = Instant::now();
                    let end = test.run("record", Some(&reached), Duration::from_secs(120), worker);
                    test.time = began.elapsed();
                    if end != End::Passed {
                        println!("left out: {} ({end:?})", test.name);
                        continue;
                    }
                    let text = fs::read_to_string(&reached).unwrap_or_default();
                    test.reaches = text.lines().filter_map(|line| line.parse().ok()).collect();
                    let lines: String = test.reaches.iter().map(|id| format!("{id}\n")).collect();
                    let text = format!("{}\n{lines}", test.time.as_millis());
                    fs::write(kept, text).expect("a measurement");
                    measured.lock().unwrap().push(test);
                }
            });
        }
    });
    let mut tests = measured.into_inner().unwrap();
    println!("{} of {total} tests", tests.len());
    tests.sort_by_key(|test| test.time);
    tests
}

impl Test {
    /// Runs it with a mutant switched on. It and its children are killed when its time is up.
    pub fn run(&self, mutant: &str, reached: Option<&Path>, limit: Duration, worker: usize) -> End {
        let name = format!("ebbtide-mutants-{}-{worker}", std::process::id());
        let scratch = std::env::temp_dir().join(name);
        fs::create_dir_all(&scratch).expect("a folder for the files of a test");
        let mut command = Command::new(&self.program);
        command.args(["--exact", &self.exact, "--test-threads", "1"]);
        command.current_dir(&self.folder).env("EBBTIDE_MUTANT", mutant).env("TMPDIR", &scratch);
        if let Some(reached) = reached {
            command.env("EBBTIDE_REACHED", reached);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().expect("a test program starts");
        let group = child.id() as i32;
        let began = Instant::now();
        let mut pause = Duration::from_micros(500);
        let end = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break if status.success() { End::Passed } else { End::Failed };
            }
            if began.elapsed() > limit {
                break End::TimedOut;
            }
            std::thread::sleep(pause);
            pause = (pause * 5 / 4).min(Duration::from_millis(50));
        };
        // SAFETY: `kill` with the number of a group whose leader is our child, perhaps not waited
        // for yet; it touches no memory.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        let _ = child.wait();
        let _ = fs::remove_dir_all(&scratch);
        end
    }
}

/// Builds the programs and asks them for their tests.
fn list(tree: &Tree, programs: &[String]) -> Vec<Test> {
    let mut tests = Vec::new();
    for program in programs {
        let mut command = Command::new("cargo");
        command.current_dir(&tree.path).args(["test", "--no-run", "--message-format", "json"]);
        command.arg("--target-dir").arg(&tree.target).args(["--profile", "mutants"]);
        let (package, test) = program.split_once(':').expect("PACKAGE:TEST");
        command.args(["--package", package]);
        match test {
            "lib" => command.arg("--lib"),
            test => command.args(["--test", test]),
        };
        let built = command.env("RUSTFLAGS", "--cap-lints=allow").output().expect("cargo runs");
        assert!(
            built.status.success(),
            "{}{}",
            String::from_utf8_lossy(&built.stdout),
            String::from_utf8_lossy(&built.stderr)
        );
        for line in built.stdout.split(|&byte| byte == b'\n') {
            let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
            let Some(executable) = message["executable"].as_str() else { continue };
            if message["profile"]["test"] != true {
                continue;
            }
            let manifest = Path::new(message["manifest_path"].as_str().expect("a manifest"));
            let folder = manifest.parent().expect("a folder");
            let mut command = Command::new(executable);
            let listed =
                command.current_dir(folder).arg("--list").output().expect("a test program");
            for line in String::from_utf8_lossy(&listed.stdout).lines() {
                if let Some(name) = line.strip_suffix(": test") {
                    tests.push(Test {
                        program: executable.into(),
                        folder: folder.into(),
                        name: format!("{program} {name}"),
                        exact: name.into(),
                        time: Duration::ZERO,
                        reaches: BTreeSet::new(),
                    });
                }
            }
        }
    }
    tests
}
