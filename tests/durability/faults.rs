//! Every call to the medium fails, one run after the other: once, or permanently from that call on.
//!
//! The script creates a filter, works on it with two handles, and takes checkpoints. It makes a
//! backup and verifies the files. A read-only handle reads the filter, beside writers and without
//! them. The script closes and opens the filter, lets the process die, and recovers. The n-th call
//! therefore falls into each of these steps for some n. No failure causes a panic. A failed
//! operation is retried once the failure is over: it succeeds and counts once, or the filter is
//! poisoned, reports that from then on, and answers lookups. When the failure is over, the files on
//! a living kernel open with every operation that had returned, and the files after a power cut at
//! any moment with every operation that was durable.

use crate::settings::Settings;
use crate::workload::{Workload, caught};
use ebbtide::{Any, Error, Filter, Reader, inspect};
use ebbtide_testkit::crash::choices::Chooser;
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::crash::fault::{FAULTS, Fault, Plan};
use ebbtide_testkit::random::{Random, mix};
use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The number of power cuts after each run: at its end, at any moment, and in the creation.
const CUTS: u64 = 3;

/// The number of operations on the disk in which a creation and its repetition end.
const CREATION: u64 = 160;

/// A step of the script.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// This many operations, one in five durable.
    Operate(u64),
    /// This many operations through the second handle.
    OperateBeside(u64),
    Sync,
    Checkpoint,
    /// Reads statistics, and verifies the files.
    Look,
    /// Opens a reader, which must see the content of the filter.
    Read,
    /// As `Read`, for a filter that no handle has open.
    CloseAndRead,
    /// Makes a backup, which must have the content of the filter.
    Backup,
    /// Opens a second handle.
    Attach,
    /// Closes the second handle.
    Detach,
    Close,
    /// The process dies.
    Die,
}

/// Segments hold 128 records.
const SCRIPT: [Step; 26] = [
    Step::Operate(30),
    Step::Sync,
    Step::Operate(120),
    Step::Checkpoint,
    Step::Attach,
    Step::OperateBeside(5),
    Step::Operate(5),
    Step::OperateBeside(5),
    Step::Read,
    Step::Detach,
    Step::Operate(90),
    Step::Checkpoint,
    Step::Look,
    Step::Operate(60),
    Step::Backup,
    Step::Checkpoint,
    Step::CloseAndRead,
    Step::Operate(5),
    Step::Close,
    Step::Operate(10),
    Step::Die,
    Step::Operate(150),
    Step::Checkpoint,
    Step::Die,
    Step::Operate(5),
    Step::Close,
];

type Checked<T> = Result<T, String>;

/// A run of the script.
struct Run<'a> {
    workload: &'a mut Workload,
    disk: CrashDisk,
    sticky: bool,
    filter: Option<Filter>,
    beside: Option<Filter>,
    number: u64,
    undurable: Vec<u64>,
    /// The number of errors.
    errors: u64,
    /// How often the filter was poisoned.
    poisoned: u64,
}

/// The result of a step.
enum Came {
    Well,
    /// The failure stays, so the run ends here.
    Over,
}

