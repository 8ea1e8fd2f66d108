//! The class `Batch`.

use crate::claim::PyClaim;
use crate::errors::{raised, too_late, wrong_type, wrong_value};
use crate::filter::PyFilter;
use crate::keys::bytes_of;
use crate::settings::{Argument, Settings};
use ebbtide::{Any, Batch, Checked, Error, Filter};
use pyo3::prelude::*;
use pyo3::types::PyBool;
use self_cell::self_cell;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

type OfFilter<'a> = Batch<'a, Any>;

self_cell!(
    /// A batch with the filter that it borrows.
    struct Owned {
        owner: Arc<Filter>,
        #[covariant]
        dependent: OfFilter,
    }
);

/// Keys and positions that are written in one atomic step, from ``Filter.batch``.
///
/// Nothing of a batch is written, and nobody else sees any of it, before ``commit``; after that all
/// of it counts. If the commit fails or the process dies before it has ended, all or nothing does.
/// At the end of a ``with`` block the batch is committed, unless an exception leaves the block.
///
/// A position is a number of a source, such as an offset in a file or in a partition. After a crash
/// ``Filter.position`` is the one that belongs to exactly the keys that the filter remembers.
///
/// One thread uses a batch at a time. In a child made by ``os.fork`` it raises Forked.
///
/// >>> import tempfile, ebbtide
/// >>> seen = ebbtide.open(tempfile.mkdtemp(), ebbtide.Fingerprint(last=1000))
/// >>> with seen.batch() as batch:
/// ...     new = [message for message in ("a", "b", "a") if batch.check_and_insert(message)]
/// ...     batch.set_position(0, 3)
/// >>> new, seen.position(0)
/// (['a', 'b'], 3)
/// >>> seen.close()
#[pyclass(module = "ebbtide", name = "Batch")]
pub struct PyBatch {
    batch: Owned,
    path: PathBuf,
    /// Keeps the filter open.
    _seen: Py<PyFilter>,
}

impl PyBatch {
    /// Creates an empty batch.
    pub fn new(
        seen: Py<PyFilter>,
        (filter, path): (Arc<Filter>, PathBuf),
        settings: &Settings,
    ) -> Self {
        let batch = Owned::new(filter, |filter| Batch::new(settings.patient(filter)));
        Self { batch, path, _seen: seen }
    }

    /// Runs an operation that may wait for other processes: without the interpreter's lock, and
    /// with a look at signals in between.
    fn patient<T: Send>(
        &mut self,
        py: Python<'_>,
        mut operate: impl FnMut(&mut OfFilter<'_>) -> ebbtide::Result<T> + Send,
    ) -> PyResult<T> {
        let batch = &mut self.batch;
        loop {
            match py.detach(|| batch.with_dependent_mut(|_, batch| operate(batch))) {
                Ok(done) => return Ok(done),
                Err(Error::WouldWait { .. }) => py.check_signals()?,
                Err(error) => return Err(raised(py, error)),
            }
        }
    }
}

impl Drop for PyBatch {
    fn drop(&mut self) {
        if self.batch.with_dependent(|_, batch| batch.is_empty()) {
            return;
        }
        // The end of a claim may wait for other processes, for a second at most.
        let batch = &mut self.batch;
        let mut clear = || batch.with_dependent_mut(|_, batch| batch.clear());
        let _ = Python::try_attach(|py| py.detach(&mut clear));
    }
}

#[pymethods]
impl PyBatch {
    /// Adds the insert of a key. ``time`` and ``weight`` are as for ``Filter.insert``.
    ///
    /// A key that is too late when the batch is committed is left out.
    #[pyo3(signature = (key, /, *, time=None, weight=None))]
    fn insert(
        &mut self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        time: Argument<'_, '_>,
        weight: Argument<'_, '_>,
    ) -> PyResult<()> {
        let (key, settings) = (bytes_of(key)?, Settings::new(time, None, None, weight)?);
        let added =
            self.batch.with_dependent_mut(|_, batch| batch.insert_entry(&settings.entry(&key)));
        added.map_err(|error| raised(py, error))
    }

