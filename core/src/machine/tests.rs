//! Claims about filters in memory, of every kind.

use super::ledger::Ledger;
use super::pieces::checksum;
use super::*;
use crate::claims::MOST_CLAIMS;
use crate::conformance::{hash_of, records_and_pieces_rebuild};
use crate::event;
use crate::hash::mix;
use crate::kind::{Event, MOST_WEIGHT, Parameters};
use crate::kinds::registry::{self, REGISTRY};
use crate::log_record::{Op, Record};
use crate::time::LATEST;
use proptest::prelude::*;
use std::time::Duration;

const LAYOUT: Layout = Layout { stripes: 2, block_words: 256 };
const STABLE: &[(&str, &str)] = &[("cells", "20000"), ("max", "7"), ("K", "4"), ("P", "12")];
const WINDOW: &[(&str, &str)] = &[("window-items", "300"), ("fpr", "0.01")];
const COUNTED: &[(&str, &str)] = &[("capacity", "500"), ("fpr", "0.01")];
const DECAYED: &[(&str, &str)] =
    &[("capacity", "500"), ("fpr", "0.01"), ("lambda", "0.7"), ("epoch", "20000")];

/// Parameters of a small filter of each kind.
fn parameters(name: &str) -> Parameters {
    let pairs = match name {
        "timing" | "block-timing" | "age-partitioned" | "double-buffering" | "two-buffer"
        | "fingerprint" => WINDOW,
        "time-limited" => &[("window", "200000"), ("fpr", "0.01"), ("rate", "100")],
        "decaying" | "decaying-optimized" => DECAYED,
        name if name == "stable" || name.starts_with("importance") => STABLE,
        _ => COUNTED,
    };
    pairs.iter().fold(Parameters::new(), |all, (name, value)| all.with(name, value))
}

fn kind(name: &str) -> Arc<dyn Kind> {
    registry::build(name, &parameters(name)).expect(name)
}

fn machine(name: &str) -> Machine {
    let options = MachineOptions::new().stripes(2).block_bytes(2048);
    Machine::create(kind(name), &options, 7, 4711).expect(name)
}

/// Inserts keys, one a millisecond; returns the records.
fn filled(machine: &mut Machine, keys: u64) -> Vec<Logged> {
    let mut records = Vec::new();
    for key in 0..keys {
        let time = OperationTime { time: (1 << 40) + key * 1000, stream: true };
        let written = machine.insert(hash_of(key % 400), time, &mut |record| records.push(record));
        assert!(written.expect("an insert"));
    }
    records
}

fn names() -> impl Iterator<Item = &'static str> {
    REGISTRY.iter().map(|entry| entry.name)
}

#[test]
fn every_kind_is_rebuilt_from_its_records_and_from_its_pieces() {
    for name in names() {
        records_and_pieces_rebuild(&kind(name), LAYOUT, 1500, 1000);
    }
}

#[test]
fn an_empty_filter_of_any_size_is_small_and_grows_by_what_is_written() {
    let parameters = Parameters::new().with("capacity", 1_u64 << 36);
    let kind = registry::build("bloom", &parameters).expect("a kind");
    let mut machine = Machine::create(kind, &MachineOptions::new(), 1, 2).expect("a machine");
    assert!(machine.memory_bytes() < 16 << 10 && machine.planned_bytes() > 100 << 30);
    assert!(!machine.contains(hash_of(1), 0));
    let before = machine.memory_bytes();
    filled(&mut machine, 1);
    let grown = machine.memory_bytes() - before;
    // A chunk, a group of chunks, and the list of groups.
    assert!((1 << 10..2 << 20).contains(&grown), "{grown}");
    assert!(machine.contains(hash_of(0), 0));
    assert_eq!(machine.pieces().count(), 3);
}

#[test]
fn the_tables_of_a_kind_are_part_of_a_filters_memory() {
    let decaying = Parameters::new().with("capacity", 100).with("epoch", 1_000_000);
    let polynomial = decaying.clone().with("decay", "polynomial").with("exponent", 1);
    let polynomial = polynomial.with("horizon", 8760);
    let each = [("decaying", decaying.with("lambda", 0.99)), ("decaying", polynomial)];
    for (name, parameters) in each {
        let kind = registry::build(name, &parameters).expect("a kind");
        // Two tables of powers at least.
        let tables = kind.table_bytes();
        assert!((4096..1 << 20).contains(&tables), "{tables}");
        let machine = Machine::create(kind, &MachineOptions::new(), 1, 2).expect("a machine");
        assert!(machine.memory_bytes() > tables, "{} of {tables}", machine.memory_bytes());
        assert!(machine.planned_bytes() > tables as u64, "{}", machine.planned_bytes());
    }
}

