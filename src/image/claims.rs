//! The claims of a filter: which keys are being worked on; see [`ebbtide_core::claims`].
//!
//! A table of buckets of 8 claims. A key has two buckets, by its hash, and a new claim goes to the
//! emptier one. First come 64 *near* buckets, which stay in the caches; a claim goes to the *far*
//! ones only if both of its near buckets are full. The far buckets have room for twice as many
//! claims as a filter may have. Less than 10^-9 of them are full, so in practice never both of a
//! key's. A key whose buckets are full has no room.
//!
//! Only the holder of stripe 0 writes. Without stripe 0 the table is read for figures only. A claim
//! exists once the word of its hash is set. A record may be applied again until its LSN is stored.
//! After a death the numbers of claims may be one too high: the repair of stripe 0 counts the
//! claims again.

use crate::primitives::{AtomicU64, Ordering};
use crate::wal::{Op, Record};
use ebbtide_core::block::{load, prefetch_write, store};
use ebbtide_core::claims::{HeldClaim, LatestClaim, MOST_CLAIMS, renewed};
use ebbtide_core::hash::{mix, scale};

/// Words that every image has: the LSN last applied, the number of claims, the latest time and
/// token, whether the table has its space, and the number of claims in far buckets.
pub const HEAD_WORDS: usize = 6;
const LSN: usize = 0;
const COUNT: usize = 1;
const TIME: usize = 2;
const TOKEN: usize = 3;
const SPACE: usize = 4;
const FAR_COUNT: usize = 5;

/// Claims of a bucket: their hashes are one cache line.
const BUCKET: usize = 8;
/// Words of a claim beside its hash: token, beginning, deadline.
const CLAIM_WORDS: usize = 3;
/// Words of a bucket: all hashes, then the rest of each claim.
const BUCKET_WORDS: usize = (1 + CLAIM_WORDS) * BUCKET;
/// The near buckets, and the far ones.
const NEAR: usize = if cfg!(any(loom, miri, shuttle, fuzzing)) { 2 } else { 64 };
const FAR: usize = 2 * MOST_CLAIMS / BUCKET;

/// Words of the table.
pub const CLAIMS_WORDS: usize = (NEAR + FAR) * BUCKET_WORDS;

/// The claims in the image.
#[derive(Debug, Clone, Copy)]
pub struct Claims<'a> {
    head: &'a [AtomicU64],
    table: &'a [AtomicU64],
}

/// The words of one claim.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    bucket: &'a [AtomicU64],
    at: usize,
}

impl<'a> Place<'a> {
    fn hash(&self) -> u64 {
        // Acquire: pairs with the Release in `set_hash`. Who sees a claim sees its other words.
        self.bucket[self.at].load(Ordering::Acquire)
    }

    fn set_hash(&self, hash: u64) {
        // Release: pairs with the Acquire in `hash`.
        self.bucket[self.at].store(hash, Ordering::Release);
    }

    /// The words beside the hash.
    fn words(&self) -> &'a [AtomicU64] {
        &self.bucket[BUCKET + CLAIM_WORDS * self.at..][..CLAIM_WORDS]
    }

    fn read(&self, hash: u64) -> HeldClaim {
        let [token, since, deadline] = [0, 1, 2].map(|at: usize| load(&self.words()[at]));
        HeldClaim { hash, token, since, deadline }
    }

    fn write(&self, claim: &HeldClaim) {
        let words = self.words();
        store(&words[1], claim.since);
        store(&words[2], claim.deadline);
        // Release: a repairer that sees the token also sees `since`, which a claim that is set
        // again keeps.
        words[0].store(claim.token, Ordering::Release);
    }
}

/// Returns a hash as the table stores it: 0 means that there is no claim.
fn stored(hash: u64) -> u64 {
    hash.max(1)
}

impl<'a> Claims<'a> {
    /// Creates the claims in these words.
    #[must_use]
    pub fn new(head: &'a [AtomicU64], table: &'a [AtomicU64]) -> Self {
        debug_assert!(head.len() == HEAD_WORDS && table.len() == CLAIMS_WORDS);
        Self { head, table }
    }

