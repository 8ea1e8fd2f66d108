//! Claims about parts of the window, of every kind that knows ages.

use crate::block::Layout;
use crate::conformance::{Harness, hash_of};
use crate::kind::{Kind, Within};
use crate::kinds::registry::REGISTRY;
use crate::kinds::spec::{Any, Spec};
use std::sync::Arc;

/// Returns each kind with ages, in every unit of its windows, and its name.
fn kinds() -> Vec<(&'static str, Arc<dyn Kind>)> {
    let windows = ["window-items=1000", "window=10s"];
    let all = REGISTRY.iter().flat_map(|entry| windows.map(|window| (entry.name, window)));
    let built = all.filter_map(|(name, window)| {
        let spec: Any = format!("{name} {window}").parse().expect("a spec");
        Some((name, spec.kind().ok()?))
    });
    built.filter(|(_, kind)| kind.ages().is_some()).collect()
}

#[test]
fn no_key_is_within_a_part_without_length() {
    let kinds = kinds();
    assert_eq!(kinds.len(), 6, "{kinds:?}");
    let moment = 1_700_000_000_000_000;
    for (name, kind) in kinds {
        let window =
            if kind.uses_time() { Within::micros(10_000_000) } else { Within::Items(1000) };
        let mut harness = Harness::new(kind, Layout { stripes: 1, block_words: 2048 });
        harness.insert(hash_of(1), moment);
        assert!(harness.contains_within(hash_of(1), window), "{name}");
        for none in [Within::Items(0), Within::micros(0)] {
            assert!(!harness.contains_within(hash_of(1), none), "{name}: {none:?}");
        }
    }
}
