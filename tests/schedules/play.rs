//! One schedule: some processes work on a filter, and die; then the filter is compared with the
//! requested operations.

use crate::history::{BATCH, Begun, Claimed, History};
use crate::starts::{self, Pace, Start};
use ebbtide::history::Unlogged;
use ebbtide::media::{Access, Media, Memory};
use ebbtide::{
    Any, Batch, Checked, Claim, Durability, Error, Filter, Keep, Reader, Since, Timestamp,
};
use ebbtide_testkit::random::Random;
use ebbtide_testkit::schedule::place::{Place, Planted};
use ebbtide_testkit::schedule::stage;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The number of processes besides those of the schedule, which check its result.
const WITNESSES: usize = 3;
/// The number of keys that several threads insert, each at most once.
const SHARED_KEYS: u64 = 4;
/// Where the head of a snapshot has the number of its log (docs/format.md).
const HEADS_LOG: u64 = 16;
/// The first of the keys that several threads claim; no other operation has them.
const CLAIMED_KEYS: u64 = 1 << 40;
/// Longer than a schedule.
const LEASE: Duration = Duration::from_secs(86_400);

type Opened = Filter<Any>;
type Outcome = Result<(), String>;

/// The script of a process.
#[derive(Debug, Clone)]
struct Script {
    begins: Duration,
    reads_only: bool,
    closes: bool,
    threads: Vec<Vec<Act>>,
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Insert {
        key: u64,
        durable: bool,
    },
    InsertSome {
        key: u64,
    },
    Check {
        key: u64,
    },
    /// Three new keys, a check of one that others check too, and a position, in one step.
    Batch {
        key: u64,
        shared: u64,
        durable: bool,
    },
    /// A key that others claim too: claimed, and then confirmed, released or kept.
    Work {
        key: u64,
        then: Then,
    },
    Ask,
    Sync,
    Checkpoint,
    Tasks,
    /// A filter like it takes its place.
    Alter,
    Digest,
}

/// What becomes of a claim.
#[derive(Debug, Clone, Copy)]
enum Then {
    Confirm,
    ConfirmInBatch,
    Release,
    Extend,
}

/// The state that all threads of a schedule share.
struct Play {
    place: Place<Memory>,
    history: Mutex<History>,
    /// The handles by process, while they are open.
    handles: Vec<Mutex<Option<Arc<Opened>>>>,
    /// The number of unfinished threads of each process.
    working: Vec<Mutex<usize>>,
    pace: Pace,
    /// The number of inserts before the schedule.
    before: u64,
}

fn text(error: Error) -> String {
    error.to_string()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("not poisoned")
}

fn scripts(random: &mut Random) -> Vec<Script> {
    let mut fresh = SHARED_KEYS;
    let count = 2 + random.below(3);
    (0..count)
        .map(|number| {
            let late = random.below(3) == 0 && number > 0;
            let begins = if late { random.below(60) } else { 0 };
            let threads = 1 + random.below(2);
            Script {
                begins: Duration::from_millis(begins),
                reads_only: number > 1 && random.below(4) == 0,
                closes: random.below(2) == 0,
                threads: (0..threads).map(|_| acts(random, &mut fresh)).collect(),
            }
        })
        .collect()
}

fn acts(random: &mut Random, fresh: &mut u64) -> Vec<Act> {
    let count = 1 + random.below(4);
    let one = |_| {
        let mut key = || {
            *fresh += 1;
            *fresh
        };
        match random.below(22) {
            0..=3 => Act::Insert { key: key(), durable: false },
            4 | 5 => Act::Insert { key: key(), durable: true },
            6 => {
                let first = key();
                *fresh += 2;
                Act::InsertSome { key: first }
            }
            7..=9 => Act::Check { key: random.below(SHARED_KEYS) },
            10 => Act::Ask,
            11 => Act::Sync,
            12 | 13 => Act::Checkpoint,
            14 => Act::Tasks,
            15 | 16 => {
                let first = key();
                *fresh += 2;
                let (shared, durable) = (random.below(SHARED_KEYS), random.below(2) == 0);
                Act::Batch { key: first, shared, durable }
            }
            17..=19 => {
                let key = CLAIMED_KEYS + random.below(2);
                let then = [Then::Confirm, Then::ConfirmInBatch, Then::Release, Then::Extend];
                Act::Work { key, then: then[random.below(4) as usize] }
            }
            20 => Act::Alter,
            _ => Act::Digest,
        }
    };
    (0..count).map(one).collect()
}

