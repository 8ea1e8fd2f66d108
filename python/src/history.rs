//! The class `History`: the operations in the log of a filter, which names keys by their hash.

use crate::answers;
use crate::errors::{raised, wrong_value};
use crate::filter::PyFilter;
use crate::keys::bytes_of;
use crate::settings::Argument;
use crate::slot::PATIENCE;
use crate::times;
use ebbtide::history::{Commit, Guard, History, Share};
use ebbtide::{Any, Error, Filter};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The operations in the log of a filter, commit by commit: ``ebbtide.history(path)``.
///
/// An iterator that ends where the log ends now. Asked again later, it continues with what came
/// since; ``wait`` waits for that. Any number of threads may use it, and each commit comes to one
/// of them. In a child made by ``os.fork`` it raises Forked: open another one there.
#[pyclass(frozen, weakref, module = "ebbtide", name = "History")]
pub struct PyHistory {
    /// Locked only without the interpreter's lock.
    history: Mutex<History>,
    path: PathBuf,
    /// A forked child may inherit the lock while a thread that it does not have holds it.
    guard: Guard,
}

#[pymethods]
impl PyHistory {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let commit = self.with(py, History::read)?;
        commit.map(|commit| answers::commit(py, &commit)).transpose()
    }

    /// Returns the next commit, waiting for it for this time, or as long as it takes; None if none
    /// came.
    ///
    /// Other threads run meanwhile.
    #[pyo3(signature = (timeout=None))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        timeout: Argument<'_, '_>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let timeout = timeout.map(|time| times::duration("timeout", time)).transpose()?;
        let begun = Instant::now();
        loop {
            let left = timeout.map_or(Duration::MAX, |time| time.saturating_sub(begun.elapsed()));
            let found: Option<Commit> =
                self.with(py, |history| history.wait(left.min(PATIENCE)))?;
            if let Some(commit) = found {
                return answers::commit(py, &commit).map(Some);
            }
            py.check_signals()?;
            if left <= PATIENCE {
                return Ok(None);
            }
        }
    }

    /// The LSN at which reading continues: every commit below it was returned, or was there before
    /// the beginning. ``after=f"lsn:{position - 1}"`` continues there.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |history| Ok(history.next_lsn()))
    }
}

impl PyHistory {
    /// Reads without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&mut History) -> ebbtide::Result<T> + Send,
    ) -> PyResult<T> {
        if self.guard.is_foreign() {
            return Err(raised(py, Error::Forked { path: self.path.clone() }));
        }
        let read = || read(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner));
        py.detach(read).map_err(|error| raised(py, error))
    }
}

/// Opens the log of a filter.
#[pyfunction]
pub fn history(
    py: Python<'_>,
    path: PathBuf,
    after: Argument<'_, '_>,
    durable: bool,
) -> PyResult<PyHistory> {
    let after = after.map(|after| times::moment("after", after)).transpose()?;
    let open = || -> ebbtide::Result<History> {
        let history = History::open(&path)?;
        let history = match after {
            Some(after) => history.after(after)?,
            None => history,
        };
        Ok(if durable { history } else { history.with_undurable() })
    };
    let history = py.detach(open).map_err(|error| raised(py, error))?;
    Ok(PyHistory { history: Mutex::new(history), path, guard: Guard::new() })
}

/// Returns the hash by which the log names a key; `Filter.key_hash` calls it.
#[pyfunction]
pub fn key_hash(seen: &Bound<'_, PyFilter>, key: &Bound<'_, PyAny>) -> PyResult<u64> {
    let key = bytes_of(key)?;
    let hash = |filter: &Filter<Any>| Ok(filter.key_hash(&key));
    seen.get().slot.quick(seen.py(), hash, hash)
}

/// Returns the number of the share, of `count`, that a key hash belongs to.
#[pyfunction]
pub fn share_of(py: Python<'_>, hash: u64, count: u64) -> PyResult<u64> {
    if count == 0 {
        return Err(wrong_value(py, "count", "at least 1", "0"));
    }
    Ok(Share::of(hash, count))
}
