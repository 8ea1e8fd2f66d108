//! The experiments of *Inferential Time-Decaying Bloom Filters* (Dautrich and Ravishankar, EDBT
//! 2013) on our `block-timing` filter: Table 3, Fig. 7 to 12, and equation 17 beside equation 15.
//!
//! `cargo bench --bench paper_inferential` prints the paper's results beside ours and draws
//! `target/papers/inferential-fig*.svg`. The setting is the paper's (section 5.1): each item is
//! looked up, then inserted; penalties are uniform in [1, 10); a timer has `max(k, 3)` bits; each
//! filter uses the cheapest number of functions from 1 to 30. After six consecutive numbers that
//! were best for no filter, larger ones are skipped; `-- --patience 30` tries them all. `--
//! --items-log2 18` makes 2^18 queries instead of the paper's 2^22.

#[path = "inferential/contest.rs"]
mod contest;
#[path = "inferential/geometry.rs"]
mod geometry;
#[path = "common/plot.rs"]
mod plot;
#[path = "common/seed.rs"]
mod seed;
#[path = "inferential/streams.rs"]
mod streams;
#[path = "common/table.rs"]
mod table;
#[path = "inferential/trial.rs"]
mod trial;

use contest::{Best, Condition, Point};
use ebbtide::inference::distinct_in_insertions::{self, Distinct};
use plot::{Curve, Figure, Scale, draw};
use seed::seed;
use std::error::Error;
use streams::{Stream, UNIVERSE};
use table::Table;
use trial::{NAMES, Score, by_prior};

type Done<T = ()> = Result<T, Box<dyn Error>>;

/// Bits for each item of the window: the paper's range is lost with its figures.
const MEMORIES: [u64; 8] = [2, 4, 8, 12, 16, 24, 32, 48];

/// The number of queries of a synthetic stream, as a power of two.
const ITEMS_LOG2: u32 = 22;

/// The number of consecutive function counts that are best for no filter, after which no more are
/// tried.
const PATIENCE: u32 = 6;

/// An experiment of the paper, and its text about the figures.
struct Experiment {
    stream: fn(usize) -> Done<Option<Stream>>,
    /// The windows, and the paper's Pos/Neg in Table 3.
    windows: [(u64, f64); 2],
    /// The figures of penalty ratios and Posterior Errors.
    figures: [u32; 2],
    ratio: &'static str,
    error: &'static str,
}

const EXPERIMENTS: [Experiment; 4] = [
    Experiment {
        stream: |queries| Ok(Some(Stream::uniform(queries)?)),
        windows: [(1 << 16, 1.718), (1 << 18, 53.547)],
        figures: [7, 8],
        ratio: "about 0.8",
        error: "under 0.05, 0.025 for many bits",
    },
    Experiment {
        stream: |queries| Ok(Some(Stream::power_law(queries)?)),
        windows: [(1 << 11, 1.182), (1 << 18, 13.451)],
        figures: [9, 10],
        ratio: "lower for the smaller window",
        error: "under 0.035, 0.025 for many bits",
    },
    Experiment {
        stream: |_| Ok(Stream::real("product pages", "web12.keys")?),
        windows: [(1 << 10, 1.171), (1 << 13, 8.893)],
        figures: [11, 12],
        ratio: "below 1 but for few bits and the larger window",
        error: "higher for few bits",
    },
    Experiment {
        stream: |_| Ok(Stream::real("client addresses", "apache_access.log")?),
        windows: [(1 << 4, 1.171), (1 << 10, 8.893)],
        figures: [11, 12],
        ratio: "below 1 but for few bits and the larger window",
        error: "higher for few bits",
    },
];

