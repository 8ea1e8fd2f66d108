//! Claims about levels of importance; all others are tested with the stable filter, for all kinds
//! that are decremented.

use super::*;
use crate::conformance;
use crate::kinds::registry;

const KINDS: [&str; 3] = [TWO_CLASSES, MANY_CLASSES, HYBRID];

fn of(kind: &str, max: u32, highest: f64) -> Arc<dyn Kind> {
    let parameters = Parameters::new().with("cells", 1000).with("max", max).with("P", 10);
    let parameters = parameters.with("importance-max", highest);
    registry::build(kind, &parameters).expect("a sound filter")
}

#[test]
fn levels_are_even_shares_of_the_scale() {
    for kind in KINDS {
        let kind = of(kind, 7, 50.0);
        assert!(kind.weights().is_some());
        for (importance, level) in [
            (0.0, 1),
            (0.001, 1),
            (7.1, 1),
            (7.2, 2),
            (25.0, 4),
            (42.8, 6),
            (42.9, 7),
            (50.0, 7),
            (50.1, 7),
            (1e300, 7),
        ] {
            assert_eq!(kind.weight(importance).expect("a level"), level, "{importance}");
        }
        for importance in [f64::NAN, -0.1, f64::NEG_INFINITY, f64::INFINITY] {
            let refused = kind.weight(importance);
            assert!(matches!(refused, Err(Error::Parameter { name: "weight", .. })));
        }
    }
}

#[test]
fn without_a_scale_levels_are_given_as_they_are() {
    for max in [1_u32, 2, 7, 255] {
        let parameters = Parameters::new().with("cells", 1000).with("max", max).with("P", 10);
        let kind = registry::build(MANY_CLASSES, &parameters).expect("a sound filter");
        for level in 1..=max {
            assert_eq!(kind.weight(f64::from(level)).expect("a level"), u64::from(level));
        }
    }
}

#[test]
fn half_of_the_levels_are_important() {
    let values = |max| (1..=max).map(|level| TwoClasses::value(max, level)).collect::<Vec<_>>();
    assert_eq!(values(1), [1]);
    assert_eq!(values(2), [1, 2]);
    assert_eq!(values(3), [1, 3, 3]);
    assert_eq!(values(7), [3, 3, 3, 7, 7, 7, 7]);
}

#[test]
fn shares_are_those_of_levels_that_are_equally_frequent() {
    let near = |ours: Vec<f64>, expected: [f64; 4]| {
        assert_eq!(ours.len(), 4);
        assert!(ours.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{ours:?}");
    };
    near(uniform_shares::<Scale<ManyClasses>>(4), [1.0, 0.75, 0.5, 0.25]);
    near(uniform_shares::<Scale<TwoClasses>>(4), [1.0, 1.0, 0.5, 0.5]);
}

#[test]
fn scales_that_are_none_are_refused() {
    let sound = Parameters::new().with("cells", 1000).with("P", 10);
    for kind in KINDS {
        conformance::parameters_round_trip(kind, &sound.clone().with("importance-max", 0.1));
        for highest in ["0", "-1", "NaN", "inf", "x"] {
            let asked = sound.clone().with("importance-max", highest);
            conformance::refuses(kind, &asked, "importance-max");
        }
    }
}
