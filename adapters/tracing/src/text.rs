//! The bytes that stand for an event: the same for the same event, in each run of the program.

use std::error::Error;
use std::fmt::{self, Write};
use tracing_core::Event;
use tracing_core::field::{Field, Visit};

/// Returns the key of an event, without its ignored fields.
pub(crate) fn key(event: &Event<'_>, ignored: &[String]) -> Vec<u8> {
    let metadata = event.metadata();
    let mut text = Text { key: Vec::with_capacity(256), value: String::new(), ignored };
    text.part(metadata.level().as_str());
    text.part(metadata.target());
    event.record(&mut text);
    text.key
}

/// Collects an event's fields.
struct Text<'a> {
    key: Vec<u8>,
    value: String,
    ignored: &'a [String],
}

impl Text<'_> {
    /// Adds a part with its length, so that no two lists of parts have the same bytes.
    fn part(&mut self, part: &str) {
        self.key.extend((part.len() as u64).to_le_bytes());
        self.key.extend(part.as_bytes());
    }

    fn field(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if self.ignored.iter().any(|ignored| ignored == field.name()) {
            return;
        }
        let mut text = std::mem::take(&mut self.value);
        text.clear();
        // A value whose formatting fails counts as far as it went.
        let _ = text.write_fmt(value);
        self.part(field.name());
        self.part(&text);
        self.value = text;
    }
}

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.field(field, format_args!("{value}"));
    }

    /// Adds an error and its sources, which it need not name itself.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        for error in std::iter::successors(Some(value), |error| (*error).source()) {
            self.field(field, format_args!("{error}"));
        }
    }
}
