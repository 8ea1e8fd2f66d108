//! What an operator does with a filter: clear, sync, checkpoint, look at figures, close.

#[cfg(not(loom))]
use crate::api::alter::{Altered, Unlogged, alter_filter};
#[cfg(not(loom))]
use crate::api::config::Spec;
use crate::api::handle::Filter;
use crate::engine::Engine;
#[cfg(shuttle)]
use crate::engine::background::maintenance;
use crate::engine::read::details::Details;
use crate::engine::read::stats::{Digest, Stat};
use crate::engine::write::clear;
use crate::error::Result;
use std::time::Duration;

impl<K> Filter<K> {
    /// Returns the hash of a key, by which the log names it; see [`history`](crate::history). It
    /// depends on the filter's secret seed: do not show it to those who could choose keys by it.
    #[must_use]
    pub fn key_hash(&self, key: impl AsRef<[u8]>) -> u64 {
        self.engine().shared.hash(key.as_ref())
    }

    /// Removes all keys in one step, which all processes see at once and which is durable on
    /// return. Earlier inserts are gone, later ones stay. [`Stat::inserts`] restarts at 0; the
    /// filter's time continues. Meanwhile writers wait, for as long as it takes to allocate the
    /// filter's initial memory again.
    ///
    /// Use this to reset a filter. Removing its directory while a process has it open leads to two
    /// filters.
    ///
    /// ```
    /// use ebbtide::{AgePartitioned, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let seen = Filter::create(&dir, AgePartitioned::last(10_000), Options::new())?;
    /// seen.insert("order 17")?;
    /// seen.clear()?;
    /// assert!(!seen.contains("order 17")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) (a full disk: nothing has changed; old and new memory are
    /// briefly needed together), [`Error::Poisoned`](crate::Error::Poisoned),
    /// [`Error::Retired`](crate::Error::Retired).
    pub fn clear(&self) -> Result<()> {
        self.run(|engine| {
            let _busy = engine.shared.enter()?;
            clear::clear(&engine.writer, None)
        })
    }

    /// As [`Filter::clear`], but it does not start the clock of a filter that only times of keys
    /// have moved: then it has the filter's latest time.
    ///
    /// # Errors
    /// As [`Filter::clear`].
    #[doc(hidden)]
    pub fn clear_without_a_clock(&self) -> Result<()> {
        self.run(|engine| {
            let _busy = engine.shared.enter()?;
            clear::clear(&engine.writer, Some(engine.time.of_clear()?))
        })
    }

    /// Gives the filter another window, rate, capacity or kind, while this and other processes use
    /// it. Afterwards it answers as a filter with this kind and these parameters that has had all
    /// operations in the log, from its beginning on
    /// ([`Options::keep_log`](crate::Options::keep_log)).
    ///
    /// The new state is made from the log while others write. At the end writers are stopped, for
    /// as long as it takes to write and read a snapshot of it: about two seconds for each GiB.
    /// [`Altered::stopped`] says how long it was. Handles of all processes then continue with the
    /// filter as it is now. A handle whose type requires another kind gets
    /// [`Error::Mismatch`](crate::Error::Mismatch), and so does a program that opens the filter
    /// with the former parameters. If the process dies, the filter is the old one or the new one.
    ///
    /// Positions, claims and the filter's time stay. So do durability, downtime, `max_lead` and the
    /// hash of keys. As of a moment before the alteration, the filter has its former parameters
    /// (`docs/time.md` says which times are before it). If no log is kept, the log from before is
    /// removed, and a second alteration knows less. The old and the new state are in memory
    /// together, and the new one a second time.
    ///
    /// Importances keep their levels, so that kinds with importances must stay as they are. Counts
    /// are no importances, and are nothing for a kind that does not count: an operation with a
    /// count is one without. A kind that cannot remove keys is refused if the log has a removal
    /// since the last clear, unless that may be [forgotten](Unlogged::Forget). Where the new kind
    /// has a window in time and the former did not use time, operations by a clock that was ahead
    /// come at the clock's time of now.
    ///
    /// ```
    /// use ebbtide::history::Unlogged;
    /// use ebbtide::{AgePartitioned, Filter, Options};
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let options = Options::new().keep_log("24h".parse()?);
    /// let seen = Filter::create(&dir, AgePartitioned::last(1000), options)?;
    /// (0..2000_u64).try_for_each(|key| seen.insert(key.to_le_bytes()).map(drop))?;
    /// let altered = seen.alter(AgePartitioned::last(50_000), Unlogged::Refuse)?;
    /// assert!(altered.is_whole && altered.operations == 2000);
    /// // The first key had left the window. In the new window it is.
    /// assert!(seen.contains(0_u64.to_le_bytes())?);
    /// assert_eq!(seen.parameters().get("window-items"), Some("50000"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotKept`](crate::Error::NotKept) if the log does not have what the filter would
    /// have to know (see [`Unlogged`]), or if log was removed while it was read;
    /// [`Error::Locked`](crate::Error::Locked) while another handle alters the filter;
    /// [`Error::Mismatch`](crate::Error::Mismatch) for importances;
    /// [`Error::Parameter`](crate::Error::Parameter), also for removals that the kind cannot make;
    /// [`Error::Io`](crate::Error::Io), also on a
    /// file system without hard links, and others. Then the filter is as it was, or, if an error
    /// came at the very end, altered.
    #[cfg(not(loom))]
    pub fn alter<N: Spec>(&self, spec: N, unlogged: Unlogged) -> Result<Altered> {
        alter_filter(self, &spec.kind()?, unlogged)
    }

