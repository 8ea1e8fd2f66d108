//! The class `Reader`.

use crate::answers;
use crate::batch::whole;
use crate::bulk::Keys;
use crate::errors::raised;
use crate::keys::bytes_of;
use crate::questions;
use crate::settings::{Argument, Asked};
use crate::slot::{Opens, Slot, no_copy};
use crate::times;
use ebbtide::{Any, Options, Reader};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

/// A filter open for reading only: ``Reader(path)``.
///
/// It needs no write permission, changes no file, and delays no writer. While writers have the
/// filter open, answers are as fresh as theirs; otherwise the state is rebuilt in memory.
///
/// ``at`` opens the filter as it was at a moment of its past, if its log is kept
/// (``open(keep_log=...)``): a ``datetime`` with a zone, for the moment before the first operation
/// that is later; ``"lsn:17"``, after record 17; or ``"position:3=900"``, before the position of
/// source 3 passed 900. Raises NotKept if the log does not have the moment.
///
/// >>> import tempfile, ebbtide
/// >>> path = tempfile.mkdtemp()
/// >>> with ebbtide.open(path, ebbtide.Bloom(1000)) as seen, ebbtide.Reader(path) as reader:
/// ...     seen.insert("order 17")
/// ...     "order 17" in reader
/// True
#[pyclass(frozen, weakref, module = "ebbtide", name = "Reader")]
pub struct PyReader {
    slot: Slot<Reader>,
}

