//! What the name of a file says about its rotation: whether it is an earlier part of another file.

/// Endings of compressed files.
const PACKED: [&[u8]; 6] = [b".gz", b".zst", b".xz", b".bz2", b".lz4", b".lz"];

/// Endings that a rotation without numbers adds.
const OLD: [&[u8]; 5] = [b".old", b".prev", b".bak", b".orig", b"~"];

/// The digits of the shortest date.
const DATE_DIGITS: usize = 6;

/// Returns a name without the ending of a compressed file.
pub fn unpacked(name: &[u8]) -> &[u8] {
    PACKED.iter().find_map(|ending| name.strip_suffix(*ending)).unwrap_or(name)
}

/// Returns whether text between or behind the parts of a name is a number or a date: `.1`,
/// `-20261125`, `.2026-11-25T10:00`.
fn is_number(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_digit() || b".-_:TZ".contains(byte);
    text.first().is_some_and(|first| b".-_".contains(first))
        && text.iter().any(u8::is_ascii_digit)
        && text.iter().all(is_part)
}

/// What a rotation adds to the name of a file, apart from the ending of a compressed one.
enum Added<'a> {
    Nothing,
    Behind(&'a [u8]),
    /// In front of the extension.
    Within(&'a [u8]),
}

/// Returns what a rotation of `live` has added to make this name; `None` if none makes it.
fn added<'a>(name: &'a [u8], live: &[u8]) -> Option<Added<'a>> {
    if name == live {
        return None;
    }
    let is_packed = unpacked(name) != name;
    let (name, live) = (unpacked(name), unpacked(live));
    if name == live {
        return is_packed.then_some(Added::Nothing);
    }
    if let Some(rest) = name.strip_prefix(live) {
        return (is_number(rest) || OLD.contains(&rest)).then_some(Added::Behind(rest));
    }
    let dot = live.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0)?;
    let (stem, extension) = live.split_at(dot);
    let middle = name.strip_prefix(stem)?.strip_suffix(extension)?;
    is_number(middle).then_some(Added::Within(middle))
}

/// Returns whether a rotation of `live` makes files of this name: `h.log.1`, `h.log.2.gz`,
/// `h-20261125.log` and `h.log.old` of `h.log`.
pub fn is_rotated(name: &[u8], live: &[u8]) -> bool {
    added(name, live).is_some()
}

/// Returns whether nothing but a rotation of `live` makes files of this name: `h.log.1` and
/// `h-20261125.log`, but `h-2.log` may be a log of its own.
pub fn is_only_rotated(name: &[u8], live: &[u8]) -> bool {
    match added(name, live) {
        None => false,
        Some(Added::Nothing) => true,
        Some(Added::Behind(text)) if text.starts_with(b".") || OLD.contains(&text) => true,
        Some(Added::Behind(text) | Added::Within(text)) => is_dated(text),
    }
}

/// Returns the number that a rotation of `live` gave to a file: 2 for `h.log.2.gz` of `h.log`.
pub fn number(name: &[u8], live: &[u8]) -> Option<u64> {
    let rest = unpacked(name).strip_prefix(unpacked(live))?.strip_prefix(b".")?;
    let is_number = !rest.is_empty() && rest.len() < DATE_DIGITS;
    let is_number = is_number && rest.iter().all(u8::is_ascii_digit);
    is_number.then(|| rest.iter().fold(0, |sum, digit| 10 * sum + u64::from(digit - b'0')))
}

/// Returns a name with a mark in place of each number.
fn pattern(name: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::new();
    for byte in unpacked(name) {
        match byte {
            b'0'..=b'9' if pattern.last() == Some(&0) => {}
            b'0'..=b'9' => pattern.push(0),
            byte => pattern.push(*byte),
        }
    }
    pattern
}

/// Returns whether two names differ in their numbers only, as `app-2026-11-24.log` and
/// `app-2026-11-25.log` do.
pub fn is_series(one: &[u8], other: &[u8]) -> bool {
    one != other && one.iter().any(u8::is_ascii_digit) && pattern(one) == pattern(other)
}

/// Returns whether a name contains a date.
pub fn is_dated(name: &[u8]) -> bool {
    name.iter().filter(|byte| byte.is_ascii_digit()).count() >= DATE_DIGITS
}

/// Returns whether a file of this name may hold earlier content of `live`, whatever made it.
pub fn is_related(name: &[u8], live: &[u8]) -> bool {
    let stem = live.split(|byte| *byte == b'.').next().filter(|stem| !stem.is_empty());
    let begins = name != live && stem.is_some_and(|stem| name.starts_with(stem));
    begins || is_rotated(name, live) || is_series(name, live)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotations_add_a_number_a_date_or_a_word() {
        let names = ["h.log.1", "h.log.12.gz", "h.log-20261125", "h.log.2026-11-25T10:00.zst"];
        for name in names.into_iter().chain(["h.log.gz", "h-1.log", "h.2026-11-25.log.xz"]) {
            assert!(is_rotated(name.as_bytes(), b"h.log"), "{name}");
        }
        for name in ["h.log.old", "h.log~", "h.log.bak.gz"] {
            assert!(is_rotated(name.as_bytes(), b"h.log"), "{name}");
        }
        for name in ["h.log", "h.log1", "h.log.pos", "h2.log", "other.log.1", "h.log.1.cut", "h"] {
            assert!(!is_rotated(name.as_bytes(), b"h.log"), "{name}");
        }
        assert!(!is_rotated(b"server2.log", b"server1.log"));
        assert!(!is_rotated(b"h.log", b"h.log.1") && !is_rotated(b"h.log", b"h.log.gz"));
    }

    #[test]
    fn a_short_number_may_belong_to_a_log_of_its_own() {
        for name in ["h.log.1", "h.log.old", "h.log~", "h.log.gz", "h-20261125.log.gz"] {
            assert!(is_only_rotated(name.as_bytes(), b"h.log"), "{name}");
        }
        for name in ["h-2.log", "h.1.log", "h_12.log.gz", "h.log-2", "h.log", "other.log.1"] {
            assert!(!is_only_rotated(name.as_bytes(), b"h.log"), "{name}");
        }
        assert!(!is_only_rotated(b"port20261125-2.log", b"port20261125.log"));
    }

    #[test]
    fn a_number_is_that_of_the_rotation_and_no_date() {
        assert_eq!(number(b"h.log.2", b"h.log"), Some(2));
        assert_eq!(number(b"h.log.12.gz", b"h.log"), Some(12));
        for name in ["h.log", "h.log.20261125", "h.log-2", "h.log.", "h.log.2x", "a.log.2"] {
            assert_eq!(number(name.as_bytes(), b"h.log"), None, "{name}");
        }
    }

    #[test]
    fn a_series_differs_in_numbers_only() {
        assert!(is_series(b"app-2026-11-24.log", b"app-2026-11-25.log.gz"));
        assert!(is_series(b"app.1.log", b"app.12.log"));
        assert!(!is_series(b"app.log", b"app.1.log") && !is_series(b"a.1", b"b.1"));
        assert!(!is_series(b"app.1", b"app.1") && !is_series(b"a", b"a.gz"));
        assert!(is_dated(b"app-20261125") && !is_dated(b"server12.log"));
    }
}
