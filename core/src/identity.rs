//! What only an alteration changes of a filter: its identity, as lines of text with one name and
//! value each.
//!
//! Hosts keep the lines where they keep the filter: the engine in its file `meta`, between lines of
//! its own, [`Machine`](crate::machine::Machine) in the first piece that it saves. They hold the
//! secret of the key hash. No error shows content from where the secret may be.

use crate::block::Layout;
use crate::error::{Error, Result};
use crate::event::Micros;
use crate::hash::{KeyHash, KeyHasher, short_checksum};
use crate::kind::{Kind, Parameters};
use crate::kinds::registry;
use std::fmt::{Display, Write};
use std::str::FromStr;
use std::sync::Arc;

const TITLE: &str = "ebbtide identity ";
const CHECKSUM: &str = "checksum ";
const VERSION: u32 = 1;

/// The part that errors name.
const WHAT: &str = "identity";

/// Builds a kind from its name and its completed parameters: [`registry::build`], or a function
/// that also has kinds of its own.
pub type Build<'a> = &'a dyn Fn(&str, &Parameters) -> Result<Arc<dyn Kind>>;

/// What never changes of a filter, and what its state is a function of, beside its records.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Identifies the filter.
    pub uuid: u128,
    /// The hash function of keys, with its secret.
    pub hasher: KeyHasher,
    /// The number of stripes and the block size.
    pub layout: Layout,
    /// How far ahead of the wall clock a key's time may lie, in microseconds.
    pub max_lead: Micros,
    /// The kind with its parameters.
    pub kind: Arc<dyn Kind>,
}

/// Returns the layout of a filter of this kind, with as many stripes and blocks of this size if
/// they are given, or as the kind proposes.
#[must_use]
pub fn layout(kind: &dyn Kind, stripes: Option<u32>, block_bytes: Option<u64>) -> Layout {
    let proposed = kind.default_block_words();
    let block_words = block_bytes.map_or(proposed, |bytes| (bytes / 8) as u32);
    let stripes = stripes.unwrap_or_else(|| kind.default_stripes(block_words));
    Layout { stripes, block_words }
}

/// Checks that a new filter of this kind works within its limit of memory.
///
/// # Errors
/// [`Error::Parameter`] if it needs more to begin with.
pub fn check_max_memory(kind: &dyn Kind, layout: Layout) -> Result<()> {
    let least = kind.least_max_memory(layout);
    match kind.max_memory() {
        Some(most) if most < least => {
            let expected = format!("at least {least} bytes, what this filter begins with");
            Err(Error::parameter("max-memory", expected, most))
        }
        _ => Ok(()),
    }
}

/// Returns the name of a hash function, and the number of hexadecimal digits of its secret. A
/// filter made with another function cannot be opened.
fn described(function: KeyHash) -> (&'static str, usize) {
    match function {
        KeyHash::Fast => ("xxh3-64", 16),
        KeyHash::Keyed => ("siphash-2-4", 32),
    }
}

/// Appends a line.
pub fn line(text: &mut String, name: &str, value: &dyn Display) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{name} {value}");
}

impl Identity {
    /// Appends the lines. `others` appends those of the host, which stand between block size and
    /// maximal lead.
    pub fn write(&self, text: &mut String, others: impl FnOnce(&mut String)) {
        line(text, "uuid", &format_args!("{:032x}", self.uuid));
        let (name, digits) = described(self.hasher.function());
        line(text, "hash", &name);
        line(text, "seed", &format_args!("{:0digits$x}", self.hasher.secret()));
        line(text, "stripes", &self.layout.stripes);
        line(text, "block-words", &self.layout.block_words);
        others(text);
        line(text, "max-lead", &self.max_lead);
        line(text, "kind", &self.kind.name());
        for (name, value) in self.kind.parameters().iter() {
            line(text, "parameter", &format_args!("{name} {value}"));
        }
    }

    /// Reads what [`Identity::write`] has written, to the end; `others` reads the host's lines.
    ///
    /// # Errors
    /// [`Error::Damaged`], and errors of `others`.
    pub fn read<T>(
        lines: &mut Lines<'_>,
        build: Build<'_>,
        others: impl FnOnce(&mut Lines<'_>) -> Result<T>,
    ) -> Result<(Self, T)> {
        let uuid = lines.hexadecimal("uuid")?;
        let hasher = lines.hasher()?;
        let layout = Layout {
            stripes: lines.number("stripes", 1, Layout::MOST_STRIPES.into())? as u32,
            block_words: lines.number(
                "block-words",
                Layout::LEAST_BLOCK_WORDS.into(),
                Layout::MOST_BLOCK_WORDS.into(),
            )? as u32,
        };
        let others = others(lines)?;
        let max_lead = lines.number("max-lead", 0, u64::MAX)?;
        let kind = lines.kind(build)?;
        Ok((Self { uuid, hasher, layout, max_lead, kind }, others))
    }

    /// Encodes the identity alone, with a version and a checksum.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{TITLE}{VERSION}\n");
        self.write(&mut text, |_| {});
        let sum = short_checksum(text.as_bytes(), 0);
        let _ = writeln!(text, "{CHECKSUM}{sum:016x}");
        text.into_bytes()
    }

