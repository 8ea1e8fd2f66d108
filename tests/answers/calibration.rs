//! Of the keys with a posterior near x, a share of x is in the window: on streams drawn from known
//! priors, for all kinds that infer, for windows of several widths, for ages, and for both forms.
//!
//! Keys are drawn independently, so the share of a bin of `n` queries has a standard deviation of
//! at most `0.5/√n`. A bin is weighted by its queries, and all bins together have many thousands.
//! The noise is therefore less than 0.004 in the mean over bins.

use ebbtide::inference::{Distinct, Form, Stream};
use ebbtide::media::Memory;
use ebbtide::{Any, Call, Clock, Durability, Filter, Options, Parameters, Timestamp, Within};
use ebbtide_testkit::random::Random;
use std::sync::Arc;

const BINS: usize = 20;
const SEED: u64 = 20_261_121;
/// Widths of the tested windows, as shares of the filter's window.
const WIDTHS: [f64; 4] = [0.07, 0.3, 0.55, 1.0];
/// The mean time between two keys of a time-limited filter, in microseconds.
const PAUSE: u64 = 1000;

/// The distance of posteriors from the observed shares.
#[derive(Default)]
struct Calibration {
    bins: [(f64, f64, f64); BINS],
}

impl Calibration {
    fn add(&mut self, posterior: f64, holds: bool) {
        assert!((0.0..=1.0).contains(&posterior), "{posterior}");
        let bin = &mut self.bins[((posterior * BINS as f64) as usize).min(BINS - 1)];
        bin.0 += 1.0;
        bin.1 += posterior;
        bin.2 += f64::from(u8::from(holds));
    }

    /// Returns the mean over all queries of the distance between the mean posterior of their bin
    /// and the observed share.
    fn error(&self) -> f64 {
        let apart: f64 = self.bins.iter().map(|bin| (bin.1 - bin.2).abs()).sum();
        apart / self.bins.iter().map(|bin| bin.0).sum::<f64>()
    }
}

/// The prior of each key.
type Priors = Box<dyn Fn(&[u8]) -> f64>;

/// The distribution of the keys of a stream.
enum Source {
    Uniform(u64),
    /// The sums of `1/x` over the ranks: the paper's `p_x = 1/(x·H)`.
    PowerLaw(Vec<f64>),
}

impl Source {
    fn power_law(universe: u64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=universe).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Self::PowerLaw(sums.collect())
    }

    fn universe(&self) -> u64 {
        match self {
            Self::Uniform(universe) => *universe,
            Self::PowerLaw(sums) => sums.len() as u64,
        }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Self::Uniform(universe) => random.below(*universe),
            Self::PowerLaw(sums) => {
                let at = random.below(1 << 53) as f64 / (1_u64 << 53) as f64 * sums[sums.len() - 1];
                sums.partition_point(|&sum| sum <= at) as u64
            }
        }
    }

    fn model(&self) -> Stream<Priors> {
        let number = |key: &[u8]| u64::from_le_bytes(key.try_into().expect("eight bytes"));
        let universe = self.universe();
        match self {
            Self::Uniform(_) => {
                let distinct = Distinct::uniform(universe).expect("keys");
                Stream::new(Box::new(move |_: &[u8]| 1.0 / universe as f64), distinct)
            }
            Self::PowerLaw(sums) => {
                let all = sums[sums.len() - 1];
                let distinct = Distinct::power_law(universe, 1.0).expect("keys");
                let p = move |key: &[u8]| 1.0 / ((number(key) + 1) as f64 * all);
                Stream::new(Box::new(p), distinct)
            }
        }
    }
}

/// The test of one filter over one stream.
struct Course {
    kind: &'static str,
    parameters: Parameters,
    source: Source,
    /// The filter's window, in inserts.
    window: u64,
    /// The inserts before the first query, and the queries (each followed by its insert).
    warm_up: u64,
    queries: u64,
}

/// The observed posteriors.
#[derive(Default)]
struct Found {
    /// By width, in the default form and the paper's.
    windows: [[Calibration; 2]; WIDTHS.len()],
    ages: Calibration,
    /// The sums of expected and true ages, of keys inserted before.
    expected: f64,
    truth: f64,
}

impl Found {
    /// Queries a key whose age is known, if it was inserted.
    fn ask(
        &mut self,
        course: &Course,
        call: Call<'_>,
        model: &Stream<Priors>,
        key: u64,
        age: Option<u64>,
    ) {
        let key = key.to_le_bytes();
        for (part, calibrations) in WIDTHS.into_iter().zip(&mut self.windows) {
            let width = (part * course.span() as f64) as u64;
            let within =
                if course.by_time() { Within::micros(width) } else { Within::Items(width) };
            for (form, calibration) in [Form::Refined, Form::Paper].into_iter().zip(calibrations) {
                let call = call.window(within).form(form);
                let posterior = call.posterior(key, model).expect("a posterior");
                calibration.add(posterior, age.is_some_and(|age| age < width));
            }
        }
        let posterior = call.age_posterior(key, model).expect("a posterior");
        for part in 0..10 {
            let [from, to] = [part, part + 1].map(|part| course.span() * part / 10);
            let there = age.is_some_and(|age| (from..to).contains(&age));
            self.ages.add(posterior.between(from..to), there);
        }
        if let Some(age) = age {
            self.expected += posterior.expected();
            self.truth += age as f64;
        }
    }

