//! An age-partitioned filter whose window is the keys of the stream. It has default options except
//! for the durability, so background threads allocate log and write checkpoints during the run.

use super::peer::{Awaited, Durability, FPR, GROUP, Key, Peer, Result, Setup, count_new};
use ebbtide::{AgePartitioned, Checked, Filter, Options, Since};
use std::future::Future;
use std::pin::Pin;

struct Ebbtide {
    filter: Filter<AgePartitioned>,
    grouped: bool,
    /// Whether tasks await tickets, instead of threads that wait for syncs.
    tickets: bool,
}

/// `grouped`: many keys per call.
pub fn open(setup: &Setup<'_>, grouped: bool) -> Result<Box<dyn Peer>> {
    Ok(Box::new(Ebbtide { filter: create(setup)?, grouped, tickets: false }))
}

/// Tasks that await the durability of each operation.
pub fn open_tickets(setup: &Setup<'_>) -> Result<Box<dyn Peer>> {
    Ok(Box::new(Ebbtide { filter: create(setup)?, grouped: false, tickets: true }))
}

fn create(setup: &Setup<'_>) -> Result<Filter<AgePartitioned>> {
    let durability = match setup.durability {
        Durability::None => ebbtide::Durability::Never,
        Durability::Always => ebbtide::Durability::Always,
    };
    let spec = AgePartitioned::last(setup.keys as u64).fpr(FPR);
    let options = Options::new().durability(durability);
    Ok(Filter::create(setup.dir.join("filter"), spec, options)?)
}

impl Peer for Ebbtide {
    fn check_and_insert(&self, keys: &[Key]) -> Result<u64> {
        // A present key is not refreshed, as with all others here.
        let call = self.filter.call().since(Since::LastAccepted);
        if !self.grouped {
            return count_new(keys, |key| Ok(call.check_and_insert(key)? == Checked::New));
        }
        let mut new = 0;
        let mut answers = Vec::with_capacity(GROUP);
        for group in keys.chunks(GROUP) {
            answers.clear();
            call.check_and_insert_all(group, &mut answers)?;
            new += answers.iter().filter(|&&answer| answer == Checked::New).count() as u64;
        }
        Ok(new)
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.filter.checkpoint()?;
        Ok(())
    }

    fn tasks(&self) -> Option<&dyn Awaited> {
        self.tickets.then_some(self)
    }
}

impl Awaited for Ebbtide {
    fn check_and_insert<'a>(
        &'a self,
        key: &'a Key,
    ) -> Pin<Box<dyn Future<Output = Result<bool>> + 'a>> {
        Box::pin(async move {
            let check =
                |call: ebbtide::Call<'_, _>| call.since(Since::LastAccepted).check_and_insert(key);
            Ok(self.filter.issue(check)?.await? == Checked::New)
        })
    }
}
