//! Errors as C programs see them: a code, a message and a path.

use crate::codes::{EBBTIDE_ARGUMENT, EBBTIDE_OTHER, EBBTIDE_PANIC};
use engine::Error;
use std::any::Any;
use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// An error: a code, a message, and the path of what it is about.
#[derive(Debug)]
pub struct Failure {
    code: c_int,
    message: CString,
    path: Option<CString>,
}

/// The result of every operation.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Creates an error.
    #[cold]
    pub fn new(code: c_int, message: impl Into<String>) -> Self {
        // A path given to the engine contains no NUL, but a message may quote a file's content.
        let mut bytes = message.into().into_bytes();
        bytes.retain(|&byte| byte != 0);
        Self { code, message: CString::new(bytes).unwrap_or_default(), path: None }
    }

    /// Creates the error for a wrong argument.
    #[cold]
    pub fn argument(message: impl Into<String>) -> Self {
        Self::new(EBBTIDE_ARGUMENT, message)
    }

    /// Returns the code.
    pub fn code(&self) -> c_int {
        self.code
    }

    /// Returns the message.
    pub fn message(&self) -> &CStr {
        &self.message
    }

    /// Returns the file or directory that the error is about, if there is one.
    pub fn path(&self) -> Option<&CStr> {
        self.path.as_deref()
    }

    /// Creates the error for a panic from what it carries.
    #[cold]
    fn panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("unknown");
        Self::new(EBBTIDE_PANIC, format!("internal error, please report it: {text}"))
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        // All codes are below 1000.
        let code = c_int::try_from(error.code().number()).unwrap_or(EBBTIDE_OTHER);
        let path = path(&error).and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
        Self { path, ..Self::new(code, error.to_string()) }
    }
}

/// Returns the file or directory that an error of the engine is about.
fn path(error: &Error) -> Option<&Path> {
    match error {
        Error::Io { path, .. }
        | Error::Damaged { path, .. }
        | Error::Version { path, .. }
        | Error::NotAFilter { path, .. }
        | Error::Exists { path }
        | Error::Occupied { path }
        | Error::Mismatch { path, .. }
        | Error::Locked { path, .. }
        | Error::Crowded { path, .. }
        | Error::Forked { path }
        | Error::Closed { path }
        | Error::Retired { path, .. }
        | Error::Poisoned { path, .. }
        | Error::WouldWait { path, .. }
        | Error::Conflict { path, .. }
        | Error::LeaseLost { path, .. }
        | Error::ClaimsFull { path, .. }
        | Error::NotKept { path, .. } => Some(path),
        _ => None,
    }
}

/// Runs an operation; returns its answer, or reports its error and returns `failed`. A panic
/// becomes an error, because it must not leave a function that C calls.
#[inline(always)]
pub fn guarded<T: Copy>(
    failed: T,
    mut report: impl FnMut(Failure),
    work: impl FnOnce() -> Result<T>,
) -> T {
    // An error is reported inside, so that only the answer, which fits in a register, leaves: a
    // result that contains an error would be copied through memory, right after it was written.
    let inside = || {
        work().unwrap_or_else(|failure| {
            report(failure);
            failed
        })
    };
    // What a panic leaves half done in a filter, the engine detects: it poisons the block.
    catch_unwind(AssertUnwindSafe(inside)).unwrap_or_else(|payload| {
        report(Failure::panic(&*payload));
        failed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_text() {
        type Work = fn() -> Result<i32>;
        let works: [(Work, _); 3] = [
            (|| panic!("broken"), "broken"),
            (|| panic!("broken {}", 7), "broken 7"),
            (|| std::panic::panic_any(7), "unknown"),
        ];
        for (work, text) in works {
            let mut reported = None;
            assert_eq!(guarded(-1, |failure| reported = Some(failure), work), -1);
            let failure = reported.expect("an error");
            assert_eq!(failure.code(), EBBTIDE_PANIC);
            let message = failure.message().to_str().expect("text");
            assert_eq!(message, format!("internal error, please report it: {text}"));
        }
    }

    #[test]
    fn an_answer_is_returned_and_an_error_is_reported_once() {
        let mut reported = Vec::new();
        assert_eq!(guarded(-1, |failure| reported.push(failure), || Ok(7)), 7);
        assert!(reported.is_empty());
        let failing = || Err(Failure::argument("wrong"));
        assert_eq!(guarded(-1, |failure| reported.push(failure), failing), -1);
        assert_eq!(reported.iter().map(Failure::code).collect::<Vec<_>>(), [EBBTIDE_ARGUMENT]);
    }

    #[test]
    fn an_error_has_the_path_that_it_is_about() {
        let path = Path::new("/tmp/seen").to_path_buf();
        let failure = Failure::from(Error::Exists { path });
        assert_eq!(failure.path(), Some(c"/tmp/seen"));
        assert_eq!(Failure::from(Error::TimeAhead { time: 2, limit: 1 }).path(), None);
        assert_eq!(Failure::argument("wrong").path(), None);
    }

    #[test]
    fn a_message_with_a_nul_keeps_its_other_characters() {
        let failure = Failure::argument("a\0b");
        assert_eq!(failure.message().to_str(), Ok("ab"));
    }
}
