//! Times, durations and windows in the forms in which Python programs have them.

use crate::errors::{raised, wrong_type, wrong_value};
use ebbtide::history::At;
use ebbtide::units::{parse_durability, parse_duration};
use ebbtide::{Age, Durability, Error, Timestamp, Within};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDateTime, PyDelta, PyFloat, PyInt, PyString, PyTzInfo};
use std::time::Duration;

/// The greatest number of seconds of a time or a duration: more than 30,000 years.
const MOST_SECONDS: f64 = 1e12;

/// Microseconds of a second.
const MICROS: u64 = 1_000_000;

/// Returns a number of seconds, if the object is a number.
fn seconds(value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    let is_number = value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>();
    if value.is_instance_of::<PyBool>() || !is_number && !value.hasattr("__float__")? {
        return Ok(None);
    }
    if !is_number && has_unit(value)? {
        return Ok(None);
    }
    value.extract::<f64>().map(Some)
}

/// Returns whether an object is a `timedelta64` or `datetime64` of numpy: the number that it has as
/// a float is one of its own unit.
fn has_unit(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(dtype) = value.getattr_opt("dtype")? else { return Ok(false) };
    let Some(kind) = dtype.getattr_opt("kind")? else { return Ok(false) };
    Ok(kind.extract::<&str>().is_ok_and(|kind| kind == "m" || kind == "M"))
}

/// Returns a `timedelta64` of numpy, if the object is one.
fn numpy_duration(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    let py = value.py();
    let specs = py.import("ebbtide._specs")?;
    let micros = specs.getattr("numpy_micros")?.call1((value, name))?;
    if micros.is_none() {
        return Ok(None);
    }
    let found =
        micros.extract::<u64>().ok().filter(|&micros| micros <= MOST_SECONDS as u64 * MICROS);
    let refused = || wrong_value(py, name, "a duration of zero or more", &value.to_string());
    found.map(|micros| Some(Duration::from_micros(micros))).ok_or_else(refused)
}

/// Returns a time: a `datetime` with a zone, or seconds since the Unix epoch.
pub fn timestamp(value: &Bound<'_, PyAny>) -> PyResult<Timestamp> {
    const EXPECTED: &str = "a datetime with a time zone, or seconds since 1970 (UTC)";
    let seconds = match value.cast::<PyDateTime>() {
        Ok(time) => seconds_of("time", time)?,
        Err(_) => seconds(value)?.ok_or_else(|| wrong_type("time", EXPECTED, value))?,
    };
    time_at(value.py(), "time", EXPECTED, seconds)
}

/// Returns the seconds since the Unix epoch of a `datetime` with a zone.
fn seconds_of(name: &str, time: &Bound<'_, PyDateTime>) -> PyResult<f64> {
    if time.getattr("tzinfo")?.is_none() {
        return Err(PyValueError::new_err(format!(
            "{name}: a datetime without a time zone may be any time; use \
             datetime.now(timezone.utc), or time.replace(tzinfo=...)"
        )));
    }
    time.call_method0("timestamp")?.extract::<f64>()
}

fn time_at(
    py: Python<'_>,
    name: &'static str,
    expected: &str,
    seconds: f64,
) -> PyResult<Timestamp> {
    if !(0.0..=MOST_SECONDS).contains(&seconds) {
        return Err(wrong_value(py, name, expected, &seconds.to_string()));
    }
    Ok(Timestamp::from_unix_micros((seconds * 1e6).round() as u64))
}