/// Draws after how many steps each process dies, if it does: most die while they open, or within
/// their first operations.
fn deaths(random: &mut Random, scripts: &[Script]) -> Vec<Option<u64>> {
    let mut death = |_| {
        let span = 8 << random.below(10);
        (random.below(5) < 2).then(|| 1 + random.below(span))
    };
    let mut deaths: Vec<Option<u64>> = scripts.iter().map(&mut death).collect();
    deaths.resize(scripts.len() + WITNESSES, None);
    deaths
}

impl Play {
    /// Lets a first process prepare the filter alone: it advances the log, and may write snapshots.
    fn prepare(&mut self, random: &mut Random) -> Outcome {
        let filter: Opened = Filter::open_on(self.place.of(0), starts::options()).map_err(text)?;
        // About as many as arrive at once; or some, or none.
        let at_once = self.pace.at_once;
        let rounds = if at_once > 0 { 1 } else { random.below(3) };
        for _ in 0..rounds {
            let more = if at_once > 0 { at_once - 8 + random.below(14) } else { random.below(20) };
            self.pace.fill(&filter, self.before..self.before + more).map_err(text)?;
            self.before += more;
            if random.below(2) == 0 {
                filter.checkpoint().map_err(text)?;
            }
        }
        if random.below(3) > 0 {
            *lock(&self.handles[0]) = Some(Arc::new(filter));
        } else if random.below(2) == 0 {
            filter.close().map_err(text)?;
        } else {
            // The process was killed.
            let witness = self.handles.len();
            self.place.bury(0);
            stage::kill(witness);
            stage::release(witness, filter);
        }
        Ok(())
    }

    /// Runs a thread of a process, from its beginning to its end.
    fn thread(&self, process: usize, number: usize, script: &Script) -> Outcome {
        stage::pause(script.begins);
        if script.reads_only {
            return self.read(process, &script.threads[number]);
        }
        if number == 0 && lock(&self.handles[process]).is_none() {
            match Filter::open_on(self.place.of(process), starts::options()) {
                Ok(filter) => *lock(&self.handles[process]) = Some(Arc::new(filter)),
                // Another process held the lock for a minute.
                Err(Error::Locked { .. }) => {}
                Err(error) => return Err(text(error)),
            }
        }
        for _ in 0..200 {
            let filter = lock(&self.handles[process]).clone();
            if let Some(filter) = filter {
                for &act in &script.threads[number] {
                    self.act(&filter, act)?;
                }
                break;
            }
            stage::pause(Duration::from_millis(20));
        }
        *lock(&self.working[process]) -= 1;
        if number == 0 && script.closes {
            while *lock(&self.working[process]) > 0 {
                stage::pause(Duration::from_millis(1));
            }
            // The handle stays in its place meanwhile: if the process is killed here, unwinding
            // must not drop it. A dropped handle closes, which a dead process cannot complete.
            let filter = lock(&self.handles[process]).clone();
            if let Some(filter) = filter {
                filter.close().map_err(text)?;
                drop(lock(&self.handles[process]).take());
            }
        }
        Ok(())
    }

    fn begin(&self, key: u64, plain: bool) -> (Begun, Timestamp) {
        let mut history = lock(&self.history);
        let time = self.pace.time_of(self.before + history.begun());
        (history.begin(key, time, plain), Timestamp::from_unix_micros(time))
    }

