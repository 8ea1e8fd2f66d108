//! The class `Claim`, and what a filter does with claims.

use crate::answers;
use crate::batch::whole;
use crate::errors::raised;
use crate::filter::PyFilter;
use crate::keys::bytes_of;
use crate::settings::{Argument, Settings};
use crate::times;
use ebbtide::{Call, Claim, Error, Filter, Lease, Timestamp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The answer to the caller.
enum Answer {
    Seen,
    InProgress(Timestamp),
    Yours(Held),
}

/// The right to work on the key.
pub struct Held {
    /// The handle that has claimed it: in a forked child it refuses, because the claim is the
    /// parent's.
    pub filter: Arc<Filter>,
    pub token: u64,
    /// When the lease ends, in microseconds since 1970; 0 if that is not known.
    until: AtomicU64,
    /// Whether there is nothing left to do when the block ends or the object is dropped.
    ended: AtomicBool,
}

impl Held {
    fn new(filter: Arc<Filter>, token: u64, until: u64) -> Self {
        Self { filter, token, until: AtomicU64::new(until), ended: AtomicBool::new(false) }
    }

    // Relaxed, here and below: the engine decides who holds a claim, and what these say is for the
    // thread that has changed them.
    pub fn note_end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Does something with the lease, which stays whatever becomes of that.
    fn with_lease<T>(
        &self,
        key: &[u8],
        operate: impl FnOnce(&Lease<'_>) -> ebbtide::Result<T>,
    ) -> ebbtide::Result<T> {
        let lease = self.filter.resume_claim(key, self.token);
        let done = operate(&lease);
        lease.into_token();
        done
    }
}

/// Whether a key is the caller's to work on, from ``Filter.claim``.
///
/// Of any number of callers one gets the key, and its object is true. To the others the key was
/// ``seen``, or is ``in_progress``: somebody else works on it, ``until`` that lease ends.
///
/// At the end of a ``with`` or ``async with`` block the key is confirmed if it is the caller's; an
/// exception releases it, and is passed on. After ``confirm``, ``release``, ``keep`` or
/// ``Batch.confirm`` the end of the block does nothing more. An object that is dropped releases the
/// key; a process that dies, or closes the filter before, leaves it to the end of the lease.
///
/// Any number of threads may use one object. In a child made by ``os.fork`` the claim stays the
/// parent's: what the child does with the object raises Forked, and dropping it does nothing.
///
/// >>> import tempfile, ebbtide
/// >>> seen = ebbtide.open(tempfile.mkdtemp(), ebbtide.Fingerprint(last=1000))
/// >>> def deliver(works):
/// ...     with seen.claim("order 17", lease="30s") as claim:
/// ...         if claim.in_progress:
/// ...             return "try again"
/// ...         if claim.seen:
/// ...             return "done before"
/// ...         if not works:
/// ...             raise OSError("the payment service does not answer")
/// ...         return "done"
/// >>> deliver(works=False)
/// Traceback (most recent call last):
/// OSError: the payment service does not answer
/// >>> deliver(works=True), deliver(works=True)
/// ('done', 'done before')
/// >>> seen.close()
#[pyclass(frozen, weakref, module = "ebbtide", name = "Claim")]
pub struct PyClaim {
    /// Keeps the filter open.
    seen: Py<PyFilter>,
    key: Box<[u8]>,
    lease: Duration,
    settings: Settings,
    /// Missing while a thread that must not wait has no answer.
    first: OnceLock<Answer>,
    /// The claim, if another thread that asked for the same object was refused because of it, and
    /// had its answer before.
    claimed: OnceLock<Answer>,
}

/// Asks for a key.
fn ask(
    filter: &Arc<Filter>,
    (key, lease): (&[u8], Duration),
    call: Call<'_, Filter>,
) -> ebbtide::Result<Answer> {
    let now = Timestamp::now();
    Ok(match call.claim(key, lease)? {
        Claim::Seen => Answer::Seen,
        Claim::InProgress { until } => Answer::InProgress(until),
        Claim::Yours(given) => {
            let until = (now + lease).as_unix_micros();
            Answer::Yours(Held::new(filter.clone(), given.into_token(), until))
        }
    })
}

impl PyClaim {
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the time of the insert, if it is not the clock's.
    pub fn time(&self) -> Option<Timestamp> {
        self.settings.time()
    }

    fn asked(&self) -> (&[u8], Duration) {
        (&self.key, self.lease)
    }

    /// Asks without waiting. If that is impossible, there is no answer yet.
    fn ask_at_once(&self, py: Python<'_>) -> PyResult<()> {
        let filter = self.seen.get().slot.current(py)?;
        match ask(&filter, self.asked(), self.settings.quick(&filter)) {
            Ok(answer) => self.note(answer),
            Err(Error::WouldWait { .. } | Error::Forked { .. }) => {}
            Err(error) => return Err(raised(py, error)),
        }
        Ok(())
    }

    /// Returns the answer, if there is one.
    fn known(&self) -> Option<&Answer> {
        self.claimed.get().or_else(|| self.first.get())
    }

    /// Returns the answer; if there is none yet, waits for it.
    fn answer(&self, py: Python<'_>) -> PyResult<&Answer> {
        if let Some(answer) = self.known() {
            return Ok(answer);
        }
        let answer = self.seen.get().slot.patient_keeping(py, |filter| {
            ask(filter, self.asked(), self.settings.patient(filter))
        })?;
        self.note(answer);
        self.known().ok_or_else(|| PyValueError::new_err("the claim has no answer"))
    }

    /// Keeps an answer. If another thread has one for the same object, a claim replaces that of one
    /// that was refused; a second claim is given back.
    fn note(&self, answer: Answer) {
        let Err(claim @ Answer::Yours(_)) = self.first.set(answer) else { return };
        let left = match self.first.get() {
            Some(Answer::Yours(_)) => Err(claim),
            _ => self.claimed.set(claim),
        };
        if let Err(Answer::Yours(second)) = left {
            drop(second.filter.resume_claim(&self.key, second.token));
        }
    }

    /// Returns the claim, if it is the caller's.
    pub fn held(&self, py: Python<'_>) -> PyResult<&Held> {
        let why = match self.answer(py)? {
            Answer::Yours(held) => return Ok(held),
            Answer::Seen => "it was seen",
            Answer::InProgress(_) => "somebody else works on it",
        };
        Err(PyValueError::new_err(format!("the key is not the caller's to work on: {why}")))
    }

    /// Does something with the lease, without the interpreter's lock where that must wait, and with
    /// a look at signals in between.
    fn patient<T: Send>(
        &self,
        py: Python<'_>,
        held: &Held,
        operate: impl Fn(&Call<'_, Filter>, &Lease<'_>) -> ebbtide::Result<T> + Sync,
    ) -> PyResult<ebbtide::Result<T>> {
        let quick = self.settings.quick(&held.filter);
        let mut done = held.with_lease(&self.key, |lease| operate(&quick, lease));
        while matches!(done, Err(Error::WouldWait { .. })) {
            py.check_signals()?;
            let call = || self.settings.patient(&held.filter);
            done = py.detach(|| held.with_lease(&self.key, |lease| operate(&call(), lease)));
        }
        Ok(done)
    }

    /// Notes what became of a confirmation.
    fn confirmed(&self, py: Python<'_>, held: &Held, done: ebbtide::Result<()>) -> PyResult<()> {
        if matches!(done, Ok(()) | Err(Error::LeaseLost { .. })) {
            held.note_end();
        }
        done.map_err(|error| raised(py, error))
    }

    /// Returns the claim, if the end of the block has to confirm or release it.
    fn left(&self) -> Option<&Held> {
        match self.known() {
            Some(Answer::Yours(held)) if !held.has_ended() => Some(held),
            _ => None,
        }
    }
}

#[pymethods]
impl PyClaim {
    /// Inserts the key and ends the claim, both in one atomic step, which is as durable as the
    /// filter, or ``durability`` of ``Filter.claim``, says.
    ///
    /// Raises LeaseLost if the lease was over: the key is not inserted, and somebody else may be
    /// working on it. After Poisoned it is not known whether the key is inserted and the claim has
    /// ended: the filter, opened again, says so. After other errors the claim stays, and may be
    /// confirmed again. If the time of the claim is too late for the window, the claim ends, and
    /// the key is not inserted.
    fn confirm(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.held(py)?;
        let done = self.patient(py, held, |call, lease| call.confirm(lease))?;
        self.confirmed(py, held, done)
    }

    /// Ends the claim without an insert: the key may be claimed again at once. Returns whether it
    /// was still the caller's.
    fn release(&self, py: Python<'_>) -> PyResult<bool> {
        let Answer::Yours(held) = self.answer(py)? else { return Ok(false) };
        let done = self.patient(py, held, |call, lease| call.release(lease))?;
        let released = done.map_err(|error| raised(py, error))?;
        held.note_end();
        Ok(released)
    }

    /// Renews the lease: it ends this long after now. Returns when. Another thread may do so during
    /// the work. Raises LeaseLost as ``confirm``.
    #[pyo3(signature = (lease, /))]
    fn extend<'py>(
        &self,
        py: Python<'py>,
        lease: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (held, time) = (self.held(py)?, times::duration("lease", lease)?);
        let done = self.patient(py, held, |call, lease| call.extend(lease, time))?;
        let until = done.map_err(|error| raised(py, error))?;
        held.until.store(until.as_unix_micros(), Ordering::Relaxed);
        times::datetime(py, until)
    }

    /// Keeps the claim beyond this object, until its lease is over. Returns the token, with which
    /// ``Filter.resume_claim`` continues, in this or another process.
    fn keep(&self, py: Python<'_>) -> PyResult<u64> {
        let held = self.held(py)?;
        held.note_end();
        Ok(held.token)
    }

    /// Whether the key is the caller's to work on, as the truth of the object itself: False once it
    /// was confirmed, released or kept.
    #[getter]
    fn is_mine(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(matches!(self.answer(py)?, Answer::Yours(held) if !held.has_ended()))
    }

    /// Whether the key was in the window (or is a false positive): the work was done.
    #[getter]
    fn seen(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(matches!(self.answer(py)?, Answer::Seen))
    }

    /// Whether somebody else was working on the key.
    #[getter]
    fn in_progress(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(matches!(self.answer(py)?, Answer::InProgress(_)))
    }

    /// When the lease ends, the caller's or somebody else's, if it is not renewed: a ``datetime``
    /// in UTC, by the clock as it is now. None if the key was seen, and of a claim that was
    /// resumed.
    #[getter]
    fn until<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let until = match self.answer(py)? {
            Answer::Seen => return Ok(None),
            Answer::InProgress(until) => *until,
            Answer::Yours(held) => match held.until.load(Ordering::Relaxed) {
                0 => return Ok(None),
                until => Timestamp::from_unix_micros(until),
            },
        };
        times::datetime(py, until)
    }

    /// A number that is greater than that of every earlier claim of the filter; None if the key is
    /// not the caller's. A database that keeps the greatest token, and refuses smaller ones, is
    /// safe from a handler that continues after its lease is over.
    #[getter]
    fn token(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        match self.answer(py)? {
            Answer::Yours(held) => Ok(Some(held.token)),
            _ => Ok(None),
        }
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.is_mine(py)
    }

    fn __repr__(&self) -> String {
        let state = match self.known() {
            None => "not asked".to_owned(),
            Some(Answer::Seen) => "seen".to_owned(),
            Some(Answer::InProgress(until)) => format!("in progress until {until}"),
            Some(Answer::Yours(held)) if held.has_ended() => format!("{}, ended", held.token),
            Some(Answer::Yours(held)) => held.token.to_string(),
        };
        format!("<ebbtide.Claim {state} of {:?}>", self.seen.get().slot.path())
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().answer(slf.py())?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Argument<'_, '_>,
        _error: Argument<'_, '_>,
        _traceback: Argument<'_, '_>,
    ) -> PyResult<()> {
        let Some(held) = self.left() else { return Ok(()) };
        if kind.is_none() {
            return self.confirm(py);
        }
        // The exception matters more; if this fails, the claim ends with its time.
        if self.patient(py, held, |call, lease| call.release(lease))?.is_ok() {
            held.note_end();
        }
        Ok(())
    }

    /// Whether there is an answer: without one the next look at the object waits.
    #[getter]
    fn _is_asked(&self) -> bool {
        self.known().is_some()
    }

    /// Leaves the block without waiting; returns False if that is impossible.
    fn _leave_at_once(&self, py: Python<'_>, failed: bool) -> PyResult<bool> {
        let Some(held) = self.left() else { return Ok(true) };
        let quick = self.settings.quick(&held.filter);
        let done = held.with_lease(&self.key, |lease| match failed {
            true => quick.release(lease).map(drop),
            false => quick.confirm(lease),
        });
        match done {
            Err(Error::WouldWait { .. }) => return Ok(false),
            Ok(()) => held.note_end(),
            Err(_) if failed => {}
            done => self.confirmed(py, held, done)?,
        }
        Ok(true)
    }
}

