//! Streams whose rate changes: the paper's sizes of slices (section 6.3) beside banks.

use super::course::{RATE, WINDOW, false_positives, key, options, timestamp};
use super::printed::Printed;
use super::table::Table;
use ebbtide::{Any, Filter, Parameters};
use ebbtide_testkit::random::mix;
use std::error::Error;

type Done<T = ()> = Result<T, Box<dyn Error>>;

const MICROS: u64 = 1_000_000;
const SLICES: (u32, u32) = (10, 25);
const FPR: f64 = 0.01;
/// The number of windows of a stream; the rate changes after the first two.
const WINDOWS: u64 = 5;
/// The number of moments of a window at which the filters are queried.
const MOMENTS: u64 = 20;
const PROBES: u64 = 10_000;

/// A stream: its name, and its rate as a multiple of the usual one at a time in windows.
type Stream = (&'static str, fn(f64) -> f64);

const STREAMS: [Stream; 5] = [
    ("even", |_| 1.0),
    ("ten times, at once", |at| if at < 2.0 { 1.0 } else { 10.0 }),
    ("ten times, over a window", |at| 1.0 + 9.0 * (at - 2.0).clamp(0.0, 1.0)),
    ("a tenth, at once", |at| if at < 2.0 { 1.0 } else { 0.1 }),
    ("20 times for a 20th of each window", |at| if at.fract() < 0.05 { 20.0 } else { 1.0 }),
];

/// The false-positive rates of a filter after the change, and its bits an element at the end.
#[derive(Default)]
struct Outcome {
    highest: f64,
    sum: f64,
    moments: u32,
    missed: u64,
    bits: f64,
}

impl Outcome {
    fn add(&mut self, rate: f64) {
        self.highest = self.highest.max(rate);
        self.sum += rate;
        self.moments += 1;
    }

    fn cells(&self) -> [String; 4] {
        let mean = self.sum / f64::from(self.moments.max(1));
        [
            format!("{:.1e}", self.highest),
            format!("{mean:.1e}"),
            format!("{:.1}", self.bits),
            self.missed.to_string(),
        ]
    }
}

/// Runs both on each stream.
pub fn changing_rates() -> Done {
    let head = [
        "stream",
        "as printed: highest rate",
        "mean",
        "bits an element",
        "missed",
        "time-limited: highest rate",
        "mean",
        "bits an element",
        "missed",
    ];
    let title = "Equations 3 to 8 as printed, and banks: (10, 25), error rate 0.01";
    let mut table = Table::new(title, &head);
    for (name, rate) in STREAMS {
        let [printed, banks] = both(rate)?;
        let [a, b, c, d] = printed.cells();
        let [e, f, g, h] = banks.cells();
        table.row([name.to_owned(), a, b, c, d, e, f, g, h]);
    }
    println!("{table}");
    Ok(())
}

/// Runs the printed filter and ours on one stream.
fn both(rate: fn(f64) -> f64) -> Done<[Outcome; 2]> {
    let window = WINDOW * MICROS;
    let parameters = Parameters::new().with("window", window).with("fpr", FPR);
    let parameters = parameters.with("k", SLICES.0).with("l", SLICES.1).with("rate", RATE);
    let directory = tempfile::tempdir()?;
    let spec = Any::new("time-limited", parameters);
    let filter = Filter::create(directory.path().join("filter"), spec, options())?;
    let mut printed = Printed::new(SLICES, window, (WINDOW * RATE) as f64);
    let mut outcomes = [Outcome::default(), Outcome::default()];
    let (mut now, mut next, mut times) = (0, window / MOMENTS, Vec::new());
    while now < WINDOWS * window {
        let number = times.len() as u64;
        printed.insert(mix(number), now);
        filter.call().time(timestamp(now)).insert(key(number))?;
        times.push(now);
        let at = now as f64 / window as f64;
        now += (MICROS as f64 / (RATE as f64 * rate(at))) as u64;
        if now < next {
            continue;
        }
        let (latest, round) = (times[times.len() - 1], next / (window / MOMENTS));
        next += window / MOMENTS;
        let young = times.partition_point(|&time| time + window <= latest) as u64;
        for sample in 0..200 {
            let one = young + mix(round << 32 | sample) % (number + 1 - young);
            outcomes[0].missed += u64::from(!printed.contains(mix(one), latest));
            let call = filter.call().time(timestamp(latest));
            outcomes[1].missed += u64::from(!call.contains(key(one))?);
        }
        if latest < 2 * window {
            continue;
        }
        let fakes = (1 << 62) + round * PROBES..(1 << 62) + (round + 1) * PROBES;
        let found = fakes.filter(|&fake| printed.contains(mix(fake), latest)).count();
        outcomes[0].add(found as f64 / PROBES as f64);
        outcomes[1].add(false_positives(&filter, Some(latest), round, PROBES)?);
        let keys = (number + 1 - young) as f64;
        outcomes[0].bits = printed.bits() as f64 / keys;
        outcomes[1].bits = filter.stat()?.memory_bytes as f64 * 8.0 / keys;
    }
    Ok(outcomes)
}
