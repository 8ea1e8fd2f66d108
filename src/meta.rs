//! The file `meta`: what never changes after a filter's creation, except by
//! [`Filter::alter`](crate::Filter::alter), which replaces the file.
//!
//! The file consists of lines of text with one name and value each. The first line has the format's
//! version, the last one the checksum of all others. The checksum is verified before anything else
//! is interpreted.

use crate::error::{Error, Result};
use crate::format::header::DURABLE;
use crate::format::names::FileName;
use crate::media::{Access, Media};
use crate::options::{Downtime, Durability};
use crate::wal::segment::CAPACITY_MAX;
use ebbtide_core::error::{Error as Core, Result as CoreResult};
use ebbtide_core::identity::{Identity, KINDS, Lines, line};
use std::fmt::Write;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

const TITLE: &str = "ebbtide meta ";
const CHECKSUM: &str = "checksum ";
/// The line that only altered filters have.
const LOG: &str = "log";
const REMEDY: &str = "it alone holds the kind, its parameters and the seed of the key hash, so \
                      without it nothing can be saved: copy `meta` from any backup of this filter \
                      that was made since it was last altered";
/// An upper bound of the size of a `meta` file.
const BYTES_MAX: u64 = 64 << 10;

/// The contents of `meta`.
#[derive(Debug, Clone)]
pub struct Meta {
    /// Identifies the filter, its keys' hash, its layout and its kind; the image repeats the uuid.
    pub identity: Identity,
    /// Identifies the log and the snapshots of these parameters, which repeat it: the uuid, or
    /// another number since the filter was altered.
    pub log_uuid: u128,
    /// Records in each log segment.
    pub segment_records: u64,
    /// The filter's durability.
    pub durability: Durability,
    /// How time passes while no process has the filter open.
    pub downtime: Downtime,
}

/// What `meta` adds to the identity is small: most readers of it want the identity.
impl Deref for Meta {
    type Target = Identity;

    #[inline]
    fn deref(&self) -> &Identity {
        &self.identity
    }
}

impl Meta {
    /// Encodes the file's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{TITLE}{}\n", DURABLE.written);
        self.identity.write(&mut text, |text| {
            line(text, "segment-records", &self.segment_records);
            if self.log_uuid != self.identity.uuid {
                line(text, LOG, &format_args!("{:032x}", self.log_uuid));
            }
            match self.durability {
                // The format has microseconds and no unit.
                Durability::Interval(every) => {
                    line(text, "durability", &format_args!("interval {}", every.as_micros()));
                }
                named => line(text, "durability", &named),
            }
            line(text, "downtime", &self.downtime);
        });
        let sum = crc32fast::hash(text.as_bytes());
        let _ = writeln!(text, "{CHECKSUM}{sum:08x}");
        text.into_bytes()
    }

    /// Reads a filter's `meta`.
    ///
    /// # Errors
    /// [`Error::NotAFilter`] if there is none, [`Error::Damaged`], [`Error::Version`],
    /// [`Error::Io`].
    pub fn read(media: &dyn Media) -> Result<Self> {
        Self::read_named(media, FileName::Meta)
    }

    /// As [`Meta::read`], of a file of this name.
    ///
    /// # Errors
    /// Those of [`Meta::read`].
    pub fn read_named(media: &dyn Media, file: FileName) -> Result<Self> {
        let name = file.to_string();
        let path = media.path().join(&name);
        let file = match media.open(&name, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let found = match media.list() {
                    Ok(names) if names.is_empty() => "an empty directory".to_owned(),
                    Ok(_) => "a directory without one".to_owned(),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                        "nothing".to_owned()
                    }
                    Err(error) => error.to_string(),
                };
                return Err(Error::NotAFilter { path: media.path().to_path_buf(), found });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                let found = "a file that is not a directory".to_owned();
                return Err(Error::NotAFilter { path: media.path().to_path_buf(), found });
            }
            Err(error) => return Err(Error::io("open", &path)(error)),
        };
        let bytes = file.bytes().map_err(Error::io("measure", &path))?;
        if bytes > BYTES_MAX {
            let expected = format!("at most {BYTES_MAX} bytes");
            return Err(damaged(&path, 0, expected, format!("{bytes} bytes")));
        }
        let mut text = vec![0; bytes as usize];
        file.read_at(&mut text, 0).map_err(Error::io("read", &path))?;
        Self::decode(&text, &path)
    }

    /// Decodes the file's bytes: checksum, then version, then the rest.
    ///
    /// No error shows content from where the seed may be: a truncated file may end in it.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the offset, [`Error::Version`].
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Self> {
        if !bytes.starts_with(TITLE.as_bytes()) {
            let found = if bytes.is_empty() { "nothing" } else { "something else" };
            let expected = format!("the line `{TITLE}{}`", DURABLE.written);
            return Err(damaged(path, 0, expected, found.to_owned()));
        }
        let body_end = bytes.len().saturating_sub(CHECKSUM.len() + 9);
        let (body, last) = bytes.split_at(body_end);
        let sum = crc32fast::hash(body);
        if last != format!("{CHECKSUM}{sum:08x}\n").as_bytes() {
            let found = if last.starts_with(CHECKSUM.as_bytes()) { "another sum" } else { "none" };
            let expected = "a last line with the checksum of the others".to_owned();
            return Err(damaged(path, body_end as u64, expected, found.to_owned()));
        }
        let text = std::str::from_utf8(body).map_err(|e| {
            damaged(path, e.valid_up_to() as u64, "text".into(), "other bytes".into())
        })?;
        let mut lines = Lines::new(text);
        let in_file = |error| match error {
            Core::Damaged { expected, found, .. } => damaged(path, 0, expected, found),
            other => other.into(),
        };
        let version = lines.take(TITLE.trim_end(), "a number").map_err(in_file)?;
        DURABLE.check(version, path)?;
        let (identity, others) = Identity::read(&mut lines, KINDS, others).map_err(in_file)?;
        let Others { segment_records, log_uuid, durability, downtime } = others;
        let log_uuid = log_uuid.unwrap_or(identity.uuid);
        Ok(Self { identity, log_uuid, segment_records, durability, downtime })
    }
}

