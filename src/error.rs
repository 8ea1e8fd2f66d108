//! The one error type. Each message names the file, the offset in it, what was expected and what
//! was found, and the remedy.

mod code;

pub use code::Code;

use ebbtide_core::error::Error as Core;
use ebbtide_core::units::{date_text, is_hidden};
use std::fmt::{self, Write};
use std::io;
use std::path::{Path, PathBuf};

/// The result of every fallible operation of the crate.
pub type Result<T> = std::result::Result<T, Error>;

/// All errors, each with what a user can do about it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation. [`Error::is_full`] identifies a full disk:
    /// nothing is lost then, queries still work, and the same handle writes again once there is
    /// space.
    Io {
        /// The action that failed, as in "cannot *map* …".
        action: &'static str,
        /// The file or directory of the action.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file of a filter has invalid content.
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// The offset in it, in bytes from its start.
        offset: u64,
        /// What was expected there.
        expected: String,
        /// What was found instead.
        found: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// A file was written by another version of the format.
    Version {
        /// The file.
        path: PathBuf,
        /// The version that this build writes; of durable files it also reads some older ones.
        expected: u32,
        /// The version that the file names.
        found: u32,
    },
    /// There is no filter in this place.
    NotAFilter {
        /// The directory (or the file in its place).
        path: PathBuf,
        /// What was found instead.
        found: String,
    },
    /// A filter exists where a new one should be created.
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// A file that does not belong to ebbtide has a name that the files of a new filter would have.
    Occupied {
        /// The file.
        path: PathBuf,
    },
    /// The filter is of another kind, or was created with other parameters, than the caller
    /// requested.
    Mismatch {
        /// The directory.
        path: PathBuf,
        /// What differs: `kind`, or a parameter's name.
        what: String,
        /// What the caller requested.
        expected: String,
        /// What the filter was created with.
        found: String,
    },
    /// A parameter is out of bounds or does not fit the others.
    Parameter {
        /// The parameter's name, as on the command line.
        name: &'static str,
        /// What it must be.
        expected: String,
        /// What was given.
        found: String,
    },
    /// Another handle, in this or another process, is in the way. It has been opening, recovering
    /// or closing the filter for a minute, or has it open where that is not allowed.
    Locked {
        /// The filter's directory.
        path: PathBuf,
        /// The processes that do, by id and name; empty if this process may not see them.
        holder: String,
    },
    /// The greatest possible number of handles of a filter is open.
    Crowded {
        /// The filter's directory.
        path: PathBuf,
        /// That number.
        most: u16,
    },
    /// The handle was opened by another process, of which this one is a child made by `fork`.
    Forked {
        /// The filter's directory.
        path: PathBuf,
    },
    /// The handle was closed, by this thread or another one.
    Closed {
        /// The filter's directory.
        path: PathBuf,
    },
    /// The shared-memory image of this handle was abandoned: another process assumed that this one
    /// is dead, or no writing handle is left.
    Retired {
        /// The filter's directory.
        path: PathBuf,
        /// The directory was removed, or another filter was put in its place.
        replaced: bool,
    },
    /// A sync failed earlier. Writes are refused because the disk may not hold what was
    /// acknowledged.
    Poisoned {
        /// The filter's directory.
        path: PathBuf,
        /// The cause, as a sentence.
        cause: String,
    },
    /// A key's time lies further ahead of the wall clock than the filter allows.
    TimeAhead {
        /// The time given, in microseconds since the Unix epoch.
        time: u64,
        /// The latest time that would have been accepted.
        limit: u64,
    },
    /// The filter's kind has no such operation.
    Unsupported {
        /// The kind.
        kind: &'static str,
        /// The operation.
        operation: &'static str,
    },
    /// The operation would have to wait, and was called
    /// [without waiting](crate::Call::without_waiting). It has not happened.
    WouldWait {
        /// The filter's directory.
        path: PathBuf,
        /// What it would have to wait for.
        cause: &'static str,
    },
    /// A key that a batch answered as new was inserted by another caller before the
    /// [commit](crate::Batch::commit), or by now is a false positive. Nothing of the batch has been
    /// written.
    Conflict {
        /// The filter's directory.
        path: PathBuf,
        /// The number of the operation that wrote the key, among those of the batch that change
        /// the filter, from 0.
        operation: usize,
    },
    /// The caller's [claim](crate::Lease) of a key is not held any more: its lease is over, or it
    /// was released. Somebody else may have the key by now. Nothing has happened.
    LeaseLost {
        /// The filter's directory.
        path: PathBuf,
        /// The token of the claim.
        token: u64,
    },
    /// The filter holds as many claims as it can. Nothing has happened.
    ClaimsFull {
        /// The filter's directory.
        path: PathBuf,
        /// That number.
        most: usize,
    },
    /// A moment of the past that the log does not reach: it is older than what is kept, or has not
    /// come yet.
    NotKept {
        /// The filter's directory.
        path: PathBuf,
        /// The moment, as asked for.
        wanted: String,
        /// The LSN from which on every moment is kept.
        from: u64,
        /// The first LSN that the log does not have.
        end: u64,
        /// Whether [`Options::keep_log`](crate::Options::keep_log) would have kept more: the moment
        /// is an older one, and no log is kept.
        lacks_keep_log: bool,
    },
    /// An error of the algorithms that has no variant of its own here.
    Core(Core),
}

