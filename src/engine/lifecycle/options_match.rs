//! Whether a filter is the one that options describe: what was fixed at its creation, and is given
//! again, must be the same.

use crate::error::{Error, Result};
use crate::media::Media;
use crate::meta::Meta;
use crate::options::Options;
use crate::wal::log_record::RECORD_BYTES;
use ebbtide_core::hash::KeyHasher;
use ebbtide_core::kind::Kind;
use ebbtide_core::units;
use std::path::Path;
use std::time::Duration;

/// The permissions that a filter's files have in any case, and can have.
const MODE_LEAST: u32 = 0o600;
const MODE_MOST: u32 = 0o666;
const EXECUTABLE: u32 = 0o111;

/// Checks that a filter has what these options name. The durability is not among it: each handle
/// has its own.
///
/// # Errors
/// [`Error::Mismatch`] that names the first option of which that is not true.
pub(crate) fn check(media: &dyn Media, meta: &Meta, options: &Options) -> Result<()> {
    let refuse = |what: &str, expected: String, found: String| {
        let (path, what) = (media.path().to_path_buf(), what.to_owned());
        Err(Error::Mismatch { path, what, expected, found })
    };
    check_hash(media.path(), meta.hasher, options)?;
    if let Some(stripes) = options.stripes.filter(|&stripes| stripes != meta.layout.stripes) {
        return refuse("stripes", stripes.to_string(), meta.layout.stripes.to_string());
    }
    let has = u64::from(meta.layout.block_words) * 8;
    // Blocks consist of whole words.
    if let Some(bytes) = options.block_bytes.filter(|bytes| bytes / 8 * 8 != has) {
        return refuse("block-bytes", bytes.to_string(), has.to_string());
    }
    let has = meta.segment_records;
    if let Some(bytes) = options.segment_bytes.filter(|bytes| bytes / RECORD_BYTES != has) {
        return refuse("segment-bytes", bytes.to_string(), (has * RECORD_BYTES).to_string());
    }
    if let Some(downtime) = options.downtime.filter(|&downtime| downtime != meta.downtime) {
        return refuse("downtime", downtime.to_string(), meta.downtime.to_string());
    }
    // A filter has whole microseconds.
    let has = u128::from(meta.max_lead);
    if let Some(lead) = options.max_lead.filter(|lead| lead.as_micros() != has) {
        let has = Duration::from_micros(meta.max_lead);
        return refuse("max-lead", shown(lead), shown(has));
    }
    if let (Some(mode), Some(has)) = (options.mode, media.mode().ok().flatten()) {
        // A copy may have fewer, and a file system without permissions shows all files alike: as
        // executable.
        let is_stored = has & EXECUTABLE == 0;
        let [mode, has] = [mode, has].map(|mode| (mode | MODE_LEAST) & MODE_MOST);
        if is_stored && has & !mode != 0 {
            return refuse("mode", format!("{mode:o}"), format!("{has:o}"));
        }
    }
    Ok(())
}

/// Checks that keys are hashed as these options say.
///
/// # Errors
/// [`Error::Mismatch`].
pub(crate) fn check_hash(path: &Path, hasher: KeyHasher, options: &Options) -> Result<()> {
    let has = hasher.function();
    if let Some(wanted) = options.key_hash.filter(|&wanted| wanted != has) {
        return Err(mismatch(path, "hash", &wanted.to_string(), &has.to_string()));
    }
    let other = |seed| KeyHasher::from_seed(has, seed) != hasher;
    if options.hash_seed.is_some_and(other) {
        // The error never contains a seed: with the seed one can choose keys that collide.
        return Err(mismatch(path, "hash-seed", "the one given", "another"));
    }
    Ok(())
}

/// Checks that a filter is of this kind, if one is wanted.
///
/// # Errors
/// [`Error::Mismatch`].
pub(crate) fn check_kind(path: &Path, kind: &dyn Kind, wanted: Option<&str>) -> Result<()> {
    match wanted {
        Some(wanted) if wanted != kind.name() => Err(mismatch(path, "kind", wanted, kind.name())),
        _ => Ok(()),
    }
}

/// The error of a filter that differs from what the caller asks for.
pub(crate) fn mismatch(path: &Path, what: &str, expected: &str, found: &str) -> Error {
    Error::Mismatch {
        path: path.to_path_buf(),
        what: what.to_owned(),
        expected: units::shown(what, expected),
        found: units::shown(what, found),
    }
}

/// Returns a duration with the largest unit that needs no fraction.
fn shown(duration: Duration) -> String {
    match (duration.as_secs(), duration.subsec_nanos()) {
        (seconds, 0) if seconds > 0 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        (seconds, 0) if seconds > 0 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        _ => format!("{duration:?}"),
    }
}
