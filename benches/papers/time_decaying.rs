//! The experiments of *Efficient Web Profiling by Time-Decaying Bloom Filters* (Cheng, Iwaihara,
//! Xiang, Ushijima; DBSJ Letters 4(1)) on our kinds: Fig. 1, Fig. 3 and the remark on creation
//! times. B-TBF is `decaying`, O-TBF `decaying-optimized`.
//!
//! `cargo bench --bench paper_time_decaying` prints the paper's results beside ours and draws
//! `target/papers/time-decaying-fig*.svg`. The paper's trace of a web proxy is not public, and of
//! its parameters only the bits of counters are given. Chosen here: 10,000 pages in a Zipf
//! distribution of exponent 1.2, 50 epochs of 10,000 requests; 81,920 counters, which at 16 bits
//! are the 160 KB that Fig. 3 has space for; `k` = 6.

#[path = "common/plot.rs"]
mod plot;
#[path = "common/seed.rs"]
mod seed;
#[path = "time_decaying/streams.rs"]
mod streams;
#[path = "common/table.rs"]
mod table;
#[path = "common/timer.rs"]
mod timer;

use ebbtide::kinds::decaying_optimized::theory;
use ebbtide::kinds::registry;
use ebbtide::media::Memory;
use ebbtide::{Any, Durability, Filter, Options, Parameters, Timestamp};
use plot::{Curve, Figure, Scale, draw};
use seed::seed;
use std::error::Error;
use std::sync::Arc;
use streams::{EPOCHS, PAGES, PER_EPOCH, Profile, Stream};
use table::Table;
use timer::Timer;

type Done<T = ()> = Result<T, Box<dyn Error>>;

/// The number of counters of all filters.
const CELLS: u64 = 81_920;
const K: u32 = 6;
/// The length of an epoch in microseconds, an arbitrary choice.
const EPOCH: u64 = 3_600_000_000;
/// The epoch in which streams begin, in the past.
const FIRST: u64 = 470_000;

fn main() -> Done {
    // Cargo runs benches as tests too, with another argument; there is nothing to test here.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    println!("seed {}, {CELLS} counters, k = {K}\n", seed());
    let stream = Stream::synthetic();
    skew(&stream)?;
    for sizes in [Sizes::Paper, Sizes::Ours] {
        memory(&stream, sizes)?;
    }
    creation(&stream)
}

/// The sizes of filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sizes {
    /// The paper's: whole numbers, of 16 bits in the basic filter; a plain Bloom filter in front of
    /// the optimized one.
    Paper,
    /// Our defaults: 8 fraction bits, 32 bits in all; a front whose keys expire.
    Ours,
}

impl Sizes {
    fn name(self) -> &'static str {
        match self {
            Self::Paper => "the paper's sizes",
            Self::Ours => "our defaults",
        }
    }

    fn fraction_bits(self) -> u32 {
        if self == Self::Paper { 0 } else { 8 }
    }

    /// Returns the bits of the optimized filter for each counter, with another pool.
    fn optimized_bits(self, pool: f64) -> f64 {
        let front = if self == Self::Paper { 1.0 } else { 2.0 };
        let memory = theory::memory(self.fraction_bits(), 0.0, front);
        memory.total() + pool * 8.0
    }

    fn spec(self, kind: &str, lambda: f64) -> Any {
        let mut parameters = Parameters::new()
            .with("capacity", PAGES)
            .with("cells", CELLS)
            .with("k", K)
            .with("lambda", lambda)
            .with("epoch", EPOCH);
        if self == Self::Paper {
            parameters = parameters.with("fraction-bits", 0).with("counter-bits", 16);
            if kind == OPTIMIZED {
                parameters = parameters.with("front", "plain");
            }
        }
        Any::new(kind, parameters)
    }
}

const BASIC: &str = "decaying";
const OPTIMIZED: &str = "decaying-optimized";

/// Creates a filter in memory: no disk is measured.
fn create(spec: Any) -> Done<Filter<Any>> {
    let options = Options::new().hash_seed(seed()).durability(Durability::Never);
    Ok(Filter::create_on(Arc::new(Memory::new()), spec, options)?)
}

/// Returns the beginning of an epoch of a stream.
fn time(epoch: u64) -> Timestamp {
    Timestamp::from_unix_micros((FIRST + epoch) * EPOCH)
}

/// Inserts requests in one epoch.
fn feed(filter: &Filter<Any>, requests: &[u32], epoch: u64) -> Done {
    let call = filter.call().time(time(epoch));
    Ok(requests.iter().try_for_each(|page| call.insert(page.to_le_bytes()).map(drop))?)
}

