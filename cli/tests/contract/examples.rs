//! The access log in `examples/`, the program that makes it, and what a page of the documentation shows of it.

use crate::support::{Place, ok, project_file};
use std::path::Path;
use std::process::Command;

#[expect(dead_code, reason = "its main function is not called here")]
#[path = "../../../examples/make_requests_log.rs"]
mod make_requests_log;

#[test]
fn the_example_log_is_what_its_generator_writes() {
    let log = std::fs::read_to_string(project_file("examples/requests.log")).expect("log");
    assert!(log == make_requests_log::log(), "run the generator again");
}

#[test]
fn the_example_log_has_repeats_to_suppress() {
    let path = project_file("examples/requests.log");
    let file = path.to_str().expect("UTF-8");
    let outcome = ok(&["dedup", "--last", "1000", "--field", "1", "--hash-seed", "7", file], b"");
    let printed = outcome.lines().len();
    assert!((1_500..9_000).contains(&printed), "{printed} of 12,000 lines");
}

/// The fenced blocks of a page that are of this language, one after the other.
fn blocks(page: &str, language: &str) -> String {
    let fences = page.split("```").skip(1).step_by(2);
    fences.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

#[test]
fn the_commands_of_the_page_about_posteriors_print_what_it_shows() {
    let page = std::fs::read_to_string(project_file("docs/posteriors.md")).expect("the page");
    let place = Place::new();
    let folder = Path::new(env!("CARGO_BIN_EXE_ebbtide")).parent().expect("a folder");
    let path = std::env::var("PATH").expect("a path");
    let outcome = Command::new("sh")
        .args(["-e", "-c", &blocks(&page, "sh")])
        .current_dir(project_file(""))
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("TMPDIR", place.at(""))
        .output()
        .expect("a shell");
    assert_eq!(String::from_utf8_lossy(&outcome.stderr), "");
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), blocks(&page, "text"));
}
