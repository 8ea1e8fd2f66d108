//! Claims: of all that ask for a key, one has it.

use crate::tasks::{Next, SHARED, Task};
use crate::world::lock;
use ebbtide::{Batch, Claim, Error};
use ebbtide_core::log_record::Op;
use ebbtide_testkit::prefix::Checked;
use ebbtide_testkit::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;
use std::time::Duration;

/// The first of the keys that are claimed.
const CLAIMED: u64 = 1 << 40;
/// Longer than any world, and so short that handlers come too late.
const LEASES: [Duration; 3] =
    [Duration::from_secs(30 * 86_400), Duration::from_secs(30 * 86_400), Duration::from_millis(40)];

/// What is known of claims.
#[derive(Debug, Default)]
pub struct Claims {
    /// The keys that were claimed since the machine started.
    by_key: BTreeMap<u64, Held>,
    /// All tokens that callers ever got.
    tokens: BTreeSet<u64>,
}

impl Claims {
    /// The machine starts again.
    pub fn forget_keys(&mut self) {
        self.by_key.clear();
    }
}

/// What is known of a key that was claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    By(Lease),
    Releasing(u64),
    Confirming,
}

/// A claim that was given, with the earliest and the latest end of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lease {
    token: u64,
    ends: (Duration, Duration),
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

/// Returns a key that may have been claimed; some of them are also inserted without a claim.
pub fn any_key(random: &mut Random) -> u64 {
    if random.below(4) == 0 { random.below(SHARED) } else { CLAIMED + random.below(3) }
}

impl Task<'_> {
    /// Claims a key and ends the claim, or keeps it.
    pub fn work(&mut self, then: Then) -> Checked<Next> {
        let (key, world) = (any_key(&mut self.random), self.world);
        let length = LEASES[self.random.below(3) as usize];
        let begun = world.elapsed();
        let claimed = self.filter.claim(key.to_le_bytes(), length);
        let Some(claim) = self.came(claimed)? else { return Ok(Next::Stop) };
        let lease = match claim {
            // A dead process drops nothing.
            Claim::Yours(lease) => ManuallyDrop::new(lease),
            Claim::Seen => return self.saw(key),
            Claim::InProgress { .. } => return Ok(Next::Continue),
        };
        let ends = (begun + length, world.elapsed() + length);
        let held = Lease { token: lease.token(), ends };
        self.given(key, held)?;
        if self.random.below(4) == 0 {
            world.advance(Duration::from_micros(self.random.below(80_000)));
        }
        match then {
            Then::Confirm | Then::ConfirmInBatch => return self.confirm(then, key, held),
            Then::Release => {
                let releasing = Held::Releasing(held.token);
                self.hold(key, releasing);
                let released = lease.release();
                if self.came(released)?.is_none() {
                    return Ok(Next::Stop);
                }
                let mut claims = lock(&world.claims);
                if claims.by_key.get(&key) == Some(&releasing) {
                    claims.by_key.remove(&key);
                }
            }
            Then::Extend => {
                let begun = world.elapsed();
                match lease.extend(length) {
                    Err(Error::LeaseLost { .. }) => return self.lost(held),
                    extended => {
                        if self.came(extended)?.is_none() {
                            return Ok(Next::Stop);
                        }
                    }
                }
                self.must_be_in_time(begun, held)?;
            }
        }
        Ok(Next::Continue)
    }

    /// The key was confirmed before.
    fn saw(&self, key: u64) -> Checked<Next> {
        let is_trusted = !lock(&self.world.weather).lost;
        let is_durable = self.is_durable(false) && self.keeps() && is_trusted;
        self.world.ask(|oracle, disk| {
            if is_durable && let Some(end) = oracle.first_insert(oracle.hash(key)) {
                oracle.acknowledge(end, disk);
            }
            Ok(Next::Continue)
        })
    }

    fn hold(&self, key: u64, held: Held) -> Option<Held> {
        lock(&self.world.claims).by_key.insert(key, held)
    }

    /// A claim was given: nobody else may have the key, or ever got its token.
    fn given(&self, key: u64, lease: Lease) -> Checked<()> {
        let token = lease.token;
        let before = self.hold(key, Held::By(lease));
        let is_new = lock(&self.world.claims).tokens.insert(token);
        let weather = *lock(&self.world.weather);
        let is_free = match before {
            None | Some(Held::Confirming) => true,
            Some(Held::Releasing(before)) => before < token,
            Some(Held::By(before)) => before.ends.0 <= self.world.elapsed(),
        };
        if !is_free && !weather.lost {
            return Err(format!("key {key} was given by {token}, and is {before:?}"));
        }
        if !is_new && !weather.lost && !weather.was_lied_to {
            return Err(format!("token {token} was given twice"));
        }
        Ok(())
    }

    /// A call that needed the claim, and began then, has succeeded: its lease was not over.
    fn must_be_in_time(&self, begun: Duration, lease: Lease) -> Checked<()> {
        if begun < lease.ends.1 {
            return Ok(());
        }
        Err(format!("{lease:?} is over, and a call that began at {begun:?} succeeded"))
    }

    /// A call was refused because the claim is over.
    fn lost(&self, lease: Lease) -> Checked<Next> {
        if self.world.elapsed() >= lease.ends.0 || lock(&self.world.weather).lost {
            return Ok(Next::Continue);
        }
        Err(format!("{lease:?} was lost at {:?}", self.world.elapsed()))
    }

    fn confirm(&mut self, then: Then, key: u64, lease: Lease) -> Checked<Next> {
        self.hold(key, Held::Confirming);
        let call = self.call(false);
        let (filter, begun) = (self.filter, self.world.elapsed());
        let mut came = None;
        let written = [(Op::Insert, key), (Op::Release, key)];
        let next = self.write_unless_late(&written, false, false, || {
            let claim = filter.resume_claim(key.to_le_bytes(), lease.token);
            let confirmed = if let Then::ConfirmInBatch = then {
                let mut batch = ManuallyDrop::new(Batch::new(call));
                batch.confirm(claim).and_then(|()| batch.commit())
            } else {
                call.confirm(&ManuallyDrop::new(claim))
            };
            match confirmed {
                Err(Error::LeaseLost { .. }) => {
                    came = Some(false);
                    Ok(false)
                }
                confirmed => {
                    came = confirmed.is_ok().then_some(true);
                    confirmed.map(|()| true)
                }
            }
        })?;
        match came {
            Some(true) => self.must_be_in_time(begun, lease)?,
            Some(false) => return self.lost(lease),
            None => {}
        }
        Ok(next)
    }
}
