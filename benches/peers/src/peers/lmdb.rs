//! LMDB through heed: a B+ tree with copy-on-write pages, one writer at a time. It has no expiry:
//! each key is stored with its time.

use super::peer::{Durability, Key, Peer, Result, Setup, seconds_now};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};

struct Lmdb {
    env: Env,
    seen: Database<'static, Bytes, Bytes>,
    group: usize,
}

/// How pages are written without fsync.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Directly to a writable map: the fastest way, but the kernel may write back pages in any
    /// order, so a power cut may destroy the database.
    Mapped,
    /// By calls at each commit, the page with the root last.
    Written,
}

/// `group`: operations per transaction.
#[expect(unsafe_code, reason = "heed leaves to its caller that nobody else changes the files")]
pub fn open(setup: &Setup<'_>, group: usize, pages: Pages) -> Result<Box<dyn Peer>> {
    let mut options = EnvOpenOptions::new();
    // Address space only; the file grows as it is written.
    options.map_size((1 << 30) + 1024 * setup.keys.next_multiple_of(4));
    if setup.durability == Durability::None {
        let mut flags = EnvFlags::NO_SYNC;
        flags.set(EnvFlags::WRITE_MAP, pages == Pages::Mapped);
        // SAFETY: the flags abandon consistency after a power cut, as all peers do that run without
        // fsync. The lock file stays in use, and no code here writes to memory that it does
        // not own.
        unsafe { options.flags(flags) };
    }
    // SAFETY: the directory is new and used by this process only, so no other code changes the
    // mapped file, and it is opened once.
    let env = unsafe { options.open(setup.dir)? };
    let made = env.create_databases_and_commit(env.write_txn()?, |opener, transaction| {
        opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
    })?;
    let seen = made.unwrap_commit();
    Ok(Box::new(Lmdb { env, seen, group }))
}

impl Peer for Lmdb {
    fn check_and_insert(&self, keys: &[Key]) -> Result<u64> {
        let now = seconds_now().to_le_bytes();
        let mut new = 0;
        for group in keys.chunks(self.group) {
            let mut transaction = self.env.write_txn()?;
            for key in group {
                let known = self.seen.get_or_put(&mut transaction, key, &now)?;
                new += u64::from(known.is_none());
            }
            // Has no effect, and syncs nothing, without changes.
            transaction.commit()?;
        }
        Ok(new)
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.env.force_sync()?;
        Ok(())
    }
}
