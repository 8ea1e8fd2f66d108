//! The bytes of a link of the chain: lines of text, a blank line, content, and a digest of all
//! that.
//!
//! `head -n 20` shows what an object is. The digest is checked first; then the version, then the
//! rest. It does not know where objects lie.

use crate::error::{Error, Result};
use ebbtide::inspect::Piece;
use std::collections::BTreeMap;
use std::fmt::Write;
use xxhash_rust::xxh3::xxh3_128;

/// The version that is written.
pub const VERSION: u32 = 1;
const TITLE: &str = "ebbtide link ";
const DIGEST: &str = "digest ";
/// The length of the last line.
const DIGEST_BYTES: usize = DIGEST.len() + 32 + 1;
/// The largest LSN within reason.
const LSN_MAX: u64 = 1 << 62;
const REMEDY: &str = "fetch an older state with `--at`, or ship the filter to a new prefix from a \
                      machine that has it";

/// One object of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its number in the chain, from 1 on.
    pub number: u64,
    /// The digest of the link before it; 0 for the first.
    pub before: u128,
    /// Its shipper's timeline: each shipper begins one.
    pub timeline: u64,
    /// A random number of the shipper.
    pub shipper: u128,
    /// When it was written, by the shipper's clock, in microseconds of Unix time. Nothing is
    /// decided by it.
    pub written: u64,
    /// The uuid of the filter.
    pub filter: u128,
    /// What it says.
    pub content: Content,
}

/// What a link says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A shipper begins a timeline.
    Begin(Begin),
    /// Records, and the latest time among them in microseconds.
    Log(Piece, u64),
    /// A snapshot can be fetched.
    Snapshot(Snapshot),
}

/// The beginning of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// Why.
    pub cause: Cause,
    /// The number of the log.
    pub log: u128,
    /// The LSN of the first record that follows.
    pub first: u64,
    /// Whether it follows the last record of the chain. Otherwise a snapshot will come, unless the
    /// log begins at LSN 1.
    pub continues: bool,
    /// The filter's `meta`.
    pub meta: Vec<u8>,
}

/// Why a timeline begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The chain was empty.
    Created,
    /// A shipper started.
    Started,
    /// A shipper started that was allowed to begin anew.
    TakenOver,
    /// The filter was altered.
    Altered,
    /// Log was removed before it was shipped.
    Gap,
}

const CAUSES: [(Cause, &str); 5] = [
    (Cause::Created, "created"),
    (Cause::Started, "started"),
    (Cause::TakenOver, "taken-over"),
    (Cause::Altered, "altered"),
    (Cause::Gap, "gap"),
];

impl Cause {
    /// Returns its name in the object.
    #[must_use]
    pub fn name(self) -> &'static str {
        CAUSES.iter().find(|(cause, _)| *cause == self).map_or("", |(_, name)| name)
    }
}

/// A snapshot in an object of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The object.
    pub name: String,
    /// The number of the log.
    pub log: u128,
    /// The highest timeline that the engine had begun when the snapshot was uploaded. (An earlier
    /// version: that in which it was written.)
    pub engine_timeline: u64,
    /// Records from this LSN on are needed.
    pub start: u64,
    /// Those below this one must be there.
    pub end: u64,
    /// The length of the object.
    pub bytes: u64,
    /// The number of the link that has the record of LSN `start`.
    pub from_link: u64,
    /// The length of a part.
    pub part_bytes: u64,
    /// The digest of each part.
    pub digests: Vec<u128>,
    /// The filter's `meta`.
    pub meta: Vec<u8>,
}

/// Returns the digest of an object or of a part of one.
#[must_use]
pub fn digest(bytes: &[u8]) -> u128 {
    xxh3_128(bytes)
}

fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{name} {value}");
}

