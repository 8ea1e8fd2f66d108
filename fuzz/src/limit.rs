//! A bound on memory: code that trusts a length from its input allocates too much, and the process
//! aborts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with a count of the allocated bytes.
struct Counted;

/// The allocated bytes, and their limit.
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);

// All are Relaxed: they are only numbers, and there is one thread.
fn take(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    if held > MOST.load(Ordering::Relaxed) {
        // The following lines allocate memory.
        MOST.store(usize::MAX, Ordering::Relaxed);
        eprintln!("asked for {bytes} bytes more than allowed\n{}", Backtrace::force_capture());
        std::process::abort();
    }
}

// SAFETY: delegates to the system's allocator; counting does not touch the allocations.
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

/// Runs code that may allocate this many bytes more than are allocated now.
pub fn within<T>(bytes: usize, run: impl FnOnce() -> T) -> T {
    /// Lifts the limit, also before a panic is printed.
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

/// The bytes for messages, names and the lists of a medium.
const BESIDE: usize = 16 << 10;

/// The bytes for a log of some segments, which the fuzzer can describe in a few bytes.
pub const OF_LOG: usize = 256 << 10;

/// Runs code that reads these bytes, which the entry points copy with a page of header: as file, as
/// words, sealed. The code may allocate twice the file in addition.
pub fn of_reading<T>(bytes: &[u8], run: impl FnOnce() -> T) -> T {
    const COPIES: usize = 4;
    const PAGE: usize = 4096;
    within((COPIES + 2) * (bytes.len() + PAGE) + BESIDE, run)
}
