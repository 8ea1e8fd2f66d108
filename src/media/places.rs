//! Where the banks of an image lie: in memory or a file without a name, which lives exactly as long
//! as a process has it open, or in files of the filter's directory.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Banks that never take more bytes lie beside the log unless the user says otherwise: an open
/// filter would need a third descriptor for them.
pub(crate) const BESIDE_LOG_MOST: u64 = 64 << 10;

/// What distinguishes a file without a name from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnnamedId {
    /// The device of the file.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// A random number that its first bytes contain.
    pub nonce: u128,
}

/// A process that may have a file without a name open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its number, in its own namespace.
    pub process: u32,
    /// The number of its descriptor.
    pub descriptor: u32,
    /// The name in the filter's directory at which it can be asked.
    pub name: String,
}

/// Where the banks of an image take space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum BankPlace {
    /// In memory that the filter's processes share, and that ends with the last of them.
    Memory,
    /// In the same way, in a directory of a file system in memory.
    MemoryDirectory,
    /// In a directory on a disk, without a name.
    DiskDirectory,
    /// In files of the filter's directory.
    BesideLog,
    /// In memory of this process only: of a reader, as long as no process has the filter open.
    Private,
}

impl fmt::Display for BankPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::MemoryDirectory => "a directory in memory",
            Self::DiskDirectory => "a directory on a disk",
            Self::BesideLog => "beside the log",
            Self::Private => "private memory",
        })
    }
}

/// Where the process that opens a filter alone puts the cells of the live image. Processes that
/// attach follow it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ImagePlace {
    /// In memory that the filter's processes share. No page of it is ever written to a disk (except
    /// to swap space), and nothing of it is left when the last of them ends, however it ends.
    Memory,
    /// In a file without a name in this directory: on a tmpfs mounted `huge=advise` it has huge
    /// pages. On a disk its pages are written to that disk.
    Directory(PathBuf),
    /// In files of the filter's directory. The system writes changed pages to the disk, and takes
    /// them out of memory if it is short.
    BesideLog,
}

impl fmt::Display for ImagePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::BesideLog => f.write_str("beside-log"),
        }
    }
}

impl FromStr for ImagePlace {
    type Err = crate::error::Error;

    /// Reads `memory`, `beside-log`, or an absolute path.
    ///
    /// ```
    /// use ebbtide::ImagePlace;
    /// assert_eq!("memory".parse::<ImagePlace>()?, ImagePlace::Memory);
    /// assert_eq!("/mnt/huge".parse::<ImagePlace>()?.to_string(), "/mnt/huge");
    /// assert!("somewhere".parse::<ImagePlace>().is_err());
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "memory" => Ok(Self::Memory),
            "beside-log" => Ok(Self::BesideLog),
            path if path.starts_with('/') => Ok(Self::Directory(path.into())),
            _ => {
                let expected = "memory, beside-log, or an absolute path of a directory";
                Err(crate::error::Error::parameter("image", expected, text))
            }
        }
    }
}
