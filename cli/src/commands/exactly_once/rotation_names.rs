//! What the name of a file says about its rotation: whether it is an earlier part of another file.

/// Endings of compressed files.
const PACKED: [&[u8]; 6] = [b".gz", b".zst", b".xz", b".bz2", b".lz4", b".lz"];

/// Endings that a rotation without numbers adds.
const OLD: [&[u8]; 5] = [b".old", b".prev", b".bak", b".orig", b"~"];

/// Endings of archives and compressed files that are not read.
const ARCHIVES: [&[u8]; 10] =
    [b"zip", b"lzma", b"br", b"Z", b"7z", b"rar", b"lzo", b"sz", b"bz", b"lrz"];

/// Endings that name no format of compression: of other logs and tables, of checksums, signatures
/// and positions of a rotated file, and of files that are being written.
const OTHERS: [&[u8]; 23] = [
    b"log", b"txt", b"csv", b"tsv", b"json", b"jsonl", b"out", b"err", b"md5", b"sha1", b"sha256",
    b"sha512", b"asc", b"sig", b"pos", b"offset", b"idx", b"meta", b"done", b"lock", b"swp",
    b"tmp", b"part",
];

/// The longest ending of an unknown format.
const ENDING_BYTES: usize = 8;

/// The hexadecimal digits that are a number rather than a word.
const HEX_DIGITS: usize = 4;

/// The largest number of a rotated file that is tried.
const MOST_PARTS: u64 = 200;

/// The digits of the shortest date.
const DATE_DIGITS: usize = 6;

/// The digits of a month and a day.
const DAY_DIGITS: usize = 4;

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

/// Returns the number that a rotation of `live` gave to a file: 2 for `h.log.2.gz` of `h.log`. A
/// large one, or one of four digits with a zero in front, may be a date: `h.log.1125`,
/// `h.log.0105`.
pub fn number(name: &[u8], live: &[u8]) -> Option<u64> {
    let rest = unpacked(name).strip_prefix(unpacked(live))?.strip_prefix(b".")?;
    let is_number = !rest.is_empty() && rest.len() < DATE_DIGITS;
    let is_number = is_number && rest.iter().all(u8::is_ascii_digit);
    let is_date = rest.len() >= DAY_DIGITS && rest[0] == b'0';
    let number = || rest.iter().fold(0, |sum, digit| 10 * sum + u64::from(digit - b'0'));
    (is_number && !is_date).then(number).filter(|number| *number <= MOST_PARTS)
}

/// Returns the name of the rotated file of which a file of this name may be the compressed form, in
/// a format that is not known: `h.log.1` for `h.log.1.zip`.
pub fn unknown_form<'a>(name: &'a [u8], live: &[u8]) -> Option<&'a [u8]> {
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    let (base, ending) = (&name[..dot], &name[dot + 1..]);
    let is_ending = ending.len() <= ENDING_BYTES
        && ending.iter().any(u8::is_ascii_alphabetic)
        && ending.iter().all(u8::is_ascii_alphanumeric)
        && !OTHERS.contains(&ending);
    let is_known = added(name, live).is_some() || unpacked(name) != name;
    let is_part = is_only_rotated(base, live) || base == live && ARCHIVES.contains(&ending);
    (is_ending && !is_known && is_part).then_some(base)
}

/// Returns whether a rotation may have made a name from another one that `is_it`: `h.log.2.gz` from
/// `h.log`, and from `h.log.1` if there is a log that `is_live`, `h.log`.
pub fn is_made_from(
    name: &[u8],
    is_it: impl Fn(&[u8]) -> bool,
    is_live: impl Fn(&[u8]) -> bool,
) -> bool {
    let is_it = |other: &[u8]| {
        let forms = PACKED.iter().map(|ending| [other, ending].concat());
        forms.chain([other.to_vec()]).any(|form| form != name && is_it(&form))
    };
    let base = unpacked(name);
    if base != name && is_it(base) {
        return true;
    }
    let extension = base.iter().rposition(|byte| *byte == b'.').unwrap_or(base.len());
    (1..base.len()).any(|start| {
        [base.len(), extension].into_iter().filter(|end| start < *end).any(|end| {
            let (text, rest) = (&base[start..end], &base[end..]);
            if !is_number(text) && (!rest.is_empty() || !OLD.contains(&text)) {
                return false;
            }
            let live = [&base[..start], rest].concat();
            let is_short = text.len() <= DATE_DIGITS && text[1..].iter().all(u8::is_ascii_digit);
            let number = |sum: u64, digit: &u8| 10 * sum + u64::from(digit.wrapping_sub(b'0'));
            // A rotation makes no number smaller.
            let most = || text[1..].iter().fold(0, number).min(MOST_PARTS);
            let part = |number: u64| {
                let number = number.to_string();
                [&base[..start], &text[..1], number.as_bytes(), rest].concat()
            };
            is_it(&live) || is_short && is_live(&live) && (0..=most()).any(|at| is_it(&part(at)))
        })
    })
}

