//! Measures the cost of each operation: one by one and in bulk, of every kind, in and beyond the
//! processor's caches, by several threads and processes, at each durability, and while checkpoints
//! are written.
//!
//! ```sh
//! cargo bench --bench operations                                # all: about ten minutes,
//!                                                               # 4 GiB of memory, 14 GiB of disk
//! cargo bench --bench operations -- '^insert/age-partitioned'   # matches of a regular expression
//! cargo bench --bench operations -- --measurement-time 0.2 '16 MiB' # roughly
//! cargo bench --bench operations -- --list
//! ```
//!
//! (`--quick` counts the creation of a filter as time of its first operation, and stops there after
//! an operation or two.)
//!
//! A filter is created only if a measurement needs it, filled to its planned size before anything
//! is timed, and removed afterwards. `EBBTIDE_BENCH_DIR` sets the directory; by default it is
//! beside the program, in `target/tmp`, where only an interrupted run leaves files. The log is
//! always written, and checkpoints as by default; no operation waits for a sync except where the
//! durability is measured. Kinds whose old keys expire receive new keys continuously, the others
//! receive the keys that they contain, so that each stays at its planned fill.
//!
//! The names of the measurements, and the meaning of a time:
//!
//! - *operation*`/`*kind*`/`*size*: one call by one thread; of an `-all` or a
//!   `batch`, of 1,000 keys ([`single`]).
//! - `threads/`, `processes/` *operation*`/`*size*`/`*number*: one operation by each
//!   ([`together`]).
//! - `durability/`*level*`/`*writers*: one insert by each ([`together`]).
//! - `during-checkpoints/`*operation*`/`*size*: one operation, while another thread writes
//!   checkpoints continuously ([`checkpoints`]).
//!
//! The throughput is in operations of all together. Every time includes the creation of the keys,
//! one or two nanoseconds each.

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
