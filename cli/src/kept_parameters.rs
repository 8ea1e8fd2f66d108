//! The parameters of a filter that is altered in place: those that are named, over those that it
//! has.

use crate::failure::{Failure, Result};
use crate::kind_options::KindOptions;
use ebbtide::kinds::{altered_parameters, registry};
use ebbtide::{Any, Parameters};
use std::num::NonZeroU64;

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
        altered_parameters::over(present, all, &given)
            .map_err(|error| misfit(present, &given, error))
    }
}

/// Describes parameters that the kind refuses together with those of the filter.
fn misfit(kind: &str, given: &Parameters, error: ebbtide::kinds::Error) -> Failure {
    let alone = registry::build(kind, given).err().map(|alone| alone.to_string());
    let is_their_own = alone.is_some_and(|alone| alone == error.to_string());
    let failure = Failure::from(error);
    if is_their_own {
        return failure;
    }
    failure.and(&format!(
        "the filter keeps the parameters that are not named, and with --kind {kind} these have \
         their defaults"
    ))
}

/// Returns the spec of a filter in few words: what a user would name, and the false-positive rate.
pub fn shown(kind: &str, all: &Parameters) -> Any {
    let mut parameters = altered_parameters::fewest(kind, all);
    if let Some(fpr) = all.get("fpr") {
        parameters.set("fpr", fpr);
    }
    Any::new(kind, parameters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind_options::OPTIONS;
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
    fn parameters_are_kept_in_the_order_of_the_options() {
        assert!(
            OPTIONS.iter().map(|option| option.name).eq(altered_parameters::ORDER.iter().copied())
        );
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
            assert_eq!(Any::new(&kind, altered_parameters::fewest(&kind, &all)).to_string(), text);
        }
    }

    #[test]
    fn what_is_not_named_stays_and_what_follows_from_it_is_planned_anew() {
        for (present, line, after) in [
            ("fingerprint window=10m", "--fpr 1e-4", "fingerprint fpr=0.0001 window=10m"),
            (
                "fingerprint window=10m growth=rate",
                "--fpr 1e-4",
                "fingerprint fpr=0.0001 growth=rate window=10m",
            ),
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
            // Of an older version, which has four moves: planned anew, it has eight.
            (
                "fingerprint window-items=1000000 fpr=0.001 slots=4 bits=13 generations=14",
                "--fpr 0.01",
                "fingerprint fpr=0.01 window-items=1000000",
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
            Err(Failure::Parameter { name, found, .. }) => format!("{name}: {found}"),
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
