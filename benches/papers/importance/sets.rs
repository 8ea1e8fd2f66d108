//! Fig. 5 to 19: for each data set the distribution of importance, false positives and false
//! negatives by importance; and the claims of the paper's text about them.

use super::contest::{Algorithm, Contest, Counts, Done, Score, percent};
use super::plot::{Curve, Figure, Scale, draw};
use super::streams::HIGH;
use super::table::Table;
use std::ops::RangeInclusive;

/// The paper discusses importance above 35; the range below is split in two.
const BANDS: [RangeInclusive<u32>; 3] = [0..=15, 16..=35, HIGH];

/// A data set and its results.
pub struct Set {
    /// The paper's name of the set.
    pub name: &'static str,
    /// The paper's figures: distribution, false positives, false negatives.
    pub figures: [u32; 3],
    /// All its streams, in all filters.
    pub contest: Contest,
}

/// Returns a curve for each filter: a rate of each importance.
fn curves(contest: &Contest, rate: fn(&Score, u32) -> f64) -> Vec<Curve> {
    let curve = |algorithm: &Algorithm| {
        let score = contest.of(*algorithm);
        let points = score.by_importance().map(|(at, _)| (at.into(), rate(score, at)));
        Curve { name: algorithm.name().to_owned(), points: points.collect() }
    };
    Algorithm::ALL.iter().map(curve).collect()
}

fn false_positives(score: &Score, importance: u32) -> f64 {
    score.false_positives(importance..=importance)
}

fn false_negatives(score: &Score, importance: u32) -> f64 {
    score.false_negatives(importance..=importance)
}

impl Set {
    /// Draws the three figures.
    pub fn draw(&self) -> Done {
        let [distribution, positives, negatives] = self.figures;
        let score = self.contest.of(Algorithm::Bloom);
        let streams = self.contest.streams as f64;
        let count = |name: &str, of: fn(u64, u64) -> u64| {
            let point = |(at, counts): (u32, &Counts)| {
                (at.into(), of(counts.first, counts.repeated) as f64 / streams)
            };
            Curve { name: name.to_owned(), points: score.by_importance().map(point).collect() }
        };
        let items =
            [count("elements", |first, _| first), count("items", |first, more| first + more)];
        let plots = [
            (distribution, "Data distribution", "in a stream", items.into()),
            (
                positives,
                "False positives",
                "% of first items",
                curves(&self.contest, false_positives),
            ),
            (
                negatives,
                "False negatives",
                "% of repeated items",
                curves(&self.contest, false_negatives),
            ),
        ];
        for (number, what, label, curves) in plots {
            let figure = Figure {
                file: &format!("importance-fig{number}"),
                title: &format!("Fig. {number}: {what}: {}", self.name),
                x: "importance",
                y: (label, Scale::Linear),
            };
            draw(&figure, &curves)?;
        }
        Ok(())
    }

    /// Prints the figures' curves, in three bands of importance.
    pub fn print(&self) {
        let [_, positives, negatives] = self.figures;
        let title = format!("Fig. {positives} and {negatives}: {}, rates in %", self.name);
        let head =
            ["filter", "FP: to 15", "16 to 35", "above 35", "FN: to 15", "16 to 35", "above 35"];
        let mut table = Table::new(&title, &head);
        for algorithm in Algorithm::ALL {
            let score = self.contest.of(algorithm);
            let [a, b, c] = BANDS.map(|band| percent(score.false_positives(band)));
            let [d, e, f] = BANDS.map(|band| percent(score.false_negatives(band)));
            table.row([algorithm.name().to_owned(), a, b, c, d, e, f]);
        }
        println!("{table}");
    }

    /// Returns at how many importances a filter has fewer false positives, or negatives, than SBF,
    /// and the median difference.
    fn fewer(&self, rate: fn(&Score, u32) -> f64) -> String {
        let tell = |algorithm: &Algorithm| {
            let [ours, stable] = [*algorithm, Algorithm::Stable].map(|each| self.contest.of(each));
            let less = |(at, _)| rate(stable, at) - rate(ours, at);
            let mut fewer: Vec<_> = ours.by_importance().map(less).collect();
            fewer.sort_by(f64::total_cmp);
            let count = fewer.iter().filter(|&&fewer| fewer > 0.0).count();
            let median = fewer[fewer.len() / 2];
            format!("{} at {count} of {}, by {median:.1}", algorithm.name(), fewer.len())
        };
        Algorithm::ALL[2..].iter().map(tell).collect::<Vec<_>>().join("; ")
    }

