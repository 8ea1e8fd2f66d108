//! The experiments of *Dynamic Count Filters* (Aguilar-Saborit, Trancoso, Muntés-Mulero,
//! Larriba-Pey; SIGMOD Record 2006) on our kinds: Table 2 and Fig. 4 to 9.
//!
//! `cargo bench --bench paper_dcf` prints the paper's results beside ours and draws
//! `target/papers/dcf-fig*.svg`. DCF is `dynamic-count`, SBF `spectral` (policy `ms`), CBF
//! `counting`. The paper's defaults are used: `k` = 3, `F_p` = 0.05, hence 6.53 counters per key.
//! There is one overflow vector (OFV) for each block of at most 8,128 counters; with n = 1000 there
//! is one block, and the rule is the paper's global one. For larger n a [`model`] follows the
//! global rule.

#[path = "dcf/bare.rs"]
mod bare;
#[path = "dcf/bare_dynamic.rs"]
mod bare_dynamic;
#[path = "dcf/bare_spectral.rs"]
mod bare_spectral;
#[path = "dcf/bits.rs"]
mod bits;
#[path = "dcf/memory.rs"]
mod memory;
#[path = "dcf/model.rs"]
mod model;
#[path = "common/plot.rs"]
mod plot;
#[path = "dcf/runs.rs"]
mod runs;
#[path = "common/seed.rs"]
mod seed;
#[path = "dcf/shrinking.rs"]
mod shrinking;
#[path = "dcf/structure.rs"]
mod structure;
#[path = "common/table.rs"]
mod table;
#[path = "common/timer.rs"]
mod timer;
#[path = "dcf/times.rs"]
mod times;

use runs::Done;
use seed::seed;

fn main() -> Done {
    // Cargo runs benches as tests too, with another argument; there is nothing to test here.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    println!("seed {}, k = {}, F_p = {}\n", seed(), runs::K, runs::FPR);
    shrinking::over_time()?;
    shrinking::over_lambda()?;
    bare::tables()?;
    times::sizes()?;
    memory::bits_by_block()?;
    memory::ratios()?;
    memory::table_2()?;
    times::skews()
}