/// The lines that the identity does not have.
struct Others {
    segment_records: u64,
    log_uuid: Option<u128>,
    durability: Durability,
    downtime: Downtime,
}

fn others(lines: &mut Lines<'_>) -> CoreResult<Others> {
    let segment_records = lines.number("segment-records", 1, CAPACITY_MAX)?;
    let log_uuid = lines.is_next(LOG).then(|| lines.hexadecimal(LOG)).transpose()?;
    let expected = "always, never or interval";
    let value: String = lines.take("durability", expected)?;
    let interval = value.strip_prefix("interval ").and_then(|micros| micros.parse().ok());
    let durability = match (value.as_str(), interval) {
        ("always", _) => Durability::Always,
        ("never", _) => Durability::Never,
        (_, Some(micros)) => Durability::Interval(Duration::from_micros(micros)),
        _ => return Err(Lines::wrong("durability", expected, &value)),
    };
    let downtime = match lines.take::<String>("downtime", "age or freeze")?.as_str() {
        "age" => Downtime::Age,
        "freeze" => Downtime::Freeze,
        other => return Err(Lines::wrong("downtime", "age or freeze", other)),
    };
    Ok(Others { segment_records, log_uuid, durability, downtime })
}

fn damaged(path: &Path, offset: u64, expected: String, found: String) -> Error {
    Error::Damaged { path: path.to_path_buf(), offset, expected, found, remedy: REMEDY }
}

