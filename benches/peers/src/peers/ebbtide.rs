//! An age-partitioned filter whose window is the keys of the stream. It has default options except
//! for the durability, so background threads allocate log and write checkpoints during the run.

use super::peer::{Durability, FPR, GROUP, Key, Peer, Result, Setup, count_new};
use ebbtide::{AgePartitioned, Checked, Filter, Options, Since};

struct Ebbtide {
    filter: Filter<AgePartitioned>,
    grouped: bool,
}

/// `grouped`: many keys per call.
pub fn open(setup: &Setup<'_>, grouped: bool) -> Result<Box<dyn Peer>> {
    let durability = match setup.durability {
        Durability::None => ebbtide::Durability::Never,
        Durability::Always => ebbtide::Durability::Always,
    };
    let spec = AgePartitioned::last(setup.keys as u64).fpr(FPR);
    let options = Options::new().durability(durability);
    let filter = Filter::create(setup.dir.join("filter"), spec, options)?;
    Ok(Box::new(Ebbtide { filter, grouped }))
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
}
