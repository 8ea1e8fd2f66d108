//! Shippers, writers and both are killed at any call to a faulty store, machines change, and power
//! fails. What is fetched is always a prefix, has all that was confirmed, and its digest is that of
//! the replay at this LSN. Of two shippers one stops.

use crate::faulty::{Client, Server};
use crate::machine::Machine;
use ebbtide::history::{At, Unlogged};
use ebbtide::media::{Media, Memory};
use ebbtide::{AgePartitioned, Any, Durability, Error as Inner, Filter, Keep, Options, Reader};
use ebbtide_ship::{Error, ShipOptions, Shipper, Store, assemble, verify};
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::environment::{SEED, number};
use ebbtide_testkit::random::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Kills by default.
const KILLS: u64 = 300;
/// Kills in one world.
const KILLS_OF_WORLD: u64 = 25;
const WINDOW: u64 = 300;

fn options(keep: bool) -> Options {
    let options = Options::new().durability(Durability::Interval(Duration::from_secs(3600)));
    let keep = if keep { Keep::Bytes(1 << 40) } else { Keep::Nothing };
    options.background(false).keep_log(keep).stripes(4)
}

/// A machine with a writer and a shipper, as far as they live.
struct Owner {
    machine: Machine,
    filter: Option<Filter<AgePartitioned>>,
    shipper: Option<(Shipper, Client)>,
}

struct World {
    seed: u64,
    random: Random,
    server: Arc<Server>,
    owner: Owner,
    zombie: Option<Owner>,
    keep: bool,
    confirmed: u64,
    /// Digests by the LSN as of which they were noted.
    noted: BTreeMap<u64, u128>,
    /// What was confirmed when the machine changed, and whether more was since.
    moved_at: u64,
    has_shipped: bool,
    last_error: String,
    counts: BTreeMap<&'static str, u64>,
}

