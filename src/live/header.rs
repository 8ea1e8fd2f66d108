//! The file `live`: header, counters, slots, stripe table and block 0.
//!
//! | words | hold |
//! |---|---|
//! | 0-15 | checked header: magic, version, uuid (2), era, boot id (2), inode, stripes; checksum in word 15 |
//! | 16-19 | what every insert writes: tail, inserts, novelty, time |
//! | 24-31 | what is mostly read: durable end, poison, retired, refused |
//! | 512-1023 | slots: the term of each |
//! | 1024- | stripes, 8 words each; stripe 0 guards block 0 |
//! | after them | block 0: version, LSN, 6 words of the kind, [`STATE_WORDS`] words of state |

use crate::bytes::{HEADER_BYTES, HEADER_WORDS, Header, PAGE_BYTES, PAGE_WORDS};
use crate::cells::{Block, OWN_WORDS, load, store};
use crate::error::{Error, Result};
use crate::kinds::State;
use crate::kinds::state::STATE_WORDS;
use crate::media::{Access, Mapped, Media, MediaFile};
use crate::names::FileName;
use crate::sync::{AtomicU64, Ordering};

const MAGIC: &[u8; 8] = b"EBBTLIV\n";

const TAIL: usize = 16;
const INSERTS: usize = 17;
const NOVELTY: usize = 18;
const TIME: usize = 19;
const DURABLE: usize = 24;
const POISON: usize = 25;
const RETIRED: usize = 26;
const REFUSED: usize = 27;
const SLOTS: usize = PAGE_WORDS;
const STRIPES: usize = 2 * PAGE_WORDS;

/// Words of a stripe's entry: one cache line.
pub const STRIPE_WORDS: usize = 8;
/// Words of a block's header: one cache line.
pub const BLOCK_HEADER_WORDS: usize = 2 + OWN_WORDS;

const _: () = assert!(STRIPE_WORDS == 8 && BLOCK_HEADER_WORDS == 8);
const _: () = assert!(HEADER_WORDS <= TAIL, "counters lie behind the checked header");
const _: () = assert!(TAIL / 8 == TIME / 8 && TAIL / 8 != DURABLE / 8, "their own cache lines");

/// What identifies an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The filter.
    pub uuid: u128,
    /// The era whose image it is.
    pub era: u64,
    /// The run of the machine in which it was made.
    pub boot: u128,
    /// The inode of the file itself: a copy is not the image.
    pub inode: u64,
    /// Ordinary stripes.
    pub stripes: u32,
}

impl Identity {
    fn words(&self) -> Header<7> {
        let words = [
            self.uuid as u64,
            (self.uuid >> 64) as u64,
            self.era,
            self.boot as u64,
            (self.boot >> 64) as u64,
            self.inode,
            u64::from(self.stripes),
        ];
        Header { words }
    }

    fn from_words(header: Header<7>) -> Self {
        let [uuid, uuid_high, era, boot, boot_high, inode, stripes] = header.words;
        Self {
            uuid: u128::from(uuid_high) << 64 | u128::from(uuid),
            era,
            boot: u128::from(boot_high) << 64 | u128::from(boot),
            inode,
            stripes: stripes as u32,
        }
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let stripes = (u64::from(self.stripes) + 1) * STRIPE_WORDS as u64;
        let words = STRIPES as u64 + stripes + (BLOCK_HEADER_WORDS + STATE_WORDS) as u64;
        (words * 8).next_multiple_of(PAGE_BYTES)
    }
}

/// A stripe's entry: the lock word, and what is counted under it.
#[derive(Debug, Clone, Copy)]
pub struct Stripe<'a>(&'a [AtomicU64]);

/// The sums of a stripe, as snapshots keep them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StripeSums {
    /// The LSN last counted.
    pub lsn: u64,
    /// Insert operations applied.
    pub inserts: u64,
    /// All operations applied.
    pub operations: u64,
    /// The latest time, doubled, plus one if it came with its key.
    pub time: u64,
    /// The sum of what was new.
    pub novelty: u64,
}

