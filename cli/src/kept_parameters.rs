//! The parameters of a filter that is altered in place: those that are named, over those that it
//! has.

use crate::failure::{Failure, Result};
use crate::kind_options::{KindOptions, OPTIONS};
use ebbtide::kinds::registry;
use ebbtide::{Any, Parameters};
use std::num::NonZeroU64;

/// Parameters that kinds take together only, or derive from each other.
const TOGETHER: [&[&str]; 3] =
    [&["slots", "bits", "generations"], &["k", "l"], &["front-bits", "front-k", "front-keys"]];

/// What a window in inserts and a window of time have for themselves.
const OF_ITEMS: [&str; 2] = ["window-items", "words"];
const OF_TIME: [&str; 4] = ["window", "rate", "growth", "max-memory"];

/// The kind and the parameters that are named for a filter that exists.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// The kind.
    pub kind: Option<&'a str>,
    /// The window in inserts, named by another option than the parameters.
    pub last: Option<NonZeroU64>,
    /// The parameters.
    pub options: &'a KindOptions,
}

impl Named<'_> {
    /// Returns whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.kind.is_none() && self.parameters().iter().next().is_none()
    }

    fn parameters(&self) -> Parameters {
        let parameters = self.options.parameters();
        match self.last {
            Some(last) => parameters.with("window-items", last),
            None => parameters,
        }
    }

    /// Returns the spec of a filter of this kind with these parameters after an alteration. It
    /// keeps what is not named, unless the kind is: then that has its defaults.
    pub fn over(&self, present: &str, all: &Parameters) -> Result<Any> {
        if self.is_empty() {
            return Err(Failure::Error(
                "nothing to alter; name the kind or the parameters of the filter".to_owned(),
            ));
        }
        let given = self.parameters();
        if let Some(kind) = self.kind {
            return Ok(Any::new(kind, given));
        }
        let other_window: &[&str] = match (given.get("window"), given.get("window-items")) {
            (Some(_), None) => &OF_ITEMS,
            (None, Some(_)) => &OF_TIME,
            _ => &[],
        };
        let kept = fewest(present, all);
        let kept = kept.iter().filter(|(name, _)| !other_window.contains(name));
        let both = kept.chain(given.iter());
        let both = both.fold(Parameters::new(), |both, (name, value)| both.with(name, value));
        match registry::build(present, &both) {
            Ok(_) => Ok(Any::new(present, both)),
            Err(error) => Err(misfit(present, &given, &error)),
        }
    }
}

/// Describes parameters that the kind refuses together with those of the filter.
fn misfit(kind: &str, given: &Parameters, error: &ebbtide::kinds::Error) -> Failure {
    let error = error.to_string();
    match registry::build(kind, given) {
        Err(alone) if alone.to_string() == error => Failure::Error(error),
        _ => Failure::Error(format!(
            "{error}; the filter keeps the parameters that are not named, and with --kind {kind} \
             these have their defaults"
        )),
    }
}

/// Returns the spec of a filter in few words: what a user would name, and the false-positive rate.
pub fn shown(kind: &str, all: &Parameters) -> Any {
    let mut parameters = fewest(kind, all);
    if let Some(fpr) = all.get("fpr") {
        parameters.set("fpr", fpr);
    }
    Any::new(kind, parameters)
}

