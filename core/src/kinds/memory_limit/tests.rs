//! Filters at their limit of memory: it is kept at every moment, no key is lost, they say that they
//! are saturated, and they recover.

use super::*;
use crate::conformance::Harness;
use crate::hash::mix;
use crate::kind::Micros;
use crate::kinds::{fingerprint, registry, time_limited};
use crate::test_effort::scaled;

const SECOND: Micros = 1_000_000;
const WINDOW: Micros = 60 * SECOND;
const START: Micros = 1_700_000_000 * SECOND;

struct Limited {
    harness: Harness,
    memory: Memory,
    layout: Layout,
    keys: u64,
    now: Micros,
}

impl Limited {
    fn new(kind: &str, most: u64) -> Self {
        let parameters = Parameters::new().with("window", WINDOW).with(MAX_MEMORY, most);
        let kind = registry::build(kind, &parameters).expect("a kind");
        let layout = Layout { stripes: kind.default_stripes(2048), block_words: 2048 };
        assert_eq!(kind.max_memory(), Some(most));
        assert!(kind.least_max_memory(layout) <= most, "{}", kind.least_max_memory(layout));
        let memory = Memory { most: Some(most), undo: kind.undo_room() };
        Self { harness: Harness::new(kind, layout), memory, layout, keys: 0, now: START }
    }

    fn taken(&self) -> u64 {
        self.memory.taken(self.layout, &self.harness.state())
    }

    /// Inserts new keys, evenly over a time, and checks the limit after each.
    fn insert(&mut self, count: u64, span: Micros) {
        let start = self.now;
        for i in 0..count {
            self.now = start + i * span / count;
            self.harness.insert(mix(self.keys), self.now);
            self.keys += 1;
            if i % 64 == 0 {
                assert!(self.taken() <= self.memory.most.expect("a limit"), "{}", self.taken());
            }
        }
        self.now = start + span;
    }

    fn has_last(&self, count: u64) -> bool {
        let step = (count / 5000).max(1) as usize;
        let mut last = (self.keys - count..self.keys).step_by(step);
        last.all(|key| self.harness.contains_at(mix(key), self.now))
    }
}

#[test]
fn a_filter_at_its_limit_keeps_it_and_every_key_says_so_and_recovers() {
    for (kind, most) in [
        (fingerprint::NAME, 200 << 10),
        (fingerprint::NAME, 1 << 20),
        (time_limited::NAME, 200 << 10),
        (time_limited::NAME, 1 << 20),
    ] {
        // The larger ones, for tests at full counts only, are not other cases.
        if most > scaled(1 << 20).max(200 << 10) {
            continue;
        }
        let mut filter = Limited::new(kind, most);
        filter.insert(2000, WINDOW);
        assert!(!filter.harness.is_saturated(), "{kind} {most}");
        let calm = filter.taken();
        // Several times as many keys as the limit allows, at once, and for windows on end.
        let many = most * 8 / 12;
        for span in [SECOND / 2, WINDOW / 4, WINDOW * 2] {
            filter.insert(many, span);
            let last = if span > WINDOW { many / 2 } else { many };
            assert!(filter.has_last(last), "{kind} {most} {span}");
            assert!(filter.harness.is_saturated(), "{kind} {most} {span}");
            assert!(filter.taken() >= most / 3, "{kind} {most} {span}: {}", filter.taken());
        }
        // The last burst comes at once; then few keys come, for little more than a window.
        filter.insert(many, SECOND);
        filter.insert(2600, WINDOW * 13 / 10);
        assert!(filter.has_last(1900), "{kind} {most}");
        assert!(!filter.harness.is_saturated(), "{kind} {most}");
        assert!(filter.harness.measured_fpr(20_000) < 0.003, "{kind} {most}");
        assert!(filter.taken() <= 2 * calm.max(110 << 10), "{kind} {most}: {}", filter.taken());
    }
}

#[test]
fn a_limit_changes_nothing_for_a_filter_that_stays_below_it() {
    for kind in [fingerprint::NAME, time_limited::NAME] {
        let parameters = Parameters::new().with("window", WINDOW);
        let free = registry::build(kind, &parameters).expect("a kind");
        let bound = registry::build(kind, &parameters.with(MAX_MEMORY, 64 << 20)).expect("a kind");
        let layout = Layout { stripes: free.default_stripes(2048), block_words: 2048 };
        let mut both = [free, bound].map(|kind| Harness::new(kind, layout));
        for i in 0..60_000 {
            let time = START + i * WINDOW / 20_000 * (1 + i / 30_000 * 5) / 6;
            both.iter_mut().for_each(|harness| _ = harness.insert(mix(i), time));
        }
        assert_eq!(both[0].events(), both[1].events(), "{kind}");
    }
}
