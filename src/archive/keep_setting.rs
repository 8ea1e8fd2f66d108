//! The file `keep`: how much of the log all handles of a filter keep.
//!
//! Two lines of text and their checksum. Without the file nothing is kept.

use crate::error::{Error, Result};
use crate::format::header::DURABLE;
use crate::format::names::FileName;
use crate::media::{Access, Media};
use crate::options::Keep;
use std::io::ErrorKind;
use std::time::Duration;

const TITLE: &str = "ebbtide keep ";
const REMEDY: &str = "it only says how much log is kept: open the filter with `keep_log` \
                      (`--keep-log 24h`, or `nothing`) to write it again";
/// An upper bound of its size.
const BYTES_MAX: u64 = 4096;

/// Encodes the file's bytes.
#[must_use]
pub fn encode(keep: Keep) -> Vec<u8> {
    let value = match keep.in_seconds() {
        Keep::Nothing => "nothing".to_owned(),
        Keep::For(time) => format!("seconds {}", time.as_secs()),
        Keep::Bytes(bytes) => format!("bytes {bytes}"),
    };
    let text = format!("{TITLE}{}\nlog {value}\n", DURABLE.written);
    let sum = crc32fast::hash(text.as_bytes());
    format!("{text}checksum {sum:08x}\n").into_bytes()
}

fn decode(bytes: &[u8]) -> Option<Keep> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (body, last) = text.trim_end().rsplit_once('\n')?;
    let sum = crc32fast::hash(format!("{body}\n").as_bytes());
    if last != format!("checksum {sum:08x}") {
        return None;
    }
    let value = body.strip_prefix(TITLE)?.split_once("\nlog ")?.1;
    match value.split_once(' ') {
        None if value == "nothing" => Some(Keep::Nothing),
        Some(("seconds", number)) => Some(Keep::For(Duration::from_secs(number.parse().ok()?))),
        Some(("bytes", number)) => Some(Keep::Bytes(number.parse().ok()?)),
        _ => None,
    }
}

/// Reads how much is kept.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Io`].
pub fn read(media: &dyn Media) -> Result<Keep> {
    Ok(read_if_there(media)?.unwrap_or(Keep::Nothing))
}

/// Reads how much is kept; `None` if the file is not there.
///
/// # Errors
/// As [`read`].
pub fn read_if_there(media: &dyn Media) -> Result<Option<Keep>> {
    let name = FileName::Keep.to_string();
    let path = media.path().join(&name);
    let file = match media.open(&name, Access::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(Error::io("open", &path))?,
    };
    let mut text =
        vec![0; file.bytes().map_err(Error::io("measure", &path))?.min(BYTES_MAX) as usize];
    file.read_at(&mut text, 0).map_err(Error::io("read", &path))?;
    let found = decode(&text).ok_or_else(|| Error::Damaged {
        path,
        offset: 0,
        expected: format!("`{TITLE}{}`, how much log is kept, and a checksum", DURABLE.written),
        found: "something else".to_owned(),
        remedy: REMEDY,
    });
    found.map(Some)
}

/// Reads how much is kept, for whoever removes log: all of it as long as the file cannot be read.
#[must_use]
pub fn wished(media: &dyn Media) -> Keep {
    read(media).unwrap_or(Keep::Bytes(u64::MAX))
}

/// Returns whether only the log is kept that recovery needs.
#[must_use]
pub fn keeps_nothing(media: &dyn Media) -> bool {
    wished(media) == Keep::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_reads_back_and_any_other_byte_is_damage() {
        for keep in [Keep::Nothing, Keep::For(Duration::from_secs(86_400)), Keep::Bytes(1 << 40)] {
            let text = encode(keep);
            assert_eq!(decode(&text), Some(keep));
            for at in 0..text.len() - 1 {
                let mut other = text.clone();
                other[at] ^= 1;
                assert_eq!(decode(&other), None, "{keep} with another byte {at}");
                assert_eq!(decode(&text[..at]), None, "{keep} with {at} bytes");
            }
        }
    }
}