impl Error {
    /// Writes the message of an error after which nothing has happened.
    fn fmt_undone(&self, f: &mut impl fmt::Write) -> fmt::Result {
        match self {
            Self::Conflict { path, operation: at } => {
                write!(f, "{}: the key of operation {at} {CONFLICT}", path.display())
            }
            Self::LeaseLost { path, token } => {
                write!(f, "{}: the claim with token {token} {LEASE_LOST}", path.display())
            }
            Self::ClaimsFull { path, most } => {
                write!(f, "{} holds {most} claims, {CLAIMS_FULL}", path.display())
            }
            Self::WouldWait { path, cause } => {
                write!(f, "{}: the call would wait for {cause}{WOULD_WAIT}", path.display())
            }
            Self::NotKept { path, wanted, from, end, lacks_keep_log } => write!(
                f,
                "{}: the log does not reach {wanted}: it has LSN {from} to {}{}",
                path.display(),
                end.saturating_sub(1),
                // A log that begins with the filter has all that there was.
                if *from > 0 && *lacks_keep_log { KEEP_MORE } else { "" }
            ),
            _ => Ok(()),
        }
    }

    /// Returns true if the cause is a full disk or an exhausted quota.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if matches!(source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    /// Returns true if there was not enough memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.io_kind() == io::ErrorKind::OutOfMemory
    }

    /// Returns the closest kind of `io::Error`.
    fn io_kind(&self) -> io::ErrorKind {
        match self {
            Self::Io { source, .. } => source.kind(),
            Self::NotAFilter { .. } | Self::NotKept { .. } => io::ErrorKind::NotFound,
            Self::Exists { .. } | Self::Occupied { .. } => io::ErrorKind::AlreadyExists,
            Self::Damaged { .. } => io::ErrorKind::InvalidData,
            Self::Parameter { .. } | Self::Mismatch { .. } | Self::TimeAhead { .. } => {
                io::ErrorKind::InvalidInput
            }
            Self::Locked { .. } | Self::Crowded { .. } | Self::ClaimsFull { .. } => {
                io::ErrorKind::ResourceBusy
            }
            Self::LeaseLost { .. } => io::ErrorKind::TimedOut,
            Self::Retired { .. } => io::ErrorKind::StaleNetworkFileHandle,
            Self::Conflict { .. } => io::ErrorKind::AlreadyExists,
            Self::WouldWait { .. } => io::ErrorKind::WouldBlock,
            Self::Version { .. } | Self::Unsupported { .. } => io::ErrorKind::Unsupported,
            Self::Closed { .. } | Self::Forked { .. } | Self::Poisoned { .. } | Self::Core(_) => {
                io::ErrorKind::Other
            }
        }
    }

    /// Returns the error's code: a number and a name that never change, for programs in other
    /// languages and for logs.
    ///
    /// ```
    /// use ebbtide::{Code, Error, Filter, Options};
    /// let opened = Filter::<ebbtide::Any>::open("/nothing here", Options::new());
    /// let error = opened.expect_err("no filter");
    /// assert_eq!(error.code(), Code::NotAFilter);
    /// assert_eq!((error.code().number(), error.code().name()), (5, "not-a-filter"));
    /// ```
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Io { .. } if self.is_full() => Code::FullDisk,
            Self::Io { .. } => Code::Io,
            Self::Damaged { .. } | Self::Core(Core::Damaged { .. }) => Code::Damaged,
            Self::Version { .. } | Self::Core(Core::Version { .. }) => Code::Version,
            Self::NotAFilter { .. } => Code::NotAFilter,
            Self::Exists { .. } => Code::Exists,
            Self::Occupied { .. } => Code::Occupied,
            Self::Mismatch { .. } => Code::Mismatch,
            Self::Parameter { .. } | Self::Core(Core::Parameter { .. }) => Code::Parameter,
            Self::Locked { .. } => Code::Locked,
            Self::Crowded { .. } => Code::Crowded,
            Self::Forked { .. } => Code::Forked,
            Self::Closed { .. } => Code::Closed,
            Self::Retired { .. } => Code::Retired,
            Self::Poisoned { .. } => Code::Poisoned,
            Self::TimeAhead { .. } | Self::Core(Core::TimeAhead { .. }) => Code::TimeAhead,
            Self::Unsupported { .. } | Self::Core(Core::Unsupported { .. }) => Code::Unsupported,
            Self::WouldWait { .. } => Code::WouldWait,
            Self::Conflict { .. } => Code::Conflict,
            Self::LeaseLost { .. } | Self::Core(Core::LeaseLost { .. }) => Code::LeaseLost,
            Self::ClaimsFull { .. } | Self::Core(Core::ClaimsFull { .. }) => Code::ClaimsFull,
            Self::NotKept { .. } => Code::NotKept,
            Self::Core(Core::Diverged { .. }) => Code::Diverged,
            // From a later version of `ebbtide-core`.
            Self::Core(_) => Code::Other,
        }
    }

    /// Returns true if a file exists already.
    pub(crate) fn is_exists(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }

    /// Returns true if a file does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns true if the error is about the file's content: invalid, too short, or a link or a
    /// directory in the place of a file. Other errors report what the system refused.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } | Self::Version { .. } => true,
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::InvalidInput
                    | io::ErrorKind::InvalidData
                    | io::ErrorKind::UnexpectedEof
            ),
            _ => false,
        }
    }

    /// Returns true if the error is about one file: its content ([`Error::is_damage`]), that this
    /// user may not read it, or that the disk cannot.
    pub(crate) fn is_unreadable(&self) -> bool {
        const DISK_ERROR: i32 = 5;
        let refused = |source: &io::Error| {
            source.kind() == io::ErrorKind::PermissionDenied
                || source.raw_os_error() == Some(DISK_ERROR)
        };
        self.is_damage() || matches!(self, Self::Io { source, .. } if refused(source))
    }

    /// Turns an I/O error into one that names the action and the file.
    pub(crate) fn io(
        action: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// Returns a parameter error; `expected` describes the valid values.
    pub(crate) fn parameter(
        name: &'static str,
        expected: impl Into<String>,
        found: impl fmt::Display,
    ) -> Self {
        Self::Parameter { name, expected: expected.into(), found: found.to_string() }
    }
}

