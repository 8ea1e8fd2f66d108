//! What the operating system does, and how it is asked.
//!
//! [`system`] has the calls that differ between systems, with two implementations of one interface:
//! Linux's own, and a portable one for macOS. The portable one also runs on Linux, where the suite
//! tests it (`RUSTFLAGS="--cfg ebbtide_portable"`). Everything else in the crate is the same on all
//! systems.

pub mod fork;
pub mod per_process;
#[cfg_attr(all(target_os = "linux", not(ebbtide_portable)), path = "system/linux.rs")]
#[cfg_attr(not(all(target_os = "linux", not(ebbtide_portable))), path = "system/portable.rs")]
pub mod system;
pub mod threads;

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// A wakeup, another value of the word from the start, or spuriously.
    Perhaps,
    /// No wakeup: the time was up, or a signal came. A signal counts as elapsed time, because
    /// frequent signals (from a profiler, say) could otherwise keep every wait from reaching its
    /// timeout.
    No,
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!(
    "ebbtide runs on Linux, and on macOS for development; the algorithms alone, without files \
     (the crate `ebbtide-core`), work on every system"
);
