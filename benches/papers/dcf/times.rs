//! Fig. 6, 8 and 9: the times of operations and rebuilds, and the number of rebuilds.

use super::model::Model;
use super::plot::{Curve, Figure, Scale, draw};
use super::runs::{Done, Kind, Setting, Stream, Timed, run};
use super::table::Table;
use ebbtide::kinds::dynamic_count::fixed_bits;

/// The paper's mean count `M/n`.
const MEAN: u64 = 100;

/// Fig. 6: numbers of keys; the number of batches for a key's count; timed chunks, and repeats; the
/// paper's rebuilds, of DCF and SBF.
const SIZES: [(u64, u64, usize, usize, &str, &str); 4] = [
    (1000, 1, 200, 5, "", ""),
    (10_000, 1, 200, 3, "8", "over 45000"),
    (100_000, 1, 100, 2, "", ""),
    (1_000_000, 10, 100, 2, "9", "over 4.5 million"),
];

/// Formats a time in whole nanoseconds.
fn whole(nanos: f64) -> String {
    format!("{nanos:.0}")
}

/// Fig. 6, and the rebuilds mentioned in its text.
pub fn sizes() -> Done {
    let head = [
        "n",
        "at once",
        "DCF blocks",
        "their rebuilds",
        "rewritten / m",
        "one global OFV (model)",
        "paper: DCF",
        "SBF expansions",
        "expansions / n",
        "SBF store rebuilds",
        "paper: SBF",
    ];
    let title = "Rebuilds, M = 100 n uniform keys inserted, then removed";
    let mut rebuilds = Table::new(title, &head);
    let head = ["n", "kind", "insert", "remove", "read", "rebuild", "counters a rebuild"];
    let mut times = Table::new("Fig. 6: nanoseconds of an operation", &head);
    let mut curves: Vec<Curve> = ["DCF", "SBF"]
        .iter()
        .flat_map(|kind| ["read", "write", "rebuild"].map(|name| format!("{kind} {name}")))
        .map(|name| Curve { name, points: Vec::new() })
        .collect();
    for (keys, lot, chunks, repeats, paper_dcf, paper_sbf) in SIZES {
        let stream = Stream::zipf(keys, keys * MEAN / lot, 0.0, lot as u32);
        let run = |kind| run(Setting::new(kind, keys, MEAN as f64), &stream, chunks, repeats);
        let (dynamic, spectral) = (run(Kind::Dynamic)?, run(Kind::Spectral)?);
        let cells = Setting::new(Kind::Dynamic, keys, MEAN as f64).cells;
        let mut model = Model::new(cells, cells);
        stream.inserts.iter().for_each(|&key| model.insert(key, lot));
        rebuilds.row([
            format!("{keys}"),
            format!("{lot}"),
            format!("{}", dynamic.empty.blocks),
            format!("{}", dynamic.empty.rebuilds),
            format!("{:.2}", dynamic.empty.rewritten as f64 / cells as f64),
            format!("{:.0}", model.rebuilds(fixed_bits(MEAN as f64))),
            paper_dcf.to_owned(),
            format!("{}", spectral.empty.expansions),
            format!("{:.1}", spectral.empty.expansions as f64 / keys as f64),
            format!("{}", spectral.empty.rebuilds),
            paper_sbf.to_owned(),
        ]);
        let (of_dynamic, of_spectral) = curves.split_at_mut(3);
        operations(keys, "DCF", &dynamic, &mut times, of_dynamic);
        operations(keys, "SBF", &spectral, &mut times, of_spectral);
    }
    println!("{rebuilds}\n{times}");
    let figure = Figure {
        file: "dcf-fig6",
        title: "Fig. 6: time to read, write and rebuild",
        x: "n, as a power of ten",
        y: ("microseconds", Scale::Logarithmic),
    };
    draw(&figure, &curves)
}