    fn act(&self, filter: &Opened, act: Act) -> Outcome {
        match act {
            Act::Insert { key, durable } => {
                let (begun, time) = self.begin(key, true);
                let call = filter.call().time(time);
                let call = if durable { call.durability(Durability::Always) } else { call };
                self.inserted(&[begun], usize::from(call.insert(key.to_le_bytes()).map_err(text)?));
            }
            Act::InsertSome { key } => {
                let all = [key, key + 1, key + 2].map(|key| self.begin(key, true));
                let time = all[2].1;
                let latest = all[2].0.time;
                let all = all.map(|(begun, _)| begun.at(latest));
                let keys = all.map(|begun| begun.key.to_le_bytes());
                let count = filter.call().time(time).insert_all(&keys).map_err(text)?;
                self.inserted(&all, count);
            }
            // Whether a late insert was refused is not told.
            Act::Batch { key, .. } if lock(&self.history).expires_by_time() => {
                self.act(filter, Act::InsertSome { key })?;
            }
            Act::Batch { key, shared, durable } => self.commit(filter, key, shared, durable)?,
            Act::Work { .. } if lock(&self.history).expires_by_time() => {}
            Act::Work { key, then } => self.work(filter, key, then)?,
            Act::Check { key } => {
                let (begun, time) = self.begin(key, false);
                let call = filter.call().time(time).since(Since::LastAccepted);
                let checked = call.check_and_insert(key.to_le_bytes()).map_err(text)?;
                lock(&self.history).end(begun, Some(checked));
            }
            Act::Ask => {
                let certain = lock(&self.history).certain();
                self.ask(&certain, |key| filter.contains(key.to_le_bytes()).map_err(text))?;
            }
            Act::Sync => filter.sync().map_err(text)?,
            Act::Checkpoint => filter.checkpoint().map(|_| ()).map_err(text)?,
            Act::Tasks => filter.do_tasks().map_err(text)?,
            // In the log, keys of several stripes need not be in the order of their times.
            Act::Alter if lock(&self.history).expires_by_time() => {}
            // Without its log a filter would forget what is no longer in the window.
            Act::Alter if filter.stat().map_err(text)?.keep_log == Keep::Nothing => {}
            Act::Alter => {
                let like = Any::new(filter.kind(), filter.parameters());
                match filter.alter(like, Unlogged::Refuse) {
                    Ok(altered) if !altered.is_whole => return Err(format!("{altered:?}")),
                    // Or another process alters the filter.
                    Ok(_) | Err(Error::Locked { .. }) => {}
                    Err(error) => return Err(text(error)),
                }
            }
            Act::Digest => filter.digest().map(|_| ()).map_err(text)?,
        }
        Ok(())
    }

    /// Claims a key and does what is to become of the claim.
    fn work(&self, filter: &Opened, key: u64, then: Then) -> Outcome {
        let bytes = key.to_le_bytes();
        let lease = match filter.claim(bytes, LEASE).map_err(text)? {
            // A dead process drops nothing.
            Claim::Yours(lease) => ManuallyDrop::new(lease),
            Claim::Seen => return lock(&self.history).check_seen(key),
            // Its holder may have ended it by now.
            Claim::InProgress { .. } => return Ok(()),
        };
        let token = lease.token();
        lock(&self.history).give(key, token)?;
        match then {
            Then::Confirm | Then::ConfirmInBatch => {
                let (begun, time) = self.begin(key, true);
                lock(&self.history).set_claim(key, Claimed::Confirming(token));
                let call = filter.call().time(time);
                if let Then::Confirm = then {
                    call.confirm(&lease).map_err(text)?;
                } else {
                    let mut batch = ManuallyDrop::new(Batch::new(call));
                    batch.confirm(ManuallyDrop::into_inner(lease)).map_err(text)?;
                    batch.commit().map_err(text)?;
                }
                let mut history = lock(&self.history);
                history.end(begun, None);
                history.set_claim(key, Claimed::Confirmed);
            }
            Then::Release => {
                lock(&self.history).set_claim(key, Claimed::Releasing(token));
                let was_held = lease.release().map_err(text)?;
                let mut history = lock(&self.history);
                history.end_release(key, token);
                if !was_held {
                    return Err(format!("key {key} was not held by {token}"));
                }
            }
            Then::Extend => drop(lease.extend(LEASE).map_err(text)?),
        }
        Ok(())
    }

