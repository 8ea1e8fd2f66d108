//! The allocator of the module: the server's, so that the server counts and limits its memory.
//!
//! Beside the server's own functions it has zeroed memory that is not touched, memory that grows in
//! place, and alignments above 16 bytes. An allocation that fails returns null; code that cannot do
//! without it aborts the server, as the server's own does.

#![expect(unsafe_code, reason = "an allocator is")]

use crate::ffi::raw;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The alignment of all memory of the server.
const ALIGNED: usize = 16;

/// Bytes that the module has allocated.
static USED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: ServerMemory = ServerMemory;

/// Returns the number of bytes that the module has allocated.
pub fn used_bytes() -> usize {
    USED.load(Ordering::Relaxed)
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

// SAFETY: memory of the server is aligned to 16 bytes. For more, a block is taken that contains an
// aligned one, and the address of the block is stored before that.
unsafe impl GlobalAlloc for ServerMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_in_server() {
            // SAFETY: the caller's.
            return unsafe { System.alloc(layout) };
        }
        if layout.align() <= ALIGNED {
            // SAFETY: checked above; a layout of an allocation is not empty.
            return counted(unsafe { take(layout.size()) }, layout.size());
        }
        let Some(size) = layout.size().checked_add(layout.align()) else {
            return std::ptr::null_mut();
        };
        // SAFETY: checked above. The block is longer than the layout by its alignment, which is
        // at least 32: from its address, a multiple of 16, to the next multiple of the alignment
        // there are at least 16 bytes (a whole alignment if it is one itself).
        unsafe {
            let block = take(size);
            if block.is_null() {
                return block;
            }
            let skipped = layout.align() - block.addr() % layout.align();
            let memory = block.add(skipped);
            memory.cast::<*mut u8>().sub(1).write(block);
            counted(memory, layout.size())
        }
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
            let is_block = layout.align() <= ALIGNED;
            give_back(if is_block { memory } else { memory.cast::<*mut u8>().sub(1).read() });
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
            Some(zeroed) if layout.align() <= ALIGNED => {
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
        match resize {
            Some(resize) if layout.align() <= ALIGNED => {
                USED.fetch_sub(layout.size(), Ordering::Relaxed);
                // SAFETY: memory of the server; it aborts if there is none.
                counted(unsafe { resize(memory.cast(), size).cast() }, size)
            }
            _ => {
                // SAFETY: the caller's; both blocks have room for the lesser size.
                unsafe {
                    let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
                        return std::ptr::null_mut();
                    };
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
