//! Asks the system which signals are ignored.

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