impl Link {
    /// Encodes the object.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{TITLE}{VERSION}\n");
        line(&mut text, "number", self.number);
        line(&mut text, "before", format_args!("{:032x}", self.before));
        line(&mut text, "timeline", self.timeline);
        line(&mut text, "shipper", format_args!("{:032x}", self.shipper));
        line(&mut text, "written", self.written);
        line(&mut text, "filter", format_args!("{:032x}", self.filter));
        let content = match &self.content {
            Content::Begin(begin) => begin.encode(&mut text),
            Content::Log(piece, latest) => {
                line(&mut text, "content", "log");
                line(&mut text, "log", format_args!("{:032x}", piece.log));
                line(&mut text, "engine-timeline", piece.timeline);
                line(&mut text, "first", piece.first);
                line(&mut text, "end", piece.end());
                line(&mut text, "latest", latest);
                piece.records.clone()
            }
            Content::Snapshot(snapshot) => snapshot.encode(&mut text),
        };
        line(&mut text, "bytes", content.len());
        text.push('\n');
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&content);
        let digest = digest(&bytes);
        bytes.extend_from_slice(format!("{DIGEST}{digest:032x}\n").as_bytes());
        bytes
    }

    /// Decodes an object, which is called `object` in errors.
    ///
    /// # Errors
    /// [`Error::Object`].
    pub fn decode(object: &str, bytes: &[u8]) -> Result<Self> {
        let wrong = |expected: &str, found: String| Error::object(object, expected, found, REMEDY);
        if !bytes.starts_with(TITLE.as_bytes()) {
            let found = format!("{} bytes of something else", bytes.len());
            return Err(wrong("a link of a chain of ebbtide", found));
        }
        let at = bytes.len().saturating_sub(DIGEST_BYTES);
        let (sealed, last) = bytes.split_at(at);
        let expected = format!("{DIGEST}{:032x}\n", digest(sealed));
        if last != expected.as_bytes() {
            let found = format!("`{}`", String::from_utf8_lossy(last).trim_end().escape_debug());
            return Err(wrong(&format!("`{}` at its end", expected.trim_end()), found));
        }
        let version = sealed[TITLE.len()..].split(|&byte| byte == b'\n').next().unwrap_or_default();
        if version != VERSION.to_string().as_bytes() {
            let (object, version) = (object.to_owned(), String::from_utf8_lossy(version));
            let (expected, found) = (format!("version {VERSION}"), format!("version {version}"));
            let remedy = "use a version of ebbtide that knows it";
            return Err(Error::Object { object, expected, found, remedy });
        }
        Fields::of(object, sealed)?.link()
    }
}

impl Begin {
    fn encode(&self, text: &mut String) -> Vec<u8> {
        line(text, "content", "begin");
        line(text, "cause", self.cause.name());
        line(text, "log", format_args!("{:032x}", self.log));
        line(text, "first", self.first);
        line(text, "continues", if self.continues { "yes" } else { "no" });
        self.meta.clone()
    }
}

impl Snapshot {
    fn encode(&self, text: &mut String) -> Vec<u8> {
        line(text, "content", "snapshot");
        line(text, "name", &self.name);
        line(text, "log", format_args!("{:032x}", self.log));
        line(text, "engine-timeline", self.engine_timeline);
        line(text, "start", self.start);
        line(text, "end", self.end);
        line(text, "length", self.bytes);
        line(text, "from-link", self.from_link);
        line(text, "part-bytes", self.part_bytes);
        line(text, "parts", self.digests.len());
        let digests = self.digests.iter().flat_map(|digest| digest.to_le_bytes());
        digests.chain(self.meta.iter().copied()).collect()
    }
}

/// The lines of an object, and its content.
struct Fields<'a> {
    object: &'a str,
    lines: BTreeMap<&'a str, &'a str>,
    content: &'a [u8],
}

impl<'a> Fields<'a> {
    fn of(object: &'a str, bytes: &'a [u8]) -> Result<Self> {
        let wrong = |found: &str| Error::object(object, "lines and content", found, REMEDY);
        let end = bytes.windows(2).position(|pair| pair == b"\n\n");
        let end = end.ok_or_else(|| wrong("no blank line"))?;
        let text = std::str::from_utf8(&bytes[..end]).map_err(|_| wrong("no text"))?;
        let lines = text.lines().filter_map(|line| line.split_once(' ')).collect();
        let found = Self { object, lines, content: &bytes[end + 2..] };
        if found.number("bytes")? != found.content.len() as u64 {
            return Err(wrong("content of another length"));
        }
        Ok(found)
    }

