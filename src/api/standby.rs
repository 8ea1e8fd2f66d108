//! A filter in memory that follows another one: records are applied as they come, and questions
//! answered in between.

use crate::admin::parts::Piece;
use crate::api::config::Any;
use crate::api::reader::Reader;
use crate::api::reader::view::{View, look, open_meta};
use crate::error::{Error, Result};
use crate::media::Media;
use crate::options::Options;
use crate::recovery::rebuild::apply_more;
use crate::wal::Op;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

const REMEDY: &str = "take the filter anew, from a snapshot and the log that follows it";

/// A copy of a filter in memory that is kept up to date with [`Piece`]s of its log. It answers what
/// the filter itself answered as of the last record, and in windows of time what it would answer
/// now. Nothing is written.
///
/// ```
/// use ebbtide::history::History;
/// use ebbtide::inspect::{Assembly, origin};
/// use ebbtide::media::{Media, Memory};
/// use ebbtide::{AgePartitioned, Durability, Filter, Options, Standby};
/// use std::sync::Arc;
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("seen");
/// let options = Options::new().durability(Durability::Always);
/// let seen = Filter::create(&dir, AgePartitioned::last(10_000), options)?;
/// let memory: Arc<dyn Media> = Arc::new(Memory::new());
/// Assembly::begin_on(memory.clone(), &origin(&dir)?.meta, 1)?.finish()?;
/// let standby = Standby::open_on(memory, Options::new())?;
/// let mut history = History::open(&dir)?;
/// seen.insert("order 17")?;
/// while let Some(piece) = history.read_piece()? {
///     standby.apply(&piece)?;
/// }
/// assert!(standby.ask(|reader| reader.contains("order 17"))?);
/// assert_eq!(standby.ask(|reader| reader.digest())?.value, seen.digest()?.value);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Standby {
    /// The state. Written to while records are applied.
    reader: RwLock<(Reader<Any>, u64)>,
}

impl fmt::Debug for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standby").field("next_lsn", &self.next_lsn()).finish_non_exhaustive()
    }
}

impl Standby {
    /// Takes the state of a filter that no process has open. Its files are not used afterwards.
    ///
    /// # Errors
    /// As [`Reader::open_on`].
    pub fn open_on(media: Arc<dyn Media>, options: Options) -> Result<Self> {
        let view = look(&*media, |meta, look, _| {
            View::rebuild(&media, meta, open_meta(&*media)?, &options, look)
        })?;
        let next = view.engine.header().tail().read();
        Ok(Self { reader: RwLock::new((Reader::of_own(media, options, view), next)) })
    }

    /// Returns the LSN of the record that comes next.
    #[must_use]
    pub fn next_lsn(&self) -> u64 {
        self.reader.read().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Applies the records of a piece that are not applied yet. Questions wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the piece does not follow, or is damaged: then nothing of it is
    /// applied. [`Error::Io`], [`Error::Poisoned`] if memory is missing: take the filter anew.
    pub fn apply(&self, piece: &Piece) -> Result<()> {
        let mut locked = self.reader.write().map_err(|_| self.poisoned())?;
        let (reader, next) = &mut *locked;
        let records = piece.records_from(*next).filter(|_| piece.first <= *next);
        let log = reader.log();
        let Some(records) = records.filter(|_| piece.log == log) else {
            return Err(Error::Damaged {
                path: reader.path().join(format!("piece-{}", piece.first)),
                offset: 0,
                expected: format!("sound records from LSN {next} on, of log {log:032x}"),
                found: format!("LSN {} of log {:032x}", piece.first, piece.log),
                remedy: REMEDY,
            });
        };
        let end = piece.end().max(*next);
        let is_by_clock = records.iter().any(|(_, record)| {
            let has_time = matches!(record.op, Op::Insert | Op::Remove | Op::Clear | Op::Heartbeat);
            has_time && record.time > 0 && !record.stream
        });
        reader.with_own(|engine| -> Result<()> {
            apply_more(&engine.shared.image, engine.shared.kind(), &records, end)?;
            engine.time.note_applied(is_by_clock);
            Ok(())
        })?;
        *next = end;
        Ok(())
    }

    fn poisoned(&self) -> Error {
        let locked = self.reader.read().unwrap_or_else(PoisonError::into_inner);
        Error::Poisoned { path: locked.0.path().to_path_buf(), cause: "a panic".into() }
    }

    /// Asks the copy, as it is between two pieces.
    ///
    /// # Errors
    /// Those of the question.
    pub fn ask<T>(&self, question: impl FnOnce(&Reader<Any>) -> Result<T>) -> Result<T> {
        let locked = self.reader.read().map_err(|_| self.poisoned())?;
        question(&locked.0)
    }
}
