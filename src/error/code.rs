//! Codes of errors: numbers and names for programs in other languages.

use std::fmt;

/// The code of an [`Error`](crate::Error), from [`Error::code`](crate::Error::code).
///
/// Numbers and names are part of the interface. A later version may add codes; it never changes
/// one, and never reuses the number or the name of one that it no longer returns. 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum Code {
    /// The operating system refused an operation: [`Error::Io`](crate::Error::Io).
    Io = 1,
    /// The disk is full, or a quota exhausted: the other [`Error::Io`](crate::Error::Io).
    FullDisk = 2,
    /// [`Error::Damaged`](crate::Error::Damaged).
    Damaged = 3,
    /// [`Error::Version`](crate::Error::Version).
    Version = 4,
    /// [`Error::NotAFilter`](crate::Error::NotAFilter).
    NotAFilter = 5,
    /// [`Error::Exists`](crate::Error::Exists).
    Exists = 6,
    /// [`Error::Occupied`](crate::Error::Occupied).
    Occupied = 7,
    /// [`Error::Mismatch`](crate::Error::Mismatch).
    Mismatch = 8,
    /// [`Error::Parameter`](crate::Error::Parameter).
    Parameter = 9,
    /// [`Error::Locked`](crate::Error::Locked).
    Locked = 10,
    /// [`Error::Crowded`](crate::Error::Crowded).
    Crowded = 11,
    /// [`Error::Forked`](crate::Error::Forked).
    Forked = 12,
    /// [`Error::Closed`](crate::Error::Closed).
    Closed = 13,
    /// [`Error::Retired`](crate::Error::Retired).
    Retired = 14,
    /// [`Error::Poisoned`](crate::Error::Poisoned).
    Poisoned = 15,
    /// [`Error::TimeAhead`](crate::Error::TimeAhead).
    TimeAhead = 16,
    /// [`Error::Unsupported`](crate::Error::Unsupported).
    Unsupported = 17,
    /// [`Error::WouldWait`](crate::Error::WouldWait).
    WouldWait = 18,
    /// A record does not continue a filter in memory (`ebbtide_core::Error::Diverged`).
    Diverged = 19,
    /// An error of the algorithms that this version does not distinguish.
    Other = 20,
    /// [`Error::Conflict`](crate::Error::Conflict).
    Conflict = 21,
    /// [`Error::LeaseLost`](crate::Error::LeaseLost).
    LeaseLost = 22,
    /// [`Error::ClaimsFull`](crate::Error::ClaimsFull).
    ClaimsFull = 23,
    /// [`Error::NotKept`](crate::Error::NotKept).
    NotKept = 24,
}

impl Code {
    /// All codes, in the order of their numbers.
    pub const ALL: &[Self] = &[
        Self::Io,
        Self::FullDisk,
        Self::Damaged,
        Self::Version,
        Self::NotAFilter,
        Self::Exists,
        Self::Occupied,
        Self::Mismatch,
        Self::Parameter,
        Self::Locked,
        Self::Crowded,
        Self::Forked,
        Self::Closed,
        Self::Retired,
        Self::Poisoned,
        Self::TimeAhead,
        Self::Unsupported,
        Self::WouldWait,
        Self::Diverged,
        Self::Other,
        Self::Conflict,
        Self::LeaseLost,
        Self::ClaimsFull,
        Self::NotKept,
    ];

    /// Returns the number, at least 1.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Returns the name: lower-case words with hyphens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::FullDisk => "full-disk",
            Self::Damaged => "damaged",
            Self::Version => "version",
            Self::NotAFilter => "not-a-filter",
            Self::Exists => "exists",
            Self::Occupied => "occupied",
            Self::Mismatch => "mismatch",
            Self::Parameter => "parameter",
            Self::Locked => "locked",
            Self::Crowded => "crowded",
            Self::Forked => "forked",
            Self::Closed => "closed",
            Self::Retired => "retired",
            Self::Poisoned => "poisoned",
            Self::TimeAhead => "time-ahead",
            Self::Unsupported => "unsupported",
            Self::WouldWait => "would-wait",
            Self::Diverged => "diverged",
            Self::Other => "other",
            Self::Conflict => "conflict",
            Self::LeaseLost => "lease-lost",
            Self::ClaimsFull => "claims-full",
            Self::NotKept => "not-kept",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use std::io;
    use std::path::PathBuf;

    /// The table as other languages have it. Lines are only ever added.
    const TABLE: [(u32, &str); 24] = [
        (1, "io"),
        (2, "full-disk"),
        (3, "damaged"),
        (4, "version"),
        (5, "not-a-filter"),
        (6, "exists"),
        (7, "occupied"),
        (8, "mismatch"),
        (9, "parameter"),
        (10, "locked"),
        (11, "crowded"),
        (12, "forked"),
        (13, "closed"),
        (14, "retired"),
        (15, "poisoned"),
        (16, "time-ahead"),
        (17, "unsupported"),
        (18, "would-wait"),
        (19, "diverged"),
        (20, "other"),
        (21, "conflict"),
        (22, "lease-lost"),
        (23, "claims-full"),
        (24, "not-kept"),
    ];

    #[test]
    fn numbers_and_names_of_codes_never_change() {
        let found: Vec<_> = Code::ALL.iter().map(|code| (code.number(), code.name())).collect();
        assert_eq!(found, TABLE);
    }

    #[test]
    fn an_error_of_the_system_and_a_full_disk_have_codes_of_their_own() {
        let code = |kind: io::ErrorKind| Error::io("write", "file")(kind.into()).code();
        assert_eq!(code(io::ErrorKind::PermissionDenied), Code::Io);
        assert_eq!(code(io::ErrorKind::StorageFull), Code::FullDisk);
        assert_eq!(code(io::ErrorKind::QuotaExceeded), Code::FullDisk);
        let waits = Error::WouldWait { path: PathBuf::from("seen"), cause: "a sync" };
        assert_eq!(waits.code(), Code::WouldWait);
        let core = ebbtide_core::Error::Damaged {
            what: String::new(),
            expected: String::new(),
            found: String::new(),
        };
        assert_eq!(Error::from(core).code(), Code::Damaged);
    }
}
