//! What a C program holds: an open filter, or a reader of one.

use crate::altered::{Alteration, Made, Planned, unlogged};
use crate::call::{Settings, query, write};
use crate::codes::EBBTIDE_UNSUPPORTED;
use crate::failure::{Failure, Result};
use crate::stat;
use engine::history::{self, At, Share};
use engine::{
    Age, Any, Call, Cardinality, Checked, Claim, Estimate, Filter, Lease, OpenClaim, Options,
    Reader, Spec, Within, inspect,
};
use std::path::Path;
use std::time::Duration;

/// An open filter.
#[derive(Debug)]
pub struct Handle {
    open: Open,
}

#[derive(Debug)]
enum Open {
    Filter(Filter<Any>),
    Reader(Reader<Any>),
}

/// The answer to a claim.
#[derive(Debug, Clone, Copy)]
pub enum Claimed {
    /// The key is in the window.
    Seen,
    /// Somebody else works on it, until this time in microseconds since the Unix epoch.
    InProgress { until: u64 },
    /// The caller has it.
    Yours { token: u64 },
}

/// Returns the error for an operation that a reader does not have.
#[cold]
fn read_only(reader: &Reader<Any>, operation: &str) -> Failure {
    Failure::new(
        EBBTIDE_UNSUPPORTED,
        format!(
            "{} was opened by ebbtide_reader_open, which has no operation `{operation}`; open it \
             by ebbtide_open_existing",
            reader.path().display()
        ),
    )
}

/// Reads a spec.
fn kind(spec: &str) -> Result<Any> {
    Ok(spec.parse::<Any>().map_err(engine::Error::from)?)
}

/// Copies a closed filter, or a backup, to a new directory.
pub fn restore(backup: &Path, path: &Path) -> Result<()> {
    Ok(inspect::restore(backup, path)?)
}

/// Makes a filter that is what another one was at a moment. Returns the LSN of its next record, and
/// its inserts.
pub fn restore_at(filter: &Path, at: At, path: &Path) -> Result<(u64, u64)> {
    let restored = inspect::restore_at(filter, at, path)?;
    Ok((restored.lsn, restored.inserts))
}

/// Returns as JSON what a filter will take.
pub fn plan(spec: &str, options: &str) -> Result<String> {
    let spec = kind(spec)?;
    let plan = inspect::plan(spec.name(), spec.parameters(), &options.parse()?)?;
    Ok(stat::plan(&plan))
}

/// Returns what an alteration of a filter would take.
pub fn plan_alteration(path: &Path, spec: &str) -> Result<Planned> {
    Ok(history::plan(path, kind(spec)?)?.into())
}

/// Makes a filter from the logs of others: of all keys, if the number of shares is 0.
pub fn remake(
    from: &[&Path],
    path: &Path,
    (spec, options): (&str, &str),
    (number, count): (u64, u64),
) -> Result<Made> {
    if number != 0 && count == 0 {
        return Err(Failure::argument("share is set, but shares is 0"));
    }
    let share = (count > 0).then_some(Share { number, count });
    Ok(history::remake(from, path, kind(spec)?, options.parse()?, share)?.into())
}

/// Returns the number of the share that a key hash belongs to.
pub fn share_of(hash: u64, count: u64) -> Result<u64> {
    if count == 0 {
        return Err(Failure::argument("number of shares: expected at least 1, found 0"));
    }
    Ok(Share::of(hash, count))
}

// Any thread of a C program may use a handle.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Handle>();
};

impl Handle {
    /// Opens the filter if there is one, otherwise creates it.
    pub fn open(path: &Path, spec: &str, options: &str) -> Result<Self> {
        let filter = Filter::open_or_create(path, kind(spec)?, options.parse()?)?;
        Ok(Self { open: Open::Filter(filter) })
    }

    /// Creates a filter.
    pub fn create(path: &Path, spec: &str, options: &str) -> Result<Self> {
        let filter = Filter::create(path, kind(spec)?, options.parse()?)?;
        Ok(Self { open: Open::Filter(filter) })
    }

    /// Opens a filter that exists.
    pub fn open_existing(path: &Path, options: &str) -> Result<Self> {
        let filter = Filter::open(path, options.parse::<Options>()?)?;
        Ok(Self { open: Open::Filter(filter) })
    }

    /// Opens a filter without write permission.
    pub fn open_reader(path: &Path, options: &str) -> Result<Self> {
        let reader = Reader::open(path, options.parse::<Options>()?)?;
        Ok(Self { open: Open::Reader(reader) })
    }

    /// Opens a filter as it was at a moment.
    pub fn open_reader_at(path: &Path, at: At, options: &str) -> Result<Self> {
        let reader = Reader::at(path, at, options.parse::<Options>()?)?;
        Ok(Self { open: Open::Reader(reader) })
    }

