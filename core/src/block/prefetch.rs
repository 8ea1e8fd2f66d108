//! Hints to the processor about words that will be needed.

use crate::atomic::AtomicU64;

/// Prefetches a word without waiting for it. Does nothing where `hints` has no instruction for
/// it.
#[inline]
pub fn prefetch(word: &AtomicU64) {
    hints::fetch(std::ptr::from_ref(word));
}

/// As [`prefetch`], for a word that will be written: its line is also taken from the core that
/// wrote it last.
#[inline]
pub fn prefetch_write(word: &AtomicU64) {
    hints::fetch_to_write(std::ptr::from_ref(word));
}

/// The prefetch instructions of x86-64.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
#[expect(unsafe_code, reason = "prefetches take raw pointers, and one has no intrinsic")]
mod hints {
    use crate::atomic::AtomicU64;
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    #[inline]
    pub fn fetch(word: *const AtomicU64) {
        // SAFETY: a prefetch reads and writes nothing, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(word.cast()) }
    }

    /// The compiler's intrinsic for it emits a prefetch for reading.
    #[inline]
    pub fn fetch_to_write(word: *const AtomicU64) {
        // SAFETY: a prefetch changes nothing, whatever the address; a processor that does not have
        // this one ignores it.
        unsafe {
            std::arch::asm!(
                "prefetchw [{0}]",
                in(reg) word,
                options(nostack, preserves_flags, readonly),
            );
        }
    }
}

/// The prefetch instructions of AArch64, which have no intrinsics in stable Rust.
#[cfg(all(target_arch = "aarch64", not(miri), not(loom)))]
#[expect(unsafe_code, reason = "stable Rust has no intrinsics for these prefetches")]
mod hints {
    use crate::atomic::AtomicU64;

    #[inline]
    pub fn fetch(word: *const AtomicU64) {
        // SAFETY: a prefetch reads and writes nothing, whatever the address.
        unsafe {
            std::arch::asm!(
                "prfm pldl1keep, [{0}]",
                in(reg) word,
                options(nostack, preserves_flags, readonly),
            );
        }
    }

    #[inline]
    pub fn fetch_to_write(word: *const AtomicU64) {
        // SAFETY: a prefetch reads and writes nothing, whatever the address.
        unsafe {
            std::arch::asm!(
                "prfm pstl1keep, [{0}]",
                in(reg) word,
                options(nostack, preserves_flags, readonly),
            );
        }
    }
}

/// Other processors load a word when it is used.
#[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod hints {
    use crate::atomic::AtomicU64;

    pub fn fetch(_: *const AtomicU64) {}

    pub fn fetch_to_write(_: *const AtomicU64) {}
}
