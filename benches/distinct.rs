//! The error of `Filter::distinct_within` in windows of 1,000,000 inserts, against exact counts.
//!
//! `cargo bench --bench distinct` prints for each rate and stream, and each sub-window, the root
//! mean square and the greatest of the relative errors over 12 moments of two filters, the mean
//! standard error that the filter states, and the error in standard errors.

use ebbtide::media::Memory;
use ebbtide::{Any, Durability, Filter, Options, Within};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

const WINDOW: u64 = 1_000_000;
const MOMENTS: u64 = 12;
const SEEDS: u64 = 2;

type Done = Result<(), Box<dyn std::error::Error>>;

/// A generator of numbers that look random (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(most)) >> 64) as u64
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns for each insert the number of its key's next one.
fn next(keys: &[u64]) -> Vec<u64> {
    let (mut seen, mut next) = (HashMap::new(), vec![u64::MAX; keys.len()]);
    for (at, &key) in keys.iter().enumerate().rev() {
        next[at] = seen.insert(key, at as u64).unwrap_or(u64::MAX);
    }
    next
}

/// Returns the keys of a stream.
fn keys(stream: &str, count: u64, random: &mut Random) -> Vec<u64> {
    let mut all = Vec::with_capacity(count as usize);
    for at in 0..count {
        all.push(match stream {
            "half repeated" if at > 0 && random.next().is_multiple_of(2) => {
                all[(at - 1 - random.below(at.min(WINDOW))) as usize]
            }
            "Zipf" => 4e6_f64.powf(random.share()) as u64,
            "300,000 keys" => random.below(300_000),
            _ => 1 << 40 | at,
        });
    }
    all
}

/// What was found for a sub-window.
#[derive(Default, Clone)]
struct Errors {
    relative: Vec<f64>,
    stated: Vec<f64>,
    standard: Vec<f64>,
}

fn mean_square(of: &[f64]) -> f64 {
    (of.iter().map(|error| error * error).sum::<f64>() / of.len() as f64).sqrt()
}

fn measure(spec: &str, stream: &str) -> Result<(Vec<Errors>, f64), Box<dyn std::error::Error>> {
    let parts = [1_u64, 14, 56, 100].map(|hundredth| WINDOW * hundredth / 100);
    let (mut errors, mut took, mut asked) = (vec![Errors::default(); parts.len()], 0.0, 0);
    for seed in 0..SEEDS {
        let options = Options::new().durability(Durability::Never).hash_seed(seed + 1);
        let filter = Filter::create_on(Arc::new(Memory::new()), spec.parse::<Any>()?, options)?;
        let first = 2 * WINDOW;
        let step = WINDOW / MOMENTS + 4321;
        let keys = keys(stream, first + MOMENTS * step, &mut Random(seed));
        let next = next(&keys);
        let mut done = 0;
        for moment in 0..MOMENTS {
            let end = first + moment * step;
            let piece: Vec<_> =
                keys[done as usize..end as usize].iter().map(|key| key.to_le_bytes()).collect();
            filter.insert_all(&piece)?;
            done = end;
            for (part, errors) in parts.iter().zip(&mut errors) {
                let begun = Instant::now();
                let answer = filter.distinct_within(Within::Items(*part))?;
                took += begun.elapsed().as_secs_f64();
                asked += 1;
                let since = end - answer.reach.width();
                // Each key is counted at its last insert.
                let inserts = &next[since as usize..end as usize];
                let truth = inserts.iter().filter(|&&next| next >= end).count() as f64;
                errors.relative.push(answer.keys / truth - 1.0);
                errors.stated.push(answer.standard_error / truth);
                errors.standard.push((answer.keys - truth) / answer.standard_error.max(0.5));
            }
        }
    }
    Ok((errors, took / f64::from(asked)))
}

fn main() -> Done {
    // Cargo runs benches as tests too, with another argument; there is nothing to test here.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let specs = [
        "fingerprint last=1M fpr=0.05",
        "fingerprint last=1M fpr=0.01",
        "fingerprint last=1M fpr=0.001",
        "fingerprint last=1M fpr=0.000001",
        "age-partitioned last=1M fpr=0.001",
        "two-buffer last=1M fpr=0.001",
        "block-timing last=1M fpr=0.001",
    ];
    println!("errors in millionths; of the last 1, 14, 56 and 100 % of the window");
    for spec in specs {
        for stream in ["new keys", "Zipf", "half repeated", "300,000 keys"] {
            let (errors, took) = measure(spec, stream)?;
            println!("{spec}, {stream}, {:.1} ms a question", took * 1e3);
            for errors in errors {
                let worst = errors.relative.iter().fold(0.0_f64, |most, of| most.max(of.abs()));
                println!(
                    "    {:6.0} root mean square, {:6.0} at most, {:6.0} stated, {:.2} of them",
                    1e6 * mean_square(&errors.relative),
                    1e6 * worst,
                    1e6 * mean_square(&errors.stated),
                    mean_square(&errors.standard),
                );
            }
        }
    }
    Ok(())
}
