//! Applies operations on all processors.
//!
//! Operations on different blocks are independent, so they are gathered by ranges of blocks, and
//! then applied range by range by several threads, while the next ones are read: of a filter that
//! is larger than the caches, a block is fetched once for many of them.

use crate::error::Result;
use crate::image::{BankSet, Image, apply_record};
use crate::platform::threads::{processors, spawn_scoped};
use crate::wal::Record;
use ebbtide_core::hash::scale;
use ebbtide_core::kind::{BankMask, Kind};
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};

/// The blocks of this many operations are prefetched ahead: nearly all of the time to apply one is
/// cache misses on its blocks.
const AHEAD: usize = 16;

/// How many operations are gathered before they are applied: this many for each block of the
/// filter, within bounds. An operation takes 40 bytes: 4 % of a large filter.
const GATHERED_FOR_BLOCK: u64 = 16;
const GATHERED_LEAST: u64 = 1 << 15;
const GATHERED_MOST: u64 = 1 << 21;

/// About how many operations a range has: they fit into a second-level cache.
const RANGE: u64 = 1 << 12;

/// A further thread pays if it has at least this many operations.
const EACH: usize = 1 << 12;

/// The most threads: with more, memory serves no more accesses at once.
const THREADS: usize = 16;

/// Operations in transit from the log into an image.
pub(super) struct Parallel<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    image: &'env Image,
    kind: &'env dyn Kind,
    /// Operations that were read, and are not being applied yet.
    gathered: Gathered,
    /// Operations that are being applied, and the threads that do it.
    in_progress: Arc<Gathered>,
    at_work: Vec<ScopedJoinHandle<'scope, Result<()>>>,
}

impl<'scope, 'env> Parallel<'scope, 'env> {
    /// `banks`: those that the image has now.
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        image: &'env Image,
        kind: &'env dyn Kind,
        banks: &BankSet,
    ) -> Self {
        // Banks that come and go have blocks of different limits.
        let only = banks.iter().next().filter(|_| !kind.changes_banks());
        let blocks = only.map_or(0, |(_, bank)| bank.blocks());
        let [gathered, spare] = [(); 2].map(|()| Gathered::new(image.layout().stripes, blocks));
        let (in_progress, at_work) = (Arc::new(spare), Vec::new());
        Self { scope, image, kind, gathered, in_progress, at_work }
    }

    /// Takes the next operation, which belongs into these banks.
    pub(super) fn push(&mut self, lsn: u64, record: &Record, banks: &Arc<BankSet>) -> Result<()> {
        let is_full = self.gathered.push(lsn, record);
        if is_full { self.apply_gathered(banks) } else { Ok(()) }
    }

    /// Begins to apply the operations that were gathered, when those before them are applied. The
    /// next ones are read meanwhile.
    fn apply_gathered(&mut self, banks: &Arc<BankSet>) -> Result<()> {
        self.wait()?;
        let next = std::mem::replace(&mut self.gathered, Gathered::like(&self.in_progress));
        let before = std::mem::replace(&mut self.in_progress, Arc::new(next));
        // The threads are done with it, so its space is used again.
        if let Ok(mut free) = Arc::try_unwrap(before) {
            free.clear();
            self.gathered = free;
        }
        let most = THREADS.min(self.in_progress.stripes());
        let threads = match (self.in_progress.count / EACH).clamp(1, most) {
            wanted if wanted > 1 && !cfg!(any(miri, shuttle)) => wanted.min(processors()),
            _ => 1,
        };
        for number in 0..threads {
            let (image, kind, banks) = (self.image, self.kind, banks.clone());
            let operations = self.in_progress.clone();
            let apply = move || operations.apply_share(image, kind, &banks, (number, threads));
            // A few are applied at once, and so are all where the system gives no thread.
            let started = (threads > 1)
                .then(|| spawn_scoped(self.scope, "ebbtide-replay", apply.clone()))
                .and_then(io::Result::ok);
            match started {
                Some(thread) => self.at_work.push(thread),
                None => apply()?,
            }
        }
        Ok(())
    }

    /// Waits until all operations in progress are applied.
    fn wait(&mut self) -> Result<()> {
        let mut all = Ok(());
        for thread in self.at_work.drain(..) {
            let applied = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            all = all.and(applied);
        }
        all
    }

    /// Applies all operations that were gathered.
    pub(super) fn apply_and_wait(&mut self, banks: &Arc<BankSet>) -> Result<()> {
        self.apply_gathered(banks)?;
        self.wait()
    }
}