impl<'a> Stripe<'a> {
    /// The lock word.
    #[must_use]
    #[inline]
    pub fn lock_word(&self) -> &'a AtomicU64 {
        &self.0[0]
    }

    /// What has been counted. Consistent for the stripe's holder only.
    #[must_use]
    pub fn sums(&self) -> StripeSums {
        let [lsn, inserts, operations, time, novelty] =
            [1, 2, 3, 4, 5].map(|at: usize| load(&self.0[at]));
        StripeSums { lsn, inserts, operations, time, novelty }
    }

    /// Sets what has been counted.
    pub fn set_sums(&self, sums: &StripeSums) {
        let words = [sums.lsn, sums.inserts, sums.operations, sums.time, sums.novelty];
        for (word, value) in self.0[1..].iter().zip(words) {
            store(word, value);
        }
    }

    /// Counts an insert, for the stripe's holder.
    #[inline]
    pub fn count_insert(&self, lsn: u64, time: u64, novelty: u64) {
        store(&self.0[1], lsn);
        store(&self.0[2], load(&self.0[2]).wrapping_add(1));
        store(&self.0[3], load(&self.0[3]).wrapping_add(1));
        store(&self.0[4], load(&self.0[4]).max(time));
        store(&self.0[5], load(&self.0[5]).wrapping_add(novelty));
    }

    /// Notes an event or a heartbeat, for the stripe's holder.
    pub fn note(&self, lsn: u64, time: u64) {
        store(&self.0[1], lsn);
        store(&self.0[4], load(&self.0[4]).max(time));
    }
}

/// A block's header.
#[derive(Debug, Clone, Copy)]
pub struct BlockHeader<'a>(pub(super) &'a [AtomicU64]);

impl<'a> BlockHeader<'a> {
    /// The version word; see [`super::version`].
    #[must_use]
    #[inline]
    pub fn version(&self) -> &'a AtomicU64 {
        &self.0[0]
    }

    /// The LSN last applied.
    #[must_use]
    #[inline]
    pub fn lsn(&self) -> u64 {
        load(&self.0[1])
    }

    /// Sets the LSN last applied.
    #[inline]
    pub fn set_lsn(&self, lsn: u64) {
        store(&self.0[1], lsn);
    }

    /// The kind's words.
    #[must_use]
    #[inline]
    pub fn own(&self) -> &'a [AtomicU64] {
        &self.0[2..]
    }
}

/// The mapped file `live`.
#[derive(Debug)]
pub struct LiveHeader {
    identity: Identity,
    mapping: Mapped,
}

