//! Known mistakes, one of which can be planted in the engine to see which test catches it.
//!
//! With `--cfg planted` the environment variable `EBBTIDE_PLANTED` names the one that the process makes; child processes
//! inherit it. Without, [`Mistake::is_planted`] is the constant `false` and nothing of a mistake is compiled. `tests/planted`
//! plants one after the other; what catches each is listed in `docs/reliability.md`.

/// Defines the mistakes. What is said of each is its documentation, and its text in the table of who catches it.
macro_rules! mistakes {
    ($($(#[doc = $about:literal])+ $name:ident,)+) => {
        /// A mistake that somebody could make in the engine.
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[cfg_attr(planted, derive(Debug, Hash))]
        pub enum Mistake {
            $($(#[doc = $about])+ $name,)+
        }

        #[cfg(planted)]
        impl Mistake {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// What it is. In brackets the number of the likely bug that it belongs to.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($about,)+).trim(),)+
                }
            }
        }
    };
}

// In brackets the likely bugs: 1 old records join new ones, or ground is not durable. 2 Holes. 3 Log removed on stale
// knowledge. 4 Log removed too early, names. 5 A snapshot ahead of the log. 6 Failed syncs and acknowledgements. 7 Repair left
// undone. 8 False death and false life. 9 Order around events, and replay. 10 Applied twice, or half. 11 Two first openers,
// foreign images. 12 Sizes and space.
mistakes! {
    /// a new era begins on log that recovery has not made durable (1)
    GroundNotSecured,
    /// a new era begins on names that recovery has not made durable (1)
    NamesNotSecured,
    /// recovery reads on in an era beyond the place where the next one began (1)
    OldRecordsJoin,
    /// the live image is believed after a reboot (1)
    RebootUnnoticed,
    /// the checksum of a record is not looked at (1)
    ChecksumIgnored,
    /// recovery does not look for notes of what was durable beyond the end of the log (1)
    DurableNoteUnread,
    /// a sync does not wait until the places before its end are filled or void (2)
    HolePassed,
    /// a writer whose place was voided takes its record for written (2)
    LostPlaceKept,
    /// recovery leaves empty places as they are (2)
    HolesNotVoided,
    /// recovery does not expect empty places of those who died holding a stripe (2)
    HeldStripesUncounted,
    /// who writes a note of what is durable does not say so before (2)
    NoteUncounted,
    /// repair leaves empty places as they are (2)
    RepairLeavesHole,
    /// log is removed by the start of the newest snapshot, not by the one before (3)
    RemovedByNewest,
    /// log is removed although there is but one snapshot (3)
    RemovedWithOneSnapshot,
    /// a snapshot names a start that was read after its copies were made (3)
    SnapshotStartsLate,
    /// older log and snapshots are removed before the new snapshot's name is durable (4)
    RemovedBeforeNamed,
    /// the directory is not synced after a snapshot got its name (4)
    SnapshotNameNotSynced,
    /// a snapshot gets its name without a sync of its content (4)
    SnapshotNotSynced,
    /// a segment gets its name without a sync of its content (4)
    SegmentNotSynced,
    /// the directory is not synced after a segment got its name (4)
    SegmentNameNotSynced,
    /// a segment that somebody else has just made is used without a sync of it and its name (4)
    FoundSegmentTrusted,
    /// `meta` gets its name without a sync of its content (4)
    MetaNotSynced,
    /// a snapshot gets its name before the log is durable through its end (5)
    SnapshotAheadOfLog,
    /// the log is not synced before it is said to be durable (6)
    SyncSkipped,
    /// the error of a sync is ignored (6)
    SyncErrorSwallowed,
    /// a failed sync is an error once, and then tried again (6)
    SyncRetried,
    /// only the handle whose sync failed refuses further writes (6)
    PoisonKept,
    /// who takes the turn of a leader that died does not write again what that one's failed sync left (6)
    FailureDiesWithLeader,
    /// only the last segment is synced (6)
    OnlyLastSegmentSynced,
    /// the durable end is raised before the sync (6)
    DurableBeforeSync,
    /// `sync()` returns without one (6)
    SyncDoesNothing,
    /// `Always` waits for the record before its own (6)
    AlwaysOneShort,
    /// `Interval` never syncs (6)
    IntervalIgnored,
    /// an answer that rests on an earlier record does not wait until that is durable (6)
    PresentNotSettled,
    /// a turn is waited for without end (6)
    TurnNeverOvertaken,
    /// what a dead owner left in a stripe is not repaired (7)
    TakenOverUnrepaired,
    /// what a dead owner left in stripe 0 is not repaired (7)
    StripeZeroUnrepaired,
    /// who repairs stripe 0 looks for records from the last owner's announcement on, but owners announce nothing (7)
    EventUnannounced,
    /// who repairs an event does not see to it that recovery keeps it (7)
    EventUnconfirmed,
    /// repair leaves blocks marked as being changed (7)
    OddBlocksLeft,
    /// an owner that keeps others waiting is taken for dead (8)
    StoppedTakenForDead,
    /// an owner is taken for alive if somebody has its slot now (8)
    TermIgnored,
    /// an owner is taken for dead if the system cannot say whether it lives (8)
    DoubtMeansDead,
    /// a forked child keeps its parent's locks (8)
    ForkKeepsLocks,
    /// a forked child is not told from its parent (8)
    ForkUnnoticed,
    /// an event is applied before its record is written (9)
    EventBeforeRecord,
    /// recovery applies events whose insert was never recorded (9)
    EventsNotHeldBack,
    /// replay takes the time from the filter, not from the record (9)
    TimeReadAtReplay,
    /// an operation is applied before its record is written (9)
    ChangedBeforeRecord,
    /// an insert whose time is far ahead does not tell it before it is decided (9)
    TimeUntold,
    /// a generation closes one insert late (9)
    GenerationOneOff,
    /// a block that is written again does not clear the columns recycled since (9)
    StaleColumnsKept,
    /// replay applies records that a block has already (10)
    AppliedAgain,
    /// what an owner did in part is not taken back before it is done again (10)
    NotTakenBack,
    /// what does not fit into the notes for taking back is not saved (10)
    UndoOverflowForgotten,
    /// the sums of a stripe are changed in place (10)
    SumsInOneCopy,
    /// a query does not look whether the block has changed meanwhile (10)
    QueryUnchecked,
    /// openers do not wait for each other (11)
    OpeningByteIgnored,
    /// who closes does not wait for those who open (11)
    ClosedBesideOpener,
    /// a live image that was copied from elsewhere is believed (11)
    CopiedImageBelieved,
    /// the length of a segment's file is not checked (12)
    SegmentLengthTrusted,
    /// the length of a snapshot's frame is believed (12)
    FrameLengthTrusted,
    /// new files are given a length but no space (12)
    SpaceNotAllocated,
    /// a block grows into space that was not allocated (12)
    RoomNotAllocated,
    /// on a full disk the older snapshot is given up without a look at the newer one (12)
    SecondGroundGivenUpUnproven,
    /// a record is published without Release (memory order)
    PublishRelaxed,
    /// a stripe is unlocked without Release (memory order)
    UnlockRelaxed,
    /// a block is marked as being changed without a fence (memory order)
    MarkUnfenced,
}

impl Mistake {
    /// Whether the engine is to make it.
    #[cfg(not(planted))]
    #[inline(always)]
    #[must_use]
    pub const fn is_planted(self) -> bool {
        false
    }

    /// Whether the engine is to make it.
    ///
    /// # Panics
    /// If the environment names no mistake.
    #[cfg(planted)]
    #[must_use]
    pub fn is_planted(self) -> bool {
        static PLANTED: std::sync::OnceLock<Option<Mistake>> = std::sync::OnceLock::new();
        let named = || {
            let name = std::env::var("EBBTIDE_PLANTED").ok()?;
            let found = Self::ALL.iter().find(|mistake| format!("{mistake:?}") == name);
            Some(*found.unwrap_or_else(|| panic!("EBBTIDE_PLANTED: no mistake is called {name:?}")))
        };
        *PLANTED.get_or_init(named) == Some(self)
    }
}