    /// Returns the largest error over windows, in the default form or the paper's.
    fn worst(&self, form: usize) -> f64 {
        self.windows.iter().map(|forms| forms[form].error()).fold(0.0, f64::max)
    }

    fn expected(&self) -> f64 {
        self.expected / self.truth
    }
}

impl Course {
    fn by_time(&self) -> bool {
        self.parameters.get("window").is_some()
    }

    /// Returns the filter's window, in the filter's unit.
    fn span(&self) -> u64 {
        if self.by_time() { self.window * PAUSE } else { self.window }
    }

    /// One of `late` keys comes late, by up to a window.
    fn run(&self, late: Option<u64>) -> Found {
        let options =
            Options::new().durability(Durability::Never).clock(Clock::stream()).hash_seed(SEED);
        let spec = Any::new(self.kind, self.parameters.clone());
        let filter = Filter::create_on(Arc::new(Memory::new()), spec, options).expect("a filter");
        let model = self.source.model().rate(1e6 / PAUSE as f64);
        let mut found = Found::default();
        let mut last: Vec<Option<u64>> = vec![None; self.source.universe() as usize];
        let mut random = Random::new(SEED);
        // In microseconds, or in inserts.
        let mut now = 1_000_980_000_u64;
        for number in 0..self.warm_up + self.queries {
            let key = self.source.draw(&mut random);
            let call = filter.call().time(Timestamp::from_unix_micros(now));
            if number >= self.warm_up {
                let age = last[key as usize].map(|then| now - then);
                found.ask(self, call, &model, key, age);
            }
            if self.by_time() {
                let is_late = late.is_some_and(|of| random.below(of) == 0);
                let time = now - if is_late { random.below(self.span()) } else { 0 };
                let call = call.time(Timestamp::from_unix_micros(time));
                assert!(call.insert(key.to_le_bytes()).expect("an insert"), "{key} at {time}");
                last[key as usize] = last[key as usize].max(Some(time));
                now += pause(&mut random);
            } else {
                call.insert(key.to_le_bytes()).expect("an insert");
                // The previous insert has age 0.
                now += 1;
                last[key as usize] = Some(now);
            }
        }
        println!(
            "{} {:?}: windows {:.4} (paper's form {:.4}), ages {:.4}, expected ages {:.3} of the \
             true ones",
            self.kind,
            self.parameters,
            found.worst(0),
            found.worst(1),
            found.ages.error(),
            found.expected()
        );
        found
    }
}

