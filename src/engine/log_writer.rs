//! Appending to the log: reserves slots, publishes records, and makes room for more.

use crate::engine::backpressure::{Backpressure, RESTRAINED};
use crate::engine::shared::Shared;
use crate::engine::trust;
use crate::engine::wakeup::{RECORDS_PER_WAKEUP, Wakeup};
use crate::error::Result;
use crate::locks::leader_gate::{self, Taken};
use crate::options::Durability;
use crate::sync::Hint;
use crate::sync::patience;
use crate::wal::log::SMALL;
use crate::wal::{Record, Segment};
use std::sync::Arc;
use std::time::Duration;

/// The time to wait for another process to allocate a segment: short, since it may be dead, and to
/// allocate one twice costs little.
const GROWERS_TIME: Duration = patience(Duration::from_millis(5));

/// The slots ahead of the tail whose pages are made present: enough until the thread has woken up
/// and made more.
pub(crate) const PRESENT: u64 = 2 * RECORDS_PER_WAKEUP;

/// When only this fraction of a segment is left, the next one is allocated for any filter.
const NEARLY_FULL: u64 = 8;

/// The most segments to allocate ahead.
const SOON_MOST: u64 = 2;

/// The part of the records expected soon for which space is allocated within a segment.
const PIECE_OF_SOON: u64 = 4;

/// Of the slots that are kept for handles that write few records, a handle uses one in this many.
const SET_ASIDE_SHARE: u64 = 4;

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    /// Its first record has this LSN, and it counts.
    At(u64),
    /// Another process voided a slot, so it does not count.
    Voided,
    /// There is no room in the mapped log, and nothing has happened.
    NoRoom,
}

/// The writer of a handle's records.
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<Shared>,
    wakeup: Arc<Wakeup>,
    backpressure: Arc<Backpressure>,
    /// The slots that this handle has used of those kept for handles that write few records, and
    /// the end of the log below which they lie.
    set_aside_used: Hint,
    set_aside_below: Hint,
    /// The end of the log for which the task of the log was woken.
    near_end: Hint,
}

impl LogWriter {
    /// Creates the writer of a handle.
    pub(crate) fn new(
        shared: Arc<Shared>,
        wakeup: Arc<Wakeup>,
        backpressure: Arc<Backpressure>,
    ) -> Self {
        let [set_aside_used, set_aside_below, near_end] = std::array::from_fn(|_| Hint::default());
        Self { shared, wakeup, backpressure, set_aside_used, set_aside_below, near_end }
    }

    /// Reserves a slot and publishes a record there. `last` is the segment that the caller wrote to
    /// last. `None` without room.
    #[inline(always)]
    pub(crate) fn append(&self, last: &mut Option<Arc<Segment>>, record: &Record) -> Option<u64> {
        loop {
            let (tail, end) = (self.shared.header().tail(), self.shared.log.common_end());
            let lsn = match tail.reserve(end) {
                Some(lsn) => lsn,
                None => self.reserve_set_aside(1)?,
            };
            if end.wrapping_sub(lsn) < PRESENT {
                self.note_near_end(end);
            }
            self.enter_segment(last, lsn);
            if lsn.is_multiple_of(RECORDS_PER_WAKEUP) {
                self.note_records();
            }
            // A segment exists below the mapped end, unless this thread slept: then the slot is
            // void, and the log continued.
            let segment = last.as_ref()?;
            // Otherwise another process voided the slot after its patience ended: nothing has
            // happened, and the next slot is used.
            if self.shared.log.write(segment, lsn, record) {
                return Some(lsn);
            }
        }
    }

    /// Reserves some of the slots that are kept for handles that write few records, if this handle
    /// has used few of them. So a handle that inserts a key now and then does not wait for the
    /// syncs that extend the log when another one has filled it.
    #[cold]
    fn reserve_set_aside(&self, count: u64) -> Option<u64> {
        let (log, end) = (&self.shared.log, self.shared.log.mapped_end());
        // Threads of one handle may do this at once: at worst they use some slots more.
        if self.set_aside_below.get() != end {
            self.set_aside_below.set(end);
            self.set_aside_used.set(0);
        }
        let used = self.set_aside_used.get() + count;
        if used > log.slots_set_aside(end) / SET_ASIDE_SHARE {
            return None;
        }
        let first = self.shared.header().tail().reserve_all(count, end)?;
        self.set_aside_used.set(used);
        Some(first)
    }

