//! Sessions and tickets with the time at which they were made in front, so that they end.

use std::time::{Duration, SystemTime};

/// The bytes in front: Unix milliseconds, little-endian.
const TIME: usize = 8;

/// What is stamped may seem to come from the future by this much: clocks of machines differ.
const SKEW: Duration = Duration::from_secs(60);

/// Returns bytes with the time of the wall clock in front.
pub(crate) fn stamped(bytes: &[u8]) -> Vec<u8> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    [&millis.to_le_bytes()[..], bytes].concat()
}

/// Returns the bytes behind the time, if their lifetime is not over.
pub(crate) fn valid(stamped: &[u8], lifetime: Duration) -> Option<&[u8]> {
    let (millis, bytes) = stamped.split_first_chunk::<TIME>()?;
    let since = Duration::from_millis(u64::from_le_bytes(*millis));
    let at = SystemTime::UNIX_EPOCH.checked_add(since)?;
    let is_valid = match SystemTime::now().duration_since(at) {
        Ok(age) => age <= lifetime,
        Err(early) => early.duration() <= SKEW,
    };
    is_valid.then_some(bytes)
}
