//! What an answer, a clear or a backup rests on is durable when it returns, also right behind what
//! was durable before.

use crate::claims::options;
use ebbtide::media::{Media, Memory};
use ebbtide::{Bloom, Checked, Claim, Durability, Filter, Since};
use ebbtide_testkit::beside::Beside;
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::random::Random;
use std::sync::Arc;
use std::time::Duration;

/// The claims, by name.
pub const ALL: [(&str, fn()); 5] = [
    ("a_clear_right_behind_what_is_durable_survives_a_power_cut", cleared),
    ("a_backup_beside_writers_that_returned_survives_a_power_cut", backed_up),
    ("the_answer_that_a_claimed_key_was_seen_waits_for_its_insert", seen),
    ("a_batch_of_questions_waits_for_all_that_its_answers_rest_on", asked),
    ("no_token_is_given_again_after_a_power_cut_that_lost_its_claim", tokens),
];

const LEASE: Duration = Duration::from_secs(3600);

/// Creates a filter whose operations wait for nothing, unless they say otherwise.
fn create(media: Arc<dyn Media>) -> Filter<Bloom> {
    let options = options().durability(Durability::Never);
    Filter::create_on(media, Bloom::capacity(2000).fpr(1e-6), options).expect("a filter")
}

fn reopen(media: CrashDisk) -> Filter<Bloom> {
    Filter::open_on(Arc::new(media), options()).expect("the filter")
}

fn insert(filter: &Filter<Bloom>, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
}

fn has(filter: &Filter<Bloom>, key: u64) -> bool {
    filter.contains(key.to_le_bytes()).expect("an answer")
}

/// At each place of two segments, which have room for 128 records: where the first one ends there
/// is no room for the note that a sync writes behind what it has made durable.
fn cleared() {
    for count in 1..260 {
        let disk = CrashDisk::new();
        let filter = create(Arc::new(disk.clone()));
        insert(&filter, 0..count);
        filter.sync().expect("a sync");
        filter.clear().expect("a clear");
        let after = reopen(disk.without_power(Random::new(count)));
        assert_eq!(after.digest().expect("a digest").inserts, 0, "after {count} inserts");
    }
}

/// Only beside writers has the copy a log.
fn backed_up() {
    let filter = create(Arc::new(Memory::new()));
    insert(&filter, 0..500);
    let disk = CrashDisk::new();
    let others = || {
        let begin = filter.stat().expect("figures").inserts;
        insert(&filter, begin..begin + 50);
        Ok(())
    };
    filter.backup_on(&Beside { to: &disk, others: &others }).expect("a backup");
    let whole = reopen(disk.without_process()).digest().expect("a digest");
    assert!(whole.inserts >= 550, "written during the copy: {whole:?}");
    for seed in 0..40 {
        let copy = reopen(disk.without_power(Random::new(seed)));
        assert_eq!(copy.digest().expect("a digest").value, whole.value, "seed {seed}");
    }
}

fn seen() {
    for seed in 0..20 {
        let disk = CrashDisk::new();
        let filter = create(Arc::new(disk.clone()));
        insert(&filter, 0..1);
        let claimed =
            filter.call().durability(Durability::Always).claim(0_u64.to_le_bytes(), LEASE);
        assert!(matches!(claimed.expect("an answer"), Claim::Seen));
        assert!(has(&reopen(disk.without_power(Random::new(seed))), 0), "seed {seed}");
    }
}

fn asked() {
    for seed in 0..20 {
        let disk = CrashDisk::new();
        let filter = create(Arc::new(disk.clone()));
        // Of different stripes; the first ones are durable.
        insert(&filter, 0..10);
        filter.sync().expect("a sync");
        insert(&filter, 10..20);
        let call = filter.call().since(Since::LastAccepted).durability(Durability::Always);
        let mut batch = ebbtide::Batch::new(call);
        for key in 0..20_u64 {
            let checked = batch.check_and_insert(key.to_le_bytes()).expect("an answer");
            assert_eq!(checked, Checked::Present);
        }
        assert_eq!(batch.len(), 0, "questions alone");
        batch.commit().expect("a commit");
        let after = reopen(disk.without_power(Random::new(seed)));
        assert!((0..20).all(|key| has(&after, key)), "seed {seed}");
    }
}

fn tokens() {
    let mut disk = CrashDisk::new();
    let mut filter = create(Arc::new(disk.clone()));
    filter.sync().expect("a sync");
    let (mut latest, mut lost) = (0_u64, 0);
    for round in 0..20_u64 {
        for _ in 0..3 {
            let claimed = filter.claim(latest.to_le_bytes(), LEASE).expect("an answer");
            let Claim::Yours(lease) = claimed else { panic!("{latest} is free") };
            let token = lease.into_token();
            assert!(token > latest, "round {round}: {token} after {latest}");
            latest = token;
        }
        let left = disk.without_power(Random::new(round));
        std::mem::forget(filter);
        filter = reopen(left.clone());
        disk = left;
        lost += 3 * (round + 1) - filter.claims().expect("claims").len() as u64;
    }
    assert!(lost > 0, "power cuts lose claims");
}