#[test]
fn no_piece_is_above_a_mebibyte_and_memory_is_as_planned_when_all_is_written() {
    for block_bytes in [512, 2048, 16 << 10, 64 << 10] {
        let parameters = Parameters::new().with("capacity", 1_000_000);
        let kind = registry::build("counting", &parameters).expect("a kind");
        let options = MachineOptions::new().block_bytes(block_bytes);
        let mut machine = Machine::create(kind, &options, 1, 2).expect("a machine");
        machine.parts.allocate_all();
        let sizes: Vec<_> = machine.pieces().map(|piece| piece.len()).collect();
        assert!(sizes.len() > 4 && sizes.iter().all(|&size| size <= 1 << 20), "{sizes:?}");
        let (used, planned) = (machine.memory_bytes() as u64, machine.planned_bytes());
        assert!((planned..planned + planned / 100 + 8192).contains(&used), "{used}, {planned}");
    }
}

#[test]
fn a_record_that_is_not_the_next_one_of_this_filter_changes_nothing() {
    for name in names() {
        let mut first = machine(name);
        let records = filled(&mut first, 50);
        let mut second = Machine::from_identity(&first.identity()).expect("a twin");
        second.apply(&records[0]).expect("the next record");
        let (position, digest) = (second.position(), second.digest());
        let other = Machine::create(kind(name), &MachineOptions::new(), 7, 4712);
        let of_other = filled(&mut other.expect("a machine"), 2);
        let mut flipped = records[1];
        flipped.record[3] ^= 1;
        let moved = Logged { lsn: records[1].lsn, ..records[2] };
        for wrong in [records[0], records[2], of_other[1], flipped, moved] {
            let error = second.apply(&wrong).expect_err(name);
            assert!(matches!(error, Error::Diverged { .. }), "{error}");
            assert_eq!((second.position(), second.digest()), (position, digest));
        }
        second.apply(&records[1]).expect("the next record");
    }
}

#[test]
fn records_that_no_filter_of_the_kind_emits_are_refused_though_their_checksum_is_right() {
    for name in names() {
        let mut machine = machine(name);
        filled(&mut machine, 20);
        let geometry = |blocks_per_stripe, words_per_block| {
            let id = machine.parts.state().next_bank();
            let size = crate::block::Geometry { blocks_per_stripe, words_per_block };
            event::to_record(&Event::OpenBank { id, geometry: size, since: 0, time: 0 }, true)
        };
        let mut wrong = vec![
            Record::new(Op::Heartbeat),
            Record::new(Op::Durable),
            Record { time: u64::MAX, ..Record::new(Op::Step) },
            Record { payload: hash_of(u64::MAX), argument: 1 << 20, ..Record::new(Op::Remove) },
            geometry(0, 64),
            geometry(1, 0),
            geometry(1, 1 << 20),
            geometry(u32::MAX, 8192),
        ];
        if machine.kind().weights().is_some() {
            wrong.push(Record::new(Op::Insert));
        }
        let digest = machine.digest();
        for record in wrong {
            let mut ledger = Ledger::from_parts(machine.position(), false, Box::default());
            let logged = ledger.append(&record);
            let error = machine.apply(&logged).expect_err(name);
            assert!(matches!(error, Error::Diverged { .. }), "{name}: {record:?}: {error}");
            assert_eq!(machine.digest(), digest, "{name}: {record:?}");
        }
    }
}

/// Both functions of the key have the same counter, so each part is counted twice.
#[test]
fn a_twin_applies_all_records_of_a_removal_that_is_cut_into_parts() {
    let counter = Parameters::new().with("capacity", 1).with("cells", 1).with("k", 2);
    let kind = registry::build("dynamic-count", &counter).expect("a kind");
    let mut machine = Machine::create(kind, &MachineOptions::new(), 7, 4711).expect("a machine");
    let mut twin = Machine::from_identity(&machine.identity()).expect("a twin");
    let (time, most) = (OperationTime { time: 1, stream: true }, u64::from(MOST_WEIGHT));
    let mut records = Vec::new();
    let log = &mut |record| records.push(record);
    let insert = Request::insert(1).weighing(most + 1);
    machine.write(&insert, time, log).expect("an insert");
    assert!(machine.remove((1, 2 * most + 2), time, log).expect("a removal"));
    assert_eq!(machine.estimate(1, 1).expect("a count").count, 0.0);
    records.iter().for_each(|record| twin.apply(record).expect("the next record"));
    assert_eq!(twin.digest(), machine.digest());
}

