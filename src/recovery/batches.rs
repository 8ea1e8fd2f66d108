//! Which batches of the log count.
//!
//! A batch is a header, which holds the number of records that follow it, and these records. It
//! counts if and only if every one of its slots is a record: whoever reads the log ignores the rest
//! of a batch that its owner could not complete. All readers of the log use this rule, so they
//! agree.

use crate::error::Result;
use crate::wal::{Op, Record};

/// Records with their LSNs: all of a batch with its header, or a single one outside of batches.
pub type Group<'a> = &'a [(u64, Record)];

/// The batch that is being read.
#[derive(Debug)]
struct Begun {
    /// The first LSN beyond it.
    end: u64,
    /// Its records so far, the header first; VOIDs are left out.
    records: Vec<(u64, Record)>,
}

impl Begun {
    /// Returns whether no slot of the batch is missing.
    fn is_whole(&self) -> bool {
        let header = self.records.first().map_or(self.end, |&(lsn, _)| lsn);
        self.records.len() as u64 == self.end - header
    }
}

/// Sorts the records of a log into those that count and those that do not.
#[derive(Debug, Default)]
pub struct Batches {
    begun: Option<Begun>,
}

impl Batches {
    /// Takes the next record of the log, and passes on what is decided by it, with whether it
    /// counts. Slots that are no records may be passed as VOIDs, or left out.
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
        if self.begun.is_none() && record.op != Op::Batch {
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
        if let Some(begun) = self.begun.take_if(|begun| lsn >= begun.end) {
            // Its last slots are empty.
            pass(&begun.records, false)?;
        }
        if self.begun.is_none() && record.op != Op::Batch {
            return pass(&[(lsn, *record)], true);
        }
        let begun = self.begun.get_or_insert_with(|| {
            let end = lsn.saturating_add(record.payload).saturating_add(1);
            Begun { end, records: Vec::new() }
        });
        if record.op != Op::Void {
            begun.records.push((lsn, *record));
        }
        let whole = self.begun.take_if(|begun| begun.is_whole());
        whole.map_or(Ok(()), |begun| pass(&begun.records, true))
    }

    /// Ends a log whose first missing LSN is `stop`: passes on what is left, which does not count.
    /// Returns the LSN at which the log ends: `stop`, or the header of a batch that lies across it.
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
        let header = begun.records.first().map_or(stop, |&(lsn, _)| lsn);
        Ok(if stop < begun.end { header } else { stop })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rule, from all slots at once: the LSNs that count, and the end of the log.
    fn expected(slots: &[Option<Record>]) -> (Vec<u64>, u64) {
        let (mut counted, mut at) = (Vec::new(), 0);
        while at < slots.len() {
            match slots[at] {
                Some(Record { op: Op::Batch, payload, .. }) => {
                    let end = at + 1 + payload as usize;
                    if end > slots.len() {
                        return (counted, at as u64);
                    }
                    let is_record =
                        |slot: &Option<Record>| slot.is_some_and(|slot| slot.op != Op::Void);
                    if slots[at..end].iter().all(is_record) {
                        counted.extend(at as u64..end as u64);
                    }
                    at = end;
                }
                Some(_) => {
                    counted.push(at as u64);
                    at += 1;
                }
                None => at += 1,
            }
        }
        (counted, slots.len() as u64)
    }

    fn slot() -> impl Strategy<Value = Option<Record>> {
        prop_oneof![
            4 => Just(Some(Record::new(Op::Insert))),
            1 => Just(Some(Record::new(Op::Void))),
            1 => Just(None),
            2 => (0..5_u64).prop_map(|payload| {
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
