//! The log in a filter's directory, also while the filter is being altered.

use ebbtide::history::{At, History};
use ebbtide::media::Media;
use ebbtide::{Error, Result};
use std::sync::Arc;

/// How often the log is opened again because the filter was altered meanwhile.
const TRIES: u32 = 10;

/// Opens the log behind the record of an LSN.
pub fn open_log(media: &Arc<dyn Media>, lsn: u64) -> Result<History> {
    let mut tries = TRIES;
    loop {
        match History::open_on(media.clone()).and_then(|log| log.after(At::Lsn(lsn))) {
            // There is another `meta` now.
            Err(Error::Retired { .. }) if tries > 0 => tries -= 1,
            opened => return opened,
        }
    }
}
