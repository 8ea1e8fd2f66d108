//! What a filter will cost, before anything is created.

use crate::engine::lifecycle::open::{first_bank_bytes, layout};
use crate::error::Result;
use crate::image::bank_files::most_bytes;
use crate::image::identity::Identity;
use crate::media::{BESIDE_LOG_MOST, ImagePlace};
use crate::options::Options;
use crate::platform::system;
use crate::wal::log_record::RECORD_BYTES;
use ebbtide_core::identity::check_max_memory;
use ebbtide_core::kind::{Parameters, PlannedPart};
use ebbtide_core::kinds::registry;

/// The expected cost and properties of a filter, before anything is created.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Plan {
    /// The kind's name.
    pub kind: &'static str,
    /// All parameters, completed.
    pub parameters: Parameters,
    /// Bytes of memory at creation: blocks, headers, tables; excludes the log. A window of time
    /// grows by the keys that come, up to its limit (`max_memory`). For kinds whose
    /// blocks start small and grow, the bytes expected when the filter is as full as planned.
    pub memory_bytes: u64,
    /// The maximum of bytes on disk: three snapshots (two and one in progress), the log, and the
    /// image if it lies beside the log. For kinds whose blocks grow the expected bytes, as of
    /// memory.
    pub disk_bytes: u64,
    /// The bytes that an insert writes to the disk: its record, and its share of a snapshot of all
    /// memory. Each sync adds up to a page of 4 KiB, and an image on a disk what the system writes
    /// of it.
    pub written_bytes: f64,
    /// Bits of memory per key of the window, if the kind has a window or capacity in keys.
    pub bits_per_key: Option<f64>,
    /// The false-positive rate when the filter is as full as planned, by theory.
    pub fpr: f64,
    /// Number of stripes: shares of the key-hash space.
    pub stripes: u32,
    /// Number of blocks of the first bank.
    pub blocks: u64,
    /// Parts of the memory with the rates for which they are needed, if there are several rates.
    pub parts: Vec<PlannedPart>,
}

/// Plans a filter of a kind with these parameters.
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter) for values that the kind refuses.
pub fn plan(kind: &str, parameters: &Parameters, options: &Options) -> Result<Plan> {
    options.check()?;
    let kind = registry::build(kind, parameters)?;
    let layout = layout(&*kind, options);
    check_max_memory(&*kind, layout)?;
    let (stripes, state_words) = (layout.stripes, kind.state_words() as u32);
    let identity =
        Identity { uuid: 0, timeline: 0, boot: 0, inode: 0, device: 0, stripes, state_words };
    let geometry = kind.geometry(layout);
    let bank_bytes = first_bank_bytes(&*kind, layout)?;
    let unused_words = layout.words(geometry).saturating_sub(kind.planned_words(layout));
    // The table of claims takes its space with the first one.
    let memory_bytes = identity.room_for_claims().start + bank_bytes - unused_words * 8;
    let parameters = kind.parameters();
    let keys = ["window-items", "capacity"]
        .iter()
        .find_map(|name| parameters.get(name)?.parse::<f64>().ok());
    let segments = 4 * options.segment_records(bank_bytes) * RECORD_BYTES;
    // Log of up to two checkpoints is kept, and a segment on either side.
    let due = options.checkpoint_due(memory_bytes);
    let log = due.saturating_mul(2).saturating_add(segments);
    let is_beside = !system::HAS_UNNAMED_FILES
        || match options.image_place()? {
            None => most_bytes(&*kind, bank_bytes) <= BESIDE_LOG_MOST,
            Some(place) => place == ImagePlace::BesideLog,
        };
    let copies = memory_bytes.saturating_mul(3 + u64::from(is_beside));
    Ok(Plan {
        kind: kind.name(),
        memory_bytes,
        disk_bytes: copies.saturating_add(log),
        written_bytes: RECORD_BYTES as f64 * (1.0 + memory_bytes as f64 / due as f64),
        bits_per_key: keys.map(|keys| memory_bytes as f64 * 8.0 / keys),
        fpr: kind.planned_fpr(layout),
        stripes: layout.stripes,
        blocks: layout.blocks(geometry),
        parts: kind.planned_parts(layout),
        parameters,
    })
}
