//! Why a filter answers as it does about keys: its state, beside the records of the kept log.
//!
//! The answers come from a reader's view, the records from the files. The answers are taken first,
//! and records beyond the end that the log had afterwards are left out, so that no answer depends
//! on a record that is missing here.

use crate::admin::dump_log::{Entry, records};
use crate::clock::Timestamp;
use crate::engine::Engine;
use crate::engine::read::query::Queries;
use crate::engine::shared::Shared;
use crate::engine::write::request::Given;
use crate::error::Result;
use ebbtide_core::kind::{Age, Estimate, Query};
use std::collections::{HashMap, VecDeque};
use std::thread::sleep;
use std::time::Duration;

/// Why a filter answers as it does about some keys; see
/// [`Reader::explain`](crate::Reader::explain).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Explained {
    /// The records that were examined.
    pub log: ExaminedLog,
    /// The time of the answers, for kinds whose answers depend on the time.
    pub now: Option<Timestamp>,
    /// The explanations, in the order of the keys.
    pub keys: Vec<Explanation>,
}

/// The part of the log that [`Reader::explain`](crate::Reader::explain) has examined.
///
/// A checkpoint removes the records that no snapshot needs any more, so the log begins later than
/// the filter.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ExaminedLog {
    /// The LSN of the oldest record; after a `clear`, the LSN behind it.
    pub first: u64,
    /// The first LSN that was not examined.
    pub end: u64,
    /// The LSN of the next record when the answers were given. Greater than `end` only if another
    /// process stopped while it wrote a record.
    pub answered: u64,
    /// Insert records in it.
    pub inserts: u64,
    /// The time of the first insert record in it.
    pub since: Option<Timestamp>,
    /// Whether it contains every insert since the filter was created or cleared: then a key without
    /// a record was never inserted.
    pub is_complete: bool,
}

/// Why a filter answers as it does about a key.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Explanation {
    /// The answer of [`Reader::contains`](crate::Reader::contains).
    pub present: bool,
    /// The answer of `age`, for kinds that keep ages.
    pub age: Option<Age>,
    /// The answer of `estimate`, for kinds that count.
    pub estimate: Option<Estimate>,
    /// The key's stripe.
    pub stripe: u32,
    /// The key's block in each bank, the oldest bank first.
    pub blocks: Vec<KeyBlock>,
    /// Insert records of the key in the examined log.
    pub inserts: u64,
    /// Removal records of the key in it.
    pub removals: u64,
    /// The newest of these records, from the oldest to the newest.
    pub records: Vec<KeyRecord>,
}

/// The block of a key in one bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyBlock {
    /// The bank's number.
    pub bank: u32,
    /// The first step that the bank serves.
    pub since: u64,
    /// The block's number in the bank, from 0.
    pub block: u64,
    /// The bank's blocks.
    pub blocks: u64,
}

/// A record of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyRecord {
    /// The record's number.
    pub lsn: u64,
    /// The record's time.
    pub time: Timestamp,
    /// Whether that time came with the key.
    pub is_stream_time: bool,
    /// Whether the record removes the key; otherwise it inserts it.
    pub removes: bool,
    /// The step of the record: generation, epoch, or (for timing kinds and those that forget at
    /// random) the inserts before it; 0 for kinds without steps.
    pub step: u64,
    /// The weight of the record: how often the key counts, or how important it is; 1 for kinds
    /// without weights.
    pub weight: u32,
    /// Insert records that follow this one, up to the end of the examined log.
    pub inserts_since: u64,
}

/// An answer from the state, without records.
pub(crate) struct Answer {
    explanation: Explanation,
    hash: u64,
    /// The time of the answer, in microseconds; 0 for kinds without time.
    now: u64,
}

/// Answers about a key from the state.
pub(crate) fn answer(queries: &Queries, key: &[u8]) -> Result<Answer> {
    let meta = &queries.shared.meta;
    let hash = meta.hasher.hash(key);
    let layout = meta.layout;
    // The sums of `contains`: the answers must be the same.
    queries.ask_with(hash, Given::default(), Shared::totals, |kind, state, blocks, query| {
        // Those of `age`, which is too high by what the others are.
        let exact = Query { totals: queries.shared.header().counters().sum(), ..*query };
        let mut banks: Vec<_> = state
            .banks()
            .map(|bank| KeyBlock {
                bank: bank.id,
                since: bank.since,
                block: layout.block_of(bank.geometry, hash) as u64,
                blocks: layout.blocks(bank.geometry),
            })
            .collect();
        banks.sort_by_key(|block| block.bank);
        let explanation = Explanation {
            present: kind.contains(state, blocks, query),
            age: kind.ages().and_then(|ages| ages.age(state, blocks, &exact)),
            estimate: kind.estimate(state, blocks, query),
            stripe: layout.stripe_of(hash) as u32,
            blocks: banks,
            inserts: 0,
            removals: 0,
            records: Vec::new(),
        };
        Answer { explanation, hash, now: query.now }
    })
}

