//! The filter in memory that the records of a log make.

use crate::kinds::{Promise, Spec};
use crate::oracle::{Layout, SEED};
use crate::revision::Revision;
use ebbtide_core::kinds::registry;
use ebbtide_core::log_record::{Op, Record};
use ebbtide_core::machine::{Logged, Machine, MachineOptions};
use ebbtide_core::time::OperationTime;
use ebbtide_testkit::prefix::{Checked, text};
use ebbtide_testkit::random::mix;
use std::collections::BTreeMap;

/// The filter that the records below an LSN make.
#[derive(Debug)]
pub struct Replayed {
    pub machine: Machine,
    /// Below this LSN records say how many bits were new in a filter with other parameters.
    anew_below: u64,
    pub end: u64,
    /// The number of records that the machine has applied.
    applied: u64,
    positions: BTreeMap<u64, u64>,
}

impl Replayed {
    pub fn new(spec: &Spec, revision: Revision, layout: Layout) -> Self {
        let machine = machine(spec, revision, layout);
        let sums_bits = spec.promise == Promise::Kept;
        Self {
            machine,
            anew_below: if sums_bits { revision.start } else { 0 },
            end: 1,
            applied: 0,
            positions: BTreeMap::new(),
        }
    }

    /// Applies a group of records that ends before `end`.
    pub fn apply(&mut self, end: u64, group: &[Record]) -> Checked<()> {
        for record in group {
            if record.op == Op::Position {
                self.positions.insert(record.payload, record.time);
            }
            if matches!(record.op, Op::Position | Op::Durable | Op::Heartbeat) {
                continue;
            }
            if record.op == Op::Insert && end <= self.anew_below {
                let time = OperationTime { time: record.time, stream: record.stream };
                self.machine.insert(record.payload, time, &mut |_| {}).map_err(text)?;
                self.applied = self.machine.position().next_lsn - 1;
                continue;
            }
            let lsn = self.applied + 1;
            // The machine has the number 0.
            let words = Record { continues: false, ..*record }.encode(mix(0), lsn);
            let mut bytes = [0; 32];
            for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
                to.copy_from_slice(&word.to_le_bytes());
            }
            let applied = self.machine.apply(&Logged { lsn, record: bytes });
            applied.map_err(|error| format!("record {}: {error}", end - 1))?;
            self.applied = lsn;
        }
        self.end = end;
        Ok(())
    }

    pub fn positions(&self) -> Vec<(u64, u64)> {
        self.positions.iter().map(|(&source, &position)| (source, position)).collect()
    }

    pub fn digest(&self) -> u128 {
        self.machine.content().digest_with(&self.positions())
    }
}

fn machine(spec: &Spec, revision: Revision, layout: Layout) -> Machine {
    let kind = registry::build(spec.kind, &spec.parameters(revision.is_altered)).expect("a kind");
    let options = MachineOptions::new().stripes(layout.stripes).block_bytes(layout.block_bytes);
    let options = options.max_lead(crate::world::LEAD.as_micros() as u64);
    Machine::create(kind, &options, SEED.into(), 0).expect("a machine")
}
