//! Sessions of a store that are taken once, for resumption with early data.

use crate::Used;
use crate::stamp::{stamped, valid};
use ebbtide::{Error, Filter, Fingerprint, Options, Result};
use rustls::server::StoresServerSessions;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A session store for [`ServerConfig::session_storage`](rustls::ServerConfig) that returns each
/// session once, whatever the store beneath does: a replica, a backup or a lost deletion may bring
/// a session back, and [`take`](StoresServerSessions::take) still refuses it.
///
/// Of any number of servers that take a session at once, in all processes that have the filter's
/// directory open, one receives it. Sessions that another wrapper has not stored cannot be read:
/// the store beneath must be used through `SingleUseSessions` only.
///
/// `get`, which rustls uses for TLS 1.2 (that has no early data), is no use.
#[derive(Debug)]
pub struct SingleUseSessions {
    beneath: Arc<dyn StoresServerSessions>,
    lifetime: Duration,
    used: Used,
}

impl SingleUseSessions {
    /// Opens the filter in a directory, or creates it, over a store. Sessions can be resumed for
    /// `lifetime`; rustls announces a day to its clients. This may recover, and blocks.
    ///
    /// # Errors
    /// As [`Filter::open_or_create`]; in particular [`Error::Mismatch`] if the filter was created
    /// for another lifetime. `ebbtide alter DIR --window ...` changes it, to the lifetime and
    /// [`MARGIN`](crate::MARGIN), if the filter has kept its log for as long
    /// ([`Options::keep_log`]). Otherwise used sessions could be resumed once more: change the key
    /// of the tickets or empty the store, and open another directory.
    pub fn open(
        dir: impl AsRef<Path>,
        beneath: Arc<dyn StoresServerSessions>,
        lifetime: Duration,
        options: Options,
    ) -> Result<Self> {
        Ok(Self { beneath, lifetime, used: Used::open(dir.as_ref(), lifetime, options)? })
    }

    /// Calls this function with each error of the filter, for a log or a metric. A session whose
    /// use cannot be recorded is not resumed. The function runs inside the handshake.
    #[must_use]
    pub fn on_error(mut self, report: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.used.on_error = Some(Arc::new(report));
        self
    }

    /// Returns how many sessions that the store returned were refused by this handle: taken before,
    /// too old, of an unknown form, false positives, or not recorded because of an error.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.used.refused.load(Ordering::Relaxed)
    }

    /// Returns the filter: for its figures, and to [close](Filter::close) it.
    #[must_use]
    pub fn filter(&self) -> &Filter<Fingerprint> {
        &self.used.filter
    }
}

impl StoresServerSessions for SingleUseSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.beneath.put(key, stamped(&value))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        valid(&self.beneath.get(key)?, self.lifetime).map(<[u8]>::to_vec)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        // The store first: an id that somebody made up takes no place in the filter.
        let stored = self.beneath.take(key)?;
        let Some(session) = valid(&stored, self.lifetime) else {
            self.used.refuse();
            return None;
        };
        self.used.is_first(key).then(|| session.to_vec())
    }

    fn can_cache(&self) -> bool {
        self.beneath.can_cache()
    }
}
