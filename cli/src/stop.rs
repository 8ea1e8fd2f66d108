//! Handles signals: the three that ask the command to stop, and the one that a file-size limit
//! sends.
//!
//! A command that changes a filter stops between two lines. It prints the lines that it has
//! recorded, closes the filter, and then ends by the signal, so that its parent sees the expected
//! status. A second signal ends it at once. Signals that were ignored when the command started stay
//! ignored (`nohup`, background jobs of a script).

use crate::descriptor;
use crate::failure::{Failure, Result};
use crate::origin;
use rustix::process::{getpid, getsid};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::iterator::{Signals, SignalsInfo};
use signal_hook::low_level;
use std::io::{PipeReader, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A signal within this time after the first belongs to the same request: `timeout` and shells
/// signal the process and its group.
const REPEATED: Duration = Duration::from_millis(200);

/// Indicates whether a signal has asked the command to stop.
pub struct Stop {
    /// The signal; 0 before the first.
    signal: Arc<AtomicI32>,
    /// Whether the terminal, or the kernel when its connection ended, has sent it.
    of_terminal: Arc<AtomicBool>,
    /// The read end of a pipe. When the first signal is in `signal`, the write end is closed, which
    /// makes this end readable.
    wake: Option<PipeReader>,
}

impl Stop {
    /// Leaves the handling of signals unchanged.
    pub fn never() -> Self {
        Self { signal: Arc::default(), of_terminal: Arc::default(), wake: None }
    }

    /// As after this signal from the terminal.
    #[cfg(test)]
    pub fn after(signal: i32) -> Self {
        let signal = Arc::new(AtomicI32::new(signal));
        Self { signal, of_terminal: Arc::new(AtomicBool::new(true)), wake: None }
    }

    /// Listens for signals from now on, to the end of the process.
    pub fn on_signals() -> Result<Self> {
        let signal = Arc::new(AtomicI32::new(0));
        let (wake, waker) = pipe().map_err(cannot_listen)?;
        let mut signals = SignalsInfo::<WithRawSiginfo>::new(heeded()).map_err(cannot_listen)?;
        let of_terminal = Arc::new(AtomicBool::new(false));
        let (first, from) = (signal.clone(), of_terminal.clone());
        let listen = move || {
            let mut waker = Some(waker);
            let mut began = Instant::now();
            for info in signals.forever() {
                let signal = info.si_signo;
                if let Some(waker) = waker.take() {
                    // Ordered by the Release below.
                    from.store(origin::is_of_terminal(&info), Ordering::Relaxed);
                    // Release; partner: the Acquire in `signal`.
                    first.store(signal, Ordering::Release);
                    // Behind the store: whoever is woken finds the signal.
                    drop(waker);
                    began = Instant::now();
                } else if began.elapsed() > REPEATED {
                    end_by(signal);
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(cannot_listen)?;
        Ok(Self { signal, of_terminal, wake: Some(wake) })
    }

    /// Returns the signal that has asked the command to stop, if there was one.
    pub fn signal(&self) -> Option<i32> {
        // Acquire; partner: the Release in `on_signals`.
        Some(self.signal.load(Ordering::Acquire)).filter(|signal| *signal != 0)
    }

    /// Returns whether the signal was sent to all processes of the terminal's foreground group, of
    /// which this one is one: children in it have received it as well.
    pub fn is_of_terminal(&self) -> bool {
        // When a connection ends, the kernel tells the leader of the session alone.
        let is_alone = self.signal() == Some(SIGHUP) && getsid(None) == Ok(getpid());
        // Ordered by the Acquire in `signal`.
        self.of_terminal.load(Ordering::Relaxed) && !is_alone
    }

    /// Sleeps for this time, or until the first signal.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while self.signal().is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            descriptor::wait_at_most(self.wake(), left).map_err(cannot_listen)?;
        }
        Ok(())
    }

    /// Returns a descriptor that becomes readable at the first signal.
    pub fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(AsFd::as_fd)
    }
}

/// Listens for the signals that ask a command to stop, except those that were ignored at the start.
pub fn listen() -> Result<Signals> {
    Signals::new(heeded()).map_err(cannot_listen)
}

fn heeded() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !origin::is_ignored(*signal))
}

fn cannot_listen(error: std::io::Error) -> Failure {
    Failure::Error(format!("cannot listen for signals: {error}"))
}

/// Keeps the exit statuses of child processes: where `SIGCHLD` is ignored, as some supervisors
/// leave it, the system discards them.
pub fn keep_exit_statuses() -> Result<()> {
    let seen = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGCHLD, seen).map(drop).map_err(cannot_listen)
}

/// Turns an exceeded file-size limit into an error of the write, instead of the end of the process.
pub fn outlive_file_size_limit() {
    // If no handler can be installed, the limit ends the process by a signal; nothing else changes.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Ends the process by the default action of this signal; as process 1 by an exit code.
pub fn end_by(signal: i32) -> ExitCode {
    // The exit code that shells report for a process that ended by a signal.
    let code = 128_u8.saturating_add(u8::try_from(signal).unwrap_or(0));
    if getpid().is_init() {
        // The default action does nothing in the first process of a container.
        low_level::exit(code.into());
    }
    let _ = low_level::emulate_default_handler(signal);
    ExitCode::from(code)
}

/// Returns the name of a signal.
pub fn name(signal: i32) -> &'static str {
    low_level::signal_name(signal).unwrap_or("a signal")
}