impl Run<'_> {
    /// Records an error, which must have a message.
    fn met(&mut self, error: &Error) -> Checked<()> {
        self.errors += 1;
        if error.to_string().len() > 10 { Ok(()) } else { Err(format!("not a sentence: {error}")) }
    }

    /// Tries a call, and again if the failure is over by then. Returns `None` if it keeps failing,
    /// which is correct only for a permanent failure.
    fn attempt<T>(
        &mut self,
        what: &str,
        mut call: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Checked<Option<T>> {
        let first = match call(self) {
            Ok(done) => return Ok(Some(done)),
            Err(error) => error,
        };
        self.met(&first)?;
        let again = match call(self) {
            Ok(done) => return Ok(Some(done)),
            Err(error) => error,
        };
        self.met(&again)?;
        let poisoned = matches!(again, Error::Poisoned { .. });
        if self.sticky || poisoned && matches!(call(self), Err(Error::Poisoned { .. })) {
            return Ok(None);
        }
        Err(format!("{what} failed, and failed again without the cause: {first}; {again}"))
    }

    /// Opens the filter if it is not open.
    fn open(&mut self) -> Checked<Option<()>> {
        if self.filter.is_some() {
            return Ok(Some(()));
        }
        let opened = self.attempt("opening", |run| {
            let created = run.disk.told().created;
            if created { run.workload.open(&run.disk) } else { run.workload.create(&run.disk) }
        })?;
        let Some(filter) = opened else { return Ok(None) };
        // Counting the operations must not fail.
        let plan = self.disk.plan(None);
        // A sync of an attempt before may have failed, and dropped what had returned.
        let told = self.disk.told();
        let most = self.workload.next(told.returned[0]).max(told.begun);
        self.number = self.workload.identify(&filter, told.returned[0], most)?;
        self.disk.plan(plan);
        // What was begun beyond has been lost.
        self.disk.tell_begun(self.number);
        self.disk.tell_durable(0, self.number, &[]);
        self.undurable.clear();
        self.filter = Some(filter);
        Ok(Some(()))
    }

    fn durable(&mut self) {
        self.disk.tell_durable(0, self.number, &std::mem::take(&mut self.undurable));
    }

    fn operate(&mut self, count: u64, beside: bool) -> Checked<Option<()>> {
        for _ in 0..count {
            let number = self.number;
            let (durable, next) = (number % 5 == 4, self.workload.next(number));
            if next > number + 1 {
                self.disk.tell_begun(next);
            }
            let done = self.attempt("an operation", |run| {
                let filter = if beside { &run.beside } else { &run.filter };
                let Some(filter) = filter else { return Ok(()) };
                run.workload.operate(filter, number, durable)
            })?;
            if done.is_none() {
                return Ok(None);
            }
            self.undurable.extend((number..next).map(Workload::time));
            self.number = next;
            if durable {
                self.durable();
            } else {
                self.disk.tell_returned(0, self.number);
            }
        }
        Ok(Some(()))
    }

    /// Runs a step on the open filter; returns `None` if it kept failing.
    fn step(&mut self, step: Step) -> Checked<Option<()>> {
        let on_filter = |run: &mut Self, call: fn(&Filter) -> Result<(), Error>| {
            run.attempt("a call", |run| run.filter.as_ref().map_or(Ok(()), call))
        };
        Ok(match step {
            Step::Operate(count) => self.operate(count, false)?,
            Step::OperateBeside(count) => self.operate(count, self.beside.is_some())?,
            Step::Sync => on_filter(self, |filter| filter.sync())?.inspect(|()| self.durable()),
            Step::Checkpoint => {
                let done = on_filter(self, |filter| filter.checkpoint().map(drop))?;
                done.inspect(|()| self.durable())
            }
            Step::Look => match on_filter(self, |filter| filter.stat().map(drop))? {
                Some(()) => {
                    let verify = |run: &mut Self| inspect::verify_on(&run.disk).map(drop);
                    self.attempt("verifying", verify)?
                }
                None => None,
            },
            Step::Read => self.read()?,
            Step::CloseAndRead => match self.close(false)? {
                Some(()) => self.read()?,
                None => None,
            },
            Step::Backup => self.back_up()?,
            Step::Attach => {
                let beside = self.attempt("attaching", |run| run.workload.open(&run.disk))?;
                beside.map(|beside| self.beside = Some(beside))
            }
            Step::Detach => self.close(true)?,
            Step::Close => self.close(false)?,
            Step::Die => {
                self.die();
                Some(())
            }
        })
    }

    /// Closes a handle; a failed close ends the handle, too.
    fn close(&mut self, beside: bool) -> Checked<Option<()>> {
        let handle = if beside { &mut self.beside } else { &mut self.filter };
        match handle.take().map(|filter| filter.close()) {
            Some(Err(error)) => {
                self.met(&error)?;
                Ok((!matches!(error, Error::Poisoned { .. })).then_some(()))
            }
            Some(Ok(())) => {
                self.durable();
                Ok(Some(()))
            }
            // It was dropped after an error.
            None => Ok(Some(())),
        }
    }

    /// Checks that a reader sees the operations that returned.
    fn read(&mut self) -> Checked<Option<()>> {
        let seen = self.attempt("reading", |run| {
            let options = run.workload.options();
            Reader::<Any>::open_on(Arc::new(run.disk.clone()), options)?.digest()
        })?;
        let Some(seen) = seen else { return Ok(None) };
        let wanted = self.workload.state(self.number)?;
        if wanted == (seen.value, seen.inserts) {
            return Ok(Some(()));
        }
        Err(format!("a reader sees {seen:?}, not the state after {} operations", self.number))
    }

    /// Checks that a backup contains the operations that returned, and that a failed backup leaves
    /// no filter.
    fn back_up(&mut self) -> Checked<Option<()>> {
        let home = memory_or_disk().map_err(|error| error.to_string())?;
        let copy = home.path().join("copy");
        let done = self.attempt("a backup", |run| {
            let Some(filter) = &run.filter else { return Ok(()) };
            filter.backup(&copy)
        })?;
        if done.is_none() {
            let opened = Filter::<Any>::open(&copy, self.workload.options());
            return match opened {
                Err(Error::NotAFilter { .. }) => Ok(None),
                opened => Err(format!("a backup failed and left {opened:?}")),
            };
        }
        // A checkpoint instead of the backup would have made everything durable, and so does the
        // backup.
        self.durable();
        let found = Filter::<Any>::open(&copy, self.workload.options()).and_then(|it| it.digest());
        let found = found.map_err(|error| error.to_string())?;
        if self.workload.state(self.number)? == (found.value, found.inserts) {
            return Ok(Some(()));
        }
        Err(format!("the backup contains {found:?}, not {} operations", self.number))
    }

    fn die(&mut self) {
        let killed = self.disk.without_process();
        killed.plan(self.disk.plan(None));
        let buried = std::mem::replace(&mut self.disk, killed);
        buried.end();
        (self.filter, self.beside) = (None, None);
    }

    /// Runs all steps. After a poisoning all handles close and the filter is opened again.
    fn all(&mut self) -> Checked<Came> {
        for step in SCRIPT {
            let done = match self.open()? {
                Some(()) => self.step(step)?,
                None => None,
            };
            if done.is_none() {
                let asked = self.filter.as_ref().map(|filter| filter.contains("a key"));
                if let Some(Err(error)) = asked {
                    return Err(format!("a poisoned filter refuses a lookup: {error}"));
                }
                self.poisoned += 1;
                (self.filter, self.beside) = (None, None);
                if self.sticky {
                    return Ok(Came::Over);
                }
            }
            let violations = self.disk.violations();
            if !violations.is_empty() {
                return Err(violations.join("; "));
            }
        }
        Ok(Came::Well)
    }

    /// Checks power cuts at the end and at other moments, and then the files on the living kernel.
    fn check(&mut self, random: &mut Random) -> Checked<()> {
        (self.filter, self.beside) = (None, None);
        self.disk.plan(None);
        let tape = self.disk.tape();
        for cut in 0..CUTS {
            let at = match cut {
                0 => tape.now,
                1 => 1 + random.below(tape.now),
                _ => 1 + random.below(tape.now.min(CREATION)),
            };
            let told = *tape.told.at(at);
            let by = Chooser::chance(Random::new(random.below(u64::MAX))).shared();
            let disk = CrashDisk::after_cut(&tape, at, &by, false);
            let place = |what| format!("cut at {at} of {}: {what}", tape.now);
            let found = self.workload.recover(&disk, told.durable[0], &told).map_err(place)?;
            disk.end();
            drop(found);
        }
        let told = self.disk.told();
        let found = self.workload.recover(&self.disk, told.returned[0], &told)?;
        let again = match found {
            Some((filter, _)) => filter.checkpoint().and_then(|_| filter.close()),
            None => self.workload.create(&self.disk).map(drop),
        };
        again.map_err(|error| error.to_string())?;
        let report = inspect::verify_on(&self.disk).map_err(|error| error.to_string())?;
        if !report.is_sound() {
            return Err(format!("{report:?}"));
        }
        self.workload.sound(&self.disk)
    }
}