    /// Returns the position of a source, as set by the last [`Batch`](crate::Batch) that was
    /// committed and set it; `None` if none did.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked), [`Error::Closed`](crate::Error::Closed),
    /// [`Error::Poisoned`](crate::Error::Poisoned) if the system could not write back the live
    /// image, [`Error::Retired`](crate::Error::Retired).
    pub fn position(&self, source: u64) -> Result<Option<u64>> {
        let found = self.positions()?.into_iter().find(|(of, _)| *of == source);
        Ok(found.map(|(_, position)| position))
    }

    /// Returns the positions of all sources, by source.
    ///
    /// # Errors
    /// As [`Filter::position`].
    pub fn positions(&self) -> Result<Vec<(u64, u64)>> {
        self.look(Engine::positions)
    }

    /// Waits until all operations so far are durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned) if a sync fails or has failed.
    pub fn sync(&self) -> Result<()> {
        self.run(|engine| {
            let _busy = engine.shared.enter()?;
            engine.commits.commit_all()
        })
    }

    /// Returns the LSN below which all records are durable, for callers that queue operations
    /// themselves by [`Ticket::lsn`](crate::Ticket::lsn). Costs one load.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked).
    pub fn durable_upto(&self) -> Result<u64> {
        self.run(|engine| {
            engine.shared.check_process()?;
            let durable = engine.shared.durable();
            engine.shared.check_unaltered()?;
            Ok(durable)
        })
    }

    /// Writes a snapshot (unless the newest one is up to date) and removes log that is no longer
    /// needed. Other operations continue meanwhile. Returns the LSN at which the newest snapshot
    /// starts; 0 for a filter that has never changed and needs none.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) (a full disk, although the space of the older snapshot was
    /// taken), [`Error::Poisoned`](crate::Error::Poisoned).
    pub fn checkpoint(&self) -> Result<u64> {
        self.run(|engine| {
            let _busy = engine.shared.enter()?;
            engine.checkpoints.checkpoint()
        })
    }

    /// Returns a hash of the logical state. It is equal for filters with the same parameters, hash,
    /// seed and stripes after the same operations with the same times, however often their
    /// processes were killed in between. Writers wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned), [`Error::Io`](crate::Error::Io).
    pub fn digest(&self) -> Result<Digest> {
        self.look(|engine| engine.digest())
    }

