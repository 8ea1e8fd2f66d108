//! The parts of a line that are its key and its time: the whole line, fields, members of a JSON
//! object, or columns of CSV.
//!
//! The key of one part is that part. The key of several parts is the netstring of each, one after
//! the other: its length in decimal digits, a colon, its bytes, and a comma. So `a` and `bc` give
//! `1:a,2:bc,`, and `ab` and `c` give another key.

use crate::failure::{Failure, Result, misfit};
use crate::key_args::Reading;
use crate::key_syntax::{JsonPath, Separator, parse_field, parse_json_path};
use crate::splitter::{Ending, fields};
use crate::time_forms::Extent;
use memchr::memmem;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::io::Write;

/// The text in which a time stands, and where the time ends in it.
type TimeText<'b> = (Cow<'b, [u8]>, Extent);

/// A part of a line.
#[derive(Debug, Clone)]
enum Part {
    /// The whole line.
    Whole,
    /// The field of this number, from 1, between blanks.
    Blank(usize),
    /// The field of this number, from 1, between separators.
    Split(Separator, usize),
    /// A member of a JSON object.
    Json(JsonPath),
    /// The column of this name in CSV with this separator.
    Csv(String, u8),
}

/// The parts of a line that are its key, and the part that is its time.
#[derive(Debug, Clone)]
pub struct KeyParts {
    key: Vec<Part>,
    time: Option<Part>,
}

impl KeyParts {
    /// Returns the parts that the options select.
    pub fn new(reading: &Reading) -> Result<Self> {
        let refuse = |what: &str| Err(Failure::Error(what.to_owned()));
        let time = reading.times.time_field.as_deref();
        if !reading.json_field.is_empty() {
            let time = time.map(|name| {
                parse_json_path(name).map(Part::Json).map_err(|what| {
                    Failure::Error(format!("--time-field {name:?} beside --json-field: {what}"))
                })
            });
            let key = reading.json_field.iter().cloned().map(Part::Json).collect();
            return Ok(Self { key, time: time.transpose()? });
        }
        if !reading.csv_field.is_empty() {
            let separator = reading.separator.as_ref().map_or(&b","[..], |separator| &separator.0);
            let &[one] = separator else {
                return refuse("--delimiter of CSV must be one byte, such as , or ;");
            };
            if one == b'"' || one == b'\r' {
                return refuse("--delimiter of CSV must be no quote, but for example , or ;");
            }
            let column = |name: &str| Part::Csv(name.to_owned(), one);
            let key = reading.csv_field.iter().map(|name| column(name)).collect();
            return Ok(Self { key, time: time.map(column) });
        }
        if reading.separator.is_some() && reading.field.is_empty() && time.is_none() {
            return refuse(
                "--delimiter separates fields; name one by --field N or --csv-field NAME",
            );
        }
        let part = |number: usize| match &reading.separator {
            None => Part::Blank(number),
            Some(separator) => Part::Split(separator.clone(), number),
        };
        let key: Vec<_> = reading.field.iter().map(|number| part(number.get())).collect();
        let time = time.map(|number| {
            parse_field(number).map(|number| part(number.get())).map_err(|_| {
                Failure::Error(format!(
                    "--time-field {number:?} is no number of a field; a name needs --json-field or \
                     --csv-field beside it"
                ))
            })
        });
        let key = if key.is_empty() { vec![Part::Whole] } else { key };
        Ok(Self { key, time: time.transpose()? })
    }

    /// Returns what ends a line of such input, otherwise `delimiter`.
    pub fn ending(&self, delimiter: u8) -> Ending {
        match self.key[..] {
            [Part::Csv(_, separator), ..] => Ending::Record(separator),
            _ => Ending::Byte(delimiter),
        }
    }

    /// Returns whether the lines are records of CSV, whose first one is a header.
    pub fn is_csv(&self) -> bool {
        matches!(self.key[..], [Part::Csv(..), ..])
    }

    /// Returns the number of each part's column by the header of a file of CSV, from 0: those of
    /// the key, and that of the time.
    pub fn columns(&self, header: &[u8]) -> std::result::Result<Vec<usize>, String> {
        self.key.iter().chain(&self.time).map(|part| part.column(header)).collect()
    }