#[test]
fn what_a_kind_does_not_do_is_refused_without_a_record() {
    let time = OperationTime { time: 1, stream: true };
    let mut none = |_| panic!("no record is expected");
    let mut bloom = machine("bloom");
    let insert = Request::insert(1);
    let removal = Request::remove(1, 1);
    let counted = insert.under(Precondition::Estimate);
    for request in [insert.weighing(2), insert.weighing(0), removal, counted] {
        let error = bloom.write(&request, time, &mut none).expect_err("a bloom filter");
        let of_it = matches!(error, Error::Unsupported { kind: "bloom", .. });
        assert!(of_it || matches!(error, Error::Parameter { name: "weight", .. }), "{error}");
    }
    assert!(bloom.insert_up_to((1, 1), f64::NAN, time, &mut none).is_err());
    assert!(bloom.age(1, 1).is_err() && bloom.estimate(1, 1).is_err());
    let error = Machine::create(kind("bloom"), &MachineOptions::new().stripes(0), 1, 2);
    assert!(matches!(error, Err(Error::Parameter { name: "stripes", .. })));
}

/// Returns the words of all blocks: cells, and kind words if `own`.
fn words(machine: &Machine, own: bool) -> Vec<u64> {
    let mut words = Vec::new();
    machine.parts.each_block(|_, block| {
        let own = if own { block.own } else { &[] };
        words.extend(own.iter().chain(block.cells).map(crate::block::load));
    });
    words
}

#[test]
fn a_weight_beyond_the_counters_leaves_what_all_its_records_would() {
    let ring = |decay: &str| {
        let base = Parameters::new().with("capacity", 100).with("epoch", 1000);
        base.with("window-epochs", 4).with("decay", decay)
    };
    let counting = |bits: u64| Parameters::new().with("capacity", 100).with("counter-bits", bits);
    let least = u64::from(MOST_WEIGHT);
    for (name, parameters, has_metric) in [
        ("counting", counting(4), false),
        ("counting", counting(24), false),
        ("counting", counting(26), false),
        ("decaying", ring("sliding-window"), true),
        ("decaying", ring("linear").with("counter-bits", 26), true),
    ] {
        let kind = registry::build(name, &parameters).expect(name);
        let made = || Machine::create(kind.clone(), &MachineOptions::new(), 7, 4711).expect(name);
        let (mut at_once, mut in_parts) = (made(), made());
        // Late keys too, which belong to an earlier epoch.
        for (key, millis, weight) in [
            (1, 9, 3),
            (1, 9, 9 * least + 5),
            (2, 9, 4 * least),
            (3, 7, 7 * least + 1),
            (1, 10, least + 1),
            (2, 13, 2 * least),
        ] {
            let time = OperationTime { time: millis * 1000, stream: true };
            let insert = Request::insert(hash_of(key));
            let mut records = 0;
            at_once.write(&insert.weighing(weight), time, &mut |_| records += 1).expect(name);
            let needed = weight.div_ceil(least);
            assert!(records <= needed.min(5), "{records} records for {weight}");
            for part in 0..needed {
                let part = insert.weighing((weight - part * least).min(least));
                in_parts.write(&part, time, &mut |_| {}).expect(name);
            }
            assert!(words(&at_once, !has_metric) == words(&in_parts, !has_metric), "{name}: {key}");
            for key in 0..4 {
                let count = |machine: &Machine| machine.estimate(hash_of(key), 13_000).expect(name);
                assert_eq!(count(&at_once), count(&in_parts), "{name}: {key}");
            }
        }
        if kind.removal().is_some() {
            let time = OperationTime { time: 13_000, stream: true };
            let removal = (hash_of(1), 9 * least);
            let before = words(&at_once, true);
            let is_full = at_once.estimate(hash_of(1), 0).expect(name).at_least;
            assert_eq!(at_once.remove(removal, time, &mut |_| {}).expect(name), is_full);
            assert!(words(&at_once, true) == before, "a full counter stays where it is");
            assert!(!at_once.remove((hash_of(9), 2 * least), time, &mut |_| {}).expect(name));
        }
        // The precondition is that of the whole weight.
        let limit = 8.0 * least as f64;
        let time = OperationTime { time: 13_000, stream: true };
        let too_much = at_once.insert_up_to((hash_of(8), 9 * least), limit, time, &mut |_| {});
        assert!(!too_much.expect(name).admitted, "{name}");
        let all = at_once.insert_up_to((hash_of(8), 8 * least), limit, time, &mut |_| {});
        assert!(all.expect(name).admitted, "{name}");
    }
}

