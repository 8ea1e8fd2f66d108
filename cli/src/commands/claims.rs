//! `run` and `claims`: work that is done once in the window, and who is doing it.

use super::{at_rest, closing};
use crate::claim_args::{Claims, RunOnce};
use crate::exit_codes::{IN_PROGRESS, NO};
use crate::failure::{Failure, Result, note};
use crate::formatting;
use crate::output::{Output, object};
use crate::stop::{Stop, keep_exit_statuses};
use ebbtide::{Any, Claim, Error, Filter, Lease, Options, Reader, Timestamp};
use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

/// Receives the token, which grows from claim to claim.
const TOKEN: &str = "EBBTIDE_TOKEN";

/// How often `run` checks whether its command has ended: more often than it renews a lease.
const CHECK: Duration = Duration::from_millis(20);

/// Renewals in the time of a lease.
const RENEWALS: u32 = 3;

/// Runs a command unless its key is in the window; inserts the key if the command succeeds.
pub fn run(arguments: &RunOnce) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let filter = Filter::<Any>::open(&arguments.dir, Options::new())?;
    let given = since_boot();
    let ended = match filter.claim(arguments.claim.as_bytes(), arguments.lease)? {
        Claim::Seen => Ok(ExitCode::SUCCESS),
        Claim::InProgress { until } => {
            let rest = formatting::duration(until.since(Timestamp::now()));
            note(&format!("somebody else does the work, for {rest} at least"));
            Ok(ExitCode::from(IN_PROGRESS))
        }
        Claim::Yours(lease) => {
            let held = Held { arguments, filter: &filter, lease, given, is_lost: false };
            work(held, &stop)
        }
    };
    // An error of the work is the one to report.
    let closed = closing::close(&filter);
    let code = ended?;
    closed.map(|()| code)
}

/// The claim of a run.
struct Held<'a> {
    arguments: &'a RunOnce,
    filter: &'a Filter,
    lease: Lease<'a>,
    /// A time just before the lease was given or renewed, since the machine was started.
    given: Duration,
    is_lost: bool,
}

impl<'a> Held<'a> {
    /// Returns for how long the lease was not renewed, suspends included.
    fn age(&self) -> Duration {
        since_boot().saturating_sub(self.given)
    }

    /// Renews the lease. One that has ended because the machine was suspended, or this process
    /// stopped or kept waiting, is claimed again; not one that was ended before it was over. If it
    /// is lost, the confirmation fails.
    fn renew(&mut self) {
        if self.is_lost {
            return;
        }
        let now = since_boot();
        match self.lease.extend(self.arguments.lease) {
            Err(Error::LeaseLost { .. }) => self.claim_again(),
            // The next renewal tries again.
            Err(_) => {}
            Ok(_) => self.given = now,
        }
    }

    fn claim_again(&mut self) {
        let (key, lease) = (self.arguments.claim.as_bytes(), self.arguments.lease);
        let (is_over, now) = (self.age() >= lease, since_boot());
        let claimed = if is_over { self.filter.claim(key, lease).map(Some) } else { Ok(None) };
        match claimed {
            Ok(Some(Claim::Yours(again))) => (self.lease, self.given) = (again, now),
            Ok(found) => {
                self.is_lost = true;
                note(match found {
                    Some(_) => "the lease is over, and somebody else has claimed the key",
                    None => "somebody has ended the claim",
                });
            }
            // The next renewal tries again.
            Err(_) => {}
        }
    }

    /// Confirms the key: the work is done.
    fn confirm(mut self) -> ebbtide::Result<()> {
        if self.age() >= self.arguments.lease {
            // It was stopped, or suspended, just before the end.
            self.renew();
        }
        self.lease.confirm()
    }
}

/// Returns the time since the machine was started, suspends included, as leases have it.
fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Runs the command of a key that was claimed. Passes signals that ask it to stop on to it, unless
/// the terminal has sent them to it as well.
fn work(mut held: Held<'_>, stop: &Stop) -> Result<ExitCode> {
    let [name, rest @ ..] = &*held.arguments.command else { return Ok(ExitCode::SUCCESS) };
    keep_exit_statuses()?;
    // Dropping the lease releases the key.
    if let Some(signal) = stop.signal() {
        return Err(Failure::Stopped(signal));
    }
    let mut command = Command::new(name);
    let mut child =
        command.args(rest).env(TOKEN, held.lease.token().to_string()).spawn().map_err(|error| {
            Failure::Error(format!("cannot run {}: {error}", name.to_string_lossy()))
        })?;
    let status = wait(&mut child, &mut held, stop)?;
    let code = match (status.success(), status.code()) {
        (true, _) => {
            held.confirm()?;
            ExitCode::SUCCESS
        }
        // Dropping the lease releases the key.
        (false, Some(code)) => ExitCode::from(u8::try_from(code).unwrap_or(NO)),
        (false, None) => ExitCode::from(128 + status.signal().unwrap_or(0) as u8),
    };
    stop.signal().map_or(Ok(code), |signal| Err(Failure::Stopped(signal)))
}