impl Drop for PyClaim {
    fn drop(&mut self) {
        let Some(held) = self.left() else { return };
        let lease = held.filter.resume_claim(&self.key, held.token);
        if let Err(Error::WouldWait { .. }) = held.filter.call().without_waiting().release(&lease) {
            // Dropped, a lease waits for a second at most.
            let mut lease = Some(lease);
            let waited = Python::try_attach(|py| py.detach(|| drop(lease.take())));
            drop((waited, lease));
        } else {
            // Released; or that is impossible, and the claim ends with its time.
            lease.into_token();
        }
    }
}

/// Returns whether this thread runs an event loop, which must not be held up.
fn runs_event_loop(py: Python<'_>) -> PyResult<bool> {
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    match modules.get_item("asyncio")? {
        Some(asyncio) => Ok(!asyncio.call_method0("_get_running_loop")?.is_none()),
        None => Ok(false),
    }
}

/// Claims a key; `Filter.claim` calls it. In a thread that runs an event loop the object may have
/// no answer yet.
#[pyfunction]
pub fn claim(
    seen: &Bound<'_, PyFilter>,
    key: &Bound<'_, PyAny>,
    lease: &Bound<'_, PyAny>,
    time: Argument<'_, '_>,
    durability: Argument<'_, '_>,
) -> PyResult<PyClaim> {
    let py = seen.py();
    let made = PyClaim {
        seen: seen.clone().unbind(),
        key: bytes_of(key)?.into(),
        lease: times::duration("lease", lease)?,
        settings: Settings::new(time, durability, None, None)?,
        first: OnceLock::new(),
        claimed: OnceLock::new(),
    };
    made.ask_at_once(py)?;
    if made.known().is_none() && !runs_event_loop(py)? {
        made.answer(py)?;
    }
    Ok(made)
}

