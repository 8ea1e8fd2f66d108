//! Conversion between events and records.

use crate::block::{Geometry, Layout};
use crate::log_record::{ARGUMENT_BITS, ARGUMENT_MAX, Op, Record};

/// Microseconds since the Unix epoch.
pub type Micros = u64;

/// A change of the filter-wide state. It is recorded before it is applied, carries absolute values,
/// and is applied as a maximum, so applying it is idempotent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The filter enters `step` (generation, epoch, tick).
    Step {
        /// The step entered. One that was entered before, or 0, changes nothing: only the time is
        /// recorded.
        step: u64,
        /// The time of the change.
        time: Micros,
        /// Further data that the kind needs at replay.
        word: u64,
    },
    /// A bank opens; it holds slices of steps from `since` on.
    OpenBank {
        /// The bank's number, from [`State::next_bank`](crate::state::State::next_bank); never
        /// used again.
        id: u32,
        /// Its size.
        geometry: Geometry,
        /// The first step that it serves.
        since: u64,
        /// The time of the change.
        time: Micros,
    },
    /// A bank closes: none of its keys is alive any more.
    CloseBank {
        /// The bank's number.
        id: u32,
        /// The time of the change.
        time: Micros,
    },
}

impl Event {
    /// Creates an event by which only the time is recorded.
    #[must_use]
    pub const fn time(time: Micros) -> Self {
        Self::Step { step: 0, time, word: 0 }
    }
}

/// A bank's number has 32 bits, an argument 24. The upper 8 bits are in the payload, in bits that
/// the words of a block leave free.
const _: () = assert!(Layout::MOST_BLOCK_WORDS <= ARGUMENT_MAX && ARGUMENT_BITS == 24);

/// Splits a bank's number into argument and payload.
fn split(id: u32) -> (u32, u64) {
    (id & ARGUMENT_MAX, u64::from(id & !ARGUMENT_MAX))
}

fn join(argument: u32, payload: u64) -> u32 {
    argument & ARGUMENT_MAX | payload as u32 & !ARGUMENT_MAX
}

/// Returns the record of an event. `stream` indicates the source of its time.
#[must_use]
pub fn to_record(event: &Event, stream: bool) -> Record {
    match *event {
        Event::Step { step, time, word } => {
            Record { payload: word, time, step, stream, ..Record::new(Op::Step) }
        }
        Event::OpenBank { id, geometry, since, time } => {
            let size =
                u64::from(geometry.blocks_per_stripe) << 32 | u64::from(geometry.words_per_block);
            let (argument, upper) = split(id);
            debug_assert!(size & upper == 0, "{geometry:?} of bank {id}");
            Record {
                argument,
                payload: size | upper,
                time,
                step: since,
                stream,
                ..Record::new(Op::OpenBank)
            }
        }
        Event::CloseBank { id, time } => {
            let (argument, payload) = split(id);
            Record { argument, payload, time, stream, ..Record::new(Op::CloseBank) }
        }
    }
}

/// Returns the event of a record, if it is one.
#[must_use]
pub fn from_record(record: &Record) -> Option<Event> {
    match record.op {
        Op::Step => {
            Some(Event::Step { step: record.step, time: record.time, word: record.payload })
        }
        Op::OpenBank => {
            let geometry = Geometry {
                blocks_per_stripe: (record.payload >> 32) as u32,
                words_per_block: record.payload as u32 & ARGUMENT_MAX,
            };
            let (id, since) = (join(record.argument, record.payload), record.step);
            Some(Event::OpenBank { id, geometry, since, time: record.time })
        }
        Op::CloseBank => {
            let id = join(record.argument, record.payload);
            Some(Event::CloseBank { id, time: record.time })
        }
        Op::Insert
        | Op::Remove
        | Op::Heartbeat
        | Op::Durable
        | Op::Void
        | Op::Clear
        | Op::Batch
        | Op::Position
        | Op::Claim
        | Op::Release => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_record::Decoded;

    #[test]
    fn every_event_reads_back_from_its_record() {
        let geometry = Geometry { blocks_per_stripe: 7, words_per_block: 2048 };
        for event in [
            Event::Step { step: 9, time: 10, word: 11 },
            Event::OpenBank { id: 3, geometry, since: 12, time: 13 },
            Event::CloseBank { id: 3, time: 14 },
            Event::OpenBank { id: ARGUMENT_MAX, geometry, since: 12, time: 13 },
            Event::OpenBank { id: ARGUMENT_MAX + 1, geometry, since: 12, time: 13 },
            Event::CloseBank { id: ARGUMENT_MAX + 2, time: 14 },
            Event::OpenBank { id: u32::MAX, geometry, since: 12, time: 13 },
            Event::CloseBank { id: u32::MAX, time: 14 },
        ] {
            for stream in [true, false] {
                let record = to_record(&event, stream);
                assert_eq!((from_record(&record), record.stream), (Some(event), stream));
                let Decoded::Valid(read) = Record::decode(record.encode(3, 9), 3, 9) else {
                    panic!("{event:?}");
                };
                assert_eq!(from_record(&read), Some(event), "as its bytes tell it");
            }
        }
    }
}
