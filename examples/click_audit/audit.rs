//! The audit: decides each click once, in order, whatever happens to the process.
//!
//! Three files hold its state, and all three outlive the process: the ledger, and two filters. A
//! click changes them one after the other: its decision is written into the ledger, it is inserted
//! into the counts, and then into the window. Each of the three states how many clicks it has: the
//! ledger by its length, a filter by its number of inserts. [`run`] continues each of them from
//! there. A killed process leaves them at most one click apart, and each step that is repeated
//! finds the state in which it would have been done at first. So every decision is the same as
//! without the kill.
//!
//! A power cut may remove more from one than from another, up to about a second of work: the
//! filters are synced once a second, and so is the ledger. Steps that are missing from a filter are
//! repeated from the ledger's clicks. A decision that is missing from the ledger, of a click that
//! the filters already have, cannot be repeated: the filters would answer that the click is a
//! duplicate of itself. The ledger then contains [`Decision::Held`].

use super::Result;
use super::clicks::{Click, DAY};
use ebbtide::inference::{Distinct, Stream};
use ebbtide::{DynamicCount, Filter, Frequencies, Options, Penalty, TimeLimited, Timestamp};
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// What a refund costs beyond the price: handling the complaint of the advertiser, in cents.
pub const COMPLAINT: u32 = 20;

/// The false-positive rate of the window: it takes about 17 bits a click.
const FPR: f64 = 0.1;

/// The number of clicks from which the rate of the stream and its repeats are sampled.
const SAMPLE: usize = 16_384;

/// The decision on a click.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The click is paid.
    Pay,
    /// The click is refused as a duplicate.
    Refuse,
    /// The decision was lost in a power cut, and somebody has to look at the click.
    Held,
}

/// The plain answers about a click.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// The window does not contain it.
    New,
    /// The window contains it, but the counts prove that it never came before.
    Uncounted,
    /// The window contains it, and it was counted.
    Seen,
}

/// A line of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The decision by price.
    pub decision: Decision,
    /// What the filters answer without prices and probabilities.
    pub plain: Plain,
}

/// The bytes of a line, such as `000000017 pay    new`.
const LINE: u64 = 23;

impl Entry {
    fn line(self, number: usize) -> String {
        let decision = match self.decision {
            Decision::Pay => "pay",
            Decision::Refuse => "refuse",
            Decision::Held => "held",
        };
        let plain = match self.plain {
            Plain::New => "new",
            Plain::Uncounted => "never",
            Plain::Seen => "seen",
        };
        format!("{number:09} {decision:<6} {plain:<5}\n")
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(1);
        let decision = match words.next()? {
            "pay" => Decision::Pay,
            "refuse" => Decision::Refuse,
            "held" => Decision::Held,
            _ => return None,
        };
        let plain = match words.next()? {
            "new" => Plain::New,
            "never" => Plain::Uncounted,
            "seen" => Plain::Seen,
            _ => return None,
        };
        Some(Self { decision, plain })
    }
}

/// How often the ledger is synced: as often as the filters, by their default.
const SYNCED: Duration = Duration::from_secs(1);

/// The decisions so far, a line for each click.
struct Ledger {
    file: File,
    lines: usize,
    synced: Instant,
}

impl Ledger {
    /// Opens the ledger, without the part of a line that a killed process may have left.
    fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let lines = file.metadata()?.len() / LINE;
        file.set_len(lines * LINE)?;
        Ok(Self { file, lines: lines as usize, synced: Instant::now() })
    }

    fn append(&mut self, entry: Entry) -> Result<()> {
        self.file.write_all(entry.line(self.lines).as_bytes())?;
        self.lines += 1;
        if self.synced.elapsed() >= SYNCED {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync_data()?;
        self.synced = Instant::now();
        Ok(())
    }
}

/// Returns the entries of the ledger in a directory.
pub fn read(dir: &Path) -> Result<Vec<Entry>> {
    let text = fs::read_to_string(dir.join("ledger"))?;
    let entries: Option<Vec<_>> = text.lines().map(Entry::parse).collect();
    Ok(entries.ok_or("the ledger has a line that is no decision")?)
}

/// Returns the number of inserts of a filter that no other process writes to.
fn inserts<K>(filter: &Filter<K>) -> Result<usize> {
    // What a killed process left is repaired before the number is read.
    filter.sync()?;
    Ok(usize::try_from(filter.stat()?.inserts)?)
}

