//! Claims: of all that ask for a key, one has it.

use crate::tasks::{Next, Task};
use crate::world::lock;
use ebbtide::{Batch, Claim, Error};
use ebbtide_core::record::Op;
use ebbtide_testkit::prefix::Checked;
use ebbtide_testkit::random::Random;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::time::Duration;

/// The first of the keys that are claimed.
const CLAIMED: u64 = 1 << 40;
/// Longer than any world.
const LEASE: Duration = Duration::from_secs(30 * 86_400);

/// What is known of keys that were claimed, by key.
pub type Claims = BTreeMap<u64, Held>;

/// What is known of a key that was claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    By(u64),
    Releasing(u64),
    Confirming,
}

/// What becomes of a claim.
#[derive(Debug, Clone, Copy)]
pub enum Then {
    Confirm,
    ConfirmInBatch,
    Release,
    /// Later claims find it in progress.
    Extend,
}

impl Then {
    pub fn draw(random: &mut Random) -> Self {
        [Self::Confirm, Self::ConfirmInBatch, Self::Release, Self::Extend][random.below(4) as usize]
    }
}

/// Returns a key that may have been claimed.
pub fn any_key(random: &mut Random) -> u64 {
    CLAIMED + random.below(3)
}

impl Task<'_> {
    /// Claims a key and ends the claim, or keeps it.
    pub fn work(&mut self, then: Then) -> Checked<Next> {
        let key = any_key(&mut self.random);
        let claimed = self.filter.claim(key.to_le_bytes(), LEASE);
        let Some(claim) = self.came(claimed)? else { return Ok(Next::Stop) };
        let lease = match claim {
            // A dead process drops nothing.
            Claim::Yours(lease) => ManuallyDrop::new(lease),
            Claim::Seen | Claim::InProgress { .. } => return Ok(Next::Continue),
        };
        let token = lease.token();
        self.given(key, token)?;
        match then {
            Then::Confirm | Then::ConfirmInBatch => return self.confirm(then, key, token),
            Then::Release => {
                self.hold(key, Held::Releasing(token));
                let released = lease.release();
                if self.came(released)?.is_none() {
                    return Ok(Next::Stop);
                }
                let mut claims = lock(&self.world.claims);
                if claims.get(&key) == Some(&Held::Releasing(token)) {
                    claims.remove(&key);
                }
            }
            Then::Extend => {
                let extended = lease.extend(LEASE);
                if self.came(extended)?.is_none() {
                    return Ok(Next::Stop);
                }
            }
        }
        Ok(Next::Continue)
    }

    fn hold(&self, key: u64, held: Held) -> Option<Held> {
        lock(&self.world.claims).insert(key, held)
    }

    /// A claim was given: nobody else may have the key.
    fn given(&self, key: u64, token: u64) -> Checked<()> {
        let before = self.hold(key, Held::By(token));
        let is_free = match before {
            None | Some(Held::Confirming) => true,
            Some(Held::Releasing(before)) => before < token,
            Some(Held::By(_)) => lock(&self.world.weather).lost,
        };
        if is_free {
            return Ok(());
        }
        Err(format!("key {key} was given by {token}, and is {before:?}"))
    }

    fn confirm(&mut self, then: Then, key: u64, token: u64) -> Checked<Next> {
        self.hold(key, Held::Confirming);
        let (call, filter) = (self.call(false), self.filter);
        self.write_unless_late(&[(Op::Insert, key)], false, false, || {
            let lease = filter.resume_claim(key.to_le_bytes(), token);
            let confirmed = if let Then::ConfirmInBatch = then {
                let mut batch = ManuallyDrop::new(Batch::new(call));
                batch.confirm(lease).and_then(|()| batch.commit())
            } else {
                call.confirm(&ManuallyDrop::new(lease))
            };
            match confirmed {
                Err(Error::LeaseLost { .. }) => Ok(false),
                confirmed => confirmed.map(|()| true),
            }
        })
    }
}
