//! The handle behind a Python object: opened again in a forked child, closed at most once.
//!
//! Calls hold the interpreter's lock for as long as they need not wait. Where one would have to
//! wait, the engine says so, nothing has happened, and the call is repeated without the
//! interpreter's lock, in short waits with a look at signals in between. There is no lock of this
//! module that a fork could leave held.

use crate::errors::raised;
use arc_swap::{ArcSwap, ArcSwapOption};
use ebbtide::history::{At, Guard};
use ebbtide::{Any, Call, Error, Filter, Handle, Options, Parameters, Reader};
use pyo3::exceptions::{PyResourceWarning, PyTypeError};
use pyo3::prelude::*;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The longest wait between two looks at signals.
pub const PATIENCE: Duration = Duration::from_millis(50);

/// A handle of the engine that can be opened by its path.
pub trait Opens: Handle<Kind = Any> + Send + Sync + Sized {
    /// What decides, beside the options, what is opened.
    type What: Copy + Send + Sync;

    /// Opens an existing filter.
    fn open(path: &Path, what: Self::What, options: Options) -> ebbtide::Result<Self>;

    /// Returns the kind and its parameters: others after the filter was altered.
    fn described(&self) -> (&'static str, Parameters);

    /// Returns a question with settings of its own.
    fn asks(&self) -> Call<'_, Self>;

    /// Closes the handle.
    fn close(&self) -> ebbtide::Result<()>;
}

impl Opens for Filter {
    type What = ();

    fn open(path: &Path, (): (), options: Options) -> ebbtide::Result<Self> {
        Filter::<Any>::open(path, options)
    }

    fn described(&self) -> (&'static str, Parameters) {
        (self.kind(), self.parameters())
    }

    fn asks(&self) -> Call<'_, Self> {
        self.call()
    }

    fn close(&self) -> ebbtide::Result<()> {
        Filter::close(self)
    }
}

impl Opens for Reader {
    /// The moment as of which it is read; `None` for now.
    type What = Option<At>;

    fn open(path: &Path, at: Option<At>, options: Options) -> ebbtide::Result<Self> {
        match at {
            Some(at) => Reader::<Any>::at(path, at, options),
            None => Reader::<Any>::open(path, options),
        }
    }

    fn described(&self) -> (&'static str, Parameters) {
        (self.kind(), self.parameters())
    }

    fn asks(&self) -> Call<'_, Self> {
        self.call()
    }

    fn close(&self) -> ebbtide::Result<()> {
        Ok(())
    }
}

/// A handle, and what is needed to open it again.
pub struct Slot<H: Opens> {
    handle: ArcSwapOption<H>,
    path: PathBuf,
    what: H::What,
    options: Options,
    /// The options as text, to open the filter in another process.
    options_text: String,
    reopen_after_fork: bool,
    /// That of the process that has opened the handle.
    guard: ArcSwap<Guard>,
    /// The kind and the parameters when the handle was closed.
    last: OnceLock<(&'static str, Parameters)>,
}

impl<H: Opens> Slot<H> {
    /// Creates a slot with an open handle on an absolute path.
    pub fn new(
        handle: H,
        (path, what): (PathBuf, H::What),
        (options, options_text): (Options, String),
        reopen_after_fork: bool,
    ) -> Self {
        let handle = ArcSwapOption::from_pointee(handle);
        let guard = ArcSwap::from_pointee(Guard::new());
        let last = OnceLock::new();
        Self { handle, path, what, options, options_text, reopen_after_fork, guard, last }
    }

    /// Returns the kind and its parameters, of a closed handle the last. Without the interpreter's
    /// lock: a handle of a filter that was altered opens it again.
    pub fn described(&self, py: Python<'_>) -> (&'static str, Parameters) {
        match self.handle.load_full() {
            Some(open) => py.detach(|| open.described()),
            None => self.last.get().cloned().unwrap_or_default(),
        }
    }

    /// Returns whether the window is a time, after a question: a reader finds an alteration then.
    pub fn is_time(&self, py: Python<'_>) -> PyResult<bool> {
        self.quick(
            py,
            |handle| handle.asks().without_waiting().contains(""),
            |handle| handle.asks().waiting_at_most(PATIENCE).contains(""),
        )?;
        Ok(self.described(py).1.get("window").is_some())
    }

    /// Returns the options as text.
    pub fn options_text(&self) -> &str {
        &self.options_text
    }

    /// Checks that the handle was not closed.
    pub fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_closed() { Err(self.closed(py)) } else { Ok(()) }
    }

    /// Returns the filter's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what decides, beside the options, what is opened.
    pub fn what(&self) -> H::What {
        self.what
    }

    /// Returns whether a forked child opens the filter again.
    pub fn reopens(&self) -> bool {
        self.reopen_after_fork
    }

    /// Returns whether the handle was closed.
    pub fn is_closed(&self) -> bool {
        self.handle.load().is_none()
    }

