//! A claim that a future owns: it outlives the borrow of the filter that made it.

use ebbtide::{Filter, Fingerprint, Lease, Result, Ticket};
use std::sync::Arc;

/// A claimed key. Dropping it releases the key, unless it was confirmed.
#[derive(Debug)]
pub(crate) struct Claimed {
    filter: Arc<Filter<Fingerprint>>,
    key: Vec<u8>,
    token: Option<u64>,
}

impl Claimed {
    pub(crate) fn new(filter: Arc<Filter<Fingerprint>>, key: Vec<u8>, token: u64) -> Self {
        Self { filter, key, token: Some(token) }
    }

    fn take(&mut self) -> Option<Lease<'_, Fingerprint>> {
        let token = self.token.take()?;
        Some(self.filter.resume_claim(&self.key, token))
    }

    /// Inserts the key and ends the claim. The ticket says when that is durable.
    pub(crate) fn issue_confirm(mut self) -> Result<Option<Ticket<()>>> {
        let filter = self.filter.clone();
        let Some(lease) = self.take() else { return Ok(None) };
        // If this fails, the lease is dropped, which releases the key if it is still held.
        let ticket = filter.issue(|call| call.confirm(&lease))?;
        Ok(Some(ticket))
    }

    /// Inserts the key and ends the claim, as durably as the filter requires.
    pub(crate) fn confirm(mut self) -> Result<()> {
        self.take().map_or(Ok(()), |lease| lease.confirm())
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // Dropping the lease releases the key.
        drop(self.take());
    }
}