    /// Returns statistics of the filter.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub fn stat(&self) -> Result<Stat> {
        self.look(|engine| engine.stat())
    }

    /// Returns figures for operators: fill by generation and by block, ends of the log, handles,
    /// held stripes. It takes no lock and changes nothing.
    ///
    /// # Errors
    /// As [`Filter::stat`].
    pub fn details(&self) -> Result<Details> {
        self.look(|engine| engine.details())
    }

    /// Returns how far the filter's time is ahead of the handle's clock (of the system's for a
    /// handle without one); `None` if it is less than a second, if the kind does not use time, and
    /// in a forked child.
    ///
    /// The filter's time is ahead if the clock was ahead once and has been corrected, or if a key
    /// came with a future time (see [`Options::max_lead`](crate::Options::max_lead)). Keys without
    /// a time expire after their window nevertheless. Keys with times of their own appear older
    /// than they are by the lead, and may be refused as too late. See `docs/time.md`.
    #[must_use]
    pub fn clock_lead(&self) -> Option<Duration> {
        let engine = self.present_engine();
        // A forked child does not have the image.
        engine.shared.check_process().ok()?;
        engine.time.clock_lead()
    }

    /// Runs the tasks of the background threads once.
    ///
    /// # Errors
    /// As [`Filter::checkpoint`].
    #[cfg(shuttle)]
    #[doc(hidden)]
    pub fn do_tasks(&self) -> Result<()> {
        self.run(|engine| {
            // As closing waits for the background threads.
            let _busy = engine.shared.enter()?;
            maintenance::do_tasks(engine)
        })
    }

    /// Runs the background task of the log, or that of snapshots, once: always, or only if it is
    /// due. Returns the time until it is due; `None` if there is none, or the handle is closed.
    #[cfg(shuttle)]
    #[doc(hidden)]
    #[must_use]
    pub fn run_task(&self, is_log: bool, only_if_due: bool) -> Option<Duration> {
        self.current.engine().wakeup.run_task(is_log, only_if_due)
    }

    /// Returns the time until the background task of the log is due, none of it if it is running;
    /// `None` if there is none.
    #[cfg(shuttle)]
    #[doc(hidden)]
    #[must_use]
    pub fn log_due(&self) -> Option<Duration> {
        self.current.engine().wakeup.log_due()
    }

    /// Runs the background task that syncs for tickets once if it is due. Returns the time until it
    /// is due; `None` if no ticket was awaited yet, or the handle is closed.
    #[cfg(shuttle)]
    #[doc(hidden)]
    #[must_use]
    pub fn run_syncs(&self) -> Option<Duration> {
        loop {
            let engine = self.current.engine().clone();
            let due = engine.tickets.run_task();
            // What a ticket calls may have opened the filter again, after an alteration.
            if std::sync::Arc::ptr_eq(&engine, self.current.engine()) {
                return due;
            }
        }
    }

    /// Forgets all tickets that wait: the process has died.
    #[cfg(shuttle)]
    #[doc(hidden)]
    pub fn forget_tickets(&self) {
        self.current.engines().for_each(|engine| engine.tickets.forget());
    }

    /// Writes a snapshot and closes the filter cleanly, so that the next opening has nothing to
    /// replay. Dropping the handle does the same but cannot return the error.
    ///
    /// Takes `&self`, so that one of several owners of an `Arc<Filter>` can close it. Waits for
    /// operations that other threads have begun; later ones fail with
    /// [`Error::Closed`](crate::Error::Closed). A second call waits for the first and returns `Ok`.
    /// The filter can be opened again at once. Memory mappings and file descriptors stay until the
    /// handle is dropped, as does the disk space of files that were removed meanwhile.
    ///
    /// ```
    /// # use ebbtide::{AgePartitioned, Error, Filter, Options};
    /// # use std::sync::Arc;
    /// # let parent = tempfile::tempdir()?;
    /// # let dir = parent.path().join("seen");
    /// let seen = Arc::new(Filter::create(&dir, AgePartitioned::last(1000), Options::new())?);
    /// let worker = seen.clone();
    /// seen.insert("a")?;
    /// seen.close()?;
    /// assert!(matches!(worker.insert("b"), Err(Error::Closed { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Filter::checkpoint`]; the filter is closed nevertheless, and only the snapshot is
    /// missing.
    pub fn close(&self) -> Result<()> {
        self.current.close()
    }
}
