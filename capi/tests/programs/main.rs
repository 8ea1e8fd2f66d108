//! The library as C and C++ programs use it: shared and static, alone and beside programs in Rust
//! and the command line, killed, sanitized and installed. Needs gcc and g++.

mod installed;
mod tools;

use engine::{Any, Filter, Options};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tools::{Program, Way, command, has, libraries, root, succeed};

const PROGRAMS: &[&str] = &[
    "functions.c",
    "claims.c",
    "history.c",
    "altered.c",
    "arguments.c",
    "forked.c",
    "owners.cpp",
    "wrapper.cpp",
];

fn all_pass(way: Way) {
    for file in PROGRAMS {
        Program::new(file, way).pass();
    }
}

#[test]
fn every_program_passes_with_the_shared_library() {
    all_pass(Way::Shared);
}

#[test]
fn every_program_passes_with_the_static_library() {
    all_pass(Way::Static);
}

#[test]
fn every_program_passes_as_cpp() {
    all_pass(Way::Cpp);
}

#[test]
fn every_program_passes_under_the_sanitizer_without_a_leak() {
    all_pass(Way::Sanitized);
}

#[test]
fn every_program_passes_under_valgrind_without_a_leak() {
    if has("valgrind") {
        all_pass(Way::Valgrind);
    }
}

/// Returns the functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(root().join("include/ebbtide.h")).expect("the header");
    let lines = header.lines().filter(|line| !line.starts_with([' ', '#', '/']));
    let names = lines.filter_map(|line| {
        let before = line.split_once('(')?.0;
        before.rsplit([' ', '*']).next().map(str::to_owned)
    });
    names.collect()
}

/// Returns the symbols that `nm` lists as defined with these arguments.
fn symbols(arguments: &[&str], library: &str) -> BTreeSet<String> {
    let mut nm = Command::new("nm");
    nm.args(arguments).arg("--defined-only").arg("--format=posix").arg(libraries().join(library));
    let listed = succeed(&mut nm);
    let names = listed.lines().filter_map(|line| line.split_once(' '));
    names.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn the_shared_library_exports_the_functions_of_the_header_and_no_others() {
    let declared = declared();
    assert_eq!(declared.len(), 58, "{declared:?}");
    assert_eq!(symbols(&["--dynamic"], "libebbtide.so"), declared);
    let mut own = symbols(&["--extern-only"], "libebbtide.a");
    own.retain(|name| name.starts_with("ebbtide_"));
    assert_eq!(own, declared);
}

#[test]
fn every_function_is_called_by_the_test_programs_and_listed_in_the_readme() {
    let read = |file: &str| fs::read_to_string(root().join(file)).expect(file);
    let programs = ["functions.c", "claims.c", "history.c", "altered.c", "arguments.c"];
    let programs = programs.map(|file| read(&format!("tests/c/{file}"))).concat();
    let readme = read("README.md");
    for name in declared() {
        let called = format!("{name}(");
        assert!(programs.contains(&called), "{name}");
        assert!(readme.contains(&format!("`{name}`")), "{name} is missing in README.md");
    }
}

#[test]
fn the_header_for_cpp_calls_every_function_and_has_every_code() {
    let read = |file: &str| fs::read_to_string(root().join(file)).expect(file);
    let (c, cpp) = (read("include/ebbtide.h"), read("include/ebbtide.hpp"));
    for name in declared() {
        // Some are passed as pointers.
        let uses = [format!("{name}("), format!("&{name},"), format!(", {name})")];
        assert!(uses.iter().any(|used| cpp.contains(used)), "{name} is missing in ebbtide.hpp");
    }
    // What is not a flag of a call or a structure is a value of an enumeration.
    let words: BTreeSet<&str> =
        cpp.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
    let lines = c.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
    let names: Vec<&str> = lines
        .filter(|(_, number)| number.parse::<u32>().is_ok())
        .map(|(name, _)| name)
        .filter(|&name| name != "EBBTIDE_DURABILITY_OF_FILTER")
        .collect();
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        assert!(words.contains(name), "{name} is missing in ebbtide.hpp");
    }
}

