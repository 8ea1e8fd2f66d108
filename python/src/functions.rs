//! Functions that need no open filter, and the opening of filters.

use crate::answers;
use crate::errors::raised;
use crate::filter::PyFilter;
use crate::times;
use ebbtide::history::{self, Share, Unlogged};
use ebbtide::{Any, Error, Filter, Options, Spec, inspect, units};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::path::PathBuf;

fn raise<T>(py: Python<'_>, result: ebbtide::Result<T>) -> PyResult<T> {
    result.map_err(|error| raised(py, error))
}

fn spec_of(py: Python<'_>, text: &str) -> PyResult<Any> {
    raise(py, text.parse::<Any>().map_err(Error::from))
}

/// Opens or creates a filter; `ebbtide.open` calls it with everything as text.
#[pyfunction]
pub fn open_filter(
    py: Python<'_>,
    path: PathBuf,
    spec: Option<&str>,
    create: Option<bool>,
    options: &str,
    reopen_after_fork: bool,
) -> PyResult<PyFilter> {
    let text = options.to_owned();
    let options: Options = raise(py, options.parse())?;
    let spec = spec.map(|text| spec_of(py, text)).transpose()?;
    if let Some(spec) = &spec {
        // Impossible parameters are reported before anything is opened.
        raise(py, spec.kind().map_err(Error::from))?;
    }
    let opened = match (spec, create) {
        (None, Some(true)) => {
            return Err(PyTypeError::new_err("open: create=True needs the spec of the new filter"));
        }
        (None, _) => py.detach(|| Filter::<Any>::open(&path, options.clone())),
        (Some(spec), Some(true)) => py.detach(|| Filter::create(&path, spec, options.clone())),
        (Some(spec), None) => py.detach(|| Filter::open_or_create(&path, spec, options.clone())),
        (Some(spec), Some(false)) => py.detach(|| Filter::open_as(&path, spec, options.clone())),
    };
    Ok(PyFilter::of(raise(py, opened)?, path, (options, text), reopen_after_fork))
}

/// Opens an existing filter again, with the options of an object that was pickled.
#[pyfunction]
pub fn reopen_filter(
    py: Python<'_>,
    path: PathBuf,
    options: &str,
    reopen_after_fork: bool,
) -> PyResult<PyFilter> {
    let text = options.to_owned();
    let options = raise(py, options.parse::<Options>())?.for_reopening();
    let opened = raise(py, py.detach(|| Filter::<Any>::open(&path, options.clone())))?;
    Ok(PyFilter::of(opened, path, (options, text), reopen_after_fork))
}

/// Copies a closed filter, or a backup, to a new directory.
#[pyfunction]
pub fn restore(py: Python<'_>, backup: PathBuf, path: PathBuf) -> PyResult<()> {
    raise(py, py.detach(|| inspect::restore(backup, path)))
}

/// Makes a filter that is what another one was at a moment of its past.
#[pyfunction]
pub fn restore_at(
    py: Python<'_>,
    filter: PathBuf,
    path: PathBuf,
    at: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let at = times::moment("at", at)?;
    raise(py, py.detach(|| inspect::restore_at(filter, at, path)))?;
    Ok(())
}

/// Gives a filter other parameters; `Filter.alter` calls it.
#[pyfunction]
pub fn alter<'py>(
    seen: &Bound<'py, PyFilter>,
    spec: &str,
    forget: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = seen.py();
    let spec = spec_of(py, spec)?;
    let unlogged = if forget { Unlogged::Forget } else { Unlogged::Refuse };
    // In a child made by fork this opens the filter again.
    let filter = seen.get().slot.usable(py, |filter| filter.positions().map(drop))?;
    let altered = raise(py, py.detach(|| filter.alter(spec, unlogged)))?;
    answers::altered(py, altered)
}

/// Returns what an alteration of a filter would take.
#[pyfunction]
pub fn plan_alteration<'py>(
    py: Python<'py>,
    path: PathBuf,
    spec: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let spec = spec_of(py, spec)?;
    let plan = py.detach(|| history::plan(path, spec));
    answers::alteration_plan(py, raise(py, plan)?)
}

/// Makes a filter from the logs of others.
#[pyfunction]
pub fn remake<'py>(
    py: Python<'py>,
    filters: Vec<PathBuf>,
    path: PathBuf,
    spec: &str,
    options: &str,
    share: Option<(u64, u64)>,
) -> PyResult<Bound<'py, PyAny>> {
    let spec = spec_of(py, spec)?;
    let options: Options = raise(py, options.parse())?;
    let share = share.map(|(number, count)| Share { number, count });
    let made = py.detach(|| history::remake(&filters, path, spec, options, share));
    answers::remade(py, raise(py, made)?)
}

/// Checks all files of a filter.
#[pyfunction]
pub fn verify(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let report = raise(py, py.detach(|| inspect::verify(path)))?;
    answers::report(py, &report)
}

/// Recovers what a damaged filter still proves into a new directory.
#[pyfunction]
pub fn salvage(
    py: Python<'_>,
    damaged: PathBuf,
    path: PathBuf,
) -> PyResult<Option<Bound<'_, PyAny>>> {
    let found = raise(py, py.detach(|| inspect::salvage(damaged, path)))?;
    found.map(|found| answers::salvaged(py, &found)).transpose()
}

/// Computes what a filter will take.
#[pyfunction]
pub fn plan<'py>(py: Python<'py>, spec: &str, options: &str) -> PyResult<Bound<'py, PyAny>> {
    let spec = spec_of(py, spec)?;
    let options: Options = raise(py, options.parse())?;
    let plan = raise(py, inspect::plan(spec.name(), spec.parameters(), &options))?;
    answers::plan(py, &plan)
}

/// Returns a duration with a unit in microseconds.
#[pyfunction]
pub fn parse_duration(py: Python<'_>, text: &str) -> PyResult<u64> {
    let parsed = units::parse_duration(text).map_err(|expected| Error::Parameter {
        name: "duration",
        expected: times::noun(expected),
        found: format!("{text:?}"),
    });
    Ok(u64::try_from(raise(py, parsed)?.as_micros()).unwrap_or(u64::MAX))
}
