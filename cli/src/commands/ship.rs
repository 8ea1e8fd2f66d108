//! `ship`, `ship verify`, `fetch`, `follow`, `promote`: a filter in object storage.

use super::shipped;
use crate::exit_codes::FENCED;
use crate::failure::{self, Failure, Result};
use crate::formatting;
use crate::output::Output;
use crate::ship_args::{Fetch, Follow, Promote, Ship, ShipOther, ShipVerify};
use crate::stop::Stop;
use ebbtide::{Timestamp, inspect};
use ebbtide_ship::{Error, Follower, Pace, ShipOptions, Status, Store, Worker};
use std::fs;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// The interval of looks at the shipper.
const LOOK: Duration = Duration::from_secs(1);
/// Keys that were read and wait for their answers, at most.
const KEYS_AHEAD: usize = 64;

fn failed(error: &Error) -> Failure {
    Failure::Error(error.to_string())
}

/// Runs the work of a command on a runtime of its own.
fn run<T>(work: impl Future<Output = ebbtide_ship::Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Error(format!("cannot start: {error}")))?;
    let done = runtime.block_on(work);
    // A call of the system may hang, as on a disk of another machine.
    runtime.shutdown_background();
    done.map_err(|error| failed(&error))
}

fn print(text: &str) -> Result<()> {
    let mut output = Output::new()?;
    output.sentence(text)?;
    output.flush()
}

