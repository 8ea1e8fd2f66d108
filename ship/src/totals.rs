//! What a shipper has put: counted when it is known to be there.

/// What a round of a shipper has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shipped {
    /// Links put.
    pub links: u64,
    /// Bytes of records in them.
    pub log_bytes: u64,
    /// Bytes of snapshots uploaded.
    pub snapshot_bytes: u64,
}

impl Shipped {
    /// Returns what was done since then.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            links: self.links - before.links,
            log_bytes: self.log_bytes - before.log_bytes,
            snapshot_bytes: self.snapshot_bytes - before.snapshot_bytes,
        }
    }
}
