//! Rare events of large filters: shifts and epochs, checkpoints, backups, restores, openings,
//! crashes, alterations.
//!
//! `cargo bench --bench lifecycle -- [--rounds 3] [--mib 1024] [--records 10000000] [--only
//! steps|copies|crash|alter|growth]`
//!
//! Medians over rounds, ratios within a round. Files lie on the disk of the build, or in
//! `EBBTIDE_BENCH_DIR`, and are removed at the end; `--mib 1024` takes 8 GiB there. All data read
//! was written a moment ago: the page cache is warm.

#[path = "../common/mod.rs"]
mod common;
#[path = "../large/mod.rs"]
mod large;

mod alterations;
mod copies;
mod crash;
mod growth;
mod measuring;
mod steps;

use large::argument;
use std::time::Instant;

fn main() {
    if let Some(child) = crash::Child::from_arguments() {
        return child.run();
    }
    let (rounds, mib) = (argument("rounds", 3), argument("mib", 1024));
    let only = argument("only", String::new());
    let begin = Instant::now();
    if only.is_empty() || only == "steps" {
        steps::run(rounds, mib);
    }
    if only.is_empty() || only == "copies" {
        copies::run(rounds, mib);
    }
    if only.is_empty() || only == "crash" {
        let records = argument("records", 10_000_000);
        for mib in [mib / 64, mib / 4, mib] {
            crash::run(rounds, mib.max(1), records);
        }
    }
    if only.is_empty() || only == "alter" {
        let records = argument("records", 10_000_000);
        for mib in [mib / 64, mib / 4, mib] {
            alterations::run(rounds, mib.max(1), records);
        }
    }
    // Long, so only if it is asked for.
    if only == "growth" {
        growth::run();
    }
    println!("\n{:.0} s in all", begin.elapsed().as_secs_f64());
}
