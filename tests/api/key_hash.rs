//! The two hash functions of keys: each recreates the same filter, and neither reveals its secret.

use ebbtide::{Bloom, Clock, Error, Filter, KeyHash, Options, Reader, Result, inspect};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const FUNCTIONS: [KeyHash; 2] = [KeyHash::Fast, KeyHash::Keyed];

/// Options without a seed.
fn unseeded(function: KeyHash) -> Options {
    Options::new().key_hash(function).stripes(4).segment_bytes(4 << 10).clock(Clock::stream())
}

fn options(function: KeyHash) -> Options {
    unseeded(function).hash_seed(7)
}

fn home() -> (TempDir, PathBuf) {
    let home = TempDir::new().expect("a directory");
    let dir = home.path().join("filter");
    (home, dir)
}

fn create(dir: &Path, options: Options) -> Filter<Bloom> {
    Filter::create(dir, Bloom::capacity(2000).fpr(1e-6), options).expect("a filter")
}

fn open(dir: &Path) -> Filter<Bloom> {
    Filter::open(dir, Options::new().clock(Clock::stream())).expect("the filter")
}

/// Returns keys of all lengths that the functions treat differently.
fn key(number: u32) -> Vec<u8> {
    (0..=number % 300)
        .map(|at| (number.rotate_left(at) ^ at) as u8)
        .chain(number.to_le_bytes())
        .collect()
}

fn insert(filter: &Filter<Bloom>, numbers: std::ops::Range<u32>) {
    numbers.for_each(|number| assert!(filter.insert(key(number)).expect("an insert")));
}

fn digest(filter: &Filter<Bloom>) -> u128 {
    filter.digest().expect("a digest").value
}

fn assert_all(mut contains: impl FnMut(Vec<u8>) -> Result<bool>) {
    for number in 0..1000 {
        assert!(contains(key(number)).expect("an answer"), "{number}");
        assert!(!contains(key(number + 1000)).expect("an answer"), "{number}");
    }
}

#[test]
fn equal_seeds_and_functions_give_equal_filters_even_if_reopened() {
    let mut digests = Vec::new();
    for function in FUNCTIONS {
        let (_one, one) = home();
        let (_two, two) = home();
        let filter = create(&one, options(function));
        insert(&filter, 0..1000);
        create(&two, options(function)).close().expect("a clean end");
        for part in 0..4 {
            let filter = open(&two);
            insert(&filter, part * 250..part * 250 + 250);
            filter.close().expect("a clean end");
        }
        let again = open(&two);
        assert_eq!(digest(&again), digest(&filter), "{function}");
        assert_eq!(again.stat().expect("figures").key_hash, function);
        assert_all(|key| again.contains(key));
        digests.push(digest(&filter));
    }
    assert_ne!(digests[0], digests[1], "the functions differ");
}

#[test]
fn every_handle_and_every_reader_of_a_filter_finds_the_others_keys() {
    for function in FUNCTIONS {
        let (_home, dir) = home();
        let first = create(&dir, unseeded(function));
        let second = open(&dir);
        insert(&first, 0..500);
        insert(&second, 500..1000);
        let reader: Reader<Bloom> = Reader::open(&dir, Options::new()).expect("a reader");
        assert_all(|key| first.contains(key));
        assert_all(|key| second.contains(key));
        assert_all(|key| reader.contains(key));
        first.close().expect("an end");
        second.close().expect("a clean end");
        assert_all(|key| reader.contains(key));
    }
}

#[test]
fn backups_and_restored_copies_use_the_hash_of_the_filter() {
    for function in FUNCTIONS {
        let (home, dir) = home();
        let (copy, again) = (home.path().join("copy"), home.path().join("again"));
        let filter = create(&dir, unseeded(function));
        insert(&filter, 0..1000);
        filter.backup(&copy).expect("a backup");
        inspect::restore(&copy, &again).expect("a restored copy");
        for dir in [&copy, &again] {
            let opened = open(dir);
            assert_eq!(digest(&opened), digest(&filter), "{function}");
            assert_all(|key| opened.contains(key));
        }
    }
}