/// Returns the claim of a key with this token; `Filter.resume_claim` calls it.
#[pyfunction]
pub fn resume_claim(
    seen: &Bound<'_, PyFilter>,
    key: &Bound<'_, PyAny>,
    token: &Bound<'_, PyAny>,
    time: Argument<'_, '_>,
    durability: Argument<'_, '_>,
) -> PyResult<PyClaim> {
    let (py, key) = (seen.py(), bytes_of(key)?);
    let settings = Settings::new(time, durability, None, None)?;
    let token = whole("token", token)?;
    let slot = &seen.get().slot;
    let filter = slot.usable(py, |filter| filter.positions().map(drop))?;
    let first = OnceLock::from(Answer::Yours(Held::new(filter, token, 0)));
    let (seen, key, claimed) = (seen.clone().unbind(), key.into(), OnceLock::new());
    Ok(PyClaim { seen, key, lease: Duration::ZERO, settings, first, claimed })
}

/// Returns the claims that are held now; `Filter.claims` calls it.
#[pyfunction]
pub fn claims<'py>(seen: &Bound<'py, PyFilter>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = seen.py();
    let all = seen.get().slot.patient(py, |filter| filter.claims())?;
    all.iter().map(|open| answers::open_claim(py, open)).collect()
}

/// Ends the claim of a key; `Filter.end_claim` calls it.
#[pyfunction]
pub fn end_claim(seen: &Bound<'_, PyFilter>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (key, settings) = (bytes_of(key)?, Settings::default());
    seen.get().slot.quick(
        seen.py(),
        |filter| settings.quick(filter).end_claim(&key),
        |filter| settings.patient(filter).end_claim(&key),
    )
}
