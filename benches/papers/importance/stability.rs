//! Fig. 20, the stable point and the bound of the false-positive rate: the closed forms, and the
//! results of filters with the paper's parameters.

use super::contest::{Algorithm, CELLS, Done, K, MAX, P, percent};
use super::plot::{Curve, Figure, Scale, draw};
use super::printed::Cell;
use super::seed::seed;
use super::streams::{HIGHEST, Item};
use super::table::Table;
use ebbtide::kinds::stable::theory::{decrements_for, fp_of_fill};
use ebbtide_testkit::random::{Random, mix};
use ebbtide_testkit::zipf::Zipf;

/// The number of inserts of Fig. 20, and between two points.
const INSERTS: u64 = 60_000;
const EVERY: u64 = 1000;

/// The number of inserts of the synthetic streams that are measured when stable.
const LONG: u64 = 200_000;

/// The number of keys looked up at one moment.
const PROBES: u64 = 20_000;

/// The paper's upper bound of false positives, from which it chose `K` and `P` (section III-D).
const PAPERS_BOUND: f64 = 0.2;

/// Returns distinct keys whose importance is 1 to 50, by the key.
fn distinct(number: u64) -> Item {
    Item { key: number, importance: mix(number ^ seed()) as u32 % HIGHEST + 1 }
}

/// Fig. 20: zeros on the way to the stable point, and with them the false-positive rate.
pub fn figure_20() -> Done {
    let stream: Vec<_> = (0..INSERTS).map(distinct).collect();
    let (mut zeros, mut rates, mut theory) = (Vec::new(), Vec::new(), Vec::new());
    let mut rows: Vec<Vec<String>> = Vec::new();
    for algorithm in Algorithm::ALL {
        let chain = algorithm.chain(&algorithm.shares(&stream));
        let expected = |inserts: u64| match algorithm {
            Algorithm::Bloom => (-f64::from(K) * inserts as f64 / CELLS as f64).exp(),
            _ => chain.zero_after(0, inserts),
        };
        let contestant = algorithm.filter(seed())?;
        let (mut measured, mut found) = (vec![(0.0, 1.0)], Vec::new());
        for (round, part) in (1..).zip(stream.chunks(EVERY as usize)) {
            part.iter().try_for_each(|&item| contestant.take(item).map(drop))?;
            let inserts = (round * EVERY) as f64;
            measured.push((inserts, contestant.zeros()?));
            found.push((inserts, contestant.false_positives(round, PROBES)?));
        }
        let both = |inserts: u64| {
            let zeros = measured[(inserts / EVERY) as usize].1;
            format!("{zeros:.4} / {:.4}", expected(inserts))
        };
        rows.push([1000, 2000, 5000, 10_000, 20_000, 60_000].map(both).to_vec());
        let points = measured.iter().map(|&(inserts, _)| (inserts, expected(inserts as u64)));
        let name = algorithm.name();
        theory.push(Curve { name: format!("{name}, theory"), points: points.collect() });
        zeros.push(Curve { name: name.to_owned(), points: measured });
        rates.push(Curve { name: name.to_owned(), points: found });
    }
    let head = ["filter", "1,000 inserts", "2,000", "5,000", "10,000", "20,000", "60,000"];
    let title = "Fig. 20: share of cells that are zero, measured / theory";
    let mut table = Table::new(title, &head);
    for (algorithm, cells) in Algorithm::ALL.iter().zip(rows) {
        let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(|at| cells[at].clone());
        table.row([algorithm.name().to_owned(), a, b, c, d, e, f]);
    }
    println!("{table}");
    for curve in zeros.iter_mut().chain(&mut theory) {
        curve.points.iter_mut().for_each(|point| point.1 *= CELLS as f64);
    }
    zeros.extend(theory);
    let mut figure = Figure {
        file: "importance-fig20",
        title: "Fig. 20: cells that are zero, of 16,384",
        x: "inserts of distinct keys",
        y: ("cells", Scale::Linear),
    };
    draw(&figure, &zeros)?;
    figure.file = "importance-fig20-fp";
    figure.title = "Beside Fig. 20: false-positive rate";
    figure.y = ("share of keys never inserted that are found", Scale::Logarithmic);
    draw(&figure, &rates)
}

/// A stable filter: the mean share of zeros, the mean false-positive rate, and the mean of the
/// rates implied by each moment's fill.
struct Stable {
    zeros: f64,
    found: f64,
    by_fill: f64,
}