/// Returns some `meta` with this uuid.
#[cfg(test)]
pub(crate) fn sample(uuid: u128) -> Meta {
    use ebbtide_core::hash::{KeyHash, KeyHasher};
    let parameters = ebbtide_core::kind::Parameters::new().with("capacity", 1000);
    let kind = ebbtide_core::kinds::registry::build("bloom", &parameters).expect("a kind");
    let layout = ebbtide_core::block::Layout { stripes: 2, block_words: 64 };
    let hasher = KeyHasher::new(KeyHash::Fast, 7);
    Meta {
        identity: Identity { uuid, hasher, layout, max_lead: 3_600_000_000, kind },
        log_uuid: uuid,
        segment_records: 128,
        durability: Durability::Never,
        downtime: Downtime::Age,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_core::hash::{KeyHash, KeyHasher};

    fn meta(hasher: KeyHasher) -> Meta {
        let meta = sample(0x1234);
        Meta { identity: Identity { hasher, ..meta.identity }, ..meta }
    }

    /// Encodes with one text replaced by another, and a correct checksum.
    fn with(meta: &Meta, old: &str, new: &str) -> Vec<u8> {
        let text = String::from_utf8(meta.encode()).expect("text");
        let (body, _) = text.rsplit_once(CHECKSUM).expect("a checksum");
        assert!(body.contains(old), "{body}");
        let body = body.replace(old, new);
        let sum = crc32fast::hash(body.as_bytes());
        format!("{body}{CHECKSUM}{sum:08x}\n").into_bytes()
    }

    const SIPHASH: &str = "hash siphash-2-4\nseed 00112233445566778899aabbccddeeff\n";

    fn keyed() -> Meta {
        meta(KeyHasher::new(KeyHash::Keyed, 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff))
    }

    #[test]
    fn the_first_lines_are_those_of_the_format_and_read_back() {
        let written = DURABLE.written;
        let title = format!("{TITLE}{written}\nuuid 00000000000000000000000000001234\n");
        let fast = meta(KeyHasher::new(KeyHash::Fast, 7));
        for (meta, lines) in [(fast, "hash xxh3-64\nseed 0000000000000007\n"), (keyed(), SIPHASH)] {
            let bytes = meta.encode();
            let expected = format!("{title}{lines}stripes 2\nblock-words 64\n");
            assert!(bytes.starts_with(expected.as_bytes()), "{}", String::from_utf8_lossy(&bytes));
            let read = Meta::decode(&bytes, Path::new("meta")).expect("what was written");
            assert!(read.hasher == meta.hasher && read.encode() == bytes);
        }
    }

    #[test]
    fn the_log_of_an_altered_filter_has_a_number_of_its_own_that_reads_back() {
        let altered = Meta { log_uuid: 0xabc, ..keyed() }.encode();
        let text = String::from_utf8_lossy(&altered);
        assert!(text.contains("\nlog 00000000000000000000000000000abc\n"), "{text}");
        assert!(!String::from_utf8_lossy(&keyed().encode()).contains("\nlog "));
        for (bytes, log) in [(altered, 0xabc), (keyed().encode(), 0x1234)] {
            let read = Meta::decode(&bytes, Path::new("meta")).expect("what was written");
            assert_eq!((read.log_uuid, read.uuid, read.encode()), (log, 0x1234, bytes));
        }
    }

    #[test]
    fn an_interval_has_microseconds_without_a_unit_and_reads_back() {
        let every = Durability::Interval(Duration::from_secs(1));
        for (durability, line) in [
            (Durability::Always, "always"),
            (every, "interval 1000000"),
            (Durability::Never, "never"),
        ] {
            let bytes = Meta { durability, ..keyed() }.encode();
            let text = String::from_utf8_lossy(&bytes);
            assert!(text.contains(&format!("\ndurability {line}\n")), "{text}");
            let read = Meta::decode(&bytes, Path::new("meta")).expect("what was written");
            assert_eq!(read.durability, durability);
        }
    }

    #[test]
    fn a_seed_of_another_length_and_an_unknown_hash_are_damage_that_tells_no_seed() {
        for wrong in [
            "hash siphash-2-4\nseed 8899aabbccddeeff\n",
            "hash siphash-2-4\nseed 00112233445566778899aabbccddeeff0\n",
            "hash siphash-2-4\nseed 00112233445566778899aabbccddeefg\n",
            "hash xxh3-64\nseed 00112233445566778899aabbccddeeff\n",
            "hash siphash-1-3\nseed 00112233445566778899aabbccddeeff\n",
            "seed 00112233445566778899aabbccddeeff\nhash siphash-2-4\n",
        ] {
            let error = Meta::decode(&with(&keyed(), SIPHASH, wrong), Path::new("meta"));
            let error = error.expect_err(wrong);
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
            assert!(!error.to_string().contains("aabbcc"), "{error}");
        }
    }

    #[test]
    fn versions_that_are_not_read_are_named_and_older_ones_that_are_read_say_the_same() {
        let of = |version: u64| {
            let title = format!("{TITLE}{}", DURABLE.written);
            let meta = with(&keyed(), &title, &format!("{TITLE}{version}"));
            Meta::decode(&meta, Path::new("meta"))
        };
        for version in DURABLE.oldest..=DURABLE.written {
            assert_eq!(of(version.into()).expect("a version that is read").uuid, 0x1234);
        }
        let newer = DURABLE.written + 1;
        for (version, named) in [(3, 3), (newer.into(), newer), (1 << 32, u32::MAX)] {
            match of(version) {
                Err(Error::Version { expected, found, .. }) => {
                    assert_eq!((expected, found), (DURABLE.written, named));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
