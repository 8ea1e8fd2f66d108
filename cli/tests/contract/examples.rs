//! The access log in `examples/` and the program that makes it.

use crate::support::{ok, project_file};

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
