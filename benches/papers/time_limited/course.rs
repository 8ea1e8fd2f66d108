//! Runs a time-limited filter on a stream of distinct keys at a steady rate, and samples its
//! course: slices, their size, memory and false-positive rate. Slices and memory are read from the
//! events in the filter's own log.

use super::seed::seed;
use ebbtide::inspect::{self, Entry};
use ebbtide::{Any, Durability, Filter, Options, Parameters, Result, Timestamp};
use ebbtide_testkit::random::{Random, mix};

/// The window, in seconds.
pub const WINDOW: u64 = 600;
/// The number of distinct keys inserted per second, evenly spaced.
pub const RATE: u64 = 100;
/// The number of samples per window.
pub const SAMPLES: u64 = 120;
/// The number of keys of a window.
pub const KEYS: u64 = WINDOW * RATE;

const MICROS: u64 = 1_000_000;
/// The beginning of the streams, an arbitrary past time.
const BEGIN: u64 = 1_700_000_000 * MICROS;
const STRIPES: u32 = 16;

/// A filter and its stream.
pub struct Setting {
    /// The planned false-positive rate of the filter.
    pub fpr: f64,
    /// The numbers of slices; the planner's if `None`.
    pub slices: Option<(u32, u32)>,
    /// The moment for which the rate is planned.
    pub aim: &'static str,
    /// The expected rate of the filter, as a multiple of the true one.
    pub expected: f64,
    /// The length of the stream.
    pub windows: u64,
    /// The number of keys, never inserted, that are looked up at each sample of the last `probed`
    /// windows.
    pub probes: u64,
    /// The number of windows at the end in which false positives are counted.
    pub probed: u64,
}

/// The filter at one moment.
pub struct Sample {
    /// The number of keys inserted so far.
    pub inserted: u64,
    /// The number of banks, each of which has slices of one size.
    pub banks: usize,
    /// The number of slices alive.
    pub slices: u64,
    /// The bits of the youngest slice.
    pub slice_0: u64,
    /// The bits of all cells.
    pub bits: u64,
    /// The share of probes that were reported as present, if there were any.
    pub fpr: Option<f64>,
}

/// The course of a filter.
pub struct Course {
    /// The number of slices that receive inserts.
    pub k: u32,
    /// The number of slices that only age.
    pub l: u32,
    /// The samples.
    pub samples: Vec<Sample>,
    /// The number of keys of the window that were looked up, and the number missed.
    pub asked: (u64, u64),
    /// The number of keys inserted when the last bank opened, after which the slices' size is
    /// constant.
    pub settled: u64,
}

/// A change of the filter-wide state, from the log.
enum Change {
    Step(u64),
    Open { bank: u64, since: u64, words: u64 },
    Close(u64),
}

/// An open bank.
struct Bank {
    number: u64,
    since: u64,
    words: u64,
}

/// Returns the key of a number.
pub fn key(number: u64) -> [u8; 16] {
    let [low, high] = [number, !number].map(|half| mix(half ^ mix(seed())).to_le_bytes());
    let mut key = [0; 16];
    key[..8].copy_from_slice(&low);
    key[8..].copy_from_slice(&high);
    key
}

/// Returns the time of the key of this number, counted from the stream's beginning.
fn time_of(number: u64) -> u64 {
    number * MICROS / RATE
}

/// Returns the share of `probes` keys, never inserted, that a filter reports as present; `round`
/// chooses the keys.
pub fn false_positives<K>(
    filter: &Filter<K>,
    at: Option<u64>,
    round: u64,
    probes: u64,
) -> Result<f64> {
    let call = at.map_or(filter.call(), |at| filter.call().time(timestamp(at)));
    let mut found = 0;
    let first = (1 << 62) + round * probes;
    for from in (first..first + probes).step_by(4096) {
        let keys: Vec<_> = (from..(from + 4096).min(first + probes)).map(key).collect();
        found += call.contains_all(&keys)?.iter().filter(|&&found| found).count();
    }
    Ok(found as f64 / probes as f64)
}

/// Inserts the keys of these numbers, without times.
pub fn feed<K>(filter: &Filter<K>, numbers: std::ops::Range<u64>) -> Result<()> {
    for from in numbers.clone().step_by(4096) {
        let keys: Vec<_> = (from..(from + 4096).min(numbers.end)).map(key).collect();
        filter.insert_all(&keys)?;
    }
    Ok(())
}

/// Returns a time, counted from the stream's beginning in microseconds.
pub fn timestamp(at: u64) -> Timestamp {
    Timestamp::from_unix_micros(BEGIN + at)
}

/// Returns the options of all filters here: reproducible, without syncs, and with a log that is
/// kept.
pub fn options() -> Options {
    Options::new()
        .hash_seed(seed())
        .stripes(STRIPES)
        .durability(Durability::Never)
        .checkpoint_bytes(1 << 40)
}

/// Returns a number among a filter's parameters.
pub fn number<T: std::str::FromStr>(parameters: &Parameters, name: &'static str) -> Result<T> {
    Ok(parameters.required(name, "a number")?)
}

