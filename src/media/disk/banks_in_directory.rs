//! Where the system has no file without a name that several processes can share: the banks of an
//! image lie in files of the filter's directory.

use crate::media::disk::directory::Directory;
use crate::media::{Access, BankStore, Holder, ImagePlace, UnnamedId};
use std::io;
use std::sync::Arc;

/// Returns `None`: the banks shall lie in files of the directory.
///
/// # Errors
/// `Unsupported` if the user names another directory.
pub(super) fn create(
    _directory: &Arc<Directory>,
    place: Option<&ImagePlace>,
    _bytes: u64,
) -> io::Result<Option<Arc<dyn BankStore>>> {
    let Some(ImagePlace::Directory(path)) = place else { return Ok(None) };
    let sentence = format!(
        "the image cannot lie in {} on this system, where it always lies beside the log; leave the \
         option out",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, sentence))
}

/// Fails: no process has such a file.
///
/// # Errors
/// `NotFound`.
pub(super) fn find(
    _directory: &Arc<Directory>,
    _wanted: &UnnamedId,
    _who: (&str, &[Holder]),
    _access: Access,
) -> io::Result<Arc<dyn BankStore>> {
    Err(io::ErrorKind::NotFound.into())
}

/// Succeeds: the system takes pages of files out of memory if it is short. Returns whether they are
/// files of the directory: true.
///
/// # Errors
/// As [`create`].
pub(super) fn check_memory(
    directory: &Arc<Directory>,
    place: Option<&ImagePlace>,
    bytes: u64,
) -> io::Result<bool> {
    create(directory, place, bytes).map(|_| true)
}