/// Adds the cost of operations to the table of Fig. 6 and to the curves for reads, writes and
/// rebuilds.
fn operations(keys: u64, kind: &str, timed: &Timed, times: &mut Table, curves: &mut [Curve]) {
    let events = (timed.empty.expansions + timed.empty.rebuilds).max(1) as f64;
    let a_rebuild = (timed.inserts.rebuilding + timed.removals.rebuilding) / events;
    times.row([
        format!("{keys}"),
        kind.to_owned(),
        whole(timed.inserts.each),
        whole(timed.removals.each),
        whole(timed.read),
        whole(a_rebuild),
        format!("{:.0}", timed.empty.rewritten as f64 / events),
    ]);
    let write = f64::midpoint(timed.inserts.each, timed.removals.each);
    for (curve, nanos) in curves.iter_mut().zip([timed.read, write, a_rebuild]) {
        curve.points.push(((keys as f64).log10(), nanos / 1000.0));
    }
}

/// The number of keys of Fig. 8 and 9.
const KEYS: u64 = 1000;

/// The points of a curve for each of these kinds.
struct Lines {
    names: &'static [&'static str],
    points: Vec<Vec<(f64, f64)>>,
}

impl Lines {
    fn new(names: &'static [&'static str]) -> Self {
        Self { names, points: vec![Vec::new(); names.len()] }
    }

    fn add(&mut self, x: f64, values: impl IntoIterator<Item = f64>) {
        for (points, y) in self.points.iter_mut().zip(values) {
            points.push((x, y));
        }
    }

    fn draw(self, file: &str, title: &str, y: (&str, Scale)) -> Done {
        let names = self.names.iter().map(|&name| name.to_owned());
        let curves: Vec<Curve> =
            names.zip(self.points).map(|(name, points)| Curve { name, points }).collect();
        draw(&Figure { file, title, x: "skew θ", y }, &curves)
    }
}

/// Fig. 8 and 9: the total time of a stream, and the share of rebuilds in it.
pub fn skews() -> Done {
    let head = [
        "θ",
        "DCF (ms)",
        "SBF (ms)",
        "CBF (ms)",
        "SBF / DCF",
        "DCF rebuilds",
        "SBF expansions",
        "DCF: % rebuilding",
        "SBF: % rebuilding",
    ];
    let title = "Fig. 8 and 9: n = 1000, M = 100 n inserts and as many removals";
    let mut table = Table::new(title, &head);
    let mut totals = Lines::new(&["DCF", "SBF", "CBF"]);
    let mut rebuilds = Lines::new(&["DCF rebuilds", "SBF expansions"]);
    let mut shares = Lines::new(&["DCF", "SBF"]);
    for skew in (0..=8).map(|quarter| f64::from(quarter) / 4.0) {
        let stream = Stream::zipf(KEYS, KEYS * MEAN, skew, 1);
        let run = |kind| {
            let setting = Setting { stripes: Some(1), ..Setting::new(kind, KEYS, MEAN as f64) };
            run(setting, &stream, 200, 5)
        };
        let dynamic = run(Kind::Dynamic)?;
        // As wide as a counter of all keys would have to be, because the skew is not known in
        // advance.
        let all = [run(Kind::Spectral)?, run(Kind::Counting(17))?];
        let all = [&dynamic, &all[0], &all[1]];
        let total = all.map(|timed| (timed.inserts.total + timed.removals.total) / 1e6);
        let share = all.map(|timed| {
            (timed.inserts.rebuilding + timed.removals.rebuilding)
                / 1e4
                / (timed.inserts.total + timed.removals.total)
                * 1e6
        });
        let events = [all[0].empty.rebuilds, all[1].empty.expansions];
        table.row([
            format!("{skew}"),
            format!("{:.1}", total[0]),
            format!("{:.1}", total[1]),
            format!("{:.1}", total[2]),
            format!("{:.2}", total[1] / total[0]),
            format!("{}", events[0]),
            format!("{}", events[1]),
            format!("{:.1}", share[0]),
            format!("{:.1}", share[1]),
        ]);
        totals.add(skew, total);
        rebuilds.add(skew, events.map(|events| events as f64));
        shares.add(skew, share);
    }
    println!("{table}");
    let ms = ("milliseconds", Scale::Linear);
    totals.draw("dcf-fig8-time", "Fig. 8: all time of inserts and removals", ms)?;
    let many = ("rebuilds", Scale::Logarithmic);
    rebuilds.draw("dcf-fig8-rebuilds", "Fig. 8: rebuilds", many)?;
    let percent = ("% of all time", Scale::Linear);
    shares.draw("dcf-fig9", "Fig. 9: time spent in rebuilding", percent)
}
