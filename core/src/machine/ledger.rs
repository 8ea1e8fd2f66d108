//! What a filter in memory counts: the sums of its stripes, its latest time, LSNs and the chain.

use crate::digest::Sums;
use crate::error::{Error, Result};
use crate::hash::{mix, short_checksum};
use crate::kind::{Micros, Totals};
use crate::log_record::{Decoded, RECORD_BYTES, RECORD_WORDS, Record};
use crate::time::OperationTime;

/// Beyond any LSN that a filter reaches.
pub(super) const LSN_MAX: u64 = 1 << 62;

/// A record as a filter in memory emits it, for others to apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Logged {
    /// The record's number: one more than that of the record before it.
    pub lsn: u64,
    /// The bytes of the record, as in a log of the engine. The checksum in them is seeded with the
    /// LSN and the filter's uuid.
    pub record: [u8; RECORD_BYTES as usize],
}

impl Logged {
    fn new(lsn: u64, words: [u64; RECORD_WORDS]) -> Self {
        let mut record = [0; RECORD_BYTES as usize];
        for (bytes, word) in record.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Self { lsn, record }
    }

    fn words(&self) -> [u64; RECORD_WORDS] {
        let (words, _) = self.record.as_chunks::<8>();
        std::array::from_fn(|at| u64::from_le_bytes(words[at]))
    }

    /// Decodes the record; `None` if it is not one of the filter with this uuid, at this LSN.
    #[must_use]
    pub fn decode(&self, uuid: u128) -> Option<Record> {
        match Record::decode(self.words(), seed(uuid), self.lsn) {
            Decoded::Valid(record) => Some(record),
            Decoded::Empty | Decoded::Wrong => None,
        }
    }
}

/// The records that were applied to a filter: equal for two filters if and only if the same were,
/// except for one case in 2^64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The filter.
    pub uuid: u128,
    /// The LSN of the next record; the first one has 1.
    pub next_lsn: u64,
    /// A running hash of all records.
    pub chain: u64,
}

/// Returns what the checksums of a filter's records are seeded with, beside the LSN.
fn seed(uuid: u128) -> u64 {
    mix(uuid as u64) ^ (uuid >> 64) as u64
}

/// The counts of one filter.
#[derive(Debug)]
pub(super) struct Ledger {
    uuid: u128,
    uses_time: bool,
    /// By stripe; 0 is that of events.
    stripes: Box<[Sums]>,
    totals: Totals,
    /// The latest time as [`OperationTime::word`]; 0 for kinds without time.
    latest: u64,
    next_lsn: u64,
    chain: u64,
}

impl Ledger {
    /// Creates the counts of a new filter.
    pub(super) fn new(uuid: u128, uses_time: bool, stripes: u32) -> Self {
        let sums = vec![Sums::default(); stripes as usize + 1].into_boxed_slice();
        Self::from_parts(Position { uuid, next_lsn: 1, chain: 0 }, uses_time, sums)
    }

    /// Creates the counts of a filter at a position, from the sums of its stripes.
    pub(super) fn from_parts(position: Position, uses_time: bool, stripes: Box<[Sums]>) -> Self {
        let (mut totals, mut latest) = (Totals::default(), 0);
        for sums in &stripes {
            totals.inserts = totals.inserts.wrapping_add(sums.inserts);
            totals.new_bits = totals.new_bits.wrapping_add(sums.new_bits);
            latest = sums.time.max(latest);
        }
        let Position { uuid, next_lsn, chain } = position;
        let latest = if uses_time { latest } else { 0 };
        Self { uuid, uses_time, stripes, totals, latest, next_lsn, chain }
    }

    pub(super) fn position(&self) -> Position {
        Position { uuid: self.uuid, next_lsn: self.next_lsn, chain: self.chain }
    }

    #[inline]
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the latest time; the epoch for kinds without time.
    #[inline]
    pub(super) fn latest(&self) -> OperationTime {
        OperationTime::from_word(self.latest)
    }

    /// Returns the latest time of an event.
    #[inline]
    pub(super) fn event_time(&self) -> Micros {
        self.stripes[0].time >> 1
    }

    pub(super) fn stripes(&self) -> &[Sums] {
        &self.stripes
    }

    /// Numbers a record, which is about to be applied.
    #[inline]
    pub(super) fn append(&mut self, record: &Record) -> Logged {
        let logged = Logged::new(self.next_lsn, record.encode(seed(self.uuid), self.next_lsn));
        self.advance(&logged);
        logged
    }

    #[inline]
    fn advance(&mut self, logged: &Logged) {
        self.chain = short_checksum(&logged.record, self.chain);
        self.next_lsn += 1;
    }

    /// Returns the record if it is the next one.
    ///
    /// # Errors
    /// [`Error::Diverged`].
    pub(super) fn check(&self, logged: &Logged) -> Result<Record> {
        let next = self.next_lsn;
        let diverged = |found: String| {
            let expected = format!("the record with LSN {next} of filter {:032x}", self.uuid);
            Error::Diverged { expected, found }
        };
        if logged.lsn != next {
            return Err(diverged(format!("LSN {}", logged.lsn)));
        }
        let record = logged.decode(self.uuid);
        record.ok_or_else(|| diverged("a record of another filter or LSN, or damage".to_owned()))
    }

    /// Counts a record that passed [`Ledger::check`] as the last one applied.
    pub(super) fn accept(&mut self, logged: &Logged) {
        self.advance(logged);
    }

    /// Counts a record in its stripe.
    #[inline]
    pub(super) fn count(&mut self, stripe: usize, time: OperationTime, counts: Totals) {
        let (sums, word) = (&mut self.stripes[stripe], time.word());
        sums.inserts = sums.inserts.wrapping_add(counts.inserts);
        sums.new_bits = sums.new_bits.wrapping_add(counts.new_bits);
        sums.time = sums.time.max(word);
        self.totals.inserts = self.totals.inserts.wrapping_add(counts.inserts);
        self.totals.new_bits = self.totals.new_bits.wrapping_add(counts.new_bits);
        if self.uses_time {
            self.latest = self.latest.max(word);
        }
    }

    /// Counts the record of an event.
    pub(super) fn note(&mut self, time: OperationTime) {
        self.count(0, time, Totals::default());
    }

    /// Sets all counts to 0, at the time of the record that clears the filter.
    pub(super) fn clear(&mut self, time: OperationTime) {
        self.totals = Totals::default();
        for sums in &mut self.stripes {
            *sums = Sums { time: sums.time, ..Sums::default() };
        }
        (0..self.stripes.len()).for_each(|stripe| self.count(stripe, time, Totals::default()));
    }
}
