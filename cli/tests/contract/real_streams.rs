//! Compares `dedup` over real streams with exact windows. Skipped if the streams are not present.

use crate::exact::{Since, judge, printed_exactly};
use crate::support::{ok, real_stream};
use std::fs;

fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n').collect()
}

#[test]
fn shop_requests_are_deduplicated_as_an_exact_window_would() {
    let Some(path) = real_stream("web12.keys") else {
        return;
    };
    let bytes = fs::read(path).expect("read");
    let keys = lines(&bytes);
    assert_eq!(printed_exactly(&keys, 20_000), 18_497);
    let judgement = judge(&keys, 20_000, Since::LastSeen, &[]);
    judgement.assert_within_promise();
    // Keys stay up to a quarter longer than promised, so the filter prints fewer lines than an
    // exact window. It prints no fewer than an exact window of 1.5 times the size, apart from false
    // positives.
    let least = printed_exactly(&keys, 30_000) - judgement.wrongly_suppressed;
    assert!((least..=18_497).contains(&judgement.printed), "{judgement:?}");
}

#[test]
fn accepted_shop_requests_are_the_distinct_ones_while_they_all_fit_the_window() {
    let Some(path) = real_stream("web12.keys") else {
        return;
    };
    let bytes = fs::read(path).expect("read");
    let keys = lines(&bytes);
    // 13,756 distinct keys: only printed lines count, so none of the keys ever leaves a window of
    // 20,000.
    let judgement = judge(&keys, 20_000, Since::Accepted, &[]);
    judgement.assert_within_promise();
    assert_eq!(judgement.surely_new, judgement.printed + judgement.wrongly_suppressed);
    assert!(judgement.printed <= 13_756);
}

#[test]
fn accepted_shop_requests_return_once_the_window_has_moved_on() {
    let Some(path) = real_stream("web12.keys") else {
        return;
    };
    let bytes = fs::read(path).expect("read");
    let judgement = judge(&lines(&bytes), 5_000, Since::Accepted, &[]);
    judgement.assert_within_promise();
    assert!(judgement.printed > 13_756, "{judgement:?}");
}

#[test]
fn the_first_field_identifies_the_clients_of_an_access_log() {
    let Some(path) = real_stream("apache_access.log") else {
        return;
    };
    let bytes = fs::read(&path).expect("read");
    let keys: Vec<&[u8]> = lines(&bytes)
        .into_iter()
        .map(|line| line.split(|byte| *byte == b' ').next().unwrap_or_default())
        .collect();
    let judgement = judge(&keys, 1_000, Since::LastSeen, &[]);
    judgement.assert_within_promise();
    // The log itself, with whole lines printed, gives the same number.
    let file = path.to_str().expect("UTF-8");
    let outcome = ok(&["dedup", "--last", "1000", "--field", "1", "--hash-seed", "7", file], b"");
    assert_eq!(outcome.lines().len(), judgement.printed);
    assert_eq!(outcome.lines()[0], lines(&bytes)[0]);
}
