//! The documentation pages are correct: their links resolve, and the engine reads the worked
//! example of `docs/format.md` as described and writes the same bytes.

use ebbtide::{AgePartitioned, Any, Durability, Filter, Options, Timestamp, inspect};
use std::fs;
use std::path::{Path, PathBuf};

const NAME: &str = "wal-000002-0000000000000001";
const TIME: u64 = 1_700_000_000_000;
/// The offset of the first record.
const PLACES: usize = 4096;
const FILE_BYTES: usize = PLACES + (1 << 20);
/// The filter's uuid, which is random, and the checksum of the header, which covers it.
const UUID: std::ops::Range<usize> = 16..32;
const SUM: std::ops::Range<usize> = 120..128;

/// Returns the file that the lines of `xxd` in the document describe; omitted bytes are zero.
fn documented() -> Vec<u8> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/format.md"));
    let text = text.expect("the document");
    let mut file = vec![0; FILE_BYTES];
    let mut lines = 0;
    let is_dump = |line: &&str| line.len() > 50 && line.as_bytes()[8] == b':';
    for line in text.lines().skip_while(|line| *line != "## Worked example").filter(is_dump) {
        let (offset, rest) = line.split_at(8);
        let at = usize::from_str_radix(offset, 16).expect("an offset");
        let digits: String = rest[2..41].split(' ').collect();
        for (byte, digits) in digits.as_bytes().chunks(2).enumerate() {
            let digits = std::str::from_utf8(digits).expect("digits");
            file[at + byte] = u8::from_str_radix(digits, 16).expect("a byte");
        }
        lines += 1;
    }
    assert_eq!(lines, 10, "the header and a record");
    file
}

fn uuid_of(file: &[u8]) -> String {
    file[UUID].iter().rev().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_engine_writes_and_reads_the_worked_example_of_the_format() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let (dir, read) = (home.path().join("written"), home.path().join("read"));
    let options = Options::new()
        .hash_seed(7)
        .stripes(1)
        .segment_bytes(1 << 20)
        .durability(Durability::Never)
        .background(false);
    let filter = Filter::create(&dir, AgePartitioned::last(100), options.clone());
    let filter = filter.expect("a filter");
    let time = Timestamp::from_unix_millis(TIME);
    filter.call().time(time).insert("order 17").expect("an insert");
    let (written, example) = (fs::read(dir.join(NAME)).expect("a segment"), documented());
    let without = |file: &[u8]| {
        let mut file = file.to_vec();
        file[UUID].fill(0);
        file[SUM].fill(0);
        file
    };
    assert!(
        without(&written) == without(&example),
        "the example of a segment in docs/format.md is not what is written now: {:02x?}",
        &written[..128]
    );
    // The example with a `meta` of its uuid.
    let meta = fs::read_to_string(dir.join("meta")).expect("text");
    let meta = meta.replace(&uuid_of(&written), &uuid_of(&example));
    let (body, _) = meta.rsplit_once("checksum ").expect("a last line");
    let sum = crc32fast::hash(body.as_bytes());
    fs::create_dir(&read).expect("a directory");
    fs::write(read.join("meta"), format!("{body}checksum {sum:08x}\n")).expect("space");
    fs::write(read.join(NAME), example).expect("space");
    let mut entries = Vec::new();
    let all = inspect::wal(&read, |entry| {
        entries.push((entry.lsn, entry.timeline, entry.time, entry.operation, entry.details()[0]));
        Ok(())
    });
    all.expect("a sound log");
    let hash = ("hash", 0xb344_7f75_3b4c_ba66);
    assert_eq!(entries, [(1, 2, time, "insert", hash)]);
    let filter = Filter::<Any>::open(&read, options).expect("a filter");
    assert!(filter.contains("order 17").expect("an answer"));
}

/// Returns the pages of the project, with their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = ["docs", "tests/power_cut"].map(|folder| root.join(folder)).to_vec();
    let named = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "AGENTS.md",
        "benches/peers/README.md",
        "capi/README.md",
        "cli/README.md",
        "core/README.md",
        "python/README.md",
        "redis/README.md",
        "ship/README.md",
    ];
    let mut pages = named.map(|name| root.join(name)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "md") {
                pages.push(path);
            }
        }
    }
    let read = |page: PathBuf| (page.clone(), fs::read_to_string(page).expect("a page"));
    pages.into_iter().map(read).collect()
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    heading.chars().filter(kept).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// Returns the targets of a page's links; formulas in code are not links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split('`').step_by(2);
    prose
        .flat_map(|part| part.split("](").skip(1))
        .filter_map(|rest| Some(rest.split_once(')')?.0))
        .filter(|target| !target.starts_with("http"))
}

#[test]
fn every_page_of_the_documents_is_in_the_site_once() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let summary = docs.join("SUMMARY.md");
    let text = fs::read_to_string(&summary).expect("the summary");
    let listed: Vec<_> = links(&text).map(|link| docs.join(link)).collect();
    let mut wrong = Vec::new();
    for (page, _) in pages() {
        let times = listed.iter().filter(|found| **found == page).count();
        if page.starts_with(&docs) && page != summary && times != 1 {
            wrong.push(format!("{}: {times} times in docs/SUMMARY.md", page.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_link_between_pages_leads_to_a_file_and_a_heading() {
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            let found = fs::read_to_string(&target);
            let mut lines = found.iter().flat_map(|text| text.lines());
            let is_there = heading.is_empty()
                || lines.any(|line| line.starts_with('#') && anchor(line) == heading);
            if !target.exists() || !is_there {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the paths of Rust files in folders that a page names; `src/wal/{slot,segment}.rs` are
/// two.
fn named_sources(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for span in text.split('`').skip(1).step_by(2) {
        let is_path = |letter: char| letter.is_ascii_alphanumeric() || "_/.,{}".contains(letter);
        if !span.ends_with(".rs") || !span.contains('/') || !span.chars().all(is_path) {
            continue;
        }
        match span.split_once('{').and_then(|(start, rest)| Some((start, rest.split_once('}')?))) {
            None => found.push(span.to_owned()),
            Some((start, (names, end))) => {
                found.extend(names.split(',').map(|name| format!("{start}{name}{end}")));
            }
        }
    }
    found
}

#[test]
fn every_source_file_that_a_page_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut wrong, mut all) = (Vec::new(), 0);
    for (page, text) in pages() {
        // What these say of the past stays.
        if page.starts_with(root.join("docs/runs")) || page.ends_with("CHANGELOG.md") {
            continue;
        }
        for name in named_sources(&text) {
            all += 1;
            let of_core = Path::new("core/src").join(name.trim_start_matches("core/"));
            let places = [root.join(&name), root.join("src").join(&name), root.join(of_core)];
            if !places.iter().any(|path| path.exists()) && !page.with_file_name(&name).exists() {
                wrong.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(all > 200, "{all} files named");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(
        named_sources("`a/{b,c}.rs` d/e.rs `f.rs` `g/h.rs`"),
        ["a/b.rs", "a/c.rs", "g/h.rs"]
    );
}
