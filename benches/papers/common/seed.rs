//! The seed of a paper's program: of its streams and of hashing.

use std::process::exit;
use std::sync::LazyLock;

/// The seed of the tables in `docs/runs/papers/`.
const DEFAULT: u64 = 20_261_120;

/// Returns the seed: the number after `--seed` on the command line, if there is one.
pub fn seed() -> u64 {
    static SEED: LazyLock<u64> = LazyLock::new(|| {
        let mut arguments = std::env::args().skip_while(|argument| argument != "--seed");
        if arguments.next().is_none() {
            return DEFAULT;
        }
        arguments.next().and_then(|number| number.parse().ok()).unwrap_or_else(|| {
            eprintln!("--seed: expected a whole number after it, such as --seed 7");
            exit(2)
        })
    });
    *SEED
}
