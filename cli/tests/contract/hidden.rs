//! Names of files with characters that a terminal obeys instead of showing them: escape sequences,
//! and characters that reverse or hide the text that follows.

use crate::support::{Place, ok, run};

/// A name with an escape sequence, two other control characters, a right-to-left override and a
/// space without width.
const NAME: &str = "a\u{1b}[31m\u{85}\u{7}b\u{202e}c\u{200b}d";

/// Returns the characters of the text that a terminal obeys instead of showing them.
fn obeyed(text: &str) -> Vec<char> {
    let hidden = ['\u{202e}', '\u{200b}'];
    text.chars()
        .filter(|letter| (letter.is_control() && *letter != '\n') || hidden.contains(letter))
        .collect()
}

/// Runs a command, which must mention the name; returns all that it has written.
fn written(arguments: &[&str], code: i32) -> String {
    let outcome = run(arguments, b"");
    assert_eq!(outcome.code, Some(code), "{arguments:?}: {}", outcome.stderr);
    format!("{}{}", String::from_utf8_lossy(&outcome.stdout), outcome.stderr)
}

#[test]
fn no_output_about_a_filter_lets_its_name_steer_the_terminal() {
    let place = Place::new();
    let dir = place.at(NAME);
    let at = |end: &str| place.at(&format!("{NAME}-{end}"));
    let (other, united, copy, past, saved) =
        (at("other"), at("united"), at("copy"), at("past"), at("saved"));
    for dir in [&dir, &other] {
        ok(&["create", dir, "--last", "100", "--keep-log", "1h", "--hash-seed", "7"], b"");
        ok(&["insert", dir], b"x\ny\n");
    }
    let part = at("part");
    for (arguments, code) in [
        (&["stat", &at("none")][..], 2),
        (&["alter", &dir, "--last", "200"], 0),
        (&["merge", &dir, &other, &united], 0),
        (&["split", &dir, &part, "--into", "2"], 0),
        (&["restore", &dir, &past, "--at", "lsn:2"], 0),
        (&["create", &dir, "--last", "100"], 2),
        (&["dedup", "--last", "9", &dir], 2),
        (&["dedup", "--state", &dir, "--last", "9"], 2),
        (&["stat", &dir, "--format", "prometheus"], 0),
        (&["stat", &dir, "--at", "lsn:999"], 2),
        (&["top", &dir, "--once", "--interval", "100ms", "--size", "200x40"], 0),
    ] {
        let text = written(arguments, code);
        assert!(text.contains("31m"), "{arguments:?} does not name it: {text}");
        assert_eq!(obeyed(&text), [], "{arguments:?}: {text:?}");
    }
    ok(&["backup", &dir, &copy], b"");
    std::fs::write(format!("{copy}/meta"), "nothing").expect("written");
    std::fs::write(format!("{copy}/second-meta"), "nothing").expect("written");
    for (arguments, code) in [(&["verify", &copy][..], 1), (&["salvage", &copy, &saved], 2)] {
        let text = written(arguments, code);
        assert_eq!(obeyed(&text), [], "{arguments:?}: {text:?}");
    }
    let page = place.at("page.html");
    ok(&["report", &dir, "--output", &page], b"");
    let page = std::fs::read_to_string(page).expect("a page");
    assert_eq!(obeyed(&page), [], "the page");
}