    /// Returns the key of a line, or what is wrong with the line. `columns` is what
    /// [`KeyParts::columns`] has returned, of CSV.
    pub fn key<'b>(
        &self,
        line: &'b [u8],
        columns: &[usize],
    ) -> std::result::Result<Cow<'b, [u8]>, String> {
        let column = |at: usize| columns.get(at).copied().unwrap_or_default();
        if let [only] = &self.key[..] {
            return only.of(line, column(0));
        }
        let mut key = Vec::new();
        for (at, part) in self.key.iter().enumerate() {
            let part = part.of(line, column(at))?;
            // Writing to memory never fails.
            let _ = write!(key, "{}:", part.len());
            key.extend_from_slice(&part);
            key.push(b',');
        }
        Ok(key.into())
    }

    /// Returns the text of the time of a line, without blanks around it, and where the time ends in
    /// it; `None` if lines have none. Between blanks the text is the rest of the line, because a
    /// time may contain blanks.
    pub fn time<'b>(
        &self,
        line: &'b [u8],
        columns: &[usize],
    ) -> std::result::Result<Option<TimeText<'b>>, String> {
        let Some(part) = &self.time else { return Ok(None) };
        let (text, extent) = match part {
            Part::Blank(number) => (from_field(line, *number).into(), Extent::Beginning),
            part => {
                let column = columns.get(self.key.len()).copied().unwrap_or_default();
                (part.of(line, column)?, Extent::Whole)
            }
        };
        let text = match text {
            Cow::Borrowed(text) => text.trim_ascii().into(),
            Cow::Owned(text) => text.trim_ascii().to_vec().into(),
        };
        Ok(Some((text, extent)))
    }
}

impl Part {
    fn column(&self, header: &[u8]) -> std::result::Result<usize, String> {
        let Self::Csv(wanted, separator) = self else { return Ok(0) };
        let header = header.strip_prefix("\u{feff}".as_bytes()).unwrap_or(header);
        let (mut names, mut found) = (Vec::new(), None);
        let is_closed = fields(header, *separator, |name| {
            if name == wanted.as_bytes() {
                found.get_or_insert(names.len());
            }
            names.push(String::from_utf8_lossy(name).into_owned());
            true
        });
        if !is_closed {
            return Err(misfit(CLOSED, header));
        }
        found.ok_or_else(|| {
            format!("expected a column {wanted:?} in the header, found {}", names.join(", "))
        })
    }

    fn of<'b>(&self, line: &'b [u8], column: usize) -> std::result::Result<Cow<'b, [u8]>, String> {
        match self {
            Self::Whole => Ok(line.into()),
            Self::Blank(number) => Ok(between_blanks(line, *number).into()),
            Self::Split(separator, number) => Ok(split(line, &separator.0, *number).into()),
            Self::Json(path) => member(line, path).ok_or_else(|| {
                let names = path.0.join(".");
                misfit(&format!("a JSON object with a text or a number at {names}"), line)
            }),
            Self::Csv(name, separator) => cell(line, *separator, column)?
                .ok_or_else(|| misfit(&format!("a record with a column {name:?}"), line)),
        }
    }
}

/// Returns the line from the field of this number on, from 1, split at blanks as awk does. Empty if
/// there is no such field.
fn from_field(line: &[u8], number: usize) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let mut rest = line;
    for at in 1..=number {
        rest = &rest[rest.iter().take_while(|byte| blank(byte)).count()..];
        if at < number {
            rest = &rest[rest.iter().take_while(|byte| !blank(byte)).count()..];
        }
        if rest.is_empty() {
            break;
        }
    }
    rest
}

/// Returns the field of this number, from 1, split at blanks as awk does, without those at the
/// ends. Empty if there is no such field.
fn between_blanks(line: &[u8], number: usize) -> &[u8] {
    line.split(|byte| matches!(byte, b' ' | b'\t'))
        .filter(|field| !field.is_empty())
        .nth(number - 1)
        .unwrap_or_default()
}