#[test]
fn pieces_that_are_missing_exchanged_repeated_or_of_another_filter_are_damage() {
    let mut saved = machine("counting");
    filled(&mut saved, 300);
    let pieces: Vec<_> = saved.pieces().collect();
    assert!(pieces.len() >= 3, "{}", pieces.len());
    let mut other = machine("counting");
    filled(&mut other, 301);
    let others: Vec<_> = other.pieces().collect();
    let last = pieces.len() - 1;
    let without = |at: usize| [&pieces[..at], &pieces[at + 1..]].concat();
    let mut exchanged = pieces.clone();
    exchanged[1..last].clone_from_slice(&others[1..last]);
    let longer = [&pieces[..], &pieces[last..]].concat();
    let reversed: Vec<_> = pieces.iter().rev().cloned().collect();
    let cases = [without(0), without(1), without(last), exchanged, longer, reversed, Vec::new()];
    for (case, pieces) in cases.into_iter().enumerate() {
        let error = Machine::restore(pieces).expect_err("damaged pieces");
        assert!(matches!(error, Error::Damaged { .. }), "case {case}: {error}");
    }
    assert!(Machine::restore(&pieces).is_ok());
}

#[test]
fn a_flipped_bit_anywhere_is_damage_or_another_version_and_no_error_shows_the_secret() {
    let mut saved = machine("age-partitioned");
    filled(&mut saved, 100);
    let identity = saved.identity();
    for at in 0..identity.len() * 8 {
        let mut bytes = identity.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        assert!(Machine::from_identity(&bytes).is_err(), "bit {at}");
    }
    assert!(!format!("{saved:?}").contains("seed"));
    let pieces: Vec<_> = saved.pieces().collect();
    for (number, piece) in pieces.iter().enumerate() {
        for at in (0..piece.len() * 8).step_by(piece.len() / 100 + 1) {
            let mut damaged = pieces.clone();
            damaged[number][at / 8] ^= 1 << (at % 8);
            let error = Machine::restore(damaged).expect_err("a flipped bit");
            let is_known = matches!(error, Error::Damaged { .. } | Error::Version { .. });
            assert!(is_known, "piece {number}, bit {at}: {error}");
        }
    }
}

#[test]
fn pieces_from_a_cursor_are_those_that_are_left() {
    let mut saved = machine("counting");
    saved.parts.allocate_all();
    let all: Vec<_> = saved.pieces().collect();
    for from in 0..=all.len() {
        let mut pieces = saved.pieces();
        pieces.by_ref().take(from).for_each(drop);
        let cursor = pieces.cursor().clone();
        assert_eq!((cursor.number() as usize, cursor.is_done()), (from, from == all.len()));
        assert!(saved.pieces_from(&cursor).eq(all[from..].iter().cloned()), "from {from}");
    }
}

#[test]
fn a_restoration_that_is_itself_saved_continues() {
    for name in names() {
        let mut saved = machine(name);
        filled(&mut saved, 300);
        let pieces: Vec<_> = saved.pieces().collect();
        let mut restore = Restore::begin(&pieces[0]).expect(name);
        for piece in &pieces[1..] {
            let so_far: Vec<_> = restore.pieces().collect();
            assert_eq!((so_far.len(), restore.is_complete()), (restore.number() as usize, false));
            let mut again = Restore::begin(&so_far[0]).expect(name);
            so_far[1..].iter().try_for_each(|piece| again.add(piece)).expect(name);
            again.add(piece).expect(name);
            restore = again;
        }
        assert!(restore.is_complete() && restore.memory_bytes() >= saved.memory_bytes());
        assert_eq!(restore.finish().expect(name).digest(), saved.digest(), "{name}");
    }
}

