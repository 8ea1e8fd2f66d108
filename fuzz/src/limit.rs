//! A bound on memory: whoever believes a length that he reads asks for more, and the process aborts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, and how much of it is held.
struct Counted;

/// Bytes held, and the most that may be.
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);

// Relaxed, all of them: numbers only, and there is one thread.
fn take(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    if held > MOST.load(Ordering::Relaxed) {
        // What follows needs memory itself.
        MOST.store(usize::MAX, Ordering::Relaxed);
        eprintln!("asked for {bytes} bytes more than allowed\n{}", Backtrace::force_capture());
        std::process::abort();
    }
}

// SAFETY: all is left to the system's allocator; counting does not touch what it gives.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        take(bytes);
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static HEAP: Counted = Counted;

/// Runs something that may hold so many bytes more at a time than are held now.
pub fn within<T>(bytes: usize, run: impl FnOnce() -> T) -> T {
    /// Lifts the limit, also when a panic is about to be told.
    struct Lift;
    impl Drop for Lift {
        fn drop(&mut self) {
            MOST.store(usize::MAX, Ordering::Relaxed);
        }
    }
    static TELLING: std::sync::Once = std::sync::Once::new();
    TELLING.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            drop(Lift);
            tell(panic);
        }));
    });
    MOST.store(HELD.load(Ordering::Relaxed).saturating_add(bytes), Ordering::Relaxed);
    let _lift = Lift;
    run()
}

/// What messages, names and the lists of a medium may take.
const BESIDE: usize = 16 << 10;

/// What a log of some segments may take, which the fuzzer describes in a few bytes.
pub const OF_LOG: usize = 256 << 10;

/// Runs what reads these bytes, of which the doors make copies with a page of header: as file, as words, sealed. Whoever reads has
/// room for twice the file beside them.
pub fn of_reading<T>(bytes: &[u8], run: impl FnOnce() -> T) -> T {
    const COPIES: usize = 4;
    const PAGE: usize = 4096;
    within((COPIES + 2) * (bytes.len() + PAGE) + BESIDE, run)
}
