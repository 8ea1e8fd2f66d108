//! Questions that filters and readers answer in the same way.

use crate::answers;
use crate::keys::bytes_of;
use crate::settings::{Argument, Asked, number, prior};
use crate::slot::{Opens, Slot};
use crate::times;
use ebbtide::{Call, Penalty, Within};
use pyo3::prelude::*;

/// Returns how long ago a key was seen, at least.
pub fn age<'py, H: Opens>(
    slot: &Slot<H>,
    py: Python<'py>,
    key: &Bound<'py, PyAny>,
    time: Argument<'_, '_>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (key, asked) = (bytes_of(key)?, Asked::new(time)?);
    let age = slot.quick(
        py,
        |handle| asked.quick(handle.asks()).age(&key),
        |handle| asked.patient(handle.asks()).age(&key),
    )?;
    age.map(|age| times::age(py, age)).transpose()
}

/// Returns whether a key was seen within a part of the window.
pub fn seen_within<H: Opens>(
    slot: &Slot<H>,
    py: Python<'_>,
    (key, within): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    time: Argument<'_, '_>,
) -> PyResult<bool> {
    let (key, asked) = (bytes_of(key)?, Asked::new(time)?);
    let ask = |within| {
        slot.quick(
            py,
            |handle| asked.quick(handle.asks()).seen_within(&key, within),
            |handle| asked.patient(handle.asks()).seen_within(&key, within),
        )
    };
    reaching(slot, within, ask)
}

/// Returns how many distinct keys are in the window or in a part of it. The interpreter's lock is
/// not held: all blocks are read.
pub fn distinct<'py, H: Opens>(
    slot: &Slot<H>,
    py: Python<'py>,
    within: Option<&Bound<'py, PyAny>>,
    time: Argument<'_, '_>,
) -> PyResult<Bound<'py, PyAny>> {
    let asked = Asked::new(time)?;
    let ask = |within: Option<Within>| {
        slot.patient(py, |handle| {
            let call = asked.patient(handle.asks());
            within.map_or_else(|| call.distinct(), |within| call.distinct_within(within))
        })
    };
    let answer = match within {
        Some(within) => reaching(slot, within, |within| ask(Some(within))),
        None => ask(None),
    };
    answers::cardinality(py, answer?)
}

/// Asks how far back a question reaches, in the unit of the window. If that is none, the engine
/// decides first whether the kind answers such a question at all.
fn reaching<H: Opens, T>(
    slot: &Slot<H>,
    within: &Bound<'_, PyAny>,
    ask: impl Fn(Within) -> PyResult<T>,
) -> PyResult<T> {
    let is_time = slot.is_time(within.py())?;
    match times::within(within, is_time) {
        Ok(within) => ask(within),
        Err(wrong) => {
            ask(if is_time { Within::micros(1) } else { Within::Items(1) })?;
            Err(wrong)
        }
    }
}

/// Returns how often a key was inserted, or is in each epoch.
pub fn estimate<'py, H: Opens>(
    slot: &Slot<H>,
    py: Python<'py>,
    (key, is_frequency): (&Bound<'py, PyAny>, bool),
    time: Argument<'_, '_>,
) -> PyResult<Bound<'py, PyAny>> {
    let (key, asked) = (bytes_of(key)?, Asked::new(time)?);
    let ask = |call: Call<'_, H>| {
        if is_frequency { call.frequency(&key) } else { call.estimate(&key) }
    };
    let estimate = slot.quick(
        py,
        |handle| ask(asked.quick(handle.asks())),
        |handle| ask(asked.patient(handle.asks())),
    )?;
    answers::estimate(py, estimate)
}

/// Returns the probability that a key is in the window.
pub fn posterior<H: Opens>(
    slot: &Slot<H>,
    py: Python<'_>,
    (key, probability): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    rate: Argument<'_, '_>,
    time: Argument<'_, '_>,
) -> PyResult<f64> {
    let (key, asked) = (bytes_of(key)?, Asked::new(time)?);
    let prior = prior(probability, rate)?;
    slot.quick(
        py,
        |handle| asked.quick(handle.asks()).posterior(&key, &prior),
        |handle| asked.patient(handle.asks()).posterior(&key, &prior),
    )
}

/// Returns the answer with the least expected cost, given those of a false positive and of a false
/// negative.
pub fn decide<H: Opens>(
    slot: &Slot<H>,
    py: Python<'_>,
    (key, probability): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    (false_positive, false_negative): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    (rate, time): (Argument<'_, '_>, Argument<'_, '_>),
) -> PyResult<bool> {
    let (key, asked) = (bytes_of(key)?, Asked::new(time)?);
    let prior = prior(probability, rate)?;
    let penalty = Penalty {
        false_positive: number("false_positive", false_positive)?,
        false_negative: number("false_negative", false_negative)?,
    };
    slot.quick(
        py,
        |handle| asked.quick(handle.asks()).contains_with(&key, &prior, penalty),
        |handle| asked.patient(handle.asks()).contains_with(&key, &prior, penalty),
    )
}
