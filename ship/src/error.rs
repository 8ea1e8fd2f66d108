//! The errors of this crate: each names the object, what was expected, what was found, and what to
//! do.

use ebbtide::units::visible;
use std::{fmt, io};

const ELSEWHERE: &str = "stop the writers here; to continue on this machine later, fetch into a \
                         new directory";

/// The errors of a process, and of a system, with too many open files.
const TOO_MANY_FILES: [i32; 2] = [24, 23];

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of shipping or fetching.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The filter in the directory has an error of its own.
    Filter(ebbtide::Error),
    /// Another shipper has begun after this one, so that this one must stop: what it writes would
    /// not be fetched. Do not start it again before its directory was fetched anew.
    Fenced {
        /// The link that the other shipper put.
        object: String,
        /// The other shipper's timeline.
        timeline: u64,
        /// This shipper's timeline.
        own: u64,
        /// Whether the other one ships the same directory: then its writers may continue.
        is_here: bool,
    },
    /// The directory cannot be shown to continue what the store has.
    Refused {
        /// The store, as a URL.
        url: String,
        /// What it has.
        expected: String,
        /// What the directory has.
        found: String,
        /// What to do.
        remedy: &'static str,
        /// Whether the directory lacks what the store has: another shipper has taken over, or the
        /// directory is an older state. Do not start its shipper again before it was fetched anew.
        is_outdated: bool,
    },
    /// An object is missing, damaged, of another version, or belongs elsewhere.
    Object {
        /// The object.
        object: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The store did not do what it was asked.
    Store {
        /// The object.
        object: String,
        /// What was to be done with it.
        action: &'static str,
        /// What the store said.
        found: String,
        /// What to do.
        remedy: &'static str,
        /// Whether the same may succeed later without a change of settings.
        is_transient: bool,
    },
    /// The target of a fetch is not empty.
    Occupied {
        /// The directory.
        path: String,
        /// What is there.
        found: String,
    },
    /// A follower knows less than its reader allows.
    Behind {
        /// How far it may be behind.
        allowed: std::time::Duration,
        /// How far it is behind at least, as a text.
        found: String,
    },
    /// A setting that cannot be.
    Setting {
        /// Its name.
        name: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it was.
        found: String,
    },
}

/// Returns whether an error of the system may pass without a change of settings: a full disk, too
/// many open files, too little memory.
pub(crate) fn may_pass(error: &io::Error) -> bool {
    let kinds =
        [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::OutOfMemory];
    kinds.contains(&error.kind())
        || error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code))
}

impl Error {
    /// Returns whether the same may succeed later: a store that does not answer, a filter that
    /// another process opens, a disk that is full, too many open files.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store { is_transient, .. } => *is_transient,
            Self::Filter(ebbtide::Error::Locked { .. }) => true,
            Self::Filter(ebbtide::Error::Io { source, .. }) => may_pass(source),
            _ => false,
        }
    }

    /// Returns whether something is missing or damaged that another base may not need.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Object { .. } | Self::Filter(ebbtide::Error::Damaged { .. }))
    }

    /// Returns whether another shipper has taken over, also before this one began: then its
    /// directory lacks what the store has.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced { .. } | Self::Refused { is_outdated: true, .. })
    }

    /// Returns whether that was a shipper of another directory, so that this one may not be started
    /// again as it is.
    pub(crate) fn is_fenced_from_elsewhere(&self) -> bool {
        self.is_fenced() && !matches!(self, Self::Fenced { is_here: true, .. })
    }

    /// Creates the error for an object that is not what it should be.
    pub(crate) fn object(
        object: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        let (object, expected, found) = (object.into(), expected.into(), found.into());
        Self::Object { object, expected, found, remedy }
    }
}

impl fmt::Display for Error {
    /// Writes one sentence. Hidden characters, as in the name of a directory, are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sentence = String::new();
        self.write(&mut sentence)?;
        f.write_str(&visible(&sentence))
    }
}

impl Error {
    fn write(&self, f: &mut impl fmt::Write) -> fmt::Result {
        match self {
            Self::Filter(error) => write!(f, "{error}"),
            Self::Fenced { object, timeline, own, is_here } => {
                let (of, remedy) = match is_here {
                    false => ("", ELSEWHERE),
                    true => (" of this directory", "let only one of them run"),
                };
                write!(
                    f,
                    "fenced: {object} should be the next link of timeline {own}, but another \
                     shipper{of} has put it and begun timeline {timeline}: {remedy}"
                )
            }
            Self::Refused { url, expected, found, remedy, .. } => {
                write!(
                    f,
                    "{url} refuses this directory: expected {expected}, found {found}: {remedy}"
                )
            }
            Self::Object { object, expected, found, remedy } => {
                write!(f, "{object}: expected {expected}, found {found}: {remedy}")
            }
            Self::Store { object, action, found, remedy, .. } => {
                write!(f, "cannot {action} {object}: {found}: {remedy}")
            }
            Self::Occupied { path, found } => write!(
                f,
                "cannot fetch into {path}: expected an empty directory or none, found {found}: \
                 choose another directory, or move this one away"
            ),
            Self::Behind { allowed, found } => write!(
                f,
                "refused to answer: expected a copy that is at most {allowed:?} behind, found one \
                 that is {found} behind: ask the writer, allow more, or find out why nothing comes"
            ),
            Self::Setting { name, expected, found } => {
                write!(f, "the setting `{name}`: expected {expected}, found {found}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Filter(error) => error.source(),
            _ => None,
        }
    }
}

impl From<ebbtide::Error> for Error {
    fn from(error: ebbtide::Error) -> Self {
        Self::Filter(error)
    }
}
