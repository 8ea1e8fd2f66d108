//! Many keys in one call: gathered with the interpreter's lock, worked on without it.
//!
//! Keys are taken in slices, with a look at signals between two of them, so that an endless
//! iterable or a long call can be interrupted. The objects of a slice are kept alive while it is
//! worked on; bytes that may change are copied as they are taken from the iterable, because it may
//! change them for its next item.

use crate::answers::byte;
use crate::keys::bytes_of;
use crate::settings::Settings;
use crate::slot::Slot;
use ebbtide::Filter;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyIterator, PyList, PyMemoryView, PyString, PyTuple};
use std::borrow::Cow;

/// The number of keys worked on between two looks at signals.
const SLICE: usize = 64 << 10;

/// The items of an array whose bytes are keys; see [`raw`].
#[pyclass(frozen, module = "ebbtide", name = "Raw")]
pub struct Raw {
    bytes: PyBackedBytes,
    width: usize,
}

#[pymethods]
impl Raw {
    fn __len__(&self) -> usize {
        self.bytes.len() / self.width
    }

    fn __repr__(&self) -> String {
        format!("<ebbtide.Raw of {} keys of {} bytes>", self.__len__(), self.width)
    }
}

/// Uses the bytes of each item of a one-dimensional array as a key: numpy arrays, ``array.array``,
/// ``memoryview``.
///
/// The bytes are those in memory, so the type is part of the key: the same number as ``int32`` and
/// as ``int64`` is two keys, and on other machines the order of bytes may differ. Convert first, as
/// in ``raw(numpy.asarray(ids, dtype="<u8"))``. The array is copied; later changes have no effect.
///
/// >>> import array, tempfile, ebbtide
/// >>> ids = array.array("Q", [7, 8, 7])
/// >>> with ebbtide.open(tempfile.mkdtemp(), "bloom capacity=1000") as seen:
/// ...     list(seen.check_and_insert_all(ebbtide.raw(ids)))
/// [1, 1, 0]
///
/// Raises TypeError for anything but an array, ValueError for one of several dimensions.
#[pyfunction]
#[pyo3(text_signature = "(array, /)")]
pub fn raw(array: &Bound<'_, PyAny>) -> PyResult<Raw> {
    refuse_mask(array, "raw")?;
    let Ok(view) = PyMemoryView::from(array) else {
        let name = array.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "raw: expected an array with the buffer protocol, such as numpy's, found {name}"
        )));
    };
    let (width, bytes) = items_of(&view, "raw")?;
    Ok(Raw { bytes, width })
}

/// Refuses numpy's masked arrays: their memory also holds the items that are masked.
fn refuse_mask(keys: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    // That of pandas is a method.
    if keys.getattr_opt("mask")?.is_some_and(|mask| !mask.is_callable()) {
        let name = keys.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "{what}: {name} has a mask, and masked items are no keys: use array.compressed()"
        )));
    }
    Ok(())
}

/// Returns the width of the items of a one-dimensional array, and a copy of all their bytes.
fn items_of(view: &Bound<'_, PyMemoryView>, what: &str) -> PyResult<(usize, PyBackedBytes)> {
    let dimensions: usize = view.getattr("ndim")?.extract()?;
    let width: usize = view.getattr("itemsize")?.extract()?;
    let format: String = view.getattr("format")?.extract()?;
    if dimensions != 1 || width == 0 || has_objects(&format) {
        return Err(PyValueError::new_err(format!(
            "{what}: expected an array of one dimension whose items are bytes, found {dimensions} \
             dimensions, items of {width} bytes, format {format:?}"
        )));
    }
    let bytes = view.call_method0("tobytes")?;
    Ok((width, PyBackedBytes::from(bytes.cast::<PyBytes>()?.clone())))
}

/// Returns whether items of this format contain objects: `O`, but not within the name of a field,
/// as in `T{<i:Offset:}`.
fn has_objects(format: &str) -> bool {
    format.split(':').step_by(2).any(|types| types.contains('O'))
}

/// The keys of a bulk call.
pub enum Keys<'py> {
    /// Items of equal width; `is_text`: without the zeros at their ends, as numpy means them.
    Items { bytes: PyBackedBytes, width: usize, is_text: bool },
    /// Objects one by one.
    Objects(Bound<'py, PyIterator>),
}

