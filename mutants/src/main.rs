//! Runs the mutants that cargo-mutants lists, all of them in one build, each behind a switch; each
//! only with the tests that reach it. So thousands of them take hours, not weeks. See `README.md`.
//!
//! ```text
//! ebbtide-mutants --budget 60 'src/wal/**' 'src/recovery/**'
//! ```

mod list;
mod switches;
mod tests;
mod tree;

use list::Mutant;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tests::{End, Test};

/// The programs whose tests notice mutants of the engine, unless `--test` names others.
const PROGRAMS: [&str; 12] = [
    "ebbtide:lib",
    "ebbtide:answers",
    "ebbtide:api",
    "ebbtide:bad_input",
    "ebbtide:concurrency",
    "ebbtide:durability",
    "ebbtide:kill",
    "ebbtide:over_memory",
    "ebbtide:processes",
    "ebbtide:recovery",
    "ebbtide:space",
    "ebbtide:surroundings",
];

struct Arguments {
    globs: Vec<String>,
    programs: Vec<String>,
    /// What the tests of one mutant may take together without a mutant.
    budget: Duration,
    workers: usize,
    /// One mutant in so many is run.
    every: usize,
    /// The number of mutants before the first that is run.
    skip: usize,
    work: PathBuf,
    /// Only mutants of files that begin so are run; of all files if there is none.
    only: Vec<String>,
    /// Whether to stop when the tests are measured.
    only_measure: bool,
}

fn arguments() -> Arguments {
    let mut found = Arguments {
        globs: Vec::new(),
        programs: Vec::new(),
        budget: Duration::from_secs(60),
        workers: std::thread::available_parallelism().map_or(1, usize::from),
        every: 1,
        skip: 0,
        work: PathBuf::from("target/mutants"),
        only: Vec::new(),
        only_measure: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        match &*word {
            "--budget" => found.budget = Duration::from_secs(value().parse().expect("seconds")),
            "--workers" => found.workers = value().parse().expect("a number"),
            "--every" => found.every = value().parse().expect("a number"),
            "--skip" => found.skip = value().parse().expect("a number"),
            "--test" => found.programs.push(value()),
            "--only" => found.only.push(value()),
            "--measure" => found.only_measure = true,
            "--work" => found.work = value().into(),
            _ => found.globs.push(word),
        }
    }
    if found.programs.is_empty() {
        found.programs = PROGRAMS.map(str::to_owned).to_vec();
    }
    found
}

fn main() {
    let arguments = arguments();
    let repository = Command::new("git").args(["rev-parse", "--show-toplevel"]).output();
    let repository = String::from_utf8(repository.expect("git runs").stdout).expect("a path");
    let repository = Path::new(repository.trim());
    let work = repository.join(&arguments.work);
    fs::create_dir_all(&work).expect("a folder");

    let mutants = list::list(repository, &arguments.globs);
    let mutants = mutants.into_iter().skip(arguments.skip).step_by(arguments.every);
    let mutants: Vec<_> = mutants.collect();
    println!("{} mutants", mutants.len());
    let tree = tree::make(repository, &work, mutants);
    println!("{} do not compile, {} have no switch", tree.do_not_compile, tree.left_out);
    let tests = tests::measure(&tree, &work, &arguments.programs, arguments.workers);

    if arguments.only_measure {
        return;
    }
    let outcomes = Outcomes::open(&work.join("outcomes"));
    let next = AtomicUsize::new(0);
    // What caught the last mutant of a function, and of a file, probably catches the next one.
    let catchers = Mutex::new(HashMap::new());
    std::thread::scope(|scope| {
        for worker in 0..arguments.workers {
            let (tree, tests, outcomes, next, catchers, arguments) =
                (&tree, &tests, &outcomes, &next, &catchers, &arguments);
            scope.spawn(move || {
                while let Some(mutant) = tree.mutants.get(next.fetch_add(1, Relaxed)) {
                    let only = &arguments.only;
                    let wanted =
                        only.is_empty() || only.iter().any(|it| mutant.file.starts_with(it));
                    if wanted && outcomes.of(&mutant.name).is_none() {
                        let outcome = examine(mutant, tests, catchers, arguments.budget, worker);
                        outcomes.note(&mutant.name, outcome);
                    }
                }
            });
        }
    });
    outcomes.print(&tree.mutants);
}

