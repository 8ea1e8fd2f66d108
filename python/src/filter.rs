//! The class `Filter`.

use crate::answers;
use crate::batch::{PyBatch, whole};
use crate::bulk::{self, Keys};
use crate::errors::too_late;
use crate::keys::bytes_of;
use crate::questions;
use crate::settings::{Argument, Asked, Settings, number};
use crate::slot::{Slot, no_copy, warn_unclosed};
use ebbtide::{Any, Checked, Filter, Options};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

/// An open filter, from ``ebbtide.open``.
///
/// Any number of threads may use one object, and any number of processes the same filter. Keys are
/// ``str`` (as UTF-8), ``bytes``, ``bytearray`` or ``memoryview``. Times are ``datetime`` with a
/// zone, or seconds since 1970; durations are ``timedelta``, seconds, or text such as ``"10m"``.
///
/// In a child made by ``os.fork`` the object opens the filter again at its first use. Pickled, as
/// ``multiprocessing`` does, it opens the same path in the other process. Close it, or use it in a
/// ``with`` statement: closing writes a snapshot, and what is not closed only opens more slowly.
#[pyclass(frozen, weakref, module = "ebbtide", name = "Filter")]
pub struct PyFilter {
    pub slot: Slot<Filter>,
}

impl PyFilter {
    /// Creates the object of an open filter.
    pub fn of(filter: Filter, path: PathBuf, options: (Options, String), reopens: bool) -> Self {
        Self { slot: Slot::new(filter, (path, ()), options, reopens) }
    }
}

#[pymethods]
impl PyFilter {
    #[new]
    #[pyo3(signature = (*_arguments, **_settings))]
    fn new(
        _arguments: &Bound<'_, PyTuple>,
        _settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Err(PyTypeError::new_err("open a filter with ebbtide.open(path, spec)"))
    }

    /// Inserts a key.
    ///
    /// ``time`` replaces the clock's time, ``durability`` the filter's, and ``weight`` is how often
    /// the key counts, or its importance, of kinds that have such. Raises TooLate if the key's time
    /// lies before the window; then nothing has changed.
    #[pyo3(signature = (key, /, *, time=None, durability=None, weight=None))]
    fn insert(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        time: Argument<'_, '_>,
        durability: Argument<'_, '_>,
        weight: Argument<'_, '_>,
    ) -> PyResult<()> {
        let (key, settings) = (bytes_of(key)?, Settings::new(time, durability, None, weight)?);
        let inserted = self.slot.quick(
            py,
            |filter| settings.quick(filter).insert(&key),
            |filter| settings.patient(filter).insert(&key),
        )?;
        if inserted { Ok(()) } else { Err(too_late(py)) }
    }

    /// Inserts a key, and returns whether it is new: not in the window before. One atomic step: of
    /// callers in any number of threads and processes exactly one gets True.
    ///
    /// ``since="last-accepted"`` keeps a key from when it was last new, not from when it was last
    /// seen; a key that is present is not inserted then. The other settings are those of
    /// ``insert``. A key whose time lies before the window is not inserted: the answer is False if
    /// it is in the window, because it was seen since; otherwise this raises TooLate.
    ///
    /// >>> import tempfile, ebbtide
    /// >>> with ebbtide.open(tempfile.mkdtemp(), ebbtide.Fingerprint(last=1000)) as seen:
    /// ...     seen.check_and_insert("order 17"), seen.check_and_insert("order 17")
    /// (True, False)
    #[pyo3(signature = (key, /, *, time=None, durability=None, since=None, weight=None))]
    fn check_and_insert(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        time: Argument<'_, '_>,
        durability: Argument<'_, '_>,
        since: Argument<'_, '_>,
        weight: Argument<'_, '_>,
    ) -> PyResult<bool> {
        let (key, settings) = (bytes_of(key)?, Settings::new(time, durability, since, weight)?);
        let checked = self.slot.quick(
            py,
            |filter| settings.quick(filter).check_and_insert(&key),
            |filter| settings.patient(filter).check_and_insert(&key),
        )?;
        match checked {
            Checked::New => Ok(true),
            Checked::Present => Ok(false),
            Checked::TooLate => Err(too_late(py)),
        }
    }

