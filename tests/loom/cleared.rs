//! A clear that is completed after a death: nobody uses an ordinary stripe before the state and the
//! filter's sums are cleared.

use ebbtide::models::primitives::{AtomicU64, Ordering};
use ebbtide::models::stripe_table::{STRIPE_WORDS, Stripe, StripeSums};
use loom::sync::Arc;
use loom::thread;

const CLEAR: u64 = 5;
const CLEARED: u64 = 1;

/// The state block, the filter's sum, stripe 0, and a stripe with inserts from before the clear.
struct Filter {
    state: AtomicU64,
    sum: AtomicU64,
    stripes: [Vec<AtomicU64>; 2],
}

impl Filter {
    fn stripe(&self, index: usize) -> Stripe<'_> {
        Stripe::new(&self.stripes[index])
    }
}

/// What is planted: the steps of the owner of stripe 0, and how the other sees that they are done.
#[derive(Clone, Copy)]
struct Protocol {
    complete: fn(&Filter),
    is_complete: fn(&Filter) -> bool,
}

const PROPER: Protocol = Protocol {
    complete: |filter| {
        filter.state.store(CLEARED, Ordering::Relaxed);
        filter.sum.store(0, Ordering::Relaxed);
        filter.stripe(0).clear(CLEAR, 0);
    },
    is_complete: |filter| filter.stripe(0).has_counted(CLEAR),
};

fn model(protocol: Protocol) {
    loom::model(move || {
        let words = || (0..STRIPE_WORDS).map(|_| AtomicU64::new(0)).collect();
        let (state, sum) = (AtomicU64::new(0), AtomicU64::new(20));
        let filter = Arc::new(Filter { state, sum, stripes: [words(), words()] });
        filter.stripe(0).set_sums(&StripeSums { lsn: 3, ..StripeSums::default() });
        filter.stripe(1).set_sums(&StripeSums { lsn: 4, inserts: 20, ..StripeSums::default() });
        let repairer = {
            let filter = Arc::clone(&filter);
            thread::spawn(move || (protocol.complete)(&filter))
        };
        let other = {
            let filter = Arc::clone(&filter);
            thread::spawn(move || {
                // Otherwise it waits for stripe 0.
                let continues = (protocol.is_complete)(&filter);
                if continues {
                    filter.stripe(1).clear(CLEAR, 0);
                    let state = filter.state.load(Ordering::Relaxed);
                    assert_eq!(state, CLEARED, "an insert into a bank that is cleared");
                    filter.sum.fetch_add(1, Ordering::Relaxed);
                }
                u64::from(continues)
            })
        };
        repairer.join().expect("no panic");
        let inserted = other.join().expect("no panic");
        assert_eq!(filter.sum.load(Ordering::Relaxed), inserted, "the sum is that of the inserts");
    });
}

#[test]
fn whoever_continues_after_a_clear_finds_it_complete() {
    model(PROPER);
}

#[test]
#[should_panic = "the sum is that of the inserts"]
fn planted_sums_of_the_filter_that_are_cleared_last_are_found() {
    let complete = |filter: &Filter| {
        filter.state.store(CLEARED, Ordering::Relaxed);
        filter.stripe(0).clear(CLEAR, 0);
        filter.sum.store(0, Ordering::Relaxed); // the bug: inserts were counted there
    };
    model(Protocol { complete, ..PROPER });
}

#[test]
#[should_panic = "into a bank that is cleared"]
fn a_planted_look_at_stripe_0_without_acquire_is_found() {
    // The bug: what was stored before the LSN need not be visible.
    let is_complete = |filter: &Filter| {
        filter.stripes[0].iter().any(|word| word.load(Ordering::Relaxed) >= CLEAR)
    };
    model(Protocol { is_complete, ..PROPER });
}
