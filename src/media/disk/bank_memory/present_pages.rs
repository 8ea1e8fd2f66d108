//! Makes the pages of a new bank present, with all processors: to clear them takes longer than
//! anything else.

use crate::media::disk::mapping::DiskMapping;
use crate::platform::threads::{processors, spawn_scoped};
use crate::primitives::Hint;
use crate::primitives::mutex::Mutex;
use std::io;

/// Pages of a bank are made present in pieces of this length, by this many threads at most.
const PIECE: u64 = 32 << 20;
const CLEARING_MOST: usize = 8;

/// Calls `run` with the numbers below `threads`, in as many threads, the caller's among them. Where
/// the system gives no further thread, the caller's does its work as well.
fn in_parallel(name: &str, threads: usize, run: impl Fn(usize) + Sync) {
    let run = &run;
    std::thread::scope(|scope| {
        let is_left = |&number: &usize| spawn_scoped(scope, name, move || run(number)).is_err();
        let left: Vec<usize> = (1..threads).filter(is_left).collect();
        std::iter::once(0).chain(left).for_each(run);
    });
}

/// Makes the pages of a mapping of this length present.
pub(super) fn make_present(mapping: &DiskMapping, bytes: u64) -> io::Result<()> {
    let pieces = bytes.div_ceil(PIECE);
    let (next, failed) = (Hint::default(), Mutex::new(None));
    let threads = processors().min(pieces as usize).clamp(1, CLEARING_MOST);
    in_parallel("ebbtide-clear", threads, |_| {
        loop {
            let piece = next.next();
            if piece >= pieces || failed.lock().is_some() {
                return;
            }
            let start = piece * PIECE;
            if let Err(error) = mapping.make_present(start..bytes.min(start + PIECE)) {
                failed.lock().get_or_insert(error);
            }
        }
    });
    let failed = failed.lock().take();
    failed.map_or(Ok(()), Err)
}