    fn closed(&self, py: Python<'_>) -> PyErr {
        raised(py, Error::Closed { path: self.path.clone() })
    }

    /// Returns the handle.
    pub fn current(&self, py: Python<'_>) -> PyResult<Arc<H>> {
        self.handle.load_full().ok_or_else(|| self.closed(py))
    }

    /// Runs a short operation that does not wait: with the interpreter's lock. If it must wait, or
    /// the process was forked since, `slow` runs without the lock until it is done.
    #[inline]
    pub fn quick<T: Send>(
        &self,
        py: Python<'_>,
        quick: impl FnOnce(&H) -> ebbtide::Result<T>,
        slow: impl FnMut(&H) -> ebbtide::Result<T> + Send,
    ) -> PyResult<T> {
        let handle = self.handle.load();
        let Some(open) = handle.as_deref() else { return Err(self.closed(py)) };
        match quick(open) {
            Ok(answer) => Ok(answer),
            Err(Error::WouldWait { .. } | Error::Forked { .. }) => {
                drop(handle);
                self.patient(py, slow)
            }
            Err(error) => Err(raised(py, error)),
        }
    }

    /// Runs an operation without the interpreter's lock, and repeats it while it would wait for
    /// longer than [`PATIENCE`], with a look at signals in between.
    #[cold]
    pub fn patient<T: Send>(
        &self,
        py: Python<'_>,
        mut operate: impl FnMut(&H) -> ebbtide::Result<T> + Send,
    ) -> PyResult<T> {
        self.patient_keeping(py, |handle| operate(handle))
    }

    /// As [`patient`](Slot::patient), for an answer that keeps the handle.
    pub fn patient_keeping<T: Send>(
        &self,
        py: Python<'_>,
        mut operate: impl FnMut(&Arc<H>) -> ebbtide::Result<T> + Send,
    ) -> PyResult<T> {
        loop {
            let handle = self.current(py)?;
            let done = py.detach(|| operate(&handle));
            match done {
                Ok(answer) => return Ok(answer),
                Err(Error::WouldWait { .. }) => py.check_signals()?,
                Err(Error::Forked { .. }) if self.reopen_after_fork => self.reopen(py, &handle)?,
                Err(error) => return Err(raised(py, error)),
            }
        }
    }

    /// Returns the handle for an object that keeps it, after a call that shows whether it is still
    /// to be opened in a forked child.
    pub fn usable(
        &self,
        py: Python<'_>,
        check: impl FnMut(&H) -> ebbtide::Result<()> + Send,
    ) -> PyResult<Arc<H>> {
        self.patient(py, check)?;
        self.current(py)
    }

    /// Opens the filter again, in a child made by `fork`; it is never created there. Of several
    /// threads one puts its handle in place, and the others close theirs.
    #[cold]
    fn reopen(&self, py: Python<'_>, inherited: &Arc<H>) -> PyResult<()> {
        let opened = py.detach(|| H::open(&self.path, self.what, self.options.for_reopening()));
        let new = Arc::new(opened.map_err(|error| raised(py, error))?);
        let before = self.handle.compare_and_swap(inherited, Some(new.clone()));
        let is_ours = before.as_ref().is_some_and(|before| Arc::ptr_eq(before, inherited));
        if !is_ours {
            // Another thread was faster, or has closed the object meanwhile.
            py.detach(|| new.close()).map_err(|error| raised(py, error))?;
        }
        self.guard.store(Arc::new(Guard::new()));
        Ok(())
    }

    /// Closes the handle; a second time does nothing. An inherited handle belongs to the parent,
    /// and is only forgotten.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_closed() {
            let _ = self.last.set(self.described(py));
        }
        let Some(handle) = self.handle.swap(None) else { return Ok(()) };
        match py.detach(|| handle.close()) {
            Err(Error::Forked { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(raised(py, error)),
        }
    }
}

/// Warns, as files do, that an object is dropped which was not closed, and closes it. One that was
/// inherited by a forked child and never used there is not the child's to close.
pub fn warn_unclosed<H: Opens>(slot: &Slot<H>, class: &str) {
    if slot.is_closed() || slot.guard.load().is_foreign() {
        return;
    }
    // Without an interpreter, as after its end, dropping the handle closes the filter.
    Python::try_attach(|py| {
        // The object may be dropped while an exception is on its way.
        let pending = PyErr::take(py);
        let message = format!("unclosed <ebbtide.{class} {:?}>", slot.path());
        let category = py.get_type::<PyResourceWarning>();
        let warned = CString::new(message)
            .map_err(PyErr::from)
            .and_then(|message| PyErr::warn(py, &category, &message, 1));
        for error in [warned, slot.close(py)].into_iter().filter_map(Result::err) {
            error.write_unraisable(py, None);
        }
        if let Some(pending) = pending {
            pending.restore(py);
        }
    });
}

/// Returns the error for a copy of an object that stands for an open filter.
pub fn no_copy() -> PyErr {
    PyTypeError::new_err("it cannot be copied: use the object itself, or open the filter again")
}
