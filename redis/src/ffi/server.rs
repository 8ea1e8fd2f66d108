//! What the server is.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the server is a Valkey, found when the module is loaded.
pub(super) static IS_VALKEY: AtomicBool = AtomicBool::new(false);

/// Returns whether the server is a Valkey.
pub(super) fn is_valkey() -> bool {
    IS_VALKEY.load(Ordering::Relaxed)
}