fn store(client: Client) -> Store {
    // Snapshots have some 7 KB: some are uploaded in pieces, some at once.
    let bytes = if client.is_odd() { 5000 } else { 50_000 };
    Store::of(Arc::new(client), "filters/a", "faulty:///filters/a").upload_bytes(bytes)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let keep = random.below(3) > 0;
        let machine = Machine::default();
        let made = Filter::create_on(
            Arc::new(machine.disk()),
            AgePartitioned::last(WINDOW),
            options(keep),
        );
        let owner = Owner { machine, filter: Some(made.expect("a filter")), shipper: None };
        let server = Server::new(random.below(u64::MAX));
        let (zombie, noted, counts) = (None, BTreeMap::new(), BTreeMap::new());
        let mut world = Self {
            seed,
            random,
            server,
            owner,
            zombie,
            keep,
            confirmed: 0,
            noted,
            moved_at: 0,
            has_shipped: false,
            last_error: String::new(),
            counts,
        };
        world.note();
        world
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Notes the digest of the owner's filter.
    fn note(&mut self) {
        if let Some(filter) = &self.owner.filter {
            filter.sync().expect("a sync");
            let digest = filter.digest().expect("a digest");
            self.noted.insert(digest.lsn, digest.value);
        }
    }

    /// The owner's writer writes for a while.
    fn write(&mut self) {
        let Some(filter) = &self.owner.filter else { return };
        write(filter, &mut self.random);
        if self.random.below(8) == 0 {
            filter.checkpoint().expect("a checkpoint");
            self.count("checkpoint");
        }
        let Some(filter) = &self.owner.filter else { return };
        // Without a kept log an alteration forgets; which moments there are is another question.
        if self.keep && self.random.below(60) == 0 {
            let window = WINDOW + self.random.below(500);
            let altered = filter.alter(AgePartitioned::last(window), Unlogged::Forget);
            altered.expect("an alteration");
            self.count("alteration");
        }
        // Without a kept log all that is durable was noted.
        if !self.keep || self.random.below(3) > 0 {
            self.note();
        }
    }

    /// Kills the owner's writer, perhaps by a power cut.
    fn kill_writer(&mut self) {
        let Some(filter) = self.owner.filter.take() else { return };
        let disk = self.owner.machine.disk();
        let mut left = disk.without_process();
        if self.random.below(3) == 0 {
            self.count("power cut");
            left = left.without_power(Random::new(self.random.below(u64::MAX)));
        }
        // Nothing that the dead process does reaches the disk.
        disk.end();
        drop(filter);
        self.owner.machine.set(left);
        self.count("writer killed");
    }

    fn open_writer(&mut self) {
        if self.owner.filter.is_none() {
            let disk = Arc::new(self.owner.machine.disk());
            let opened = Filter::open_on(disk, options(self.keep));
            self.owner.filter =
                Some(opened.unwrap_or_else(|error| panic!("{}: {error}", self.seed)));
            self.note();
        }
    }

    /// Starts a shipper for a machine. `None`: it was killed, or got an error that may go away.
    async fn begin(&mut self, machine: Machine) -> Option<Result<(Shipper, Client), Error>> {
        let client = Client::faulty(&self.server, self.random.below(80));
        let ship = ShipOptions { snapshot_log_bytes: 3000, ..ShipOptions::default() };
        let begun = Shipper::begin(store(client.clone()), Arc::new(machine), ship);
        match client.run(begun).await {
            None => {
                self.count("shipper killed");
                None
            }
            Some(Err(error)) if is_passing(&error) => {
                self.last_error = error.to_string();
                None
            }
            Some(begun) => Some(begun.map(|shipper| (shipper, client))),
        }
    }

    /// Lets the owner's shipper work, and perhaps die.
    async fn ship(&mut self) {
        if self.owner.shipper.is_none() {
            let begun = self.begin(self.owner.machine.clone()).await;
            let begun = begun.transpose();
            self.owner.shipper = begun.unwrap_or_else(|error| panic!("{}: {error}", self.seed));
        }
        let Some((shipper, client)) = &mut self.owner.shipper else { return };
        match client.run(shipper.round()).await {
            None => {
                self.owner.shipper = None;
                self.count("shipper killed");
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => assert!(is_passing(&error), "seed {}: {error}", self.seed),
        }
        if let Some((shipper, _)) = &self.owner.shipper {
            let confirmed = shipper.confirmed();
            assert!(confirmed == 0 || confirmed >= self.confirmed, "seed {}", self.seed);
            self.confirmed = self.confirmed.max(confirmed);
            self.has_shipped |= confirmed > self.moved_at;
        }
    }

    /// The zombie wakes up: it writes, and tries to ship.
    async fn wake(&mut self) {
        let Some(mut zombie) = self.zombie.take() else { return };
        if let Some(filter) = &zombie.filter {
            write(filter, &mut self.random);
            filter.sync().expect("a sync");
        }
        match &mut zombie.shipper {
            Some((shipper, client)) => match client.run(shipper.round()).await {
                None => zombie.shipper = None,
                Some(Ok(shipped)) => assert_eq!(shipped.links, 0, "seed {}", self.seed),
                Some(Err(error)) if is_passing(&error) => {}
                Some(Err(error)) => {
                    assert!(error.is_fenced(), "seed {}: {error}", self.seed);
                    self.count("fenced");
                    zombie.shipper = None;
                }
            },
            None if self.has_shipped => match self.begin(zombie.machine.clone()).await {
                None => {}
                Some(Ok(_)) => panic!("seed {}: a zombie has taken over", self.seed),
                Some(Err(error)) => {
                    assert!(matches!(error, Error::Refused { .. }), "{}: {error}", self.seed);
                    self.count("refused");
                    return;
                }
            },
            None => {}
        }
        self.zombie = Some(zombie);
    }

    /// Another machine fetches the filter and continues.
    async fn change_machine(&mut self) {
        if self.confirmed == 0 {
            return;
        }
        let machine = Machine::default();
        let client = Client::faulty(&self.server, u64::MAX);
        // A fetch that fails because of its store is repeated.
        let mut tries = 0;
        let fetched = loop {
            match assemble(&store(client.clone()), Arc::new(machine.disk())).await {
                Ok(fetched) => break fetched.lsn,
                // Each of its calls may be refused, of which a long chain takes many.
                Err(error) => assert!(tries < 10_000, "seed {}: {error}", self.seed),
            }
            machine.set(CrashDisk::new());
            tries += 1;
        };
        // The machine before may ship more meanwhile.
        if self.random.below(4) == 0 {
            self.write();
            self.ship().await;
        }
        let mut tries = 0;
        let begun = loop {
            let begun = self.begin(machine.clone()).await;
            if let Some(begun) = begun {
                break begun;
            }
            tries += 1;
            assert!(tries < 1000, "seed {}: no shipper can begin: {}", self.seed, self.last_error);
        };
        match begun {
            Ok(begun) => {
                let disk = Arc::new(machine.disk());
                let filter = Filter::open_on(disk, options(self.keep));
                let filter = Some(filter.unwrap_or_else(|error| panic!("{}: {error}", self.seed)));
                self.confirmed = self.confirmed.max(begun.0.confirmed());
                let next = Owner { machine, filter, shipper: Some(begun) };
                self.zombie = Some(std::mem::replace(&mut self.owner, next));
                (self.has_shipped, self.moved_at) = (false, self.confirmed);
                self.count("machine changed");
                self.noted.split_off(&(self.confirmed + 1));
                self.note();
            }
            Err(error) => {
                assert!(matches!(error, Error::Refused { .. }), "{}: {error}", self.seed);
                // By the machine before, or by a put of it that the store did late.
                let sound = store(Client::sound(&self.server));
                let now = assemble(&sound, Arc::new(Memory::new())).await;
                let now = now.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
                assert!(now.lsn > fetched, "{}: {error}", self.seed);
                self.count("copy too old");
            }
        }
    }

    /// Fetches, and compares with what the owner's log says.
    async fn check(&mut self) {
        let copy: Arc<dyn Media> = Arc::new(Memory::new());
        let sound = store(Client::sound(&self.server));
        let fetched = match assemble(&sound, copy.clone()).await {
            Err(error) if self.confirmed == 0 => {
                assert!(matches!(error, Error::Object { .. }), "seed {}: {error}", self.seed);
                return;
            }
            fetched => fetched.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed)),
        };
        let (seed, lsn) = (self.seed, fetched.lsn);
        assert!(lsn >= self.confirmed, "seed {seed}: {lsn} of {}", self.confirmed);
        let found = Reader::<Any>::open_on(copy, Options::new()).and_then(|copy| copy.digest());
        let found = found.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        if self.keep {
            let machine: Arc<dyn Media> = Arc::new(self.owner.machine.clone());
            let then = Reader::<Any>::at_on(machine, At::Lsn(lsn - 1), Options::new());
            let then = then.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let then = then.digest().expect("a digest");
            assert_eq!(then.value, found.value, "seed {seed}: as of LSN {}", lsn - 1);
        } else {
            // Notes of the engine lie between what was noted, and a power cut may take some back.
            let below = self.noted.range(..=lsn).rev().take(2);
            let mut near = below.chain(self.noted.range(lsn..).take(2));
            let known = near.any(|(_, value)| *value == found.value);
            assert!(known, "seed {seed}: LSN {lsn}");
        }
        self.count("compared");
    }

    /// What is written when nothing fails any more is shipped, too.
    async fn ship_last(&mut self) {
        self.open_writer();
        let Some(filter) = &self.owner.filter else { return };
        filter.insert("the last").expect("an insert");
        let last = filter.stat().expect("figures").lsn;
        filter.sync().expect("a sync");
        filter.checkpoint().expect("a checkpoint");
        let (sound, machine) = (Client::sound(&self.server), Arc::new(self.owner.machine.clone()));
        let begun = Shipper::begin(store(sound), machine, ShipOptions::default()).await;
        let mut shipper = begun.unwrap_or_else(|error| panic!("{}: {error}", self.seed));
        shipper.round().await.unwrap_or_else(|error| panic!("{}: {error}", self.seed));
        assert!(shipper.confirmed() >= last, "{}: {} of {last}", self.seed, shipper.confirmed());
        self.confirmed = shipper.confirmed();
        self.note();
        self.check().await;
    }

    fn kills(&self) -> u64 {
        let of = |what| self.counts.get(what).copied().unwrap_or(0);
        of("shipper killed") + of("writer killed")
    }

    async fn run(&mut self, kills: u64) {
        let mut steps = 0;
        while self.kills() < kills {
            steps += 1;
            assert!(steps < 3000, "seed {}: it makes no progress: {}", self.seed, self.last_error);
            self.write();
            if self.random.below(12) == 0 {
                self.kill_writer();
            }
            if self.random.below(10) > 0 {
                self.open_writer();
            }
            let before = self.kills();
            if self.random.below(4) > 0 {
                self.ship().await;
            }
            if self.random.below(3) == 0 {
                self.wake().await;
            }
            if self.random.below(40) == 0 {
                self.change_machine().await;
            }
            if self.kills() > before || self.random.below(10) == 0 {
                self.check().await;
            }
        }
        self.check().await;
        self.ship_last().await;
        if self.confirmed > 0 {
            let sound = store(Client::sound(&self.server));
            let verified = verify(&sound, None).await;
            let verified = verified.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
            *self.counts.entry("states compared by verify").or_default() += verified.compared;
        }
    }
}

