//! The part of a line that is its key: the whole line, a field, a member of a JSON object, or a
//! column of CSV.

use crate::failure::{Failure, Result, misfit};
use crate::key_args::Reading;
use crate::key_syntax::{JsonPath, Separator};
use crate::splitter::{Ending, fields};
use memchr::memmem;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The part of a line that is its key.
#[derive(Debug, Clone)]
pub enum KeyPart {
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

impl KeyPart {
    /// Returns the part that the options select.
    pub fn new(reading: &Reading) -> Result<Self> {
        if let Some(path) = &reading.json_field {
            return Ok(Self::Json(path.clone()));
        }
        if let Some(name) = &reading.csv_field {
            return match reading.separator.as_ref().map_or(&b","[..], |separator| &separator.0) {
                &[one] if one != b'"' && one != b'\r' => Ok(Self::Csv(name.clone(), one)),
                _ => Err(Failure::Error(
                    "--delimiter of CSV must be one byte and no quote, such as , or ;".to_owned(),
                )),
            };
        }
        Ok(match (&reading.separator, reading.field) {
            (None, None) => Self::Whole,
            (Some(_), None) => {
                return Err(Failure::Error(
                    "--delimiter separates fields; name one by --field N or --csv-field NAME"
                        .to_owned(),
                ));
            }
            (None, Some(number)) => Self::Blank(number.get()),
            (Some(separator), Some(number)) => Self::Split(separator.clone(), number.get()),
        })
    }

    /// Returns what ends a line of such input, otherwise `delimiter`.
    pub fn ending(&self, delimiter: u8) -> Ending {
        match self {
            Self::Csv(_, separator) => Ending::Record(*separator),
            _ => Ending::Byte(delimiter),
        }
    }

    /// Returns the number of the key's column by the header of a file, from 0.
    pub fn column(&self, header: &[u8]) -> std::result::Result<usize, String> {
        let Self::Csv(wanted, separator) = self else { return Ok(0) };
        let header = header.strip_prefix("\u{feff}".as_bytes()).unwrap_or(header);
        let (mut names, mut found) = (Vec::new(), None);
        fields(header, *separator, |name| {
            if name == wanted.as_bytes() {
                found.get_or_insert(names.len());
            }
            names.push(String::from_utf8_lossy(name).into_owned());
            true
        });
        found.ok_or_else(|| {
            format!("expected a column {wanted:?} in the header, found {}", names.join(", "))
        })
    }

    /// Returns the key of a line, or what is wrong with the line. `column` is the number of the
    /// key's column in CSV.
    pub fn of<'b>(
        &self,
        line: &'b [u8],
        column: usize,
    ) -> std::result::Result<Cow<'b, [u8]>, String> {
        match self {
            Self::Whole => Ok(line.into()),
            Self::Blank(number) => Ok(between_blanks(line, *number).into()),
            Self::Split(separator, number) => Ok(split(line, &separator.0, *number).into()),
            Self::Json(path) => member(line, path).ok_or_else(|| {
                let names = path.0.join(".");
                misfit(&format!("a JSON object with a text or a number at {names}"), line)
            }),
            Self::Csv(name, separator) => cell(line, *separator, column)
                .ok_or_else(|| misfit(&format!("a record with a column {name:?}"), line)),
        }
    }
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

/// Returns the field of this number, from 0, of a record; `None` if the record is shorter.
fn cell(record: &[u8], separator: u8, column: usize) -> Option<Cow<'_, [u8]>> {
    if memchr::memchr(b'"', record).is_none() {
        let record = record.strip_suffix(b"\r").unwrap_or(record);
        return record.split(|byte| *byte == separator).nth(column).map(Cow::Borrowed);
    }
    let (mut at, mut found) = (0, None);
    fields(record, separator, |field| {
        if at == column {
            found = Some(Cow::Owned(field.to_vec()));
        }
        at += 1;
        found.is_none()
    });
    found
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
        let part = KeyPart::Csv("user, id".to_owned(), b',');
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
