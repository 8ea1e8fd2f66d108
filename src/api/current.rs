//! The engine that a handle uses: another one after the filter was altered.
//!
//! An alteration retires the image, and the filter continues in a new one. A handle notices when an
//! operation on the old image fails: it has not happened then. The handle closes its engine, opens
//! the filter again and repeats the operation. Engines are a list, of which the last one is used:
//! other threads may still be in an operation of an earlier one.

use crate::engine::Engine;
use crate::engine::background::maintenance::Tasks;
use crate::engine::lifecycle::close::{Opened, answering};
use crate::engine::lifecycle::open;
use crate::engine::write::request::Waits;
use crate::error::{Error, Result};
use crate::primitives::Mutex;
use std::sync::{Arc, OnceLock};

/// What a call waits for that must not.
const REOPENING: &str = "the filter to be opened again, because it was altered";

/// The engines of a handle.
#[derive(Debug)]
pub(crate) struct Current {
    first: Link,
    /// The kind that the handle's type requires.
    wanted: Option<&'static str>,
    /// Held while an engine is closed, with whether the handle is.
    is_closed: Mutex<bool>,
}

#[derive(Debug)]
struct Link {
    // First, so that the handle is closed before the engine is dropped.
    opened: Opened,
    engine: Arc<Engine>,
    next: OnceLock<Box<Self>>,
}

impl Link {
    fn new(engine: Engine) -> Result<Self> {
        let engine = Arc::new(engine);
        let path = engine.path().to_path_buf();
        let tasks = Tasks::start(engine.clone()).map_err(Error::io("start a thread for", path))?;
        let opened = Opened::new(engine.clone(), tasks);
        Ok(Self { opened, engine, next: OnceLock::new() })
    }
}

impl Current {
    /// Starts the background tasks of the engine of a handle, whose type may require a kind.
    pub(crate) fn new(engine: Engine, wanted: Option<&'static str>) -> Result<Self> {
        Ok(Self { first: Link::new(engine)?, wanted, is_closed: Mutex::new(false) })
    }

    /// Returns the engines of a handle whose type requires this kind.
    pub(crate) fn wanting(self, wanted: Option<&'static str>) -> Self {
        Self { wanted, ..self }
    }

    #[inline]
    fn last(&self) -> &Link {
        let mut last = &self.first;
        while let Some(next) = last.next.get() {
            last = next;
        }
        last
    }

    /// Returns the engine in use.
    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.last().engine
    }

    /// Returns all engines that were ever used.
    #[cfg(shuttle)]
    pub(crate) fn engines(&self) -> impl Iterator<Item = &Arc<Engine>> {
        let links =
            std::iter::successors(Some(&self.first), |link| link.next.get().map(|next| &**next));
        links.map(|link| &link.engine)
    }

    /// Returns whether two handles are the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.first.engine, &other.first.engine)
    }

    /// Calls a function with the engine in use, and again if it has failed because the filter was
    /// altered.
    #[inline]
    pub(crate) fn run<T>(
        &self,
        waits: Waits,
        mut call: impl FnMut(&Engine) -> Result<T>,
    ) -> Result<T> {
        loop {
            let link = self.last();
            match call(&link.engine) {
                Err(error) => self.reopen(link, waits, error)?,
                answer => return answer,
            }
        }
    }

    /// Opens the filter again if it was altered, so that the operation that has failed can be
    /// repeated. Otherwise returns its error.
    #[cold]
    fn reopen(&self, link: &Link, waits: Waits, error: Error) -> Result<()> {
        let shared = &link.engine.shared;
        // Whatever the error is: files of the old log have other names by now, and another thread
        // of this handle may have closed the engine.
        if shared.check_process().is_err() || !shared.header().is_altered() {
            return Err(error);
        }
        if waits.never() {
            return Err(shared.would_wait(REOPENING));
        }
        answering(|unanswered| {
            let is_closed = self.is_closed.lock();
            if *is_closed {
                return Err(shared.closed());
            }
            if link.next.get().is_some() {
                return Ok(());
            }
            // Everything is durable: no error of it matters.
            let _ = link.opened.close_within(unanswered);
            let engine = open::open_again(shared, self.wanted)?;
            let _ = link.next.set(Box::new(Link::new(engine)?));
            Ok(())
        })
    }

    /// Continues with the engine of an alteration by this handle, unless another thread has opened
    /// the filter already, or closed the handle.
    pub(crate) fn replace(&self, altered: &Arc<Engine>, engine: Engine) -> Result<()> {
        let next = Link::new(engine)?;
        let unwanted = answering(|unanswered| {
            let is_closed = self.is_closed.lock();
            let link = self.last();
            let is_wanted = next.engine.shared.check_kind(self.wanted).is_ok();
            if *is_closed || !is_wanted || !Arc::ptr_eq(&link.engine, altered) {
                return Some(next);
            }
            let _ = link.opened.close_within(unanswered);
            let _ = link.next.set(Box::new(next));
            None
        });
        if let Some(next) = unwanted {
            // All that it has done is durable. The filter may have been altered again by now.
            let _ = next.opened.close();
        }
        Ok(())
    }

    /// Closes the handle; see [`Filter::close`](crate::Filter::close).
    pub(crate) fn close(&self) -> Result<()> {
        // Before any lock: in a forked child a thread that does not exist there may hold it.
        self.first.engine.shared.check_process()?;
        let mut is_closed = self.is_closed.lock();
        *is_closed = true;
        drop(is_closed);
        self.last().opened.close()
    }
}
