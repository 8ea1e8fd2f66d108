//! The Python module of ebbtide: filters that forget, kept on disk and shared by processes.
//!
//! The classes and functions here are used through the package in `ebbtide/`, whose stub
//! (`_ebbtide.pyi`) and docstrings are the documentation.

mod answers;
mod batch;
mod bulk;
mod claim;
mod errors;
mod filter;
mod functions;
mod history;
mod interpreter;
mod keys;
mod questions;
mod reader;
mod settings;
mod slot;
mod times;

use pyo3::prelude::*;

// On a Mac the engine says itself what it lacks.
#[cfg(not(all(any(target_os = "linux", target_os = "macos"), target_pointer_width = "64")))]
compile_error!("ebbtide runs on 64-bit Linux, and on macOS for development");

/// The part of the package `ebbtide` that is not written in Python.
#[pymodule(gil_used = false)]
fn _ebbtide(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::check(module.py())?;
    errors::prepare(module.py())?;
    answers::prepare(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<filter::PyFilter>()?;
    // As Python's sets call it. A set's `add` returns nothing, either.
    let filter = module.getattr("Filter")?;
    filter.setattr("add", filter.getattr("insert")?)?;
    module.add_class::<reader::PyReader>()?;
    module.add_class::<batch::PyBatch>()?;
    module.add_class::<claim::PyClaim>()?;
    module.add_class::<bulk::Raw>()?;
    module.add_class::<history::PyHistory>()?;
    module.add_function(wrap_pyfunction!(bulk::raw, module)?)?;
    module.add_function(wrap_pyfunction!(claim::claim, module)?)?;
    module.add_function(wrap_pyfunction!(claim::resume_claim, module)?)?;
    module.add_function(wrap_pyfunction!(claim::claims, module)?)?;
    module.add_function(wrap_pyfunction!(claim::end_claim, module)?)?;
    module.add_function(wrap_pyfunction!(functions::open_filter, module)?)?;
    module.add_function(wrap_pyfunction!(functions::reopen_filter, module)?)?;
    module.add_function(wrap_pyfunction!(functions::restore, module)?)?;
    module.add_function(wrap_pyfunction!(functions::restore_at, module)?)?;
    module.add_function(wrap_pyfunction!(functions::alter, module)?)?;
    module.add_function(wrap_pyfunction!(functions::plan_alteration, module)?)?;
    module.add_function(wrap_pyfunction!(functions::remake, module)?)?;
    module.add_function(wrap_pyfunction!(functions::verify, module)?)?;
    module.add_function(wrap_pyfunction!(history::history, module)?)?;
    module.add_function(wrap_pyfunction!(history::key_hash, module)?)?;
    module.add_function(wrap_pyfunction!(history::share_of, module)?)?;
    module.add_function(wrap_pyfunction!(functions::salvage, module)?)?;
    module.add_function(wrap_pyfunction!(functions::plan, module)?)?;
    module.add_function(wrap_pyfunction!(functions::parse_duration, module)?)?;
    Ok(())
}
