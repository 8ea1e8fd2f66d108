//! The space of the log: maps what is allocated, allocates more, also ahead of the writers, and
//! releases what is durable.

use crate::engine::background::wakeup::RECORDS_PER_WAKEUP;
use crate::engine::checkpoints::backpressure::Backpressure;
use crate::engine::shared::Shared;
use crate::error::Result;
use crate::locks::single_flight::{self, Taken};
use crate::options::Durability;
use crate::primitives::{Instant, patience};
use crate::wal::Segment;
use crate::wal::mapped_log::{PAGE_RECORDS, SMALL};
use crate::wal::segment::SegmentHeader;
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

/// Space within a segment is allocated for one in this many of the records that are expected soon.
const PIECE_OF_SOON: u64 = 4;

/// The minimum pieces of a segment to allocate at once, in general and at the start of a timeline:
/// 8 and 16 KiB.
const PIECES_LEAST: [u64; 2] = [2 * PAGE_RECORDS, 4 * PAGE_RECORDS];

/// The first piece of a timeline is at least this fraction of a segment, 256 KiB of 16 MiB: nothing
/// is known of the writers yet, and they wait for an allocation on a busy disk.
const FIRST_PIECE: u64 = 64;

/// For how long log is allocated ahead: a busy disk takes seconds for a sync.
pub(crate) const LOOKAHEAD: Duration = Duration::from_secs(10);

/// The least time over which the pace of writing is taken: shorter bursts say nothing of it.
const PACED: Duration = Duration::from_millis(500);

/// Returns the slot up to which space is allocated next, if it is allocated up to `allocated` now.
/// `segment` is the segment of the next slot.
///
/// Each piece is half of the timeline's size so far, so that a log takes little more space than its
/// content. After the first full segment they are whole segments, each of which costs only its
/// creation.
#[must_use]
pub(crate) fn next_end(segment: &SegmentHeader, allocated: u64) -> u64 {
    let grown = allocated.saturating_sub(segment.timeline_start);
    let piece = match grown {
        0 => PIECES_LEAST[1].max(segment.capacity / FIRST_PIECE),
        few if few < segment.capacity => (few / 2).max(PIECES_LEAST[0]),
        _ => segment.capacity,
    };
    let places = allocated.saturating_sub(segment.first) + piece;
    segment.first + places.next_multiple_of(PAGE_RECORDS).min(segment.capacity)
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

/// The pace at which records are written.
pub(crate) struct Pace {
    since: Instant,
    records: u64,
    /// Records per second in the last period.
    rate: u64,
}

impl Pace {
    /// Begins at this time.
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, records: 0, rate: 0 }
    }

    /// Takes the number of records since the last call.
    pub(crate) fn take(&mut self, records: u64, now: Instant) {
        self.records += records;
        let period = now - self.since;
        if period >= PACED {
            self.rate = self.records.saturating_mul(1_000_000) / micros(period);
            (self.since, self.records) = (now, 0);
        }
    }

    /// Returns how many records to expect within this time.
    pub(crate) fn within(&self, time: Duration) -> u64 {
        self.rate.saturating_mul(micros(time)) / 1_000_000
    }
}

/// The log that a handle has mapped, and how it gets more.
#[derive(Debug)]
pub struct LogSpace {
    shared: Arc<Shared>,
    backpressure: Arc<Backpressure>,
}

impl LogSpace {
    /// Creates the space of a handle's log.
    pub(crate) fn new(shared: Arc<Shared>, backpressure: Arc<Backpressure>) -> Self {
        Self { shared, backpressure }
    }

    /// Maps the log from the durable end up to the allocated end. Returns that durable end, and the
    /// segments.
    pub(crate) fn map_log(&self) -> Result<(u64, Vec<Arc<Segment>>)> {
        let header = self.shared.header();
        loop {
            // A lost page of the image may show an older allocated end than the tail.
            let end = header.allocated().read().max(header.tail().read());
            let durable = self.shared.durable();
            match self.shared.map_log(durable, end) {
                // Below the durable end, checkpoints remove segments that they no longer need.
                Err(error) if error.is_not_found() && self.shared.durable() > durable => {}
                mapped => return mapped.map(|segments| (durable, segments)),
            }
        }
    }

