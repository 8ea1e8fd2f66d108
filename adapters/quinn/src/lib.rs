//! Address validation tokens of quinn that are used once.
//!
#![doc = include_str!("../README.md")]

use ebbtide::{Error, Filter, Fingerprint, Options, Result};
use quinn_proto::{TokenLog, TokenReuseError};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// How much longer than a token is valid its use is remembered. quinn measures the age of a token
/// by the wall clock, the filter by a clock that nobody can set: a wall clock that is set back by
/// up to this time does not make a used token valid again.
pub const MARGIN: Duration = Duration::from_secs(3600);

/// The rate of false positives of a log that [`SeenTokens::open`] creates: one token in a million
/// is refused although it was not used.
pub const FPR: f64 = 1e-6;

type OnError = Arc<dyn Fn(&Error) + Send + Sync>;

/// A [`TokenLog`] for [`ValidationTokenConfig::log`](quinn_proto::ValidationTokenConfig::log): a
/// filter that remembers every used token for at least as long as the token is valid.
///
/// Of any number of uses of a token, in all processes that have the directory open, one is
/// accepted. A use is remembered over restarts and crashes; after a power cut as the filter's
/// durability says (by default all but about the last second).
///
/// The calls access memory only, but for the first use after an opening, which begins a log, and
/// rare waits (`docs/async.md`). With [`Always`](ebbtide::Durability::Always) each use of a token
/// waits for a sync in the endpoint's task.
pub struct SeenTokens {
    filter: Filter<Fingerprint>,
    lifetime: Duration,
    refused: AtomicU64,
    on_error: Option<OnError>,
}

impl SeenTokens {
    /// Opens the log in a directory, or creates it. `lifetime` is what the server gives
    /// [`ValidationTokenConfig::lifetime`](quinn_proto::ValidationTokenConfig::lifetime); quinn's
    /// default is two weeks. This may recover, and blocks.
    ///
    /// # Errors
    /// As [`Filter::open_or_create`]; in particular [`Error::Mismatch`] if the log was created for
    /// another lifetime. `ebbtide alter DIR --window ...` changes it, to the lifetime and
    /// [`MARGIN`], if the log of the filter was kept for as long ([`Options::keep_log`]). Otherwise
    /// used tokens would be valid once more: change the key of the tokens, and open another
    /// directory.
    pub fn open(dir: impl AsRef<Path>, lifetime: Duration, options: Options) -> Result<Self> {
        let window = Fingerprint::window(lifetime.saturating_add(MARGIN)).fpr(FPR);
        let filter = Filter::open_or_create(dir, window, options)?;
        Ok(Self { filter, lifetime, refused: AtomicU64::new(0), on_error: None })
    }

    /// Calls this function with each error of the filter, for a log or a metric. A token whose use
    /// cannot be recorded is refused. The function runs in the task of the endpoint.
    #[must_use]
    pub fn on_error(mut self, report: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(report));
        self
    }

    /// Returns how many tokens this handle has refused: used ones, false positives, and those whose
    /// use could not be recorded.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the filter: for its figures, and to [close](Filter::close) it.
    #[must_use]
    pub fn filter(&self) -> &Filter<Fingerprint> {
        &self.filter
    }

    /// Returns whether this is the first use of a token that is known to be remembered as long as
    /// it is valid.
    fn is_first_use(&self, nonce: u128, lifetime: Duration) -> bool {
        // The server was configured with a longer lifetime than this log: it would forget tokens
        // that are still valid.
        if lifetime > self.lifetime {
            return false;
        }
        let checked = self.filter.check_and_insert(nonce.to_le_bytes());
        if let (Err(error), Some(report)) = (&checked, &self.on_error) {
            report(error);
        }
        checked.is_ok_and(|checked| checked.is_new())
    }
}

impl TokenLog for SeenTokens {
    fn check_and_insert(
        &self,
        nonce: u128,
        _issued: SystemTime,
        lifetime: Duration,
    ) -> std::result::Result<(), TokenReuseError> {
        if self.is_first_use(nonce, lifetime) {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(TokenReuseError)
    }
}

impl fmt::Debug for SeenTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut log = f.debug_struct("SeenTokens");
        log.field("filter", &self.filter).field("lifetime", &self.lifetime);
        log.field("refused", &self.refused()).finish_non_exhaustive()
    }
}
