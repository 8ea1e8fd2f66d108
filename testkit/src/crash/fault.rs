//! Failures of single calls to the medium: the calls that each kind of failure can hit, and its
//! effect.

use std::io;

/// A call to the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `Media::make`.
    Make,
    /// `Media::list`.
    List,
    /// `Media::create` and `create_with_hole`.
    Create,
    /// `Media::open`.
    Open,
    /// `Media::rename`, `rename_new` and `link_new`.
    Rename,
    /// `Media::remove`.
    Remove,
    /// `Media::sync`.
    SyncDirectory,
    /// `Media::locks`.
    Locks,
    /// `Media::boot_id`.
    BootId,
    /// `MediaFile::bytes`, `allocated_bytes`, `identity`.
    Examine,
    /// `MediaFile::allocate`.
    Allocate,
    /// `MediaFile::free`.
    Free,
    /// `MediaFile::read_at`.
    Read,
    /// `MediaFile::write_at`.
    Write,
    /// `MediaFile::truncate`.
    Truncate,
    /// `MediaFile::sync`.
    Sync,
    /// `MediaFile::map`.
    Map,
    /// `ByteLocks::try_lock`, `unlock`, `is_held_by_others`.
    Lock,
}

impl Call {
    /// Returns whether the call changes the directory or a file, or makes a change durable.
    fn changes(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::Rename
                | Self::Remove
                | Self::SyncDirectory
                | Self::Allocate
                | Self::Free
                | Self::Write
                | Self::Truncate
                | Self::Sync
        )
    }
}

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Any call: an input or output error.
    InputOutput,
    /// Any call: interrupted by a signal.
    Interrupted,
    /// Calls that take space: there is none.
    NoSpace,
    /// Calls that take space: the quota is exhausted.
    QuotaExceeded,
    /// Calls that change the directory or a file: the file system is read-only, as it may become
    /// after an error.
    ReadOnly,
    /// Calls that change something: the change is made, and an input or output error is reported.
    DoneAndFailed,
    /// A write completes half and then finds no space.
    ShortWrite,
    /// Calls that open a file: too many are open.
    TooManyFiles,
    /// Calls that lock: no locks available.
    NoLocks,
    /// A sync of a file fails, and its pages count as clean afterwards: the next sync reports
    /// success.
    SyncFails,
    /// The same, and the system drops pages that were not written: they read as they were when the
    /// last sync succeeded.
    SyncDropsPages,
    /// A read returns one wrong bit.
    BitFlip,
    /// A read finds the end of the file.
    ReadEnds,
    /// A mapping fails.
    MapFails,
    /// A rename fails.
    RenameFails,
    /// A sync of the directory fails.
    DirectorySyncFails,
    /// An allocation fails for lack of memory.
    AllocationFails,
    /// A removal is not permitted.
    RemoveFails,
    /// Files, the directory or the boot id cannot be examined.
    LookFails,
}

/// All faults.
pub const FAULTS: [Fault; 19] = [
    Fault::InputOutput,
    Fault::Interrupted,
    Fault::NoSpace,
    Fault::QuotaExceeded,
    Fault::ReadOnly,
    Fault::DoneAndFailed,
    Fault::ShortWrite,
    Fault::TooManyFiles,
    Fault::NoLocks,
    Fault::SyncFails,
    Fault::SyncDropsPages,
    Fault::BitFlip,
    Fault::ReadEnds,
    Fault::MapFails,
    Fault::RenameFails,
    Fault::DirectorySyncFails,
    Fault::AllocationFails,
    Fault::RemoveFails,
    Fault::LookFails,
];

impl Fault {
    /// Returns whether the fault means that there is no space.
    pub fn is_full(self) -> bool {
        matches!(self, Self::NoSpace | Self::QuotaExceeded | Self::ShortWrite)
    }

    /// Returns whether the fault can hit a call.
    fn hits(self, call: Call) -> bool {
        match self {
            Self::InputOutput | Self::Interrupted => true,
            Self::NoSpace | Self::QuotaExceeded => {
                matches!(call, Call::Create | Call::Allocate | Call::Write)
            }
            Self::ReadOnly => call.changes() && call != Call::Sync || call == Call::Locks,
            Self::DoneAndFailed => call.changes(),
            Self::ShortWrite => call == Call::Write,
            Self::TooManyFiles => matches!(call, Call::Create | Call::Open | Call::Locks),
            Self::NoLocks => matches!(call, Call::Lock | Call::Locks),
            Self::SyncFails | Self::SyncDropsPages => call == Call::Sync,
            Self::BitFlip | Self::ReadEnds => call == Call::Read,
            Self::MapFails => call == Call::Map,
            Self::RenameFails => call == Call::Rename,
            Self::DirectorySyncFails => call == Call::SyncDirectory,
            Self::AllocationFails => matches!(call, Call::Create | Call::Allocate),
            Self::RemoveFails => call == Call::Remove,
            Self::LookFails => {
                matches!(call, Call::List | Call::Examine | Call::BootId | Call::Make)
            }
        }
    }

    /// Returns the system's error; `None` for a flipped bit, which the system does not detect.
    pub fn error(self) -> Option<io::Error> {
        // The numbers of Linux.
        let number = match self {
            Self::BitFlip => return None,
            Self::ReadEnds => return Some(io::ErrorKind::UnexpectedEof.into()),
            Self::InputOutput
            | Self::DoneAndFailed
            | Self::SyncFails
            | Self::SyncDropsPages
            | Self::DirectorySyncFails => 5,
            Self::Interrupted => 4,
            Self::NoSpace | Self::ShortWrite => 28,
            Self::QuotaExceeded => 122,
            Self::ReadOnly => 30,
            Self::TooManyFiles => 24,
            Self::NoLocks => 37,
            Self::MapFails | Self::AllocationFails => 12,
            Self::RenameFails | Self::RemoveFails | Self::LookFails => 13,
        };
        Some(io::Error::from_raw_os_error(number))
    }
}

/// A planned failure.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The fault.
    pub fault: Fault,
    /// The number of the call to hit, among those that it can hit, from 1.
    pub at: u64,
    /// Whether all later calls are hit, too.
    pub sticky: bool,
    /// The number of calls that are hit at most.
    pub most: u64,
    /// The number of calls so far that it could hit.
    seen: u64,
}

impl Plan {
    /// Plans to hit this call, or every call from this one on.
    pub fn new(fault: Fault, at: u64, sticky: bool) -> Self {
        Self { fault, at, sticky, most: if sticky { u64::MAX } else { 1 }, seen: 0 }
    }

    /// Plans to hit this many calls, from this one on.
    pub fn lasting(fault: Fault, at: u64, most: u64) -> Self {
        Self { most, ..Self::new(fault, at, true) }
    }

    /// Returns whether the fault hits this call.
    pub fn strikes(&mut self, call: Call) -> bool {
        if !self.fault.hits(call) {
            return false;
        }
        self.seen += 1;
        self.seen >= self.at && self.seen - self.at < self.most
    }

    /// Returns whether the fault has hit a call.
    pub fn has_struck(&self) -> bool {
        self.seen >= self.at
    }
}
