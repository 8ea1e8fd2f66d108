//! `ship`, `ship verify`, `fetch`, `follow`, `promote`: a filter in object storage.

use crate::failure::{self, Failure, Result};
use crate::output::Output;
use crate::ship_args::{Fetch, Follow, Promote, Ship, ShipOther, ShipVerify};
use crate::stop::Stop;
use ebbtide_ship::{Error, Follower, ShipOptions, Status, Store, Worker};
use std::fs;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The exit code of a shipper that was fenced: it must not be started again as it is.
const FENCED: u8 = 3;
/// The interval of looks at the shipper.
const LOOK: Duration = Duration::from_secs(1);

fn failed(error: &Error) -> Failure {
    Failure::Error(error.to_string())
}

/// Runs the work of a command on a runtime of its own.
fn run<T>(work: impl Future<Output = ebbtide_ship::Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Error(format!("cannot start: {error}")))?;
    runtime.block_on(work).map_err(|error| failed(&error))
}

fn print(text: &str) -> Result<()> {
    let mut output = Output::new()?;
    output.text(text)?;
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
    let store = Store::open(url).map_err(|error| failed(&error))?;
    let mut options = ShipOptions::default();
    (options.keep, options.take_over) = (arguments.keep, arguments.take_over);
    let stop = Stop::on_signals()?;
    let worker = match Worker::start(dir, store, options, arguments.every) {
        Err(error) => return Err(failed(&error)),
        Ok(worker) => worker,
    };
    if !arguments.once {
        watch(&worker, &stop, dir, arguments)?;
    }
    let status = worker.stop();
    if let Err(error @ Error::Fenced { .. }) = &status {
        failure::report(&error.to_string());
        return Ok(ExitCode::from(FENCED));
    }
    let status = status.map_err(|error| failed(&error))?;
    write_metrics(&status, dir, arguments.metrics.as_ref())?;
    if let Some(signal) = stop.signal() {
        return Err(Failure::Stopped(signal));
    }
    print(&format!(
        "{url} has every operation below LSN {}, in timeline {}",
        status.confirmed, status.timeline
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Reports what the shipper does, until it must end.
fn watch(worker: &Worker, stop: &Stop, dir: &Path, arguments: &Ship) -> Result<()> {
    let mut reported = None;
    while stop.signal().is_none() {
        let status = worker.status();
        write_metrics(&status, dir, arguments.metrics.as_ref())?;
        let lag = status.succeeded.elapsed();
        if status.is_stopped {
            return Ok(());
        }
        if status.failure.is_some() && lag > arguments.stall.max(arguments.every * 2) {
            let failure = status.failure.unwrap_or_default();
            let lag = lag.as_secs();
            return Err(Failure::Error(format!("nothing was shipped for {lag} s: {failure}")));
        }
        if status.failure != reported {
            match &status.failure {
                Some(failure) => failure::note(failure),
                None => failure::note("shipping again"),
            }
            reported = status.failure;
        }
        stop.sleep(LOOK)?;
    }
    Ok(())
}

/// Replaces the file of figures as a whole.
fn write_metrics(status: &Status, dir: &Path, file: Option<&PathBuf>) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let new = file.with_extension("new");
    let written = fs::write(&new, status.prometheus(dir)).and_then(|()| fs::rename(&new, file));
    let cannot = |error| Failure::Error(format!("cannot write {}: {error}", file.display()));
    written.map_err(cannot)
}

fn verify(arguments: &ShipVerify) -> Result<ExitCode> {
    let store = Store::open(&arguments.url).map_err(|error| failed(&error))?;
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
    Ok(ExitCode::SUCCESS)
}

/// Makes a filter of what the store has.
pub fn fetch(arguments: &Fetch) -> Result<()> {
    let store = Store::open(&arguments.url).map_err(|error| failed(&error))?;
    let dir = &arguments.dir;
    let fetched = if arguments.if_empty {
        run(ebbtide_ship::fetch_if_empty(&store, dir))?
    } else {
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

/// Answers the keys of standard input from a copy that follows.
pub fn follow(arguments: &Follow) -> Result<()> {
    let store = Store::open(&arguments.url).map_err(|error| failed(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Error(format!("cannot start: {error}")))?;
    let begun = runtime.block_on(Follower::begin(store, arguments.max_lag));
    let mut follower = begun.map_err(|error| failed(&error))?;
    let (answers, every) = (follower.answers(), arguments.every);
    // It ends with the process. An error makes the copy too old, which the answers say.
    std::thread::spawn(move || {
        let mut reported = None;
        loop {
            std::thread::sleep(every);
            let failure = runtime.block_on(follower.look()).err().map(|error| error.to_string());
            if failure != reported {
                failure::note(failure.as_deref().unwrap_or("following again"));
                reported = failure;
            }
        }
    });
    let mut output = Output::new()?;
    for line in std::io::stdin().lock().split(b'\n') {
        let key = line.map_err(|error| Failure::reading(Path::new("standard input"), &error))?;
        let answer = answers.ask(|reader| reader.contains(&key)).map_err(|error| failed(&error))?;
        output.text(if answer { "1" } else { "0" })?;
        output.flush()?;
    }
    Ok(())
}

/// Fetches, and begins a timeline.
pub fn promote(arguments: &Promote) -> Result<()> {
    let store = Store::open(&arguments.url).map_err(|error| failed(&error))?;
    let promoted = ebbtide_ship::promote(&store, &arguments.dir, ShipOptions::default());
    let (fetched, shipper) = run(promoted)?;
    print(&format!(
        "{} has every operation up to LSN {}, and is the writer, in timeline {}",
        arguments.dir.display(),
        fetched.lsn.saturating_sub(1),
        shipper.timeline()
    ))
}
