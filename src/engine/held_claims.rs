//! Whether a claim is held, for all that end or renew it.

use crate::engine::writer::Writer;
use crate::error::{Error, Result};
use ebbtide_core::claims::{HeldClaim, still_held};

/// A key that is claimed, by its hash, with the token of the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClaimedKey {
    pub(crate) hash: u64,
    pub(crate) token: u64,
}

/// Returns the claims of keys that are confirmed together, for the holder of stripe 0.
///
/// # Errors
/// [`Error::LeaseLost`] as [`held`], and if a claim is confirmed twice.
pub(crate) fn all_held(writer: &Writer, keys: &[ClaimedKey]) -> Result<Vec<HeldClaim>> {
    let mut tokens: Vec<u64> = keys.iter().map(|key| key.token).collect();
    tokens.sort_unstable();
    if let Some(twice) = tokens.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(lost(writer, twice[0]));
    }
    keys.iter().map(|&key| held(writer, key)).collect()
}

/// Returns the claim of a key, for the holder of stripe 0.
///
/// # Errors
/// [`Error::LeaseLost`] if it is not held any more, or somebody else's.
pub(crate) fn held(writer: &Writer, key: ClaimedKey) -> Result<HeldClaim> {
    let claims = writer.shared.header().claims();
    let now = (writer.leases.now(), claims.latest());
    still_held(claims.get(key.hash), key.token, now).ok_or_else(|| lost(writer, key.token))
}

fn lost(writer: &Writer, token: u64) -> Error {
    Error::LeaseLost { path: writer.shared.path().to_path_buf(), token }
}