/// Returns the processes that hold a filter, in a sentence.
fn named(holder: &str) -> &str {
    if holder.is_empty() { "another handle" } else { holder }
}

const LOCKED: &str = "which has it open or is busy opening or closing it; close that one, or try \
                      again when it is done; a stopped process must continue or be killed";
const EXISTS: &str = "already holds a filter; open it, or create the new one in another directory";
const TIME_AHEAD: &str = "is too far ahead of the clock: expected at most";
const RAISE_LEAD: &str = "; correct the timestamp or raise the filter's max lead";
const CROWDED: &str =
    "as many as it can have; close one first, or let the threads of a process share one";
const CLOSED: &str = "was closed by this handle; open it again to use it";
const FORKED: &str = "was opened before this process was forked off; open it again in each process";
const RETIRED: &str =
    "was closed or recovered by other processes meanwhile; drop this handle and open it again";
const OCCUPIED: &str = "is not a file of ebbtide, but has the name of one: nothing was \
                        changed; move it away, or create the filter in another directory";
const WOULD_WAIT: &str = ", and must not wait; nothing has happened: repeat it where it may wait";
/// Writes the message of a version that this build does not read.
fn fmt_version(f: &mut impl fmt::Write, path: &Path, expected: u32, found: u32) -> fmt::Result {
    let is_live_image = path.file_name().is_some_and(|name| name == "live");
    let remedy = if is_live_image { END_PROCESSES } else { OTHER_VERSION };
    write!(
        f,
        "{} has format version {found}, which this build, of version {expected}, does not read; \
         {remedy}",
        path.display()
    )
}