fn is_passing(error: &Error) -> bool {
    // Links that a stale list names were removed; the next try finds others.
    error.is_transient() || matches!(error, Error::Object { .. })
}

fn write(filter: &Filter<AgePartitioned>, random: &mut Random) {
    for _ in 0..random.below(40) {
        let key = random.below(5000).to_le_bytes();
        let done = match random.below(100) {
            0 => filter.clear(),
            1..=10 => {
                let mut batch = filter.batch();
                for _ in 0..random.below(10) {
                    batch.insert(random.below(5000).to_le_bytes()).expect("a part of a batch");
                }
                batch.set_position(random.below(3), random.below(1 << 40)).expect("a position");
                batch.commit().map(drop)
            }
            _ => filter.insert(key).map(drop),
        };
        match done {
            Ok(()) => {}
            Err(error @ Inner::Poisoned { .. }) => panic!("{error}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn what_is_fetched_is_a_prefix_with_all_that_was_confirmed_whoever_is_killed() {
    let kills = number("EBBTIDE_KILLS").unwrap_or(KILLS);
    let seed = number("EBBTIDE_SEED").unwrap_or(SEED);
    let mut runtimes = tokio::runtime::Builder::new_current_thread();
    runtimes.enable_time().start_paused(true);
    let mut counts = BTreeMap::new();
    let mut faults = BTreeMap::new();
    let mut done = 0;
    for world in 0.. {
        if done >= kills {
            break;
        }
        let runtime = runtimes.build().expect("a runtime");
        let mut world = World::new(seed.wrapping_add(world));
        runtime.block_on(world.run(KILLS_OF_WORLD.min(kills - done)));
        done += world.kills();
        for (what, count) in &world.counts {
            *counts.entry(*what).or_insert(0) += count;
        }
        for (what, count) in world.server.counts() {
            *faults.entry(what).or_insert(0) += count;
        }
    }
    println!("seed {seed}: {counts:?}; faults: {faults:?}");
    for what in ["shipper killed", "writer killed", "compared"] {
        assert!(counts.contains_key(what), "{what}: {counts:?}");
    }
}
