//! The protocol holds in every order of events within bounds, and without a rule it does not.

use ebbtide_model::{Bounds, Mistake, Protocol};
use stateright::{Checker, Model};

const BOUNDS: Bounds = Bounds { operations: 2, checkpoints: 1, failures: 1, crashes: 2 };

/// Returns the bounds, or those in `EBBTIDE_MODEL`: operations, checkpoints, failures, crashes.
fn bounds() -> Bounds {
    let Ok(text) = std::env::var("EBBTIDE_MODEL") else { return BOUNDS };
    let numbers: Vec<u8> =
        text.split(',').map(|number| number.parse().expect("a number")).collect();
    let [operations, checkpoints, failures, crashes] = numbers[..] else { panic!("four numbers") };
    Bounds { operations, checkpoints, failures, crashes }
}

const RIGHT: &str = "what is recovered is right";

#[test]
fn the_protocol_recovers_what_it_acknowledged_whatever_fails() {
    let checker = Protocol { bounds: bounds(), mistake: None }.checker();
    let checker = checker.threads(2).spawn_bfs().join();
    println!(
        "{} states, {} of them different",
        checker.state_count(),
        checker.unique_state_count()
    );
    checker.assert_properties();
    assert!(checker.unique_state_count() > 10_000);
}

#[test]
fn each_rule_that_is_left_out_is_missed() {
    for mistake in [
        Mistake::LostWriteBack,
        Mistake::BareEvents,
        Mistake::SyncAgain,
        Mistake::SnapshotAheadOfLog,
        Mistake::RemovesFirst,
        Mistake::AcknowledgesReserved,
    ] {
        let checker = Protocol { bounds: BOUNDS, mistake: Some(mistake) }.checker();
        let checker = checker.spawn_bfs().join();
        let found = checker.discovery(RIGHT);
        let path = found.unwrap_or_else(|| panic!("{mistake:?} was not found"));
        println!("{mistake:?}: {:?}", path.into_actions());
    }
}