impl LiveHeader {
    /// Creates the image's file under a temporary name, all zero but for its identity.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(media: &dyn Media, draft: &str, mut identity: Identity) -> Result<Self> {
        let path = media.path().join(FileName::Live.to_string());
        let file = media.create(draft, identity.bytes()).map_err(Error::io("allocate", &path))?;
        identity.inode = file.identity().map_err(Error::io("examine", &path))?;
        let mapping = Mapped::new(file.map(Access::Write).map_err(Error::io("map", &path))?);
        for (at, word) in identity.words().encode(MAGIC).into_iter().enumerate() {
            store(&mapping.words()[at], word);
        }
        Ok(Self { identity, mapping })
    }

    /// Opens the image that an earlier handle left, for what its counters say of holes in the log. `None` unless
    /// it is beyond doubt the image of this filter, made in this run of the machine.
    #[must_use]
    pub fn open_previous(media: &dyn Media, uuid: u128, boot: u128) -> Option<Self> {
        let (file, identity) = Self::left(media, uuid)?;
        let same = identity.boot == boot
            && identity.inode == file.identity().ok()?
            && identity.bytes() == file.bytes().ok()?;
        let mapping = same.then(|| file.map(Access::Read).ok().map(Mapped::new)).flatten()?;
        Some(Self { identity, mapping })
    }

    /// The era of the image that an earlier handle left, if it can be read. An image gets its name only when its
    /// era's first segment is durable, so this holds also after a power cut and for a copy.
    #[must_use]
    pub fn previous_era(media: &dyn Media, uuid: u128) -> Option<u64> {
        Self::left(media, uuid).map(|(_, identity)| identity.era)
    }

    fn left(media: &dyn Media, uuid: u128) -> Option<(Box<dyn MediaFile>, Identity)> {
        let name = FileName::Live.to_string();
        let file = media.open(&name, Access::Read).ok()?;
        let mut start = vec![0; HEADER_BYTES];
        file.read_at(&mut start, 0).ok()?;
        let header = Header::decode(&start, MAGIC, &media.path().join(&name), "").ok()?;
        let identity = Identity::from_words(header);
        (identity.uuid == uuid).then_some((file, identity))
    }

    /// What identifies the image.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.mapping.words()[at]
    }

    /// The next LSN to reserve.
    #[must_use]
    #[inline]
    pub fn tail(&self) -> &AtomicU64 {
        self.word(TAIL)
    }

    /// A cache of the stripes' inserts, raised after each.
    #[must_use]
    #[inline]
    pub fn inserts(&self) -> &AtomicU64 {
        self.word(INSERTS)
    }

    /// A cache of the stripes' novelty, raised after each insert of a kind that measures it.
    #[must_use]
    #[inline]
    pub fn novelty(&self) -> &AtomicU64 {
        self.word(NOVELTY)
    }

    /// A cache of the latest time (doubled, plus one if it came with its key), for kinds that use time.
    #[must_use]
    #[inline]
    pub fn time(&self) -> &AtomicU64 {
        self.word(TIME)
    }

    /// Every LSN below is durable.
    #[must_use]
    pub fn durable(&self) -> &AtomicU64 {
        self.word(DURABLE)
    }

    /// Inserts refused as too late since the image was made.
    #[must_use]
    pub fn refused(&self) -> &AtomicU64 {
        self.word(REFUSED)
    }

    /// Refuses all further writes, for good. Relaxed will do: the flag guards no other data.
    pub fn poison(&self) {
        self.word(POISON).store(1, Ordering::Relaxed);
    }

    /// Whether writes are refused.
    #[must_use]
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.word(POISON).load(Ordering::Relaxed) != 0
    }

    /// Marks the image as closed: no one may attach to it any more.
    pub fn retire(&self) {
        self.word(RETIRED).store(1, Ordering::Release);
    }

    /// The term of a slot: how often it was taken.
    #[must_use]
    pub fn slot_term(&self, slot: usize) -> &AtomicU64 {
        self.word(SLOTS + slot % PAGE_WORDS)
    }

    /// Ordinary stripes and stripe 0.
    #[must_use]
    #[inline]
    pub fn stripe_count(&self) -> usize {
        self.identity.stripes as usize + 1
    }

    /// A stripe's entry. Stripe 0 guards block 0, stripe `i + 1` the `i`-th share of the key-hash space.
    #[must_use]
    #[inline]
    pub fn stripe(&self, index: usize) -> Stripe<'_> {
        let at = STRIPES + index * STRIPE_WORDS;
        Stripe(&self.mapping.words()[at..at + STRIPE_WORDS])
    }

    /// How many stripes somebody holds.
    #[must_use]
    pub fn locked_stripes(&self) -> usize {
        (0..self.stripe_count()).filter(|&at| load(self.stripe(at).lock_word()) != 0).count()
    }

    #[inline]
    fn block0_at(&self) -> usize {
        STRIPES + self.stripe_count() * STRIPE_WORDS
    }

    /// The header of block 0.
    #[must_use]
    #[inline]
    pub fn block0(&self) -> BlockHeader<'_> {
        let at = self.block0_at();
        BlockHeader(&self.mapping.words()[at..at + BLOCK_HEADER_WORDS])
    }

    /// The filter-wide state: the cells of block 0.
    #[must_use]
    #[inline]
    pub fn state(&self) -> State<'_> {
        State::new(self.state_block().cells)
    }

    /// Block 0 as a block.
    #[must_use]
    #[inline]
    pub fn state_block(&self) -> Block<'_> {
        let at = self.block0_at() + BLOCK_HEADER_WORDS;
        Block { own: self.block0().own(), cells: &self.mapping.words()[at..at + STATE_WORDS] }
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.identity.bytes()
    }
}
