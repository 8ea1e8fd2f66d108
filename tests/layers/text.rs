//! The sources as text: comments and literals blanked out, test modules left out, imports found.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What the names of rooms and files of the crate of the algorithms begin with.
pub const CORE: &str = "core/";

/// A source file.
pub struct Source {
    /// Its path below the folder it was looked for in; of the library's two crates as their rooms
    /// are called.
    pub name: String,
    pub text: String,
    /// The text without comments and literals, line by line the same.
    pub code: String,
    /// Compiled for tests only.
    pub test: bool,
}

impl Source {
    /// `core/` if it belongs to the crate of the algorithms.
    pub fn house(&self) -> &'static str {
        if self.name.starts_with(CORE) { CORE } else { "" }
    }

    /// The room it belongs to.
    pub fn room(&self) -> &str {
        let house = self.house().len();
        let end = self.name[house..].find('/').map_or(self.name.len(), |end| house + end);
        let room = &self.name[..end];
        room.strip_suffix(".rs").unwrap_or(room)
    }

    /// The rooms that its shipped code looks into.
    pub fn looks_into(&self) -> BTreeSet<String> {
        let code = self.shipped();
        let mut rooms = rooms_named(&code, "crate::", self.house());
        rooms.append(&mut rooms_named(&code, "ebbtide_core::", CORE));
        rooms
    }

    /// The code without its test modules.
    pub fn shipped(&self) -> String {
        let mut code = self.code.clone();
        while let Some((at, end)) = test_module(&code) {
            code.replace_range(at..end, "");
        }
        code
    }
}

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// All sources below a folder of the project; none if it is not there.
pub fn sources(folder: &str) -> Vec<Source> {
    let folder = root().join(folder);
    let mut paths = Vec::new();
    rust_files(&folder, &mut paths);
    paths.sort();
    let mut all: Vec<Source> = paths
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).expect("a readable file");
            let name = path.strip_prefix(&folder).expect("it was found there");
            Source {
                name: name.to_string_lossy().into_owned(),
                code: blank(&text),
                text,
                test: false,
            }
        })
        .collect();
    let tests: BTreeSet<String> = all.iter().flat_map(test_files).collect();
    for source in &mut all {
        let below = |test: &String| source.name.starts_with(&format!("{test}/"));
        let is = |test: &String| source.name == format!("{test}.rs");
        source.test = tests.iter().any(|test| below(test) || is(test));
    }
    all
}

pub fn library() -> Vec<Source> {
    let (mut all, mut core) = (sources("src"), sources("core/src"));
    core.iter_mut().for_each(|source| source.name.insert_str(0, CORE));
    assert!(all.len() > 20 && core.len() > 20, "the crates have more files than that");
    all.append(&mut core);
    all
}

fn is_test_attribute(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")
}

/// The files that a source declares as modules for tests, without `.rs`.
fn test_files(source: &Source) -> Vec<String> {
    let folder = source.name.strip_suffix("mod.rs").map(str::to_owned);
    let folder = folder.unwrap_or_else(|| match source.name.strip_suffix(".rs") {
        Some("lib") | None => String::new(),
        Some(stem) => format!("{stem}/"),
    });
    let lines: Vec<&str> = source.code.lines().collect();
    let pairs = lines.windows(2).filter(|pair| is_test_attribute(pair[0]));
    let names = pairs.filter_map(|pair| {
        let (_, name) = pair[1].trim().split_once("mod ")?;
        Some(format!("{folder}{}", name.strip_suffix(';')?))
    });
    names.collect()
}

/// Where the first test module written out in this code begins and ends.
fn test_module(code: &str) -> Option<(usize, usize)> {
    let mut offset = 0;
    let mut attribute = None;
    for line in code.split_inclusive('\n') {
        if is_test_attribute(line) {
            attribute = Some(offset);
        } else if let Some(begin) = attribute.take()
            && line.contains("mod ")
            && line.contains('{')
        {
            return Some((begin, closing_brace(code, offset)));
        }
        offset += line.len();
    }
    None
}

/// The offset after the brace that closes the first one opened from `from` on.
pub fn closing_brace(code: &str, from: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Replaces comments and the insides of literals by spaces; line breaks stay.
pub fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = vec![b' '; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_or_comment(&text[at..]).map_or(at, |length| at + length);
        if end == at {
            out[at] = bytes[at];
            at += 1;
        }
        while at < end {
            if bytes[at] == b'\n' {
                out[at] = b'\n';
            }
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The length of the comment or literal that begins here.
fn literal_or_comment(text: &str) -> Option<usize> {
    if !text.is_char_boundary(1) {
        return None;
    }
    let after = |from: usize, end: &str| {
        let found = text.get(from..).and_then(|rest| rest.find(end));
        found.map_or(text.len(), |at| from + at + end.len())
    };
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(after(2, "*/"));
    }
    if text.starts_with("r\"") {
        return Some(after(2, "\""));
    }
    if text.starts_with("r#\"") {
        return Some(after(3, "\"#"));
    }
    let quote = match text.as_bytes()[0] {
        b'"' => '"',
        // A lifetime has no second quote after one character or escape.
        b'\'' if text[1..].starts_with('\\') || text[1..].chars().nth(1) == Some('\'') => '\'',
        _ => return None,
    };
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return Some(at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether the code names `word`, whole words only.
pub fn names(code: &str, word: &str) -> bool {
    let bytes = code.as_bytes();
    code.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).map(|before| bytes[before]);
        let after = bytes.get(at + word.len()).copied();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// What follows each `root` (as `crate::`) of this code, named as rooms of this house.
pub fn rooms_named(code: &str, root: &str, house: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for (at, path) in code.match_indices(root) {
        let rest = &code[at + path.len()..];
        let list = match rest.strip_prefix('{') {
            Some(_) => top_level_items(&rest[..closing_brace(rest, 0)]),
            None => vec![rest],
        };
        for item in list {
            let end = item.bytes().position(|byte| !is_word(byte));
            rooms.insert(format!("{house}{}", &item[..end.unwrap_or(item.len())]));
        }
    }
    rooms.remove(house);
    rooms
}

/// The items of a list in braces, those in inner braces apart.
fn top_level_items(list: &str) -> Vec<&str> {
    let (mut depth, mut items) = (0, Vec::new());
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 1 && matches!(byte, b'{' | b',') {
            items.push(list[at + 1..].trim_start());
        }
    }
    items
}
