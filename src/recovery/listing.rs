//! Lists the files of a filter's directory.

use crate::error::{Error, Result};
use crate::format::names::{FileName, TIMELINE_MAX};
use crate::media::{Access, Media};
use crate::wal::segment::is_of_another;
use std::io::ErrorKind;
use std::path::Path;

/// The name of a log segment that recovery no longer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptSegment {
    /// The timeline of its records.
    pub timeline: u64,
    /// The LSN of its first record.
    pub first: u64,
    /// Kept since then, in Unix seconds.
    pub since: u64,
}

/// The name of a snapshot that recovery no longer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptSnapshot {
    /// Where replay begins.
    pub start: u64,
    /// Kept since then, in Unix seconds.
    pub since: u64,
}

/// The name of the `meta` of a filter before it was altered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptMeta {
    /// The LSN at which its parameters ended.
    pub until: u64,
    /// Kept since then, in Unix seconds.
    pub since: u64,
}

/// The files of a filter, by role.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Start LSNs of snapshots, newest first.
    pub snapshots: Vec<u64>,
    /// (timeline, first LSN) of log segments, ascending.
    pub segments: Vec<(u64, u64)>,
    /// Log segments that recovery no longer needs, in the order of the log.
    pub kept_segments: Vec<KeptSegment>,
    /// Snapshots that recovery no longer needs, newest first.
    pub kept_snapshots: Vec<KeptSnapshot>,
    /// Former files `meta`, the oldest first.
    pub kept_metas: Vec<KeptMeta>,
    /// (timeline, number) of banks.
    pub banks: Vec<(u64, u32)>,
    /// Session slots with a socket.
    pub sockets: Vec<u16>,
    /// Numbers of temporary files.
    pub temporaries: Vec<u64>,
    /// Names of foreign files.
    pub foreign: Vec<String>,
    /// Snapshots and segments that belong to another filter, or to this one before an alteration,
    /// if that was checked.
    pub others: Vec<FileName>,
}

