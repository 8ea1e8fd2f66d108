//! Which pages a segment dirties, syncs, releases and makes present, and what its header may say.

use super::*;
use crate::media::failing::Failing;
use crate::media::{Disk, Memory};

/// Returns the sum of these fields of a segment's mapping, in KiB.
fn kib(segment: &Segment, figures: &[&str]) -> u64 {
    let address = segment.mapping.words().as_ptr().addr();
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
    let (mut inside, mut sum) = (false, 0);
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let hexadecimal = |text: &str| usize::from_str_radix(text, 16);
        if let Some((Ok(from), Ok(to))) =
            range.map(|(from, to)| (hexadecimal(from), hexadecimal(to)))
        {
            inside = (from..to).contains(&address);
        } else if let Some((name, value)) = line.split_once(':')
            && inside
            && figures.contains(&name)
        {
            sum += value.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
        }
    }
    sum
}

/// Creates a segment of four full pages of records after its header.
fn full(media: &Disk) -> Segment {
    let header =
        SegmentHeader { uuid: 7, timeline: 1, timeline_start: 1, first: 1001, capacity: 512 };
    let segment = Segment::create(media, header, 0).expect("space");
    (1001..1513).for_each(|lsn| segment.void(lsn));
    segment
}

/// Returns whether the system's pages have the size that the tests below assume; prints a
/// message if not.
fn has_pages_of_4_kib() -> bool {
    let page = rustix::param::page_size();
    if page != PAGE_WORDS * 8 {
        println!("skipped: pages are counted where they have 4 KiB, here they have {page} bytes");
    }
    page == PAGE_WORDS * 8
}

/// Checks how much is dirty after an act. The system may write more at any moment, where another
/// program has dirtied many pages, so the act is repeated if there is less.
fn assert_dirty(kib: u64, what: &str, mut act: impl FnMut() -> u64) {
    let mut found = 0;
    for _ in 0..1000 {
        found = act();
        if found >= kib {
            break;
        }
    }
    assert_eq!(found, kib, "{what}");
}

#[test]
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    ignore = "files are synced as a whole"
)]
fn dirtied_pages_are_written_by_the_next_sync_though_nothing_in_them_changed() {
    if !has_pages_of_4_kib() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let segment = full(&Disk::new(directory.path()));
    let dirty_kib = || kib(&segment, &["Private_Dirty", "Shared_Dirty"]);
    // The header's page, and the pages of records: 128 per page.
    for (from, upto, pages) in [(1001, 1513, 5), (1001, 1100, 2), (1200, 1300, 3)] {
        segment.sync().expect("a sync");
        if dirty_kib() > 0 {
            println!(
                "skipped: where the temporary directory lies, a sync leaves pages dirty (tmpfs)"
            );
            return;
        }
        assert_dirty(4 * pages, &format!("records {from} to {upto}"), || {
            segment.dirty(from, upto);
            dirty_kib()
        });
    }
}

#[test]
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    ignore = "files are synced as a whole"
)]
fn a_sync_writes_the_pages_of_its_records_and_none_behind_them() {
    if !has_pages_of_4_kib() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let segment = full(&Disk::new(directory.path()));
    let dirty_kib = || kib(&segment, &["Private_Dirty", "Shared_Dirty"]);
    segment.sync().expect("a sync");
    if dirty_kib() > 0 {
        println!("skipped: a sync leaves pages dirty where the temporary directory lies");
        return;
    }
    // 128 records a page, behind that of the header.
    for (upto, left) in [(1001, 4), (1002, 3), (1129, 3), (1130, 2), (1512, 0), (1513, 0)] {
        assert_dirty(4 * left, &format!("records up to {upto}"), || {
            segment.dirty(1001, 1513);
            segment.sync_to(upto).expect("a sync");
            dirty_kib()
        });
    }
}

#[test]
fn records_are_released_page_by_page_however_their_number_grows() {
    if !has_pages_of_4_kib() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let segment = full(&Disk::new(directory.path()));
    // The header's page stays, and the one with the last of the records: 128 per page.
    for (from, upto, pages) in
        [(1001, 1001, 5), (1001, 1100, 5), (1100, 1300, 3), (1300, 1400, 2), (1400, 2000, 1)]
    {
        segment.release(from, upto);
        assert_eq!(kib(&segment, &["Rss"]), 4 * pages, "records {from} to {upto}");
    }
    assert!((1001..1513).all(|lsn| segment.is_complete(lsn)), "the file keeps them");
}

#[test]
#[cfg_attr(
    not(all(target_os = "linux", not(ebbtide_portable))),
    ignore = "no call makes pages present"
)]
fn only_the_pages_of_the_next_records_are_made_present() {
    if !has_pages_of_4_kib() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let segment = full(&Disk::new(directory.path()));
    segment.release(1001, 1513);
    segment.populate(1200, 1300);
    assert_eq!(kib(&segment, &["Rss"]), 4 * (1 + 2));
    segment.populate(1, 1001);
    segment.populate(1513, 2000);
    assert_eq!(kib(&segment, &["Rss"]), 4 * (1 + 2), "those lie elsewhere");
}

#[test]
fn a_header_that_cannot_be_is_damage_though_its_checksum_is_right() {
    let sound = SegmentHeader { uuid: 7, timeline: 2, timeline_start: 5, first: 5, capacity: 10 };
    let opened = |header: SegmentHeader| {
        let memory = Memory::new();
        memory.make().expect("nothing fails yet");
        Segment::create(&memory, header, 0).expect("space");
        Segment::open(&memory, header.timeline, header.first, header.uuid, Access::Write)
    };
    assert_eq!(*opened(sound).expect("a sound header").header(), sound);
    for header in [
        SegmentHeader { capacity: 0, ..sound },
        SegmentHeader { timeline_start: 6, ..sound },
        SegmentHeader { first: u64::MAX - 8, ..sound },
    ] {
        let error = opened(header).expect_err("no such segment can be");
        assert!(matches!(error, Error::Damaged { offset: 56, .. }), "{error}");
    }
    // LSNs begin at 1.
    for (header, at) in [
        (SegmentHeader { timeline_start: 0, ..sound }, 40),
        (SegmentHeader { timeline_start: 0, first: 0, ..sound }, 48),
    ] {
        let error = opened(header).expect_err("no such segment can be");
        assert!(matches!(error, Error::Damaged { offset, .. } if offset == at), "{error}");
    }
}

#[test]
fn a_failed_sync_is_remembered() {
    let memory = Failing::new(Memory::new());
    memory.make().expect("nothing fails yet");
    let header = SegmentHeader { uuid: 7, timeline: 1, timeline_start: 1, first: 1, capacity: 10 };
    let segment = Segment::create(&memory, header, 0).expect("space");
    assert!(!segment.was_synced(), "not since it was opened");
    segment.sync().expect("nothing fails yet");
    assert!(segment.was_synced());
    memory.fail_after(1, std::io::ErrorKind::Other);
    segment.sync().expect_err("the fault on demand");
    assert!(!memory.clear_faults());
    segment.sync().expect_err("the system tells of a failure once only");
}