/// Returns the field of this number, from 1, split at each separator as `cut` does. Empty if there
/// is no such field.
fn split<'b>(line: &'b [u8], separator: &[u8], number: usize) -> &'b [u8] {
    let mut start = 0;
    let mut ends = memmem::find_iter(line, separator);
    for _ in 1..number {
        match ends.next() {
            Some(end) => start = end + separator.len(),
            None => return &[],
        }
    }
    &line[start..ends.next().unwrap_or(line.len())]
}

/// What is expected of a record that ends with the input.
const CLOSED: &str = "the end of a quote before the end of the input";

/// Returns the field of this number, from 0, of a record; `None` if the record is shorter. A record
/// with a quote that is not closed is an error.
fn cell(
    record: &[u8],
    separator: u8,
    column: usize,
) -> std::result::Result<Option<Cow<'_, [u8]>>, String> {
    if memchr::memchr(b'"', record).is_none() {
        let record = record.strip_suffix(b"\r").unwrap_or(record);
        return Ok(record.split(|byte| *byte == separator).nth(column).map(Cow::Borrowed));
    }
    let (mut at, mut found) = (0, None);
    let is_closed = fields(record, separator, |field| {
        if at == column {
            found = Some(Cow::Owned(field.to_vec()));
        }
        at += 1;
        found.is_none()
    });
    if is_closed { Ok(found) } else { Err(misfit(CLOSED, record)) }
}

/// Returns the value at a path: the content of a string, or a number, true or false as written.
/// `None` for anything else.
fn member<'b>(line: &'b [u8], path: &JsonPath) -> Option<Cow<'b, [u8]>> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let value = Member(&path.0).deserialize(&mut json).ok()??;
    json.end().ok()?;
    let text = value.get();
    match text.as_bytes().first()? {
        b'"' => Some(match serde_json::from_str::<&str>(text) {
            Ok(plain) => plain.as_bytes().into(),
            // It contains escapes.
            Err(_) => serde_json::from_str::<String>(text).ok()?.into_bytes().into(),
        }),
        b'{' | b'[' | b'n' => None,
        _ => Some(text.as_bytes().into()),
    }
}

/// Finds the value at a path while the rest is skipped; of several members of one name, the last.
struct Member<'a>(&'a [String]);

impl<'b> DeserializeSeed<'b> for Member<'_> {
    type Value = Option<&'b RawValue>;

    fn deserialize<D: Deserializer<'b>>(
        self,
        json: D,
    ) -> std::result::Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return <&RawValue>::deserialize(json).map(Some);
        }
        json.deserialize_any(self)
    }
}