    /// Decodes what [`Identity::encode`] returned: checksum, then version, then the rest.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Version`].
    pub fn decode(bytes: &[u8], build: Build<'_>) -> Result<Self> {
        if !bytes.starts_with(TITLE.as_bytes()) {
            return Err(damaged(format!("the line `{TITLE}{VERSION}`"), "something else"));
        }
        let body_end = bytes.len().saturating_sub(CHECKSUM.len() + 17);
        let (body, last) = bytes.split_at(body_end);
        let sum = short_checksum(body, 0);
        if last != format!("{CHECKSUM}{sum:016x}\n").as_bytes() {
            let found = if last.starts_with(CHECKSUM.as_bytes()) { "another sum" } else { "none" };
            return Err(damaged("a last line with the checksum of the others", found));
        }
        let text = std::str::from_utf8(body).map_err(|_| damaged("text", "other bytes"))?;
        let mut lines = Lines::new(text);
        match lines.take::<u64>(TITLE.trim_end(), "a number")? {
            version if version == VERSION.into() => {}
            found => return Err(Error::Version { expected: VERSION, found }),
        }
        Ok(Self::read(&mut lines, build, |_| Ok(()))?.0)
    }
}

fn damaged(expected: impl Into<String>, found: impl Into<String>) -> Error {
    Error::Damaged { what: WHAT.to_owned(), expected: expected.into(), found: found.into() }
}

/// Lines that have passed their checksum, read one by one.
#[derive(Debug)]
pub struct Lines<'a>(&'a str);

impl<'a> Lines<'a> {
    /// Begins with the first line of a text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// Returns the value of the next line, which must have this name.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it has not, or if the value is no `T`.
    pub fn take<T: FromStr>(&mut self, name: &str, expected: &str) -> Result<T> {
        let (line, rest) = self.0.split_once('\n').unwrap_or((self.0, ""));
        self.0 = rest;
        let value = line.strip_prefix(name).and_then(|value| value.strip_prefix(' '));
        let value = value.ok_or_else(|| Self::wrong(name, "a line of this name", "another"))?;
        value.parse().map_err(|_| Self::wrong(name, expected, value))
    }

    /// Returns whether the next line has this name.
    #[must_use]
    pub fn is_next(&self, name: &str) -> bool {
        self.0.strip_prefix(name).is_some_and(|value| value.starts_with(' '))
    }

    /// Returns an integer within bounds, both included.
    ///
    /// # Errors
    /// [`Error::Damaged`] for anything else.
    pub fn number(&mut self, name: &str, least: u64, most: u64) -> Result<u64> {
        let expected = format!("an integer from {least} to {most}");
        let value: u64 = self.take(name, &expected)?;
        if (least..=most).contains(&value) {
            Ok(value)
        } else {
            Err(Self::wrong(name, &expected, &value.to_string()))
        }
    }

    /// Creates the error for a line with an unexpected value.
    #[must_use]
    pub fn wrong(name: &str, expected: &str, found: &str) -> Error {
        damaged(format!("{name}: {expected}"), format!("`{}`", found.escape_debug()))
    }

    /// Returns a hexadecimal number.
    ///
    /// # Errors
    /// [`Error::Damaged`] for anything else.
    pub fn hexadecimal(&mut self, name: &str) -> Result<u128> {
        let value: String = self.take(name, "hexadecimal digits")?;
        u128::from_str_radix(&value, 16)
            .map_err(|_| Self::wrong(name, "hexadecimal digits", &value))
    }

    fn hasher(&mut self) -> Result<KeyHasher> {
        let name: String = self.take("hash", "a hash function's name")?;
        let known = [KeyHash::Fast, KeyHash::Keyed];
        let Some(function) = known.into_iter().find(|&known| described(known).0 == name) else {
            let names = known.map(|known| described(known).0).join(" or ");
            return Err(Self::wrong("hash", &names, &name));
        };
        let seed: String = self.take("seed", "hexadecimal digits")?;
        let digits = described(function).1;
        match u128::from_str_radix(&seed, 16) {
            Ok(secret) if seed.len() == digits => Ok(KeyHasher::new(function, secret)),
            _ => {
                let expected = format!("{digits} hexadecimal digits");
                Err(Self::wrong("seed", &expected, "something else"))
            }
        }
    }

    /// Reads the kind and its parameters, which are the last lines.
    fn kind(&mut self, build: Build<'_>) -> Result<Arc<dyn Kind>> {
        let name: String = self.take("kind", "a kind's name")?;
        let mut parameters = Parameters::new();
        while !self.0.is_empty() {
            let line: String = self.take("parameter", "a name and a value")?;
            match line.split_once(' ') {
                Some((name, value)) => parameters.set(name, value),
                None => return Err(Self::wrong("parameter", "a name and a value", &line)),
            }
        }
        build(&name, &parameters).map_err(|error| {
            Self::wrong("kind", "parameters that its kind takes", &error.to_string())
        })
    }
}

/// The kinds of this crate, for readers of an identity.
pub const KINDS: Build<'static> = &registry::build;