/// Creates a directory in memory if possible: thousands of backups are made.
fn memory_or_disk() -> std::io::Result<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

#[derive(Debug, Default, Clone, Copy)]
struct Results {
    runs: u64,
    errors: u64,
    poisoned: u64,
}

/// Runs the script once while this call fails; returns `None` if there are fewer calls.
fn run(workload: &mut Workload, plan: Plan, seed: u64) -> Checked<Option<Results>> {
    let disk = CrashDisk::new();
    disk.plan(Some(plan));
    let mut run = Run {
        workload,
        disk,
        sticky: plan.sticky,
        filter: None,
        beside: None,
        number: 0,
        undurable: Vec::new(),
        errors: 0,
        poisoned: 0,
    };
    let came = run.all()?;
    let struck = run.disk.plan(None).is_some_and(|plan| plan.has_struck());
    // A flipped bit that is never checked is not an error.
    if let (Came::Over, false) = (came, struck) {
        return Err("an error without a planned failure".to_owned());
    }
    run.check(&mut Random::new(seed))?;
    let results = Results { runs: 1, errors: run.errors, poisoned: run.poisoned };
    Ok(struck.then_some(results))
}

/// Runs over the calls that a fault can hit.
fn sweep(settings: &Settings, number: u64, fault: Fault, sticky: bool) -> Checked<Results> {
    let seed = settings.seed;
    let mut all = Results::default();
    let mut workload = Workload::new(mix(seed ^ 4), number);
    // The first call always: some faults hit a few calls only.
    let second = 2 + (seed + number + u64::from(sticky)) % settings.calls;
    for at in iter::once(1).chain((second..).step_by(settings.calls as usize)) {
        let plan = Plan::new(fault, at, sticky);
        let name = workload.sample.name;
        match caught(|| run(&mut workload, plan, seed ^ at)) {
            Ok(Some(results)) => {
                all.runs += results.runs;
                all.errors += results.errors;
                all.poisoned += results.poisoned;
            }
            Ok(None) => break,
            Err(what) => {
                let how = if sticky { "from call" } else { "at call" };
                return Err(format!("{name}, {fault:?} {how} {at}, seed {seed}: {what}"));
            }
        }
    }
    Ok(all)
}

