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
/// that come first in [`ORDER`].
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
            completed.iter().filter(|(name, _)| !is_new(name)).eq(all.iter())
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