    /// Closes the handle; a filter writes a snapshot.
    pub fn close(&self) -> Result<()> {
        match &self.open {
            Open::Filter(filter) => Ok(filter.close()?),
            Open::Reader(_) => Ok(()),
        }
    }

    /// Returns the filter, unless the handle is a reader.
    #[inline(always)]
    pub fn writer(&self, operation: &str) -> Result<&Filter<Any>> {
        match &self.open {
            Open::Filter(filter) => Ok(filter),
            Open::Reader(reader) => Err(read_only(reader, operation)),
        }
    }

    /// Inserts a key; false if it was too late.
    #[inline(always)]
    pub fn insert(&self, key: &[u8], settings: Option<&Settings>) -> Result<bool> {
        let filter = self.writer("insert")?;
        Ok(match settings {
            None => filter.insert(key)?,
            Some(_) => write(filter.call(), settings)?.insert(key)?,
        })
    }

    /// Atomic check-and-insert.
    #[inline(always)]
    pub fn check_and_insert(&self, key: &[u8], settings: Option<&Settings>) -> Result<Checked> {
        let filter = self.writer("check_and_insert")?;
        Ok(match settings {
            None => filter.check_and_insert(key)?,
            Some(_) => write(filter.call(), settings)?.check_and_insert(key)?,
        })
    }

    /// Removes a key once; false if it is not there.
    pub fn remove(&self, key: &[u8], settings: Option<&Settings>) -> Result<bool> {
        Ok(write(self.writer("remove")?.call(), settings)?.remove(key)?)
    }

    /// Returns whether a key is in the window.
    #[inline(always)]
    pub fn contains(&self, key: &[u8], settings: Option<&Settings>) -> Result<bool> {
        Ok(match &self.open {
            Open::Filter(filter) if settings.is_none() => filter.contains(key)?,
            Open::Filter(filter) => query(filter.call(), settings).contains(key)?,
            Open::Reader(reader) => query(reader.call(), settings).contains(key)?,
        })
    }

    /// Returns how long ago a key was seen, at least.
    pub fn age(&self, key: &[u8], settings: Option<&Settings>) -> Result<Option<Age>> {
        Ok(match &self.open {
            Open::Filter(filter) => query(filter.call(), settings).age(key)?,
            Open::Reader(reader) => query(reader.call(), settings).age(key)?,
        })
    }

    /// Returns whether a key was seen within a time shorter than the window.
    pub fn seen_within(
        &self,
        key: &[u8],
        within: Within,
        settings: Option<&Settings>,
    ) -> Result<bool> {
        Ok(match &self.open {
            Open::Filter(filter) => query(filter.call(), settings).seen_within(key, within)?,
            Open::Reader(reader) => query(reader.call(), settings).seen_within(key, within)?,
        })
    }

    /// Returns how many distinct keys are in the window or in a part of it.
    pub fn distinct(
        &self,
        within: Option<Within>,
        settings: Option<&Settings>,
    ) -> Result<Cardinality> {
        Ok(match (&self.open, within) {
            (Open::Filter(filter), None) => query(filter.call(), settings).distinct()?,
            (Open::Reader(reader), None) => query(reader.call(), settings).distinct()?,
            (Open::Filter(filter), Some(within)) => {
                query(filter.call(), settings).distinct_within(within)?
            }
            (Open::Reader(reader), Some(within)) => {
                query(reader.call(), settings).distinct_within(within)?
            }
        })
    }

    /// Estimates how often a key was inserted.
    pub fn estimate(&self, key: &[u8], settings: Option<&Settings>) -> Result<Estimate> {
        Ok(match &self.open {
            Open::Filter(filter) => query(filter.call(), settings).estimate(key)?,
            Open::Reader(reader) => query(reader.call(), settings).estimate(key)?,
        })
    }

    /// Claims a key.
    pub fn claim(&self, key: &[u8], lease_ms: u64, settings: Option<&Settings>) -> Result<Claimed> {
        let call = write(self.writer("claim")?.call(), settings)?;
        Ok(match call.claim(key, Duration::from_millis(lease_ms))? {
            Claim::Seen => Claimed::Seen,
            Claim::InProgress { until } => Claimed::InProgress { until: until.as_unix_micros() },
            Claim::Yours(lease) => Claimed::Yours { token: lease.into_token() },
        })
    }

    /// Does something with a claim, which stays whatever becomes of that.
    fn with_lease<T>(
        &self,
        operation: &str,
        (key, token): (&[u8], u64),
        settings: Option<&Settings>,
        operate: impl FnOnce(&Call<'_, Filter<Any>>, &Lease<'_>) -> engine::Result<T>,
    ) -> Result<T> {
        let filter = self.writer(operation)?;
        let call = write(filter.call(), settings)?;
        let lease = filter.resume_claim(key, token);
        let done = operate(&call, &lease);
        lease.into_token();
        Ok(done?)
    }

