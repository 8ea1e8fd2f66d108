//! The library as it is installed: what `make install` lays out, and the examples of README.md
//! built on it by pkg-config and by CMake, also after the tree was moved.

use crate::tools::{has, libraries, root, succeed};
use crate::with_input;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The library below a prefix of its own.
struct Installed {
    prefix: PathBuf,
    target: PathBuf,
    home: TempDir,
}

impl Installed {
    /// Installs the library; `None` if there is no `make`.
    fn new() -> Option<Self> {
        if !has("make") {
            return None;
        }
        let home = tempfile::tempdir().expect("a directory");
        let (prefix, target) = (home.path().join("usr"), home.path().join("target"));
        // The makefile installs from `release/`.
        fs::create_dir(&target).expect("a folder");
        symlink(libraries(), target.join("release")).expect("a link");
        let installed = Self { prefix, target, home };
        installed.make(&["install"]);
        Some(installed)
    }

    fn make(&self, arguments: &[&str]) {
        let mut make = Command::new("make");
        make.arg("-C").arg(root()).env("CARGO_TARGET_DIR", &self.target);
        make.arg(format!("PREFIX={}", self.prefix.display())).env_remove("MAKEFLAGS");
        succeed(make.args(arguments));
    }

    fn pkg_config(&self, package: &str) -> Vec<String> {
        let mut run = Command::new("pkg-config");
        run.args(["--cflags", "--libs", package]);
        let flags = succeed(run.env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig")));
        flags.split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles an example by pkg-config and returns the program.
    fn compiled(&self, file: &str, package: &str) -> PathBuf {
        let is_cpp = Path::new(file).extension() == Some(OsStr::new("cpp"));
        let program = self.home.path().join(format!("{file}-{package}"));
        let (compiler, standard) = if is_cpp { ("g++", "-std=c++17") } else { ("gcc", "-std=c11") };
        let mut run = Command::new(compiler);
        run.args([standard, "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
        succeed(run.arg(root().join("tests/c").join(file)).args(self.pkg_config(package)));
        program
    }

    /// Runs the program of an example twice; what the first one has seen, the second one knows.
    fn remembers(&self, program: &Path, library: Option<&Path>) {
        let place = tempfile::tempdir().expect("a directory");
        for expected in ["a\nb\n", ""] {
            let mut run = Command::new(program);
            run.current_dir(place.path()).env_remove("LD_LIBRARY_PATH");
            if let Some(library) = library {
                run.env("LD_LIBRARY_PATH", library);
            }
            assert_eq!(with_input(&mut run, "a\nb\na\n"), expected, "{}", program.display());
        }
    }
}

/// Returns the paths of all files and links below a folder.
fn files(folder: &Path) -> String {
    succeed(Command::new("find").arg(folder).args(["-not", "-type", "d", "-printf", "%P\\n"]))
}

#[test]
fn the_examples_are_those_of_the_readme() {
    let read = |file: &str| fs::read_to_string(root().join(file)).expect(file);
    let readme = read("README.md");
    for (language, file) in [("c", "example.c"), ("cpp", "example.cpp")] {
        let block = format!("```{language}\n{}```\n", read(&format!("tests/c/{file}")));
        assert!(readme.contains(&block), "README.md has another example than {file}");
    }
}

#[test]
fn the_examples_run_on_an_installed_library_of_which_nothing_is_left_when_it_is_removed() {
    let Some(installed) = Installed::new() else { return };
    if has("pkg-config") {
        let library = installed.prefix.join("lib");
        for file in ["example.c", "example.cpp"] {
            installed.remembers(&installed.compiled(file, "ebbtide"), Some(&library));
            installed.remembers(&installed.compiled(file, "ebbtide-static"), None);
        }
    }
    installed.make(&["uninstall"]);
    assert_eq!(files(&installed.prefix), "", "files that were left behind");
}

#[test]
fn packages_are_laid_out_below_another_root() {
    let Some(installed) = Installed::new() else { return };
    let root = installed.home.path().join("root");
    let arguments = [
        format!("DESTDIR={}", root.display()),
        "PREFIX=/usr".into(),
        "LIBDIR=/usr/lib/x86_64-linux-gnu".into(),
    ];
    let mut all = vec!["install"];
    all.extend(arguments.iter().map(String::as_str));
    installed.make(&all);
    let (found, library) = (files(&root), "usr/lib/x86_64-linux-gnu");
    for file in ["libebbtide.so.0", "pkgconfig/ebbtide.pc", "cmake/ebbtide/ebbtide-config.cmake"] {
        assert!(found.lines().any(|line| line == format!("{library}/{file}")), "{found}");
    }
    let read = |file: &str| fs::read_to_string(root.join(library).join(file)).expect(file);
    for file in ["pkgconfig/ebbtide.pc", "cmake/ebbtide/ebbtide-config.cmake"] {
        let text = read(file);
        assert!(!text.contains(installed.home.path().to_str().expect("text")), "{text}");
        assert!(!text.contains('@'), "{text}");
    }
    all[0] = "uninstall";
    installed.make(&all);
    assert_eq!(files(&root), "", "files that were left behind");
}

/// A project of CMake that uses the library in C and C++, shared and static.
const PROJECT: &str = "cmake_minimum_required(VERSION 3.13)
project(user C CXX)
find_package(ebbtide 0.1 REQUIRED)
add_executable(in_c example.c)
target_link_libraries(in_c PRIVATE ebbtide::ebbtide)
add_executable(in_cpp example.cpp)
target_compile_features(in_cpp PRIVATE cxx_std_17)
target_link_libraries(in_cpp PRIVATE ebbtide::ebbtide)
add_executable(static_cpp example.cpp)
target_compile_features(static_cpp PRIVATE cxx_std_17)
target_link_libraries(static_cpp PRIVATE ebbtide::static)
";

/// Runs `cmake` in a project with this text, and returns whether it succeeded and what it printed.
fn configured(project: &Path, prefix: &Path, text: &str) -> (bool, String) {
    fs::create_dir_all(project).expect("a folder");
    for file in ["example.c", "example.cpp"] {
        fs::copy(root().join("tests/c").join(file), project.join(file)).expect("an example");
    }
    fs::write(project.join("CMakeLists.txt"), text).expect("a project");
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(project).arg("-B").arg(project.join("build"));
    let output = cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())).output();
    let output = output.expect("cmake");
    let [out, errors] = [output.stdout, output.stderr].map(String::from_utf8);
    (output.status.success(), out.expect("text") + &errors.expect("text"))
}

#[test]
fn cmake_finds_an_installed_library_also_after_it_was_moved() {
    let Some(installed) = Installed::new() else { return };
    if !has("cmake") {
        return;
    }
    let home = installed.home.path();
    for (name, prefix) in [("there", "usr"), ("moved", "elsewhere/usr")] {
        let (project, prefix) = (home.join(name), home.join(prefix));
        if name == "moved" {
            fs::create_dir(home.join("elsewhere")).expect("a folder");
            fs::rename(&installed.prefix, &prefix).expect("a move");
        }
        let (found, text) = configured(&project, &prefix, PROJECT);
        assert!(found, "{text}");
        let built = project.join("build");
        succeed(Command::new("cmake").arg("--build").arg(&built));
        // CMake has given the first two the library's place.
        for program in ["in_c", "in_cpp", "static_cpp"] {
            installed.remembers(&built.join(program), None);
        }
    }
}

#[test]
fn cmake_finds_a_library_by_way_of_a_link_to_its_directory() {
    let Some(installed) = Installed::new() else { return };
    if !has("cmake") {
        return;
    }
    // As /lib is a link to usr/lib, and / is searched before /usr.
    let home = installed.home.path();
    symlink(installed.prefix.join("lib"), home.join("lib")).expect("a link");
    let (found, text) = configured(&home.join("project"), home, PROJECT);
    assert!(found, "{text}");
}

#[test]
fn cmake_refuses_another_version_and_says_what_an_incomplete_installation_lacks() {
    let Some(installed) = Installed::new() else { return };
    if !has("cmake") {
        return;
    }
    let project = |version: &str| PROJECT.replace("ebbtide 0.1", &format!("ebbtide{version}"));
    let home = installed.home.path();
    for (version, is_there) in [("", true), (" 0.0.9", true), (" 0.9", false), (" 1.0", false)] {
        let place = home.join(format!("project{version}"));
        let (found, text) = configured(&place, &installed.prefix, &project(version));
        assert_eq!(found, is_there, "version{version}: {text}");
    }
    fs::remove_file(installed.prefix.join("include/ebbtide.h")).expect("the header");
    let (found, text) = configured(&home.join("incomplete"), &installed.prefix, &project(""));
    assert!(!found && text.contains("ebbtide.h is missing"), "{text}");
}
