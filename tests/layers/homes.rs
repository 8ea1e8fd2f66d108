//! The files where `unsafe` and orderings of atomic accesses are at home.

/// Where `unsafe` is at home: prefetching, what fork does, what each process has of its own,
/// mappings and byte locks, calls of the system, and what a stripe lock guards.
pub const UNSAFE_FILES: &[&str] = &[
    "core/block/prefetch.rs",
    "platform/fork.rs",
    "platform/per_process.rs",
    "media/disk/byte_locks.rs",
    "media/disk/mapping.rs",
    "media/mapped.rs",
    "media/directory_in_memory.rs",
    "media/mod.rs",
    "locks/handle_stripes.rs",
    "platform/system/linux.rs",
    "platform/system/portable.rs",
    "platform/threads.rs",
];

/// The same in the C interface: what C passes and calls.
pub const UNSAFE_FILES_OF_C: &[&str] = &[
    "interface.rs",
    "batch_interface.rs",
    "claim_interface.rs",
    "files_interface.rs",
    "history_interface.rs",
    "alter_interface.rs",
    "pointers.rs",
];

/// The same in the module for Redis: the server's interface, its allocator, and the entry.
pub const UNSAFE_FILES_OF_REDIS: &[&str] = &[
    "alloc.rs",
    "ffi/call.rs",
    "ffi/load.rs",
    "ffi/raw.rs",
    "ffi/settings.rs",
    "ffi/stored.rs",
    "ffi/transfer.rs",
    "lib.rs",
];

/// Where the orderings of atomic accesses are chosen: the shared words of the image, locks, slots
/// of the log, the undo area and the words of blocks, what a fork leaves, media of their own. A
/// name without `.rs` stands for a room, or a folder in one.
pub const ORDERINGS: &[&str] = &[
    "core/atomic",
    "core/block",
    "core/state.rs",
    "image",
    "locks",
    "media",
    "platform/fork.rs",
    "platform/system",
    "primitives",
    "wal/slot.rs",
];

/// Atomics of one process, which no other process sees.
pub const ORDERINGS_OF_A_PROCESS: &[(&str, &str)] = &[
    (
        "engine/lifecycle/closed_mark.rs",
        "whether the handle is closed, and its operations in progress",
    ),
    ("engine/background/wakeup.rs", "whether the task of the log waits for an insert"),
    ("platform/per_process.rs", "the value of this process"),
    ("telemetry.rs", "the process that reports"),
];
