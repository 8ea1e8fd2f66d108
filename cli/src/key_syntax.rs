//! The syntax of the options that select the key in a line.

use crate::formatting::parse_positive;
use std::num::NonZeroUsize;

/// Parses the number of a field, from 1.
pub fn parse_field(text: &str) -> std::result::Result<NonZeroUsize, String> {
    parse_positive::<NonZeroUsize, usize>(text)
}

/// A character between fields, as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Separator(pub Vec<u8>);

/// Parses one character, or `\t`, `\0` or `\\`.
pub fn parse_separator(text: &str) -> std::result::Result<Separator, String> {
    let bytes = match text {
        r"\t" => b"\t".to_vec(),
        r"\0" => b"\0".to_vec(),
        r"\\" => b"\\".to_vec(),
        one if one.chars().count() == 1 && one != "\n" => one.as_bytes().to_vec(),
        _ => return Err(r"expected one character, such as , or ; or \t for a tab".to_owned()),
    };
    Ok(Separator(bytes))
}

/// Names of members, from the outside to the inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath(pub Vec<String>);

/// Parses `a.b`, or a JSON pointer (RFC 6901) such as `/a.b/c` for names with dots.
pub fn parse_json_path(text: &str) -> std::result::Result<JsonPath, String> {
    let names: Vec<String> = match text.strip_prefix('/') {
        Some(pointer) => {
            pointer.split('/').map(|name| name.replace("~1", "/").replace("~0", "~")).collect()
        }
        None => text.split('.').map(str::to_owned).collect(),
    };
    if !text.starts_with('/') && names.iter().any(String::is_empty) {
        return Err("expected names such as user.id, or a pointer such as /user/id".to_owned());
    }
    Ok(JsonPath(names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_one_character() {
        assert_eq!(parse_separator(r"\t"), Ok(Separator(b"\t".to_vec())));
        assert_eq!(parse_separator(";"), Ok(Separator(b";".to_vec())));
        assert_eq!(parse_separator("→"), Ok(Separator("→".as_bytes().to_vec())));
        for text in ["", ",,", "\n", r"\x"] {
            assert!(parse_separator(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn paths_have_no_empty_names_unless_they_are_pointers() {
        assert!(parse_json_path("").is_err() && parse_json_path("a..b").is_err());
        assert_eq!(parse_json_path("/a//b").map(|path| path.0.len()), Ok(3));
    }
}
