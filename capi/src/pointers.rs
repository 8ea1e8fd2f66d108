//! The pointers that C passes, checked and turned into Rust's types.

#![expect(unsafe_code, reason = "C passes pointers")]

use crate::answer::Answer;
use crate::batch::Pending;
use crate::call::Settings;
use crate::codes::EBBTIDE_IO;
use crate::failure::{Failure, Result, guarded};
use crate::handle::Handle;
use crate::history::{Log, Moment};
use engine::history::At;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{ptr, slice};

/// The entry in an array of answers for a key that an error left without one.
pub const EBBTIDE_NO_ANSWER: c_int = 255;

/// Larger structures are refused: this is no size of one, in any version.
const LARGEST: usize = 4096;

/// A key of a bulk operation: length bytes of any values. If length is 0, bytes may be NULL.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The bytes.
    pub bytes: *const c_void,
    /// The number of bytes.
    pub length: usize,
}

/// A key whose pointer and length were checked.
#[repr(transparent)]
pub struct CheckedKey(Key);

impl AsRef<[u8]> for CheckedKey {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `keys` makes these values only, as references into the caller's array, after it
        // checked the key.
        unsafe { bytes(self.0.bytes, self.0.length) }
    }
}

/// Runs an operation and returns its answer. On an error stores it and returns `failed`.
///
/// # Safety
/// `error` is null or may be written.
#[inline(always)]
pub unsafe fn run<T: Copy>(
    error: *mut *mut Failure,
    failed: T,
    work: impl FnOnce() -> Result<T>,
) -> T {
    let report = |failure| {
        if !error.is_null() {
            // SAFETY: as demanded above.
            unsafe { error.write(Box::into_raw(Box::new(failure))) };
        }
    };
    guarded(failed, report, work)
}

/// Returns the handle.
///
/// # Safety
/// `filter` is null or came from a function that opens, and is not closed during `'a`.
#[inline(always)]
pub unsafe fn handle<'a>(filter: *const Handle) -> Result<&'a Handle> {
    // SAFETY: as demanded above.
    unsafe { filter.as_ref() }.ok_or_else(|| Failure::argument("the filter is NULL"))
}

/// Returns a batch.
///
/// # Safety
/// `batch` is null or a batch that nothing else uses during `'a`.
pub unsafe fn pending<'a>(batch: *mut Pending) -> Result<&'a mut Pending> {
    // SAFETY: as demanded above.
    unsafe { batch.as_mut() }.ok_or_else(|| Failure::argument("the batch is NULL"))
}

/// Returns a history.
///
/// # Safety
/// `history` is null or one that nothing else uses during `'a`.
pub unsafe fn log<'a>(history: *mut Log) -> Result<&'a mut Log> {
    // SAFETY: as demanded above.
    unsafe { history.as_mut() }.ok_or_else(|| Failure::argument("the history is NULL"))
}

/// Returns a moment.
///
/// # Safety
/// `moment` is null or may be read.
pub unsafe fn moment(moment: *const Moment) -> Result<At> {
    // SAFETY: as demanded above.
    let moment = unsafe { moment.as_ref() };
    moment.ok_or_else(|| Failure::argument("the moment is NULL"))?.check()
}

/// A place for an answer, in a version of the structure that may be another one.
pub struct Place<T> {
    place: *mut T,
    size: usize,
}

impl<T: Answer> Place<T> {
    /// Returns the place, which may be null.
    ///
    /// # Safety
    /// `place` is null, or points to as many bytes as the size in it says; they may be written as
    /// long as the place is used.
    pub unsafe fn of(place: *mut T) -> Result<Self> {
        if place.is_null() {
            return Ok(Self { place, size: 0 });
        }
        // SAFETY: the size is the first member in all versions, and may be read.
        let size = unsafe { place.cast::<usize>().read_unaligned() };
        if (T::FIRST..=LARGEST).contains(&size) {
            return Ok(Self { place, size });
        }
        let (name, first) = (T::NAME, T::FIRST);
        Err(Failure::argument(format!(
            "size of struct {name}: expected sizeof(struct {name}), {first} or more, found {size}"
        )))
    }

    /// Returns the place unless it is null.
    pub fn needed(self) -> Result<Self> {
        if self.place.is_null() {
            return Err(Failure::argument(format!("the place of struct {} is NULL", T::NAME)));
        }
        Ok(self)
    }

    /// Writes the answer, and 0 into members of a later version.
    pub fn fill(self, answer: T) {
        let start = size_of::<usize>();
        let end = size_of::<T>().min(self.size);
        if end <= start {
            return;
        }
        let (from, to) = ((&raw const answer).cast::<u8>(), self.place.cast::<u8>());
        // SAFETY: `end` bytes may be read from the answer, and `size` be written at the place: as
        // `of` demands. The size in it stays.
        unsafe {
            ptr::copy_nonoverlapping(from.add(start), to.add(start), end - start);
            to.add(end).write_bytes(0, self.size - end);
        }
    }
}

