//! `ebbtide demo` prints what the page about it shows.

use crate::support::{ok, project_file};

/// Replaces what differs from run to run: times, and numbers of records.
fn masked(text: &str) -> String {
    let is_time = |word: &str| word.len() > 20 && word.contains("T") && word.contains("Z");
    let mut masked = String::new();
    let mut before = "";
    for word in text.split_inclusive([' ', '\n']) {
        let bare = word.trim_end();
        let changes = is_time(bare) || matches!(before, "LSN" | "to");
        let digits = bare.trim_end_matches([',', ':']);
        if changes && (is_time(bare) || digits.parse::<u64>().is_ok()) {
            masked += "*";
            masked += &word[digits.len()..];
        } else {
            masked += word;
        }
        before = bare;
    }
    masked
}

#[test]
fn the_tour_is_the_page_about_it() {
    let page = std::fs::read_to_string(project_file("docs/tour.md")).expect("the page");
    let shown = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let printed = ok(&["demo", "--fast"], b"");
    assert_eq!(masked(printed.text()), masked(shown.expect("a block of text")));
}