    /// Inserts a claimed key and ends the claim.
    pub fn confirm(&self, claim: (&[u8], u64), settings: Option<&Settings>) -> Result<()> {
        self.with_lease("confirm", claim, settings, |call, lease| call.confirm(lease))
    }

    /// Ends a claim without an insert; false if it was not held.
    pub fn release(&self, claim: (&[u8], u64), settings: Option<&Settings>) -> Result<bool> {
        self.with_lease("release", claim, settings, |call, lease| call.release(lease))
    }

    /// Renews a claim; returns when it ends, in microseconds since the Unix epoch.
    pub fn extend(
        &self,
        claim: (&[u8], u64),
        lease_ms: u64,
        settings: Option<&Settings>,
    ) -> Result<u64> {
        let time = Duration::from_millis(lease_ms);
        self.with_lease("extend", claim, settings, |call, lease| {
            Ok(call.extend(lease, time)?.as_unix_micros())
        })
    }

    /// Ends the claim of a key, whoever holds it; false if there is none.
    pub fn end_claim(&self, key: &[u8], settings: Option<&Settings>) -> Result<bool> {
        Ok(write(self.writer("end_claim")?.call(), settings)?.end_claim(key)?)
    }

    /// Returns the claims that are held, the oldest first.
    pub fn claims(&self) -> Result<Vec<OpenClaim>> {
        Ok(match &self.open {
            Open::Filter(filter) => filter.claims()?,
            Open::Reader(reader) => reader.claims()?,
        })
    }

    /// Returns the hash by which the log names a key.
    pub fn key_hash(&self, key: &[u8]) -> Result<u64> {
        Ok(self.writer("key_hash")?.key_hash(key))
    }

    /// Gives the filter other parameters.
    pub fn alter(&self, spec: &str, flags: u32) -> Result<Alteration> {
        let (filter, unlogged) = (self.writer("alter")?, unlogged(flags)?);
        Ok(filter.alter(kind(spec)?, unlogged)?.into())
    }

    /// Inserts keys in order; returns how many were not too late.
    pub fn insert_all<T: AsRef<[u8]>>(
        &self,
        keys: &[T],
        settings: Option<&Settings>,
    ) -> Result<usize> {
        Ok(write(self.writer("insert_all")?.call(), settings)?.insert_all(keys)?)
    }

    /// Queries keys in order.
    pub fn contains_all<T: AsRef<[u8]>>(
        &self,
        keys: &[T],
        settings: Option<&Settings>,
    ) -> Result<Vec<bool>> {
        Ok(match &self.open {
            Open::Filter(filter) => query(filter.call(), settings).contains_all(keys)?,
            Open::Reader(reader) => query(reader.call(), settings).contains_all(keys)?,
        })
    }

    /// Checks and inserts keys in order. On an error `answers` contains those for the keys before
    /// the failing one.
    pub fn check_and_insert_all<T: AsRef<[u8]>>(
        &self,
        keys: &[T],
        answers: &mut Vec<Checked>,
        settings: Option<&Settings>,
    ) -> Result<()> {
        let call = write(self.writer("check_and_insert_all")?.call(), settings)?;
        Ok(call.check_and_insert_all(keys, answers)?)
    }

    /// Waits until all operations so far are durable.
    pub fn sync(&self) -> Result<()> {
        Ok(self.writer("sync")?.sync()?)
    }

    /// Writes a snapshot; returns the LSN at which it starts.
    pub fn checkpoint(&self) -> Result<u64> {
        Ok(self.writer("checkpoint")?.checkpoint()?)
    }

    /// Removes all keys.
    pub fn clear(&self) -> Result<()> {
        Ok(self.writer("clear")?.clear()?)
    }

    /// Copies the filter to a new directory.
    pub fn backup(&self, path: &Path) -> Result<()> {
        Ok(self.writer("backup")?.backup(path)?)
    }

    /// Returns the position of a source, if it has one.
    pub fn position(&self, source: u64) -> Result<Option<u64>> {
        Ok(match &self.open {
            Open::Filter(filter) => filter.position(source)?,
            Open::Reader(reader) => reader.position(source)?,
        })
    }

    /// Returns a hash of the logical state, as hexadecimal digits.
    pub fn digest(&self) -> Result<String> {
        let digest = match &self.open {
            Open::Filter(filter) => filter.digest()?,
            Open::Reader(reader) => reader.digest()?,
        };
        Ok(digest.to_string())
    }

    /// Returns the statistics as JSON.
    pub fn stat(&self) -> Result<String> {
        let stat = match &self.open {
            Open::Filter(filter) => filter.stat()?,
            Open::Reader(reader) => reader.stat()?,
        };
        Ok(stat::text(&stat))
    }
}
