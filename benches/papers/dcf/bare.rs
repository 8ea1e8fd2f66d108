//! Both structures of the paper on bare arrays, without an engine: no log, no lock, no undo, no
//! blocks. So their times are comparable with the paper's, and what the engine adds is the
//! difference to [`times`](super::times).

use super::bare_dynamic::Dynamic;
use super::bare_spectral::{Slack, Spectral};
use super::runs::{Done, Stream, counters_for};
use super::structure::{Structure, positions};
use super::table::Table;
use super::timer::Timer;
use ebbtide::kinds::dynamic_count::fixed_bits;
use std::hint::black_box;

/// The paper's mean count `M/n`.
const MEAN: u64 = 100;

/// Numbers of keys, and of runs of which the least times are used: of Fig. 6, and of Fig. 8 and 9.
const SIZES: [(u64, usize); 1] = [(10_000, 3)];
const SKEWED: (u64, usize) = (1000, 5);

/// What a stream costs in a structure: nanoseconds of an operation, and totals.
struct Measured {
    insert: f64,
    read: f64,
    remove: f64,
    /// The share of all time of inserts and removals that rebuilds take.
    rebuilding: f64,
    /// The nanoseconds of a rebuild.
    a_rebuild: f64,
    rebuilds: u64,
    spreads: u64,
    /// The bits of a counter with its indexes, at most.
    bits: f64,
}

/// The nanoseconds of a stream's inserts and removals.
fn pass(subject: &mut impl Structure, stream: &Stream) -> [f64; 2] {
    let times = u64::from(stream.times);
    let start = Timer::start();
    stream.inserts.iter().for_each(|&key| subject.add(key, times));
    let inserts = start.nanos();
    let start = Timer::start();
    stream.removals.iter().for_each(|&key| subject.remove(key, times));
    [inserts, start.nanos()]
}

/// The nanoseconds of reading a key when all keys are inserted; checks all counters.
fn read(subject: &mut impl Structure, stream: &Stream, exact: &[u64]) -> Done<f64> {
    let times = u64::from(stream.times);
    stream.inserts.iter().for_each(|&key| subject.add(key, times));
    if let Some(at) = (0..exact.len()).find(|&at| subject.counter(at) != exact[at]) {
        return Err(format!("counter {at} is {}, not {}", subject.counter(at), exact[at]).into());
    }
    let start = Timer::start();
    for &key in &stream.removals {
        let least = positions(key, exact.len()).map(|at| subject.counter(at)).into_iter().min();
        black_box(least);
    }
    let nanos = start.nanos();
    stream.removals.iter().for_each(|&key| subject.remove(key, times));
    match (0..exact.len()).find(|&at| subject.counter(at) != 0) {
        Some(at) => Err(format!("counter {at} is not empty").into()),
        None => Ok(nanos / stream.removals.len() as f64),
    }
}

/// Runs a stream several times through new structures, and through structures that are as wide as
/// they must be at last: the difference is the time of rebuilding.
fn measure<S: Structure>(
    create: impl Fn() -> S,
    stream: &Stream,
    exact: &[u64],
    repeats: usize,
) -> Done<Measured> {
    let most = exact.iter().copied().max().unwrap_or(0);
    let least = |one: [f64; 2], other: [f64; 2]| [one[0].min(other[0]), one[1].min(other[1])];
    let (mut growing, mut wide, mut reading) = ([f64::MAX; 2], [f64::MAX; 2], f64::MAX);
    let mut subject = create();
    for _ in 0..repeats {
        subject = create();
        growing = least(growing, pass(&mut subject, stream));
        let mut again = create();
        reading = reading.min(read(&mut again, stream, exact)?);
        again.keep_width(most);
        wide = least(wide, pass(&mut again, stream));
    }
    let (all, without) = (growing[0] + growing[1], wide[0] + wide[1]);
    let mut widest = create();
    stream.inserts.iter().for_each(|&key| widest.add(key, stream.times.into()));
    Ok(Measured {
        insert: growing[0] / stream.inserts.len() as f64,
        read: reading,
        remove: growing[1] / stream.removals.len() as f64,
        rebuilding: 100.0 * (1.0 - without / all).max(0.0),
        a_rebuild: (all - without).max(0.0) / subject.rebuilds().max(1) as f64,
        rebuilds: subject.rebuilds(),
        spreads: subject.spreads(),
        bits: widest.bits() as f64 / exact.len() as f64,
    })
}

