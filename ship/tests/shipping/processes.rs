//! Processes of a shipper and of a writer, each ended by SIGKILL at any time, over a directory as
//! the store. What is fetched is a prefix, has all that was confirmed, with the digest of the
//! replay.

use ebbtide::history::At;
use ebbtide::{AgePartitioned, Any, Durability, Filter, Keep, Options, Reader};
use ebbtide_ship::{ShipOptions, Store, Worker, fetch, verify};
use ebbtide_testkit::child;
use ebbtide_testkit::environment::{SEED, number};
use ebbtide_testkit::random::Random;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
    let worker = Worker::start(dir, Store::open(store).expect("a store"), ship, every);
    let worker = worker.expect("a shipper");
    loop {
        let status = worker.status();
        println!("confirmed {}", status.confirmed);
        assert!(!status.is_stopped, "{:?}", status.failure);
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Running(Child);

impl Running {
    fn start(role: &str, confirmed: &Arc<AtomicU64>) -> Self {
        let mut command = Command::new(child::program());
        child::give(&mut command, module_path!(), role).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a child");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let confirmed = confirmed.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let number = line.split_once("confirmed ").and_then(|(_, text)| text.parse().ok());
                confirmed.fetch_max(number.unwrap_or(0), Ordering::Relaxed);
            }
        });
        Self(process)
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

#[test]
fn killed_processes_leave_a_store_from_which_the_filter_is_fetched_whole() {
    if child::role().is_some() {
        return;
    }
    let kills = number("EBBTIDE_PROCESS_KILLS").unwrap_or(KILLS);
    let seed = number("EBBTIDE_SEED").unwrap_or(SEED);
    let mut random = Random::new(seed);
    let parent = tempfile::tempdir().expect("a directory");
    let (dir, url) = (parent.path().join("seen"), parent.path().join("store"));
    drop(Filter::create(&dir, AgePartitioned::last(500), options()).expect("a filter"));
    let store = Store::open(url.to_str().expect("text")).expect("a store");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let confirmed = Arc::new(AtomicU64::new(0));
    let ship = format!("ship {} {}", dir.display(), url.display());
    let writer = |random: &mut Random| {
        Running::start(&format!("write {} {}", dir.display(), random.below(1 << 40)), &confirmed)
    };
    let mut processes = (writer(&mut random), Running::start(&ship, &confirmed));
    for kill in 0..kills {
        std::thread::sleep(Duration::from_millis(random.below(120)));
        let alive = (processes.0.is_alive(), processes.1.is_alive());
        assert_eq!(alive, (true, true), "seed {seed}: a process ended before kill {kill}");
        let which = random.below(3);
        if which != 1 {
            processes.1 = Running::start(&ship, &confirmed);
        }
        if which != 0 {
            processes.0 = writer(&mut random);
        }
        let least = confirmed.load(Ordering::Relaxed);
        if least == 0 {
            continue;
        }
        let copy = parent.path().join(format!("copy-{kill}"));
        let fetched = runtime.block_on(fetch(&store, &copy, None)).expect("a fetch");
        assert!(fetched.lsn >= least, "seed {seed}: {} of {least}", fetched.lsn);
        let copied = Reader::<Any>::open(&copy, Options::new()).expect("a reader");
        let then = Reader::<Any>::at(&dir, At::Lsn(fetched.lsn - 1), Options::new());
        let then = then.expect("the moment").digest().expect("a digest");
        let found = copied.digest().expect("a digest");
        assert_eq!(then.value, found.value, "seed {seed}: as of LSN {}", fetched.lsn - 1);
        std::fs::remove_dir_all(&copy).expect("a removal");
    }
    drop(processes);
    let verified = runtime.block_on(verify(&store, None)).expect("sound");
    println!("seed {seed}: {kills} kills, {verified:?}");
    assert!(confirmed.load(Ordering::Relaxed) > 0, "nothing was confirmed");
}
