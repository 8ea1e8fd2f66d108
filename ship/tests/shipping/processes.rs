//! Processes of a shipper and of a writer, each ended by SIGKILL at any time, over a directory as
//! the store. What is fetched is a prefix, has all that was confirmed, with the digest of the
//! replay.

use ebbtide::history::At;
use ebbtide::{AgePartitioned, Any, Durability, Filter, Keep, Options, Reader};
use ebbtide_ship::{Error, Follower, ShipOptions, Store, Worker, fetch, promote, verify};
use ebbtide_testkit::child;
use ebbtide_testkit::environment::{SEED, number};
use ebbtide_testkit::random::Random;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Kills by default.
const KILLS: u64 = 20;

fn options() -> Options {
    let durability = Durability::Interval(Duration::from_millis(5));
    Options::new().durability(durability).keep_log(Keep::Bytes(1 << 40))
}

#[test]
fn the_child_plays_its_role_when_it_is_one() {
    let role = child::role().unwrap_or_default();
    match role.split(' ').collect::<Vec<_>>().as_slice() {
        ["write", dir, seed] => write(Path::new(dir), seed.parse().expect("a seed")),
        ["ship", dir, store] => ship(Path::new(dir), store),
        ["follow", store, copy] => follow(store, Path::new(copy)),
        ["fetch", store, copy] => {
            let store = Store::open(store).expect("a store");
            runtime().block_on(fetch(&store, copy, None)).expect("a fetch");
        }
        _ => {}
    }
}