    /// Adds the insert of a key, and returns whether it is new: as ``Filter.check_and_insert``
    /// would if each earlier operation of the batch had been a single one.
    ///
    /// ``time`` and ``weight`` are as for ``Filter.insert``. Raises TooLate if the key's time lies
    /// before the window, and the key is not in it. If another caller inserts a key that was new
    /// before the batch is committed, ``commit`` raises Conflict.
    #[pyo3(signature = (key, /, *, time=None, weight=None))]
    fn check_and_insert(
        &mut self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        time: Argument<'_, '_>,
        weight: Argument<'_, '_>,
    ) -> PyResult<bool> {
        let (key, settings) = (bytes_of(key)?, Settings::new(time, None, None, weight)?);
        let key = &*key;
        match self.patient(py, |batch| batch.check_and_insert_entry(&settings.entry(key)))? {
            Checked::New => Ok(true),
            Checked::Present => Ok(false),
            Checked::TooLate => Err(too_late(py)),
        }
    }

    /// Sets the position of a source when the batch is committed: two whole numbers from 0 to
    /// 2**64 - 1. A filter keeps the positions of 256 sources.
    #[pyo3(signature = (source, position, /))]
    fn set_position(
        &mut self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        position: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (source, position) = (whole("source", source)?, whole("position", position)?);
        let set = self.batch.with_dependent_mut(|_, batch| batch.set_position(source, position));
        set.map_err(|error| raised(py, error))
    }

    /// Adds the insert of a key that the caller has claimed, and the end of its claim: as
    /// ``Claim.confirm``, together with the rest of the batch. The claim is the batch's then: one
    /// that is cleared or dropped releases the key. An error (TimeAhead, or a batch that is full)
    /// releases it, too.
    ///
    /// >>> import tempfile, ebbtide
    /// >>> with ebbtide.open(tempfile.mkdtemp(), ebbtide.Fingerprint(last=1000)) as seen:
    /// ...     with seen.batch() as batch, seen.claim("message 41", lease="30s") as claim:
    /// ...         if claim:
    /// ...             batch.confirm(claim)    # once the work is done
    /// ...         batch.set_position(0, 42)
    /// ...     "message 41" in seen, seen.position(0)
    /// (True, 42)
    #[pyo3(signature = (claim, /))]
    fn confirm(&mut self, py: Python<'_>, claim: &Bound<'_, PyClaim>) -> PyResult<()> {
        let claim = claim.get();
        let held = claim.held(py)?;
        self.batch.with_dependent_mut(|filter, batch| {
            if !Arc::ptr_eq(filter, &held.filter) {
                return Err(wrong_value(py, "claim", "one of the batch's filter", "another"));
            }
            let lease = filter.resume_claim(claim.key(), held.token);
            // Added or not: the claim is the batch's, or released.
            held.note_end();
            let added = py.detach(|| match claim.time() {
                Some(time) => batch.confirm_at(lease, time),
                None => batch.confirm(lease),
            });
            added.map_err(|error| raised(py, error))
        })
    }

    /// Writes the batch: all of it, or nothing. Returns when it is as durable as the filter, or
    /// ``durability`` of ``Filter.batch``, says; the batch is empty then, and can be filled again.
    ///
    /// Raises Conflict if another caller inserted a key that was answered as new, and LeaseLost if
    /// a claim that it confirms is over: ``clear`` the batch, and take the same messages again.
    fn commit(&mut self, py: Python<'_>) -> PyResult<()> {
        self.patient(py, |batch| batch.commit())
    }

    /// Forgets all operations and positions of the batch, and releases the keys that it would have
    /// confirmed.
    fn clear(&mut self, py: Python<'_>) {
        py.detach(|| self.batch.with_dependent_mut(|_, batch| batch.clear()));
    }

    /// The directory of the filter.
    #[getter]
    fn path(&self) -> &OsStr {
        self.path.as_os_str()
    }

    fn __len__(&self) -> usize {
        self.batch.borrow_dependent().len()
    }

    fn __bool__(&self) -> bool {
        !self.batch.borrow_dependent().is_empty()
    }

    fn __repr__(&self) -> String {
        format!("<ebbtide.Batch of {} operations for {:?}>", self.__len__(), self.path)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &mut self,
        py: Python<'_>,
        kind: Argument<'_, '_>,
        _error: Argument<'_, '_>,
        _traceback: Argument<'_, '_>,
    ) -> PyResult<()> {
        if kind.is_none() {
            return self.commit(py);
        }
        self.clear(py);
        Ok(())
    }
}

/// Returns a whole number of 64 bits.
pub fn whole(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    const EXPECTED: &str = "a whole number from 0 to 2**64 - 1";
    if value.is_instance_of::<PyBool>() {
        return Err(wrong_type(name, EXPECTED, value));
    }
    value.extract::<u64>().map_err(|_| wrong_type(name, EXPECTED, value))
}