#[pymethods]
impl PyReader {
    /// Opens a filter for reading.
    #[new]
    #[pyo3(signature = (path, /, *, at=None, reopen_after_fork=true))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        at: Argument<'_, '_>,
        reopen_after_fork: bool,
    ) -> PyResult<Self> {
        if path.as_os_str().is_empty() {
            return Err(PyValueError::new_err(
                "path: expected the path of a directory, found an empty one",
            ));
        }
        let path = std::path::absolute(path)?;
        let at = at.map(|at| times::moment("at", at)).transpose()?;
        let opened = py.detach(|| <Reader as Opens>::open(&path, at, Options::new()));
        let reader = opened.map_err(|error| raised(py, error))?;
        let slot =
            Slot::new(reader, (path, at), (Options::new(), String::new()), reopen_after_fork);
        Ok(Self { slot })
    }

    /// Closes the reader; a second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.slot.close(py)
    }

    /// Returns whether a key is in the window.
    ///
    /// Never False for a key in the window; True for other keys at the filter's false-positive
    /// rate. ``time`` asks as of that time, if it is later than the filter's. ``key in filter``
    /// asks the same.
    #[pyo3(signature = (key, /, *, time=None))]
    fn contains(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        time: Argument<'_, '_>,
    ) -> PyResult<bool> {
        let (key, asked) = (bytes_of(key)?, Asked::new(time)?);
        self.slot.quick(
            py,
            |handle| asked.quick(handle.call()).contains(&key),
            |handle| asked.patient(handle.call()).contains(&key),
        )
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.contains(py, key, None)
    }

    /// Returns for each of many keys whether it is in the window, as a byte: 1 yes, 0 no.
    ///
    /// ``keys`` is an iterable of keys, a numpy array of byte strings, or ``ebbtide.raw(array)``.
    /// Faster than single questions; other threads run meanwhile.
    #[pyo3(signature = (keys, /, *, time=None))]
    fn contains_all<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        time: Argument<'_, '_>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.slot.check_open(py)?;
        let (asked, mut answers) = (Asked::new(time)?, Vec::new());
        Keys::new(keys)?.in_slices(py, |keys| {
            let contained =
                self.slot.patient(py, |handle| asked.patient(handle.call()).contains_all(keys))?;
            answers.extend(contained.into_iter().map(u8::from));
            Ok(())
        })?;
        Ok(PyBytes::new(py, &answers))
    }

    /// Returns how long ago a key was seen, at least; None if it is not in the window.
    ///
    /// A ``timedelta`` if the window is a time, otherwise a number of inserts. Raises Unsupported
    /// if the kind keeps no ages.
    #[pyo3(signature = (key, /, *, time=None))]
    fn age<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        time: Argument<'_, '_>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        questions::age(&self.slot, py, key, time)
    }

    /// Returns whether a key was seen within a time, or a number of inserts, shorter than the
    /// window.
    ///
    /// ``within`` is a duration if the window is a time, otherwise an int. Never False for a key
    /// that was; True for some keys that are slightly older. Raises Unsupported if the kind keeps
    /// no ages.
    #[pyo3(signature = (key, within, /, *, time=None))]
    fn seen_within(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        within: &Bound<'_, PyAny>,
        time: Argument<'_, '_>,
    ) -> PyResult<bool> {
        questions::seen_within(&self.slot, py, (key, within), time)
    }

    /// Returns how many distinct keys are in the window, as a ``Cardinality``.
    ///
    /// Raises Unsupported if the kind does not know it.
    #[pyo3(signature = (*, time=None))]
    fn distinct<'py>(
        &self,
        py: Python<'py>,
        time: Argument<'_, '_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        questions::distinct(&self.slot, py, None, time)
    }

    /// Returns how many distinct keys there are in a part of the window; ``within`` as for
    /// ``seen_within``. Keys that are up to a generation older count too: see ``reach``.
    #[pyo3(signature = (within, /, *, time=None))]
    fn distinct_within<'py>(
        &self,
        py: Python<'py>,
        within: &Bound<'py, PyAny>,
        time: Argument<'_, '_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        questions::distinct(&self.slot, py, Some(within), time)
    }

    /// Returns the probability that a key is in the window, given the filter's evidence and a
    /// prior: the probability, from 0 to 1, that an insert is of this key.
    ///
    /// If the window is a time, ``rate`` is required: the inserts a second, of all keys together.
    /// 0 for "no"; docs/posteriors.md says when it is worth more than ``contains``. Raises
    /// Unsupported if the kind has no posteriors.
    #[pyo3(signature = (key, prior, /, *, rate=None, time=None))]
    fn posterior(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        prior: &Bound<'_, PyAny>,
        rate: Argument<'_, '_>,
        time: Argument<'_, '_>,
    ) -> PyResult<f64> {
        questions::posterior(&self.slot, py, (key, prior), rate, time)
    }

    /// Returns the answer to ``contains`` with the least expected cost, given a prior, and a
    /// ``rate``, as for ``posterior``, and the costs of both mistakes.
    #[pyo3(signature = (key, prior, /, *, false_positive, false_negative, rate=None, time=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments in Python")]
    fn decide(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        prior: &Bound<'_, PyAny>,
        false_positive: &Bound<'_, PyAny>,
        false_negative: &Bound<'_, PyAny>,
        rate: Argument<'_, '_>,
        time: Argument<'_, '_>,
    ) -> PyResult<bool> {
        let costs = (false_positive, false_negative);
        questions::decide(&self.slot, py, (key, prior), costs, (rate, time))
    }

    /// Estimates how often a key was inserted, less how often it was removed.
    ///
    /// Raises Unsupported if the kind does not count.
    #[pyo3(signature = (key, /, *, time=None))]
    fn estimate<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        time: Argument<'_, '_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        questions::estimate(&self.slot, py, (key, false), time)
    }

    /// Estimates how often each of many keys was inserted; ``keys`` as for ``contains_all``.
    #[pyo3(signature = (keys, /, *, time=None))]
    fn estimate_all<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        time: Argument<'_, '_>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.slot.check_open(py)?;
        let (asked, mut all) = (Asked::new(time)?, Vec::new());
        Keys::new(keys)?.in_slices(py, |keys| {
            let counts =
                self.slot.patient(py, |handle| asked.patient(handle.call()).estimate_all(keys))?;
            all.extend(counts);
            Ok(())
        })?;
        answers::estimates(py, &all)
    }

    /// Returns how often a key is inserted in each epoch, as a mean in which late epochs weigh
    /// more.
    ///
    /// Raises Unsupported if the kind's counts do not decay.
    #[pyo3(signature = (key, /, *, time=None))]
    fn frequency<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        time: Argument<'_, '_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        questions::estimate(&self.slot, py, (key, true), time)
    }

    /// Returns the position of a source, as set by the last batch that was committed; None if none
    /// was.
    #[pyo3(signature = (source, /))]
    fn position(&self, py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let source = whole("source", source)?;
        self.slot.patient(py, |reader| reader.position(source))
    }

    /// Returns the positions of all sources, by source.
    fn positions(&self, py: Python<'_>) -> PyResult<BTreeMap<u64, u64>> {
        Ok(self.slot.patient(py, |reader| reader.positions())?.into_iter().collect())
    }

    /// Returns a hash of the logical state: equal for filters of the same parameters after the same
    /// operations at the same times, in whatever language. No writer waits: while there are any,
    /// the state is first rebuilt from the files.
    fn digest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let digest = self.slot.patient(py, |handle| handle.digest())?;
        answers::digest(py, digest)
    }

    /// Returns statistics of the filter.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stat = self.slot.patient(py, |handle| handle.stat())?;
        answers::stat(py, &stat)
    }

    /// The filter's directory, as an absolute path.
    #[getter]
    fn path(&self) -> &OsStr {
        self.slot.path().as_os_str()
    }

    /// The name of the filter's kind.
    #[getter]
    fn kind(&self, py: Python<'_>) -> &'static str {
        self.slot.described(py).0
    }

    /// All parameters of the kind, as text: durations in microseconds.
    #[getter]
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        answers::parameters(py, &self.slot.described(py).1)
    }

    /// Whether the object was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.slot.is_closed()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = if self.slot.is_closed() { "closed " } else { "" };
        let (kind, parameters) = self.slot.described(py);
        let spec = Any::new(kind, parameters);
        let then = self.slot.what().map_or_else(String::new, |at| format!(" as of {at}"));
        format!("<{state}ebbtide.Reader {:?} {spec}{then}>", self.slot.path())
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().slot.check_open(slf.py())?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Argument<'_, '_>,
        _error: Argument<'_, '_>,
        _traceback: Argument<'_, '_>,
    ) -> PyResult<()> {
        self.slot.close(py)
    }

    fn __copy__(&self) -> PyResult<()> {
        Err(no_copy())
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(no_copy())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.slot.check_open(py)?;
        let opens = py.import("ebbtide._open")?.getattr("unpickled_reader")?;
        let at = self.slot.what().map(|at| times::moment_object(py, at)).transpose()?;
        (opens, (self.slot.path().as_os_str(), self.slot.reopens(), at)).into_pyobject(py)
    }
}