type Catchers = Mutex<HashMap<String, Vec<usize>>>;

/// Runs tests that reach a mutant until one fails.
fn examine(
    mutant: &Mutant,
    tests: &[Test],
    catchers: &Catchers,
    budget: Duration,
    worker: usize,
) -> String {
    let first = catchers.lock().unwrap().get(&mutant.file).cloned().unwrap_or_default();
    // Then those of its own file and folder, whatever they take.
    let (own, others): (Vec<_>, Vec<_>) = (0..tests.len())
        .filter(|at| !first.contains(at))
        .partition(|&at| is_of(&tests[at].name, &mutant.file));
    let mut spent = Duration::ZERO;
    let (mut ran, mut passed_over) = (0, 0);
    for at in first.iter().chain(&own).chain(&others).copied() {
        let test = &tests[at];
        if !test.reaches.contains(&mutant.id) {
            continue;
        }
        if spent + test.time > budget && !own.contains(&at) {
            passed_over += 1;
            continue;
        }
        spent += test.time;
        ran += 1;
        let limit = Duration::from_secs(10) + test.time * 8;
        let end = test.run(&mutant.id.to_string(), None, limit, worker);
        if end == End::Passed {
            continue;
        }
        let mut catchers = catchers.lock().unwrap();
        let first = catchers.entry(mutant.file.clone()).or_default();
        first.retain(|&other| other != at);
        // What times out would take long each time.
        if end == End::Failed {
            first.insert(0, at);
            first.truncate(12);
        }
        let how = if end == End::Failed { "caught" } else { "timeout" };
        return format!("{how}\t{}", test.name);
    }
    match ran + passed_over {
        0 => "unreached\t".to_owned(),
        _ => format!("survived\t{ran} tests passed, {passed_over} passed over"),
    }
}

/// Returns whether a test has the name of this file or its folder.
fn is_of(test: &str, file: &str) -> bool {
    let mut names = file.rsplit('/').map(|name| name.trim_end_matches(".rs"));
    names
        .by_ref()
        .take(2)
        .any(|name| !["src", "mod", "engine"].contains(&name) && test.contains(name))
}

/// The outcomes, in a file that a later run goes on with.
struct Outcomes {
    known: Mutex<BTreeMap<String, String>>,
    file: Mutex<fs::File>,
}

impl Outcomes {
    fn open(path: &Path) -> Outcomes {
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        let known = lines.map(|(name, outcome)| (name.to_owned(), outcome.to_owned())).collect();
        let file = fs::OpenOptions::new().append(true).create(true).open(path);
        Outcomes { known: Mutex::new(known), file: Mutex::new(file.expect("a file")) }
    }

    fn of(&self, name: &str) -> Option<String> {
        self.known.lock().unwrap().get(name).cloned()
    }

    fn note(&self, name: &str, outcome: String) {
        let line = format!("{name}\t{outcome}\n");
        self.file.lock().unwrap().write_all(line.as_bytes()).expect("the file of outcomes");
        self.known.lock().unwrap().insert(name.to_owned(), outcome);
    }

    /// Prints a table by folder, and what was not caught.
    fn print(&self, mutants: &[Mutant]) {
        let mut table: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        let mut hows = BTreeSet::new();
        for mutant in mutants {
            let Some(outcome) = self.of(&mutant.name) else { continue };
            let (how, rest) = outcome.split_once('\t').expect("an outcome and a test");
            if how == "survived" || how == "unreached" {
                println!("{how}: {} ({rest})", mutant.name);
            }
            let folder = mutant.file.split('/').take(2).collect::<Vec<_>>().join("/");
            for part in [folder, "all".to_owned()] {
                *table.entry(part).or_default().entry(how.to_owned()).or_default() += 1;
            }
            hows.insert(how.to_owned());
        }
        let hows: Vec<_> = hows.into_iter().collect();
        println!("| part | {} |\n|---{}|", hows.join(" | "), "|---".repeat(hows.len()));
        for (part, counts) in table {
            let counts = hows.iter().map(|how| counts.get(how).unwrap_or(&0).to_string());
            println!("| {part} | {} |", counts.collect::<Vec<_>>().join(" | "));
        }
    }
}