/// Measures a filter at 20 moments of a stream's second half.
fn stable(algorithm: Algorithm, stream: &[Item]) -> Done<Stable> {
    const MOMENTS: usize = 20;
    let contestant = algorithm.filter(seed())?;
    let (before, after) = stream.split_at(stream.len() / 2);
    before.iter().try_for_each(|&item| contestant.take(item).map(drop))?;
    let mut sums = Stable { zeros: 0.0, found: 0.0, by_fill: 0.0 };
    for (round, part) in (0..).zip(after.chunks_exact(after.len() / MOMENTS).take(MOMENTS)) {
        part.iter().try_for_each(|&item| contestant.take(item).map(drop))?;
        let zeros = contestant.zeros()?;
        sums.zeros += zeros / MOMENTS as f64;
        sums.found += contestant.false_positives(round, PROBES)? / MOMENTS as f64;
        sums.by_fill += fp_of_fill(1.0 - zeros, K) / MOMENTS as f64;
    }
    Ok(sums)
}

/// Returns keys in equal classes, as the paper's analysis assumes: half of them important, or
/// equally many of each level.
fn in_equal_classes(algorithm: Algorithm) -> Vec<Item> {
    let item = |number| {
        let random = mix(number ^ seed()) as u32;
        let importance = match algorithm {
            Algorithm::TwoClasses => [1, HIGHEST][random as usize % 2],
            _ => (random % MAX + 1) * HIGHEST / MAX,
        };
        Item { key: number, importance }
    };
    (0..LONG).map(item).collect()
}

/// Prints the stable point and the bound of false positives on streams for which the paper's
/// analysis is made, and on others.
pub fn stable_points(trace: Option<&[Item]>) -> Done {
    let mut random = Random::new(seed());
    let zipf = Zipf::new(100_000, 1.0);
    let skewed: Vec<_> = (0..LONG).map(|_| distinct(zipf.next(&mut random) as u64)).collect();
    let head = [
        "stream",
        "filter",
        "theory: zeros",
        "measured",
        "theory: bound of FP, %",
        "by the measured fill, %",
        "measured, %",
    ];
    let mut table = Table::new("Stable point and FP bound: K = 5, P = 10, 16,384 cells", &head);
    for algorithm in Algorithm::FORGETTING {
        let stream = in_equal_classes(algorithm);
        stable_point(&mut table, "distinct, equal classes", algorithm, &stream)?;
    }
    let others =
        [("Zipf 1 over 100,000 keys", Some(&skewed[..])), ("the whole trace, data 1", trace)];
    for (name, stream) in others {
        for (algorithm, stream) in Algorithm::FORGETTING.into_iter().zip(stream.into_iter().cycle())
        {
            stable_point(&mut table, name, algorithm, stream)?;
        }
    }
    println!("{table}");
    Ok(())
}

fn stable_point(table: &mut Table, name: &str, algorithm: Algorithm, stream: &[Item]) -> Done {
    let chain = algorithm.chain(&algorithm.shares(stream));
    let measured = stable(algorithm, stream)?;
    table.row([
        name.to_owned(),
        algorithm.name().to_owned(),
        format!("{:.4}", chain.stable_point()),
        format!("{:.4}", measured.zeros),
        percent(100.0 * chain.fp_bound(K)),
        percent(100.0 * measured.by_fill),
        percent(100.0 * measured.found),
    ]);
    Ok(())
}

/// Prints the paper's formulas as printed, and the `P` for its upper bound.
pub fn formulas() {
    let cell = Cell::new(CELLS, MAX, K, P);
    let (as_printed, summed) = cell.figure_4();
    let printed = [
        "(the formula of its own paper)".to_owned(),
        format!(
            "{:.4} by Fig. 2, {:.4} by the proof, {:.4} by Fig. 2 with two repairs",
            cell.figure_2(),
            cell.proof_of_theorem_1(),
            cell.figure_2_repaired()
        ),
        format!("{as_printed:.4} by Fig. 4, {summed:.4} if A_i is a sum"),
        "(none)".to_owned(),
    ];
    let head =
        ["filter", "paper: zeros", "closed form", "FP bound, %", "P for an FP bound of 20 %"];
    let mut table = Table::new("Formulas, for classes that are equally frequent", &head);
    for (algorithm, printed) in Algorithm::FORGETTING.into_iter().zip(printed) {
        let shares = algorithm.shares(&in_equal_classes(algorithm));
        let chain = algorithm.chain(&shares);
        let needed = decrements_for(PAPERS_BOUND, CELLS, K, &shares, algorithm.deletion(), 1 << 20);
        table.row([
            algorithm.name().to_owned(),
            printed,
            format!("{:.4}", chain.stable_point()),
            percent(100.0 * chain.fp_bound(K)),
            needed.map_or("none".to_owned(), |needed| needed.to_string()),
        ]);
    }
    println!("{table}");
}