/// The records of one key, while the log is read.
#[derive(Default)]
struct Found {
    inserts: u64,
    removals: u64,
    /// The newest records; `inserts_since` is the number of inserts up to the record, for now.
    newest: VecDeque<KeyRecord>,
}

impl Found {
    fn add(&mut self, entry: &Entry, ordinal: u64, most: usize) {
        let removes = !entry.is_insert();
        let (step, weight) = entry.step_and_weight();
        let count = if removes { &mut self.removals } else { &mut self.inserts };
        *count += 1;
        self.newest.push_back(KeyRecord {
            lsn: entry.lsn,
            time: entry.time,
            is_stream_time: entry.is_stream_time(),
            removes,
            step,
            weight,
            inserts_since: ordinal,
        });
        if self.newest.len() > most {
            self.newest.pop_front();
        }
    }
}

/// The number of attempts to read the log up to the answers. A record may be reserved, but not
/// published yet; a stopped writer may leave it so for any length of time.
const TRIES: u32 = 50;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

/// Adds the records of the kept log to answers, at most `most` of the newest records to each.
/// `answers` are those of [`answer`], as of a state that has no record at `end` or beyond.
/// `is_past`: the state is that of a moment of the past, perhaps before an alteration.
pub(crate) fn explain(
    of: (&Engine, bool),
    answers: &[Answer],
    end: u64,
    most: usize,
) -> Result<Explained> {
    let mut left = TRIES;
    let (log, by_hash) = loop {
        let (log, by_hash) = find(of, answers, end, most)?;
        left -= 1;
        if log.end == end || left == 0 {
            break (log, by_hash);
        }
        sleep(PAUSE);
    };
    let now = answers.iter().map(|answer| answer.now).max().filter(|now| *now > 0);
    let keys = answers.iter().map(|answer| {
        let Some(found) = by_hash.get(&answer.hash) else { return answer.explanation.clone() };
        let records = found.newest.iter().map(|record| KeyRecord {
            inserts_since: log.inserts.saturating_sub(record.inserts_since),
            ..*record
        });
        Explanation {
            inserts: found.inserts,
            removals: found.removals,
            records: records.collect(),
            ..answer.explanation.clone()
        }
    });
    Ok(Explained { log, now: now.map(Timestamp::from_unix_micros), keys: keys.collect() })
}

/// Reads the kept log once: the records of each hash, and what the log covers.
fn find(
    (engine, is_past): (&Engine, bool),
    answers: &[Answer],
    end: u64,
    most: usize,
) -> Result<(ExaminedLog, HashMap<u64, Found>)> {
    let meta = &engine.shared.meta;
    // The past is that of the directory it was read from, whatever has its path now.
    let at_path = if is_past { None } else { engine.shared.media.at_its_path() };
    let media = at_path.unwrap_or_else(|| engine.shared.media.clone());
    let mut by_hash: HashMap<u64, Found> =
        answers.iter().map(|answer| (answer.hash, Found::default())).collect();
    let mut log =
        ExaminedLog { first: 0, end, answered: end, inserts: 0, since: None, is_complete: false };
    let mut cleared = None;
    let read = records(&*media, (meta, is_past), &mut |entry| {
        let Some(entry) = entry else {
            // Damage hides what comes behind it: an insert, a removal, or that all was cleared.
            by_hash.values_mut().for_each(|found| *found = Found::default());
            (log.inserts, log.since, cleared) = (0, None, None);
            return Ok(());
        };
        if entry.lsn >= end || !entry.counts {
            return Ok(());
        }
        if entry.is_clear() {
            cleared = Some(entry.lsn + 1);
            by_hash.values_mut().for_each(|found| *found = Found::default());
            (log.inserts, log.since) = (0, None);
        }
        if entry.is_insert() {
            log.inserts += 1;
            log.since.get_or_insert(entry.time);
        }
        if let Some(found) = entry.key_hash().and_then(|hash| by_hash.get_mut(&hash)) {
            found.add(entry, log.inserts, most);
        }
        Ok(())
    })?;
    // Of a moment of the past all log may have been removed meanwhile.
    log.first = cleared.unwrap_or(read.start).min(end);
    log.end = read.end.min(end);
    log.is_complete = log.end == end && (cleared.is_some() || read.start == 1);
    Ok((log, by_hash))
}
