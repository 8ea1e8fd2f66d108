//! The experiments of *Importance-aware Bloom Filter* (Kulkarni, Boraskar, Gabale, Kulkarni) on our
//! kinds: Table I and Fig. 5 to 20, and the formulas of Fig. 2 and 4.
//!
//! `cargo bench --bench paper_importance` prints the paper's results beside ours and draws
//! `target/papers/importance-fig*.svg`. The parameters are those of Table II. The paper leaves the
//! following open. False positives are counted among items that occur for the first time, false
//! negatives among items that have occurred before. A stream has the length at which a Bloom filter
//! of one bit per cell has Table I's 34.81 % false positives. `f(imp) = ⌈7·imp/50⌉`, at least 1.
//! `streams` defines how synthetic streams are drawn.

#[path = "importance/contest.rs"]
mod contest;
#[path = "common/plot.rs"]
mod plot;
#[path = "importance/printed.rs"]
mod printed;
#[path = "importance/readings.rs"]
mod readings;
#[path = "importance/repeats.rs"]
mod repeats;
#[path = "common/seed.rs"]
mod seed;
#[path = "importance/sets.rs"]
mod sets;
#[path = "importance/stability.rs"]
mod stability;
#[path = "importance/storage.rs"]
mod storage;
#[path = "importance/streams.rs"]
mod streams;
#[path = "common/table.rs"]
mod table;

use contest::{Algorithm, CELLS, Contest, Done, K, percent};
use ebbtide::kinds::bloom;
use ebbtide_testkit::random::Random;
use seed::seed;
use sets::{Set, claims_of_synthetic, claims_of_trace};
use streams::{Item, Occurs, Request, Synthetic, shuffle};
use table::Table;

/// Table I: FP, FN, wFP, wFN of the five filters on the two sets that the paper derived from its
/// trace.
const PAPER: [[[f64; 4]; 5]; 2] = [
    [
        [34.81, 0.0, 35.29, 0.0],
        [25.83, 0.84, 26.23, 0.87],
        [16.14, 2.49, 16.34, 1.99],
        [5.19, 8.91, 5.23, 4.76],
        [9.08, 13.25, 9.39, 10.43],
    ],
    [
        [34.81, 0.0, 34.17, 0.0],
        [26.0, 0.9, 25.55, 0.81],
        [10.16, 3.97, 9.95, 2.91],
        [0.84, 14.01, 0.87, 7.52],
        [0.12, 16.07, 0.07, 10.34],
    ],
];

