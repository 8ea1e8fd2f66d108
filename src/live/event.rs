//! Events as records: the one place that knows both.

use crate::cells::Geometry;
use crate::kinds::Event;
use crate::wal::{Op, Record};

/// The record that tells an event. `stream` says where its time came from.
#[must_use]
pub fn to_record(event: &Event, stream: bool) -> Record {
    match *event {
        Event::Step { step, time, word } => {
            Record { payload: word, time, step, stream, ..Record::new(Op::Step) }
        }
        Event::OpenBank { id, geometry, since, time } => {
            let size =
                u64::from(geometry.blocks_per_stripe) << 32 | u64::from(geometry.words_per_block);
            Record {
                argument: id,
                payload: size,
                time,
                step: since,
                stream,
                ..Record::new(Op::OpenBank)
            }
        }
        Event::CloseBank { id, time } => {
            Record { argument: id, time, stream, ..Record::new(Op::CloseBank) }
        }
    }
}

/// The event that a record tells, if it tells one.
#[must_use]
pub fn from_record(record: &Record) -> Option<Event> {
    match record.op {
        Op::Step => {
            Some(Event::Step { step: record.step, time: record.time, word: record.payload })
        }
        Op::OpenBank => {
            let geometry = Geometry {
                blocks_per_stripe: (record.payload >> 32) as u32,
                words_per_block: record.payload as u32,
            };
            let (id, since) = (record.argument, record.step);
            Some(Event::OpenBank { id, geometry, since, time: record.time })
        }
        Op::CloseBank => Some(Event::CloseBank { id: record.argument, time: record.time }),
        Op::Insert | Op::Remove | Op::Heartbeat | Op::Durable | Op::Void | Op::Clear => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_reads_back_from_its_record() {
        let geometry = Geometry { blocks_per_stripe: 7, words_per_block: 2048 };
        for event in [
            Event::Step { step: 9, time: 10, word: 11 },
            Event::OpenBank { id: 3, geometry, since: 12, time: 13 },
            Event::CloseBank { id: 3, time: 14 },
        ] {
            for stream in [true, false] {
                let record = to_record(&event, stream);
                assert_eq!((from_record(&record), record.stream), (Some(event), stream));
            }
        }
    }
}