    /// Commits a batch. Its position is set if and only if the batch counts.
    fn commit(&self, filter: &Opened, key: u64, shared: u64, durable: bool) -> Outcome {
        let all = [key, key + 1, key + 2].map(|key| self.begin(key, true).0);
        let (begun, time) = self.begin(shared, false);
        lock(&self.history).begin_batch(key);
        let call = filter.call().time(time).since(Since::LastAccepted);
        let call = if durable { call.durability(Durability::Always) } else { call };
        let mut batch = Batch::new(call);
        for begun in &all {
            batch.insert(begun.key.to_le_bytes()).map_err(text)?;
        }
        let checked = batch.check_and_insert(shared.to_le_bytes()).map_err(text)?;
        batch.set_position(key, key + BATCH).map_err(text)?;
        let committed = match batch.commit() {
            Err(Error::Conflict { .. }) => false,
            committed => committed.map(|()| true).map_err(text)?,
        };
        let all = all.map(|one| one.at(begun.time));
        self.inserted(&all, usize::from(committed));
        let mut history = lock(&self.history);
        history.end(begun, Some(if committed { checked } else { Checked::Present }));
        if committed {
            history.end_batch(key);
        }
        Ok(())
    }

    /// Records that this many of these inserts were not too late.
    fn inserted(&self, all: &[Begun], count: usize) {
        let mut history = lock(&self.history);
        for &begun in all {
            // All were too late or none, because they have the same time.
            history.end(begun, (count == 0).then_some(Checked::TooLate));
        }
    }

