//! Fig. 4 and 5: how often the overflow vector is rebuilt while keys are inserted and removed, and
//! the effect of the threshold λ.

use super::plot::{Curve, Figure, Scale, draw};
use super::runs::{Done, Kind, Setting, Subject};
use super::seed::seed;
use super::table::Table;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::zipf::Zipf;

/// The number of distinct keys: all counters are in one block, so the rule is the paper's global
/// one.
const KEYS: u64 = 1000;
/// The number of Zipf exponents from 0 to 2 from which streams choose.
const EXPONENTS: usize = 9;

/// Returns the thresholds of both figures.
fn lambdas() -> impl Iterator<Item = f64> {
    (1..=10).map(|tenth| f64::from(tenth) / 10.0)
}

/// Returns Zipf distributions of all exponents.
fn skews() -> Vec<Zipf> {
    (0..EXPONENTS).map(|quarter| Zipf::new(KEYS as usize, quarter as f64 / 4.0)).collect()
}

/// A filter, and the keys in it.
struct Population<'a> {
    subject: Subject,
    skews: &'a [Zipf],
    live: Vec<u32>,
    random: Random,
}

impl<'a> Population<'a> {
    fn new(mean: f64, lambda: f64, skews: &'a [Zipf], seed: u64) -> Done<Self> {
        let setting =
            Setting { lambda, stripes: Some(1), ..Setting::new(Kind::Dynamic, KEYS, mean) };
        let (subject, random) = (Subject::new(setting)?, Random::new(seed));
        Ok(Self { subject, skews, live: Vec::new(), random })
    }

    /// Draws one of the exponents.
    fn any_skew(&mut self) -> usize {
        self.random.below(self.skews.len() as u64) as usize
    }

    fn insert(&mut self, skew: usize) -> Done {
        let key = self.skews[skew].next(&mut self.random) as u32;
        self.live.push(key);
        Ok(self.subject.insert(key, 1)?)
    }

    /// Removes a random key from the filter, if there is one.
    fn remove(&mut self) -> Done {
        if self.live.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.live.len() as u64) as usize;
        let key = self.live.swap_remove(at);
        Ok(self.subject.remove(key, 1)?)
    }

    /// Inserts or removes a key, at `ratio` inserts per removal.
    fn either(&mut self, skew: usize, ratio: f64) -> Done {
        let limit = 1 << 32;
        let share = ratio / (1.0 + ratio) * limit as f64;
        if self.random.below(limit) < share as u64 { self.insert(skew) } else { self.remove() }
    }

    fn rebuilds(&self) -> Done<f64> {
        Ok(self.subject.state()?.rebuilds as f64)
    }
}

/// The time axis of Fig. 4: steps that populate the filter, then steps of inserts and removals.
const FILLING: usize = 10;
const STEPS: usize = 60;
/// The number of operations of a step.
const STEP: u64 = 10_000;
/// The scenarios of Fig. 4: inserts per removal.
const SCENARIOS: [(&str, f64); 3] = [("T1: R = 2", 2.0), ("T2: R = 1", 1.0), ("T3: R = 0.5", 0.5)];

/// Returns the rebuilds after each step, from step 0 on, on average over all λ; and the number
/// after step 10 with the last λ, 1.
fn course(ratio: f64) -> Done<(Vec<f64>, f64)> {
    let skews = skews();
    let mut sums = vec![0.0; STEPS + 1];
    let mut later = 0.0;
    for (execution, lambda) in lambdas().enumerate() {
        let mean = (FILLING as u64 * STEP) as f64 / KEYS as f64;
        let mut population = Population::new(mean, lambda, &skews, seed() + execution as u64)?;
        let mut full = 0.0;
        for (step, sum) in sums.iter_mut().enumerate().skip(1) {
            let skew = population.any_skew();
            for _ in 0..STEP {
                if step <= FILLING {
                    population.insert(skew)?;
                } else {
                    population.either(skew, ratio)?;
                }
            }
            let rebuilds = population.rebuilds()?;
            *sum += rebuilds;
            if step <= FILLING {
                full = rebuilds;
            }
            later = rebuilds - full;
        }
    }
    let executions = lambdas().count() as f64;
    Ok((sums.into_iter().map(|sum| sum / executions).collect(), later))
}

