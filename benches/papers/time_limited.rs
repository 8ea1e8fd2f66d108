//! The experiments of *Time-limited Bloom Filter* (Rodrigues, Shtul, Baquero, Almeida; extended
//! version of the ACM SAC 2023 paper) on our kinds: Table 2 and Fig. 1 to 5, and the rates of
//! section 5.
//!
//! `cargo bench --bench paper_time_limited` prints the paper's results beside ours and draws
//! `target/papers/time-limited-*.svg`. The paper's text has lost the numbers of its settings.
//! Chosen here: a window of 600 s, a distinct key every 10 ms (so 60,000 in the window), four
//! windows; filters that expect a tenth of that rate (under-dimensioned) or ten times of it
//! (over-dimensioned); error rate 0.01 for Fig. 1 to 3. `-- --streams` runs only the streams whose
//! rate changes.

#[path = "time_limited/course.rs"]
mod course;
#[path = "common/plot.rs"]
mod plot;
#[path = "time_limited/printed.rs"]
mod printed;
#[path = "common/seed.rs"]
mod seed;
#[path = "time_limited/streams.rs"]
mod streams;
#[path = "common/table.rs"]
mod table;

use course::{
    Course, KEYS, RATE, Sample, Setting, WINDOW, false_positives, feed, number, options, run,
};
use ebbtide::kinds::age_partitioned::theory::{Phase, fpr};
use ebbtide::{Any, Filter, Parameters};
use plot::{Curve, Figure, Scale, draw};
use seed::seed;
use std::error::Error;
use std::f64::consts::LN_2;
use table::Table;

type Done<T = ()> = Result<T, Box<dyn Error>>;

