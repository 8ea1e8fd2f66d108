//! The names of a filter's files, built and parsed only here.

use std::fmt;

/// The upper bound of timeline numbers: unreachable, because each opening begins one, and far from
/// overflow.
pub const TIMELINE_MAX: u64 = 1 << 62;

/// The upper bound of the timelines that programs which make a filter of the files of another one
/// give it: it can be opened as often as one may wish.
pub const TIMELINE_OF_COPY_MAX: u64 = TIMELINE_MAX / 2;

/// A file of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileName {
    /// `meta`: properties that only an alteration changes.
    Meta,
    /// `lock`: byte locks only.
    Lock,
    /// `live`: header, session table, stripes and the state block of the image.
    Live,
    /// `live-<timeline>-<bank>`: the blocks of one bank of the image.
    Bank {
        /// The timeline whose image it belongs to.
        timeline: u64,
        /// The bank's number.
        bank: u32,
    },
    /// `wal-<timeline>-<first LSN>`: a segment of the log.
    Segment {
        /// The timeline of its records.
        timeline: u64,
        /// The LSN of its first record.
        first: u64,
    },
    /// `snap-<start LSN>`: a snapshot.
    Snapshot {
        /// Replay begins at this LSN.
        start: u64,
    },
    /// `keep`: how much of the log is kept.
    Keep,
    /// `kept-<second>-wal-<timeline>-<first LSN>`: a segment that recovery no longer needs.
    KeptSegment {
        /// When it was no longer needed, in seconds since the Unix epoch.
        since: u64,
        /// The timeline of its records.
        timeline: u64,
        /// The LSN of its first record.
        first: u64,
    },
    /// `kept-<second>-snap-<start LSN>`: a snapshot that recovery no longer needs.
    KeptSnapshot {
        /// As for a segment.
        since: u64,
        /// Replay begins at this LSN.
        start: u64,
    },
    /// `kept-<second>-meta-<LSN>`: the `meta` of the filter before it was altered.
    KeptMeta {
        /// As for a segment.
        since: u64,
        /// The LSN at which its parameters ended.
        until: u64,
    },
    /// `attach-<slot>`: the socket at which the handle in this slot hands out the image.
    Attach {
        /// The session slot.
        slot: u16,
    },
    /// `tmp-<number>`: a temporary file; a process that holds the filter alone may remove it.
    Temporary(u64),
}

impl FileName {
    /// Parses a name; `None` for files that are not the filter's.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(kept) = name.strip_prefix("kept-") {
            let (since, file) = kept.split_once('-')?;
            let since = since.parse().ok()?;
            let kept = match file.strip_prefix("meta-") {
                Some(until) => Self::KeptMeta { since, until: until.parse().ok()? },
                None => Self::parse(file)?.kept(since)?,
            };
            return (kept.to_string() == name).then_some(kept);
        }
        let mut parts = name.split('-');
        let file = match (parts.next()?, parts.next(), parts.next()) {
            ("meta", None, None) => Self::Meta,
            ("lock", None, None) => Self::Lock,
            ("keep", None, None) => Self::Keep,
            ("live", None, None) => Self::Live,
            ("live", Some(timeline), Some(bank)) => {
                Self::Bank { timeline: parse_timeline(timeline)?, bank: bank.parse().ok()? }
            }
            ("wal", Some(timeline), Some(first)) => {
                Self::Segment { timeline: parse_timeline(timeline)?, first: first.parse().ok()? }
            }
            ("snap", Some(start), None) => Self::Snapshot { start: start.parse().ok()? },
            ("attach", Some(slot), None) => Self::Attach { slot: slot.parse().ok()? },
            ("tmp", Some(number), None) => Self::Temporary(number.parse().ok()?),
            _ => return None,
        };
        // There is one spelling per file: `wal-1-007` is foreign.
        (file.to_string() == name).then_some(file)
    }

    /// Returns the name of a segment or snapshot that recovery no longer needs since this second.
    #[must_use]
    pub fn kept(self, since: u64) -> Option<Self> {
        match self {
            Self::Segment { timeline, first } => Some(Self::KeptSegment { since, timeline, first }),
            Self::Snapshot { start } => Some(Self::KeptSnapshot { since, start }),
            _ => None,
        }
    }

    /// Returns the former name of a kept segment or snapshot.
    #[must_use]
    pub fn before_kept(self) -> Option<Self> {
        match self {
            Self::KeptSegment { timeline, first, .. } => Some(Self::Segment { timeline, first }),
            Self::KeptSnapshot { start, .. } => Some(Self::Snapshot { start }),
            _ => None,
        }
    }
}

fn parse_timeline(number: &str) -> Option<u64> {
    number.parse().ok().filter(|&timeline| timeline <= TIMELINE_MAX)
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meta => f.write_str("meta"),
            Self::Lock => f.write_str("lock"),
            Self::Live => f.write_str("live"),
            Self::Bank { timeline, bank } => write!(f, "live-{timeline:06}-{bank:04}"),
            Self::Segment { timeline, first } => write!(f, "wal-{timeline:06}-{first:016}"),
            Self::Snapshot { start } => write!(f, "snap-{start:016}"),
            Self::Keep => f.write_str("keep"),
            Self::KeptSegment { since, timeline, first } => {
                write!(
                    f,
                    "kept-{since:010}-{}",
                    Self::Segment { timeline: *timeline, first: *first }
                )
            }
            Self::KeptSnapshot { since, start } => {
                write!(f, "kept-{since:010}-{}", Self::Snapshot { start: *start })
            }
            Self::KeptMeta { since, until } => write!(f, "kept-{since:010}-meta-{until:016}"),
            Self::Attach { slot } => write!(f, "attach-{slot}"),
            Self::Temporary(number) => write!(f, "tmp-{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_nothing_else_is_ours() {
        for file in [
            FileName::Meta,
            FileName::Lock,
            FileName::Live,
            FileName::Bank { timeline: 3, bank: 12 },
            FileName::Segment { timeline: 1_234_567, first: u64::MAX },
            FileName::Snapshot { start: 1 },
            FileName::Attach { slot: 5 },
            FileName::Keep,
            FileName::KeptSegment { since: 7, timeline: 3, first: 12 },
            FileName::KeptSnapshot { since: u64::MAX, start: 12 },
            FileName::KeptMeta { since: 7, until: 12 },
            FileName::Temporary(77),
        ] {
            assert_eq!(FileName::parse(&file.to_string()), Some(file));
        }
        let kept = ["kept-", "kept-7-wal-1-7", "kept-0000000007-meta", "kept-0000000007-kept-"];
        for foreign in kept {
            assert_eq!(FileName::parse(foreign), None, "{foreign}");
        }
        let foreign =
            ["", "meta2", "wal-1-7", "wal--", "snap-", "live-1", "snap-+0000000000000001"];
        for foreign in foreign.into_iter().chain(["wal-18446744073709551615-0000000000000001"]) {
            assert_eq!(FileName::parse(foreign), None, "{foreign}");
        }
    }
}