/// Measures DCF, and SBF with slack between the counters and behind them.
fn all(keys: u64, stream: &Stream, repeats: usize) -> Done<[Measured; 3]> {
    let cells = counters_for(keys) as usize;
    let mut exact = vec![0; cells];
    for &key in &stream.inserts {
        positions(key, cells).into_iter().for_each(|at| exact[at] += u64::from(stream.times));
    }
    let x = fixed_bits(MEAN as f64) as usize;
    let spectral = |slack| measure(|| Spectral::new(cells, 1, slack), stream, &exact, repeats);
    let dynamic = measure(|| Dynamic::new(cells, x), stream, &exact, repeats)?;
    Ok([dynamic, spectral(Slack::Between)?, spectral(Slack::Behind)?])
}

/// Fig. 6, 8 and 9 on bare arrays.
pub fn tables() -> Done {
    let head = [
        "n, θ",
        "DCF insert, read, remove",
        "SBF",
        "writes SBF / DCF",
        "reads",
        "bits a counter",
        "SBF / DCF",
        "DCF rebuilds",
        "SBF rebuilds / n",
        "all spread",
    ];
    let title =
        "On bare arrays: nanoseconds of an operation, M = 100 n inserts and as many removals";
    let mut table = Table::new(title, &head);
    let head = [
        "n, θ",
        "DCF: % rebuilding",
        "ns a rebuild",
        "SBF",
        "ns a rebuild",
        "SBF, slack behind all",
        "ns a rebuild",
        "writes SBF / DCF",
    ];
    let mut rebuilding = Table::new("Rebuilding on bare arrays, share and time", &head);
    let sizes = SIZES.map(|(keys, repeats)| (keys, repeats, 0.0));
    let skews = (0..=8).map(|quarter| (SKEWED.0, SKEWED.1, f64::from(quarter) / 4.0));
    for (keys, repeats, skew) in skews.chain(sizes) {
        let stream = Stream::zipf(keys, keys * MEAN, skew, 1);
        let [dynamic, spectral, behind] = all(keys, &stream, repeats)?;
        let times = |of: &Measured| format!("{:.0}, {:.0}, {:.0}", of.insert, of.read, of.remove);
        let writes = |of: &Measured| of.insert + of.remove;
        table.row([
            format!("{keys}, {skew}"),
            times(&dynamic),
            times(&spectral),
            format!("{:.1}", writes(&spectral) / writes(&dynamic)),
            format!("{:.1}", spectral.read / dynamic.read),
            format!("{:.1}, {:.1}", dynamic.bits, spectral.bits),
            format!("{:.2}", spectral.bits / dynamic.bits),
            format!("{}", dynamic.rebuilds),
            format!("{:.1}", spectral.rebuilds as f64 / keys as f64),
            format!("{}", spectral.spreads),
        ]);
        let share = |of: &Measured| format!("{:.1}", of.rebuilding);
        let each = |of: &Measured| format!("{:.0}", of.a_rebuild);
        rebuilding.row([
            format!("{keys}, {skew}"),
            share(&dynamic),
            each(&dynamic),
            share(&spectral),
            each(&spectral),
            share(&behind),
            each(&behind),
            format!("{:.1}", writes(&behind) / writes(&dynamic)),
        ]);
    }
    println!("{table}\n{rebuilding}");
    counted();
    Ok(())
}

/// The rebuilds of SBF, which the paper does not define, counted in four ways.
fn counted() {
    let title =
        "Rebuilds of SBF a key, n = 10,000, M = 100 n, by what is counted (paper: over 4.5)";
    let head = ["counters at first", "counters that moved others", "inserts that did"];
    let mut table = Table::new(title, &head);
    let keys = SIZES[0].0;
    let stream = Stream::zipf(keys, keys * MEAN, 0.0, 1);
    for least in [1, 4] {
        let mut subject = Spectral::new(counters_for(keys) as usize, least, Slack::Between);
        stream.inserts.iter().for_each(|&key| subject.add(key, 1));
        let each = |count: u64| format!("{:.1}", count as f64 / keys as f64);
        let inserts = each(subject.moving_inserts());
        table.row([format!("{least} bit(s)"), each(subject.rebuilds()), inserts]);
    }
    println!("{table}");
}