/// An error rate, the paper's Table 2 for it (bits per element, least and most), and its pairs (k,
/// l) that fit in 64 columns.
type Rate = (f64, (u32, u32), &'static [(u32, u32)]);

const RATES: [Rate; 5] = [
    (0.1, (10, 13), &[(4, 3), (5, 7), (6, 14), (7, 28), (8, 56)]),
    (0.01, (19, 24), &[(7, 5), (8, 8), (9, 14), (10, 25), (11, 46)]),
    (0.001, (26, 35), &[(10, 7), (11, 9), (12, 14), (13, 23), (14, 40)]),
    (1e-4, (32, 45), &[(14, 11), (15, 15), (16, 22), (17, 36)]),
    (1e-5, (41, 56), &[(17, 13), (18, 16), (19, 22), (20, 33)]),
];

/// The number of windows in a stream of Fig. 1 to 5.
const WINDOWS: u64 = 4;

/// The expected rate, relative to the true one, in the two halves of the paper's experiments.
const DIMENSIONS: [(&str, f64); 2] = [("under", 0.1), ("over", 10.0)];

fn main() -> Done {
    // Cargo runs benches as tests too, with another argument; there is nothing to test here.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    println!("seed {}, window {WINDOW} s, {RATE} distinct keys a second\n", seed());
    if std::env::args().any(|argument| argument == "--streams") {
        return streams::changing_rates();
    }
    slices_of_the_paper()?;
    table_2()?;
    streams::changing_rates()?;
    let mut asked = (0, 0);
    for (figure, (name, expected)) in (1..).zip(DIMENSIONS) {
        let courses = adapting(expected)?;
        slices(figure, name, &courses)?;
        memory(name, &courses)?;
        let rates = rates(figure + 3, name, expected)?;
        for course in courses.iter().chain(&rates) {
            asked = (asked.0 + course.asked.0, asked.1 + course.asked.1);
        }
    }
    println!("keys of the window looked up: {}, missed: {} (the paper: none)", asked.0, asked.1);
    Ok(())
}

/// Formats a rate briefly.
fn short(rate: f64) -> String {
    if rate == 0.0 { "0".to_owned() } else { format!("{rate:.1e}") }
}

fn pair((k, l): (u32, u32)) -> String {
    format!("({k}, {l})")
}

/// Formats `least-most` of values, or the only one.
fn range(values: impl Iterator<Item = f64> + Clone, show: fn(f64) -> String) -> String {
    let (least, most) = (values.clone().fold(f64::MAX, f64::min), values.fold(0.0, f64::max));
    format!("{}-{}", show(least), show(most))
}

/// Returns enough probes for a few hundred false positives, but no more than takes a second or two.
fn probes(rate: f64) -> u64 {
    ((400.0 / rate) as u64).clamp(40_000, 4_000_000)
}

/// Returns a count-based filter's bits per element of the window, and its false-positive rate when
/// it is fullest.
fn counted(kind: &str, rate: f64, slices: Option<(u32, u32)>) -> Done<(f64, f64)> {
    let mut parameters = Parameters::new().with("window-items", KEYS);
    parameters = match slices {
        Some((k, l)) => parameters.with("k", k).with("l", l),
        None => parameters.with("fpr", rate),
    };
    let directory = tempfile::tempdir()?;
    let filter =
        Filter::create(directory.path().join("filter"), Any::new(kind, parameters), options())?;
    let parameters = filter.parameters();
    // To the last insert before a step, in the steady state.
    let (bits, until) = if kind == "age-partitioned" {
        let [k, l, generation, words] =
            ["k", "l", "generation", "words"].map(|name| number::<u64>(&parameters, name));
        (64 * words?, 2 * (k? + l?) * generation?)
    } else {
        (number(&parameters, "bits")?, 3 * KEYS)
    };
    feed(&filter, 0..until)?;
    Ok((bits as f64 / KEYS as f64, false_positives(&filter, None, 0, probes(rate))?))
}

/// Section 5: the pairs of slices, by the paper's formulas and measured.
fn slices_of_the_paper() -> Done {
    let head = [
        "error rate",
        "(k, l)",
        "columns",
        "paper: bits",
        "ours: bits",
        "theory: FPR",
        "ours: FPR",
    ];
    let title = "Section 5: age-partitioned filters of the paper's pairs, just before a shift";
    let mut table = Table::new(title, &head);
    for (rate, _, pairs) in RATES {
        for &(k, l) in pairs {
            let (bits, measured) = counted("age-partitioned", rate, Some((k, l)))?;
            let columns = [16, 32, 64].into_iter().find(|&width| k + l <= width).unwrap_or(64);
            table.row([
                format!("{rate}"),
                pair((k, l)),
                format!("{} of {columns}", k + l),
                format!("{:.1}", classical((k, l))),
                format!("{bits:.1}"),
                format!("{:.2e}", fpr(k, l, LN_2, Phase::WORST)),
                format!("{measured:.2e}"),
            ]);
        }
    }
    println!("{table}");
    Ok(())
}

/// Returns the paper's bits per element of the window.
fn classical((k, l): (u32, u32)) -> f64 {
    f64::from((k + l) * k) / (f64::from(l) * LN_2)
}

/// Returns the results of the last window of a filter that expects the true rate: bits per element,
/// and the mean false-positive rate.
fn steady(rate: f64, slices: Option<(u32, u32)>, aim: &'static str) -> Done<(f64, f64)> {
    let (probes, expected) = (probes(rate) / 40, 1.0);
    let setting = Setting { fpr: rate, slices, aim, expected, windows: 3, probes, probed: 1 };
    let course = run(&setting)?;
    let rates = course.samples.iter().filter_map(|sample| sample.fpr);
    let (sum, count) = rates.fold((0.0, 0), |(sum, count), rate| (sum + rate, count + 1));
    let bits = course.samples.last().map_or(0.0, per_element);
    Ok((bits, sum / f64::from(count)))
}

/// Returns the bits of all cells for each element in the window.
fn per_element(sample: &Sample) -> f64 {
    sample.bits as f64 / sample.inserted.min(KEYS) as f64
}

/// Table 2: bits per element in the steady state.
fn table_2() -> Done {
    let head = [
        "error rate",
        "paper",
        "paper's formula, pairs in 64 columns",
        "time-limited, same pairs",
        "for the steady stream",
        "time-limited, planned",
        "for the steady stream",
        "age-partitioned, planned",
        "two-buffer",
        "double-buffering",
    ];
    let mut bits = Table::new("Table 2: bits an element of the window", &head);
    let head = [
        "error rate",
        "same pairs (mean)",
        "for the steady stream",
        "planned (mean)",
        "for the steady stream",
        "age-partitioned",
        "two-buffer",
        "double-buffering",
    ];
    let title = "Their false-positive rates: time-limited over a window, the others when fullest";
    let mut errors = Table::new(title, &head);
    for (rate, paper, pairs) in RATES {
        let all = |aim| -> Done<Vec<_>> {
            pairs.iter().map(|&pair| steady(rate, Some(pair), aim)).collect()
        };
        let (same, even) = (all("worst")?, all("steady")?);
        let (planned, even_plan) = (steady(rate, None, "worst")?, steady(rate, None, "steady")?);
        let [aged, two, double] = ["age-partitioned", "two-buffer", "double-buffering"]
            .map(|kind| counted(kind, rate, None));
        let (aged, two, double) = (aged?, two?, double?);
        let one = |value: f64| format!("{value:.1}");
        bits.row([
            format!("{rate}"),
            format!("{}-{}", paper.0, paper.1),
            range(pairs.iter().map(|&pair| classical(pair)), one),
            range(same.iter().map(|same| same.0), one),
            range(even.iter().map(|even| even.0), one),
            one(planned.0),
            one(even_plan.0),
            one(aged.0),
            one(two.0),
            one(double.0),
        ]);
        errors.row([
            format!("{rate}"),
            range(same.iter().map(|same| same.1), short),
            range(even.iter().map(|even| even.1), short),
            short(planned.1),
            short(even_plan.1),
            short(aged.1),
            short(two.1),
            short(double.1),
        ]);
    }
    println!("{bits}\n{errors}");
    Ok(())
}

/// Runs the filters of Fig. 1 to 3.
fn adapting(expected: f64) -> Done<Vec<Course>> {
    let (rate, _, pairs) = RATES[1];
    let setting = |slices| Setting {
        fpr: rate,
        slices: Some(slices),
        aim: "worst",
        expected,
        windows: WINDOWS,
        probes: 0,
        probed: 0,
    };
    Ok(pairs.iter().map(|&slices| run(&setting(slices))).collect::<Result<_, _>>()?)
}

/// Returns the samples of courses as curves over inserted keys.
fn curves(courses: &[Course], value: impl Fn(&Sample) -> Option<f64>) -> Vec<Curve> {
    let points = |course: &Course| {
        let point = |sample: &Sample| Some((sample.inserted as f64, value(sample)?));
        course.samples.iter().filter_map(point).collect()
    };
    let curve =
        |course: &Course| Curve { name: pair((course.k, course.l)), points: points(course) };
    courses.iter().map(curve).collect()
}

/// Fig. 1 and 2: the number of slices, and the size of the youngest.
fn slices(figure: u32, name: &str, courses: &[Course]) -> Done {
    let head = [
        "(k, l)",
        "k + l",
        "most slices",
        "slices at the end",
        "most banks",
        "paper: best slice 0",
        "slice 0 at first",
        "at the end",
        "settled after (windows)",
    ];
    let title = format!("Fig. {figure}: slices of {name}-dimensioned filters, error rate 0.01");
    let mut table = Table::new(&title, &head);
    for course in courses {
        let (first, last) = (&course.samples[0], &course.samples[course.samples.len() - 1]);
        let most = |value: fn(&Sample) -> u64| course.samples.iter().map(value).max().unwrap_or(0);
        let best = f64::from(course.k) * KEYS as f64 / f64::from(course.l) / LN_2;
        table.row([
            pair((course.k, course.l)),
            format!("{}", course.k + course.l),
            format!("{}", most(|sample| sample.slices)),
            format!("{}", last.slices),
            format!("{}", most(|sample| sample.banks as u64)),
            format!("{best:.0}"),
            format!("{}", first.slice_0),
            format!("{}", last.slice_0),
            format!("{:.2}", course.settled as f64 / KEYS as f64),
        ]);
    }
    println!("{table}");
    let file = format!("time-limited-fig{figure}-slices");
    let title = format!("Fig. {figure}: slices, {name}-dimensioned");
    let mut shown =
        Figure { file: &file, title: &title, x: "keys inserted", y: ("slices", Scale::Linear) };
    draw(&shown, &curves(courses, |sample| Some(sample.slices as f64)))?;
    let file = format!("time-limited-fig{figure}-size");
    let title = format!("Fig. {figure}: size of slice 0, {name}-dimensioned");
    (shown.file, shown.title, shown.y) = (&file, &title, ("bits", Scale::Logarithmic));
    draw(&shown, &curves(courses, |sample| Some(sample.slice_0 as f64)))
}

/// Fig. 3: bits per element of the window.
fn memory(name: &str, courses: &[Course]) -> Done {
    let head = ["(k, l)", "paper's formula", "most after a window", "at the end"];
    let title = format!("Fig. 3: bits an element, {name}-dimensioned, error rate 0.01");
    let mut table = Table::new(&title, &head);
    for course in courses {
        let (k, l) = (course.k, course.l);
        let later = course.samples.iter().filter(|sample| sample.inserted >= KEYS);
        table.row([
            pair((k, l)),
            format!("{:.1}", classical((k, l))),
            format!("{:.1}", later.map(per_element).fold(0.0, f64::max)),
            format!("{:.1}", course.samples.last().map_or(0.0, per_element)),
        ]);
    }
    println!("{table}");
    let figure = Figure {
        file: &format!("time-limited-fig3-{name}"),
        title: &format!("Fig. 3: bits an element, {name}-dimensioned"),
        x: "keys inserted",
        y: ("bits", Scale::Logarithmic),
    };
    draw(&figure, &curves(courses, |sample| Some(per_element(sample))))
}

/// Fig. 4 and 5: the false-positive rate, for filters of few and of many slices.
fn rates(figure: u32, name: &str, expected: f64) -> Done<Vec<Course>> {
    let head =
        ["error rate", "(k, l)", "first window", "highest", "last window: least-most", "mean"];
    let title = format!("Fig. {figure}: false-positive rate, {name}-dimensioned");
    let mut table = Table::new(&title, &head);
    let mut all = Vec::new();
    for (rate, _, pairs) in &RATES[..3] {
        for slices in [pairs[0], pairs[3]] {
            let setting = Setting {
                fpr: *rate,
                aim: "worst",
                slices: Some(slices),
                expected,
                windows: WINDOWS,
                probes: 100_000,
                probed: WINDOWS,
            };
            let course = run(&setting)?;
            let means = |from: u64, to: u64| {
                let within =
                    |sample: &&Sample| (from * KEYS..=to * KEYS).contains(&sample.inserted);
                let rates: Vec<f64> =
                    course.samples.iter().filter(within).filter_map(|sample| sample.fpr).collect();
                (rates.iter().sum::<f64>() / rates.len() as f64, rates)
            };
            let (last, of_last) = means(WINDOWS - 1, WINDOWS);
            let highest = means(0, WINDOWS).1.into_iter().fold(0.0, f64::max);
            table.row([
                format!("{rate}"),
                pair(slices),
                short(means(0, 1).0),
                short(highest),
                range(of_last.into_iter(), short),
                short(last),
            ]);
            all.push(course);
        }
    }
    println!("{table}");
    let mut lines = curves(&all, |sample| sample.fpr);
    let end = (WINDOWS * KEYS) as f64;
    for (rate, _, _) in &RATES[..3] {
        let points = vec![(0.0, *rate), (end, *rate)];
        lines.push(Curve { name: format!("configured: {rate}"), points });
    }
    let figure = Figure {
        file: &format!("time-limited-fig{figure}"),
        title: &title,
        x: "keys inserted",
        y: ("share of keys never inserted that are found", Scale::Logarithmic),
    };
    draw(&figure, &lines)?;
    Ok(all)
}
