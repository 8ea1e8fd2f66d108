//! The child that is killed, and the parent's side.

use super::scenes::{Checkpoints, Scene};
use ebbtide::{Error, Filter, Result};
use ebbtide_testkit::child::{HANG, program};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const ROLE: &str = "EBBTIDE_KILLED_CHILD";
/// The byte printed before the filter is opened.
const READY: u8 = b'#';
/// Between some operations beside a thread that writes checkpoints, so that they last until the
/// kill.
const PAUSE: Duration = Duration::from_micros(100);

/// The task of a child.
#[derive(Debug)]
pub struct Role {
    scene: &'static Scene,
    home: PathBuf,
    /// For each thread the number of its first operation; `None` means the number of operations in
    /// the filter.
    starts: [Option<u64>; 2],
}

impl Role {
    /// Returns the role, if this process is a child.
    pub fn from_environment() -> Option<Self> {
        let text = std::env::var(ROLE).ok()?;
        let mut parts = text.split('\n');
        let scene = Scene::named(parts.next()?)?;
        let starts = [parts.next()?, parts.next()?].map(|start| start.parse().ok());
        let home = PathBuf::from(parts.next()?);
        Some(Self { scene, home, starts })
    }

    /// Inserts until killed.
    pub fn play(self) {
        let notes = notes(&self.home);
        let mut out = std::io::stdout();
        out.write_all(&[READY]).and_then(|()| out.flush()).expect("the parent reads");
        let dir = super::filter_of(&self.home);
        let (scene, options) = (self.scene, self.scene.options());
        let open = || Filter::open_or_create(&dir, scene.spec(), options.clone());
        let filter = patiently(open).expect("a killed filter opens");
        let starts = self.starts.map(|start| start.unwrap_or_else(|| recount(&filter, &notes)));
        std::thread::scope(|scope| {
            for (thread, &start) in starts.iter().enumerate().take(self.scene.threads) {
                let (filter, notes, scene) = (&filter, &notes, self.scene);
                scope.spawn(move || insert(scene, filter, notes, thread, start));
            }
            if self.scene.checkpoints == Checkpoints::Always {
                loop {
                    filter.checkpoint().expect("a checkpoint");
                }
            }
        });
    }
}

/// Retries for a while if the filter is locked. A child that another test has just forked inherits
/// the parent's descriptors until it executes, and with them the locks of filters that the parent
/// had open.
pub fn patiently<T>(open: impl Fn() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    while began.elapsed() < HANG {
        match open() {
            Err(Error::Locked { .. }) => std::thread::sleep(Duration::from_millis(2)),
            other => return other,
        }
    }
    open()
}

/// Returns how many operations a filter of one thread contains: the noted ones and at most one
/// more.
fn recount(filter: &Filter, notes: &File) -> u64 {
    let operations = filter.stat().expect("figures").operations;
    let noted = read_notes(notes)[0];
    assert!(
        operations == noted || operations == noted + 1,
        "{noted} operations had returned, {operations} are present"
    );
    operations
}

fn insert(scene: &Scene, filter: &Filter, notes: &File, thread: usize, start: u64) {
    note(notes, thread, start);
    for number in start..start + scene.most {
        scene.operate(filter, thread, number);
        note(notes, thread, number + 1);
        match scene.checkpoints {
            Checkpoints::Inline(every) if number % every == 0 => {
                filter.checkpoint().expect("a checkpoint");
            }
            // Otherwise all are done before the first snapshot has its name.
            Checkpoints::Always if number % 8 == 0 => std::thread::sleep(PAUSE),
            _ => {}
        }
    }
    loop {
        std::thread::park();
    }
}

/// Notes that this many operations of the thread have returned. A completed write survives its
/// process.
fn note(notes: &File, thread: usize, count: u64) {
    notes.write_all_at(&count.to_le_bytes(), thread as u64 * 8).expect("a note");
}

fn notes(home: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(home.join("notes")).expect("a file for notes");
    if file.metadata().expect("an open file").len() < 16 {
        file.set_len(16).expect("room for notes");
    }
    file
}

/// Returns how many operations of each thread returned, including those before its start.
fn read_notes(file: &File) -> [u64; 2] {
    let mut bytes = [0; 16];
    file.read_exact_at(&mut bytes, 0).expect("notes");
    let (low, high) = (u128::from_le_bytes(bytes) as u64, u128::from_le_bytes(bytes) >> 64);
    [low, high as u64]
}

/// Starts a child, kills it after `after` from the moment when it begins to open the filter, and
/// returns its notes.
pub fn kill(
    scene: &Scene,
    home: &Path,
    starts: [Option<u64>; 2],
    after: Duration,
) -> std::result::Result<[u64; 2], String> {
    let notes = notes(home);
    for (at, start) in starts.iter().enumerate() {
        if let Some(start) = *start {
            note(&notes, at, start);
        }
    }
    let start = |at: usize| starts[at].map_or("-".to_owned(), |start| start.to_string());
    let role = format!("{}\n{}\n{}\n{}", scene.name, start(0), start(1), home.display());
    let mut child = Command::new(program())
        .env(ROLE, role)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start a child: {error}"))?;
    let mut stdout = child.stdout.take().expect("a pipe");
    let (ready, is_ready) = channel();
    std::thread::spawn(move || {
        let mut byte = [0];
        while stdout.read(&mut byte).unwrap_or(0) == 1 && byte[0] != READY {}
        let _ = ready.send(stdout);
    });
    // Kept open, so that the child can continue to print.
    let Ok(_stdout) = is_ready.recv_timeout(HANG) else {
        let _ = child.kill();
        return Err(format!("the child did not start within {HANG:?}"));
    };
    std::thread::sleep(after);
    // It may have died before; its status shows that.
    let _ = child.kill();
    let ended =
        child.wait_with_output().map_err(|error| format!("cannot wait for the child: {error}"))?;
    if ended.status.signal() == Some(9) {
        let said = String::from_utf8_lossy(&ended.stderr);
        // A thread of the child that panicked just before the kill.
        if said.contains("panicked") {
            return Err(format!("the child printed: {said}"));
        }
        return Ok(read_notes(&notes));
    }
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    Err(format!("the child ended without a kill, {}: {said}", ended.status))
}
