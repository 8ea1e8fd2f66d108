//! Which batches of the log are committed.
//!
//! A batch is a run of records in consecutive slots, of which each but the last
//! [continues](Record::continues). It is committed if and only if every one of its slots is a
//! record. The owner publishes the records in order and stops at the first slot that another
//! process has voided. So of an uncommitted batch the log holds only records before the first
//! missing slot. All readers of the log use this rule, so they agree.
//!
//! Formats up to 5 begin a batch with a header instead, which holds the number of its records.

use crate::error::Result;
use crate::wal::{Op, Record};

/// Records with their LSNs: all of a batch, or a single one outside of batches.
pub type Group<'a> = &'a [(u64, Record)];

/// The batch that is being read.
#[derive(Debug)]
struct Begun {
    first: u64,
    /// The first LSN beyond it, if a header says so.
    end: Option<u64>,
    /// Its records so far; VOIDs are left out.
    records: Vec<(u64, Record)>,
}

impl Begun {
    /// Returns whether the slot of this LSN belongs to it.
    fn holds(&self, lsn: u64) -> bool {
        match self.end {
            Some(end) => lsn < end,
            None => lsn == self.next(),
        }
    }

    /// Returns the LSN beyond its records, of which none is missing.
    fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// Returns whether its last slot was read, and no slot is missing.
    fn is_whole(&self) -> bool {
        match (self.end, self.records.last()) {
            (Some(end), _) => self.next() == end,
            (None, last) => last.is_some_and(|(_, record)| !record.continues),
        }
    }
}

/// Sorts the records of a log into those of committed groups and those of batches that were never
/// completed.
#[derive(Debug, Default)]
pub struct Batches {
    begun: Option<Begun>,
}

impl Batches {
    /// Takes the next record of the log. Passes on each group that is now decided, and whether it
    /// was committed. Slots that are no records may be passed as VOIDs, or left out.
    ///
    /// # Errors
    /// Those of `pass`.
    #[inline]
    pub fn take(
        &mut self,
        lsn: u64,
        record: &Record,
        mut pass: impl FnMut(Group<'_>, bool) -> Result<()>,
    ) -> Result<()> {
        if self.begun.is_none() && !begins(record) {
            return pass(&[(lsn, *record)], true);
        }
        self.take_of_batch(lsn, record, &mut pass)
    }

    fn take_of_batch(
        &mut self,
        lsn: u64,
        record: &Record,
        pass: &mut dyn FnMut(Group<'_>, bool) -> Result<()>,
    ) -> Result<()> {
        let is_void = record.op == Op::Void;
        let breaks_off = |begun: &mut Begun| !begun.holds(lsn) || (is_void && begun.end.is_none());
        if let Some(begun) = self.begun.take_if(breaks_off) {
            pass(&begun.records, false)?;
        }
        if self.begun.is_none() && !begins(record) {
            return pass(&[(lsn, *record)], true);
        }
        let begun = self.begun.get_or_insert_with(|| {
            let of_header = || lsn.saturating_add(record.payload).saturating_add(1);
            let end = (record.op == Op::Batch).then(of_header);
            Begun { first: lsn, end, records: Vec::new() }
        });
        if !is_void {
            begun.records.push((lsn, *record));
        }
        let whole = self.begun.take_if(|begun| begun.is_whole());
        whole.map_or(Ok(()), |begun| pass(&begun.records, true))
    }

    /// Ends a log whose first missing LSN is `stop`: passes on what is left, which is not
    /// committed. Returns the LSN at which the log ends: `stop`, or the beginning of a batch that
    /// lies across `stop`.
    ///
    /// # Errors
    /// Those of `pass`.
    pub fn end(
        &mut self,
        stop: u64,
        mut pass: impl FnMut(Group<'_>, bool) -> Result<()>,
    ) -> Result<u64> {
        let Some(begun) = self.begun.take() else { return Ok(stop) };
        pass(&begun.records, false)?;
        // A batch that ends before `stop` lacks a slot, and the log continues after it.
        let lies_across = begun.end.unwrap_or(begun.next() + 1) > stop;
        Ok(if lies_across { begun.first } else { stop })
    }
}

/// Returns whether a record outside of a batch begins one.
fn begins(record: &Record) -> bool {
    record.op == Op::Batch || record.continues
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rule, from all slots at once: the LSNs that count, and the end of the log.
    fn expected(slots: &[Option<Record>]) -> (Vec<u64>, u64) {
        let is_record = |slot: &Option<Record>| slot.is_some_and(|slot| slot.op != Op::Void);
        let (mut counted, mut at) = (Vec::new(), 0);
        while at < slots.len() {
            let end = match slots[at] {
                Some(Record { op: Op::Batch, payload, .. }) => at + 1 + payload as usize,
                Some(Record { continues: true, .. }) => {
                    let ends = |slot: &Option<Record>| slot.is_none_or(|slot| !slot.continues);
                    let last = slots[at..].iter().position(ends);
                    last.map_or(slots.len() + 1, |last| at + last + 1)
                }
                _ => at + 1,
            };
            if end > slots.len() {
                return (counted, at as u64);
            }
            let is_single = end == at + 1 && slots[at].is_some_and(|slot| slot.op != Op::Batch);
            if is_single || slots[at..end].iter().all(is_record) {
                counted.extend(at as u64..end as u64);
            } else if slots[at].is_some_and(|slot| slot.op != Op::Batch && slot.continues)
                && slots[end - 1].is_some_and(|slot| slot.op == Op::Void)
            {
                // The VOID that breaks it off stands alone.
                counted.push(end as u64 - 1);
            }
            at = end;
        }
        (counted, slots.len() as u64)
    }

    fn slot() -> impl Strategy<Value = Option<Record>> {
        prop_oneof![
            4 => Just(Some(Record::new(Op::Insert))),
            4 => Just(Some(Record { continues: true, ..Record::new(Op::Insert) })),
            1 => Just(Some(Record::new(Op::Void))),
            1 => Just(None),
            1 => (0..5_u64).prop_map(|payload| {
                Some(Record { payload, ..Record::new(Op::Batch) })
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_batch_counts_if_and_only_if_each_of_its_slots_is_a_record(
            slots in proptest::collection::vec(slot(), 0..40),
        ) {
            // A header within a batch is a record like any other; writers write none.
            let (expected, end) = expected(&slots);
            let (mut batches, mut counted, mut passed) = (Batches::default(), vec![], vec![]);
            let mut pass = |group: Group<'_>, counts: bool| {
                passed.extend(group.iter().map(|&(lsn, _)| lsn));
                if counts {
                    counted.extend(group.iter().map(|&(lsn, _)| lsn));
                }
                Ok(())
            };
            for (lsn, record) in (0..).zip(&slots) {
                if let Some(record) = record {
                    batches.take(lsn, record, &mut pass).expect("no error");
                }
            }
            let ended = batches.end(slots.len() as u64, &mut pass).expect("no error");
            prop_assert_eq!((counted, ended), (expected, end));
            prop_assert!(passed.is_sorted());
        }
    }
}