/// Fig. 1: the skew of requests, exact and as estimated by filters.
fn skew(synthetic: &Stream) -> Done {
    let head = [
        "stream",
        "requests",
        "pages",
        "seen by",
        "% to 10 % of pages",
        "% to the 85 % visited least",
    ];
    let mut table = Table::new("Fig. 1: distribution of requests", &head);
    let row = |stream: &Stream, by: &str, profile: &Profile| {
        let (hot, cold) = profile.shares();
        [
            stream.name.to_owned(),
            format!("{}", stream.requests.len()),
            format!("{}", profile.counts().len()),
            by.to_owned(),
            format!("{hot:.1}"),
            format!("{cold:.1}"),
        ]
    };
    let paper = ["the paper's proxy", "", "", "the paper", "up to 90", "less than 10"];
    table.row(paper.map(str::to_owned));
    let real = [("product pages", "web12.keys", 0), ("CDN", "cdn_requests.txt", 1)];
    let real: Vec<Stream> = real
        .into_iter()
        .filter_map(|(name, file, column)| Stream::real(name, file, column))
        .collect();
    for stream in std::iter::once(synthetic).chain(&real) {
        let pages = stream.pages();
        let mut counts = vec![0.0; pages];
        stream.requests.iter().for_each(|&page| counts[page as usize] += 1.0);
        let mut profiles = vec![("exact counts", Profile::new(counts.iter().copied()))];
        for (kind, name) in [(BASIC, "B-TBF"), (OPTIMIZED, "O-TBF")] {
            // All in one epoch: nothing decays. As many counters per page as in Fig. 3.
            let cells = (CELLS as usize * pages).div_ceil(PAGES);
            let parameters = Parameters::new().with("capacity", pages).with("cells", cells);
            let parameters = parameters.with("k", K).with("lambda", 0.5).with("epoch", EPOCH);
            let filter = create(Any::new(kind, parameters))?;
            feed(&filter, &stream.requests, 0)?;
            let call = filter.call().time(time(0));
            let of = |page: u32| call.estimate(page.to_le_bytes()).map(|estimate| estimate.count);
            let estimates: Vec<f64> = (0..pages as u32).map(of).collect::<Result<_, _>>()?;
            profiles.push((name, Profile::new(estimates.into_iter())));
        }
        for (by, profile) in &profiles {
            table.row(row(stream, by, profile));
        }
        if std::ptr::eq(stream, synthetic) {
            draw_profiles(&profiles)?;
        }
    }
    println!("{table}");
    Ok(())
}

fn draw_profiles(profiles: &[(&str, Profile)]) -> Done {
    let curve = |(name, profile): &(&str, Profile)| {
        let ranks = profile.counts().iter().zip(1..);
        let points = ranks.map(|(&count, rank)| (f64::from(rank).log10(), count));
        Curve { name: (*name).to_owned(), points: points.collect() }
    };
    let figure = Figure {
        file: "time-decaying-fig1",
        title: "Fig. 1: requests for pages",
        x: "rank of the page, as a power of ten",
        y: ("requests", Scale::Logarithmic),
    };
    draw(&figure, &profiles.iter().map(curve).collect::<Vec<_>>())
}

/// The observations of a filter during the stream.
struct Course {
    kib: f64,
    /// The largest number of pool digits in use, for each counter.
    digits: f64,
    /// The number of additions that found no free digit.
    exhausted: u64,
    /// The number of additions that were cut short.
    saturated: u64,
    /// The number of pages whose estimates are too low by `ε` or more, but are not marked "at
    /// least".
    too_low: u64,
    /// The percentage of pages whose estimates are correct to the precision of the kind; the
    /// others are wrong because of a collision.
    right: f64,
}

/// Runs the stream through a filter.
fn course(stream: &Stream, sizes: Sizes, kind: &str, lambda: f64) -> Done<Course> {
    let spec = sizes.spec(kind, lambda);
    let built = registry::build(kind, ebbtide::Spec::parameters(&spec))?;
    let kib = built.first_words() as f64 / 128.0;
    let filter = create(spec)?;
    let mut exact = vec![0.0; PAGES];
    let mut course =
        Course { kib, digits: 0.0, exhausted: 0, saturated: 0, too_low: 0, right: 0.0 };
    for (requests, epoch) in stream.requests.chunks(PER_EPOCH as usize).zip(0..) {
        exact.iter_mut().for_each(|count| *count *= lambda);
        requests.iter().for_each(|&page| exact[page as usize] += 1.0);
        feed(&filter, requests, epoch)?;
        let stat = filter.stat()?;
        let figure = |name| stat.figures.iter().find(|f| f.0 == name).map_or(0, |figure| figure.1);
        course.digits = course.digits.max(figure("pool_in_use") as f64 / CELLS as f64);
        (course.exhausted, course.saturated) = (figure("pool_exhaustions"), figure("saturated"));
    }
    let call = filter.call().time(time(EPOCHS - 1));
    let epsilon = theory::epsilon(sizes.fraction_bits());
    for (&count, page) in exact.iter().zip(0_u32..) {
        let estimate = call.estimate(page.to_le_bytes())?;
        course.too_low += u64::from(!estimate.at_least && estimate.count <= count - epsilon);
        let above = 2.0 * epsilon + count * epsilon;
        course.right += f64::from(u8::from(estimate.count < count + above)) / PAGES as f64 * 100.0;
    }
    Ok(course)
}

