//! The exported functions. Their comments, for readers in C, become those of `include/ebbtide.h`.
//!
//! All `unsafe` code of the crate is here, in the other `interface` files, and in `pointers`. It
//! relies on what the header demands of callers: pointers are NULL where that is allowed, or point
//! to what their types say; no handle, batch, error or string is used after it was released, and no
//! batch after its filter was closed. Everything else is checked.

#![expect(unsafe_code, reason = "C passes pointers")]

use crate::call::Settings;
use crate::failure::Failure;
use crate::handle::Handle;
use crate::pointers::{
    self, Key, check_answers, hand_out, handle, put, put_all, run, take_back, with_settings,
};
use engine::{Age, Checked, Within};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::{mem, ptr};

/// Answer of ebbtide_check_and_insert: the key was in the window, or is a false positive.
pub const EBBTIDE_PRESENT: c_int = 0;
/// Answer of ebbtide_check_and_insert: the key was not in the window; it is now.
pub const EBBTIDE_NEW: c_int = 1;
/// Answer of ebbtide_check_and_insert: the key's time lies before the window. Its presence is
/// unknown, and nothing was changed.
pub const EBBTIDE_TOO_LATE: c_int = 2;
/// Unit of ages and windows: insert operations.
pub const EBBTIDE_ITEMS: u32 = 0;
/// Unit of ages and windows: microseconds.
pub const EBBTIDE_MICROSECONDS: u32 = 1;

/// Returns a part of the window.
fn within(amount: u64, unit: u32) -> Result<Within, Failure> {
    match unit {
        EBBTIDE_ITEMS => Ok(Within::Items(amount)),
        EBBTIDE_MICROSECONDS => Ok(Within::micros(amount)),
        _ => Err(Failure::argument(format!(
            "unit: expected EBBTIDE_ITEMS or EBBTIDE_MICROSECONDS, found {unit}"
        ))),
    }
}

/// Gives a handle to the caller.
pub fn hand_out_handle(handle: Handle) -> *mut Handle {
    Box::into_raw(Box::new(handle))
}

pub const fn answer(checked: Checked) -> c_int {
    match checked {
        Checked::Present => EBBTIDE_PRESENT,
        Checked::New => EBBTIDE_NEW,
        Checked::TooLate => EBBTIDE_TOO_LATE,
    }
}

/// Returns a filter, which is created if there is none at this path.
///
/// The spec is a kind with its parameters, such as "time-limited window=10m fpr=0.001", in the
/// spelling of the command line. Of a filter that exists the named parameters are compared
/// (EBBTIDE_MISMATCH). Options are text too, such as "durability=always stripes=16"; NULL for the
/// defaults. They are compared as well, except those that belong to the handle: durability,
/// checkpoint-bytes, background and image; and keep-log, which the filter has from then on: how
/// much of the log is kept for ebbtide_reader_open_at, ebbtide_restore_at, ebbtide_history_open,
/// ebbtide_alter and ebbtide_remake, such as "keep-log=24h" or "keep-log=10GiB".
///
/// Returns NULL on an error. Close the filter with ebbtide_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_open(
    path: *const c_char,
    spec: *const c_char,
    options: *const c_char,
    error: *mut *mut Failure,
) -> *mut Handle {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, ptr::null_mut(), || {
            let handle = Handle::open(
                pointers::path(path)?,
                pointers::spec(spec)?,
                pointers::options(options)?,
            );
            Ok(hand_out_handle(handle?))
        })
    }
}

/// As ebbtide_open, for a filter that does not exist yet: otherwise EBBTIDE_EXISTS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_create(
    path: *const c_char,
    spec: *const c_char,
    options: *const c_char,
    error: *mut *mut Failure,
) -> *mut Handle {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, ptr::null_mut(), || {
            let path = pointers::path(path)?;
            Ok(hand_out_handle(Handle::create(
                path,
                pointers::spec(spec)?,
                pointers::options(options)?,
            )?))
        })
    }
}

/// As ebbtide_open, for a filter that exists: otherwise EBBTIDE_NOT_A_FILTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_open_existing(
    path: *const c_char,
    options: *const c_char,
    error: *mut *mut Failure,
) -> *mut Handle {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, ptr::null_mut(), || {
            let handle = Handle::open_existing(pointers::path(path)?, pointers::options(options)?);
            Ok(hand_out_handle(handle?))
        })
    }
}