const OTHER_VERSION: &str = "use the ebbtide that wrote it, or recreate the filter";
/// Of the live image.
const END_PROCESSES: &str = "end the processes that have the filter open, which are of another \
                             version of ebbtide: nothing is lost";

const FULL: &str = "; nothing is lost: free some space and try again";
const CONFLICT: &str = "of the batch was inserted by another caller meanwhile; nothing of the \
                        batch was written: fill a new one with the same keys";
const LEASE_LOST: &str = "is not held any more: it was confirmed or released, or its lease is \
                          over; nothing was written, and somebody else may be working on the key";
const CLAIMS_FULL: &str = "as many as it can; confirm or release some, or wait until a lease is \
                           over (`ebbtide claims` lists them)";
const KEEP_MORE: &str = "; it keeps more of what comes if the filter is opened with `keep_log` \
                         (`--keep-log 24h`)";
const REPLACED: &str = "was removed or replaced while it was open: the last inserts of this \
                        handle may be lost with it; drop this handle and open the filter that is \
                        there now";

/// Writes text with its hidden characters escaped: in the name of a file they could change what a
/// terminal shows, or break the line of a log.
struct Visible<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Visible<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|letter| match is_hidden(letter) {
            true => write!(self.0, "{}", letter.escape_default()),
            false => self.0.write_char(letter),
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let f = &mut Visible(f);
        match self {
            Self::Io { action, path, source } => {
                let hint = if self.is_full() { FULL } else { "" };
                write!(f, "cannot {action} {}: {source}{hint}", path.display())
            }
            Self::Damaged { path, offset, expected, found, remedy } => write!(
                f,
                "{} is damaged at byte {offset}: expected {expected}, found {found}; {remedy}",
                path.display()
            ),
            Self::Version { path, expected, found } => fmt_version(f, path, *expected, *found),
            Self::NotAFilter { path, found } => write!(
                f,
                "{} is not an ebbtide filter: expected a directory with a file `meta`, found \
                 {found}; create a filter there first, or name another directory",
                path.display()
            ),
            Self::Exists { path } => write!(f, "{} {EXISTS}", path.display()),
            Self::Occupied { path } => write!(f, "{} {OCCUPIED}", path.display()),
            Self::Mismatch { path, what, expected, found } => write!(
                f,
                "{}: expected {what} {expected}, found {found}; open it as what it is, or use \
                 another directory",
                path.display()
            ),
            Self::Parameter { name, expected, found } => {
                write!(f, "parameter {name}: expected {expected}, found {found}")
            }
            Self::Poisoned { path, cause } => write!(
                f,
                "{} refuses writes: {cause}; close every handle and open it again to recover what \
                 the disk holds",
                path.display()
            ),
            Self::TimeAhead { time, limit } => {
                let (time, limit) = (date_text(*time), date_text(*limit));
                write!(f, "time {time} {TIME_AHEAD} {limit}{RAISE_LEAD}")
            }
            Self::Unsupported { kind, operation } => {
                write!(f, "{}", Core::Unsupported { kind, operation })
            }
            Self::WouldWait { .. }
            | Self::Conflict { .. }
            | Self::LeaseLost { .. }
            | Self::ClaimsFull { .. }
            | Self::NotKept { .. } => self.fmt_undone(f),
            Self::Core(error) => write!(f, "{error}"),
            Self::Locked { path, holder } => {
                write!(f, "{} is held by {}, {LOCKED}", path.display(), named(holder))
            }
            Self::Crowded { path, most } => {
                write!(f, "{} has {most} open handles, {CROWDED}", path.display())
            }
            Self::Closed { path } => write!(f, "{} {CLOSED}", path.display()),
            Self::Forked { path } => write!(f, "{} {FORKED}", path.display()),
            Self::Retired { path, replaced } => {
                let why = if *replaced { REPLACED } else { RETIRED };
                write!(f, "{} {why}", path.display())
            }
        }
    }
}