#[test]
fn the_header_for_cpp_compiles_without_a_warning_as_every_standard_and_by_clang() {
    let header = root().join("include/ebbtide.hpp");
    for compiler in ["g++", "clang++"] {
        for standard in ["c++17", "c++20"] {
            if compiler == "clang++" && !has("clang++") {
                continue;
            }
            let mut run = Command::new(compiler);
            run.args(["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]);
            run.arg(format!("-std={standard}")).args(["-x", "c++"]).arg(&header);
            succeed(&mut run);
        }
    }
}

#[test]
fn the_soname_is_that_of_the_major_version() {
    let mut readelf = Command::new("readelf");
    let shown = succeed(readelf.arg("-d").arg(libraries().join("libebbtide.so")));
    assert!(shown.contains("Library soname: [libebbtide.so.0]"), "{shown}");
    let needed = shown.lines().filter(|line| line.contains("(NEEDED)"));
    for line in needed {
        let system = ["[libc.so", "[libgcc_s.so", "[libm.so", "[ld-linux"];
        assert!(system.iter().any(|name| line.contains(name)), "{line}");
    }
}

/// Runs a command on this input; it must succeed. Returns what it wrote to standard output.
pub fn with_input(command: &mut Command, input: &str) -> String {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a program");
    child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("input");
    let output = child.wait_with_output().expect("its output");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Returns this many keys, one on each line.
fn keys(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

fn create(dir: &Path) -> Filter<Any> {
    let spec: Any = "age-partitioned last=1M fpr=0.00001".parse().expect("a spec");
    let options: Options = "durability=never".parse().expect("options");
    Filter::create(dir, spec, options).expect("a filter")
}

#[test]
fn programs_in_c_and_rust_and_the_command_line_share_one_live_filter() {
    const EACH: usize = 2000;
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("seen");
    let seen = create(&dir);
    let worker = Program::new("worker.c", Way::Shared);
    let work = |arguments: &[&str]| {
        let mut run = worker.command();
        tools::limited(run.arg(&dir).args(arguments))
    };
    let ebbtide = |arguments: &[&str], input: &str| {
        with_input(Command::new(command()).args(arguments).arg(&dir), input)
    };
    let count = EACH.to_string();
    // All three at the same time.
    thread::scope(|scope| {
        scope.spawn(|| work(&["insert", "c", &count]));
        scope.spawn(|| ebbtide(&["insert"], &(keys("line", EACH).join("\n") + "\n")));
        scope.spawn(|| seen.insert_all(&keys("rust", EACH)).expect("inserts"));
    });
    for prefix in ["c", "line", "rust"] {
        work(&["contains", prefix, &count]);
        let found = seen.contains_all(&keys(prefix, EACH)).expect("answers");
        assert!(found.iter().all(|&found| found), "{prefix}");
        let answers = ebbtide(&["contains"], &(keys(prefix, EACH).join("\n") + "\n"));
        assert_eq!(answers, "1\n".repeat(EACH), "{prefix}");
    }
    seen.sync().expect("a sync");
    let digest = seen.digest().expect("a digest").to_string();
    assert_eq!(work(&["digest"]).trim(), digest);
    let printed: Value = serde_json::from_str(&ebbtide(&["digest", "--json"], "")).expect("JSON");
    assert_eq!(printed["digest"], digest);
    // The same statistics in the same order, beside the same open handle.
    let stat = work(&["stat"]);
    assert!(stat.contains(&format!("\"inserts\":{}", 3 * EACH)), "{stat}");
    // The background threads may allocate log between the two looks.
    let is_same = || work(&["stat"]) == ebbtide(&["stat", "--json"], "");
    assert!((0..20).any(|_| is_same()), "{stat}");
    seen.close().expect("a clean end");
    // And closed.
    assert_eq!(work(&["digest"]).trim(), digest);
    assert_eq!(work(&["stat"]), ebbtide(&["stat", "--json"], ""));
}

#[test]
fn a_plan_is_that_of_the_command() {
    let worker = Program::new("worker.c", Way::Shared);
    for spec in [
        "fingerprint last=1M fpr=0.001",
        "time-limited window=10m",
        "decaying-optimized capacity=1000 lambda=0.5 epoch=1m",
        "counting capacity=1000 counter-bits=8",
    ] {
        let mut run = worker.command();
        let planned = tools::limited(run.args([spec, "plan"]));
        let mut ebbtide = Command::new(command());
        ebbtide.args(["plan", "--json", "--kind"]).args(spec.split(' ').take(1));
        for parameter in spec.split(' ').skip(1) {
            ebbtide.arg(format!("--{parameter}"));
        }
        let printed = with_input(&mut ebbtide, "");
        assert_eq!(planned, printed, "{spec}");
    }
}

#[test]
fn a_consumer_that_is_killed_and_run_again_writes_each_line_exactly_once() {
    let home = tempfile::tempdir().expect("a directory");
    let lines: Vec<String> =
        (0..20_000_u64).map(|at| format!("line {}\n", at * at % 7919)).collect();
    let mut seen = BTreeSet::new();
    let expected: String = lines.iter().filter(|line| seen.insert(*line)).cloned().collect();
    let (input, output) = (home.path().join("input"), home.path().join("output"));
    fs::write(&input, lines.concat()).expect("the input");
    let consumer = Program::new("consumer.c", Way::Shared);
    let run = || {
        let mut run = consumer.command();
        run.arg(home.path().join("seen")).args([&input, &output]);
        run
    };
    let length = || fs::metadata(&output).map_or(0, |found| found.len());
    let mut killed = 0;
    for kill in 0..25_u64 {
        // When it has begun, and when its output has grown by up to an eighth.
        let until = if kill % 3 == 0 { 0 } else { length() + kill * expected.len() as u64 / 200 };
        let (mut child, began) = (run().spawn().expect("a consumer"), Instant::now());
        while length() < until && child.try_wait().expect("a state").is_none() {
            assert!(began.elapsed().as_secs() < 60, "it hangs after {killed} kills");
            thread::sleep(Duration::from_micros(100));
        }
        thread::sleep(Duration::from_micros(kill * if until == 0 { 1_500 } else { 100 }));
        child.kill().expect("a consumer to kill");
        if child.wait().expect("its end").success() {
            // It has read everything: the next one begins anew.
            assert!(fs::read_to_string(&output).expect("the output") == expected);
            fs::remove_dir_all(home.path().join("seen")).expect("a filter");
            fs::remove_file(&output).expect("an output");
        } else {
            killed += 1;
        }
    }
    succeed(&mut run());
    assert!(fs::read_to_string(&output).expect("the output") == expected, "after {killed} kills");
    assert!(killed > 5, "the consumer was killed {killed} times before its end");
}

/// A worker that inserts without end, and the number of its inserts that have returned.
struct Stream {
    prefix: String,
    child: Child,
    returned: usize,
}

/// Makes the pipe of a worker small, so that it waits for its reader. A large one has room for the
/// numbers of as many inserts as the window has, and keys would leave it before they are read.
fn wait_for_readers(output: &ChildStdout) {
    // SAFETY: the descriptor is open as long as `output` is borrowed.
    let size = unsafe { libc::fcntl(output.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    assert_eq!(size, 4096);
}

#[test]
fn no_insert_that_has_returned_is_missing_after_workers_were_killed() {
    const ROUNDS: usize = 12;
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("seen");
    create(&dir).close().expect("a clean end");
    let worker = Program::new("worker.c", Way::Shared);
    let mut all = 0;
    for round in 0..ROUNDS {
        let mut streams: Vec<Stream> = (0..3)
            .map(|number| {
                let prefix = format!("{round}-{number}-");
                let mut run = worker.command();
                run.arg(&dir).args(["stream", &prefix, "100"]).stdout(Stdio::piped());
                let child = run.spawn().expect("a worker");
                wait_for_readers(child.stdout.as_ref().expect("its output"));
                Stream { prefix, child, returned: 0 }
            })
            .collect();
        // Each is killed at another moment, while the others work.
        for (number, stream) in streams.iter_mut().enumerate() {
            let lines = BufReader::new(stream.child.stdout.take().expect("its output")).lines();
            for line in lines.take(1 + (round * 7 + number * 13) % 40) {
                stream.returned = line.expect("a line").parse().expect("a number");
            }
            stream.child.kill().expect("a worker to kill");
            stream.child.wait().expect("its end");
        }
        let seen = Filter::<Any>::open(&dir, Options::new()).expect("a filter");
        for Stream { prefix, returned, .. } in streams {
            all += returned;
            let found = seen.contains_all(&keys(&prefix, returned)).expect("answers");
            assert!(found.iter().all(|&found| found), "round {round}: {prefix}");
        }
        seen.close().expect("a clean end");
    }
    println!("{all} inserts had returned");
    assert!(all > 10_000, "the workers were killed before they did anything");
}
