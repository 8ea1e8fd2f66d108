//! One trial: each item of a stream is looked up in a filter, and then inserted; the cost of the
//! answers.

use super::geometry::Geometry;
use super::seed::seed;
use super::streams::Stream;
use ebbtide::inference::{self, Penalty, decide};
use ebbtide::media::Memory;
use ebbtide::{Durability, Filter, Form, Options, Result};
use ebbtide_testkit::random::Random;
use std::sync::Arc;

/// The number of bins of equation 28.
const BINS: usize = 20;

/// Queries with about the same posterior.
#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    queries: f64,
    /// The number of queries of keys in the window.
    inside: f64,
    /// The sum of their posteriors.
    posteriors: f64,
}

/// The answers to the queries of a trial, and their cost.
#[derive(Debug, Clone, Default)]
pub struct Score {
    queries: f64,
    penalty: f64,
    wrong: u64,
    bins: [Bin; BINS],
}

impl Score {
    fn answer(&mut self, yes: bool, inside: bool, penalty: Penalty) {
        self.queries += 1.0;
        self.wrong += u64::from(yes != inside);
        self.penalty += match (yes, inside) {
            (true, false) => penalty.false_positive,
            (false, true) => penalty.false_negative,
            _ => 0.0,
        };
    }

    fn posterior(&mut self, posterior: f64, inside: bool, penalty: Penalty) -> Result<()> {
        self.answer(decide(posterior, penalty)?, inside, penalty);
        let bin = &mut self.bins[((posterior * BINS as f64) as usize).min(BINS - 1)];
        bin.queries += 1.0;
        bin.inside += f64::from(u8::from(inside));
        bin.posteriors += posterior;
        Ok(())
    }

    /// Returns the number of wrong answers.
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    /// Returns the mean penalty of a query.
    pub fn penalty(&self) -> f64 {
        self.penalty / self.queries
    }

    /// Returns the Posterior Error, equation 28: the mean distance of the share of keys in the
    /// window from the middle of the bin.
    pub fn posterior_error(&self) -> f64 {
        self.error(|bin, _| (bin as f64 + 0.5) / BINS as f64)
    }

    /// Returns the same with the mean posterior of the bin instead of its middle: correct
    /// posteriors then have no error.
    pub fn calibration_error(&self) -> f64 {
        self.error(|_, posterior| posterior)
    }

    fn error(&self, expected: impl Fn(usize, f64) -> f64) -> f64 {
        let filled = self.bins.iter().enumerate().filter(|(_, bin)| bin.queries > 0.0);
        let errors = filled.map(|(number, bin)| {
            let share = bin.inside / bin.queries;
            (share - expected(number, bin.posteriors / bin.queries)).abs() * bin.queries
        });
        errors.sum::<f64>() / self.queries
    }
}

/// Returns the penalties of the queries in turn: both uniform in [1, 10), the same in all trials.
fn penalties() -> impl Iterator<Item = Penalty> {
    let mut random = Random::new(!seed());
    let mut next = move || 1.0 + 9.0 * (random.below(1 << 53) as f64 / (1_u64 << 53) as f64);
    std::iter::from_fn(move || Some(Penalty { false_positive: next(), false_negative: next() }))
}

/// The answers of the three filters: the standard one, the inferential one by the paper's formulas,
/// and by the refined ones.
pub type Scores = [Score; 3];

/// The names of the three filters.
pub const NAMES: [&str; 3] = ["standard", "the paper's form", "refined"];

/// Runs a filter of this geometry over a stream. All three filters read the same cells.
///
/// # Errors
///
/// Those of the filter.
pub fn run(stream: &Stream, geometry: &Geometry) -> Result<Scores> {
    let options = Options::new().hash_seed(seed()).stripes(1).durability(Durability::Never);
    let filter = Filter::create_on(Arc::new(Memory::new()), geometry.spec(), options)?;
    stream.keys[..stream.warm_up]
        .iter()
        .try_for_each(|key| filter.insert(key.to_le_bytes()).map(drop))?;
    let model = inference::Stream::new(0.0, stream.distinct.clone());
    let (printed, refined) = (filter.call().form(Form::Paper), filter.call());
    let mut scores = Scores::default();
    for ((key, prior, inside), penalty) in stream.queries(geometry.window).zip(penalties()) {
        let (key, prior) = (key.to_le_bytes(), model.with(prior));
        scores[0].answer(filter.contains(key)?, inside, penalty);
        scores[1].posterior(printed.posterior(key, &prior)?, inside, penalty)?;
        scores[2].posterior(refined.posterior(key, &prior)?, inside, penalty)?;
        filter.insert(key)?;
    }
    Ok(scores)
}

/// Returns the cost of decisions by the prior alone, without any filter: `1 - (1-p_x)^w` instead of
/// the posterior.
///
/// # Errors
///
/// None is expected: priors are probabilities.
pub fn by_prior(stream: &Stream, window: u64) -> Result<Score> {
    let mut score = Score::default();
    for ((_, prior, inside), penalty) in stream.queries(window).zip(penalties()) {
        let belief = inference::Survival::of_inserts(prior).within(window);
        score.posterior(belief, inside, penalty)?;
    }
    Ok(score)
}
