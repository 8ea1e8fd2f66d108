//! Panics that a schedule wants: after a sync of the log, in a function of a caller, or in the
//! middle of an algorithm.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// How many steps are examined for one of an algorithm: each takes a while.
const LOOKS: u64 = 40;

/// The payload with which threads panic because a schedule wants them to.
struct OnPurpose;

struct Panics {
    /// Whether the thread that syncs the log next panics.
    after_sync: Cell<bool>,
    /// Whether the thread is in a call that may panic at a step.
    exposed: Cell<bool>,
    /// The number of steps in such calls before one of them panics.
    before_call: Cell<Option<u64>>,
    /// The number of steps that are examined from then on.
    looks: Cell<u64>,
    /// The number of panics.
    count: Cell<u64>,
}

thread_local! {
    static PANICS: Panics = const { Panics {
        after_sync: Cell::new(false),
        exposed: Cell::new(false),
        before_call: Cell::new(None),
        looks: Cell::new(0),
        count: Cell::new(0),
    } };
}

/// Forgets what was decided and counted before a schedule.
pub(super) fn reset() {
    let_sync_panic(false);
    let_call_panic(None);
    PANICS.with(|panics| panics.count.set(0));
    set_exposed(false);
}

/// Returns how often a thread panicked on purpose.
pub(super) fn count() -> u64 {
    PANICS.with(|panics| panics.count.get())
}

/// Returns whether the thread is in a call that may panic.
#[inline]
pub(super) fn is_exposed() -> bool {
    PANICS.with(|panics| panics.exposed.get())
}

/// Says whether the thread that runs now is in such a call.
pub(super) fn set_exposed(exposed: bool) {
    PANICS.with(|panics| panics.exposed.set(exposed));
}

/// Returns whether a kind is at work: by the names of functions, or by files where the program has
/// them. (Kinds are also parameters of types of the engine's functions.)
fn is_in_kind() -> bool {
    Backtrace::force_capture().to_string().lines().any(|line| {
        let name = line.split_once(": ").map_or("", |(_, name)| name.trim_start_matches('<'));
        name.starts_with("ebbtide_core::kinds::") || line.contains("core/src/kinds/")
    })
}

/// Panics if that was decided for this step, and it is one of the algorithms: between the words of
/// its locks the engine has nothing that panics. `is_alive`: the thread's process.
pub(super) fn approach(is_alive: impl FnOnce() -> bool) {
    let is_due = PANICS.with(|panics| {
        let Some(left) = panics.before_call.get() else { return false };
        if left > 0 || std::thread::panicking() || !is_alive() {
            panics.before_call.set(Some(left.saturating_sub(1)));
            return false;
        }
        let looks = panics.looks.get();
        let is_in_kind = is_in_kind();
        if is_in_kind || looks == 0 {
            panics.before_call.set(None);
        }
        panics.looks.set(looks.saturating_sub(1));
        is_in_kind
    });
    if is_due {
        panic_on_purpose();
    }
}

/// Panics, in a function that belongs to a schedule.
pub fn panic_on_purpose() {
    PANICS.with(|panics| panics.count.set(panics.count.get() + 1));
    resume_unwind(Box::new(OnPurpose));
}

/// Decides whether the thread that syncs the log next panics afterwards.
pub fn let_sync_panic(after_sync: bool) {
    PANICS.with(|panics| panics.after_sync.set(after_sync));
}

/// Panics after a sync of the log, if that was decided. `is_alive`: the thread's process.
pub(super) fn end_log_sync(is_alive: bool) {
    let may = is_alive && !std::thread::panicking();
    if may && PANICS.with(|panics| panics.after_sync.replace(false)) {
        panic_on_purpose();
    }
}

/// Decides after how many steps in calls of [`expose`] one of them panics, if it is in an algorithm
/// then or soon; `None`: not at all.
pub fn let_call_panic(after: Option<u64>) {
    PANICS.with(|panics| {
        panics.before_call.set(after);
        panics.looks.set(LOOKS);
    });
}

/// Makes a call that may panic at any of its steps, if that was decided.
pub fn expose<T>(call: impl FnOnce() -> T) -> T {
    struct Within(bool);
    impl Drop for Within {
        fn drop(&mut self) {
            set_exposed(self.0);
        }
    }
    let _within = Within(is_exposed());
    set_exposed(true);
    call()
}

/// Runs code that may panic on purpose; returns none if it did.
pub fn survive<T>(act: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(done) => Some(done),
        Err(payload) if payload.is::<OnPurpose>() => None,
        Err(payload) => resume_unwind(payload),
    }
}
