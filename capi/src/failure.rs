//! Errors as C programs see them: a code and a message.

use crate::codes::{EBBTIDE_ARGUMENT, EBBTIDE_OTHER, EBBTIDE_PANIC};
use std::any::Any;
use std::ffi::{CStr, CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An error: a code and a message.
#[derive(Debug)]
pub struct Failure {
    code: c_int,
    message: CString,
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
        Self { code, message: CString::new(bytes).unwrap_or_default() }
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

    /// Creates the error for a panic from what it carries.
    #[cold]
    fn panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("unknown");
        Self::new(EBBTIDE_PANIC, format!("internal error, please report it: {text}"))
    }
}

impl From<engine::Error> for Failure {
    #[cold]
    fn from(error: engine::Error) -> Self {
        // All codes are below 1000.
        let code = c_int::try_from(error.code().number()).unwrap_or(EBBTIDE_OTHER);
        Self::new(code, error.to_string())
    }
}

/// Runs an operation; a panic becomes an error, because it must not leave a function that C calls.
#[inline(always)]
pub fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // What a panic leaves half done in a filter, the engine detects: it poisons the block.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done,
        Err(payload) => Err(Failure::panic(&*payload)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_text() {
        let plain = guarded::<()>(|| panic!("broken")).expect_err("a panic");
        let formatted = guarded::<()>(|| panic!("broken {}", 7)).expect_err("a panic");
        let other = guarded::<()>(|| std::panic::panic_any(7)).expect_err("a panic");
        for (failure, text) in [(plain, "broken"), (formatted, "broken 7"), (other, "unknown")] {
            assert_eq!(failure.code(), EBBTIDE_PANIC);
            let message = failure.message().to_str().expect("text");
            assert_eq!(message, format!("internal error, please report it: {text}"));
        }
        assert_eq!(guarded(|| Ok(7)).expect("no panic"), 7);
    }

    #[test]
    fn a_message_with_a_nul_keeps_its_other_characters() {
        let failure = Failure::argument("a\0b");
        assert_eq!(failure.message().to_str(), Ok("ab"));
    }
}
