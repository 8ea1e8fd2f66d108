//! Whether pages of the live image were lost, so that it cannot be trusted.
//!
//! The image is a file that the system writes back. If that fails, pages of it may show older
//! content at any time: a snapshot of them would be wrong, and answers, too. All that was
//! acknowledged is in the log. So the image is refused for writes and questions in all processes,
//! and the next handle that opens the filter alone rebuilds it.

use crate::engine::shared::Shared;
use crate::error::Result;
use crate::image::{Bank, write_back_check};
use std::sync::Arc;

/// After a copy of these banks, checks that no write-back of the image has failed since the handle
/// mapped it.
pub(crate) fn check_copied(shared: &Shared, banks: &[Arc<Bank>]) -> Result<()> {
    check_known(shared)?;
    write_back_check::check_mapped(&shared.image, banks).map_err(|error| shared.distrust(&error))
}

/// Checks the files of the image for a failed write-back that no process has received yet. Costs
/// some system calls, and writes nothing.
pub(crate) fn check_image(shared: &Shared) -> Result<()> {
    check_known(shared)?;
    write_back_check::check_files(&shared.image).map_err(|error| shared.distrust(&error))
}

/// Checks what is known. The mark in the image may itself be lost, so each handle keeps its own,
/// and renews the other.
fn check_known(shared: &Shared) -> Result<()> {
    let header = shared.header();
    if !header.is_distrusted() && shared.distrusted.get() == 0 {
        return Ok(());
    }
    shared.distrusted.set(1);
    header.status().distrust();
    Err(shared.poisoned())
}
