//! Stateless tickets that are resumed once, without early data.

use crate::Used;
use ebbtide::{Error, Filter, Fingerprint, Options, Result};
use rustls::server::ProducesTickets;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A ticketer for [`ServerConfig::ticketer`](rustls::ServerConfig) whose tickets are resumed once.
///
/// Of any number of servers that decrypt a ticket at once, in all processes that have the filter's
/// directory open, one resumes it. rustls accepts no early data with a ticketer; see
/// [`SingleUseSessions`](crate::SingleUseSessions).
#[derive(Debug)]
pub struct SingleUseTickets {
    beneath: Arc<dyn ProducesTickets>,
    used: Used,
}

impl SingleUseTickets {
    /// Opens the filter in a directory, or creates it, over a ticketer. `validity` is how long a
    /// ticket can be decrypted at most. The ticketer of rustls's `ring` and `aws_lc_rs` changes its
    /// key every six hours and keeps the one before: twelve hours. This may recover, and blocks.
    ///
    /// # Errors
    /// As [`Filter::open_or_create`]; in particular [`Error::Mismatch`] if the filter was created
    /// for another time.
    pub fn open(
        dir: impl AsRef<Path>,
        beneath: Arc<dyn ProducesTickets>,
        validity: Duration,
        options: Options,
    ) -> Result<Self> {
        Ok(Self { beneath, used: Used::open(dir.as_ref(), validity, options)? })
    }

    /// Calls this function with each error of the filter, for a log or a metric. A ticket whose use
    /// cannot be recorded is not resumed. The function runs inside the handshake.
    #[must_use]
    pub fn on_error(mut self, report: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.used.on_error = Some(Arc::new(report));
        self
    }

    /// Returns how many sound tickets this handle has refused: used ones, false positives, and
    /// those whose use could not be recorded.
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

impl ProducesTickets for SingleUseTickets {
    fn enabled(&self) -> bool {
        self.beneath.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.beneath.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.beneath.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        // Only a ticket that is sound takes a place in the filter. Its plain text is its key: who
        // could change the encrypted form, and leave it sound, would have another key.
        let plain = self.beneath.decrypt(cipher)?;
        self.used.is_first(&plain).then_some(plain)
    }
}
