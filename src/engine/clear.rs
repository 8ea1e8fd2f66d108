//! Clearing a filter: removes all keys in one step, while others have it open.
//!
//! The protocol is in `docs/architecture.md`. All stripes are held, so no insert is in progress.
//! The record comes first; then the state block lists a new, empty bank in the place of the old
//! ones; then each stripe subtracts its counts. If the clearing process dies, processes that take
//! over its stripes complete the same steps, stripe 0 first.

use crate::engine::{Engine, Local};
use crate::error::Result;
use crate::locks::stripes::StripeGuard;
use crate::wal::{Op, Record};

impl Engine {
    /// Removes all keys, durably. Writers wait meanwhile.
    ///
    /// # Errors
    /// [`crate::Error::Io`] (a full disk: nothing has changed), [`crate::Error::Poisoned`].
    pub(crate) fn clear(&self) -> Result<()> {
        self.check_process()?;
        self.check_place()?;
        loop {
            let mut held = self.lock_all();
            self.check_writable()?;
            let end = self.log.mapped_end();
            if let Some(lsn) = self.clear_held(&mut held)? {
                drop(held);
                return self.commit(lsn.saturating_add(1));
            }
            drop(held);
            self.make_room(end)?;
        }
    }

    /// Returns `None` without room in the log; then nothing has happened. `held` are all stripes,
    /// stripe 0 the last.
    fn clear_held(&self, held: &mut [StripeGuard<'_, Local>]) -> Result<Option<u64>> {
        let time = self.stamp(None)?;
        let cleared = self.image.prepare_clear(&*self.meta.kind)?;
        let record = Record { time: time.time, stream: time.stream, ..Record::new(Op::Clear) };
        let Some(events) = held.last_mut() else { return Ok(None) };
        let Some(lsn) = self.append_for_stripe_0(events, &record) else {
            return Ok(None);
        };
        // Before any stripe counts the record: a process that takes one over looks for it in block
        // 0.
        self.image.clear_state(lsn, &cleared);
        let time = time.word();
        let counters = self.image.header().counters();
        for stripe in held.iter() {
            let counted = stripe.entry().clear(lsn, time);
            let (inserts, new_bits) =
                (counted.inserts.wrapping_neg(), counted.new_bits.wrapping_neg());
            counters.count(self.shard(), inserts, new_bits);
        }
        self.raise_time(time);
        Ok(Some(lsn))
    }
}