/// Returns these bytes; a null pointer is an empty slice.
///
/// # Safety
/// `start` is null, or `length` bytes there are not changed during `'a`; at most `isize::MAX`.
#[inline(always)]
unsafe fn bytes<'a>(start: *const c_void, length: usize) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: as demanded above.
    unsafe { slice::from_raw_parts(start.cast(), length) }
}

/// Checks a key.
#[inline(always)]
fn check_key(start: *const c_void, length: usize) -> Result<()> {
    if start.is_null() && length != 0 || isize::try_from(length).is_err() {
        return Err(wrong_key(start, length));
    }
    Ok(())
}

#[cold]
fn wrong_key(start: *const c_void, length: usize) -> Failure {
    Failure::argument(format!(
        "the key is {start:?} with {length} bytes: expected a pointer to its bytes"
    ))
}

/// Returns a key.
///
/// # Safety
/// As [`bytes`], of which this checks the length.
#[inline(always)]
pub unsafe fn key<'a>(start: *const c_void, length: usize) -> Result<&'a [u8]> {
    check_key(start, length)?;
    // SAFETY: as demanded above.
    Ok(unsafe { bytes(start, length) })
}

/// Returns the keys of a bulk operation.
///
/// # Safety
/// `first` is null, or points to `count` keys; neither they nor their bytes change during `'a`.
pub unsafe fn keys<'a>(first: *const Key, count: usize) -> Result<&'a [CheckedKey]> {
    if count == 0 {
        return Ok(&[]);
    }
    let is_array = count.checked_mul(size_of::<Key>()).is_some_and(|all| all < isize::MAX as usize);
    if first.is_null() || !first.is_aligned() || !is_array {
        return Err(Failure::argument(format!(
            "the keys are {first:?}, {count} of them: expected an aligned array"
        )));
    }
    // SAFETY: the pointer is aligned, the length fits, and the rest is demanded above.
    let keys = unsafe { slice::from_raw_parts(first, count) };
    for key in keys {
        check_key(key.bytes, key.length)?;
    }
    // SAFETY: a `CheckedKey` is a `Key`, and each was checked.
    Ok(unsafe { slice::from_raw_parts(first.cast(), count) })
}

/// Returns a text; `None` if it is null.
///
/// # Safety
/// `text` is null or ends with a NUL byte, and does not change during `'a`.
unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: as demanded above.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str();
    text.map(Some).map_err(|_| Failure::argument(format!("the {name} are not UTF-8")))
}

/// Returns the text of a spec.
///
/// # Safety
/// As [`text`].
pub unsafe fn spec<'a>(spec: *const c_char) -> Result<&'a str> {
    // SAFETY: as demanded above.
    let given = unsafe { text(spec, "bytes of the spec") }?;
    given.ok_or_else(|| {
        Failure::argument("the spec is NULL: expected text such as \"bloom capacity=1000\"")
    })
}

/// Returns the text of options, which may be missing.
///
/// # Safety
/// As [`text`].
pub unsafe fn options<'a>(options: *const c_char) -> Result<&'a str> {
    // SAFETY: as demanded above.
    Ok(unsafe { text(options, "bytes of the options") }?.unwrap_or_default())
}

/// Returns a path.
///
/// # Safety
/// As [`text`].
pub unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    if path.is_null() {
        return Err(Failure::argument("the path is NULL"));
    }
    // SAFETY: as demanded above.
    let path = unsafe { CStr::from_ptr(path) };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// Returns paths.
///
/// # Safety
/// `first` is null, or points to `count` paths, which are as [`text`].
pub unsafe fn paths<'a>(first: *const *const c_char, count: usize) -> Result<Vec<&'a Path>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let is_array =
        count.checked_mul(size_of::<usize>()).is_some_and(|all| all < isize::MAX as usize);
    if first.is_null() || !first.is_aligned() || !is_array {
        return Err(Failure::argument(format!(
            "the paths are {first:?}, {count} of them: expected an aligned array"
        )));
    }
    // SAFETY: the pointer is aligned, the length fits, and the rest is demanded above.
    let paths = unsafe { slice::from_raw_parts(first, count) };
    // SAFETY: as demanded above.
    paths.iter().map(|&one| unsafe { path(one) }).collect()
}

/// Runs an operation with the settings of a call, if there are any, when they were checked.
/// Without, nothing is copied.
///
/// # Safety
/// `call` is null, or points to as many bytes as the size in it says.
#[inline(always)]
pub unsafe fn with_settings<T>(
    call: *const Settings,
    work: impl FnOnce(Option<&Settings>) -> Result<T>,
) -> Result<T> {
    if call.is_null() {
        return work(None);
    }
    // SAFETY: as demanded above.
    let settings = unsafe { settings(call) }?;
    work(Some(&settings))
}