fn main() -> Done {
    // Cargo runs benches as tests too, with another argument; there is nothing to test here.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let queries = 1 << argument("--items-log2")?.unwrap_or(ITEMS_LOG2);
    let patience = argument("--patience")?.unwrap_or(PATIENCE);
    println!("seed {}, {queries} queries of a synthetic stream, blocks of 16 KiB,", seed());
    println!("no more functions after {patience} numbers of them that were best for no filter\n");
    expected_distinct()?;
    let streams = EXPERIMENTS.iter().map(|experiment| (experiment.stream)(queries));
    let streams: Vec<Option<Stream>> = streams.collect::<Done<_>>()?;
    let there: Vec<(&Experiment, &Stream)> = EXPERIMENTS
        .iter()
        .zip(&streams)
        .filter_map(|(experiment, stream)| Some((experiment, stream.as_ref()?)))
        .collect();
    table_3(&there)?;
    let mut conditions = Vec::new();
    for &(experiment, stream) in &there {
        conditions.extend(experiment.windows.map(|(window, _)| Condition { stream, window }));
    }
    let points = contest::run(&conditions, &MEMORIES, patience)?;
    for ((experiment, _), (conditions, points)) in
        there.iter().zip(conditions.chunks(2).zip(points.chunks(2)))
    {
        for (condition, points) in conditions.iter().zip(points) {
            costs(experiment, condition, points);
            errors(experiment, condition, points);
        }
        figures(experiment, conditions, points)?;
    }
    Ok(())
}

/// Returns the number after an argument of this name, if it is present.
fn argument(name: &str) -> Done<Option<u32>> {
    let value = std::env::args().skip_while(|argument| argument != name).nth(1);
    Ok(value.map(|value| value.parse()).transpose()?)
}

/// Equations 15 and 17 for the power law, and the table that posteriors use.
fn expected_distinct() -> Done {
    let head = ["j", "equation 15", "equation 17", "17 / 15", "our table", "table / 15"];
    let mut table = Table::new("D(j) of the power law over 2^16 keys", &head);
    let (priors, universe) = (streams::power_law(), UNIVERSE as u64);
    let tabulated = Distinct::power_law(universe, 1.0)?;
    for j in [1.0, 10.0, 1e2, 1e3, 1e4, 65_536.0, 1e5, 262_144.0, 1_048_576.0] {
        let exact = distinct_in_insertions::of_each(&priors, j);
        let printed = distinct_in_insertions::power_law_approximated(universe, j);
        let ours = tabulated.of(j);
        table.row([
            format!("{j}"),
            format!("{exact:.1}"),
            format!("{printed:.1}"),
            format!("{:.4}", printed / exact),
            format!("{ours:.1}"),
            format!("{:.4}", ours / exact),
        ]);
    }
    println!("{table}");
    Ok(())
}

/// Table 3, and the cost of answers without any filter.
fn table_3(there: &[(&Experiment, &Stream)]) -> Done {
    let head = [
        "stream",
        "queries",
        "keys",
        "w",
        "paper: Pos/Neg",
        "by formula",
        "measured",
        "penalty a query by the prior alone",
        "always \"yes\"",
    ];
    let mut table = Table::new("Table 3: streams and windows", &head);
    for (experiment, stream) in there {
        for (window, paper) in experiment.windows {
            let odds = stream.odds(window);
            table.row([
                stream.name.to_owned(),
                format!("{}", stream.keys.len() - stream.warm_up),
                format!("{}", stream.priors.len()),
                power_of_two(window),
                format!("{paper}"),
                format!("{:.3}", stream.expected_odds(window)),
                format!("{odds:.3}"),
                format!("{:.4}", by_prior(stream, window)?.penalty()),
                format!("{:.4}", 5.5 / (1.0 + odds)),
            ]);
        }
    }
    println!("{table}");
    Ok(())
}

fn power_of_two(window: u64) -> String {
    format!("2^{}", window.ilog2())
}

/// Formats a value of the best trial of a filter, or nothing if no trial was possible.
fn show(best: Option<&Best>, value: impl Fn(&Best) -> String) -> String {
    best.map(value).unwrap_or_default()
}

/// Returns the mean penalty of a query.
fn penalty(point: &Point, filter: usize) -> Option<f64> {
    Some(point.best[filter].as_ref()?.score.penalty())
}

/// Returns the penalty of an inferential filter relative to that of the standard one, if that was
/// ever wrong.
fn ratio(point: &Point, filter: usize) -> Option<f64> {
    let standard = penalty(point, 0).filter(|&penalty| penalty > 0.0)?;
    Some(penalty(point, filter)? / standard)
}

