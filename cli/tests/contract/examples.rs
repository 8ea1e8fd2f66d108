//! The access log in `examples/`, the program that generates it, and the examples of the
//! documentation pages.

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

/// Returns the fenced blocks of a page in this language, concatenated.
fn blocks(page: &str, language: &str) -> String {
    let fences = page.split("```").skip(1).step_by(2);
    fences.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

/// Returns the output of these commands, run in the project's folder with the command in the path.
fn printed(commands: &str, temporary: &str) -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_ebbtide")).parent().expect("a folder");
    let path = std::env::var("PATH").expect("a path");
    let outcome = Command::new("sh")
        .args(["-e", "-c", commands])
        .current_dir(project_file(""))
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("TMPDIR", temporary)
        .output()
        .expect("a shell");
    assert_eq!(String::from_utf8_lossy(&outcome.stderr), "");
    assert!(outcome.status.success(), "{:?}", outcome.status);
    String::from_utf8(outcome.stdout).expect("UTF-8")
}

#[test]
fn the_commands_of_the_page_about_posteriors_print_what_it_shows() {
    let page = std::fs::read_to_string(project_file("docs/posteriors.md")).expect("the page");
    let place = Place::new();
    assert_eq!(printed(&blocks(&page, "sh"), &place.at("")), blocks(&page, "text"));
}

#[test]
fn the_commands_of_the_page_about_the_command_print_what_it_shows_on_every_run() {
    let page = std::fs::read_to_string(project_file("docs/command-line.md")).expect("the page");
    let commands = blocks(&page, "sh");
    assert!(commands.matches("mktemp -d").count() >= 3, "{commands}");
    let place = Place::new();
    for run in ["first", "second"] {
        assert_eq!(printed(&commands, &place.at("")), blocks(&page, "text"), "the {run} run");
        let left = std::fs::read_dir(place.at("")).expect("a directory").count();
        assert_eq!(left, 0, "the {run} run leaves files behind");
    }
}