/// Passes a signal on to a command, unless the terminal has sent it to the command as well: a
/// second one would be a second request. (A command in a process group of its own got none.)
///
/// One that the terminal sends while the command is being started may have come just before it
/// existed. It is taken for one that came just after, because the command cannot tell two signals
/// of one Ctrl-C from two requests. Where it came before, the command does not end by it; a second
/// Ctrl-C ends both, and the claim ends with its lease.
fn pass_on(child: &Child, signal: i32, stop: &Stop) {
    let pid = Pid::from_child(child);
    if stop.is_of_terminal() && getpgid(Some(pid)) == Ok(getpgrp()) {
        return;
    }
    if let Some(signal) = Signal::from_named_raw(signal) {
        // It may have ended by now.
        let _ = kill_process(pid, signal);
    }
}

/// Waits for the end of a command, and renews its lease meanwhile.
fn wait(child: &mut Child, held: &mut Held<'_>, stop: &Stop) -> Result<ExitStatus> {
    let waiting = |error| Failure::Error(format!("cannot wait for the command: {error}"));
    let (mut passed_on, mut tried) = (false, since_boot());
    loop {
        if let Some(status) = child.try_wait().map_err(waiting)? {
            return Ok(status);
        }
        match (stop.signal(), passed_on) {
            (Some(signal), false) => {
                pass_on(child, signal, stop);
                passed_on = true;
            }
            (Some(_), true) => std::thread::sleep(CHECK),
            (None, _) => stop.sleep(CHECK)?,
        }
        if since_boot().saturating_sub(tried) >= held.arguments.lease / RENEWALS {
            held.renew();
            tried = since_boot();
        }
    }
}

/// Lists the claims that are held, the oldest first, or ends one.
pub fn claims(arguments: &Claims) -> Result<ExitCode> {
    if let Some(key) = &arguments.end {
        let filter = at_rest::open(&arguments.dir)?;
        let was_held = filter.end_claim(key.as_bytes())?;
        closing::close(&filter)?;
        return Ok(if was_held { ExitCode::SUCCESS } else { ExitCode::from(NO) });
    }
    let open = Reader::<Any>::open(&arguments.dir, at_rest::options())?.claims()?;
    let mut output = Output::new()?;
    for claim in open {
        if arguments.json {
            output.json(object([
                ("token", claim.token.into()),
                ("age_seconds", claim.age.as_secs_f64().into()),
                ("remaining_seconds", claim.remaining.as_secs_f64().into()),
            ]))?;
        } else {
            let [age, rest] = [claim.age, claim.remaining].map(formatting::duration);
            output.text(&format!("token {}: since {age}, {rest} left", claim.token))?;
        }
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::AgePartitioned;
    use std::os::unix::process::CommandExt;

    #[test]
    fn a_signal_stops_the_command_before_its_start_and_reaches_it_once_after() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let [dir, made] = ["seen", "made"].map(|name| place.path().join(name));
        let spec = AgePartitioned::last(100);
        let filter = Filter::create(&dir, spec, Options::new()).expect("a filter").into_any();
        let lease = || match filter.claim("a", Duration::from_secs(60)).expect("an answer") {
            Claim::Yours(lease) => lease,
            other => panic!("the key is free: {other:?}"),
        };
        let command = vec!["touch".into(), made.clone().into_os_string()];
        let (claim, length) = ("a".into(), Duration::from_secs(60));
        let arguments = RunOnce { claim, lease: length, dir, command };
        // Not SIGINT: where that was ignored at the start of the test, commands ignore it, too.
        let held = || {
            let (given, is_lost) = (since_boot(), false);
            Held { arguments: &arguments, filter: &filter, lease: lease(), given, is_lost }
        };
        let ended = work(held(), &Stop::after(15));
        assert!(matches!(ended, Err(Failure::Stopped(15))) && !made.exists());
        let mut held = held();
        // One of the terminal that is seen when the command has just been started.
        let mut wait_for = |command: &mut Command| {
            let mut child = command.spawn().expect("a command");
            wait(&mut child, &mut held, &Stop::after(15)).expect("its end")
        };
        assert!(wait_for(Command::new("sleep").arg("0.1")).success(), "it got two");
        let elsewhere = wait_for(Command::new("sleep").arg("1000").process_group(0));
        assert_eq!(elsewhere.signal(), Some(15));
    }
}
