//! What an alteration would take.

use crate::admin::look::look;
use crate::api::config::Spec;
use crate::api::history::commits::History;
use crate::archive::keep_file;
use crate::engine::alter::meta_after;
use crate::engine::open::{first_bank_bytes, read_meta};
use crate::error::Result;
use crate::image::Control;
use crate::media::{Access, Disk};
use crate::meta::Meta;
use crate::options::Keep;
use crate::recovery::{LogExtent, rebuild};
use std::path::Path;

/// What [`Filter::alter`](crate::Filter::alter) would take; see [`plan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlterationPlan {
    /// Records of the log that it reads.
    pub records: u64,
    /// Whether the log reaches back to the creation of the filter. Otherwise what was inserted
    /// before is forgotten.
    pub is_whole: bool,
    /// How much log the filter keeps: with [`Keep::Nothing`], an alteration that forgets keys must
    /// be told to.
    pub keep: Keep,
    /// Bytes of memory that the filter takes when it is new, with the parameters that it has.
    pub memory_before: u64,
    /// The same, with the new ones. The alteration takes it twice, beside what the filter takes
    /// now, and as many bytes of disk for a snapshot.
    pub memory_after: u64,
}

/// Returns what it would take to give a filter other parameters. Changes nothing.
///
/// ```
/// use ebbtide::{AgePartitioned, Filter, Options, history};
/// # let parent = tempfile::tempdir()?;
/// # let dir = parent.path().join("seen");
/// let options = Options::new().keep_log("24h".parse()?);
/// let seen = Filter::create(&dir, AgePartitioned::last(1000), options)?;
/// seen.insert("order 17")?;
/// let plan = history::plan(&dir, AgePartitioned::last(50_000))?;
/// assert!(plan.is_whole && plan.records >= 1 && plan.memory_after > plan.memory_before);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter), and as [`History::open`].
pub fn plan<K: Spec>(dir: impl AsRef<Path>, spec: K) -> Result<AlterationPlan> {
    let media = Disk::new(dir.as_ref());
    let meta = read_meta(&media)?;
    let after = meta_after(&meta, spec.kind()?)?;
    let first = History::open(dir.as_ref())?.next_lsn();
    let end = look(&media, &meta, |known| {
        if let LogExtent::Living { .. } = known
            && let Some(image) = Control::find(&media, meta.uuid, Access::Read)?
        {
            return Ok(image.tail().hint());
        }
        Ok(rebuild(&media, &meta, known, &|| {})?.prefix.stop)
    })?;
    let memory = |meta: &Meta| first_bank_bytes(&*meta.kind, meta.layout);
    Ok(AlterationPlan {
        records: end.saturating_sub(first),
        is_whole: first == 1,
        keep: keep_file::read(&media)?,
        memory_before: memory(&meta)?,
        memory_after: memory(&after)?,
    })
}
