//! Writes answers to standard output: buffered, in order, and flushed when the caller is about to
//! wait.

use crate::descriptor;
use crate::failure::{Failure, Result};
use crate::key_args::Query;
use ebbtide::units::visible;
use serde_json::{Map, Value};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// The largest number of buffered bytes, unless output is [held](Output::hold) until a flush.
const BUFFER_BYTES: usize = 64 << 10;

/// Standard output.
pub struct Output {
    file: File,
    buffer: Vec<u8>,
    /// Whether nothing is written before a flush.
    held: bool,
    /// The end of the answer to each input line in the buffer, with the line's number.
    answers: Vec<(usize, u64)>,
}

impl Output {
    /// Creates the output, with its own buffer.
    pub fn new() -> Result<Self> {
        let descriptor =
            io::stdout().as_fd().try_clone_to_owned().map_err(|error| Failure::writing(&error))?;
        let file = File::from(descriptor);
        Ok(Self { file, buffer: Vec::new(), held: false, answers: Vec::new() })
    }

    /// Writes nothing before [`Output::flush`], so that the caller can report which lines a failure
    /// leaves unprinted.
    pub fn hold(mut self) -> Self {
        self.held = true;
        self
    }

    /// Writes bytes and an end byte.
    pub fn line(&mut self, bytes: &[u8], end: u8) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.buffer.push(end);
        if self.held || self.buffer.len() < BUFFER_BYTES { Ok(()) } else { self.flush() }
    }

    /// Writes a line of text.
    pub fn text(&mut self, text: &str) -> Result<()> {
        self.line(text.as_bytes(), b'\n')
    }

    /// Writes a sentence that may name a file, whose hidden characters could change what a terminal
    /// shows.
    pub fn sentence(&mut self, text: &str) -> Result<()> {
        self.text(&visible(text))
    }

    /// Writes an object on its own line.
    pub fn json(&mut self, object: Map<String, Value>) -> Result<()> {
        self.text(&Value::Object(object).to_string())
    }

    /// Records that the output since the previous call answers the input line of this number.
    pub fn answers(&mut self, line: u64) {
        let end = self.buffer.len();
        if end > self.answers.last().map_or(0, |(end, _)| *end) {
            self.answers.push((end, line));
        }
    }

    /// Returns how many recorded lines have not been written completely, and the number of the
    /// first.
    pub fn unprinted(&self) -> Option<(usize, u64)> {
        self.answers.first().map(|(_, line)| (self.answers.len(), *line))
    }

    /// Writes the whole buffer to standard output.
    pub fn flush(&mut self) -> Result<()> {
        let mut written = 0;
        let done = descriptor::write_all(&mut self.file, &self.buffer, &mut written);
        match done {
            Ok(()) => {
                self.buffer.clear();
                self.answers.clear();
            }
            Err(_) => {
                self.buffer.drain(..written);
                self.answers.retain(|(end, _)| *end > written);
                self.answers.iter_mut().for_each(|(end, _)| *end -= written);
            }
        }
        done.map_err(|error| Failure::writing(&error))
    }

    /// Returns whether the reader has closed the output, as far as the system reports that before a
    /// write.
    pub fn is_closed(&self) -> bool {
        descriptor::is_closed(self.file.as_fd())
    }
}

/// The form of the answers to keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The answer alone.
    Plain,
    /// The answer, a tab and the key; the line ends with this byte.
    WithKey(u8),
    /// A JSON object that begins with the key.
    Json,
}

impl Form {
    /// Returns the form that the options select.
    pub fn new(query: &Query) -> Self {
        match (query.json, query.with_keys) {
            (true, _) => Self::Json,
            (false, true) => Self::WithKey(query.keys.reading.delimiter()),
            (false, false) => Self::Plain,
        }
    }

    /// Writes an answer: `text`, or the key with these members.
    pub fn answer(
        self,
        output: &mut Output,
        key: &[u8],
        text: &str,
        members: impl FnOnce() -> Map<String, Value>,
    ) -> Result<()> {
        match self {
            Self::Plain => output.text(text),
            Self::WithKey(end) => output.line(&[text.as_bytes(), b"\t", key].concat(), end),
            Self::Json => {
                let mut object = keyed(key);
                object.extend(members());
                output.json(object)
            }
        }
    }
}

/// Builds a JSON object of these members, in this order.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Map<String, Value> {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Builds a JSON object that begins with a key: as text if it is UTF-8, else in hexadecimal digits
/// under another name, so that distinct keys stay distinct.
pub fn keyed(key: &[u8]) -> Map<String, Value> {
    match std::str::from_utf8(key) {
        Ok(text) => object([("key", text.into())]),
        Err(_) => {
            let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            object([("key_hex", hex.into())])
        }
    }
}

/// Converts a parameter to JSON: to a number if it is one, else to a string.
pub fn parameter_value(text: &str) -> Value {
    if let Ok(integer) = text.parse::<u64>() {
        return integer.into();
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => number.into(),
        _ => text.into(),
    }
}

/// Formats names and values in two aligned columns.
pub fn table(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<_> =
        rows.iter().map(|(name, value)| format!("{name:width$}  {value}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_not_text_is_shown_in_hexadecimal() {
        assert_eq!(Value::Object(keyed("a\"ö".as_bytes())).to_string(), r#"{"key":"a\"ö"}"#);
        assert_eq!(Value::Object(keyed(b"a\xff")).to_string(), r#"{"key_hex":"61ff"}"#);
    }

    #[test]
    fn parameters_are_numbers_where_they_can_be() {
        assert_eq!(parameter_value("20000").to_string(), "20000");
        assert_eq!(parameter_value("0.001").to_string(), "0.001");
        assert_eq!(parameter_value("inf").to_string(), "\"inf\"");
        assert_eq!(parameter_value("ms").to_string(), "\"ms\"");
    }

    #[test]
    fn tables_are_aligned() {
        let rows = [("kind", "bloom".to_owned()), ("inserts", "7".to_owned())];
        assert_eq!(table(&rows), "kind     bloom\ninserts  7");
    }
}
