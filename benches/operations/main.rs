//! What each operation costs: one by one and in bulk, of every kind, in and beyond the processor's caches, by several threads and
//! processes, at each durability, and while checkpoints are written.
//!
//! ```sh
//! cargo bench --bench operations                                    # all: about ten minutes, 4 GiB of memory, 14 GiB of disk
//! cargo bench --bench operations -- '^insert/age-partitioned'       # what matches a regular expression
//! cargo bench --bench operations -- --measurement-time 0.2 '16 MiB' # roughly
//! cargo bench --bench operations -- --list
//! ```
//!
//! (`--quick` counts the making of a filter as time of what is asked of it first, and gives up there after an operation or two.)
//!
//! A filter is made only if something is asked of it, filled as full as it is planned before anything is timed, and removed
//! afterwards. `EBBTIDE_BENCH_DIR` chooses where; by default it is beside the program, in `target/tmp`, where only an interrupted
//! run leaves something behind. The log is always written, and checkpoints as by default; nothing waits for a sync but where the
//! durability is what is measured. Kinds that make room for new keys are given new ones all the time, the others those again
//! that they hold, so that each stays as full as it is planned.
//!
//! | names | what a time is | |
//! |---|---|---|
//! | *operation*`/`*kind*`/`*size* | one call by one thread; of an `-all`, of 1,000 keys | [`single`] |
//! | `threads/`, `processes/` *operation*`/`*size*`/`*number* | one operation by each of them | [`together`] |
//! | `durability/`*level*`/`*writers* | one insert by each of them | [`together`] |
//! | `during-checkpoints/`*operation*`/`*size* | one operation, another thread writing checkpoints without end | [`checkpoints`] |
//!
//! The throughput is in operations of all together. Every time includes making the keys, one or two nanoseconds each.

mod checkpoints;
#[path = "../common/mod.rs"]
mod common;
mod processes;
mod single;
mod subject;
mod together;

use criterion::Criterion;
use std::time::Duration;

fn main() {
    if processes::work_if_asked() {
        return;
    }
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .configure_from_args();
    single::all(&mut criterion);
    together::all(&mut criterion);
    criterion.final_summary();
}