/// Returns a handle for queries, which needs no write permission and changes nothing. It answers
/// from the live state while other processes have the filter open, also from the files alone.
/// Functions that change the filter fail with EBBTIDE_UNSUPPORTED, and so does ebbtide_key_hash.
///
/// Returns NULL on an error. Close the handle with ebbtide_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_reader_open(
    path: *const c_char,
    options: *const c_char,
    error: *mut *mut Failure,
) -> *mut Handle {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, ptr::null_mut(), || {
            let handle = Handle::open_reader(pointers::path(path)?, pointers::options(options)?);
            Ok(hand_out_handle(handle?))
        })
    }
}

/// Closes a filter: writes a snapshot, so that the next opening has nothing to replay, and releases
/// the handle. No thread may use the handle, or a batch of it, meanwhile or afterwards. NULL does
/// nothing.
///
/// Returns 0, or -1 on an error. The handle is released then too; only the snapshot is missing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_close(filter: *mut Handle, error: *mut *mut Failure) -> c_int {
    // SAFETY: the header demands valid pointers; this function takes the handle back.
    unsafe {
        run(error, -1, || {
            if filter.is_null() {
                return Ok(0);
            }
            let handle = Box::from_raw(filter);
            handle.close().map(|()| 0)
        })
    }
}

/// Inserts a key of length bytes. Returns 1, or 0 if its time lies before the window, so that
/// nothing was changed, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_insert(
    filter: *mut Handle,
    key: *const c_void,
    length: usize,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, key) = (handle(filter)?, pointers::key(key, length)?);
            with_settings(call, |call| Ok(c_int::from(filter.insert(key, call)?)))
        })
    }
}

/// Queries a key. Returns 1 if it is in the window, 0 if not, -1 on an error. The answer is never 0
/// for a key in the window, and 1 for other keys at the filter's false-positive rate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_contains(
    filter: *mut Handle,
    key: *const c_void,
    length: usize,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, key) = (handle(filter)?, pointers::key(key, length)?);
            with_settings(call, |call| Ok(c_int::from(filter.contains(key, call)?)))
        })
    }
}

/// Queries and inserts a key in one step: of concurrent callers with the same new key, in any
/// number of processes, exactly one receives EBBTIDE_NEW.
///
/// Returns EBBTIDE_NEW, EBBTIDE_PRESENT or EBBTIDE_TOO_LATE, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_check_and_insert(
    filter: *mut Handle,
    key: *const c_void,
    length: usize,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, key) = (handle(filter)?, pointers::key(key, length)?);
            with_settings(call, |call| Ok(answer(filter.check_and_insert(key, call)?)))
        })
    }
}

/// Removes a key once, from a filter of a kind that counts. Returns 1, or 0 if the key is not
/// there, so that nothing was changed, or -1 on an error. Remove only keys that were inserted:
/// removing a false positive may make other keys disappear.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_remove(
    filter: *mut Handle,
    key: *const c_void,
    length: usize,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, key) = (handle(filter)?, pointers::key(key, length)?);
            with_settings(call, |call| Ok(c_int::from(filter.remove(key, call)?)))
        })
    }
}

/// Queries how long ago a key was seen. Returns 1 and stores a lower bound in *age and its unit
/// (EBBTIDE_ITEMS or EBBTIDE_MICROSECONDS) in *unit, or returns 0 if the key is not in the window,
/// or -1 on an error. age and unit may be NULL; they are written with the answer 1 only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_age(
    filter: *mut Handle,
    key: *const c_void,
    length: usize,
    age: *mut u64,
    unit: *mut u32,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, key) = (handle(filter)?, pointers::key(key, length)?);
            let (found, found_unit) = match with_settings(call, |call| filter.age(key, call))? {
                None => return Ok(0),
                Some(Age::Items(items)) => (items, EBBTIDE_ITEMS),
                Some(age @ Age::Time(_)) => (age.width(), EBBTIDE_MICROSECONDS),
            };
            put(age, found);
            put(unit, found_unit);
            Ok(1)
        })
    }
}

