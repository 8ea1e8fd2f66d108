//! Keys: the bytes of Python's `str`, `bytes`, `bytearray` and `memoryview`.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};
use std::borrow::Cow;

/// Returns the bytes of a key. Those of immutable objects are borrowed, others are copied.
#[inline]
pub fn bytes_of<'a>(key: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(text) = key.cast::<PyString>() {
        return Ok(Cow::Borrowed(text.to_str()?.as_bytes()));
    }
    if let Ok(bytes) = key.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    copied(key)
}

#[cold]
fn copied<'a>(key: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(array) = key.cast::<PyByteArray>() {
        return Ok(Cow::Owned(array.to_vec()));
    }
    if let Ok(view) = key.cast::<PyMemoryView>() {
        let bytes = view.call_method0("tobytes")?;
        return Ok(Cow::Owned(bytes.cast::<PyBytes>()?.as_bytes().to_vec()));
    }
    Err(no_key(key))
}

/// Returns the error for an object that is no key, with what to do instead.
#[cold]
fn no_key(object: &Bound<'_, PyAny>) -> PyErr {
    let name = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    let advice = match &*name {
        "bool" | "int" | "int64" | "uint64" | "int32" | "uint32" => {
            "use key.to_bytes(8, 'little', signed=True), in all programs that share the filter, or \
             for an array ebbtide.raw(numpy.asarray(keys, '<i8'))"
        }
        "float" | "float64" => "use struct.pack('<d', key)",
        "UUID" => "use key.bytes",
        "tuple" | "list" => {
            "join its parts in a form that never changes, such as '\\0'.join(parts)"
        }
        "NoneType" => "None is no key",
        _ => "encode it as str or bytes, in a form that never changes",
    };
    PyTypeError::new_err(format!(
        "a key is str, bytes, bytearray or memoryview, not {name}: {advice}"
    ))
}
