//! One handle, used for a long time.

use ebbtide::{Durability, Filter, Fingerprint, Options};
use std::collections::HashMap;

/// Inserts of the test, and the window.
const OPERATIONS: u64 = 1_000_000;
const WINDOW: u64 = 5000;

/// A window overruns by a 14th at most, as `Fingerprint` says.
const OVERRUN: u64 = WINDOW / 14 + 1;

#[test]
fn a_handle_that_is_used_for_a_million_operations_answers_as_its_window_does() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("filter");
    // Many segments and checkpoints.
    let options = Options::new()
        .hash_seed(7)
        .durability(Durability::Never)
        .segment_bytes(256 << 10)
        .checkpoint_bytes(1 << 20);
    let spec = Fingerprint::last(WINDOW).fpr(0.001);
    let filter = Filter::create(&dir, spec, options.clone()).expect("a filter");
    let (mut last, mut random) = (HashMap::new(), 1_u64);
    let (mut asked, mut wrong) = (0_u64, 0_u64);
    for number in 0..OPERATIONS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        // Half of the keys are new, the others at every distance up to twice the window.
        let back = (random >> 33) % (4 * WINDOW);
        let key = if back < 2 * WINDOW { number.saturating_sub(back) } else { number };
        let key = if last.contains_key(&key) { key } else { number };
        let is_new = filter.check_and_insert(key.to_le_bytes()).expect("an answer").is_new();
        let distance = last.insert(key, number).map_or(u64::MAX, |before| number - before);
        assert!(distance > WINDOW || !is_new, "operation {number}: {distance} inserts ago");
        if distance > WINDOW + OVERRUN {
            (asked, wrong) = (asked + 1, wrong + u64::from(!is_new));
        }
    }
    // Ten standard deviations above the rate.
    let most = asked as f64 * 0.001;
    assert!(asked > 400_000 && (wrong as f64) < most + 10.0 * most.sqrt(), "{wrong} of {asked}");
    assert_eq!(filter.stat().expect("figures").inserts, OPERATIONS);
    let value = filter.digest().expect("a digest").value;
    filter.close().expect("space");
    let filter = Filter::<Fingerprint>::open(&dir, options).expect("the filter");
    assert_eq!(filter.digest().expect("a digest").value, value);
}