#[test]
fn words_that_move_stay_the_same_and_large_ones_are_not_asked_for() {
    let mut saved = machine("age-partitioned");
    filled(&mut saved, 200);
    let (digest, mut sizes) = (saved.digest(), Vec::new());
    saved.relocate(usize::MAX, |words| {
        sizes.push(size_of_val(&*words));
        words.iter().map(|word| AtomicU64::new(crate::block::load(word))).collect()
    });
    assert!(sizes.len() > 1 && saved.digest() == digest, "{sizes:?}");
    let most = sizes[0];
    saved.relocate(most, |words| {
        assert!(size_of_val(&*words) <= most);
        words
    });
    assert_eq!(saved.digest(), digest);
}

#[test]
fn a_chunk_with_a_number_beyond_the_bank_is_damage_whatever_its_upper_bits() {
    let mut saved = machine("bloom");
    filled(&mut saved, 20);
    let pieces: Vec<_> = saved.pieces().collect();
    for number in [1_u64 << 30, 1 << 52, 1 << 58, 1 << 62, 1 << 63, u64::MAX] {
        let mut piece = pieces[1].clone();
        piece[40..48].copy_from_slice(&number.to_le_bytes());
        let sum = checksum(&piece);
        piece[24..32].copy_from_slice(&sum.to_le_bytes());
        let mut restore = Restore::begin(&pieces[0]).expect("the first piece");
        let error = restore.add(&piece).expect_err("no such chunk");
        assert!(matches!(error, Error::Damaged { .. }), "{number}: {error}");
    }
}

#[test]
fn another_version_is_named() {
    let saved = machine("bloom");
    let mut piece = saved.pieces().next().expect("a piece");
    piece[8] = 9;
    let sum = checksum(&piece);
    piece[24..32].copy_from_slice(&sum.to_le_bytes());
    let error = Restore::begin(&piece).expect_err("version 9");
    assert_eq!(error, Error::Version { expected: 1, found: 9 });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn words_of_any_content_with_right_checksums_make_no_panic(
        number in 0..REGISTRY.len(),
        changes in prop::collection::vec((any::<u64>(), any::<u64>()), 1..6),
    ) {
        let name = REGISTRY[number].name;
        let mut saved = machine(name);
        filled(&mut saved, 60);
        let mut pieces: Vec<_> = saved.pieces().collect();
        for (at, value) in changes {
            let piece = (mix(at) % (pieces.len() as u64 - 1)) as usize;
            let piece = &mut pieces[piece];
            let words = (piece.len() - 32) / 8;
            // The identity, which is text, is damaged elsewhere.
            let at = 32 + (at as usize % words.min(600)) * 8;
            piece[at..at + 8].copy_from_slice(&(value >> (value % 64)).to_le_bytes());
            let sum = checksum(piece);
            piece[24..32].copy_from_slice(&sum.to_le_bytes());
        }
        let first = pieces.remove(0);
        if let Ok(mut restore) = Restore::begin(&first) {
            pieces.pop();
            pieces.iter().for_each(|piece| drop(restore.add(piece)));
            restore.0.sealed = true;
            let mut machine = restore.finish().expect("it is taken for sealed");
            let time = OperationTime { time: 1 << 41, stream: true };
            for key in 0..20 {
                let _ = machine.contains(hash_of(key), 1 << 41);
                let _ = machine.insert(hash_of(key), time, &mut |_| {});
            }
            let _ = (machine.digest(), machine.stat(0, 10), machine.pieces().count());
        }
    }
}