    /// Maps what others have allocated beyond the log that this handle has mapped, from the tail
    /// on. With [`Durability::Always`] from the durable end on, so that all that its syncs need is
    /// mapped before a record is written.
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
            match self.shared.map_log(from, end) {
                // The segment was removed, which happens only below the start.
                Err(error) if error.is_not_found() && start() > from => {}
                mapped => return mapped.map(|_| ()),
            }
        }
    }

    /// Extends the log that this handle can write to beyond `end`, the end of its mapped log: maps
    /// what others have allocated, or allocates the next piece. On a full disk it first removes
    /// what is only kept, the oldest part first.
    pub(crate) fn extend(&self, end: u64) -> Result<()> {
        let header = self.shared.header();
        // With a lost page, an older tail may lie in segments that were removed; they must not be
        // created again.
        self.shared.check_image()?;
        loop {
            self.shared.check_writable()?;
            // Without this check, a damaged tail would cause endless allocation.
            header.check(self.shared.path()).inspect_err(|error| {
                self.shared.poison(error.to_string());
            })?;
            if header.allocated().read() > end {
                return self.map_ahead();
            }
            self.shared.check_directory()?;
            let leader = match single_flight::take(header.growing(), GROWERS_TIME) {
                Taken::Again => continue,
                // `allocate` detects anything that the previous one left unfinished.
                Taken::Ours(leader) | Taken::Overtook(leader) => leader,
            };
            let made = if header.allocated().read() > end {
                Ok(())
            } else {
                let current = &|| self.shared.slots.is_current();
                let sync_names = &|| self.shared.sync_directory();
                // From the end that this handle has mapped: that in the image may be an older
                // one, if a page of it was lost.
                let segment = self.shared.log.header_of(end);
                let upto = next_end(&segment, end);
                // The first segment of a timeline: its opener has made no name durable.
                let begun = if end == segment.timeline_start { sync_names() } else { Ok(()) };
                begun
                    .and_then(|()| self.shared.log.allocate((end, upto), current, sync_names))
                    .map(|()| header.allocated().raise(upto))
            };
            leader.end();
            match made {
                // Another process made it, and it was removed again while this one slept.
                Err(error) if error.is_not_found() && header.allocated().read() > end => {}
                Err(error) if error.is_full() && self.shared.remove_oldest_kept()? => {}
                Err(error) => return Err(self.shared.or_replaced(error)),
                Ok(()) => {}
            }
        }
    }

    /// Unmaps log that is durable and that this handle no longer writes to. Files that a checkpoint
    /// removed take space as long as any handle has them mapped.
    pub(crate) fn unmap_durable(&self) {
        // It takes stripes, so closing waits until this is done: without a session, the owner of a
        // stripe would be taken for dead.
        if let Ok(_busy) = self.shared.enter() {
            self.unmap_below(self.shared.durable());
        }
    }

    /// Unmaps the segments that lie wholly below this LSN, except those in use. Closing waits for
    /// the caller, or is the caller.
    pub(crate) fn unmap_below(&self, lsn: u64) {
        let header = self.shared.header();
        if !self.shared.log.has_below(lsn) {
            return;
        }
        for index in 0..header.stripe_count() {
            if let Some(mut stripe) = self.shared.stripes.try_lock(header, index) {
                stripe.segment.take_if(|segment| segment.end() <= lsn);
            }
        }
        self.shared.log.forget_below(lsn);
    }

    /// Makes the pages of the next `present` records present, and allocates log ahead:
    /// - if `ahead` shows a busy writer: twice what the timeline has, at most a segment;
    /// - otherwise a quarter of the `soon` records that are expected, in a log of more than 256
    ///   KiB; what else they need, writers allocate themselves;
    /// - the next segment, when the last one is nearly full, or will be within `soon` records. To
    ///   create it takes two syncs, which last seconds on a disk that others keep busy.
    pub(crate) fn allocate_ahead(&self, ahead: u64, present: u64, soon: u64) -> Result<()> {
        let header = self.shared.header();
        // While writers wait for a checkpoint it may need the space.
        if header.refuses() || self.backpressure.is_requested() {
            return Ok(());
        }
        let (tail, mapped) = (header.tail().hint(), self.shared.log.mapped_end());
        // The first record begins the log.
        if header.allocated().read() == header.timeline_start() {
            return Ok(());
        }
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
            self.extend(self.shared.log.mapped_end())?;
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
    use crate::engine::log::append::SET_ASIDE_SHARE;
    use crate::engine::stripes::Wait;
    use crate::media::Memory;
    use crate::wal::log_record::RECORD_BYTES;
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
        engine.log_space.allocate_ahead(PRESENT, PRESENT, 0).expect("there is space");
        let ahead = PRESENT * RECORD_BYTES / 1024;
        let present = log_kib(place.path());
        assert!((ahead..ahead + 6 * 4 + 64).contains(&present), "{present} KiB");
        insert(70_000..70_100);
        filter.sync().expect("the records are in the file");
    }

    #[test]
    fn pieces_grow_with_the_log_and_end_with_a_page_or_a_segment() {
        let header =
            SegmentHeader { uuid: 7, timeline: 2, timeline_start: 5, first: 5, capacity: 10 };
        let segment = |first, capacity| SegmentHeader { first, capacity, ..header };
        let mut ends = vec![5];
        while let Some(&allocated) = ends.last()
            && allocated < 5 + 3 * 32768
        {
            let first = 5 + (allocated - 5) / 32768 * 32768;
            ends.push(next_end(&segment(first, 32768), allocated));
        }
        let pieces = ends.windows(2).map(|ends| ends[1] - ends[0]);
        let expected = [512, 256, 384, 640, 896, 1408, 2048, 3072, 4608, 6912, 10368, 1664];
        assert_eq!(pieces.collect::<Vec<_>>(), [&expected[..], &[32768, 32768]].concat());
        // A segment may be smaller than a piece, and its length not a multiple of pages.
        assert_eq!([5, 15, 25].map(|at| next_end(&segment(at, 10), at)), [15, 25, 35]);
        assert_eq!(next_end(&segment(5, 700), 5 + 512), 705);
        assert_eq!(next_end(&segment(5, 1 << 19), 5), 5 + 8192);
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
            other.engine().log_space.map_ahead().expect("it is allocated");
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
                engine.log_space.allocate_ahead(PRESENT, PRESENT, 0).expect("there is space")
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
            engine.log_space.allocate_ahead(0, 0, soon).expect("there is space");
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
        let end = |at| {
            engine
                .stripes
                .acquire(at, Wait::Always)
                .expect("a stripe")
                .segment
                .as_ref()
                .map(|segment| segment.end())
        };
        // Stripe 2 writes to the first segment only.
        insert(&mut (0..).filter(|key| stripe(key) == 1).take(1));
        insert(&mut (0..).filter(|key| stripe(key) == 0).take(200));
        engine.log_space.unmap_durable();
        assert!(
            engine.shared.log.segment(first).is_some() && end(2).is_some(),
            "it is not durable"
        );
        filter.sync().expect("no error");
        engine.log_space.unmap_durable();
        assert!(engine.shared.log.segment(first).is_none() && end(2).is_none());
        assert!(end(1).is_some_and(|end| end > engine.shared.durable()), "it is being written to");
    }
}
