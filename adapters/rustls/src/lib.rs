//! Sessions and tickets of rustls that are resumed once.
//!
#![doc = include_str!("../README.md")]

mod sessions;
mod stamp;
mod tickets;

pub use sessions::SingleUseSessions;
pub use tickets::SingleUseTickets;

use ebbtide::{Error, Filter, Fingerprint, Options, Result};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much longer than a session or ticket can be resumed its use is remembered. Lifetimes are
/// measured by the wall clock, the filter's window by a clock that nobody can set: a wall clock
/// that is set back by up to this time does not make a used session valid again.
pub const MARGIN: Duration = Duration::from_secs(3600);

/// The rate of false positives: one session in a million is not resumed although it is unused.
pub const FPR: f64 = 1e-6;

type OnError = Arc<dyn Fn(&Error) + Send + Sync>;

/// What was used, for at least the window.
struct Used {
    filter: Filter<Fingerprint>,
    refused: AtomicU64,
    on_error: Option<OnError>,
}

impl Used {
    fn open(dir: &Path, lifetime: Duration, options: Options) -> Result<Self> {
        let window = Fingerprint::window(lifetime.saturating_add(MARGIN)).fpr(FPR);
        let filter = Filter::open_or_create(dir, window, options)?;
        Ok(Self { filter, refused: AtomicU64::new(0), on_error: None })
    }

    /// Records a use. Returns whether it is known to be the first one.
    fn is_first(&self, key: &[u8]) -> bool {
        let checked = self.filter.check_and_insert(key);
        if let (Err(error), Some(report)) = (&checked, &self.on_error) {
            report(error);
        }
        let is_first = checked.is_ok_and(|checked| checked.is_new());
        if !is_first {
            self.refuse();
        }
        is_first
    }

    fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut used = f.debug_struct("Used");
        used.field("filter", &self.filter).field("refused", &self.refused).finish_non_exhaustive()
    }
}