impl From<Core> for Error {
    fn from(error: Core) -> Self {
        match error {
            Core::Parameter { name, expected, found } => Self::Parameter { name, expected, found },
            Core::Unsupported { kind, operation } => Self::Unsupported { kind, operation },
            Core::TimeAhead { time, limit } => Self::TimeAhead { time, limit },
            // From a later version of `ebbtide-core`.
            error => Self::Core(error),
        }
    }
}

impl From<Error> for io::Error {
    /// Keeps the kind of a system's refusal; other errors get the closest kind. The whole error is
    /// kept too: [`io::Error::get_ref`] and [`io::Error::downcast`] return it, and the message is
    /// unchanged.
    ///
    /// ```
    /// use ebbtide::{Error, Filter, Options};
    /// use std::io;
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path();
    /// fn open(dir: &std::path::Path) -> io::Result<Filter> {
    ///     Ok(Filter::open(dir, Options::new())?)
    /// }
    /// let error = open(&dir.join("nothing here")).expect_err("no filter");
    /// assert_eq!(error.kind(), io::ErrorKind::NotFound);
    /// assert!(matches!(error.downcast::<Error>(), Ok(Error::NotAFilter { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn from(error: Error) -> Self {
        Self::new(error.io_kind(), error)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn as_an_io_error_it_keeps_its_kind_its_message_and_itself() {
        let path = || PathBuf::from("seen");
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let io_kinds = [
            (Error::io("open", "seen/live")(denied()), io::ErrorKind::PermissionDenied),
            (Error::Exists { path: path() }, io::ErrorKind::AlreadyExists),
            (Error::Locked { path: path(), holder: String::new() }, io::ErrorKind::ResourceBusy),
            (Error::TimeAhead { time: 2, limit: 1 }, io::ErrorKind::InvalidInput),
            (Error::Version { path: path(), expected: 4, found: 3 }, io::ErrorKind::Unsupported),
        ];
        for (error, kind) in io_kinds {
            let (message, has_source) = (error.to_string(), error.source().is_some());
            let converted = io::Error::from(error);
            assert_eq!((converted.kind(), converted.to_string()), (kind, message.clone()));
            let back = converted.downcast::<Error>().expect("the error itself");
            assert_eq!((back.to_string(), back.source().is_some()), (message, has_source));
        }
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(
            io::Error::from(Error::io("write", "x")(full)).kind(),
            io::ErrorKind::StorageFull
        );
    }

    #[test]
    fn an_error_of_the_algorithms_keeps_its_variant_and_its_message() {
        let parameter = Core::parameter("fpr", "less than 1", 2);
        let unsupported = Core::Unsupported { kind: "bloom", operation: "remove" };
        for error in [parameter, unsupported] {
            let (message, converted) = (error.to_string(), Error::from(error));
            assert!(!matches!(converted, Error::Core(_)), "{converted:?}");
            assert_eq!(converted.to_string(), message);
        }
    }

    #[test]
    fn errors_pass_between_threads() {
        fn passes<T: Send + Sync + 'static>() {}
        passes::<Error>();
    }

    #[test]
    fn only_errors_that_say_something_about_the_file_are_damage() {
        use io::ErrorKind::{
            InvalidData, InvalidInput, NotFound, Other, PermissionDenied, UnexpectedEof,
        };
        let error = |kind: io::ErrorKind| Error::io("read", "file")(kind.into());
        for kind in [InvalidInput, InvalidData, UnexpectedEof] {
            assert!(error(kind).is_damage(), "{kind}");
        }
        for kind in [PermissionDenied, NotFound, Other] {
            assert!(!error(kind).is_damage(), "{kind}");
        }
        // No descriptors left, and a disk with a read error.
        for code in [24, 5] {
            let error = Error::io("open", "file")(io::Error::from_raw_os_error(code));
            assert!(!error.is_damage(), "{error}");
        }
    }
}
