//! `distinct`: how many distinct keys a filter has.

use super::at_rest;
use crate::failure::Result;
use crate::formatting;
use crate::operator_args::Distinct;
use crate::output::{Output, object};
use ebbtide::{Cardinality, Options, Within};

/// Prints the number of distinct keys.
pub fn distinct(arguments: &Distinct) -> Result<()> {
    let reader = at_rest::look(&arguments.dir, &arguments.past, Options::new())?;
    let answer = match arguments.part() {
        Some(part) => reader.distinct_within(part)?,
        None => reader.distinct()?,
    };
    let mut output = Output::new()?;
    if arguments.json {
        let reach = match answer.reach {
            Within::Items(items) => ("reach_inserts", items.into()),
            Within::Time(time) => ("reach_seconds", time.as_secs_f64().into()),
        };
        output.json(object([
            ("distinct_keys", answer.keys.into()),
            ("distinct_keys_error", answer.standard_error.into()),
            reach,
        ]))?;
    } else {
        output.text(&text(&answer))?;
    }
    output.flush()
}

fn text(answer: &Cardinality) -> String {
    let reach = match answer.reach {
        Within::Items(items) => format!("in the last {items} inserts"),
        Within::Time(time) => format!("in the last {}", formatting::duration(time)),
    };
    let Cardinality { keys, standard_error, .. } = answer;
    format!("{keys:.0} distinct keys {reach}; standard error {:.0}", standard_error.ceil())
}