/// Queries whether a key was seen within a span that is shorter than the window: the latest amount
/// of insert operations (EBBTIDE_ITEMS) or of microseconds (EBBTIDE_MICROSECONDS), whichever the
/// filter's window is in: the other unit is an error (EBBTIDE_PARAMETER). Returns 1 or 0, or -1 on
/// an error. Never 0 for a key that was, and also 1 for some keys that are slightly older.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_seen_within(
    filter: *mut Handle,
    key: *const c_void,
    length: usize,
    amount: u64,
    unit: u32,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, key) = (handle(filter)?, pointers::key(key, length)?);
            let within = within(amount, unit)?;
            let found = with_settings(call, |call| filter.seen_within(key, within, call))?;
            Ok(c_int::from(found))
        })
    }
}

/// Counts the distinct keys in the window, for kinds whose cells say how many there are. Stores
/// their estimated number in *keys, its standard error, in keys, in *standard_error, and in *reach
/// how far back they were counted, in the unit of the filter's window: up to one generation further
/// than the window. Each of the three may be NULL. All blocks of the filter are read; the members
/// distinct_keys and distinct_keys_error of ebbtide_stat are of a sample. Returns 0, or -1 on an
/// error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_distinct(
    filter: *mut Handle,
    keys: *mut f64,
    standard_error: *mut f64,
    reach: *mut u64,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let filter = handle(filter)?;
            let answer = with_settings(call, |call| filter.distinct(None, call))?;
            put(keys, answer.keys);
            put(standard_error, answer.standard_error);
            put(reach, answer.reach.width());
            Ok(0)
        })
    }
}

/// Counts the distinct keys in a part of the window, as ebbtide_distinct: in the latest amount of
/// insert operations (EBBTIDE_ITEMS) or of microseconds (EBBTIDE_MICROSECONDS), as in
/// ebbtide_seen_within. No key of that part is left out; keys that are up to one generation older
/// count too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_distinct_within(
    filter: *mut Handle,
    amount: u64,
    unit: u32,
    keys: *mut f64,
    standard_error: *mut f64,
    reach: *mut u64,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, within) = (handle(filter)?, within(amount, unit)?);
            let answer = with_settings(call, |call| filter.distinct(Some(within), call))?;
            put(keys, answer.keys);
            put(standard_error, answer.standard_error);
            put(reach, answer.reach.width());
            Ok(0)
        })
    }
}

/// Estimates how often a key was inserted, less how often it was removed, for kinds that count.
/// Stores the count in *count, for decaying kinds the part of it that remains. Returns 0, or 1 if a
/// counter is saturated, so that the key may have been inserted more often, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_estimate(
    filter: *mut Handle,
    key: *const c_void,
    length: usize,
    count: *mut f64,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, key) = (handle(filter)?, pointers::key(key, length)?);
            if count.is_null() {
                return Err(Failure::argument("the place of the count is NULL"));
            }
            let estimate = with_settings(call, |call| filter.estimate(key, call))?;
            put(count, estimate.count);
            Ok(c_int::from(estimate.at_least))
        })
    }
}

/// Inserts keys in order; they become durable together. Much faster than single inserts if the
/// filter is larger than the processor's caches. If count is 0, keys may be NULL.
///
/// Returns how many were inserted, which is all except those that were too late, or -1 on an error.
/// The keys before the failing one are inserted then, and nothing says how many: to continue after
/// an error without inserting a key twice, use ebbtide_check_and_insert_all, whose answers tell.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_insert_all(
    filter: *mut Handle,
    keys: *const Key,
    count: usize,
    call: *const Settings,
    error: *mut *mut Failure,
) -> i64 {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, keys) = (handle(filter)?, pointers::keys(keys, count)?);
            Ok(with_settings(call, |call| filter.insert_all(keys, call))? as i64)
        })
    }
}

/// Queries keys in order and stores for each, in an array of count answers, 1 if it is in the
/// window, otherwise 0. If count is 0, keys and answers may be NULL.
///
/// Returns 0, or -1 on an error. All answers are EBBTIDE_NO_ANSWER then, unless the arguments were
/// wrong (EBBTIDE_ARGUMENT): then nothing is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_contains_all(
    filter: *mut Handle,
    keys: *const Key,
    count: usize,
    answers: *mut u8,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, keys) = (handle(filter)?, pointers::keys(keys, count)?);
            check_answers(answers, count)?;
            with_settings(call, |call| {
                let found = filter.contains_all(keys, call);
                let known = found.as_deref().unwrap_or_default();
                put_all(answers, count, known.iter().map(|&there| c_int::from(there)));
                found.map(|_| 0)
            })
        })
    }
}

