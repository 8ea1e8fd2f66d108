//! Errors of the engine as Python exceptions: the classes of `ebbtide/_errors.py`, by their codes.

use ebbtide::Error;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The function `ebbtide._errors.make`.
static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Finds what is needed to raise errors. Done once, when the module is imported: a child made by
/// `fork` must not find it half done.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    MAKE.get_or_try_init(py, || py.import("ebbtide._errors")?.getattr("make").map(Bound::unbind))?;
    Ok(())
}

/// Returns the exception for an error of the engine.
#[cold]
pub fn raised(py: Python<'_>, error: Error) -> PyErr {
    match exception(py, &error) {
        Ok(exception) => PyErr::from_value(exception),
        Err(other) => other,
    }
}

fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let code = error.code();
    let attributes = attributes(py, error)?;
    prepare(py)?;
    let make = MAKE.get(py).ok_or_else(|| PyTypeError::new_err("the module is not initialised"))?;
    make.bind(py).call1((code.number(), code.name(), error.to_string(), attributes))
}

/// Returns the fields of an error that programs may need.
fn attributes<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    let path = |path: &Path| all.set_item("path", path.as_os_str());
    match error {
        Error::Io { path, source, .. } => {
            all.set_item("filename", path.as_os_str())?;
            all.set_item("errno", errno(source))?;
        }
        Error::Damaged { path: file, offset, expected, found, remedy } => {
            path(file)?;
            all.set_item("offset", offset)?;
            all.set_item("expected", expected)?;
            all.set_item("found", found)?;
            all.set_item("remedy", remedy)?;
        }
        Error::Version { path: file, expected, found } => {
            path(file)?;
            all.set_item("expected", expected)?;
            all.set_item("found", found)?;
        }
        Error::Mismatch { path: file, what, expected, found } => {
            path(file)?;
            all.set_item("what", what)?;
            all.set_item("expected", expected)?;
            all.set_item("found", found)?;
        }
        Error::LeaseLost { path: file, token } => {
            path(file)?;
            all.set_item("token", token)?;
        }
        Error::ClaimsFull { path: file, most } => {
            path(file)?;
            all.set_item("most", most)?;
        }
        Error::NotKept { path: file, wanted, from, end, .. } => {
            path(file)?;
            all.set_item("wanted", wanted)?;
            all.set_item("first", from)?;
            all.set_item("end", end)?;
        }
        Error::Conflict { path: file, operation } => {
            path(file)?;
            all.set_item("operation", operation)?;
        }
        Error::Parameter { name, expected, found } => {
            all.set_item("parameter", name)?;
            all.set_item("expected", expected)?;
            all.set_item("found", found)?;
        }
        Error::Unsupported { kind, operation } => {
            all.set_item("kind", kind)?;
            all.set_item("operation", operation)?;
        }
        Error::NotAFilter { path: file, .. }
        | Error::Exists { path: file }
        | Error::Occupied { path: file }
        | Error::Locked { path: file, .. }
        | Error::Crowded { path: file, .. }
        | Error::Forked { path: file }
        | Error::Closed { path: file }
        | Error::Retired { path: file, .. }
        | Error::Poisoned { path: file, .. }
        | Error::WouldWait { path: file, .. } => path(file)?,
        _ => {}
    }
    Ok(all)
}

/// Returns the number of an error of the system, also of one that the engine has found out itself,
/// such as a disk without room for a file that it was going to write.
fn errno(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| {
        let number = match error.kind() {
            ErrorKind::StorageFull => Errno::NOSPC,
            ErrorKind::QuotaExceeded => Errno::DQUOT,
            ErrorKind::OutOfMemory => Errno::NOMEM,
            ErrorKind::PermissionDenied => Errno::ACCESS,
            ErrorKind::NotADirectory => Errno::NOTDIR,
            ErrorKind::NotFound => Errno::NOENT,
            ErrorKind::TimedOut => Errno::TIMEDOUT,
            ErrorKind::Unsupported => Errno::OPNOTSUPP,
            ErrorKind::InvalidInput => Errno::INVAL,
            _ => return None,
        };
        Some(number.raw_os_error())
    })
}

/// Returns the error for a value of the wrong type.
#[cold]
pub fn wrong_type(name: &str, expected: &str, found: &Bound<'_, PyAny>) -> PyErr {
    let found = found.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{name}: expected {expected}, found {found}"))
}

/// Returns the error for a value out of bounds.
#[cold]
pub fn wrong_value(py: Python<'_>, name: &'static str, expected: &str, found: &str) -> PyErr {
    let (expected, found) = (expected.to_owned(), found.to_owned());
    raised(py, Error::Parameter { name, expected, found })
}

/// Returns the error for a key whose time lies before the window.
#[cold]
pub fn too_late(py: Python<'_>) -> PyErr {
    let raise = || -> PyResult<PyErr> {
        let class = py.import("ebbtide._errors")?.getattr("TooLate")?;
        Ok(PyErr::from_value(class.call1(("the key's time lies before the window",))?))
    };
    raise().unwrap_or_else(|error| error)
}