    /// Wakes the task of the log once for each end of the mapped log that comes near: it maps what
    /// follows, or allocates it, before an insert has to.
    #[cold]
    fn note_near_end(&self, end: u64) {
        if self.near_end.get() != end {
            self.near_end.set(end);
            self.wakeup.wake_log();
        }
    }

    /// Makes `last` the segment of a slot, if there is one.
    #[inline(always)]
    fn enter_segment(&self, last: &mut Option<Arc<Segment>>, lsn: u64) {
        if last.as_ref().is_some_and(|segment| segment.holds(lsn)) {
            return;
        }
        *last = self.shared.log.segment(lsn);
        // Only if no further segment is ready, and segments are shorter than what is written
        // between two wakeups: woken threads compete with inserts for the processor.
        let (end, capacity) = (self.shared.log.mapped_end(), self.shared.log.capacity());
        if capacity < RECORDS_PER_WAKEUP && end.saturating_sub(lsn) <= capacity {
            self.wakeup.wake();
        }
    }

    /// Wakes the tasks after as many records as they are woken for.
    fn note_records(&self) {
        self.wakeup.wake();
        if self.backpressure.is_due(RESTRAINED) {
            self.backpressure.restrain();
        }
    }

    /// Reserves the slots of a batch in a row and publishes its records in their order. `announce`
    /// is called with the tail before that. `last` is the segment that the caller wrote to last.
    pub(crate) fn append_batch(
        &self,
        last: &mut Option<Arc<Segment>>,
        records: &[Record],
        announce: impl FnOnce(u64),
    ) -> Appended {
        let header = self.shared.header();
        let (limit, count) = (self.shared.log.common_end(), records.len() as u64);
        announce(header.tail().hint());
        // Whoever finds this process dead accounts for as many empty slots.
        header.unheld_slots().add_all(count);
        let reserved = header.tail().reserve_all(count, limit);
        let Some(first) = reserved.or_else(|| self.reserve_set_aside(count)) else {
            header.unheld_slots().remove_all(count);
            return Appended::NoRoom;
        };
        let next = first.saturating_add(count);
        if first.next_multiple_of(RECORDS_PER_WAKEUP) < next {
            self.note_records();
        }
        let mut publish = |lsn, record: &Record| {
            self.enter_segment(last, lsn);
            let record = Record { continues: lsn + 1 < next, ..*record };
            // As in `append`: without a segment, or without success, the slot is void.
            last.as_ref().is_some_and(|segment| self.shared.log.write(segment, lsn, &record))
        };
        // Stops at the first that is void: the batch does not count.
        let is_whole = (first..).zip(records).all(|(lsn, record)| publish(lsn, record));
        if !is_whole {
            for lsn in first..next {
                if let Some(segment) = self.shared.log.segment(lsn) {
                    segment.void(lsn);
                }
            }
        }
        header.unheld_slots().remove_all(count);
        if is_whole { Appended::At(first) } else { Appended::Voided }
    }

    /// Maps the log from the durable end up to the allocated end. Returns that durable end, and the
    /// segments.
    pub(crate) fn map_log(&self) -> Result<(u64, Vec<Arc<Segment>>)> {
        let header = self.shared.header();
        loop {
            // A lost page of the image may show an older allocated end than the tail.
            let end = header.allocated().read().max(header.tail().read());
            let durable = self.shared.durable();
            match self.shared.log.map(durable, end) {
                // Below the durable end, checkpoints remove segments that they no longer need.
                Err(error) if error.is_not_found() && self.shared.durable() > durable => {}
                mapped => return mapped.map(|segments| (durable, segments)),
            }
        }
    }