#[test]
fn a_filter_with_another_function_or_seed_is_refused() {
    let asked = |dir: &Path, options| Filter::open_or_create(dir, Bloom::capacity(2000), options);
    for (function, other) in [(KeyHash::Fast, KeyHash::Keyed), (KeyHash::Keyed, KeyHash::Fast)] {
        let (_home, dir) = home();
        drop(asked(&dir, options(function)).expect("a new filter"));
        drop(asked(&dir, options(function)).expect("the filter"));
        drop(asked(&dir, Options::new()).expect("the filter, whatever its function"));
        drop(asked(&dir, Options::new().hash_seed(7)).expect("the filter of this seed"));
        let error = asked(&dir, Options::new().key_hash(other)).expect_err("another function");
        let Error::Mismatch { what, expected, found, .. } = &error else { panic!("{error}") };
        assert_eq!(
            [what.as_str(), expected, found],
            ["hash", &other.to_string(), &function.to_string()]
        );
        let error = asked(&dir, Options::new().hash_seed(918_273_645)).expect_err("another seed");
        assert!(matches!(&error, Error::Mismatch { what, .. } if what == "hash-seed"), "{error}");
        assert!(!error.to_string().contains("918273645"), "{error}");
    }
    // The default is fast.
    let (_home, dir) = home();
    drop(asked(&dir, Options::new()).expect("a new filter"));
    drop(asked(&dir, Options::new().key_hash(KeyHash::Fast)).expect("a fast filter"));
}

/// Returns the secret of a filter from its file.
fn secret(dir: &Path) -> String {
    let meta = fs::read_to_string(dir.join("meta")).expect("text");
    let line = meta.lines().find_map(|line| line.strip_prefix("seed "));
    line.expect("a seed").to_owned()
}

#[test]
fn secrets_are_random_and_of_full_length() {
    for (function, digits) in [(KeyHash::Fast, 16), (KeyHash::Keyed, 32)] {
        let secrets: Vec<String> = (0..8)
            .map(|_| {
                let (_home, dir) = home();
                drop(create(&dir, unseeded(function)));
                secret(&dir)
            })
            .collect();
        for (at, secret) in secrets.iter().enumerate() {
            assert_eq!(secret.len(), digits, "{function}");
            assert!(!secrets[..at].contains(secret), "{function}: a repeated secret");
            // By chance in one run of ten million.
            assert!(!secret.contains("00000000"), "{function}: {secret}");
        }
    }
}

#[test]
fn debug_output_reveals_no_seed() {
    const SEED: u64 = 0xa1b2_c3d4_e5f6_0718;
    for function in FUNCTIONS {
        let (_home, dir) = home();
        let options = unseeded(function).hash_seed(SEED);
        let filter = create(&dir, options.clone());
        insert(&filter, 0..10);
        let reader: Reader<Bloom> = Reader::open(&dir, options.clone()).expect("a reader");
        let (stat, call) = (filter.stat().expect("figures"), filter.call());
        let shown =
            format!("{options:?} {filter:?} {reader:?} {stat:?} {call:?} {:?}", reader.call());
        let secret = secret(&dir);
        for told in [&secret, &format!("{SEED:x}"), &SEED.to_string()] {
            assert!(!shown.to_lowercase().contains(told.as_str()), "{function}: {shown}");
        }
    }
}

#[test]
fn the_error_about_a_damaged_meta_does_not_reveal_its_seed() {
    for function in FUNCTIONS {
        let (_home, dir) = home();
        create(&dir, unseeded(function)).close().expect("a clean end");
        let (path, secret) = (dir.join("meta"), secret(&dir));
        let whole = fs::read(&path).expect("bytes");
        let cut_short = (0..whole.len()).map(|end| whole[..end].to_vec());
        let beheaded = (1..whole.len()).map(|start| whole[start..].to_vec());
        for bytes in cut_short.chain(beheaded) {
            fs::write(&path, &bytes).expect("a write");
            let opened: Result<Filter<Bloom>> = Filter::open(&dir, Options::new());
            let text = opened.expect_err("damaged").to_string();
            // Eight of its digits are 32 bits.
            let told = secret
                .as_bytes()
                .windows(8)
                .any(|piece| text.contains(std::str::from_utf8(piece).expect("digits")));
            assert!(!told, "{function}, {} bytes: {text}", bytes.len());
        }
    }
}