/// Returns a moment of a filter's past: a `datetime` with a zone, or text as on the command line.
pub fn moment(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<At> {
    const EXPECTED: &str = "'lsn:N', 'position:SOURCE=N', or a datetime with a time zone";
    let py = value.py();
    if let Ok(time) = value.cast::<PyDateTime>() {
        return time_at(py, name, EXPECTED, seconds_of(name, time)?).map(At::Time);
    }
    let Ok(text) = value.cast::<PyString>() else {
        return Err(wrong_type(name, EXPECTED, value));
    };
    let text = text.to_str()?;
    let parsed = match text.split_once(':') {
        Some(("lsn", number)) => number.parse().ok().map(At::Lsn),
        Some(("position", place)) => place.split_once('=').and_then(|(source, position)| {
            let (source, position) = (source.parse().ok()?, position.parse().ok()?);
            Some(At::Position { source, position })
        }),
        _ => None,
    };
    parsed.ok_or_else(|| wrong_value(py, name, EXPECTED, &format!("{text:?}")))
}

/// Returns a moment in the form that [`moment`] reads.
pub fn moment_object(py: Python<'_>, at: At) -> PyResult<Bound<'_, PyAny>> {
    match at {
        At::Time(time) => Ok(datetime(py, time)?.into_pyobject(py)?),
        At::Lsn(_) | At::Position { .. } => Ok(PyString::new(py, &at.to_string()).into_any()),
    }
}

/// Returns what was expected without that word, which the message begins with.
pub fn noun(expected: String) -> String {
    expected.strip_prefix("expected ").map(str::to_owned).unwrap_or(expected)
}

/// Returns a duration: a `timedelta`, seconds, or text with a unit.
pub fn duration(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    const EXPECTED: &str = "a timedelta, a number of seconds, or text such as '10m'";
    let py = value.py();
    if let Ok(text) = value.cast::<PyString>() {
        let text = text.to_str()?;
        return parse_duration(text).map_err(|expected| {
            let expected = noun(expected);
            raised(py, Error::Parameter { name, expected, found: text.to_owned() })
        });
    }
    let seconds = match value.cast::<PyDelta>() {
        Ok(delta) => Some(delta.call_method0("total_seconds")?.extract::<f64>()?),
        Err(_) => seconds(value)?,
    };
    let Some(seconds) = seconds else {
        return numpy_duration(name, value)?.ok_or_else(|| wrong_type(name, EXPECTED, value));
    };
    if !(0.0..=MOST_SECONDS).contains(&seconds) {
        return Err(wrong_value(py, name, EXPECTED, &seconds.to_string()));
    }
    Ok(Duration::from_micros((seconds * 1e6).round() as u64))
}

/// Returns how far back a question reaches: a time, or, where the window is not a time, a number of
/// inserts.
pub fn within(value: &Bound<'_, PyAny>, is_time: bool) -> PyResult<Within> {
    if !is_time && value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        return Ok(Within::Items(value.extract()?));
    }
    if !is_time {
        let expected = "a number of inserts, because the filter's window is one";
        return Err(wrong_type("within", expected, value));
    }
    duration("within", value).map(Within::Time)
}

/// Returns a durability: `"always"`, `"never"`, or the time between two syncs, whose bounds are
/// checked.
pub fn durability(value: &Bound<'_, PyAny>) -> PyResult<Durability> {
    let durability = match value.cast::<PyString>() {
        Ok(text) => {
            let text = text.to_str()?;
            parse_durability(text).map_err(|expected| {
                let (expected, found) = (noun(expected), text.to_owned());
                raised(value.py(), Error::Parameter { name: "durability", expected, found })
            })?
        }
        Err(_) => Durability::Interval(duration("durability", value)?),
    };
    durability.check().map_err(|error| raised(value.py(), error))?;
    Ok(durability)
}

/// Returns an age: a number of inserts, or a `timedelta`.
pub fn age<'py>(py: Python<'py>, age: Age) -> PyResult<Bound<'py, PyAny>> {
    match age {
        Age::Items(inserts) => Ok(inserts.into_pyobject(py)?.into_any()),
        Age::Time(time) => delta(py, time),
    }
}

/// Returns a duration as a `timedelta`.
pub fn delta<'py>(py: Python<'py>, duration: Duration) -> PyResult<Bound<'py, PyAny>> {
    const DAY: u64 = 86_400;
    let (days, seconds) = (duration.as_secs() / DAY, duration.as_secs() % DAY);
    let days = i32::try_from(days).unwrap_or(i32::MAX).min(999_999_999);
    let micros = duration.subsec_micros() as i32;
    Ok(PyDelta::new(py, days, seconds as i32, micros, false)?.into_any())
}

/// Returns a time as a `datetime` in UTC; `None` beyond the year 9999.
pub fn datetime<'py>(py: Python<'py>, time: Timestamp) -> PyResult<Option<Bound<'py, PyAny>>> {
    let seconds = time.as_unix_micros() as f64 / 1e6;
    if seconds >= 253_402_300_800.0 {
        return Ok(None);
    }
    let utc = PyTzInfo::utc(py)?;
    Ok(Some(PyDateTime::from_timestamp(py, seconds, Some(&utc))?.into_any()))
}