    /// Maps what others have allocated beyond the log that this handle has mapped, from the tail
    /// on. If its operations are durable when they return, from the durable end on: what it needs
    /// for that, it has before it writes a record.
    pub(crate) fn map_ahead(&self) -> Result<()> {
        let header = self.shared.header();
        let start = || match self.shared.durability {
            Durability::Always => self.shared.durable(),
            _ => header.tail().hint(),
        };
        loop {
            let (end, from) = (header.allocated().read(), start());
            if end <= self.shared.log.mapped_end() {
                return Ok(());
            }
            match self.shared.log.map(from, end) {
                // It was removed, which happens only below that.
                Err(error) if error.is_not_found() && start() > from => {}
                mapped => return mapped.map(|_| ()),
            }
        }
    }

    /// Makes room for this handle to write beyond `end`, the end of its mapped log: maps segments
    /// that others have allocated, or allocates the next one.
    pub(crate) fn make_room(&self, end: u64) -> Result<()> {
        let header = self.shared.header();
        // An older tail may lead to log that was removed, and would be created anew here.
        trust::check_image(&self.shared)?;
        loop {
            self.shared.check_writable()?;
            // Otherwise a damaged tail would cause endless allocation.
            header.check(self.shared.path()).inspect_err(|error| {
                self.shared.poison(error.to_string());
            })?;
            if header.allocated().read() > end {
                return self.map_ahead();
            }
            self.shared.check_directory()?;
            let leader = match leader_gate::take(header.growing(), GROWERS_TIME) {
                Taken::Again => continue,
                // `allocate` detects anything that the previous one left unfinished.
                Taken::Ours(leader) | Taken::Overtook(leader) => leader,
            };
            let made = if header.allocated().read() > end {
                Ok(())
            } else {
                let current = &|| self.shared.slots.is_current();
                // Not from what the image says: it may have lost that to something older.
                let made = self.shared.log.allocate(end, current);
                made.map(|upto| header.allocated().raise(upto))
            };
            leader.end();
            match made {
                // Another process made it, and it was removed again while this one slept.
                Err(error) if error.is_not_found() && header.allocated().read() > end => {}
                Err(error) => {
                    // A directory that no longer belongs to the filter is the more informative
                    // error.
                    self.shared.check_directory()?;
                    return Err(error);
                }
                Ok(()) => {}
            }
        }
    }

    /// Unmaps log that is durable and that this handle no longer writes to. Files that a checkpoint
    /// removed take space as long as any handle has them mapped.
    pub(crate) fn unmap_durable(&self) {
        let header = self.shared.header();
        let durable = self.shared.durable();
        if !self.shared.log.has_below(durable) {
            return;
        }
        for index in 0..header.stripe_count() {
            if let Some(mut stripe) = self.shared.stripes.try_lock(header, index) {
                stripe.segment.take_if(|segment| segment.end() <= durable);
            }
        }
        self.shared.log.forget_below(durable);
    }

    /// Makes the pages of the next `present` records present, and allocates log ahead. If about as
    /// many records were written as a busy writer writes between two wakeups, allocates a whole
    /// segment, or twice what the timeline has if that is less. Otherwise allocates a part of the
    /// `soon` records that are expected; what else they need, writers allocate themselves. The next
    /// segment is created when the last one is nearly full, or will be within the next `soon`
    /// records: that takes two syncs, which last seconds on a disk that others keep busy.
    pub(crate) fn allocate_ahead(&self, ahead: u64, present: u64, soon: u64) -> Result<()> {
        let header = self.shared.header();
        // While writers wait for a checkpoint it may need the space.
        if header.refuses() || self.backpressure.is_requested() {
            return Ok(());
        }
        let (tail, mapped) = (header.tail().hint(), self.shared.log.mapped_end());
        let (is_much, capacity) = (ahead >= PRESENT / 2, self.shared.log.capacity());
        let grown = mapped.saturating_sub(header.timeline_start());
        let soon = soon.min(capacity.saturating_mul(SOON_MOST));
        let wanted = match grown.is_multiple_of(capacity) {
            _ if is_much => grown.saturating_mul(2),
            true => ahead.max(capacity / NEARLY_FULL),
            false if grown >= SMALL => soon / PIECE_OF_SOON,
            false => 0,
        };
        let wanted = wanted.min(capacity);
        let full = header.timeline_start() + grown.next_multiple_of(capacity);
        let is_soon_full = tail.saturating_add(soon) > full;
        let wanted = if is_soon_full { wanted.max(soon) } else { wanted };
        let wanted_end = tail.saturating_add(wanted);
        // Beyond the allocated end, a page that is made present would take space.
        let (mut at, upto) = (tail, tail.saturating_add(present).min(mapped));
        while at < upto
            && let Some(segment) = self.shared.log.segment(at)
        {
            segment.populate(at, upto);
            at = segment.end();
        }
        while self.shared.log.mapped_end() < wanted_end {
            self.make_room(self.shared.log.mapped_end())?;
        }
        Ok(())
    }