    fn text(&self, name: &str) -> Result<&'a str> {
        let wrong = || Error::object(self.object, format!("a line `{name}`"), "none", REMEDY);
        self.lines.get(name).copied().ok_or_else(wrong)
    }

    fn number(&self, name: &str) -> Result<u64> {
        let text = self.text(name)?;
        let expected = || format!("a number as `{name}`");
        text.parse().map_err(|_| Error::object(self.object, expected(), text, REMEDY))
    }

    /// Returns an LSN, or the number of a link or a timeline: from 1 on, within reason.
    fn counted(&self, name: &str) -> Result<u64> {
        let number = self.number(name)?;
        let wrong = || {
            let expected = format!("1 to {LSN_MAX} as `{name}`");
            Error::object(self.object, expected, number.to_string(), REMEDY)
        };
        Some(number).filter(|number| (1..=LSN_MAX).contains(number)).ok_or_else(wrong)
    }

    fn id(&self, name: &str) -> Result<u128> {
        let text = self.text(name)?;
        let expected = || format!("32 hexadecimal digits as `{name}`");
        u128::from_str_radix(text, 16)
            .map_err(|_| Error::object(self.object, expected(), text, REMEDY))
    }

    fn link(&self) -> Result<Link> {
        let content = match self.text("content")? {
            "begin" => Content::Begin(self.begin()?),
            "log" => self.log()?,
            "snapshot" => Content::Snapshot(self.snapshot()?),
            other => {
                let expected = "begin, log or snapshot as `content`";
                return Err(Error::object(self.object, expected, other, REMEDY));
            }
        };
        Ok(Link {
            number: self.counted("number")?,
            before: self.id("before")?,
            timeline: self.counted("timeline")?,
            shipper: self.id("shipper")?,
            written: self.number("written")?,
            filter: self.id("filter")?,
            content,
        })
    }

    fn begin(&self) -> Result<Begin> {
        let name = self.text("cause")?;
        let cause = CAUSES.iter().find(|(_, known)| *known == name).map(|(cause, _)| *cause);
        let wrong = || Error::object(self.object, "a known cause", name, REMEDY);
        Ok(Begin {
            cause: cause.ok_or_else(wrong)?,
            log: self.id("log")?,
            first: self.counted("first")?,
            continues: self.text("continues")? == "yes",
            meta: self.content.to_vec(),
        })
    }

    fn log(&self) -> Result<Content> {
        let (log, timeline) = (self.id("log")?, self.number("engine-timeline")?);
        let (first, end) = (self.counted("first")?, self.counted("end")?);
        let piece = Piece::of_bytes(log, timeline, first, self.content.to_vec());
        if piece.end() != end || !piece.records.len().is_multiple_of(32) {
            let (expected, found) = (format!("records up to LSN {end}"), piece.end().to_string());
            return Err(Error::object(self.object, expected, found, REMEDY));
        }
        Ok(Content::Log(piece, self.number("latest")?))
    }

    fn snapshot(&self) -> Result<Snapshot> {
        let parts = self.number("parts")? as usize;
        let digests = parts.checked_mul(16).and_then(|bytes| self.content.split_at_checked(bytes));
        let wrong = || Error::object(self.object, format!("{parts} digests"), "less", REMEDY);
        let (digests, meta) = digests.ok_or_else(wrong)?;
        let digests = digests.chunks_exact(16).map(|bytes| {
            let mut digest = [0; 16];
            digest.copy_from_slice(bytes);
            u128::from_le_bytes(digest)
        });
        let (start, end) = (self.counted("start")?, self.counted("end")?);
        let (number, from_link) = (self.counted("number")?, self.counted("from-link")?);
        if end < start || number < from_link {
            let expected = "`start` up to `end`, and `from-link` up to `number`";
            let found = format!("{start} and {end}, {from_link} and {number}");
            return Err(Error::object(self.object, expected, found, REMEDY));
        }
        Ok(Snapshot {
            name: self.text("name")?.to_owned(),
            log: self.id("log")?,
            engine_timeline: self.number("engine-timeline")?,
            start,
            end,
            bytes: self.number("length")?,
            from_link,
            part_bytes: self.number("part-bytes")?,
            digests: digests.collect(),
            meta: meta.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_that_ends_before_its_start_or_begins_behind_its_link_is_damage() {
        for ((start, end, from_link), is_sound) in
            [((5, 5, 3), true), ((5, 9, 1), true), ((5, 4, 3), false), ((5, 9, 4), false)]
        {
            let snapshot = Snapshot {
                name: "a".into(),
                log: 1,
                engine_timeline: 1,
                start,
                end,
                bytes: 0,
                from_link,
                part_bytes: 1,
                digests: Vec::new(),
                meta: Vec::new(),
            };
            let content = Content::Snapshot(snapshot);
            let (before, timeline, shipper, written, filter) = (2, 1, 1, 0, 7);
            let link = Link { number: 3, before, timeline, shipper, written, filter, content };
            let decoded = Link::decode("chain/3", &link.encode());
            assert_eq!(decoded.is_ok(), is_sound, "{decoded:?}");
        }
    }
}