/// Returns the decay factors of Fig. 3, in percent, and slower decay.
fn lambdas() -> impl Iterator<Item = u32> {
    (1..=13).chain([50, 75, 90, 99])
}

/// Fig. 3: memory.
fn memory(stream: &Stream, sizes: Sizes) -> Done {
    let head = [
        "λ (%)",
        "B-TBF (KiB)",
        "O-TBF (KiB)",
        "B / O",
        "pool as needed (KiB)",
        "B / O ",
        "paper's count (KiB)",
        "B / O  ",
        "digits a counter",
        "exhaustions",
        "B: cut short",
        "% right: B",
        "O",
        "too low",
    ];
    let title = format!("Fig. 3: memory, {}; the paper: B / O is about 2", sizes.name());
    let mut table = Table::new(&title, &head);
    let mut lines = [const { Vec::new() }; 4];
    for percent in lambdas() {
        let lambda = f64::from(percent) / 100.0;
        let basic = course(stream, sizes, BASIC, lambda)?;
        let optimized = course(stream, sizes, OPTIMIZED, lambda)?;
        let kib = |bits: f64| bits * CELLS as f64 / 8192.0;
        let needed = kib(sizes.optimized_bits(optimized.digits));
        // Front, base counters and a pool of digits of 4 bits: neither marks nor links.
        let paper = kib(1.0 + 4.0 + f64::from(sizes.fraction_bits()) + 4.0 * optimized.digits);
        let ratio = |kib: f64| format!("{:.2}", basic.kib / kib);
        table.row([
            format!("{percent}"),
            format!("{:.0}", basic.kib),
            format!("{:.0}", optimized.kib),
            ratio(optimized.kib),
            format!("{needed:.0}"),
            ratio(needed),
            format!("{paper:.0}"),
            ratio(paper),
            format!("{:.3}", optimized.digits),
            format!("{}", optimized.exhausted),
            format!("{}", basic.saturated),
            format!("{:.1}", basic.right),
            format!("{:.1}", optimized.right),
            format!("{}", basic.too_low + optimized.too_low),
        ]);
        for (line, kib) in lines.iter_mut().zip([basic.kib, optimized.kib, needed, paper]) {
            line.push((f64::from(percent), kib));
        }
    }
    println!("{table}");
    let names =
        ["B-TBF", "O-TBF", "O-TBF, pool as needed", "O-TBF, pool as needed, the paper's count"];
    let curve = |(name, points): (&str, Vec<_>)| Curve { name: name.to_owned(), points };
    let file = match sizes {
        Sizes::Paper => "time-decaying-fig3",
        Sizes::Ours => "time-decaying-fig3-ours",
    };
    let figure = Figure {
        file,
        title: &format!("Fig. 3: memory, {}", sizes.name()),
        x: "decay factor λ (%)",
        y: ("KiB", Scale::Linear),
    };
    draw(&figure, &names.into_iter().zip(lines).map(curve).collect::<Vec<_>>())
}

/// The number of turns of a measurement.
const TURNS: usize = 9;

/// Returns the nanoseconds per insert in a new filter, including the whole cost of decay.
fn time_to_create(stream: &Stream, spec: Any) -> Done<f64> {
    let start = Timer::start();
    let filter = create(spec)?;
    for (requests, epoch) in stream.requests.chunks(PER_EPOCH as usize).zip(0..) {
        feed(&filter, requests, epoch)?;
    }
    Ok(start.nanos() / stream.requests.len() as f64)
}

/// The remark on creation times: both kinds in turns, the least time of each.
fn creation(stream: &Stream) -> Done {
    let head = ["sizes", "λ (%)", "B-TBF (ns an insert)", "O-TBF", "O / B", "paper"];
    let mut table = Table::new("Creation: all inserts and all decay", &head);
    for sizes in [Sizes::Paper, Sizes::Ours] {
        for percent in [10, 50, 90] {
            let lambda = f64::from(percent) / 100.0;
            let mut least = [f64::MAX; 2];
            for _ in 0..TURNS {
                for (least, kind) in least.iter_mut().zip([BASIC, OPTIMIZED]) {
                    *least = least.min(time_to_create(stream, sizes.spec(kind, lambda))?);
                }
            }
            table.row([
                sizes.name().to_owned(),
                format!("{percent}"),
                format!("{:.0}", least[0]),
                format!("{:.0}", least[1]),
                format!("{:.2}", least[1] / least[0]),
                "1.1".to_owned(),
            ]);
        }
    }
    println!("{table}");
    Ok(())
}