/// Returns parameters from which a kind derives all of these, as few as possible, and rather those
/// that users plan with, which are the first ones of the options.
fn fewest(kind: &str, all: &Parameters) -> Parameters {
    let place = |name: &str| OPTIONS.iter().position(|option| option.name == name);
    let mut names: Vec<_> = all.iter().map(|(name, _)| name).collect();
    names.sort_by_key(|name| place(name).unwrap_or(usize::MAX));
    let of = |names: &[&str]| {
        let values = names.iter().filter_map(|name| Some((*name, all.get(name)?)));
        values.fold(Parameters::new(), |some, (name, value)| some.with(name, value))
    };
    let is_enough = |names: &[&str]| {
        registry::build(kind, &of(names)).is_ok_and(|built| built.parameters() == *all)
    };
    let count = (0..names.len()).find(|&count| is_enough(&names[..count]));
    names.truncate(count.unwrap_or(names.len()));
    // Without one, another may follow from the rest.
    while let Some(fewer) = left_out(&names).into_iter().find(|fewer| is_enough(fewer)) {
        names = fewer;
    }
    of(&names)
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
    use clap::{Args, Command, FromArgMatches};
    use ebbtide::Spec;

    fn whole(text: &str) -> (String, Parameters) {
        let spec: Any = text.parse().expect(text);
        let kind = spec.kind().expect(text);
        (kind.name().to_owned(), kind.parameters())
    }

    /// Returns what a filter is after an alteration with these options.
    fn altered(present: &str, line: &str) -> Result<String> {
        let (kind, all) = whole(present);
        let command = KindOptions::augment_args(Command::new("test").no_binary_name(true));
        let matches = command.try_get_matches_from(line.split_whitespace()).expect(line);
        let options = KindOptions::from_arg_matches(&matches).expect(line);
        let spec = Named { kind: None, last: None, options: &options }.over(&kind, &all)?;
        let (kind, all) = whole(&spec.to_string());
        Ok(shown(&kind, &all).to_string())
    }

    #[test]
    fn what_a_user_has_named_is_found_in_what_the_kind_has_completed() {
        for text in [
            "fingerprint window=10m",
            "fingerprint fpr=0.0001 rate=5 window=10m",
            "fingerprint max-memory=1048576 window=1h",
            "fingerprint window-items=1000 words=500",
            "fingerprint bits=12 generations=8 slots=4 window=1h",
            "age-partitioned fpr=0.01 window-items=1000",
            "age-partitioned k=5 l=8 window-items=1000",
            "age-partitioned window-items=1000 words=4000",
            "time-limited aim=steady fpr=0.00001 rate=100 window=10m",
            "timing k=4 timers=30000 window-items=1000",
            "block-timing block-size=50 window-items=1000",
            "two-buffer fpr=0.0001 window-items=1000",
            "bloom bits=20000 capacity=1000 k=4",
            "counting capacity=1000 counter-bits=8 fpr=0.0001",
            "spectral capacity=1000 policy=mi",
            "dynamic-count capacity=1000 mean-count=3",
            "decaying capacity=1000 epoch=1m lambda=0.5",
            "decaying capacity=1000 decay=polynomial epoch=1h exponent=1 horizon=8760",
            "decaying-optimized capacity=1000 epoch=1m error=0.05 lambda=0.5",
            "stable cells=100000 fpr=0.01",
            "importance-2c P=20 cells=100000 importance-max=100",
        ] {
            let (kind, all) = whole(text);
            assert_eq!(Any::new(&kind, fewest(&kind, &all)).to_string(), text);
        }
    }

    #[test]
    fn what_is_not_named_stays_and_what_follows_from_it_is_planned_anew() {
        for (present, line, after) in [
            ("fingerprint window=10m", "--fpr 1e-4", "fingerprint fpr=0.0001 window=10m"),
            (
                "fingerprint window=10m fpr=0.01 rate=5",
                "--window 1h",
                "fingerprint fpr=0.01 rate=5 window=1h",
            ),
            (
                "fingerprint window=10m fpr=0.01 rate=5",
                "--window-items 500",
                "fingerprint fpr=0.01 window-items=500",
            ),
            (
                "fingerprint window-items=10 fpr=0.01",
                "--window 5m",
                "fingerprint fpr=0.01 window=5m",
            ),
            (
                "counting capacity=1000 counter-bits=8",
                "--capacity 1M",
                "counting capacity=1000000 counter-bits=8 fpr=0.001",
            ),
            (
                "decaying capacity=1000 lambda=0.5 epoch=1m",
                "--lambda 0.9",
                "decaying capacity=1000 epoch=1m fpr=0.001 lambda=0.9",
            ),
        ] {
            assert_eq!(altered(present, line).expect(line), after);
        }
        let kind = Some("bloom");
        let named = Named { kind, last: None, options: &KindOptions::default() };
        let (present, all) = whole("counting capacity=1000");
        assert_eq!(named.over(&present, &all).expect("a spec").to_string(), "bloom");
    }

    #[test]
    fn what_does_not_fit_says_where_the_other_parameters_come_from() {
        let refused = |present, line| match altered(present, line) {
            Err(Failure::Error(sentence)) => sentence,
            other => panic!("{other:?}"),
        };
        let sentence = refused("age-partitioned window-items=1000 k=5 l=8", "--fpr 1e-5");
        assert!(sentence.contains("with --kind age-partitioned"), "{sentence}");
        let sentence = refused("bloom capacity=1000", "--capacity 0");
        assert!(sentence.contains("capacity") && !sentence.contains("--kind"), "{sentence}");
        let sentence = refused("bloom capacity=1000", "");
        assert!(sentence.contains("nothing to alter"), "{sentence}");
    }
}