    /// Returns the LSN last applied, for the holder of stripe 0.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        load(&self.head[LSN])
    }

    /// Returns the latest time and token, for the holder of stripe 0.
    #[must_use]
    pub fn latest(&self) -> LatestClaim {
        LatestClaim { time: load(&self.head[TIME]), token: load(&self.head[TOKEN]) }
    }

    /// Returns whether the table has its space. Without it, it has no claim, and is not read.
    #[must_use]
    pub fn has_space(&self) -> bool {
        // Acquire: pairs with the Release in `note_space`.
        self.head[SPACE].load(Ordering::Acquire) != 0
    }

    /// Notes that the table has its space, for the holder of stripe 0.
    pub fn note_space(&self) {
        // Release: pairs with the Acquire in `has_space`.
        self.head[SPACE].store(1, Ordering::Release);
    }

    /// Returns the buckets that have claims.
    fn buckets(&self) -> impl Iterator<Item = &'a [AtomicU64]> {
        let count = match (self.has_space(), load(&self.head[FAR_COUNT])) {
            (false, _) => 0,
            (true, 0) => NEAR,
            (true, _) => NEAR + FAR,
        };
        self.table.chunks_exact(BUCKET_WORDS).take(count)
    }

    /// Returns the two near buckets of a key, or its two far ones.
    fn buckets_of(&self, hash: u64, far: bool) -> [&'a [AtomicU64]; 2] {
        let (begin, count) = if far { (NEAR, FAR) } else { (0, NEAR) };
        let mixed = mix(stored(hash));
        let first = scale(mixed, count as u64) as usize;
        let other = scale(mix(mixed), count as u64 - 1) as usize;
        let second = (first + 1 + other) % count;
        [first, second].map(|at| &self.table[(begin + at) * BUCKET_WORDS..][..BUCKET_WORDS])
    }

    /// Prefetches what a claim of this key reads.
    pub fn prefetch(&self, hash: u64) {
        if self.has_space() {
            self.buckets_of(hash, false).iter().for_each(|bucket| prefetch_write(&bucket[0]));
        }
    }

    /// Returns where the claim of a key is, and whether that is a far bucket.
    fn find(&self, hash: u64) -> Option<(Place<'a>, bool)> {
        let hash_word = stored(hash);
        let find = |far| {
            self.buckets_of(hash, far).into_iter().find_map(|bucket| {
                let at = (0..BUCKET).find(|&at| Place { bucket, at }.hash() == hash_word)?;
                Some((Place { bucket, at }, far))
            })
        };
        let has_far = load(&self.head[FAR_COUNT]) > 0;
        find(false).or_else(|| if has_far { find(true) } else { None })
    }

    /// Returns an empty place for a key, in the emptier of its buckets.
    fn empty(&self, hash: u64) -> Option<(Place<'a>, bool)> {
        let empty = |far| {
            let [first, second] = self.buckets_of(hash, far).map(|bucket| {
                let empty = |at: &usize| Place { bucket, at: *at }.hash() == 0;
                let count = (0..BUCKET).filter(empty).count();
                (count, (0..BUCKET).find(empty).map(|at| Place { bucket, at }))
            });
            let place = if first.0 >= second.0 { first.1 } else { second.1 };
            place.map(|place| (place, far))
        };
        empty(false).or_else(|| empty(true))
    }

    /// Returns the claim of a key, held or not, for the holder of stripe 0.
    #[must_use]
    pub fn get(&self, hash: u64) -> Option<HeldClaim> {
        if !self.has_space() {
            return None;
        }
        self.find(hash).map(|(place, _)| place.read(hash))
    }

    /// Returns all claims, held or not, by hash: exact for the holder of stripe 0.
    #[must_use]
    pub fn all(&self) -> Vec<HeldClaim> {
        let places =
            self.buckets().flat_map(|bucket| (0..BUCKET).map(move |at| Place { bucket, at }));
        let claims = places.filter_map(|place| match place.hash() {
            0 => None,
            hash => Some(place.read(hash)),
        });
        let mut all: Vec<_> = claims.collect();
        all.sort_unstable();
        all
    }

    /// Returns whether there are as many claims as there may be, for the holder of stripe 0.
    #[must_use]
    pub fn is_full(&self) -> bool {
        load(&self.head[COUNT]) >= MOST_CLAIMS as u64
    }

    /// Returns the claims of which one must end before a key without room has some, for the holder
    /// of stripe 0.
    #[must_use]
    pub fn in_the_way_of(&self, hash: u64) -> Vec<HeldClaim> {
        if self.is_full() {
            return self.all();
        }
        let buckets = [false, true].into_iter().flat_map(|far| self.buckets_of(hash, far));
        let places = buckets.flat_map(|bucket| (0..BUCKET).map(move |at| Place { bucket, at }));
        places.map(|place| place.read(place.hash())).filter(|claim| claim.hash != 0).collect()
    }

    /// Returns whether a claim of this key has room, for the holder of stripe 0.
    #[must_use]
    pub fn has_room_for(&self, hash: u64) -> bool {
        let has_empty = || !self.has_space() || self.empty(hash).is_some();
        !self.is_full() && has_empty() || self.get(hash).is_some()
    }

    /// Applies a record of a claim, for the holder of stripe 0, and if the table has its space.
    pub fn apply(&self, lsn: u64, record: &Record) {
        let claim = HeldClaim::of_record(record);
        match record.op {
            Op::Claim => self.set(lsn, claim),
            _ => self.release(lsn, claim.hash, claim.token),
        }
    }

    /// Sets the claim of a key, for the holder of stripe 0, and if the table has its space. Setting
    /// it again changes nothing. A claim [without room](Claims::has_room_for) is left out; writers
    /// check that first.
    pub fn set(&self, lsn: u64, claim: HeldClaim) {
        let found = self.find(claim.hash);
        if let Some((place, far)) = found.or_else(|| self.empty(claim.hash)) {
            let before = found.map(|(place, _)| place.read(claim.hash));
            place.write(&renewed(before, claim));
            if found.is_none() {
                self.add_to_counts(far, 1);
                place.set_hash(stored(claim.hash));
            }
        }
        let LatestClaim { time, token } = self.latest().after(&claim);
        self.begin_after(LatestClaim { time, token });
        self.note(lsn);
    }

    /// Sets the latest time and token, for the holder of stripe 0.
    pub fn begin_after(&self, latest: LatestClaim) {
        store(&self.head[TIME], latest.time);
        store(&self.head[TOKEN], latest.token);
    }

    /// Ends a claim, if it has this token, for the holder of stripe 0.
    pub fn release(&self, lsn: u64, hash: u64, token: u64) {
        let found = self.has_space().then(|| self.find(hash)).flatten();
        if let Some((place, far)) = found.filter(|(place, _)| place.read(hash).token == token) {
            place.set_hash(0);
            self.add_to_counts(far, u64::MAX);
        }
        self.note(lsn);
    }

    /// Counts the claims anew, for the holder of stripe 0, after a death.
    pub fn count_again(&self) {
        let (mut all, mut far) = (0, 0);
        for (number, bucket) in self.buckets().enumerate() {
            let count = (0..BUCKET).filter(|&at| Place { bucket, at }.hash() != 0).count() as u64;
            all += count;
            far += if number < NEAR { 0 } else { count };
        }
        store(&self.head[COUNT], all);
        store(&self.head[FAR_COUNT], far);
    }

    fn add_to_counts(&self, far: bool, more: u64) {
        let add = |at: usize| store(&self.head[at], load(&self.head[at]).wrapping_add(more));
        add(COUNT);
        if far {
            add(FAR_COUNT);
        }
    }

    fn note(&self, lsn: u64) {
        // Release: an owner that takes over from a dead one and sees the LSN sees the change.
        self.head[LSN].store(lsn, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    struct Words(Vec<AtomicU64>);

    impl Words {
        fn new() -> Self {
            Self((0..HEAD_WORDS + CLAIMS_WORDS).map(|_| AtomicU64::new(0)).collect())
        }

        fn claims(&self) -> Claims<'_> {
            Claims::new(&self.0[..HEAD_WORDS], &self.0[HEAD_WORDS..])
        }
    }

    fn claim(hash: u64, token: u64) -> HeldClaim {
        HeldClaim { hash, token, since: token, deadline: token + 10 }
    }

    proptest! {
        #[test]
        fn the_table_holds_what_a_map_holds(
            steps in proptest::collection::vec((0..40_u64, any::<bool>()), 0..300),
        ) {
            let words = Words::new();
            let (claims, mut map) = (words.claims(), BTreeMap::new());
            claims.note_space();
            for (lsn, (hash, begins)) in (1..).zip(steps) {
                // One of them is stored as another number.
                let hash = if hash == 39 { 0 } else { hash + 2 };
                if begins {
                    claims.set(lsn, claim(hash, lsn));
                    map.insert(hash, claim(hash, lsn));
                } else if let Some(held) = map.remove(&hash) {
                    claims.release(lsn, hash, held.token + 1);
                    prop_assert_eq!(claims.get(hash), Some(held), "another's token");
                    claims.release(lsn, hash, held.token);
                }
                prop_assert_eq!(claims.get(hash), map.get(&hash).copied());
                prop_assert_eq!(load(&words.0[COUNT]), map.len() as u64);
            }
            let all: Vec<_> = claims.all().iter().map(|claim| claim.token).collect();
            let mut expected: Vec<_> = map.into_values().map(|claim| claim.token).collect();
            expected.sort_unstable();
            let mut found = all;
            found.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_table_without_space_is_not_read_and_has_no_claim() {
        let words = Words::new();
        words.0[HEAD_WORDS..].iter().for_each(|word| store(word, 9));
        let claims = words.claims();
        assert_eq!((claims.get(9), claims.all()), (None, vec![]));
        claims.release(3, 9, 9);
        assert_eq!(claims.lsn(), 3);
    }

    #[test]
    fn a_key_whose_buckets_are_full_has_no_room_and_none_of_its_claims_is_dropped() {
        let words = Words::new();
        let claims = words.claims();
        assert!(claims.has_room_for(7), "the table gets its space with the first claim");
        claims.note_space();
        let buckets = [false, true].map(|far| claims.buckets_of(7, far)).concat();
        let places = || buckets.iter().flat_map(|bucket| (0..BUCKET).map(move |at| (bucket, at)));
        for (number, (bucket, at)) in (100..).zip(places()) {
            assert!(claims.has_room_for(7), "{number}");
            Place { bucket, at }.set_hash(number);
        }
        store(&words.0[FAR_COUNT], 1);
        claims.count_again();
        assert_eq!(claims.all().len(), 4 * BUCKET);
        assert!(!claims.has_room_for(7) && !claims.is_full());
        assert_eq!(claims.in_the_way_of(7).len(), 4 * BUCKET);
        Place { bucket: buckets[3], at: 2 }.set_hash(7);
        assert!(claims.has_room_for(7), "it is there");
    }

    #[test]
    fn there_is_room_for_as_many_claims_as_there_may_be_however_often_they_change() {
        let words = Words::new();
        let claims = words.claims();
        claims.note_space();
        let most = MOST_CLAIMS as u64;
        let hash = |number: u64| mix(number + 1);
        for number in 0..3 * most {
            if number >= most {
                let oldest = number - most;
                claims.release(number, hash(oldest), oldest + 1);
            }
            assert!(claims.has_room_for(hash(number)), "{number}");
            claims.set(number, claim(hash(number), number + 1));
        }
        assert_eq!(claims.all().len() as u64, most);
        assert!(claims.has_room_for(hash(3 * most - 1)), "it is there");
        assert!(!claims.has_room_for(hash(3 * most)));
        let far = load(&words.0[FAR_COUNT]);
        assert!(far > most / 2, "{far}");
        store(&words.0[COUNT], 7);
        store(&words.0[FAR_COUNT], far + 1);
        claims.count_again();
        assert_eq!((load(&words.0[COUNT]), load(&words.0[FAR_COUNT])), (most, far));
    }
}