    fn read(&self, process: usize, acts: &[Act]) -> Outcome {
        let patient = |error: Error| match error {
            // Writers open and close, or incomplete changes wait for the next writer.
            Error::Locked { .. } | Error::Retired { .. } => Ok(()),
            other => Err(text(other)),
        };
        let reader: Reader<Any> = match Reader::open_on(self.place.of(process), starts::options()) {
            Ok(reader) => reader,
            Err(error) => return patient(error),
        };
        for act in acts {
            match act {
                Act::Digest | Act::Checkpoint | Act::Tasks => {
                    reader.digest().map(|_| ()).or_else(patient)?;
                }
                _ => {
                    let certain = lock(&self.history).certain();
                    // A reader with its own recovered state switches to the state of new writers
                    // within ten milliseconds.
                    stage::pause(Duration::from_millis(11));
                    let contains = |key: u64| reader.contains(key.to_le_bytes());
                    self.ask(&certain, |key| {
                        contains(key).or_else(|error| patient(error).map(|()| true))
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Looks up keys that must be present.
    fn ask(&self, certain: &[u64], contains: impl Fn(u64) -> Result<bool, String>) -> Outcome {
        for key in certain {
            // Unless the key has left the window meanwhile.
            if !contains(*key)? && lock(&self.history).certain().contains(key) {
                return Err(format!("key {key} is not found"));
            }
        }
        Ok(())
    }

    fn check(&self, filter: &Opened) -> Result<(u128, u64), String> {
        lock(&self.history).check(filter, self.before)?;
        let digest = filter.digest().map_err(text)?;
        Ok((digest.value, digest.inserts))
    }

    /// Compares the final state with the requested operations.
    fn judge(&self, random: &mut Random) -> Outcome {
        let witness = self.handles.len();
        let mut left = Vec::new();
        for (process, handle) in self.handles.iter().enumerate() {
            let filter = lock(handle).take().and_then(Arc::into_inner);
            match filter {
                Some(filter) if stage::is_dead(process) => stage::release(process, filter),
                Some(filter) => left.push((process, filter)),
                None => {}
            }
        }
        if let Some((_, filter)) = left.first() {
            // An empty slot ends the log for a reader, until a handle voids it.
            filter.sync().map_err(text)?;
        }
        let mut digest = None;
        for (process, filter) in &left {
            let found = self.check(filter)?;
            if *digest.get_or_insert(found) != found {
                return Err(format!("the digest of process {process} differs"));
            }
        }
        if let Some(live) = digest {
            let reader: Reader<Any> =
                Reader::open_on(self.place.of(witness), starts::options()).map_err(text)?;
            let replayed = reader.digest().map_err(text)?;
            if (replayed.value, replayed.inserts) != live {
                return Err("the replay has another digest than the live processes".to_owned());
            }
        }
        for (process, filter) in left {
            if random.below(2) == 0 {
                filter.close().map_err(text)?;
            } else {
                stage::kill(process);
                stage::release(process, filter);
            }
        }
        self.damage_a_snapshot(random).map_err(|error| error.to_string())?;
        for witness in witness + 1..witness + WITNESSES {
            let filter: Opened =
                Filter::open_on(self.place.of(witness), starts::options()).map_err(text)?;
            let found = self.check(&filter)?;
            if *digest.get_or_insert(found) != found {
                return Err(format!("recovery {witness} has another digest"));
            }
            stage::kill(witness);
            stage::release(witness, filter);
        }
        Ok(())
    }

    /// Of two snapshots the older one must suffice.
    fn damage_a_snapshot(&self, random: &mut Random) -> std::io::Result<()> {
        let memory = &self.place.medium;
        let mut names = memory.list()?;
        names.retain(|name| name.starts_with("snap-"));
        names.sort();
        // After an alteration that died, the older one may be of the former log.
        let log = |name: &String| {
            let mut log = [0; 16];
            memory.open(name, Access::Read)?.read_at(&mut log, HEADS_LOG).map(|()| log)
        };
        let [.., older, newest] = &names[..] else { return Ok(()) };
        if log(older)? != log(newest)? || random.below(2) == 0 {
            return Ok(());
        }
        let file = memory.open(newest, Access::Write)?;
        let (mut byte, at) = ([0], random.below(file.bytes()?));
        file.read_at(&mut byte, at)?;
        file.write_at(&[!byte[0]], at)
    }
}

/// Plays a schedule in shuttle's first thread; the stage records a failure.
pub fn play(start: &Start, mut random: Random, planted: Option<Planted>) {
    let scripts = scripts(&mut random);
    let memory = starts::copy(&start.memory, |_| true).expect("memory is large");
    let place = Place::new(memory, planted);
    let bury = place.clone();
    let deaths = deaths(&mut random, &scripts);
    stage::begin(Random::new(random.below(u64::MAX)), deaths, move |process| bury.bury(process));
    let mut play = Play {
        place,
        history: Mutex::new(History::new(start.promise)),
        pace: start.pace,
        handles: scripts.iter().map(|_| Mutex::default()).collect(),
        working: scripts.iter().map(|script| Mutex::new(script.threads.len())).collect(),
        before: 0,
    };
    stage::watch(|| play.prepare(&mut random));
    let play = Arc::new(play);
    let mut threads = Vec::new();
    for (process, script) in scripts.into_iter().enumerate() {
        for number in 0..script.threads.len() {
            let (play, script) = (play.clone(), script.clone());
            threads.push(shuttle::thread::spawn(move || {
                stage::perform(process, || play.thread(process, number, &script));
            }));
        }
    }
    for thread in threads {
        thread.join().expect("its panics are caught");
    }
    if stage::failure().is_none() {
        stage::watch(|| play.judge(&mut random));
    }
    stage::end(|process| play.handles.get(process).map(|handle| lock(handle).take()));
}