/// The paper's use of its trace: the mapping of items to importances, and the figures.
type OfTrace = (&'static str, fn(&[Request]) -> Vec<Item>, [u32; 3]);

const OF_TRACE: [OfTrace; 2] = [
    ("trace, data 1", streams::proportional, [5, 6, 7]),
    ("trace, data 2", streams::percentiles, [8, 9, 10]),
];

/// The synthetic sets and their figures, and the shares of items that repeat.
const SYNTHETIC: [(&str, Occurs, [u32; 3]); 3] = [
    ("synthetic data 1, all equally frequent", Occurs::Alike, [11, 12, 13]),
    ("synthetic data 2, frequent as important", Occurs::WithImportance, [17, 18, 19]),
    ("synthetic data 3, rare as important", Occurs::AgainstImportance, [14, 15, 16]),
];
const REPEATING: [f64; 3] = [0.1, 0.3, 0.5];

/// The share that the figures show.
const DRAWN: f64 = 0.3;

/// The number of permutations of the trace, and of streams of each synthetic set.
const STREAMS: usize = 20;

fn main() -> Done {
    // Cargo runs benches as tests too, with another argument; there is nothing to test here.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let elements = elements(PAPER[0][0][0] / 100.0);
    println!(
        "seed {}, streams of {elements} distinct elements, {STREAMS} streams of a set\n",
        seed()
    );
    let requests = streams::trace()?;
    match &requests {
        Some(requests) => of_trace(requests, elements)?,
        None => println!(
            "../shared/data/cdn_requests.txt is missing: Table I and Fig. 5 to 10 are skipped\n"
        ),
    }
    repeats::table(&PAPER, elements, STREAMS)?;
    synthetic(elements)?;
    stability::formulas();
    stability::figure_20()?;
    let whole = requests.as_deref().map(streams::proportional);
    stability::stable_points(whole.as_deref())
}

/// Returns the number of distinct elements after which a Bloom filter of [`CELLS`] bits has had
/// this share of false positives.
fn elements(share: f64) -> usize {
    let (mut wrong, mut elements) = (0.0, 0);
    while elements == 0 || wrong / f64::from(elements) < share {
        wrong += bloom::fpr(elements.into(), CELLS as f64, K, 1.0);
        elements += 1;
    }
    elements as usize
}

/// Table I, and Fig. 5 to 10.
fn of_trace(requests: &[Request], elements: usize) -> Done {
    let part = streams::with_elements(requests, elements);
    let share = 100.0 * (1.0 - elements as f64 / part.len() as f64);
    println!(
        "trace: the first {} of {} requests, {share:.1} % repeat\n",
        part.len(),
        requests.len()
    );
    let permuted = OF_TRACE.map(|(_, importance, _)| permutations(&importance(part)));
    for (((name, importance, figures), paper), streams) in
        OF_TRACE.into_iter().zip(&PAPER).zip(&permuted)
    {
        let in_order = Contest::run(&vec![importance(part); STREAMS])?;
        let set = Set { name, figures, contest: Contest::run(streams)? };
        table_1(name, paper, [&in_order, &set.contest]);
        set.draw()?;
        set.print();
        claims_of_trace(&set);
    }
    readings::table(&PAPER, &permuted)?;
    let whole = streams::percentiles(requests);
    [16, 4].into_iter().try_for_each(|kibibytes| storage::same_storage(kibibytes, &whole))
}

/// Returns [`STREAMS`] permutations, the same for every set.
fn permutations(stream: &[Item]) -> Vec<Vec<Item>> {
    let mut random = Random::new(seed());
    let permuted = |_| {
        let mut stream = stream.to_vec();
        shuffle(&mut stream, &mut random);
        stream
    };
    (0..STREAMS).map(permuted).collect()
}

fn table_1(name: &str, paper: &[[f64; 4]; 5], [in_order, permuted]: [&Contest; 2]) {
    let head = [
        "filter",
        "FP: paper",
        "in order",
        "permuted",
        "FN: paper",
        "in order",
        "permuted",
        "wFP: paper",
        "in order",
        "permuted",
        "wFN: paper",
        "in order",
        "permuted",
    ];
    let title = format!("Table I: {name}, in %; the trace in its order, and permuted");
    let mut table = Table::new(&title, &head);
    for (algorithm, paper) in Algorithm::ALL.into_iter().zip(paper) {
        let [ours, other] = [in_order, permuted].map(|each| each.of(algorithm).aggregates());
        let cell = |at: usize| percent([paper, &ours, &other][at % 3][at / 3]);
        let cells: [String; 13] = std::array::from_fn(|at| match at.checked_sub(1) {
            Some(at) => cell(at),
            None => algorithm.name().to_owned(),
        });
        table.row(cells);
    }
    println!("{table}");
}

/// Fig. 11 to 19.
fn synthetic(elements: usize) -> Done {
    let mut rates = synthetic_table("false positives / false negatives");
    let mut weighted = synthetic_table("the same, weighted with importance");
    let mut drawn = Vec::new();
    for (name, occurs, figures) in SYNTHETIC {
        for repeating in REPEATING {
            let source = Synthetic::new(occurs, elements, repeating);
            let mut random = Random::new(seed());
            let streams: Vec<_> = (0..STREAMS).map(|_| source.stream(&mut random)).collect();
            let contest = Contest::run(&streams)?;
            let row = |both: fn([f64; 4]) -> (f64, f64)| {
                let [a, b, c, d, e] = Algorithm::ALL.map(|algorithm| {
                    let (fp, missed) = both(contest.of(algorithm).aggregates());
                    format!("{fp:.1} / {missed:.1}")
                });
                [name.to_owned(), format!("{:.0} %", 100.0 * repeating), a, b, c, d, e]
            };
            rates.row(row(|[fp, missed, _, _]| (fp, missed)));
            weighted.row(row(|[_, _, fp, missed]| (fp, missed)));
            if repeating == DRAWN {
                drawn.push(Set { name, figures, contest });
            }
        }
    }
    println!("{rates}\n{weighted}");
    for set in &drawn {
        set.draw()?;
        set.print();
    }
    if let Ok(sets) = <[Set; 3]>::try_from(drawn) {
        claims_of_synthetic(&sets);
    }
    Ok(())
}

fn synthetic_table(what: &str) -> Table {
    let head = ["set", "repeating", "BF", "SBF", "IBF-2C", "IBF-MC", "IBF-H"];
    Table::new(&format!("Synthetic sets: {what}, in %"), &head)
}
