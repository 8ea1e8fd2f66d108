//! Stateless tickets that are resumed once, without early data.

use crate::Used;
use crate::stamp::{stamped, valid};
use ebbtide::{Error, Filter, Fingerprint, Options, Result};
use rustls::server::ProducesTickets;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A ticketer for [`ServerConfig::ticketer`](rustls::ServerConfig) whose tickets are resumed once.
///
/// Of any number of servers that decrypt a ticket at once, in all processes that have the filter's
/// directory open, one resumes it. A ticket carries the time at which it was made, and is refused
/// once its validity is over: the ticketer beneath may decrypt it for longer, because that of
/// rustls changes its key only when it is used. rustls accepts no early data with a ticketer; see
/// [`SingleUseSessions`](crate::SingleUseSessions).
#[derive(Debug)]
pub struct SingleUseTickets {
    beneath: Arc<dyn ProducesTickets>,
    validity: Duration,
    used: Used,
}

impl SingleUseTickets {
    /// Opens the filter in a directory, or creates it, over a ticketer. Tickets can be resumed for
    /// `validity`, and for no longer than the ticketer keeps its keys. That of rustls's `ring` and
    /// `aws_lc_rs` changes its key every six hours and keeps the one before: twelve hours. This may
    /// recover, and blocks.
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
        Ok(Self { beneath, validity, used: Used::open(dir.as_ref(), validity, options)? })
    }

    /// Calls this function with each error of the filter, for a log or a metric. A ticket whose use
    /// cannot be recorded is not resumed. The function runs inside the handshake.
    #[must_use]
    pub fn on_error(mut self, report: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.used.on_error = Some(Arc::new(report));
        self
    }

    /// Returns how many sound tickets this handle has refused: used ones, too old ones, false
    /// positives, and those whose use could not be recorded.
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
        let validity = u32::try_from(self.validity.as_secs()).unwrap_or(u32::MAX);
        self.beneath.lifetime().min(validity)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.beneath.encrypt(&stamped(plain))
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        // Only a ticket that is sound takes a place in the filter. Its plain text is its key: who
        // could change the encrypted form, and leave it sound, would have another key.
        let text = self.beneath.decrypt(cipher)?;
        let Some(plain) = valid(&text, self.validity) else {
            self.used.refuse();
            return None;
        };
        self.used.is_first(&text).then(|| plain.to_vec())
    }
}