/// Returns what the clicks at the beginning say about the stream: how keys repeat, and the number
/// of clicks a second. The same clicks give the same numbers, so a resumed audit decides alike.
fn sampled(clicks: &[Click]) -> Result<(Distinct, f64)> {
    let clicks = &clicks[..clicks.len().min(SAMPLE)];
    let mut points = Vec::new();
    let mut width = 1;
    while width <= clicks.len() {
        let runs = clicks.chunks_exact(width);
        let count = runs.len();
        let keys = runs.map(|run| run.iter().map(|click| &click.key).collect::<HashSet<_>>().len());
        points.push((width as f64, keys.sum::<usize>() as f64 / count as f64));
        width *= 4;
    }
    let span = clicks.last().map_or(0, |last| last.time - clicks[0].time);
    let seconds = Duration::from_micros(span.max(1)).as_secs_f64();
    Ok((Distinct::sampled(&points)?, clicks.len() as f64 / seconds))
}

/// Returns what the two mistakes about a click cost, in cents. A click refused in error is not
/// paid. One that is paid twice is refunded, after a complaint.
pub fn penalty(click: &Click) -> Penalty {
    let price = f64::from(click.cents);
    Penalty { false_positive: price, false_negative: price + f64::from(COMPLAINT) }
}

/// What a decision needs.
struct Judge<'a> {
    window: &'a Filter<TimeLimited>,
    counts: &'a Filter<DynamicCount>,
    stream: Stream<Frequencies<'a, Filter<DynamicCount>>>,
}

impl Judge<'_> {
    fn decide(&self, click: &Click) -> Result<Entry> {
        let at = self.window.call().time(Timestamp::from_unix_micros(click.time));
        let plain = if !at.contains(&click.key)? {
            Plain::New
        } else if self.counts.contains(&click.key)? {
            Plain::Seen
        } else {
            Plain::Uncounted
        };
        // The prior says how often the pair clicks, and the price what a mistake costs. Without a
        // click before there is nothing to weigh.
        let refuse =
            plain == Plain::Seen && at.contains_with(&click.key, &self.stream, penalty(click))?;
        let decision = if refuse { Decision::Refuse } else { Decision::Pay };
        Ok(Entry { decision, plain })
    }
}

/// Decides all clicks that are not decided yet, and returns the whole ledger.
pub fn run(dir: &Path, clicks: &[Click]) -> Result<Vec<Entry>> {
    fs::create_dir_all(dir)?;
    if clicks.is_empty() {
        return Err("there are no clicks: the file is empty".into());
    }
    let (distinct, rate) = sampled(clicks)?;
    let window = TimeLimited::window(Duration::from_micros(DAY)).fpr(FPR).rate(rate);
    // One thread writes, so one stripe is enough. The seed makes runs comparable.
    let options = || Options::new().stripes(1).hash_seed(1);
    let window = Filter::open_or_create(dir.join("window"), window, options())?;
    let counts = DynamicCount::capacity(clicks.len() as u64).fpr(0.05).mean_count(2.0);
    let counts = Filter::open_or_create(dir.join("counts"), counts, options())?;
    let mut ledger = Ledger::open(&dir.join("ledger"))?;
    // The names of the three.
    File::open(dir)?.sync_all()?;
    let (counted, inserted) = (inserts(&counts)?, inserts(&window)?);
    let done = ledger.lines.min(counted).min(inserted);
    if ledger.lines.max(counted).max(inserted) > clicks.len() {
        let dir = dir.display();
        return Err(format!("{dir} has more clicks than the file: pass the same file again").into());
    }
    println!("{done} of {} clicks are done; process {}", clicks.len(), std::process::id());

    let judge = Judge {
        window: &window,
        counts: &counts,
        stream: Stream::new(Frequencies::new(&counts), distinct).rate(rate),
    };
    for (number, click) in clicks.iter().enumerate().skip(done) {
        if number >= ledger.lines {
            let entry = judge.decide(click)?;
            let lost = number < counted || number < inserted;
            ledger.append(if lost {
                Entry { decision: Decision::Held, ..entry }
            } else {
                entry
            })?;
        }
        if number >= counted {
            counts.insert(&click.key)?;
        }
        if number >= inserted {
            window.call().time(Timestamp::from_unix_micros(click.time)).insert(&click.key)?;
        }
    }
    ledger.sync()?;
    counts.close()?;
    window.close()?;
    read(dir)
}