fn write(dir: &Path, seed: u64) {
    let filter = Filter::open_or_create(dir, AgePartitioned::last(500), options());
    let filter = filter.expect("a filter");
    let mut random = Random::new(seed);
    loop {
        for _ in 0..random.below(60) {
            filter.insert(random.below(5000).to_le_bytes()).expect("an insert");
        }
        match random.below(30) {
            0 => drop(filter.checkpoint().expect("a checkpoint")),
            1 => filter.clear().expect("a clear"),
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ship(dir: &Path, store: &str) {
    let ship = ShipOptions { snapshot_log_bytes: 20_000, ..ShipOptions::default() };
    let every = Duration::from_millis(3);
    let worker = loop {
        match Worker::start(dir, Store::open(store).expect("a store"), ship.clone(), every) {
            // A writer that opens the filter on a busy machine.
            Err(error) if error.is_transient() => drop(error),
            started => break started.expect("a shipper"),
        }
    };
    loop {
        let status = worker.status();
        println!("confirmed {}", status.confirmed);
        assert!(!status.is_stopped, "{:?}", status.failure);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn follow(store: &str, copy: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let begin = || {
        let store = Store::open(store).expect("a store");
        runtime.block_on(Follower::begin_in(store, copy, Duration::from_secs(60)))
    };
    let mut follower = loop {
        match begin() {
            Ok(follower) => break follower,
            // Nothing is shipped yet.
            Err(Error::Object { .. }) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => panic!("{error}"),
        }
    };
    loop {
        runtime.block_on(follower.look()).expect("a look");
        println!("followed {}", follower.answers().next_lsn());
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Running(Child);

impl Running {
    /// Starts a child; `reached` gets the greatest number that it prints behind `word`.
    fn start(role: &str, word: &'static str, reached: &Arc<AtomicU64>) -> Self {
        let mut command = Command::new(child::program());
        child::give(&mut command, module_path!(), role).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a child");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let reached = reached.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let number = line.split_once(word).and_then(|(_, text)| text.parse().ok());
                reached.fetch_max(number.unwrap_or(0), Ordering::Relaxed);
            }
        });
        Self(process)
    }

    /// Returns a process that has ended.
    fn none() -> Self {
        Self(Command::new("true").spawn().expect("a process"))
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // By SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The processes of a test, and what they have reached.
struct World {
    parent: tempfile::TempDir,
    confirmed: Arc<AtomicU64>,
    followed: Arc<AtomicU64>,
    random: Random,
}

impl World {
    fn new(seed: u64) -> Self {
        let parent = tempfile::tempdir().expect("a directory");
        let world = Self {
            parent,
            confirmed: Arc::default(),
            followed: Arc::default(),
            random: Random::new(seed),
        };
        drop(Filter::create(world.dir(), AgePartitioned::last(500), options()).expect("a filter"));
        world
    }

    fn dir(&self) -> PathBuf {
        self.parent.path().join("seen")
    }

    fn copy(&self) -> PathBuf {
        self.parent.path().join("copied")
    }

    fn url(&self) -> String {
        self.parent.path().join("store").display().to_string()
    }

    fn writer(&mut self) -> Running {
        let role = format!("write {} {}", self.dir().display(), self.random.below(1 << 40));
        Running::start(&role, "confirmed ", &self.confirmed)
    }

    fn shipper(&self) -> Running {
        let role = format!("ship {} {}", self.dir().display(), self.url());
        Running::start(&role, "confirmed ", &self.confirmed)
    }

    fn follower(&self) -> Running {
        let role = format!("follow {} {}", self.url(), self.copy().display());
        Running::start(&role, "followed ", &self.followed)
    }

    /// Checks that what is fetched from a store has all operations below an LSN, and is what the
    /// filter was.
    fn check(&self, runtime: &Runtime, url: &str, least: u64) {
        let copy = self.parent.path().join("fetched");
        let store = Store::open(url).expect("a store");
        let fetched = runtime.block_on(fetch(&store, &copy, None)).expect("a fetch");
        assert!(fetched.lsn >= least, "{} of {least}", fetched.lsn);
        self.compare(&copy, fetched.lsn);
        std::fs::remove_dir_all(&copy).expect("a removal");
    }

    fn compare(&self, copy: &Path, lsn: u64) {
        let copied = Reader::<Any>::open(copy, Options::new()).expect("a reader");
        let then = Reader::<Any>::at(self.dir(), At::Lsn(lsn - 1), Options::new());
        let then = then.expect("the moment").digest().expect("a digest");
        let found = copied.digest().expect("a digest");
        assert_eq!(then.value, found.value, "as of LSN {}", lsn - 1);
    }
}

/// Returns whether a copy has a hint, besides what a kill has left of one.
fn has_hint(copy: &Path) -> bool {
    let entries = std::fs::read_dir(copy.join("base")).into_iter().flatten();
    let mut names = entries.map_while(Result::ok).map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().parse::<u64>().is_ok())
}

fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

#[test]
fn killed_processes_leave_a_store_from_which_the_filter_is_fetched_whole() {
    if child::role().is_some() {
        return;
    }
    let kills = number("EBBTIDE_PROCESS_KILLS").unwrap_or(KILLS);
    let seed = number("EBBTIDE_SEED").unwrap_or(SEED);
    println!("seed {seed}");
    let (runtime, mut world) = (runtime(), World::new(seed));
    let mut processes = [world.writer(), world.shipper(), world.follower()];
    let mut copies = 0;
    for kill in 0..kills {
        std::thread::sleep(Duration::from_millis(world.random.below(120)));
        for (number, process) in processes.iter_mut().enumerate() {
            assert!(process.is_alive(), "process {number} ended before kill {kill}");
        }
        let which = world.random.below(7) + 1;
        let followed = world.followed.load(Ordering::Relaxed);
        if which & 1 > 0 {
            processes[0] = world.writer();
        }
        if which & 2 > 0 {
            processes[1] = world.shipper();
        }
        if which & 4 > 0 {
            let copy = world.copy();
            let running = std::mem::replace(&mut processes[2], Running::none());
            drop(running);
            // Without a hint it was killed while it began anew, far behind.
            if followed > 0 && has_hint(&copy) {
                world.check(&runtime, copy.to_str().expect("text"), followed);
                copies += 1;
            }
            processes[2] = world.follower();
        }
        let least = world.confirmed.load(Ordering::Relaxed);
        if least > 0 {
            world.check(&runtime, &world.url(), least);
        }
    }
    drop(processes);
    let store = Store::open(&world.url()).expect("a store");
    let verified = runtime.block_on(verify(&store, None)).expect("sound");
    println!("seed {seed}: {kills} kills, {copies} copies compared, {verified:?}");
    let confirmed = world.confirmed.load(Ordering::Relaxed);
    assert!(confirmed > 0, "nothing was confirmed");
    let promoted = promote(&store, world.copy(), ShipOptions::default());
    let (fetched, _) = runtime.block_on(promoted).expect("promoted");
    assert!(fetched.lsn >= confirmed, "{} of {confirmed}", fetched.lsn);
    world.compare(&world.copy(), fetched.lsn);
}

#[test]
fn for_any_umask_other_users_can_change_no_directory_that_a_fetch_makes() {
    if child::role().is_some() {
        return;
    }
    let world = World::new(SEED);
    let worker = Worker::start(
        world.dir(),
        Store::open(&world.url()).expect("a store"),
        ShipOptions::default(),
        Duration::from_secs(1),
    );
    worker.expect("a shipper").finish().expect("shipped");
    for umask in ["000", "022", "077"] {
        let above = world.parent.path().join(umask).join("above");
        let copy = above.join("fetched");
        let mut command = Command::new("sh");
        command.args(["-c", "umask $0; exec \"$@\"", umask]).arg(child::program());
        let role = format!("fetch {} {}", world.url(), copy.display());
        let ended = child::give(&mut command, module_path!(), &role).output().expect("a child");
        assert!(ended.status.success(), "{umask}: {ended:?}");
        let mode = |path: &Path| std::fs::metadata(path).expect("it is there").mode() & 0o7777;
        let strict = 0o777 & !u32::from_str_radix(umask, 8).expect("a number");
        for made in [above.parent().expect("a directory"), &above, &copy] {
            assert_eq!(mode(made), 0o755 & strict, "{umask}: {}", made.display());
        }
        for entry in std::fs::read_dir(&copy).expect("a list").map_while(Result::ok) {
            assert_eq!(mode(&entry.path()), 0o600, "{umask}: {}", entry.path().display());
        }
    }
}