/// Copies the settings of a call, of this version or of another one, and checks them: before
/// anything of the operation has been done, or any answer was written.
///
/// # Safety
/// `call` points to as many bytes as the size in it says.
unsafe fn settings(call: *const Settings) -> Result<Settings> {
    // SAFETY: the size is the first member in all versions, and may be read.
    let size = unsafe { call.cast::<usize>().read_unaligned() };
    if !(Settings::FIRST..=LARGEST).contains(&size) {
        return Err(Failure::argument(format!(
            "size of the call: expected sizeof(struct ebbtide_call), {} or more, found {size}",
            Settings::FIRST
        )));
    }
    // SAFETY: `size` bytes may be read.
    let given = unsafe { slice::from_raw_parts(call.cast::<u8>(), size) };
    let (known, later) = given.split_at(size.min(size_of::<Settings>()));
    if later.iter().any(|&byte| byte != 0) {
        return Err(Failure::argument(
            "the call has settings of a later version, which this library does not know",
        ));
    }
    let mut settings = Settings::default();
    // SAFETY: `known` is not longer than the settings, which are numbers without padding.
    unsafe { ptr::copy_nonoverlapping(known.as_ptr(), (&raw mut settings).cast(), known.len()) };
    settings.check()?;
    Ok(settings)
}

/// Writes an answer where the caller wants it.
///
/// # Safety
/// `place` is null or may be written.
pub unsafe fn put<T>(place: *mut T, answer: T) {
    if !place.is_null() {
        // SAFETY: as demanded above.
        unsafe { place.write_unaligned(answer) };
    }
}

/// Writes answers into an array, and [`EBBTIDE_NO_ANSWER`] into the rest of its `count` entries.
///
/// # Safety
/// `first` may be written `count` times, unless that is 0.
pub unsafe fn put_all(first: *mut u8, count: usize, mut answers: impl Iterator<Item = c_int>) {
    for at in 0..count {
        let answer = answers.next().unwrap_or(EBBTIDE_NO_ANSWER);
        // SAFETY: `at` is less than `count`, and the rest is demanded above.
        unsafe { first.add(at).write(answer as u8) };
    }
}

/// Gives a text to the caller, in memory of C: no size of it need be known to release it, as that
/// of a `CString`, which a caller changes who writes a NUL into it.
pub fn hand_out(text: String) -> Result<*mut c_char> {
    let text = CString::new(text).unwrap_or_default();
    let bytes = text.as_bytes_with_nul();
    // SAFETY: any size may be asked for.
    let copy: *mut c_char = unsafe { libc::malloc(bytes.len()) }.cast();
    if copy.is_null() {
        let sentence = format!("there is no memory for a text of {} bytes", bytes.len());
        return Err(Failure::new(EBBTIDE_IO, sentence));
    }
    // SAFETY: `copy` has room for them, and nobody else has it yet.
    unsafe { copy.copy_from_nonoverlapping(text.as_ptr(), bytes.len()) };
    Ok(copy)
}

/// Releases a text.
///
/// # Safety
/// `text` is null, or from [`hand_out`] and not released before.
pub unsafe fn take_back(text: *mut c_char) {
    // SAFETY: as demanded above.
    unsafe { libc::free(text.cast()) };
}

/// Checks the place for `count` answers.
pub fn check_answers(first: *mut u8, count: usize) -> Result<()> {
    if first.is_null() && count != 0 {
        return Err(Failure::argument("the array of answers is NULL"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The system's allocator, which looks at the sizes that it gets back.
    struct Sizes;

    #[global_allocator]
    static SIZES: Sizes = Sizes;

    /// How often another size came back than was asked for.
    static WRONG: AtomicUsize = AtomicUsize::new(0);

    // SAFETY: the system's allocator does it.
    unsafe impl GlobalAlloc for Sizes {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as the caller has promised.
            unsafe { System.alloc(layout) }
        }

        // SAFETY: the caller promises what the system's allocator demands.
        unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
            // SAFETY: `start` is from `malloc` or the like, by which the system's allocator works.
            let usable = unsafe { libc::malloc_usable_size(start.cast()) };
            // Up to a page may be more than was asked for.
            if usable > layout.size() + 4096 + layout.align() {
                WRONG.fetch_add(1, Ordering::Relaxed);
            }
            // SAFETY: as the caller has promised.
            unsafe { System.dealloc(start, layout) }
        }
    }

    #[test]
    fn a_text_that_the_caller_has_shortened_is_released_as_a_whole() {
        let length = 100_000;
        let text = hand_out("x".repeat(length)).expect("memory");
        // SAFETY: the text is the caller's, and has that many bytes and a NUL.
        unsafe {
            assert_eq!(libc::strlen(text), length);
            text.add(7).write(0);
            crate::interface::ebbtide_string_free(text);
        }
        assert_eq!(WRONG.load(Ordering::Relaxed), 0);
    }
}
