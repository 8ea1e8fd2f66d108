//! Starts threads that are isolated from the program: its signals and its scheduling policy do not
//! affect them.
//!
//! The kernel delivers a signal to any thread that does not block it. Suppose that a program blocks
//! a signal in its own threads, to wait for it or to read it from a descriptor. The first one
//! delivered to a thread of this library would kill the program, and the program's handlers would
//! run on this library's stacks. In addition, a thread inherits the policy of its creator: a filter
//! opened from a real-time thread would write its snapshots at real-time priority.

use crate::platform::system;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Signals that a thread causes itself: if blocked, they would end the process without calling a
/// handler.
const OWN: [libc::c_int; 5] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];

/// Starts a thread that takes no signals of the program and runs at ordinary priority.
///
/// # Errors
/// The system's error if no thread can be started.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let before = block_signals();
    let spawned = Builder::new().name(name.to_owned()).spawn(move || {
        be_ordinary();
        run();
    });
    if let Some(before) = before {
        restore(&before);
    }
    spawned
}

/// Starts a thread of a scope that takes no signals of the program and runs at ordinary priority.
///
/// # Errors
/// The system's error if no thread can be started.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let before = block_signals();
    let spawned = Builder::new().name(name.to_owned()).spawn_scoped(scope, move || {
        be_ordinary();
        run()
    });
    if let Some(before) = before {
        restore(&before);
    }
    spawned
}

/// Returns the number of processors that this process may use.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |number| number.get())
}

/// Blocks all signals except a thread's own in the calling thread, which new threads inherit.
/// Returns the previous mask.
#[expect(unsafe_code, reason = "no safe wrapper offers masks of signals")]
fn block_signals() -> Option<libc::sigset_t> {
    if cfg!(miri) {
        return None;
    }
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: `sigfillset` initialises the set that it gets; the others read it, and
    // `pthread_sigmask` initialises `before` if it succeeds.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in OWN {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        let blocked = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        (blocked == 0).then(|| before.assume_init())
    }
}

/// Restores the previous mask of blocked signals.
#[expect(unsafe_code, reason = "no safe wrapper offers masks of signals")]
fn restore(before: &libc::sigset_t) {
    // SAFETY: a set that the system has filled; it is only read.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

/// Gives the calling thread the ordinary policy. If refused, it keeps the inherited one.
fn be_ordinary() {
    if !cfg!(miri) {
        system::be_ordinary();
    }
}

#[cfg(all(test, not(any(loom, miri))))]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::thread::JoinHandleExt;

    extern "C" fn ignored(_signal: libc::c_int) {}

    /// Interrupts what a thread waits for, by a signal that does nothing else.
    #[expect(unsafe_code, reason = "a signal to one thread")]
    pub(crate) fn interrupt<T>(thread: &std::thread::JoinHandle<T>) {
        let handler: extern "C" fn(libc::c_int) = ignored;
        // SAFETY: the handler does nothing, and the thread has not been joined.
        unsafe {
            libc::signal(libc::SIGURG, handler as libc::sighandler_t);
            libc::pthread_kill(thread.as_pthread_t(), libc::SIGURG);
        }
    }

    /// Returns the mask of blocked signals of the calling thread, as stored by the kernel: bit n -
    /// 1 for signal n.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        u64::from_str_radix(line.expect("a mask").trim(), 16).expect("a number")
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
    fn a_thread_takes_no_signals_but_those_that_it_causes_and_its_starter_keeps_its_own() {
        let before = blocked();
        let (sent, seen) = std::sync::mpsc::channel();
        let thread = spawn("quiet", move || sent.send(blocked()).expect("somebody listens"));
        thread.expect("a thread").join().expect("no panic");
        let mask = seen.recv().expect("a mask");
        let is_blocked = |signal: libc::c_int| mask >> (signal - 1) & 1 == 1;
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGPROF] {
            assert!(is_blocked(signal), "signal {signal} in {mask:x}");
        }
        assert!(OWN.iter().all(|&signal| !is_blocked(signal)), "{mask:x}");
        assert_eq!(blocked(), before);
    }
}