/// Queries and inserts keys in order, each in one step as ebbtide_check_and_insert; they become
/// durable together. Stores EBBTIDE_NEW, EBBTIDE_PRESENT or EBBTIDE_TOO_LATE for each in an array
/// of count answers. If count is 0, keys and answers may be NULL.
///
/// Returns 0, or -1 on an error. The keys before the failing one have answers and are inserted
/// then; those of the others are EBBTIDE_NO_ANSWER, unless the arguments were wrong
/// (EBBTIDE_ARGUMENT): then nothing is inserted or written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_check_and_insert_all(
    filter: *mut Handle,
    keys: *const Key,
    count: usize,
    answers: *mut u8,
    call: *const Settings,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            let (filter, keys) = (handle(filter)?, pointers::keys(keys, count)?);
            check_answers(answers, count)?;
            with_settings(call, |call| {
                let mut known = Vec::new();
                let done = filter.check_and_insert_all(keys, &mut known, call);
                put_all(answers, count, known.into_iter().map(answer));
                done.map(|()| 0)
            })
        })
    }
}

/// Waits until all operations so far are durable. Returns 0, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_sync(filter: *mut Handle, error: *mut *mut Failure) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe { run(error, -1, || handle(filter)?.sync().map(|()| 0)) }
}

/// Writes a snapshot, unless the newest one is up to date, and removes log that is no longer
/// needed. Stores the number of the log record at which the newest snapshot starts in *lsn, unless
/// that is NULL; 0 for a filter that has never changed. Returns 0, or -1 on an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_checkpoint(
    filter: *mut Handle,
    lsn: *mut u64,
    error: *mut *mut Failure,
) -> c_int {
    // SAFETY: the header demands valid pointers.
    unsafe {
        run(error, -1, || {
            put(lsn, handle(filter)?.checkpoint()?);
            Ok(0)
        })
    }
}

/// Returns a hash of the logical state as 32 hexadecimal digits, as `ebbtide digest` prints it:
/// equal for filters with equal parameters after equal operations at equal times. Writers wait
/// meanwhile. Returns NULL on an error. Release the text with ebbtide_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_digest(
    filter: *mut Handle,
    error: *mut *mut Failure,
) -> *mut c_char {
    // SAFETY: the header demands valid pointers.
    unsafe { run(error, ptr::null_mut(), || handle(filter)?.digest().and_then(hand_out)) }
}

/// Returns statistics of the filter as one object of JSON, with the members of
/// `ebbtide stat --json`. Returns NULL on an error. Release the text with ebbtide_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_stat(
    filter: *mut Handle,
    error: *mut *mut Failure,
) -> *mut c_char {
    // SAFETY: the header demands valid pointers.
    unsafe { run(error, ptr::null_mut(), || handle(filter)?.stat().and_then(hand_out)) }
}

/// Returns the code of an error, such as EBBTIDE_LOCKED; 0 for NULL. A later version may return
/// codes that this header does not have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_error_code(error: *const Failure) -> c_int {
    // SAFETY: the header demands a valid pointer.
    unsafe { error.as_ref() }.map_or(0, Failure::code)
}

/// Returns the message of an error, in UTF-8: a sentence with the file, what was expected, what was
/// found, and the remedy. The text belongs to the error; for NULL it is "no error".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_error_message(error: *const Failure) -> *const c_char {
    // SAFETY: the header demands a valid pointer.
    unsafe { error.as_ref() }.map_or(c"no error", Failure::message).as_ptr()
}

/// Returns the file or directory that an error is about, as the bytes of its name, or NULL if there
/// is none. The text belongs to the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_error_path(error: *const Failure) -> *const c_char {
    // SAFETY: the header demands a valid pointer.
    unsafe { error.as_ref() }.and_then(Failure::path).map_or(ptr::null(), CStr::as_ptr)
}

/// Releases an error. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_error_free(error: *mut Failure) {
    if !error.is_null() {
        // SAFETY: the header demands a pointer that this library has stored, once.
        mem::drop(unsafe { Box::from_raw(error) });
    }
}

/// Releases a text from ebbtide_digest, ebbtide_stat or ebbtide_plan, whatever the caller has made
/// of its bytes. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_string_free(text: *mut c_char) {
    // SAFETY: the header demands a pointer that this library has returned, once.
    unsafe { take_back(text) };
}

/// Returns the version of the library, such as "0.1.0". The text is never released.
#[unsafe(no_mangle)]
pub extern "C" fn ebbtide_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