/// Ships until a signal comes, another shipper takes over, or it cannot any more.
pub fn ship(arguments: &Ship) -> Result<ExitCode> {
    if let Some(ShipOther::Verify(arguments)) = &arguments.other {
        return verify(arguments);
    }
    let (Some(dir), Some(url)) = (&arguments.dir, &arguments.url) else {
        return Err(Failure::Error("expected DIR and URL; see --help".into()));
    };
    // Before anything is created at a place for a filter that is not there.
    inspect::origin(dir)?;
    let store = Store::open(url).map_err(|error| failed(&error))?;
    let mut options = ShipOptions::default();
    (options.keep, options.take_over) = (arguments.keep, arguments.take_over);
    let stop = Stop::on_signals()?;
    let (place, write) = (store.to_string(), |status: &Status| {
        write_metrics(status, dir, arguments.metrics.as_ref())
    });
    let worker = match Worker::start(dir, store, options, arguments.every) {
        Err(error) => {
            let status = Status::not_begun(dir, &place, &error);
            let _ = write(&status);
            return end(&error, status.is_fenced);
        }
        Ok(worker) => worker,
    };
    let watched = if arguments.once { Ok(()) } else { watch(&worker, &stop, dir, arguments) };
    // What is written if it ends with an error, which is the one to report.
    let last = worker.statuses();
    if let Err(failure) = watched {
        drop(worker);
        let _ = write(&last());
        return Err(failure);
    }
    let status = if arguments.once { worker.finish() } else { worker.stop() };
    let status = match status {
        Err(error) => {
            let _ = write(&last());
            return end(&error, last().is_fenced);
        }
        Ok(status) => status,
    };
    write(&status).map_err(Failure::Error)?;
    if let Some(signal) = stop.signal() {
        return Err(Failure::Stopped(signal));
    }
    print(&format!(
        "{url} has every operation below LSN {}, in timeline {}",
        status.confirmed, status.timeline
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Ends with an error. One that was fenced by another directory must not be started again; by this
/// one it may be.
fn end(error: &Error, is_fenced: bool) -> Result<ExitCode> {
    if !is_fenced {
        return Err(failed(error));
    }
    failure::report(&error.to_string());
    Ok(ExitCode::from(FENCED))
}

/// Reports what the shipper does, until it must end.
fn watch(worker: &Worker, stop: &Stop, dir: &Path, arguments: &Ship) -> Result<()> {
    let (mut reported, mut unwritten) = (None, None);
    while stop.signal().is_none() {
        let status = worker.status();
        // The filter is shipped without figures of it, too.
        let written = write_metrics(&status, dir, arguments.metrics.as_ref());
        report(&mut unwritten, written.err(), "writing figures again");
        if status.is_stopped {
            return Ok(());
        }
        if status.is_stalled(arguments.stall.max(arguments.every.saturating_mul(2))) {
            let lag = status.waited().as_secs();
            let failure = status.failure.unwrap_or_default();
            return Err(Failure::Error(format!("nothing was shipped for {lag} s: {failure}")));
        }
        report(&mut reported, status.failure, "shipping again");
        stop.sleep(LOOK)?;
    }
    Ok(())
}

/// Notes a failure once, and its end.
fn report(reported: &mut Option<String>, failure: Option<String>, again: &str) {
    if failure != *reported {
        failure::note(failure.as_deref().unwrap_or(again));
    }
    *reported = failure;
}

/// Replaces the file of figures as a whole. An error is a sentence.
fn write_metrics(
    status: &Status,
    dir: &Path,
    file: Option<&PathBuf>,
) -> std::result::Result<(), String> {
    let Some(file) = file else { return Ok(()) };
    // A name that nobody else uses: `ship.new` in the directory of a filter is the shipper's.
    let mut new = file.clone().into_os_string();
    new.push(format!(".tmp-{}", std::process::id()));
    let written = fs::write(&new, status.prometheus(dir)).and_then(|()| fs::rename(&new, file));
    written.map_err(|error| {
        // What is left of it would never be replaced.
        let _ = fs::remove_file(&new);
        format!("cannot write {}: {error}", file.display())
    })
}

fn verify(arguments: &ShipVerify) -> Result<ExitCode> {
    let store = Store::open_existing(&arguments.url).map_err(|error| failed(&error))?;
    let found = run(ebbtide_ship::verify(&store, arguments.against.as_deref()))?;
    print(&format!(
        "{}: {} links with {} bytes of log, {} bases, {} states compared, digest {} as of LSN {}",
        arguments.url,
        found.links,
        found.log_bytes,
        found.bases,
        found.compared,
        found.digest,
        found.digest.lsn.saturating_sub(1)
    ))?;
    let written = Timestamp::from_unix_micros(found.newest_micros);
    print(&format!("the newest link was written at {}", formatting::time(written)))?;
    if let (Some(records), Some(dir)) = (found.unshipped, &arguments.against) {
        let are = if records == 1 { "is" } else { "are" };
        let counted = formatting::counted(records, "record");
        print(&format!("{} has {counted} that {are} not shipped", dir.display()))?;
        if let Some(stalled) = shipped::stalled(dir, records)? {
            failure::note(&stalled);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a filter of what the store has.
pub fn fetch(arguments: &Fetch) -> Result<()> {
    let dir = &arguments.dir;
    let fetched = if arguments.if_empty {
        match Store::find(&arguments.url).map_err(|error| failed(&error))? {
            Some(store) => run(ebbtide_ship::fetch_if_empty(&store, dir))?,
            None => None,
        }
    } else {
        let store = Store::open_existing(&arguments.url).map_err(|error| failed(&error))?;
        Some(run(ebbtide_ship::fetch(&store, dir, arguments.at))?)
    };
    match fetched {
        Some(fetched) => print(&format!(
            "{} has every operation up to LSN {}, of {} bytes",
            dir.display(),
            fetched.lsn.saturating_sub(1),
            fetched.bytes
        )),
        None => print(&format!("{}: nothing to fetch", dir.display())),
    }
}

/// What a command that follows has to do next.
enum Next {
    Answer(std::io::Result<Vec<u8>>),
    /// There are no more keys.
    EndOfKeys,
    /// It cannot follow any more.
    Fail(Failure),
}

/// Answers the keys of standard input from a copy that follows.
pub fn follow(arguments: &Follow) -> Result<()> {
    let store = Store::open_existing(&arguments.url).map_err(|error| failed(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Error(format!("cannot start: {error}")))?;
    let begun = match &arguments.dir {
        None => runtime.block_on(Follower::begin(store, arguments.max_lag)),
        Some(dir) => runtime.block_on(Follower::begin_in(store, dir, arguments.max_lag)),
    };
    let follower = match begun {
        Ok(follower) => follower,
        Err(error) => {
            runtime.shutdown_background();
            return Err(failed(&error));
        }
    };
    let answers = follower.answers();
    if let Some(dir) = &arguments.dir {
        let (dir, lsn) = (dir.display(), answers.next_lsn());
        failure::note(&format!("{dir} follows {}, from LSN {lsn} on", arguments.url));
    }
    let next = begin_to_follow(follower, runtime, arguments.every);
    let mut output = Output::new()?;
    let (mut refused, mut has_ended) = (None, false);
    loop {
        match next.recv() {
            Ok(Next::Answer(line)) => {
                let reading = |error| Failure::reading(Path::new("standard input"), &error);
                let key = line.map_err(reading)?;
                let (answer, refusal) = match answers.ask(|reader| reader.contains(&key)) {
                    Ok(true) => ("1", None),
                    Ok(false) => ("0", None),
                    // The copy continues, and so do the keys behind this one.
                    Err(error @ Error::Behind { .. }) if !has_ended => ("?", Some(error)),
                    Err(error) => return Err(failed(&error)),
                };
                // The sentence says how far behind it is, which is never the same.
                let sentence =
                    refusal.map(|error| refused.clone().unwrap_or_else(|| error.to_string()));
                report(&mut refused, sentence, "answering again");
                output.text(answer)?;
                output.flush()?;
            }
            // Without a directory the copy is of use to these answers only.
            Ok(Next::EndOfKeys) if arguments.dir.is_none() => return Ok(()),
            Ok(Next::EndOfKeys) => {}
            Ok(Next::Fail(failure)) if arguments.dir.is_some() => return Err(failure),
            // It answers until the copy is too old.
            Ok(Next::Fail(Failure::Error(sentence))) => {
                failure::note(&sentence);
                has_ended = true;
            }
            Ok(Next::Fail(failure)) => return Err(failure),
            Err(_) => return Ok(()),
        }
    }
}

/// Follows, and reads the keys of standard input, which may not end, in threads that end with the
/// process.
fn begin_to_follow(follower: Follower, runtime: Runtime, every: Duration) -> Receiver<Next> {
    let (sender, next) = sync_channel(KEYS_AHEAD);
    let of_keys = sender.clone();
    std::thread::spawn(move || {
        let following = std::thread::spawn(move || {
            let failure = keep_following(follower, &runtime, every);
            runtime.shutdown_background();
            failure
        });
        let panicked = |_| Failure::Error("the follower has panicked".into());
        sender.send(Next::Fail(following.join().unwrap_or_else(panicked)))
    });
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().split(b'\n') {
            of_keys.send(Next::Answer(line))?;
        }
        of_keys.send(Next::EndOfKeys)
    });
    next
}

/// Follows until it cannot any more; returns why. An error that may pass makes the copy too old,
/// which the answers say.
fn keep_following(mut follower: Follower, runtime: &Runtime, every: Duration) -> Failure {
    let (mut reported, mut pace) = (None, Pace::new(every));
    loop {
        let begun = Instant::now();
        let looked = runtime.block_on(follower.look());
        let has_found = looked.as_ref().is_ok_and(|links| *links > 0);
        if let Err(error) = &looked
            && !error.is_transient()
        {
            return failed(error);
        }
        report(&mut reported, looked.err().map(|error| error.to_string()), "following again");
        let pause = pace.pause(begun, Instant::now(), has_found);
        std::thread::sleep(if reported.is_some() { pace.every() } else { pause });
    }
}

/// Fetches, and begins a timeline.
pub fn promote(arguments: &Promote) -> Result<()> {
    let (url, dir) = match arguments.places.as_slice() {
        [url, dir] => (url.clone(), Path::new(dir)),
        [dir] => {
            let dir = Path::new(dir);
            let from = ebbtide_ship::following(dir).map_err(|error| failed(&error))?;
            let none = || {
                let dir = dir.display();
                Failure::Error(format!(
                    "expected the directory of a follower, found {dir}: give a URL before it"
                ))
            };
            (from.ok_or_else(none)?, dir)
        }
        _ => return Err(Failure::Error("expected URL and NEW; see --help".into())),
    };
    let store = Store::open_existing(&url).map_err(|error| failed(&error))?;
    let (fetched, shipper) = run(ebbtide_ship::promote(&store, dir, ShipOptions::default()))?;
    print(&format!(
        "{} has every operation up to LSN {}, and is the writer, in timeline {}",
        dir.display(),
        fetched.lsn.saturating_sub(1),
        shipper.timeline()
    ))
}