/// Fig. 4: rebuilds over time.
pub fn over_time() -> Done {
    let shown = [FILLING, 20, 30, 40, 50, STEPS];
    let head: Vec<String> = shown.iter().map(|step| format!("after step {step}")).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let names = [&["scenario", "paper"], &*head, &["after step 10, λ = 1 alone"]];
    let title = "Fig. 4: rebuilds of one block over time, mean of ten executions, λ 0.1 to 1.0";
    let mut table = Table::new(title, &names.concat());
    let mut curves = Vec::new();
    for ((name, ratio), paper) in
        SCENARIOS.into_iter().zip(["grows", "does not grow", "does not grow"])
    {
        let (course, later) = course(ratio)?;
        let [a, b, c, d, e, f] = shown.map(|step| format!("{:.1}", course[step]));
        table.row([name.to_owned(), paper.to_owned(), a, b, c, d, e, f, format!("{later:.0}")]);
        let points = course.into_iter().enumerate().map(|(step, mean)| (step as f64, mean));
        curves.push(Curve { name: name.to_owned(), points: points.collect() });
    }
    println!("{table}");
    let figure = Figure {
        file: "dcf-fig4",
        title: "Fig. 4: rebuilds over time",
        x: "time steps",
        y: ("rebuilds", Scale::Linear),
    };
    draw(&figure, &curves)
}

/// The mean count of a key in Fig. 5 when all are inserted.
const MEAN: u64 = 20;

/// Returns the rebuilds until the filter is empty, on average over five exponents from 0 to 2.
fn until_empty(ratio: f64, lambda: f64, skews: &[Zipf]) -> Done<f64> {
    let (mut sum, mut executions) = (0.0, 0.0);
    for skew in (0..EXPONENTS).step_by(2) {
        let mut population = Population::new(MEAN as f64, lambda, skews, seed() + skew as u64)?;
        for _ in 0..KEYS * MEAN {
            population.insert(skew)?;
        }
        while !population.live.is_empty() {
            population.either(skew, ratio)?;
        }
        sum += population.rebuilds()?;
        executions += 1.0;
    }
    Ok(sum / executions)
}

/// Fig. 5: rebuilds for each λ and R.
pub fn over_lambda() -> Done {
    let head: Vec<String> = lambdas().map(|lambda| format!("λ {lambda}")).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let names = [&["R"], &*head, &["fewest at λ", "paper: best λ"]].concat();
    let title = "Fig. 5: rebuilds of one block until it is empty, mean over θ = 0, 0.5, 1, 1.5, 2";
    let mut table = Table::new(title, &names);
    let skews = skews();
    let mut curves = Vec::new();
    for ratio in (1..=9).map(|tenth| f64::from(tenth) / 10.0) {
        let rebuilds: Vec<f64> =
            lambdas().map(|lambda| until_empty(ratio, lambda, &skews)).collect::<Done<_>>()?;
        let fewest = rebuilds.iter().copied().fold(f64::MAX, f64::min);
        let best: Vec<f64> =
            lambdas().zip(&rebuilds).filter(|best| *best.1 == fewest).map(|best| best.0).collect();
        let best = match (best.first(), best.last()) {
            (Some(first), Some(last)) if first < last => format!("{first}-{last}"),
            (Some(only), _) => format!("{only}"),
            (None, _) => String::new(),
        };
        let paper = if ratio <= 0.6 { "any".to_owned() } else { format!("{:.1}", 1.0 - ratio) };
        let cells = std::iter::once(format!("{ratio}"))
            .chain(rebuilds.iter().map(|mean| format!("{mean:.1}")))
            .chain([best, paper]);
        let cells: Vec<String> = cells.collect();
        let cells: [String; 13] = cells.try_into().expect("ten thresholds and three others");
        table.row(cells);
        let points = lambdas().zip(rebuilds).collect();
        curves.push(Curve { name: format!("R = {ratio}"), points });
    }
    println!("{table}");
    let figure = Figure {
        file: "dcf-fig5",
        title: "Fig. 5: rebuilds for thresholds λ and ratios R of inserts to removals",
        x: "λ",
        y: ("rebuilds", Scale::Linear),
    };
    draw(&figure, &curves)
}