impl Listing {
    /// Lists the directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(media: &dyn Media) -> Result<Self> {
        let mut listing = Self::default();
        for name in media.list().map_err(Error::io("list", media.path()))? {
            match FileName::parse(&name) {
                Some(FileName::Snapshot { start }) => listing.snapshots.push(start),
                Some(FileName::Segment { timeline, first }) => {
                    listing.segments.push((timeline, first))
                }
                Some(FileName::Bank { timeline, bank }) => listing.banks.push((timeline, bank)),
                Some(FileName::Attach { slot }) => listing.sockets.push(slot),
                Some(FileName::Temporary(number)) => listing.temporaries.push(number),
                Some(FileName::KeptSegment { since, timeline, first }) => {
                    listing.kept_segments.push(KeptSegment { timeline, first, since });
                }
                Some(FileName::KeptSnapshot { since, start }) => {
                    listing.kept_snapshots.push(KeptSnapshot { start, since });
                }
                Some(FileName::KeptMeta { since, until }) => {
                    listing.kept_metas.push(KeptMeta { until, since });
                }
                Some(FileName::Meta | FileName::Lock | FileName::Live | FileName::Keep) => {}
                None => listing.foreign.push(name),
            }
        }
        listing.snapshots.sort_unstable_by(|a, b| b.cmp(a));
        listing.segments.sort_unstable();
        listing.kept_snapshots.sort_unstable_by(|a, b| b.cmp(a));
        listing.kept_segments.sort_unstable();
        listing.kept_metas.sort_unstable();
        Ok(listing)
    }

    /// Returns whether there are files that recovery no longer needs.
    #[must_use]
    pub fn has_kept(&self) -> bool {
        !self.kept_segments.is_empty()
            || !self.kept_snapshots.is_empty()
            || !self.kept_metas.is_empty()
    }

    /// Returns the former names of the segments and snapshots that recovery no longer needs.
    pub fn before_kept(&self) -> impl Iterator<Item = FileName> + '_ {
        let segments = self.kept_segments.iter();
        let segments = segments
            .map(|&KeptSegment { timeline, first, .. }| FileName::Segment { timeline, first });
        let snapshots = self.kept_snapshots.iter();
        segments.chain(snapshots.map(|&KeptSnapshot { start, .. }| FileName::Snapshot { start }))
    }

    /// Returns the files that recovery no longer needs, the oldest first: snapshots, then log.
    pub fn kept(&self) -> impl Iterator<Item = FileName> + '_ {
        let snapshots = self.kept_snapshots.iter().rev();
        let snapshots =
            snapshots.map(|&KeptSnapshot { start, since }| FileName::KeptSnapshot { since, start });
        let segments = self.kept_segments.iter();
        let segments = segments.map(|&KeptSegment { timeline, first, since }| {
            FileName::KeptSegment { since, timeline, first }
        });
        let metas = self.kept_metas.iter();
        let metas = metas.map(|&KeptMeta { until, since }| FileName::KeptMeta { since, until });
        snapshots.chain(segments).chain(metas)
    }

    /// Leaves out what has the name of a kept file and is no regular file: nobody reads or removes
    /// it.
    pub fn leave_irregular(&mut self, media: &dyn Media) {
        let is_irregular = |file: FileName| {
            let opened = media.open(&file.to_string(), Access::Read);
            opened.is_err_and(|error| error.kind() == ErrorKind::InvalidInput)
        };
        let irregular: Vec<_> = self.kept().filter(|&file| is_irregular(file)).collect();
        let stays = |file| !irregular.contains(&file);
        self.kept_snapshots.retain(|&KeptSnapshot { start, since }| {
            stays(FileName::KeptSnapshot { since, start })
        });
        self.kept_segments.retain(|&KeptSegment { timeline, first, since }| {
            stays(FileName::KeptSegment { since, timeline, first })
        });
        self.kept_metas
            .retain(|&KeptMeta { until, since }| stays(FileName::KeptMeta { since, until }));
    }

    /// Returns the former names that kept files still have as well: a process died, or the power
    /// failed, during the renaming.
    pub fn both_named(&self) -> impl Iterator<Item = FileName> + '_ {
        self.before_kept().filter(|&file| match file {
            FileName::Segment { timeline, first } => self.segments.contains(&(timeline, first)),
            FileName::Snapshot { start } => self.snapshots.contains(&start),
            _ => false,
        })
    }

    /// Lists the files of the filter with this uuid. Snapshots and segments whose sound header
    /// names another filter are listed separately. They were copied here, or written late by a
    /// process that had a former filter of this directory open.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn of_filter(media: &dyn Media, uuid: u128) -> Result<Self> {
        let mut listing = Self::read(media)?;
        listing.leave_others(media, uuid);
        Ok(listing)
    }

    /// Lists snapshots and segments of other filters separately.
    pub(crate) fn leave_others(&mut self, media: &dyn Media, uuid: u128) {
        let mut others = Vec::new();
        let mut is_ours = |file: FileName| {
            let ours = !is_of_another(media, &file.to_string(), uuid);
            if !ours {
                others.push(file);
            }
            ours
        };
        self.snapshots.retain(|&start| is_ours(FileName::Snapshot { start }));
        self.segments.retain(|&(timeline, first)| is_ours(FileName::Segment { timeline, first }));
        self.others = others;
    }

    /// Returns the number of the timeline after `last`: the next one under which another filter has
    /// no segment here, whose name the new timeline's segment might need. `directory` is where the
    /// files are.
    ///
    /// # Errors
    /// [`Error::Damaged`] if no reader would take the files of that timeline for those of a filter.
    pub fn next_timeline(&self, last: u64, directory: &Path) -> Result<u64> {
        let is_taken = |number: u64| {
            let mut others = self.others.iter();
            others.any(
                |file| matches!(file, FileName::Segment { timeline, .. } if *timeline == number),
            )
        };
        let mut free = (last.saturating_add(1)..=TIMELINE_MAX).filter(|&number| !is_taken(number));
        free.next().ok_or_else(|| {
            let of_last = self.segments.iter().rfind(|&&(timeline, _)| timeline == last);
            let name = |&(timeline, first)| FileName::Segment { timeline, first }.to_string();
            Error::Damaged {
                path: of_last.map_or(directory.to_path_buf(), |of| directory.join(name(of))),
                offset: 0,
                expected: format!("a timeline below {TIMELINE_MAX}, after which another can begin"),
                found: format!("timeline {last}"),
                remedy: "no filter is opened that often: `ebbtide salvage` creates a filter of \
                         what can be read; or restore a backup",
            }
        })
    }

    /// Returns the first segments, as long as all their records lie below `start`: the next one
    /// begins where a segment ends, or where its timeline was cut off. An empty segment may be
    /// among them, created by a delayed handle that had been overtaken, under the name of a removed
    /// one.
    pub fn segments_below(&self, start: u64) -> &[(u64, u64)] {
        let next = self.segments.iter().skip(1);
        &self.segments[..next.take_while(|&&(_, first)| first <= start).count()]
    }

    /// Returns the segments that are read if the newest snapshot turns out to be damaged; the
    /// others are no longer needed.
    pub fn segments_needed(&self) -> &[(u64, u64)] {
        let older = self.snapshots.get(1).copied().unwrap_or(0);
        &self.segments[self.segments_below(older).len()..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_lies_below_a_snapshot_once_the_next_begins_at_its_start_or_below() {
        let segments = vec![(1, 1), (1, 11), (2, 21), (2, 31)];
        let listing = Listing { segments, ..Listing::default() };
        let below = |start| listing.segments_below(start).len();
        assert_eq!(
            [1, 10, 11, 12, 20, 21, 22, 30, 31, 32, 99].map(below),
            [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
        );
        let needed = |snapshots: &[u64]| {
            let listing = Listing { snapshots: snapshots.to_vec(), ..listing.clone() };
            listing.segments_needed().first().map(|&(_, first)| first)
        };
        // The older of two snapshots decides.
        for (older, first) in [(10, 1), (11, 11), (12, 11), (20, 11), (21, 21), (22, 21)] {
            assert_eq!(needed(&[99, older]), Some(first), "from {older}");
        }
        assert_eq!((needed(&[99]), needed(&[])), (Some(1), Some(1)));
    }

    #[test]
    fn a_timeline_whose_number_another_filter_has_here_is_skipped() {
        let segment = |timeline| FileName::Segment { timeline, first: 63 };
        let others = vec![segment(3), FileName::Snapshot { start: 5 }, segment(4), segment(6)];
        let listing = Listing { others, ..Listing::default() };
        let next = |last| listing.next_timeline(last, Path::new("filter")).ok();
        assert_eq!([1, 2, 4, 5, 6].map(next), [2, 5, 5, 7, 7].map(Some));
        assert_eq!([TIMELINE_MAX - 1, TIMELINE_MAX].map(next), [Some(TIMELINE_MAX), None]);
    }

    #[test]
    fn any_kept_file_counts_and_those_that_have_their_former_name_as_well_are_found() {
        let segment = KeptSegment { timeline: 1, first: 11, since: 7 };
        let snapshot = KeptSnapshot { start: 10, since: 7 };
        let none = Listing::default();
        let with_segment = Listing { kept_segments: vec![segment], ..none.clone() };
        let with_snapshot = Listing { kept_snapshots: vec![snapshot], ..none.clone() };
        let kept_metas = vec![KeptMeta { until: 12, since: 7 }];
        let with_meta = Listing { kept_metas, ..none.clone() };
        assert!(!none.has_kept());
        for listing in [&with_segment, &with_snapshot, &with_meta] {
            assert!(listing.has_kept(), "{listing:?}");
        }
        let found = |listing: Listing| listing.both_named().collect::<Vec<_>>();
        for (segments, snapshots) in [(vec![], vec![]), (vec![(1, 12), (2, 11)], vec![9, 11])] {
            let others = |of: &Listing| Listing {
                segments: segments.clone(),
                snapshots: snapshots.clone(),
                ..of.clone()
            };
            assert_eq!(found(others(&with_segment)), []);
            assert_eq!(found(others(&with_snapshot)), []);
        }
        let segments = vec![(1, 1), (1, 11)];
        let both = found(Listing { segments, ..with_segment });
        assert_eq!(both, [FileName::Segment { timeline: 1, first: 11 }]);
        let both = found(Listing { snapshots: vec![20, 10], ..with_snapshot });
        assert_eq!(both, [FileName::Snapshot { start: 10 }]);
    }
}
