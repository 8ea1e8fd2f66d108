//! Compares the cost of decisions by posteriors with the plain answers of the same filter, for good
//! and for bad priors.
//!
//! ```text
//! cargo run --release --example priors [FILE [WINDOW]]
//! ```
//!
//! The first part uses uniform keys, whose prior is known. The second part uses the first field of
//! each line of a file, whose prior is not known; the default file is the log beside this program.
//! Each key is looked up and then inserted. The costs of a wrong "yes" and a wrong "no" are drawn
//! for each lookup, from 1 to 10. `docs/posteriors.md` contains the results.

use ebbtide::inference::{Distinct, Stream, decide};
use ebbtide::{BlockTiming, Filter, Options, Penalty};
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::path::Path;

/// The number of keys of the uniform stream, and of inserts in its window.
const UNIVERSE: u64 = 1 << 16;
/// Factors by which the prior is wrong.
const FACTORS: [f64; 5] = [0.01, 0.1, 1.0, 10.0, 100.0];
const RATES: [f64; 3] = [0.3, 0.1, 0.01];

/// Weyl's sequence through a mixer (splitmix64): small, and the same on every platform.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a penalty from 1 to 10.
    fn penalty(&mut self) -> f64 {
        1.0 + 9.0 * (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A prior, called once per insert, and the model of repeats.
struct Believer<'a> {
    name: String,
    prior: Box<dyn FnMut(u64) -> f64 + 'a>,
    distinct: Distinct,
}

/// Looks up and inserts all keys, adds up penalties from the middle on, and prints them.
fn play(
    keys: &[u64],
    window: u64,
    fpr: f64,
    believers: Vec<Believer<'_>>,
) -> Result<(), Box<dyn Error>> {
    let home = tempfile::tempdir()?;
    let spec = BlockTiming::last(window).fpr(fpr);
    let filter = Filter::create(home.path().join("filter"), spec, Options::new().hash_seed(1))?;
    let mut believers: Vec<_> = believers
        .into_iter()
        .map(|Believer { name, prior, distinct }| (name, prior, Stream::new(0.0, distinct), 0.0))
        .collect();
    let (mut random, mut plain) = (Random(5), 0.0);
    let mut last: HashMap<u64, usize> = HashMap::new();
    for (now, key) in keys.iter().enumerate() {
        let bytes = key.to_le_bytes();
        let inside = last.insert(*key, now).is_some_and(|then| now - then <= window as usize);
        let penalty =
            Penalty { false_positive: random.penalty(), false_negative: random.penalty() };
        let cost = |answer: bool| match (answer, inside) {
            (true, false) => penalty.false_positive,
            (false, true) => penalty.false_negative,
            _ => 0.0,
        };
        let counts = now >= keys.len() / 2;
        plain += if counts { cost(filter.contains(bytes)?) } else { 0.0 };
        for (_, prior, stream, sum) in &mut believers {
            let p = prior(*key).min(1.0);
            if counts {
                *sum += cost(decide(filter.posterior(bytes, &stream.with(p))?, penalty)?);
            }
        }
        filter.insert(bytes)?;
    }
    println!("last {window}, false-positive rate {fpr}:");
    for (name, _, _, sum) in believers {
        println!("    {name:40} {:8.2}", sum / plain);
    }
    Ok(filter.close()?)
}

/// Runs the part with [`UNIVERSE`] equally likely keys.
fn uniform() -> Result<(), Box<dyn Error>> {
    let mut random = Random(11);
    let keys: Vec<u64> = (0..16 * UNIVERSE).map(|_| random.next() % UNIVERSE).collect();
    println!("Uniform keys; the prior times");
    for fpr in RATES {
        let distinct = Distinct::uniform(UNIVERSE)?;
        let believer = |factor: f64| Believer {
            name: factor.to_string(),
            prior: Box::new(move |_| factor / UNIVERSE as f64),
            distinct: distinct.clone(),
        };
        play(&keys, UNIVERSE, fpr, FACTORS.map(believer).into())?;
    }
    Ok(())
}

/// Returns the mean number of distinct keys in runs of consecutive keys, for every power of four.
fn sampled(keys: &[u64]) -> Result<Distinct, Box<dyn Error>> {
    let mut points = Vec::new();
    let mut width = 1;
    while width <= keys.len() {
        let rows = keys.chunks_exact(width);
        let count = rows.len();
        let sum: usize = rows.map(|row| row.iter().collect::<HashSet<_>>().len()).sum();
        points.push((width as f64, sum as f64 / count as f64));
        width *= 4;
    }
    Ok(Distinct::sampled(&points)?)
}

/// Runs the part with keys whose priors are counted, before or during the run.
fn counted(path: &Path, window: u64) -> Result<(), Box<dyn Error>> {
    let text = std::fs::read(path)?;
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let fields = lines.map(|line| line.split(|byte| *byte == b' ').next().unwrap_or(line));
    let mut numbers = HashMap::new();
    let keys: Vec<u64> = fields
        .map(|field| {
            let next = numbers.len() as u64;
            *numbers.entry(field).or_insert(next)
        })
        .collect();
    let count = |keys: &[u64]| {
        let mut counts: HashMap<u64, f64> = HashMap::new();
        keys.iter().for_each(|key| *counts.entry(*key).or_default() += 1.0);
        counts
    };
    let total = keys.len() as f64;
    let (whole, half) = (&count(&keys), &count(&keys[..keys.len() / 2]));
    let (bursts, shuffled) =
        (sampled(&keys)?, Distinct::of_probabilities(whole.values().map(|count| count / total))?);
    println!("Keys of {}", path.display());
    for fpr in RATES {
        let table = |name: &str, distinct: &Distinct| Believer {
            name: name.to_owned(),
            prior: Box::new(|key| whole[&key] / total),
            distinct: distinct.clone(),
        };
        let mut counts: HashMap<u64, f64> = HashMap::new();
        let mut inserts = 0.0;
        let learnt = Believer {
            name: "counted on the way, D(j) sampled".to_owned(),
            prior: Box::new(move |key| {
                let count = counts.entry(key).or_default();
                let p = (*count + 0.5) / (inserts + 0.5);
                *count += 1.0;
                inserts += 1.0;
                p
            }),
            distinct: bursts.clone(),
        };
        let earlier = |new: f64, name: &str| Believer {
            name: format!("first half counted, new keys {name}"),
            prior: Box::new(move |key| half.get(&key).copied().unwrap_or(new) / (total / 2.0)),
            distinct: bursts.clone(),
        };
        let (open, closed) = (earlier(0.5, "half a count"), earlier(0.0, "impossible"));
        let all = table("all counted, D(j) sampled", &bursts);
        let independent = table("all counted, D(j) as if without bursts", &shuffled);
        play(&keys, window, fpr, vec![all, independent, learnt, open, closed])?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/requests.log");
    let path = arguments.next().map_or(log, Into::into);
    let window = arguments.next().map_or(Ok(256), |window| window.parse())?;
    uniform()?;
    counted(&path, window)
}