/// Returns a name with a mark in place of each number, also of hexadecimal ones.
fn shape(name: &[u8]) -> Vec<u8> {
    let words = unpacked(name)
        .chunk_by(|one, next| one.is_ascii_alphanumeric() == next.is_ascii_alphanumeric());
    let shapes = words.map(|word| {
        let is_hex = word.len() >= HEX_DIGITS && word.iter().all(u8::is_ascii_hexdigit);
        if is_hex { vec![0] } else { pattern(word) }
    });
    shapes.collect::<Vec<_>>().concat()
}

/// Returns whether a name is made from that of `live`, by whatever is put in front of it, behind
/// it, or in front of its extension.
fn contains(name: &[u8], live: &[u8]) -> bool {
    let dot = live.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0);
    let is_within = dot.is_some_and(|dot| {
        let rest = unpacked(name).strip_prefix(&live[..dot]);
        let rest = rest.and_then(|rest| rest.strip_suffix(&live[dot..]));
        rest.is_some_and(|rest| rest.first().is_some_and(|first| !first.is_ascii_alphanumeric()))
    });
    name != live && (is_within || name.windows(live.len()).any(|part| part == live))
}

/// Returns whether what has made the name `one` from that of `live` may have made the other one,
/// too: `@40000000678f1a2b.s` and `@40000000678f1a3c.s` from `current`, or `2026-11-24_h.log` and
/// `2026-11-25_h.log` from `h.log`.
pub fn is_alike(one: &[u8], other: &[u8], live: &[u8]) -> bool {
    let is_made = shape(one) == shape(other) || contains(one, live) && contains(other, live);
    one != other && other != live && is_made
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
        assert_eq!([b"h.log.0", b"h.log.9"].map(|name| number(name, b"h.log")), [Some(0), Some(9)]);
        assert_eq!(number(b"h.log.02", b"h.log"), Some(2));
        assert_eq!(number(b"h.log.007.gz", b"h.log"), Some(7));
        let dates = ["h.log.20261125", "h.log.1125", "h.log.0105", "h.log.329"];
        for name in ["h.log", "h.log-2", "h.log.", "h.log.2x", "a.log.2"].into_iter().chain(dates) {
            assert_eq!(number(name.as_bytes(), b"h.log"), None, "{name}");
        }
    }

    #[test]
    fn an_unknown_ending_behind_a_rotated_name_is_that_of_a_compressed_form() {
        let base = |name: &'static str| unknown_form(name.as_bytes(), b"h.log");
        assert_eq!(base("h.log.1.lzma"), Some(b"h.log.1".as_slice()));
        assert_eq!(base("h-20261125.log.br"), Some(b"h-20261125.log".as_slice()));
        assert_eq!(base("h.log.zip"), Some(b"h.log".as_slice()));
        for name in ["h.log.1.gz", "h.log.1", "h.log.1.md5", "h.log.pos", "h.log.1.2", "o.log.zip"]
        {
            assert_eq!(base(name), None, "{name}");
        }
        assert_eq!(unknown_form(b"app.1.log", b"app"), None);
    }

    #[test]
    fn a_name_is_made_from_the_log_and_from_its_earlier_parts() {
        let made = |name: &str, of: &str, live: &str| {
            let (of, live) = (of.as_bytes(), live.as_bytes());
            is_made_from(name.as_bytes(), |name| name == of, |name| name == live)
        };
        for name in ["h.log.1", "h.log.12.gz", "h-20261125.log", "h.log.old", "h.log~", "h.log.gz"]
        {
            assert!(made(name, "h.log", ""), "{name}");
        }
        assert!(made("h.log.2.gz", "h.log.1", "h.log") && made("h.2.log", "h.1.log", "h.log"));
        assert!(made("h.log.2.gz", "h.log.2", "") && made("h.log.2", "h.log.1.gz", "h.log"));
        assert!(!made("h.log.1", "h.log.2", "h.log") && made("h.log.2.gz", "h.log.2", "h.log"));
        for (name, of) in [("h.log", "h.log"), ("h.log.2", "h.log.1"), ("h-2.csv", "h-1.csv")] {
            assert!(!made(name, of, ""), "{name}");
        }
        assert!(
            !made("h-20261125.csv", "h-20261124.csv", "h.csv") && !made("h.log", "h.log.1", "")
        );
    }

    #[test]
    fn names_that_one_rotation_makes_are_alike_whatever_it_is() {
        let alike = |one: &str, other: &str, live: &str| {
            is_alike(one.as_bytes(), other.as_bytes(), live.as_bytes())
        };
        let tai = ["@40000000678f1a2b0a1b2c3d.s", "@40000000678f1a3c1b2c3d4e.s"];
        assert!(alike(tai[0], tai[1], "current"));
        for other in ["current", "lock", "state", "@x.s", tai[0]] {
            assert!(!alike(tai[0], other, "current"), "{other}");
        }
        for (one, other) in [("20261124_h.log", "20261125_h.log.gz"), ("h.log.Mon", "h.log.Tue")] {
            assert!(alike(one, other, "h.log"), "{one}");
        }
        assert!(alike("h-24-Nov.log", "h-1-Dec.log", "h.log"));
        assert!(!alike("20261124_h.log", "20261125_g.log", "h.log"));
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
