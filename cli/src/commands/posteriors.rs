//! `posterior` and `decide`: the probability that a key is in the window, and the answer with the
//! lower expected cost.

use super::at_rest;
use super::line::Skipped;
use super::stream::Stream;
use crate::args::{Believing, Decide, Posterior, Query, Question};
use crate::failure::Result;
use crate::formatting::{seconds, significant};
use crate::output::{self, Output, object};
use crate::priors::{Beliefs, PriorOption};
use ebbtide::inference::{KeyPrior, decide as cheaper};
use ebbtide::{Any, Call, Form, Options, Penalty, Reader, Within};
use serde_json::{Map, Value};

/// The name of the number that `--prior line` adds to a line.
const PRIOR: &str = "P";
/// The names of the numbers that `--penalties` adds to a line.
const PENALTIES: [&str; 2] = ["FP", "FN"];

/// Prints the probability that each key is in the window.
pub fn posterior(arguments: &Posterior) -> Result<()> {
    let Question { query, past } = &arguments.question;
    let filter = at_rest::look(&query.keys.dir, past, Options::new())?;
    let in_time = filter.parameters().get("window").is_some();
    let form = output::Form::new(query);
    ask(
        filter,
        query,
        &arguments.believing,
        &[],
        |question, key, prior, _| {
            let ages = || question.age_posterior(key, prior);
            let ages = arguments.ages.then(ages).transpose()?;
            let ages = ages.map(|ages| (ages.most_likely(), ages.expected()));
            Ok((question.posterior(key, prior)?, ages))
        },
        |key, (posterior, ages), output| {
            let text = ages.map(|ages| ages_text(ages, in_time)).unwrap_or_default();
            form.answer(output, key, &(significant(posterior) + &text), || {
                let mut object = object([("posterior", posterior.into())]);
                object.extend(ages.map(|ages| ages_json(ages, in_time)).unwrap_or_default());
                object
            })
        },
    )
}

/// Prints the answer with the lower expected cost: whether to treat each key as in the window.
pub fn decide(arguments: &Decide) -> Result<()> {
    let given = match (arguments.false_positive, arguments.false_negative) {
        (Some(false_positive), Some(false_negative)) => {
            let penalty = Penalty { false_positive, false_negative };
            penalty.check()?;
            Some(penalty)
        }
        _ => None,
    };
    let Question { query, past } = &arguments.question;
    let answers = output::Form::new(query);
    let penalties: &[&str] = if given.is_some() { &[] } else { &PENALTIES };
    ask(
        at_rest::look(&query.keys.dir, past, Options::new())?,
        query,
        &arguments.believing,
        penalties,
        |question, key, prior, told| {
            let [false_positive, false_negative] = [told[0], told[1]];
            let penalty = given.unwrap_or(Penalty { false_positive, false_negative });
            let posterior = question.posterior(key, prior)?;
            Ok((cheaper(posterior, penalty)?, posterior))
        },
        |key, (present, posterior), output| {
            answers.answer(output, key, if present { "1" } else { "0" }, || {
                object([("present", present.into()), ("posterior", posterior.into())])
            })
        },
    )
}

/// Looks up every key by the options and writes the answers. `ask` receives the prior of the key
/// and the numbers after it on its line; `names` are the names of these numbers.
fn ask<A>(
    filter: Reader<Any>,
    query: &Query,
    believing: &Believing,
    names: &[&str],
    mut ask: impl FnMut(&Call<'_, Reader>, &[u8], &KeyPrior<'_>, &[f64]) -> ebbtide::Result<A>,
    mut tell: impl FnMut(&[u8], A, &mut Output) -> Result<()>,
) -> Result<()> {
    let reading = &query.keys.reading;
    let mut counts = None;
    let assumed = &believing.assumed;
    let (prior, repeats) = (assumed.prior.as_ref(), assumed.distinct.as_ref());
    let beliefs = Beliefs::new(prior, repeats, assumed.rate, &mut counts, reading.delimiter())?;
    let (form, window) = (believing.form.into(), believing.window());
    // Check the options first: an error in them must not be blamed on a line.
    let question = about(filter.call(), form, window);
    question.posterior(b"", &beliefs.with(0.0))?;
    let own_prior = matches!(assumed.prior, Some(PriorOption::Line));
    let numbers = if own_prior { [&[PRIOR], names].concat() } else { names.to_vec() };
    let answers = output::Form::new(query);
    let stream = Stream::asking(&filter, reading)?.skipping(Skipped::Answer(answers));
    let ended = stream.ending_in(&numbers).run(
        query.keys.origin(),
        true,
        |question, line| {
            let prior = beliefs.of(&line.key, line.numbers[0])?;
            ask(
                &about(question, form, window),
                &line.key,
                &prior,
                &line.numbers[usize::from(own_prior)..],
            )
        },
        |line, answer, output| tell(&line.key, answer, output),
    )?;
    ended.finish()
}

/// Returns a request with these formulas, and with this window if one is given.
fn about(call: Call<'_, Reader>, form: Form, window: Option<Within>) -> Call<'_, Reader> {
    let call = call.form(form);
    match window {
        Some(window) => call.window(window),
        None => call,
    }
}

fn ages_text((most_likely, expected): (u64, f64), in_time: bool) -> String {
    if !expected.is_finite() {
        return "\t-\t-".to_owned();
    }
    if in_time {
        format!("\t{}\t{}", seconds(most_likely), significant(expected / 1e6))
    } else {
        format!("\t{most_likely}\t{}", significant(expected))
    }
}

fn ages_json((most_likely, expected): (u64, f64), in_time: bool) -> Map<String, Value> {
    let [likely, mean]: [Value; 2] = match (expected.is_finite(), in_time) {
        (false, _) => [Value::Null, Value::Null],
        (true, false) => [most_likely.into(), expected.into()],
        (true, true) => [(most_likely as f64 / 1e6).into(), (expected / 1e6).into()],
    };
    if in_time {
        object([("most_likely_age_seconds", likely), ("expected_age_seconds", mean)])
    } else {
        object([("most_likely_age_items", likely), ("expected_age_items", mean)])
    }
}