/// Operations by ranges of blocks, each in the order of the log. All operations on a block are in
/// one range, and all ranges of a stripe stand together.
struct Gathered {
    ranges: Vec<Vec<(u64, Record)>>,
    of_stripe: u64,
    blocks_of_stripe: u64,
    stripes: u64,
    count: usize,
    most: usize,
}

impl Gathered {
    /// `blocks`: of the only bank; otherwise 0.
    fn new(stripes: u32, blocks: u64) -> Self {
        let most = blocks.saturating_mul(GATHERED_FOR_BLOCK).clamp(GATHERED_LEAST, GATHERED_MOST);
        let stripes = u64::from(stripes);
        let blocks_of_stripe = (blocks / stripes).max(1);
        let of_stripe = (most / RANGE).div_ceil(stripes).clamp(1, blocks_of_stripe);
        let ranges = vec![Vec::new(); (of_stripe * stripes) as usize];
        Self { ranges, of_stripe, blocks_of_stripe, stripes, count: 0, most: most as usize }
    }

    /// Creates one with the same ranges, empty and without space.
    fn like(other: &Self) -> Self {
        let ranges = vec![Vec::new(); other.ranges.len()];
        Self { ranges, count: 0, ..*other }
    }

    /// Adds an operation. Returns whether these are enough.
    fn push(&mut self, lsn: u64, record: &Record) -> bool {
        let block = scale(record.payload, self.stripes * self.blocks_of_stripe);
        let range = block * self.of_stripe / self.blocks_of_stripe;
        self.ranges[range as usize].push((lsn, *record));
        self.count += 1;
        self.count >= self.most
    }

    fn stripes(&self) -> usize {
        self.stripes as usize
    }

    /// Applies the operations of a share of the stripes, by its number and that of all shares.
    fn apply_share(
        &self,
        image: &Image,
        kind: &dyn Kind,
        banks: &BankSet,
        (number, shares): (usize, usize),
    ) -> Result<()> {
        let stripes = self.stripes();
        for stripe in stripes * number / shares..stripes * (number + 1) / shares {
            let of_stripe = self.of_stripe as usize;
            let ranges = &self.ranges[stripe * of_stripe..(stripe + 1) * of_stripe];
            for range in ranges {
                change_blocks(image, kind, banks, range)?;
            }
            apply_record::count(image, kind, stripe, ranges.iter().flatten());
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.ranges.iter_mut().for_each(Vec::clear);
        self.count = 0;
    }
}

/// Applies the operations of a range. If the filter is larger than the caches: block by block, and
/// the blocks of later ones are prefetched.
fn change_blocks(
    image: &Image,
    kind: &dyn Kind,
    banks: &BankSet,
    range: &[(u64, Record)],
) -> Result<()> {
    let Some((_, first)) = banks.iter().next().filter(|_| banks.prefetches()) else {
        let mut all = range.iter();
        return all.try_for_each(|(lsn, record)| {
            apply_record::change_blocks(image, kind, banks, *lsn, record)
        });
    };
    // Block in the high half, place in the log in the low half: one sort of words keeps the order
    // of the log within a block.
    let place =
        |(at, (_, record)): (u64, &(u64, Record))| scale(record.payload, first.blocks()) << 32 | at;
    let mut order: Vec<u64> = (0..).zip(range).map(place).collect();
    // A block skips records older than its LSN. The blocks of several banks have different bounds,
    // so no order by block keeps the order of the log in all banks.
    if banks.iter().count() == 1 {
        order.sort_unstable();
    }
    let mut coming = order.iter().map(|place| &range[*place as u32 as usize]);
    let own = coming.clone();
    let prefetch = |record: &Record| {
        let located = banks.locate(BankMask::MAX, record.payload);
        located.prefetch_headers_to_write();
        kind.prefetch(&located.blocks, record.payload);
    };
    coming.by_ref().take(AHEAD).for_each(|(_, record)| prefetch(record));
    for (lsn, record) in own {
        if let Some((_, later)) = coming.next() {
            prefetch(later);
        }
        apply_record::change_blocks(image, kind, banks, *lsn, record)?;
    }
    Ok(())
}
