//! The allocator of the module: the server's, so that the server counts and limits its memory.
//!
//! Beside the server's own functions it has zeroed memory that is not touched, memory that grows in
//! place, and alignments above that of the server's memory: mostly 16 bytes, but 8 where the server
//! stores the size of a block before it (`MALLOC=libc` with musl). An allocation that fails returns
//! null; code that cannot do without it aborts the server, as the server's own does.

#![expect(unsafe_code, reason = "an allocator is")]

use crate::ffi::raw;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The alignment of all memory of any server.
const LEAST: usize = align_of::<*mut u8>();
/// That of most servers, for blocks of that size or more.
const USUAL: usize = 16;
/// The sizes by which it is measured: multiples of it. The jemalloc that Redis brings has classes
/// of other sizes, too, such as 24 and 40 bytes, whose blocks have the least alignment.
const MEASURED: [usize; 6] = [USUAL, 48, 112, 240, 1008, 5008];

/// The alignment of this server's memory. Written once, before anything has such a one.
static ALIGNED: AtomicUsize = AtomicUsize::new(USUAL);

/// Bytes that the module has allocated.
static USED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: ServerMemory = ServerMemory;

/// Returns the number of bytes that the module has allocated.
pub fn used_bytes() -> usize {
    USED.load(Ordering::Relaxed)
}

/// Measures the alignment of the server's memory. Called when the module begins to load: what was
/// allocated before could not be released.
pub fn measure() {
    if !is_in_server() {
        return;
    }
    let blocks = MEASURED.map(|size| {
        // SAFETY: checked above; no size is 0.
        unsafe { take(size) }
    });
    ALIGNED.store(alignment_of(&blocks), Ordering::Relaxed);
    for block in blocks {
        // SAFETY: nothing uses it, and the server takes null.
        unsafe { give_back(block) };
    }
}

/// Returns the alignment of memory with these blocks.
fn alignment_of(blocks: &[*mut u8]) -> usize {
    let is_usual = |block: &*mut u8| block.addr().is_multiple_of(USUAL);
    if blocks.iter().all(is_usual) { USUAL } else { LEAST }
}

/// Returns whether memory of this layout is a whole block of the server, and not a part of one.
pub fn is_block(layout: Layout) -> bool {
    is_block_where(ALIGNED.load(Ordering::Relaxed), layout)
}

/// As [`is_block`], of a server whose blocks are aligned so, if their sizes are multiples of that.
fn is_block_where(aligned: usize, layout: Layout) -> bool {
    let (align, size) = (layout.align(), layout.size());
    align <= LEAST || (align <= aligned && size > 0 && size.is_multiple_of(align))
}

/// The server's memory. Outside of a server, as in unit tests, it is the system's.
struct ServerMemory;

/// Returns whether a server has loaded the module. Nothing is allocated before.
fn is_in_server() -> bool {
    // SAFETY: written once, before the module allocates anything; read only afterwards.
    unsafe { raw::RedisModule_Alloc }.is_some()
}

/// Allocates from the server; null if there is no memory.
///
/// # Safety
/// [`is_in_server`], and a size that is not 0.
unsafe fn take(size: usize) -> *mut u8 {
    // SAFETY: the functions are set as in `is_in_server`, and take any size.
    unsafe {
        match (raw::RedisModule_TryAlloc, raw::RedisModule_Alloc) {
            (Some(allocate), _) | (None, Some(allocate)) => allocate(size).cast(),
            (None, None) => std::ptr::null_mut(),
        }
    }
}

/// Releases memory of [`take`].
///
/// # Safety
/// It is not used any more.
unsafe fn give_back(memory: *mut u8) {
    // SAFETY: the caller's.
    unsafe {
        if let Some(free) = raw::RedisModule_Free {
            free(memory.cast());
        }
    }
}

/// Counts an allocation that succeeded.
fn counted(memory: *mut u8, size: usize) -> *mut u8 {
    if !memory.is_null() {
        USED.fetch_add(size, Ordering::Relaxed);
    }
    memory
}

/// Takes a block that contains an aligned one; null if there is no memory.
///
/// # Safety
/// `take` returns writable memory of the size that it gets, at a multiple of [`LEAST`], or null.
/// The alignment is greater than [`LEAST`].
unsafe fn take_within(layout: Layout, take: impl FnOnce(usize) -> *mut u8) -> *mut u8 {
    let Some(size) = layout.size().checked_add(layout.align()) else {
        return std::ptr::null_mut();
    };
    let block = take(size);
    if block.is_null() {
        return block;
    }
    // SAFETY: the block is longer than the layout by its alignment. From its address, a multiple of
    // that of a pointer, to the next multiple of the alignment there is room for a pointer (a whole
    // alignment if it is one itself).
    unsafe {
        let memory = block.add(layout.align() - block.addr() % layout.align());
        memory.cast::<*mut u8>().sub(1).write(block);
        memory
    }
}

/// Returns the block of memory of [`take_within`].
///
/// # Safety
/// It is such memory.
unsafe fn block_of(memory: *mut u8) -> *mut u8 {
    // SAFETY: written there.
    unsafe { memory.cast::<*mut u8>().sub(1).read() }
}