    /// Returns the rate of each of some filters in a band.
    fn in_band(
        &self,
        algorithms: &[Algorithm],
        band: &RangeInclusive<u32>,
        rate: fn(&Score, RangeInclusive<u32>) -> f64,
    ) -> String {
        let tell = |algorithm: &Algorithm| {
            let rate = rate(self.contest.of(*algorithm), band.clone());
            format!("{} {rate:.1}", algorithm.name())
        };
        algorithms.iter().map(tell).collect::<Vec<_>>().join(", ")
    }

    /// Returns a rate from the lowest importances to the highest.
    fn course(
        &self,
        algorithms: &[Algorithm],
        rate: fn(&Score, RangeInclusive<u32>) -> f64,
    ) -> String {
        let tell = |algorithm: &Algorithm| {
            let rates = BANDS.map(|band| rate(self.contest.of(*algorithm), band));
            format!("{} {:.1}, {:.1}, {:.1}", algorithm.name(), rates[0], rates[1], rates[2])
        };
        algorithms.iter().map(tell).collect::<Vec<_>>().join("; ")
    }
}

/// Prints the paper's claims about Fig. 6, 7, 9 and 10, and our results; `set` is one of the two
/// derived from the trace.
pub fn claims_of_trace(set: &Set) {
    let [_, positives, negatives] = set.figures;
    let mut table = claims();
    let mut say = |figure: u32, paper: &str, ours: String| {
        table.row([figure.to_string(), paper.to_owned(), ours]);
    };
    let (band, forgetting) = (&BANDS[2], &Algorithm::FORGETTING);
    let paper = "IBF has 15 % less FP than SBF at almost all importances";
    say(positives, paper, set.fewer(false_positives));
    let paper = "IBF has the same or lower FN than SBF at higher importance";
    say(negatives, paper, set.in_band(forgetting, band, Score::false_negatives));
    say(negatives, "(fewer FN than SBF, importance by importance)", set.fewer(false_negatives));
    let paper = "FN falls with importance in 2C and MC";
    say(negatives, paper, set.course(&Algorithm::ALL[2..], Score::false_negatives));
    println!("{table}");
}

/// Prints the paper's claims about Fig. 12 to 19, and our results; the sets are the three synthetic
/// ones.
pub fn claims_of_synthetic([first, second, third]: &[Set; 3]) {
    let mut table = claims();
    let mut say = |figure: &str, paper: &str, ours: String| {
        table.row([figure.to_owned(), paper.to_owned(), ours]);
    };
    let (band, forgetting) = (&BANDS[2], &Algorithm::FORGETTING);
    let unaware = &Algorithm::ALL[..2];
    let (fp, fn_) = (Score::false_positives, Score::false_negatives);
    let paper = "IBF has lower FP than SBF at almost all importances";
    say("12", paper, first.fewer(false_positives));
    let paper = "IBF has about the same or lower FN at higher importance";
    say("13", paper, first.in_band(forgetting, band, fn_));
    say("15", "FP of BF and SBF goes up with importance", third.course(unaware, fp));
    say("16", "(and FN of SBF, as Fig. 16 is named too)", third.course(&unaware[1..], fn_));
    say("15", "above 35 IBF has about 8 % lower FP than SBF", third.in_band(forgetting, band, fp));
    say("16", "and about 4 % lower FN", third.in_band(forgetting, band, fn_));
    let paper = "IBF-H as IBF-MC, with higher FN";
    say("16", paper, third.course(&Algorithm::ALL[3..], fn_));
    let paper = "2C tells two classes of importance apart";
    say("16", paper, third.course(&[Algorithm::TwoClasses], fn_));
    let paper = "IBF is as good as SBF at higher importance";
    say("18", paper, second.in_band(forgetting, band, fp));
    say("19", paper, second.in_band(forgetting, band, fn_));
    println!("{table}");
}

fn claims() -> Table {
    let title =
        "What the paper says of its figures, and what is here (in %; bands: to 15, to 35, above)";
    Table::new(title, &["Fig.", "paper", "ours"])
}