/// Runs all faults, once and permanently, on all processors.
pub fn sweep_all(settings: &Settings) -> Checked<()> {
    let (seed, start) = (settings.seed, Instant::now());
    let mut cases = Vec::new();
    for number in settings.kinds() {
        cases.extend(
            FAULTS.iter().flat_map(|&fault| [(number, fault, false), (number, fault, true)]),
        );
    }
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..settings.threads() {
            scope.spawn(|| {
                while let Some(&(number, fault, sticky)) =
                    cases.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let outcome = sweep(settings, number, fault, sticky);
                    outcomes.lock().expect("no panic").push((fault, sticky, outcome));
                }
            });
        }
    });
    let (mut all, mut failures) = (Results::default(), Vec::new());
    for (fault, sticky, outcome) in outcomes.into_inner().expect("no panic") {
        match outcome {
            Ok(results) => {
                assert!(results.runs > 0, "{fault:?} (sticky: {sticky}) has hit nothing");
                all.runs += results.runs;
                all.errors += results.errors;
                all.poisoned += results.poisoned;
            }
            Err(what) => failures.push(what),
        }
    }
    println!(
        "{} kinds, {} faults, once and sticky, at one call of {}: {} runs, {} errors, {} times \
         poisoned; seed {seed}, {:.1} s",
        settings.kinds().count(),
        FAULTS.len(),
        settings.calls,
        all.runs,
        all.errors,
        all.poisoned,
        start.elapsed().as_secs_f64()
    );
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}