    /// Releases the pages that were made present ahead, of a log without recent records.
    pub(crate) fn release_ahead(&self) {
        let mut at = self.shared.header().tail().hint();
        while let Some(segment) = self.shared.log.segment(at) {
            segment.release(at, segment.end());
            at = segment.end();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::media::Memory;
    use crate::wal::record::RECORD_BYTES;
    use crate::{Bloom, Durability, Filter, Options};

    /// Returns the KiB of memory that the log in this directory takes in this process.
    fn log_kib(directory: &std::path::Path) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
        let directory = directory.to_str().expect("a name of letters");
        let (mut inside, mut sum) = (false, 0);
        for line in maps.lines() {
            if let Some(kib) = line.strip_prefix("Rss:") {
                let kib = kib.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
                sum += if inside { kib } else { 0 };
            } else if line.split(' ').next().is_some_and(|word| word.contains('-')) {
                // The addresses of another mapping, and its file.
                inside = line.contains(directory) && line.contains("/wal-");
            }
        }
        sum
    }

    #[test]
    #[cfg_attr(
        not(all(target_os = "linux", not(ebbtide_portable))),
        ignore = "no call makes pages present"
    )]
    fn of_the_log_only_the_end_and_the_pages_ahead_stay_in_memory() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let options = Options::new().background(false).segment_bytes(1 << 20);
        let durability = Durability::Never;
        let filter =
            Filter::create(place.path(), Bloom::capacity(1000), options.durability(durability))
                .expect("a filter");
        let engine = filter.engine();
        let insert = |keys: std::ops::Range<u64>| {
            keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).expect("an insert")));
        };
        // Through two segments, into the third.
        insert(0..70_000);
        assert!(log_kib(place.path()) > 70_000 / 32);
        engine.commits.release_records().expect("no error");
        // In each segment, the header's page, and the page that is being written. Who looks at a
        // slot that is not there yet maps the pages around it, as many as are 64 KiB.
        assert!(log_kib(place.path()) <= 4 * 4 + 64);
        engine.log_writer.allocate_ahead(PRESENT, PRESENT, 0).expect("there is space");
        let ahead = PRESENT * RECORD_BYTES / 1024;
        let present = log_kib(place.path());
        assert!((ahead..ahead + 6 * 4 + 64).contains(&present), "{present} KiB");
        insert(70_000..70_100);
        filter.sync().expect("the records are in the file");
    }

    #[test]
    fn a_handle_that_writes_little_finds_room_where_another_has_used_up_the_log() {
        let media = Arc::new(Memory::new());
        let options = Options::new().background(false).segment_bytes(1 << 20);
        let spec = Bloom::capacity(1000);
        let bulk = Filter::create_on(media.clone(), spec, options.clone()).expect("a filter");
        let open = || Filter::<Bloom>::open_on(media.clone(), options.clone()).expect("the filter");
        let others = [open(), open(), open(), open()];
        let mut keys = 0_u64..;
        // Into the second segment, which is allocated whole.
        keys.by_ref().take(40_000).for_each(|key| assert!(bulk.insert(key.to_le_bytes()).is_ok()));
        let mut inserted = |filter: &Filter<Bloom>| {
            let quick = filter.call().without_waiting();
            keys.by_ref().take_while(|key| quick.insert(key.to_le_bytes()).is_ok()).count() as u64
        };
        let engine = bulk.engine();
        let (start, end) = (engine.header().tail().hint(), engine.shared.log.mapped_end());
        let kept = engine.shared.log.slots_set_aside(end);
        assert_eq!(kept, 3584);
        assert_eq!(inserted(&bulk), end - start - kept + kept / SET_ASIDE_SHARE);
        for other in &others {
            other.engine().log_writer.map_ahead().expect("it is allocated");
        }
        assert_eq!(others.each_ref().map(&mut inserted), [896, 896, 896, 0]);
        assert_eq!(inserted(&bulk), 0);
        // Who waits makes room.
        bulk.insert("another").expect("an insert");
        assert_eq!(engine.shared.log.mapped_end(), end + engine.shared.log.capacity());
        assert!(inserted(&bulk) > 29_000);
    }

    #[test]
    fn one_whole_segment_lies_ready_and_no_more() {
        let options = Options::new().background(false).segment_bytes(4 << 10);
        let filter = Filter::create_on(Arc::new(Memory::new()), Bloom::capacity(1000), options)
            .expect("a filter");
        let engine = filter.engine();
        let (records, first) = (engine.shared.meta.segment_records, engine.shared.log.mapped_end());
        let ahead = |inserts: std::ops::Range<u64>| {
            for key in inserts {
                filter.insert(key.to_le_bytes()).expect("an insert");
            }
            (0..3).for_each(|_| {
                engine.log_writer.allocate_ahead(PRESENT, PRESENT, 0).expect("there is space")
            });
            engine.shared.log.mapped_end()
        };
        assert_eq!(ahead(0..10), first + records);
        assert_eq!(ahead(10..20), first + records);
        assert_eq!(ahead(20..records + 1), first + 2 * records);
        engine.header().status().poison();
        assert_eq!(ahead(0..0), first + 2 * records);
    }

    #[test]
    fn a_segment_that_will_be_full_soon_has_its_successors_two_at_most() {
        let options = Options::new().background(false).segment_bytes(32 << 10);
        let filter = Filter::create_on(Arc::new(Memory::new()), Bloom::capacity(1000), options)
            .expect("a filter");
        let engine = filter.engine();
        let (start, records) =
            (engine.shared.log.mapped_end() - 512, engine.shared.meta.segment_records);
        assert_eq!(records, 1024);
        filter.insert(b"a key").expect("an insert");
        let ahead = |soon| {
            engine.log_writer.allocate_ahead(0, 0, soon).expect("there is space");
            engine.shared.log.mapped_end() - start
        };
        assert_eq!(ahead(0), 512);
        assert_eq!(ahead(512 + 1), 512, "a quarter of it lies there");
        assert_eq!(ahead(1000), 512);
        assert_eq!(ahead(1030), 2 * 1024, "behind the end of the segment");
        assert_eq!(ahead(u64::MAX), 3 * 1024);
        assert_eq!(ahead(u64::MAX), 3 * 1024);
    }

    #[test]
    fn durable_log_is_released_wherever_it_was_kept() {
        let options = Options::new().hash_seed(7).stripes(2).segment_bytes(4 << 10);
        let options = options.durability(Durability::Never).background(false);
        let filter = Filter::create_on(Arc::new(Memory::new()), Bloom::capacity(1000), options);
        let filter = filter.expect("a filter");
        let insert = |keys: &mut dyn Iterator<Item = u64>| {
            keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        };
        let engine = filter.engine();
        let first = engine.shared.durable();
        let stripe =
            |key: &u64| engine.shared.layout().stripe_of(engine.shared.hash(&key.to_le_bytes()));
        let end = |at| engine.stripes.lock(at).segment.as_ref().map(|segment| segment.end());
        // Stripe 2 writes to the first segment only.
        insert(&mut (0..).filter(|key| stripe(key) == 1).take(1));
        insert(&mut (0..).filter(|key| stripe(key) == 0).take(200));
        engine.log_writer.unmap_durable();
        assert!(
            engine.shared.log.segment(first).is_some() && end(2).is_some(),
            "it is not durable"
        );
        filter.sync().expect("no error");
        engine.log_writer.unmap_durable();
        assert!(engine.shared.log.segment(first).is_none() && end(2).is_none());
        assert!(end(1).is_some_and(|end| end > engine.shared.durable()), "it is being written to");
    }
}