/// Runs a filter.
///
/// # Errors
///
/// Those of the filter.
pub fn run(setting: &Setting) -> Result<Course> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let dir = directory.path().join("filter");
    let mut parameters = Parameters::new()
        .with("window", WINDOW * MICROS)
        .with("fpr", setting.fpr)
        .with("rate", setting.expected * RATE as f64)
        .with("aim", setting.aim);
    if let Some((k, l)) = setting.slices {
        parameters = parameters.with("k", k).with("l", l);
    }
    let filter = Filter::create(&dir, Any::new("time-limited", parameters), options())?;
    let parameters = filter.parameters();
    let (k, l) = (number(&parameters, "k")?, number(&parameters, "l")?);
    let columns = number(&parameters, "columns")?;
    let first_words = ebbtide::kinds::registry::build("time-limited", &parameters)?.first_words();
    let mut random = Random::new(seed());
    let (mut asked, mut missed, mut rates) = (0, 0, Vec::new());
    let every = KEYS / SAMPLES;
    for round in 0..setting.windows * SAMPLES {
        for inserted in round * every..(round + 1) * every {
            filter.call().time(timestamp(time_of(inserted))).insert(key(inserted))?;
        }
        let latest = (round + 1) * every - 1;
        let now = time_of(latest);
        for _ in 0..200 {
            // The window is half-open: a key of `KEYS` inserts ago has just left it.
            let number = latest - random.below(KEYS.min(latest + 1));
            asked += 1;
            missed += u64::from(!filter.call().time(timestamp(now)).contains(key(number))?);
        }
        let probed = round >= (setting.windows - setting.probed.min(setting.windows)) * SAMPLES;
        rates.push(match setting.probes {
            probes if probes > 0 && probed => {
                Some(false_positives(&filter, Some(now), round, probes)?)
            }
            _ => None,
        });
    }
    let changes = changes(&dir)?;
    let moments =
        rates.into_iter().enumerate().map(|(round, fpr)| ((round as u64 + 1) * every, fpr));
    let samples = samples((k, columns), first_words, &changes, moments);
    let opened = changes.iter().rev().find(|(_, change)| matches!(change, Change::Open { .. }));
    let settled = opened.map_or(0, |(time, _)| time * RATE / MICROS);
    Ok(Course { k, l, samples, asked: (asked, missed), settled })
}

/// Returns the events of a filter's log, each with its time.
fn changes(dir: &std::path::Path) -> Result<Vec<(u64, Change)>> {
    let mut changes = Vec::new();
    inspect::wal(dir, |entry| {
        let time = entry.time.as_unix_micros().saturating_sub(BEGIN);
        changes.extend(change(entry).map(|change| (time, change)));
        Ok(())
    })?;
    Ok(changes)
}

fn change(entry: &Entry) -> Option<Change> {
    let details = entry.details();
    let of = |name| details.iter().find(|detail| detail.0 == name).map(|detail| detail.1);
    match entry.operation {
        "step" => Some(Change::Step(of("step")?)),
        "open-bank" => Some(Change::Open {
            bank: of("bank")?,
            since: of("since")?,
            words: of("blocks-per-stripe")? * of("words")? * u64::from(STRIPES),
        }),
        "close-bank" => Some(Change::Close(of("bank")?)),
        _ => None,
    }
}

/// Returns the samples at moments given by the keys inserted until then.
fn samples(
    (k, columns): (u32, u64),
    first_words: u64,
    changes: &[(u64, Change)],
    moments: impl Iterator<Item = (u64, Option<f64>)>,
) -> Vec<Sample> {
    let mut changes = changes.iter().peekable();
    let mut banks = vec![Bank { number: 0, since: 0, words: first_words }];
    // The expiry of each closed generation; those before the stream, which the filter skipped, are
    // expired.
    let mut deaths: Vec<u64> = Vec::new();
    let mut all = Vec::new();
    for (inserted, fpr) in moments {
        let now = time_of(inserted - 1);
        while let Some((time, change)) = changes.next_if(|(time, _)| *time <= now) {
            match *change {
                Change::Step(step) => {
                    let death = if *time == 0 { 0 } else { time + WINDOW * MICROS };
                    // A step that was entered before records a time only.
                    deaths.resize((step as usize).max(deaths.len()), death);
                }
                Change::Open { bank: number, since, words } => {
                    banks.push(Bank { number, since, words });
                }
                Change::Close(number) => banks.retain(|bank| bank.number != number),
            }
        }
        let alive = deaths.partition_point(|death| *death <= now) as u64;
        let open = deaths.len() as u64;
        // Each bank has its own slices for the generations that it serves, and k-1 before them.
        let served = banks.iter().enumerate().map(|(index, bank)| {
            let next = banks.get(index + 1).map_or(open + 1, |next| next.since.min(open + 1));
            match next.saturating_sub(bank.since.max(alive)) {
                0 => 0,
                generations => generations + u64::from(k) - 1,
            }
        });
        all.push(Sample {
            inserted,
            banks: banks.len(),
            slices: served.sum(),
            slice_0: banks.last().map_or(0, |bank| bank.words * (64 / columns)),
            bits: banks.iter().map(|bank| 64 * bank.words).sum(),
            fpr,
        });
    }
    all
}