// SAFETY: the server's memory is aligned as `is_block` says. For more, a block is taken that
// contains an aligned one, and the address of the block is stored before that.
unsafe impl GlobalAlloc for ServerMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_in_server() {
            // SAFETY: the caller's.
            return unsafe { System.alloc(layout) };
        }
        // SAFETY: checked above; a layout of an allocation is not empty. The alignment of one that
        // is no block is greater than that of a pointer.
        let memory = unsafe {
            match is_block(layout) {
                true => take(layout.size()),
                false => take_within(layout, |size| take(size)),
            }
        };
        counted(memory, layout.size())
    }

    // SAFETY: what the trait asks of callers.
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !is_in_server() {
            // SAFETY: the caller's.
            return unsafe { System.dealloc(memory, layout) };
        }
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as `alloc` has left it.
        unsafe {
            give_back(if is_block(layout) { memory } else { block_of(memory) });
        }
    }

    // SAFETY: what the trait asks of callers.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !is_in_server() {
            // SAFETY: the caller's.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: read as in `is_in_server`.
        let zeroed = unsafe { raw::RedisModule_Calloc };
        match zeroed {
            Some(zeroed) if is_block(layout) => {
                // SAFETY: the server's function takes any size.
                counted(unsafe { zeroed(1, layout.size()).cast() }, layout.size())
            }
            _ => {
                // SAFETY: the caller's, and the bytes were just allocated.
                unsafe {
                    let memory = self.alloc(layout);
                    if !memory.is_null() {
                        memory.write_bytes(0, layout.size());
                    }
                    memory
                }
            }
        }
    }

    // SAFETY: what the trait asks of callers.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_in_server() {
            // SAFETY: the caller's.
            return unsafe { System.realloc(memory, layout, size) };
        }
        // SAFETY: read as in `is_in_server`.
        let resize = unsafe { raw::RedisModule_Realloc };
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return std::ptr::null_mut();
        };
        match resize {
            Some(resize) if is_block(layout) && is_block(wanted) => {
                USED.fetch_sub(layout.size(), Ordering::Relaxed);
                // SAFETY: memory of the server; it aborts if there is none.
                counted(unsafe { resize(memory.cast(), size).cast() }, size)
            }
            _ => {
                // SAFETY: the caller's; both blocks have room for the lesser size.
                unsafe {
                    let moved = self.alloc(wanted);
                    if !moved.is_null() {
                        moved.copy_from_nonoverlapping(memory, size.min(layout.size()));
                        self.dealloc(memory, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory as of a server that stores the size of a block before it, or does not.
    fn shifted(size: usize, by: usize) -> *mut u8 {
        let layout = Layout::from_size_align(size + 8, 16).expect("a layout");
        // SAFETY: it is not empty, and longer than what is skipped.
        unsafe { System.alloc(layout).add(by) }
    }

    fn release(block: *mut u8, size: usize, by: usize) {
        let layout = Layout::from_size_align(size + 8, 16).expect("a layout");
        // SAFETY: as `shifted` has allocated it.
        unsafe { System.dealloc(block.sub(by), layout) };
    }

    #[test]
    fn a_server_with_one_block_at_half_the_usual_alignment_has_the_least() {
        for (at, aligned) in [(None, 16), (Some(0), 8), (Some(5), 8)] {
            let by = |number: usize| if Some(number) == at { 8 } else { 0 };
            let numbered = MEASURED.into_iter().enumerate();
            let blocks: Vec<_> = numbered.clone().map(|(n, size)| shifted(size, by(n))).collect();
            assert_eq!(alignment_of(&blocks), aligned, "{at:?}");
            numbered.zip(&blocks).for_each(|((n, size), block)| release(*block, size, by(n)));
        }
    }

    #[test]
    fn what_lies_in_a_block_is_aligned_and_within_it_wherever_the_server_places_that() {
        for by in [0, 8] {
            for align in [16, 32, 64, 4096] {
                for size in [1, 8, 16, 100, 10_000] {
                    let layout = Layout::from_size_align(size, align).expect("a layout");
                    let mut taken = (std::ptr::null_mut(), 0);
                    let take = |size| {
                        taken = (shifted(size, by), size);
                        taken.0
                    };
                    // SAFETY: memory of this size, at a multiple of 8.
                    let memory = unsafe { take_within(layout, take) };
                    let (block, length) = taken;
                    assert!(memory.addr().is_multiple_of(align), "{layout:?} at {by}");
                    assert!(memory.addr() >= block.addr() + size_of::<*mut u8>(), "{layout:?}");
                    assert!(memory.addr() + size <= block.addr() + length, "{layout:?}");
                    // SAFETY: memory of `take_within`, which it does not change.
                    unsafe {
                        memory.write_bytes(0xff, size);
                        assert_eq!(block_of(memory), block);
                    }
                    release(block, length, by);
                }
            }
        }
    }

    #[test]
    fn the_alignment_is_measured_by_sizes_that_are_multiples_of_it() {
        // A size of 24 is of a class whose blocks have either alignment, by chance.
        assert!(MEASURED.iter().all(|size| size.is_multiple_of(USUAL)), "{MEASURED:?}");
    }

    #[test]
    fn a_block_whose_size_is_no_multiple_of_an_alignment_does_not_have_it() {
        let is_block = |aligned, size, align| {
            is_block_where(aligned, Layout::from_size_align(size, align).expect("a layout"))
        };
        for size in [1, 8, 24, 100] {
            assert!(is_block(16, size, 8) && is_block(8, size, 8), "{size}");
            assert!(!is_block(16, size, 16), "{size}");
        }
        for size in [16, 48, 112, 5008] {
            assert!(is_block(16, size, 16) && !is_block(8, size, 16), "{size}");
        }
        assert!(!is_block(16, 96, 32));
    }
}
