//! Poisoned filters: why writes are refused, and whether pages of the image were lost, so that
//! questions are refused, too.
//!
//! A filter is poisoned after a failed sync (`group_commit`), a failed repair (`stripes`), or a
//! panic under a stripe (`locks::handle_stripes`). The flags are in `image::words`.
//!
//! The image is a file that the system writes back. If that fails, pages of it may show older
//! content at any time: a snapshot of them would be wrong, and answers, too. All that was
//! acknowledged is in the log. So the image is refused for writes and questions in all processes,
//! and the next handle that opens the filter alone rebuilds it.

use crate::error::{Error, Result};
use crate::image::{Bank, Image, write_back_check};
use crate::primitives::{Hint, Mutex};
use crate::telemetry;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a handle knows of why its filter is poisoned.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The filter's path, for errors and reports.
    path: PathBuf,
    /// Why writes are refused, if this handle saw the cause.
    cause: Mutex<Option<String>>,
    /// 1 once this handle knows that pages of the image may be lost.
    distrusted: Hint,
}

impl Refusal {
    /// Creates it for a handle of the filter with this path.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), cause: Mutex::default(), distrusted: Hint::default() }
    }

    /// Refuses all further writes, of all handles. The first cause is kept.
    pub(crate) fn poison(&self, image: &Image, cause: String) {
        let is_first = {
            let mut known = self.cause.lock();
            let is_first = known.is_none();
            known.get_or_insert_with(|| cause.clone());
            is_first
        };
        image.header().status().poison();
        if is_first {
            telemetry::poisoned(&self.path, &cause);
        }
    }

    /// Refuses writes and questions of all handles, because the system could not write back the
    /// image.
    #[cold]
    fn distrust(&self, image: &Image, error: &io::Error) -> Error {
        self.distrusted.set(1);
        image.header().status().distrust();
        self.poison(image, format!("the system could not write back the live image ({error})"));
        self.error(image)
    }

    /// Creates the error for a poisoned filter.
    pub(crate) fn error(&self, image: &Image) -> Error {
        let cause = self.cause.lock().clone();
        let cause = cause.unwrap_or_else(|| {
            let of_others = if image.header().is_distrusted() {
                "the system could not write back the live image, as another process found"
            } else {
                "an operation panicked, or a sync failed in another process"
            };
            of_others.to_owned()
        });
        Error::Poisoned { path: self.path.clone(), cause }
    }

    /// After a copy of these banks, checks that no write-back of the image has failed since the
    /// handle mapped it.
    pub(crate) fn check_copied(&self, image: &Image, banks: &[Arc<Bank>]) -> Result<()> {
        self.check_known(image)?;
        write_back_check::check_mapped(image, banks).map_err(|error| self.distrust(image, &error))
    }

    /// Checks the files of the image for a failed write-back that no process has received yet.
    /// Costs some system calls, and writes nothing.
    pub(crate) fn check_image(&self, image: &Image) -> Result<()> {
        self.check_known(image)?;
        write_back_check::check_files(image).map_err(|error| self.distrust(image, &error))
    }

    /// Checks what is known. The mark in the image may itself be lost, so each handle keeps its
    /// own, and renews the other.
    fn check_known(&self, image: &Image) -> Result<()> {
        if !image.header().is_distrusted() && self.distrusted.get() == 0 {
            return Ok(());
        }
        self.distrusted.set(1);
        image.header().status().distrust();
        Err(self.error(image))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::media::Memory;
    use crate::{Bloom, Error, Filter, Options};
    use std::sync::Arc;

    #[test]
    fn the_first_cause_of_a_refusal_is_the_one_that_is_reported() {
        let options = Options::new().background(false);
        let filter = Filter::create_on(Arc::new(Memory::new()), Bloom::capacity(1000), options);
        let filter = filter.expect("a filter");
        let shared = &filter.engine().shared;
        for cause in ["the disk", "what came of it"] {
            shared.poison(cause.to_owned());
        }
        let error = shared.poisoned();
        assert!(matches!(&error, Error::Poisoned { cause, .. } if cause == "the disk"), "{error}");
    }
}