/// Draws the time to the next key, for keys that arrive independently.
fn pause(random: &mut Random) -> u64 {
    let even = (random.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64;
    (-even.ln() * PAUSE as f64) as u64
}

fn parameters(all: &[(&'static str, u64)]) -> Parameters {
    all.iter().fold(Parameters::new(), |parameters, &(name, value)| parameters.with(name, value))
}

/// A filter of few bits, so that many answers are uncertain.
fn small_timers(window: u64, bits: u64, k: u64, source: Source) -> Course {
    let timers = 10 * window / bits;
    let parameters =
        parameters(&[("window-items", window), ("bits", bits), ("k", k), ("timers", timers)]);
    Course {
        kind: "block-timing",
        parameters,
        source,
        window,
        warm_up: 8 * window,
        queries: 200_000,
    }
}

fn is_calibrated(course: &Course) -> Found {
    is_calibrated_with(course, None)
}

fn is_calibrated_with(course: &Course, late: Option<u64>) -> Found {
    let found = course.run(late);
    assert!(found.worst(0) < 0.02, "windows of {}: {}", course.kind, found.worst(0));
    assert!(found.ages.error() < 0.03, "ages of {}: {}", course.kind, found.ages.error());
    found
}

#[test]
fn block_timing_is_calibrated_on_uniform_streams_and_better_than_the_paper_s_form() {
    for (bits, k) in [(4, 4), (6, 6)] {
        let found = is_calibrated(&small_timers(20_000, bits, k, Source::Uniform(20_000)));
        assert!(found.worst(1) > 1.5 * found.worst(0), "{}", found.worst(1));
        // Nearly all keys were inserted before the first query.
        assert!((0.98..1.02).contains(&found.expected()), "{}", found.expected());
    }
}

#[test]
fn block_timing_is_calibrated_on_power_laws() {
    is_calibrated(&small_timers(20_000, 4, 4, Source::power_law(20_000)));
}

#[test]
fn timing_is_calibrated() {
    let parameters = parameters(&[("window-items", 20_000), ("k", 3), ("timers", 30_000)]);
    let source = Source::Uniform(20_000);
    let (window, warm_up) = (20_000, 50_000);
    is_calibrated(&Course {
        kind: "timing",
        parameters,
        source,
        window,
        warm_up,
        queries: 200_000,
    });
}

#[test]
fn bloom_is_calibrated_while_it_fills() {
    for source in [Source::Uniform(60_000), Source::power_law(200_000)] {
        let parameters = parameters(&[("capacity", 40_000), ("bits", 150_000), ("k", 3)]);
        let (window, warm_up) = (60_000, 10_000);
        is_calibrated(&Course {
            kind: "bloom",
            parameters,
            source,
            window,
            warm_up,
            queries: 200_000,
        });
    }
}

#[test]
fn age_partitioned_is_calibrated_on_uniform_streams_and_power_laws() {
    for source in [Source::Uniform(20_000), Source::power_law(20_000)] {
        let parameters = parameters(&[("window-items", 10_000), ("k", 10), ("l", 22)]);
        let (window, warm_up) = (10_000, 40_000);
        let kind = "age-partitioned";
        is_calibrated(&Course { kind, parameters, source, window, warm_up, queries: 60_000 });
    }
}

#[test]
fn fingerprints_are_calibrated_on_uniform_streams_and_power_laws() {
    for source in [Source::Uniform(20_000), Source::power_law(20_000)] {
        let parameters = parameters(&[("window-items", 10_000)]).with("fpr", 0.05);
        let (window, warm_up) = (10_000, 40_000);
        let kind = "fingerprint";
        is_calibrated(&Course { kind, parameters, source, window, warm_up, queries: 60_000 });
    }
}

#[test]
fn time_limited_is_calibrated_at_an_even_rate_also_while_its_window_fills() {
    for warm_up in [3000, 40_000] {
        let window = 10_000;
        let parameters = parameters(&[("window", window * PAUSE)]).with("fpr", 0.1);
        let (kind, source) = ("time-limited", Source::Uniform(30_000));
        is_calibrated(&Course { kind, parameters, source, window, warm_up, queries: 60_000 });
    }
}

/// Nearly all queries come while the window fills.
#[test]
fn fingerprints_of_a_time_are_calibrated_while_the_window_fills_and_with_late_keys() {
    for late in [None, Some(10), Some(2)] {
        for (warm_up, queries) in [(200, 9000), (20_000, 20_000)] {
            let window = 10_000;
            let parameters = parameters(&[("window", window * PAUSE)]).with("fpr", 0.05);
            let (kind, source) = ("fingerprint", Source::Uniform(20_000));
            let course = Course { kind, parameters, source, window, warm_up, queries };
            is_calibrated_with(&course, late);
        }
    }
}

/// Half of the keys are queried while the filter is in use, by threads that have inserted.
#[test]
fn posteriors_and_ages_agree_while_several_threads_insert_and_after_a_restart() {
    for (kind, unit) in [
        ("bloom", 1),
        ("age-partitioned", 1),
        ("fingerprint", 1),
        ("block-timing", 1),
        ("time-limited", PAUSE),
        ("fingerprint", PAUSE),
    ] {
        let window = if kind == "bloom" {
            "capacity"
        } else if unit > 1 {
            "window"
        } else {
            "window-items"
        };
        let spec = Any::new(kind, Parameters::new().with(window, 50 * unit).with("fpr", 0.1));
        let options = Options::new().durability(Durability::Never).clock(Clock::stream());
        let media = Arc::new(Memory::new());
        let filter = Filter::create_on(media.clone(), spec, options.clone()).expect("a filter");
        let prior = Stream::uniform(300).expect("keys").rate(1e6 / PAUSE as f64);
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let filter = &filter;
                scope.spawn(move || {
                    for number in (thread * 4..(thread + 1) * 4).chain(thread * 4..(thread + 1) * 4)
                    {
                        let time = Timestamp::from_unix_micros(1_000_000_000 + number * PAUSE);
                        filter.call().time(time).insert(number.to_le_bytes()).expect("an insert");
                    }
                });
            }
        });
        let told = |filter: &Filter| {
            (0..300_u64)
                .map(|key| filter.posterior(key.to_le_bytes(), &prior).expect("a posterior"))
                .collect::<Vec<_>>()
        };
        let live = told(&filter);
        let width = if kind == "bloom" { 64 } else { 50 * unit };
        for (key, posterior) in (0..300_u64).zip(&live) {
            let ages = filter.age_posterior(key.to_le_bytes(), &prior).expect("a posterior");
            assert!(
                (ages.within(width) - posterior).abs() < 1e-9,
                "{kind}, key {key}: {posterior} {}",
                ages.within(width)
            );
        }
        filter.close().expect("closed");
        assert_eq!(told(&Filter::open_on(media, options).expect("a filter")), live, "{kind}");
    }
}
