//! Asks the system about signals: which are ignored, and whether the terminal has sent one.

use std::mem::zeroed;
use std::ptr::null;

/// Returns whether this process ignores a signal.
#[expect(unsafe_code, reason = "no safe wrapper asks for an action without setting one")]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: numbers and addresses, for which all bits may be zero.
    let mut action: libc::sigaction = unsafe { zeroed() };
    // SAFETY: without a new action, the call stores the present one, for which there is room.
    let asked = unsafe { libc::sigaction(signal, null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Returns whether the terminal has sent a signal, or the kernel when its connection ended: to all
/// processes of a group.
#[cfg(not(target_os = "macos"))]
pub fn is_of_terminal(info: &libc::siginfo_t) -> bool {
    /// The code of a signal that no process has sent.
    const SI_KERNEL: i32 = 0x80;
    info.si_code == SI_KERNEL
}

/// Returns whether the terminal has sent a signal, to all processes of its foreground group.
///
/// macOS names a process as the sender of such a signal, too: the one that has passed the terminal
/// the key that was pressed. It is the program with the window, or the server of the connection,
/// and belongs to another session. A `kill -INT` from another session is taken for a Ctrl-C.
#[cfg(target_os = "macos")]
pub fn is_of_terminal(info: &libc::siginfo_t) -> bool {
    use rustix::process::{Pid, getpgrp, getsid};
    let sender = Pid::from_raw(info.si_pid);
    let is_of_session = sender.is_some_and(|sender| getsid(Some(sender)) == getsid(None));
    let is_in_foreground = || {
        let terminal = std::fs::File::open("/dev/tty").ok();
        let group = terminal.and_then(|terminal| rustix::termios::tcgetpgrp(terminal).ok());
        group == Some(getpgrp())
    };
    info.si_signo == libc::SIGINT && !is_of_session && is_in_foreground()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_ignored_if_its_action_says_so() {
        // Rust's start ignores the first; the other is ignored by default, which is not the same.
        assert!(is_ignored(libc::SIGPIPE) && !is_ignored(libc::SIGCHLD));
        assert!(!is_ignored(0), "no signal");
    }
}
