//! The interpreter that the module serves: the first one of the process that imports it.
//!
//! Classes of the package are kept for the process ([`crate::errors`], [`crate::answers`]). Another
//! interpreter, as mod_wsgi and uWSGI make them, has classes of its own, so nothing would catch
//! `ebbtide.Error` there. From 3.12 on Python refuses the import itself, but only in interpreters
//! that are isolated, which those are not.

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The module `sys` of the first interpreter: each has its own, from its beginning to its end.
static FIRST: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Refuses every interpreter but the first, with Python's own sentence.
pub fn check(py: Python<'_>) -> PyResult<()> {
    let sys = py.import("sys")?;
    if FIRST.get_or_init(py, || sys.clone().unbind()).bind(py).is(&sys) {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "module ebbtide._ebbtide does not support loading in subinterpreters",
    ))
}
