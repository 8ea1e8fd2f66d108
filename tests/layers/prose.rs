//! The rules about words and width: names of an earlier vocabulary and idioms that the house bans,
//! each with its replacement, and lines of at most 100 columns.
//!
//! The words are banned in comments, literals, identifiers and documents. A phrase may extend
//! over the end of a line; in an identifier, underscores and capitals separate its words.

use crate::assert_none;
use crate::text::root;
use std::fs;
use std::ops::Range;
use std::path::Path;

const COLUMNS: usize = 100;

/// Banned words and phrases, each with its replacement. `|` separates the forms of a word.
const BANNED: &[(&str, &str)] = &[
    ("asked for ahead", "prefetched"),
    ("at it", "the work, as a noun"),
    ("bell|bells", "wakeup"),
    ("by itself", "alone, or separately"),
    ("come|comes|came|coming on", "proceed"),
    ("draft|drafts", "temporary file"),
    ("duty|duties", "background task"),
    ("era|eras", "timeline"),
    ("for ever", "without limit"),
    ("forgetful", "random decay"),
    ("give|gives|given|gave|giving up", "abandon, discard, or return"),
    ("go|goes|went|going|gone on", "continue, or advance"),
    ("ground|grounds", "recovery base"),
    ("he|him|his", "the actor: caller, writer, reader, owner, opener"),
    ("heir|heirs", "successor"),
    ("is|are|was|were|be|been|being told", "receives, contains, or reports"),
    ("let|lets|letting go", "release, unmap, or remove"),
    ("mend|mends|mended|mending", "reconstruct, repair, or correct"),
    ("novelty", "new bits"),
    ("so many", "a number, as many, or enough"),
    ("stranger|strangers", "untrusted"),
    ("tally|tallies", "counter, or results"),
];

/// Files that quote a banned word: the list of changes names an identifier of an earlier version.
const QUOTES: &[(&str, &str)] = &[("CHANGELOG.md", "era"), ("tests/layers/prose.rs", "")];

/// The places of texts, and those not read: records of past runs, and files that tools made.
const PLACES: &[&str] = &[
    ".ci",
    "AGENTS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "adapters",
    "benches",
    "capi",
    "cli",
    "core",
    "docs",
    "examples",
    "fuzz",
    "go",
    "python",
    "redis",
    "src",
    "testkit",
    "tests",
];
const UNREAD: &[&str] = &["artifacts", "corpus", "docs/runs", "target", "tests/fixtures"];

/// A text of the project.
struct Page {
    /// Its path from the root of the project.
    name: String,
    text: String,
}

fn read(path: &Path, pages: &mut Vec<Page>) {
    let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
    if UNREAD.iter().any(|unread| name.ends_with(unread)) {
        return;
    }
    if path.is_dir() {
        let entries = fs::read_dir(path).expect("a folder");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        return paths.iter().for_each(|path| read(path, pages));
    }
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    const READ: [&str; 11] = ["c", "cpp", "go", "h", "hpp", "md", "patch", "py", "pyi", "rs", "sh"];
    if !name.starts_with(".ci") && !READ.contains(&ending) {
        return;
    }
    let Ok(mut text) = fs::read_to_string(path) else { return };
    if ending == "patch" {
        // Only the head is ours to word; the rest quotes the source.
        text.truncate(text.find("diff --git").unwrap_or(text.len()));
    }
    pages.push(Page { name, text });
}

fn pages() -> Vec<Page> {
    let mut pages = Vec::new();
    PLACES.iter().for_each(|place| read(&root().join(place), &mut pages));
    assert!(pages.len() > 200, "the project has more texts than that");
    pages
}

/// Returns the ranges of a text's words; a capital after a small letter begins one.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        if letter.is_alphabetic() {
            if !before.is_alphabetic() || before.is_lowercase() && letter.is_uppercase() {
                words.push(at..at);
            }
            words.last_mut().expect("it has begun").end = at + letter.len_utf8();
        }
        before = letter;
    }
    words
}

/// Returns whether only blanks, underscores and the marks of comments separate two words.
fn joins(between: &str) -> bool {
    between.chars().all(|mark| mark.is_whitespace() || "_/!#".contains(mark))
}

/// Returns the offsets at which a phrase of [`BANNED`] begins.
fn find(text: &str, words: &[Range<usize>], phrase: &str) -> Vec<usize> {
    let forms: Vec<Vec<&str>> = phrase.split(' ').map(|word| word.split('|').collect()).collect();
    let matches = |run: &&[Range<usize>]| {
        let mut pairs = run.iter().zip(&forms);
        pairs.all(|(word, forms)| {
            forms.iter().any(|form| text[word.clone()].eq_ignore_ascii_case(form))
        }) && run.windows(2).all(|pair| joins(&text[pair[0].end..pair[1].start]))
    };
    words.windows(forms.len()).filter(matches).map(|run| run[0].start).collect()
}

#[test]
fn banned_words_appear_in_no_comment_message_document_or_name() {
    let mut wrong = Vec::new();
    for Page { name, text } in &pages() {
        let words = words(text);
        for &(phrase, instead) in BANNED {
            let quoted = |&(file, word): &(&str, &str)| file == name && phrase.starts_with(word);
            if QUOTES.iter().any(quoted) {
                continue;
            }
            for at in find(text, &words, phrase) {
                let line = text[..at].matches('\n').count() + 1;
                wrong.push(format!("{name}:{line}: {phrase}; write: {instead}"));
            }
        }
    }
    assert_none(&wrong, "banned words");
}

#[test]
fn no_line_of_source_or_script_is_wider_than_100_columns() {
    let mut wrong = Vec::new();
    let endings = [".rs", ".c", ".cpp", ".go", ".h", ".hpp"];
    let is_source = |name: &str| endings.iter().any(|ending| name.ends_with(ending));
    for page in pages().iter().filter(|page| is_source(&page.name) || page.name.starts_with(".ci"))
    {
        for (at, line) in page.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS {
                wrong.push(format!("{}:{}: {columns} columns", page.name, at + 1));
            }
        }
    }
    assert_none(&wrong, "lines that are too wide");
}

#[test]
fn words_are_found_in_names_and_over_the_ends_of_lines_but_not_inside_others() {
    let found = |text: &str, phrase: &str| find(text, &words(text), phrase).len();
    assert_eq!(found("fn it_goes_on() { GoesOn; goes_on }", "go|goes on"), 3);
    assert_eq!(found("/// It goes\n    /// on. Here it goes. On it", "goes on"), 1);
    assert_eq!(found("the area of generations, `ERA` and LastEra", "era"), 2);
    assert_eq!(found("background, the shell, given upper bounds", "ground"), 0);
    assert_eq!(found("given upper bounds", "given up"), 0);
}
