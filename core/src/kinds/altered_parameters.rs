//! The parameters of a filter that is altered: those that are named, over those that it has.

use super::registry;
use super::spec::Any;
use crate::error::Result;
use crate::kind::Parameters;

/// All parameters. Those that users plan with come first: the others follow from them.
pub const ORDER: &[&str] = &[
    "capacity",
    "window-items",
    "window",
    "fpr",
    "error",
    "rate",
    "max-memory",
    "max-load",
    "growth",
    "bits",
    "k",
    "l",
    "generation",
    "columns",
    "aim",
    "words",
    "slots",
    "generations",
    "bytes",
    "moves",
    "load",
    "cells",
    "counter-bits",
    "policy",
    "mean-count",
    "lambda",
    "epoch",
    "decay",
    "weights",
    "exponent",
    "horizon",
    "excess",
    "terms",
    "window-epochs",
    "fraction-bits",
    "front",
    "front-bits",
    "front-k",
    "front-keys",
    "pool",
    "block-size",
    "timers",
    "padding",
    "max",
    "K",
    "P",
    "importance-max",
];

/// Parameters that kinds take together only, or derive from each other.
const TOGETHER: [&[&str]; 3] = [
    &["slots", "bits", "generations", "bytes", "moves"],
    &["k", "l"],
    &["front-bits", "front-k", "front-keys"],
];

/// Sizes of which an older version may have planned a little more or less.
const SIZES: [&str; 4] = ["bits", "cells", "words", "timers"];

/// How far such a size may be from what is planned now, of its own.
const LIKE: f64 = 0.001;

/// What filters of older versions do not have, and get by an alteration.
const NEW: &str = "moves";

/// What a window in inserts and a window of time have for themselves.
const OF_ITEMS: [&str; 2] = ["window-items", "words"];
const OF_TIME: [&str; 4] = ["window", "rate", "growth", "max-memory"];

/// Returns the spec of a filter of this kind after an alteration: the given parameters, and of all
/// that it has those that do not follow from others.
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter) for parameters that the kind refuses together.
pub fn over(kind: &str, all: &Parameters, given: &Parameters) -> Result<Any> {
    let other_window: &[&str] = match (given.get("window"), given.get("window-items")) {
        (Some(_), None) => &OF_ITEMS,
        (None, Some(_)) => &OF_TIME,
        _ => &[],
    };
    let kept = fewest(kind, all);
    let kept = kept.iter().filter(|(name, _)| !other_window.contains(name));
    let both = kept.chain(given.iter());
    let both = both.fold(Parameters::new(), |both, (name, value)| both.with(name, value));
    registry::build(kind, &both)?;
    Ok(Any::new(kind, both))
}

/// Returns parameters from which a kind derives all of these, as few as possible, and rather those
/// that come first in [`ORDER`]. Sizes may differ a little: those that an older version has derived
/// are not for that reason wishes of the user.
#[must_use]
pub fn fewest(kind: &str, all: &Parameters) -> Parameters {
    let place = |name: &str| ORDER.iter().position(|known| *known == name);
    let shown = with_growth(kind, all);
    let mut names: Vec<_> = shown.iter().map(|(name, _)| name).collect();
    names.sort_by_key(|name| place(name).unwrap_or(usize::MAX));
    let of = |names: &[&str]| {
        let values = names.iter().filter_map(|name| Some((*name, shown.get(name)?)));
        values.fold(Parameters::new(), |some, (name, value)| some.with(name, value))
    };
    let is_new = |name: &str| name == NEW && all.get(NEW).is_none();
    let is_enough = |names: &[&str]| {
        let built = registry::build(kind, &of(names));
        built.is_ok_and(|built| {
            let completed = built.parameters();
            let completed: Vec<_> = completed.iter().filter(|(name, _)| !is_new(name)).collect();
            completed.len() == all.iter().count()
                && completed.iter().zip(all.iter()).all(|(derived, found)| is_like(derived, &found))
        })
    };
    let count = (0..names.len()).find(|&count| is_enough(&names[..count]));
    names.truncate(count.unwrap_or(names.len()));
    // Without one, another may follow from the rest.
    while let Some(fewer) = left_out(&names).into_iter().find(|fewer| is_enough(fewer)) {
        names = fewer;
    }
    of(&names)
}

/// Returns whether a derived parameter is that of a filter: a size within a thousandth.
fn is_like((name, derived): &(&str, &str), (of, found): &(&str, &str)) -> bool {
    let values = || Some((derived.parse::<f64>().ok()?, found.parse::<f64>().ok()?));
    let is_close = |(derived, found): (f64, f64)| (derived - found).abs() <= LIKE * found.abs();
    name == of && (derived == found || SIZES.contains(name) && values().is_some_and(is_close))
}

/// Returns all parameters, with one that stands for itself by its absence: a window of time of
/// [`fingerprint`](super::fingerprint) without `growth` grows by the rate.
fn with_growth(kind: &str, all: &Parameters) -> Parameters {
    let grows_by_rate =
        kind == "fingerprint" && all.get("window").is_some() && all.get("growth").is_none();
    if grows_by_rate { all.clone().with("growth", "rate") } else { all.clone() }
}

/// Returns these names without some that kinds take together, and without each, from the last on.
fn left_out<'a>(names: &[&'a str]) -> Vec<Vec<&'a str>> {
    let single = names.iter().rev().map(std::slice::from_ref);
    let parts = TOGETHER.into_iter().chain(single);
    let left = |part: &[&str]| names.iter().copied().filter(|name| !part.contains(name)).collect();
    let all = parts.map(left);
    all.filter(|fewer: &Vec<_>| fewer.len() < names.len()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::spec::Spec;

    fn whole(text: &str) -> Parameters {
        text.parse::<Any>().and_then(|spec| spec.kind()).expect(text).parameters()
    }

    #[test]
    fn a_size_that_an_older_version_has_planned_is_planned_anew() {
        // As planned until 2026-11-29.
        let all = whole("bloom capacity=1000000").with("bits", 14_381_964);
        assert_ne!(all, whole("bloom capacity=1000000"));
        let given = Parameters::new().with("capacity", 2_000_000);
        let altered = over("bloom", &all, &given).and_then(|spec| spec.kind()).expect("a spec");
        assert_eq!(altered.parameters(), whole("bloom capacity=2000000"));
        let all = whole("spectral capacity=300").with("cells", 4314);
        let given = Parameters::new().with("capacity", 10_000);
        let altered = over("spectral", &all, &given).and_then(|spec| spec.kind()).expect("a spec");
        assert_eq!(altered.parameters(), whole("spectral capacity=10000"));
    }

    #[test]
    fn a_size_that_a_user_has_named_and_a_wish_are_kept() {
        let given = Parameters::new().with("capacity", 1_100_000);
        for (kind, name, value) in [
            ("bloom", "bits", "14400000"),
            ("bloom", "fpr", "0.000999"),
            ("dynamic-count", "mean-count", "2.001"),
        ] {
            let all = whole(&format!("{kind} capacity=1000000 {name}={value}"));
            let altered = over(kind, &all, &given).and_then(|spec| spec.kind()).expect("a spec");
            assert_eq!(altered.parameters().get(name), Some(value), "{kind} {name}");
        }
    }
}
