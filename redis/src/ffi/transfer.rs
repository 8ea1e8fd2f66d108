//! What values are saved to and loaded from.

use super::raw;
use super::{api, one_line};
use std::ffi::{CStr, c_longlong};
use std::ops::Deref;

/// Saves a value to a snapshot.
pub struct Saver(*mut raw::RedisModuleIO);

impl Saver {
    /// # Safety
    /// `io` is the server's, valid as long as this.
    pub(super) unsafe fn new(io: *mut raw::RedisModuleIO) -> Self {
        Self(io)
    }

    /// Saves a number.
    pub fn number(&mut self, number: u64) {
        // SAFETY: as `new` requires, here and below.
        unsafe { api(raw::RedisModule_SaveUnsigned)(self.0, number) };
    }

    /// Saves bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (start, length) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: as above.
        unsafe { api(raw::RedisModule_SaveStringBuffer)(self.0, start, length) };
    }
}

/// Loads a value from a snapshot.
pub struct Loader(*mut raw::RedisModuleIO);

/// Bytes that were loaded.
pub struct Loaded {
    start: *mut u8,
    length: usize,
}

impl Deref for Loaded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as many bytes, which belong to this.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: allocated by the server for its caller, and freed once.
        unsafe { api(raw::RedisModule_Free)(self.start.cast()) };
    }
}

impl Loader {
    /// # Safety
    /// `io` is the server's, valid as long as this.
    pub(super) unsafe fn new(io: *mut raw::RedisModuleIO) -> Self {
        Self(io)
    }

    fn has_failed(&self) -> bool {
        // SAFETY: as `new` requires, here and below.
        unsafe { api(raw::RedisModule_IsIOError)(self.0) != 0 }
    }

    /// Returns a number; `None` if there is none.
    pub fn number(&mut self) -> Option<u64> {
        // SAFETY: as above.
        let number = unsafe { api(raw::RedisModule_LoadUnsigned)(self.0) };
        (!self.has_failed()).then_some(number)
    }

    /// Returns bytes; `None` if there are none.
    pub fn bytes(&mut self) -> Option<Loaded> {
        let mut length = 0;
        // SAFETY: as above.
        let start = unsafe { api(raw::RedisModule_LoadStringBuffer)(self.0, &raw mut length) };
        let loaded = (!start.is_null()).then(|| Loaded { start: start.cast(), length });
        loaded.filter(|_| !self.has_failed())
    }

    /// Writes a line to the server's log.
    pub(super) fn log(&self, text: &str) {
        let text = one_line(text);
        // SAFETY: as above; the format takes one text.
        unsafe {
            api(raw::RedisModule_LogIOError)(
                self.0,
                c"warning".as_ptr(),
                c"%s".as_ptr(),
                text.as_ptr(),
            );
        }
    }
}

/// Writes commands to an append-only file.
pub struct Emitter {
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
}

impl Emitter {
    /// # Safety
    /// Both are the server's, valid as long as this.
    pub(super) unsafe fn new(
        io: *mut raw::RedisModuleIO,
        key: *mut raw::RedisModuleString,
    ) -> Self {
        Self { io, key }
    }

    /// Writes `command key number bytes`.
    pub fn numbered(&mut self, command: &CStr, number: u64, bytes: &[u8]) {
        // SAFETY: as `new` requires; the format names a string of the server, a `long long`, and a
        // pointer with a length.
        unsafe {
            api(raw::RedisModule_EmitAOF)(
                self.io,
                command.as_ptr(),
                c"slb".as_ptr(),
                self.key,
                number as c_longlong,
                bytes.as_ptr(),
                bytes.len(),
            );
        }
    }
}

/// The digest of a value, as `DEBUG DIGEST` compares it.
pub struct Summary(*mut raw::RedisModuleDigest);

impl Summary {
    /// # Safety
    /// `to` is the server's, valid as long as this.
    pub(super) unsafe fn new(to: *mut raw::RedisModuleDigest) -> Self {
        Self(to)
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (start, length) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: as `new` requires.
        unsafe {
            api(raw::RedisModule_DigestAddStringBuffer)(self.0, start, length);
            api(raw::RedisModule_DigestEndSequence)(self.0);
        }
    }
}