impl<'b> Visitor<'b> for Member<'_> {
    type Value = Option<&'b RawValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'b>>(
        self,
        mut members: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = members.next_key::<Cow<'b, str>>()? {
            if name == self.0[0] {
                found = members.next_value_seed(Member(&self.0[1..]))?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'b>>(
        self,
        mut elements: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let wanted = self.0[0].parse::<usize>().ok();
        let (mut at, mut found) = (0, None);
        loop {
            if Some(at) == wanted {
                match elements.next_element_seed(Member(&self.0[1..]))? {
                    Some(value) => found = value,
                    None => return Ok(found),
                }
            } else if elements.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            at += 1;
        }
    }

    fn visit_unit<E>(self) -> std::result::Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> std::result::Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_syntax::parse_json_path;

    fn json(line: &str, path: &str) -> Option<String> {
        let path = parse_json_path(path).expect(path);
        let found = member(line.as_bytes(), &path)?.into_owned();
        Some(String::from_utf8(found).expect("UTF-8"))
    }

    #[test]
    fn blanks_separate_fields_as_in_awk_and_a_separator_as_in_cut() {
        let line = b"  one two\t three\r";
        assert_eq!(between_blanks(line, 1), b"one");
        assert_eq!(between_blanks(line, 2), b"two");
        assert_eq!(between_blanks(line, 3), b"three\r");
        assert_eq!(between_blanks(line, 4), b"");
        assert_eq!(between_blanks(b"", 1), b"");
        let fields = [1, 2, 3, 4].map(|number| split(b"a,,c", b",", number));
        assert_eq!(fields, [&b"a"[..], b"", b"c", b""]);
        assert_eq!(split("1→2→3".as_bytes(), "→".as_bytes(), 2), b"2");
        assert_eq!(split(b"", b",", 1), b"");
    }

    #[test]
    fn the_rest_of_a_line_begins_at_the_field_that_awk_counts() {
        let line = b"  one  [two\t three] ";
        assert_eq!(from_field(line, 1), b"one  [two\t three] ");
        assert_eq!(from_field(line, 2), b"[two\t three] ");
        assert_eq!(from_field(line, 3), b"three] ");
        assert_eq!((from_field(line, 4), from_field(b"", 1)), (&b""[..], &b""[..]));
    }

    #[test]
    fn a_field_far_beyond_the_line_takes_no_longer_than_the_line() {
        assert_eq!(from_field(b"one two", usize::MAX), b"");
        assert_eq!(between_blanks(b"one two", usize::MAX), b"");
        assert_eq!(split(b"one,two", b",", usize::MAX), b"");
    }

    #[test]
    fn several_parts_make_different_keys_wherever_they_are_cut() {
        let key: Vec<_> = [1, 2].map(|at| Part::Split(Separator(b"|".to_vec()), at)).into();
        let parts = KeyParts { key, time: None };
        let of = |line: &[u8]| parts.key(line, &[]).map(Cow::into_owned);
        assert_eq!(of(b"a|bc"), Ok(b"1:a,2:bc,".to_vec()));
        assert_eq!(of(b""), Ok(b"0:,0:,".to_vec()));
        // Every way to cut a text in two gives a key of its own, also where the text looks like
        // netstrings.
        let text = b"1:a,2:bc,0:,1:,,";
        let keys: std::collections::HashSet<_> = (0..=text.len())
            .map(|at| of(&[&text[..at], b"|", &text[at..]].concat()).expect("a key"))
            .collect();
        assert_eq!(keys.len(), text.len() + 1);
    }

    #[test]
    fn a_member_is_found_at_its_path_as_text() {
        let line = r#"{"x": [{"y": 7}], "user": {"id": "a\"\u00e4", "n": 1.50, "ok": true}}"#;
        assert_eq!(json(line, "user.id").as_deref(), Some("a\"ä"));
        assert_eq!(json(line, "user.n").as_deref(), Some("1.50"));
        assert_eq!(json(line, "user.ok").as_deref(), Some("true"));
        assert_eq!(json(line, "x.0.y").as_deref(), Some("7"));
        assert_eq!(json(r#"{"a.b": {"/": 1}}"#, "/a.b/~1").as_deref(), Some("1"));
        assert_eq!(json(r#"{"a": 1, "a": 2}"#, "a").as_deref(), Some("2"));
        let digits = r#"{"a": 123456789012345678901234567890}"#;
        assert_eq!(json(digits, "a").as_deref(), Some("123456789012345678901234567890"));
    }

    #[test]
    fn what_is_no_text_and_no_number_is_no_key() {
        for line in [
            "",
            "7",
            "{}",
            "[1]",
            "not json",
            r#"{"a": null}"#,
            r#"{"a": {}}"#,
            r#"{"a": [1]}"#,
            r#"{"a": 1"#,
            r#"{"a": 1} x"#,
            r#"{"b": 1}"#,
        ] {
            assert_eq!(json(line, "a"), None, "{line}");
        }
        assert_eq!(json(r#"{"a": "b"}"#, "a.b"), None);
    }

    #[test]
    fn a_column_is_found_by_the_header_and_read_from_each_record() {
        let part = Part::Csv("user, id".to_owned(), b',');
        let header = b"\xef\xbb\xbfn,\"user, id\",rest\r";
        assert_eq!(part.column(header), Ok(1));
        let refused = part.column(b"a,b").expect_err("no such column");
        assert!(refused.ends_with("found a, b"), "{refused}");
        let of = |line: &[u8]| part.of(line, 1).map(Cow::into_owned);
        assert_eq!(of(b"1,x,2"), Ok(b"x".to_vec()));
        assert_eq!(of(b"1,x\r"), Ok(b"x".to_vec()));
        assert_eq!(of(b"1,\"x,\"\"\n\",2"), Ok(b"x,\"\n".to_vec()));
        assert_eq!(of(b"\"1\",x\r"), Ok(b"x".to_vec()));
        assert!(of(b"1").is_err() && of(b"\"1\"").is_err());
    }
}
