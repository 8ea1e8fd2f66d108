//! A copy of the repository in which each mutant is behind a switch.

use crate::list::Mutant;
use crate::switches::{self, Switched};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The copy.
pub struct Tree {
    pub path: PathBuf,
    pub target: PathBuf,
    /// The mutants that are in it: those that compile.
    pub mutants: Vec<Mutant>,
    /// The number of those that do not compile, and of those that no switch can express.
    pub do_not_compile: usize,
    pub left_out: usize,
}

/// Copies the repository to `work` and puts in the mutants that compile.
///
/// # Panics
/// If what a compiler says cannot be traced to a mutant; it is printed.
pub fn make(repository: &Path, work: &Path, mut mutants: Vec<Mutant>) -> Tree {
    let (path, target) = (work.join("tree"), work.join("target"));
    copy(repository, &path);
    let all = mutants.len();
    let mut left_out = BTreeSet::new();
    let remembered = work.join("do-not-compile");
    let mut bad: BTreeSet<String> =
        fs::read_to_string(&remembered).unwrap_or_default().lines().map(str::to_owned).collect();
    loop {
        mutants.retain(|mutant| !bad.contains(&mutant.name));
        left_out.extend(put_in(repository, &path, &mutants));
        let packages: BTreeSet<_> = mutants.iter().map(|mutant| &*mutant.package).collect();
        let found = check(&path, &target, &packages);
        if found.is_empty() {
            break;
        }
        println!("{} mutants do not compile", found.len());
        bad.extend(mutants.iter().filter(|it| found.contains(&it.id)).map(|it| it.name.clone()));
        fs::write(&remembered, bad.iter().map(|name| format!("{name}\n")).collect::<String>())
            .expect("a list of mutants");
    }
    let compile = mutants.len();
    mutants.retain(|mutant| !left_out.contains(&mutant.id));
    let left_out = compile - mutants.len();
    Tree { path, target, mutants, do_not_compile: all - compile, left_out }
}

/// Writes a file if it does not contain this yet: cargo builds what is newer.
fn write(path: &Path, text: &[u8]) {
    if fs::read(path).is_ok_and(|found| found == text) {
        return;
    }
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Returns the files of the repository.
fn files(repository: &Path) -> Vec<String> {
    let mut command = Command::new("git");
    let listed = command.current_dir(repository).arg("ls-files").output().expect("git runs");
    let listed = String::from_utf8_lossy(&listed.stdout);
    listed.lines().filter(|file| repository.join(file).is_file()).map(str::to_owned).collect()
}

fn is_source(file: &str) -> bool {
    file.contains("src/") && file.ends_with(".rs")
}

fn copy(repository: &Path, path: &Path) {
    // What gets switches is written by `put_in`.
    for file in files(repository).iter().filter(|file| !is_source(file)) {
        write(&path.join(file), &fs::read(repository.join(file)).expect("a file"));
    }
}

/// Puts the mutants into the sources of their packages, and returns those that no switch can
/// express.
fn put_in(repository: &Path, path: &Path, mutants: &[Mutant]) -> Vec<u32> {
    let sources = files(repository).into_iter().filter(|file| is_source(file));
    let mut files: BTreeMap<String, Vec<&Mutant>> =
        sources.map(|file| (file, Vec::new())).collect();
    for mutant in mutants {
        files.get_mut(&mutant.file).expect("a file of the repository").push(mutant);
    }
    let mut left_out = Vec::new();
    for (file, mutants) in files {
        let text = fs::read_to_string(repository.join(&file)).expect("a source file");
        let on = match mutants.first().map(|mutant| &*mutant.package) {
            Some("ebbtide-core") => "crate::mutant_switch::on",
            Some("ebbtide") => "::ebbtide_core::mutant_switch::on",
            _ => "::ebbtide::mutant_switch::on",
        };
        let switched = match mutants.is_empty() {
            true => Switched { text, left_out: Vec::new() },
            false => switches::switch(&text, &mutants, on)
                .unwrap_or_else(|error| panic!("{file}: {error}")),
        };
        let mut text = switched.text;
        match &*file {
            "core/src/lib.rs" => text.push_str("\npub mod mutant_switch;\n"),
            "src/lib.rs" => text.push_str("\npub use ebbtide_core::mutant_switch;\n"),
            _ => {}
        }
        write(&path.join(&file), text.as_bytes());
        left_out.extend(switched.left_out);
    }
    write(&path.join("core/src/mutant_switch.rs"), include_bytes!("mutant_switch.rs"));
    left_out
}

/// Lets the compiler check the packages, and returns the mutants in which it finds errors.
fn check(path: &Path, target: &Path, packages: &BTreeSet<&str>) -> BTreeSet<u32> {
    let mut command = Command::new("cargo");
    command.current_dir(path).args(["check", "--message-format", "json", "--keep-going"]);
    command.arg("--target-dir").arg(target).args(["--profile", "mutants"]);
    for package in packages {
        command.args(["--package", package]);
    }
    let said = command.env("RUSTFLAGS", "--cap-lints=allow").output().expect("cargo runs");
    let mut found = BTreeSet::new();
    let mut unknown = String::new();
    for line in said.stdout.split(|&byte| byte == b'\n') {
        let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
        let message = &message["message"];
        if message["level"] != "error" {
            continue;
        }
        let spans = message["spans"].as_array().into_iter().flatten();
        let primary = spans.filter(|span| span["is_primary"] == true);
        let mut ids: Vec<_> = primary.filter_map(|span| mutant_at(path, span)).collect();
        if ids.is_empty() {
            let rendered = message["rendered"].as_str().unwrap_or_default();
            ids.extend(quoted(rendered));
            if ids.is_empty() {
                let spans = message["spans"].as_array().into_iter().flatten();
                ids.extend(spans.filter_map(|span| arm_after(path, span)));
            }
            unknown.push_str(rendered);
        }
        found.extend(ids);
    }
    if found.is_empty() && !said.status.success() {
        panic!("{unknown}{}", String::from_utf8_lossy(&said.stderr));
    }
    found
}

/// The innermost mutant around the place at which the compiler found an error.
fn mutant_at(path: &Path, span: &Value) -> Option<u32> {
    let text = fs::read_to_string(path.join(span["file_name"].as_str()?)).ok()?;
    let line = span["line_start"].as_u64()? as usize;
    let mut around = Vec::new();
    for text in text.lines().take(line) {
        // The mark of an end is at the beginning of a line, as is that of a beginning.
        if let Some(rest) = text.strip_prefix("/*<") {
            around.push(rest.split_once("*/")?.0.parse().ok()?);
        } else if text.starts_with("/*") && text.contains(">*/") {
            around.pop();
        }
    }
    around.pop()
}

/// The mutants whose switches a message quotes, such as that of an arm whose pattern is needed.
fn quoted(message: &str) -> impl Iterator<Item = u32> + '_ {
    let after = message.split("mutant_switch::on(").skip(1);
    after.filter_map(|rest| rest.split_once(')')?.0.parse().ok())
}

/// The first arm with a switch after the beginning of a `match` that needs all of its arms.
fn arm_after(path: &Path, span: &Value) -> Option<u32> {
    let text = fs::read_to_string(path.join(span["file_name"].as_str()?)).ok()?;
    let mut lines = text.lines().skip(span["line_start"].as_u64()? as usize);
    let arm = lines.find(|line| line.contains(" if !") && line.contains("=>"))?;
    quoted(arm).next()
}
