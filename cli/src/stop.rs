//! Signals: the three that ask the command to stop, and the one that a file-size limit sends.
//!
//! A command that changes a filter stops between two lines: it prints what it has remembered,
//! closes the filter, and then ends by the signal that asked for it, so that its parent sees what
//! it expects. A second signal ends it at once. Signals that were ignored when the command started
//! stay ignored (`nohup`, background jobs of a script).

use crate::failure::{Failure, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use std::fs;
use std::io::{PipeReader, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A signal this soon after the first one belongs to the same request: `timeout` and shells send
/// theirs to the process and to its group.
const REPEATED: Duration = Duration::from_millis(200);

/// Whether a signal has asked the command to stop.
pub struct Stop {
    /// The signal; 0 while there was none.
    signal: Arc<AtomicI32>,
    /// Closed at its other end by the first signal: readable from then on.
    wake: Option<PipeReader>,
}

impl Stop {
    /// Leaves signals as they are.
    pub fn never() -> Self {
        Self { signal: Arc::default(), wake: None }
    }

    /// Listens for signals from now on, to the end of the process.
    pub fn on_signals() -> Result<Self> {
        let signal = Arc::new(AtomicI32::new(0));
        let (wake, waker) = pipe().map_err(cannot_listen)?;
        let mut signals = listen()?;
        let first = signal.clone();
        let listen = move || {
            let mut waker = Some(waker);
            let mut began = Instant::now();
            for signal in signals.forever() {
                if waker.take().is_some() {
                    // Release; partner: the Acquire in `signal`. (The first one drops the pipe's
                    // end.)
                    first.store(signal, Ordering::Release);
                    began = Instant::now();
                } else if began.elapsed() > REPEATED {
                    end_by(signal);
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(cannot_listen)?;
        Ok(Self { signal, wake: Some(wake) })
    }

    /// The signal that has asked the command to stop, if one has.
    pub fn signal(&self) -> Option<i32> {
        // Acquire; partner: the Release in `on_signals`.
        Some(self.signal.load(Ordering::Acquire)).filter(|signal| *signal != 0)
    }

    /// A descriptor that can be read as soon as a signal has come.
    pub fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(AsFd::as_fd)
    }
}

/// Waits for the signals that ask a command to stop, except those that were ignored already.
pub fn listen() -> Result<Signals> {
    let ignored = ignored();
    let heeded = [SIGINT, SIGTERM, SIGHUP].into_iter();
    let heeded = heeded.filter(|signal| ignored & (1 << (signal - 1)) == 0);
    Signals::new(heeded).map_err(cannot_listen)
}

fn cannot_listen(error: std::io::Error) -> Failure {
    Failure::Error(format!("cannot listen for signals: {error}"))
}

/// The signals that this process ignores, one bit each; none where the system does not say.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Makes a file-size limit an error of the write that exceeds it, in place of the end of the
/// process.
pub fn outlive_file_size_limit() {
    // Without a handler the limit is a signal again, and nothing else is worse.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Ends the process as this signal does where nothing handles it.
pub fn end_by(signal: i32) -> ExitCode {
    let _ = low_level::emulate_default_handler(signal);
    // What shells report of a process that ended by a signal.
    ExitCode::from(128_u8.saturating_add(u8::try_from(signal).unwrap_or(0)))
}

/// The name of a signal.
pub fn name(signal: i32) -> &'static str {
    low_level::signal_name(signal).unwrap_or("a signal")
}