impl<'py> Keys<'py> {
    /// Returns the keys of an argument.
    pub fn new(keys: &Bound<'py, PyAny>) -> PyResult<Self> {
        if keys.is_instance_of::<PyList>() || keys.is_instance_of::<PyTuple>() {
            return Ok(Self::Objects(keys.try_iter()?));
        }
        if let Ok(raw) = keys.cast::<Raw>() {
            let raw = raw.get();
            let bytes = raw.bytes.clone_ref(keys.py());
            return Ok(Self::Items { bytes, width: raw.width, is_text: false });
        }
        let is_key = keys.is_instance_of::<PyString>()
            || keys.is_instance_of::<PyBytes>()
            || keys.is_instance_of::<PyByteArray>();
        if is_key {
            let name = keys.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "keys: expected an iterable of keys, found one {name}: put it in a list, or use \
                 the method for a single key"
            )));
        }
        refuse_mask(keys, "keys")?;
        match PyMemoryView::from(keys) {
            Ok(view) => Self::of_array(keys, &view),
            Err(_) => Ok(Self::Objects(keys.try_iter()?)),
        }
    }

    /// Returns the keys of an array: byte strings, text, or objects.
    fn of_array(keys: &Bound<'py, PyAny>, view: &Bound<'py, PyMemoryView>) -> PyResult<Self> {
        if view.getattr("ndim")?.extract::<usize>()? == 1 && view.len()? == 0 {
            // No keys, whatever they would be: numpy's empty array is one of numbers.
            return Ok(Self::Objects(PyTuple::empty(keys.py()).try_iter()?));
        }
        let format: String = view.getattr("format")?.extract()?;
        match format.strip_suffix('s') {
            Some(width) if width.bytes().all(|digit| digit.is_ascii_digit()) => {
                let (width, bytes) = items_of(view, "keys")?;
                Ok(Self::Items { bytes, width, is_text: true })
            }
            // Objects, or numpy's text, whose items are `str` and so keys of their UTF-8.
            _ if format == "O" || format.ends_with('w') => Ok(Self::Objects(keys.try_iter()?)),
            _ => Err(PyTypeError::new_err(format!(
                "keys: the items of this array are neither bytes nor text (format {format:?}), and \
                 the same value in two formats would be two keys: use ebbtide.raw(array) for the \
                 bytes in memory, or array.tolist() for objects"
            ))),
        }
    }

    /// Calls `work` with one slice of keys after the other, without the interpreter's lock.
    pub fn in_slices(
        &self,
        py: Python<'py>,
        mut work: impl FnMut(&[Cow<'_, [u8]>]) -> PyResult<()>,
    ) -> PyResult<()> {
        match self {
            Self::Items { bytes, width, is_text } => {
                for items in bytes.chunks(width.saturating_mul(SLICE)) {
                    let items = items.chunks_exact(*width);
                    let keys: Vec<_> = match is_text {
                        true => items.map(|item| Cow::Borrowed(without_zeros(item))).collect(),
                        false => items.map(Cow::Borrowed).collect(),
                    };
                    work(&keys)?;
                    py.check_signals()?;
                }
                Ok(())
            }
            Self::Objects(iterator) => {
                let mut iterator = iterator.clone();
                loop {
                    let taken = iterator.by_ref().take(SLICE).map(|item| unchanging(item?));
                    let objects = taken.collect::<PyResult<Vec<_>>>()?;
                    let keys = objects.iter().map(bytes_of).collect::<PyResult<Vec<_>>>()?;
                    if keys.is_empty() {
                        return Ok(());
                    }
                    work(&keys)?;
                    py.check_signals()?;
                    if keys.len() < SLICE {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Returns an item whose bytes do not change: itself, or a copy of its bytes.
fn unchanging(item: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    if item.is_instance_of::<PyString>() || item.is_instance_of::<PyBytes>() {
        return Ok(item);
    }
    Ok(PyBytes::new(item.py(), &bytes_of(&item)?).into_any())
}

/// Returns a byte string of fixed width without the zeros at its end.
fn without_zeros(item: &[u8]) -> &[u8] {
    let end = item.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &item[..end]
}

/// Inserts many keys, slice by slice; returns how many were not too late.
pub fn insert_all<'py>(
    slot: &Slot<Filter>,
    py: Python<'py>,
    keys: &Bound<'py, PyAny>,
    settings: Settings,
) -> PyResult<usize> {
    slot.check_open(py)?;
    let mut inserted = 0;
    Keys::new(keys)?.in_slices(py, |keys| {
        let mut written = 0;
        slot.patient(py, |filter| {
            // After a wait, or in a forked child: from the first key that was not written on.
            let rest = keys.get(written..).unwrap_or_default();
            settings.patient(filter).insert_all_telling(rest, |is_inserted| {
                written += 1;
                inserted += usize::from(is_inserted);
            })
        })
    })?;
    Ok(inserted)
}

/// Checks and inserts many keys, slice by slice; returns a byte for each answer. An exception has
/// those for the keys before it, as its attribute `answers`.
pub fn check_and_insert_all<'py>(
    slot: &Slot<Filter>,
    py: Python<'py>,
    keys: &Bound<'py, PyAny>,
    settings: Settings,
) -> PyResult<Bound<'py, PyBytes>> {
    slot.check_open(py)?;
    let (mut answers, mut bytes) = (Vec::new(), Vec::new());
    let outcome = Keys::new(keys)?.in_slices(py, |keys| {
        answers.clear();
        let outcome = slot.patient(py, |filter| {
            // After a wait, or in a forked child: from the first key without an answer on.
            let rest = keys.get(answers.len()..).unwrap_or_default();
            settings.patient(filter).check_and_insert_all(rest, &mut answers)
        });
        bytes.extend(answers.iter().map(|&answer| byte(answer)));
        outcome
    });
    let bytes = PyBytes::new(py, &bytes);
    match outcome {
        Ok(()) => Ok(bytes),
        Err(error) => {
            // An exception that takes no attributes is raised without.
            drop(error.value(py).setattr("answers", bytes));
            Err(error)
        }
    }
}