/// Prints the results of the figure of penalty ratios, for one window.
fn costs(experiment: &Experiment, condition: &Condition<'_>, points: &[Point]) {
    let head = [
        "bits an item",
        "k tried",
        "standard: k, B",
        "wrong answers",
        "penalty a query",
        "the paper's form: k, B",
        "penalty",
        "ratio",
        "refined: k, B",
        "penalty ",
        "ratio ",
    ];
    let title = format!(
        "{}, w = {}: penalties, inferential / standard; the paper: {}",
        condition.stream.name,
        power_of_two(condition.window),
        experiment.ratio
    );
    let mut table = Table::new(&title, &head);
    for point in points {
        let chosen = |filter: usize| {
            show(point.best[filter].as_ref(), |best| {
                format!("{}, {}", best.geometry.k, best.geometry.batch)
            })
        };
        let cost = |filter| penalty(point, filter).map_or(String::new(), |p| format!("{p:.5}"));
        let part = |filter| ratio(point, filter).map_or(String::new(), |r| format!("{r:.3}"));
        let tried = match &point.tried[..] {
            [first, .., last] => format!("{first}-{last}"),
            tried => format!("{tried:?}"),
        };
        table.row([
            format!("{}", point.bpi),
            tried,
            chosen(0),
            show(point.best[0].as_ref(), |best| format!("{}", best.score.wrong())),
            cost(0),
            chosen(1),
            cost(1),
            part(1),
            chosen(2),
            cost(2),
            part(2),
        ]);
    }
    println!("{table}");
}

/// Prints the results of the figure of Posterior Errors, for one window.
fn errors(experiment: &Experiment, condition: &Condition<'_>, points: &[Point]) {
    let head = [
        "bits an item",
        "the paper's form: Posterior Error",
        "from the mean posterior",
        "refined: Posterior Error",
        "from the mean posterior ",
    ];
    let title = format!(
        "{}, w = {}: Posterior Error; the paper: {}",
        condition.stream.name,
        power_of_two(condition.window),
        experiment.error
    );
    let mut table = Table::new(&title, &head);
    for point in points {
        let error = |filter: usize, error: fn(&Score) -> f64| {
            show(point.best[filter].as_ref(), |best| format!("{:.4}", error(&best.score)))
        };
        table.row([
            format!("{}", point.bpi),
            error(1, Score::posterior_error),
            error(1, Score::calibration_error),
            error(2, Score::posterior_error),
            error(2, Score::calibration_error),
        ]);
    }
    println!("{table}");
}

/// Draws the tables of the windows, and also the penalties.
fn figures(experiment: &Experiment, conditions: &[Condition<'_>], points: &[Vec<Point>]) -> Done {
    let curves = |filters: &[usize], value: fn(&Point, usize) -> Option<f64>| {
        let of = |filter: usize, window: u64, points: &[Point]| {
            let at = |point: &Point| Some((point.bpi as f64, value(point, filter)?));
            let name = format!("w = {}, {}", power_of_two(window), NAMES[filter]);
            Curve { name, points: points.iter().filter_map(at).collect() }
        };
        let pairs = conditions.iter().zip(points);
        let all = pairs.flat_map(|(condition, points)| {
            filters.iter().map(move |&filter| of(filter, condition.window, points))
        });
        all.collect::<Vec<_>>()
    };
    let error = |point: &Point, filter: usize| {
        point.best[filter].as_ref().map(|best| best.score.posterior_error())
    };
    let stream = conditions.first().map_or("", |condition| condition.stream.name);
    let [ratios, errors] = experiment.figures;
    let x = "bits for each item of the window";
    let of = |number: u32, what: &str, y, curves: &[Curve]| {
        let file = format!("inferential-fig{number}-{what}-{stream}").replace(' ', "-");
        let title = format!("Fig. {number}: {what}, {stream}");
        draw(&Figure { file: &file, title: &title, x, y }, curves)
    };
    let ratio_axis = ("inferential / standard", Scale::Linear);
    of(ratios, "penalty ratios", ratio_axis, &curves(&[1, 2], ratio))?;
    let penalty_axis = ("penalty a query", Scale::Logarithmic);
    of(ratios, "penalties", penalty_axis, &curves(&[0, 1, 2], penalty))?;
    of(errors, "posterior errors", ("Posterior Error", Scale::Linear), &curves(&[1, 2], error))
}