    /// Inserts many keys in order, and returns how many: all but those that were too late.
    ///
    /// ``keys`` is an iterable of keys, a numpy array of byte strings, or ``ebbtide.raw(array)``.
    /// Other threads run meanwhile. After an exception, keys before it may be inserted.
    #[pyo3(signature = (keys, /, *, time=None, durability=None, weight=None))]
    fn insert_all<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        time: Argument<'_, '_>,
        durability: Argument<'_, '_>,
        weight: Argument<'_, '_>,
    ) -> PyResult<usize> {
        bulk::insert_all(&self.slot, py, keys, Settings::new(time, durability, None, weight)?)
    }

    /// Checks and inserts many keys in order, each atomically, and returns a byte for each: 1 new,
    /// 0 present, 2 too late.
    ///
    /// ``keys`` and the settings are those of ``insert_all`` and ``check_and_insert``.
    /// ``numpy.frombuffer(answers, "u1")`` makes an array of the answers.
    ///
    /// Where the call ends with an exception, such as FullDisk or KeyboardInterrupt, its attribute
    /// ``answers`` has the answers for the first keys. Those are inserted, the others are not.
    ///
    /// >>> import tempfile, ebbtide
    /// >>> with ebbtide.open(tempfile.mkdtemp(), ebbtide.Fingerprint(last=1000)) as seen:
    /// ...     list(seen.check_and_insert_all(["a", "b", "a"]))
    /// [1, 1, 0]
    #[pyo3(signature = (keys, /, *, time=None, durability=None, since=None, weight=None))]
    fn check_and_insert_all<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        time: Argument<'_, '_>,
        durability: Argument<'_, '_>,
        since: Argument<'_, '_>,
        weight: Argument<'_, '_>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let settings = Settings::new(time, durability, since, weight)?;
        bulk::check_and_insert_all(&self.slot, py, keys, settings)
    }

    /// Removes a key that was inserted, once; returns whether it was there. ``weight`` removes it
    /// that often. Raises Unsupported if keys cannot be removed from this kind.
    #[pyo3(signature = (key, /, *, time=None, durability=None, weight=None))]
    fn remove(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        time: Argument<'_, '_>,
        durability: Argument<'_, '_>,
        weight: Argument<'_, '_>,
    ) -> PyResult<bool> {
        let (key, settings) = (bytes_of(key)?, Settings::new(time, durability, None, weight)?);
        self.slot.quick(
            py,
            |filter| settings.quick(filter).remove(&key),
            |filter| settings.patient(filter).remove(&key),
        )
    }

    /// Inserts a key, and returns how often it was inserted, this time included, in one atomic
    /// step.
    #[pyo3(signature = (key, /, *, time=None, durability=None, weight=None))]
    fn insert_and_estimate<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        time: Argument<'_, '_>,
        durability: Argument<'_, '_>,
        weight: Argument<'_, '_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (key, settings) = (bytes_of(key)?, Settings::new(time, durability, None, weight)?);
        let estimate = self.slot.quick(
            py,
            |filter| settings.quick(filter).insert_and_estimate(&key),
            |filter| settings.patient(filter).insert_and_estimate(&key),
        )?;
        answers::estimate(py, estimate)
    }

    /// Inserts a key unless its count would exceed ``limit``, in one atomic step: of callers in any
    /// number of processes no more are admitted than that.
    ///
    /// >>> import tempfile, ebbtide
    /// >>> with ebbtide.open(tempfile.mkdtemp(), ebbtide.Counting(1000)) as requests:
    /// ...     [requests.insert_up_to("client 7", 2).admitted for _ in range(3)]
    /// [True, True, False]
    #[pyo3(signature = (key, limit, /, *, time=None, durability=None, weight=None))]
    fn insert_up_to<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        limit: &Bound<'py, PyAny>,
        time: Argument<'_, '_>,
        durability: Argument<'_, '_>,
        weight: Argument<'_, '_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (key, settings) = (bytes_of(key)?, Settings::new(time, durability, None, weight)?);
        let limit = number("limit", limit)?;
        let answer = self.slot.quick(
            py,
            |filter| settings.quick(filter).insert_up_to(&key, limit),
            |filter| settings.patient(filter).insert_up_to(&key, limit),
        )?;
        answers::admission(py, answer)
    }

    /// Yields the items of an iterable whose keys are new, in order; ``key`` computes the key of an
    /// item, which is the item itself by default. An item that is too late for the window is
    /// yielded: nobody knows whether it was seen (``ebbtide dedup`` prints such lines, too).
    ///
    /// Keys are checked and inserted in batches of ``batch`` items (1024), which is faster than one
    /// by one. Items are yielded once their batch is full, and those of a batch that was not
    /// consumed to its end are remembered and not yielded again: use ``batch=1`` for a stream whose
    /// items must not wait. If the iterable or ``key`` raises, an item is no key, or the filter
    /// fails (FullDisk), those before are yielded first. The other settings are those of
    /// ``check_and_insert``.
    ///
    /// >>> import tempfile, ebbtide
    /// >>> with ebbtide.open(tempfile.mkdtemp(), ebbtide.Fingerprint(last=1000)) as seen:
    /// ...     list(seen.only_new(["a", "b", "A"], key=str.lower))
    /// ['a', 'b']
    #[pyo3(signature = (
        items, /, *, key=None, batch=1024, time=None, durability=None, since=None, weight=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments in Python")]
    fn only_new<'py>(
        slf: Bound<'py, Self>,
        items: &Bound<'py, PyAny>,
        key: Argument<'_, 'py>,
        batch: usize,
        time: Argument<'_, 'py>,
        durability: Argument<'_, 'py>,
        since: Argument<'_, 'py>,
        weight: Argument<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        // Refused here, not at the first item.
        Settings::new(time, durability, since, weight)?;
        let settings = PyDict::new(py);
        for (name, value) in
            [("time", time), ("durability", durability), ("since", since), ("weight", weight)]
        {
            if let Some(value) = value {
                settings.set_item(name, value)?;
            }
        }
        let stream = py.import("ebbtide._stream")?;
        stream.getattr("only_new")?.call1((slf, items, key, batch, settings))
    }

    /// Removes all keys in one durable step, which all processes see at once.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.slot.patient(py, Filter::clear)
    }

    /// Waits until all operations so far are on the disk.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.slot.patient(py, Filter::sync)
    }

    /// Writes a snapshot, and removes log that is no longer needed. Returns the number of the
    /// snapshot's first record.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<u64> {
        self.slot.patient(py, Filter::checkpoint)
    }

    /// Copies the filter to a new directory while others use it; the copy is a filter of its own.
    #[pyo3(signature = (path, /))]
    fn backup(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        if path.as_os_str().is_empty() {
            return Err(PyValueError::new_err(
                "path: expected the path of a directory, found an empty one",
            ));
        }
        self.slot.patient(py, |filter| filter.backup(&path))
    }

    /// Writes a snapshot and closes the filter; a second call does nothing. Calls of other threads
    /// that have begun are waited for, later ones raise Closed.
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

    /// Returns an empty batch: keys and positions that are written in one atomic step.
    ///
    /// ``durability`` and ``since`` are those of ``check_and_insert``, for all of it.
    #[pyo3(signature = (*, durability=None, since=None))]
    fn batch(
        slf: Bound<'_, Self>,
        durability: Argument<'_, '_>,
        since: Argument<'_, '_>,
    ) -> PyResult<PyBatch> {
        let settings = Settings::new(None, durability, since, None)?;
        let slot = &slf.get().slot;
        let filter = slot.usable(slf.py(), |filter| filter.positions().map(drop))?;
        let of_filter = (filter, slot.path().to_path_buf());
        Ok(PyBatch::new(slf.clone().unbind(), of_filter, &settings))
    }

    /// Returns the position of a source, as set by the last batch that was committed; None if none
    /// was.
    #[pyo3(signature = (source, /))]
    fn position(&self, py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let source = whole("source", source)?;
        self.slot.patient(py, |filter| filter.position(source))
    }

    /// Returns the positions of all sources, by source.
    fn positions(&self, py: Python<'_>) -> PyResult<BTreeMap<u64, u64>> {
        Ok(self.slot.patient(py, |filter| filter.positions())?.into_iter().collect())
    }

    /// Returns a hash of the logical state: equal for filters of the same parameters after the same
    /// operations at the same times, in whatever language. Writers wait meanwhile.
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
        format!("<{state}ebbtide.Filter {:?} {spec}>", self.slot.path())
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
        let opens = py.import("ebbtide._open")?.getattr("unpickled")?;
        let settings =
            (self.slot.path().as_os_str(), self.slot.options_text(), self.slot.reopens());
        (opens, settings).into_pyobject(py)
    }
}

impl Drop for PyFilter {
    fn drop(&mut self) {
        warn_unclosed(&self.slot, "Filter");
    }
}