#[test]
fn claims_are_followed_record_by_record_and_saved_however_many_there_are() {
    let mut machine = machine("fingerprint");
    let mut follower = Machine::from_identity(&machine.identity()).expect("a twin");
    let (mut log, lease) = (Vec::new(), LeaseTime::new(Duration::from_secs(9)).expect("a lease"));
    let claim = |machine: &mut Machine, hash, now, log: &mut Vec<Logged>| {
        let claimant = Claimant { hash, now, lease, above: 0 };
        let time = machine.time(Some(now), None).expect("a time");
        machine.claim(&claimant, time, &mut |record| log.push(record))
    };
    let hashes = || (0..MOST_CLAIMS as u64).map(|number| mix(number + 1));
    let mut tokens = Vec::new();
    for hash in hashes() {
        match claim(&mut machine, hash, 7, &mut log).expect("room") {
            ClaimAnswer::Yours(claim) => tokens.push(claim.token),
            other => panic!("{other:?}"),
        }
    }
    assert!(tokens.is_sorted_by(|a, b| a < b));
    let full = claim(&mut machine, mix(u64::MAX), 8, &mut log);
    assert_eq!(full, Err(Error::ClaimsFull { most: MOST_CLAIMS }));
    let first = mix(1);
    let time = machine.time(Some(8), None).expect("a time");
    let mut keep = |record| log.push(record);
    assert!(!machine.release((first, tokens[1]), 8, &mut keep), "another's token");
    machine.confirm((first, tokens[0]), 8, time, &mut keep).expect("it is held");
    assert!(machine.contains(first, 8));
    assert_eq!(claim(&mut machine, first, 9, &mut log), Ok(ClaimAnswer::Seen));
    // All are over: some of them make room for one.
    let late = 9_000_008;
    assert!(matches!(
        claim(&mut machine, mix(u64::MAX), late, &mut log),
        Ok(ClaimAnswer::Yours(_))
    ));
    assert!(matches!(
        claim(&mut machine, mix(u64::MAX - 1), late, &mut log),
        Ok(ClaimAnswer::Yours(_))
    ));
    assert!(machine.claims().len() < MOST_CLAIMS);
    log.iter().for_each(|record| follower.apply(record).expect("the next record"));
    assert_eq!((follower.digest(), follower.position()), (machine.digest(), machine.position()));
    let pieces: Vec<_> = machine.pieces().collect();
    assert!(pieces.iter().all(|piece| piece.len() <= 1 << 20));
    let restored = Machine::restore(&pieces).expect("all pieces");
    assert_eq!(restored.digest(), machine.digest());
    assert!(restored.claims().eq(machine.claims()));
    // From the place behind each piece.
    for at in 1..pieces.len() {
        let mut some = machine.pieces();
        let head: Vec<_> = some.by_ref().take(at).collect();
        let rest = machine.pieces_from(some.cursor());
        assert!(head.into_iter().chain(rest).eq(pieces.iter().cloned()), "{at}");
    }
}

#[test]
fn records_of_claims_that_no_filter_emits_are_refused() {
    let machine = || machine("bloom");
    let lease = LeaseTime::new(Duration::from_secs(9)).expect("a lease");
    let begun = HeldClaim::record(5, 10, 100, lease);
    let held = HeldClaim::of_record(&begun);
    for (wrong, after) in [
        (held.release(), None),
        (HeldClaim { token: 9, ..held }.release(), Some(begun)),
        (HeldClaim::record(6, 10, 100, lease), Some(begun)),
        (HeldClaim::record(6, 11, 99, lease), Some(begun)),
    ] {
        let (mut twin, mut writer) = (machine(), machine());
        for record in after.into_iter().chain([wrong]) {
            let logged = writer.parts.ledger.append(&record);
            let is_wrong = record == wrong;
            let applied = twin.apply(&logged);
            assert_eq!(applied.is_err(), is_wrong, "{record:?}: {applied:?}");
        }
    }
}

#[test]
fn saved_claims_after_which_no_claim_could_be_replayed_are_refused() {
    let lease = LeaseTime::new(Duration::from_secs(9)).expect("a lease");
    for (now, is_sound) in [(LATEST, true), (LATEST + 1, false)] {
        let mut machine = machine("bloom");
        let claimant = Claimant { hash: 5, now, lease, above: 0 };
        let time = machine.latest();
        machine.claim(&claimant, time, &mut |_| {}).expect("room");
        let pieces: Vec<_> = machine.pieces().collect();
        assert_eq!(Machine::restore(&pieces).is_ok(), is_sound, "{now}");
        // A claim that is later than the latest one, or has a greater token.
        for word in [0, 1] {
            let (mut pieces, place) = (pieces.clone(), 32 + word * 8);
            pieces[1][place..place + 8].fill(0);
            let sum = checksum(&pieces[1]);
            pieces[1][24..32].copy_from_slice(&sum.to_le_bytes());
            let mut restore = Restore::begin(&pieces[0]).expect("the first piece");
            assert!(matches!(restore.add(&pieces[1]), Err(Error::Damaged { .. })), "{word}");
        }
    }
}
