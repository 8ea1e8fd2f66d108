//! Claims: one of several claimants gets a key, and who reads without the lock sees whole claims.

use ebbtide::models::claims::{CLAIMS_WORDS, Claims, HEAD_WORDS};
use ebbtide::models::primitives::{AtomicU64, Ordering};
use ebbtide_core::claims::HeldClaim;
use loom::sync::Arc;
use loom::thread;
use std::sync::OnceLock;

/// Stripe 0 in short: its lock has a model of its own.
struct Image {
    lock: AtomicU64,
    words: Vec<AtomicU64>,
}

impl Image {
    fn new() -> Arc<Self> {
        let words = (0..HEAD_WORDS + CLAIMS_WORDS).map(|_| AtomicU64::new(0)).collect();
        let image = Self { lock: AtomicU64::new(0), words };
        image.claims().note_space();
        Arc::new(image)
    }

    fn claims(&self) -> Claims<'_> {
        Claims::new(&self.words[..HEAD_WORDS], &self.words[HEAD_WORDS..])
    }

    fn with_lock<T>(&self, change: impl FnOnce(Claims<'_>) -> T) -> T {
        // Acquire: pairs with the Release below.
        while self.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            thread::yield_now();
        }
        let changed = change(self.claims());
        self.lock.store(0, Ordering::Release);
        changed
    }
}

const KEY: u64 = 0x5eed;

/// Claims the key, by a token that also determines the other words.
fn claim(claims: Claims<'_>, token: u64) -> bool {
    if claims.get(KEY).is_some() {
        return false;
    }
    claims.set(token, of_token(token));
    true
}

fn of_token(token: u64) -> HeldClaim {
    HeldClaim { hash: KEY, token, since: token + 1, deadline: token + 2 }
}

#[test]
fn of_two_claimants_one_gets_the_key_and_after_its_release_the_other() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let image = Image::new();
        let claimants = [10, 20].map(|token| {
            let image = Arc::clone(&image);
            thread::spawn(move || image.with_lock(|claims| claim(claims, token)))
        });
        let got = claimants.map(|claimant| claimant.join().expect("no panic"));
        assert_eq!(got.iter().filter(|&&got| got).count(), 1);
        let token = if got[0] { 10 } else { 20 };
        image.with_lock(|claims| {
            assert_eq!(claims.get(KEY), Some(of_token(token)));
            claims.release(30, KEY, 30 - token);
            assert_eq!(claims.get(KEY), Some(of_token(token)), "by another's token");
            claims.release(31, KEY, token);
            assert!(claim(claims, 40));
        });
    });
}

fn looks(reader: fn(&Image) -> Vec<HeldClaim>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let image = Image::new();
        let writer = {
            let image = Arc::clone(&image);
            thread::spawn(move || image.with_lock(|claims| claim(claims, 10)))
        };
        let reader = {
            let image = Arc::clone(&image);
            thread::spawn(move || reader(&image))
        };
        for seen in reader.join().expect("no panic") {
            assert_eq!(seen, of_token(10));
        }
        writer.join().expect("no panic");
    });
}

#[test]
fn who_looks_without_the_lock_sees_a_whole_claim_or_none() {
    looks(|image| image.claims().all());
}

#[test]
#[should_panic(expected = "assertion")]
fn a_reader_that_does_not_acquire_the_hash_sees_half_a_claim() {
    looks(|image| {
        let words = &image.words[HEAD_WORDS..];
        let bucket = words.chunks_exact(32).find_map(|bucket| {
            let at = (0..8).find(|&at| bucket[at].load(Ordering::Relaxed) == KEY)?;
            Some((bucket, at))
        });
        let Some((bucket, at)) = bucket else { return Vec::new() };
        let [token, since, deadline] =
            [0, 1, 2].map(|word: usize| bucket[8 + 3 * at + word].load(Ordering::Relaxed));
        vec![HeldClaim { hash: KEY, token, since, deadline }]
    });
}

/// The word of the head with the number of claims in far buckets.
const FAR_COUNT: usize = 5;
/// The claims of the model's near buckets.
const NEAR_CLAIMS: u64 = 16;

/// Fills the near buckets.
fn fill(image: &Image) {
    for hash in 1..=NEAR_CLAIMS {
        image.claims().set(hash, HeldClaim { hash, token: hash, since: 1, deadline: 2 });
    }
    assert_eq!(image.words[FAR_COUNT].load(Ordering::Relaxed), 0, "near buckets are enough");
}

/// The first claim in a far bucket begins, and its writer dies after any of its stores; `sees`
/// looks at the word of the claim's hash, and at the number.
fn first_far_claim(sees: fn(&AtomicU64, &AtomicU64)) {
    static PLACE: OnceLock<usize> = OnceLock::new();
    let mut model = loom::model::Builder::new();
    (model.preemption_bound, model.max_branches) = (Some(3), 100_000);
    model.check(|| {
        let image = Image::new();
        fill(&image);
        assert!(claim(image.claims(), 20));
        let place = image.words.iter().position(|word| word.load(Ordering::Relaxed) == KEY);
        PLACE.get_or_init(|| place.expect("the claim's hash"));
    });
    model.check(move || {
        let image = Image::new();
        fill(&image);
        let writer = {
            let image = Arc::clone(&image);
            thread::spawn(move || assert!(claim(image.claims(), 20)))
        };
        let successor = {
            let image = Arc::clone(&image);
            let place = *PLACE.get().expect("found above");
            thread::spawn(move || sees(&image.words[place], &image.words[FAR_COUNT]))
        };
        successor.join().expect("no panic");
        writer.join().expect("no panic");
    });
}

#[test]
fn who_finds_a_claim_in_a_far_bucket_finds_that_there_is_one() {
    first_far_claim(|hash, count| {
        if hash.load(Ordering::Acquire) == KEY {
            assert_eq!(count.load(Ordering::Relaxed), 1);
        }
    });
}

#[test]
#[should_panic(expected = "assertion")]
fn a_successor_that_reads_the_number_first_misses_a_claim_in_a_far_bucket() {
    first_far_claim(|hash, count| {
        let count = count.load(Ordering::Relaxed);
        if hash.load(Ordering::Acquire) == KEY {
            assert_eq!(count, 1);
        }
    });
}
