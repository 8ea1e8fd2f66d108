//! Builds the libraries and the C and C++ programs of `tests/c`, and runs them.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a program may take, with a wide margin for valgrind on a busy machine.
const LIMIT: Duration = Duration::from_secs(600);

/// How a program is compiled and run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// C11 with the shared library.
    Shared,
    /// C11 with the static library.
    Static,
    /// As C++17, with the shared library.
    Cpp,
    /// C11 with the address sanitizer, which also looks for leaks and undefined behaviour.
    Sanitized,
    /// C11 under valgrind.
    Valgrind,
}

/// Returns the root of this package.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command to its end; it must succeed. Returns what it wrote to standard output.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    text_of(&format!("{command:?}"), &output)
}

/// Returns the standard output of a program that has succeeded.
fn text_of(name: &str, output: &Output) -> String {
    let [text, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{name}: {}\n{text}\n{errors}", output.status);
    text.into_owned()
}

/// Runs cargo in a package of the project and returns a folder of what it has built.
fn built(package: &Path, arguments: &[&str]) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg("build").args(arguments).current_dir(package);
    // The target directory of this run is not that of the other workspace.
    succeed(cargo.env_remove("CARGO_TARGET_DIR"));
    package.join("target/debug")
}

/// Returns the folder with `libebbtide.so` and `libebbtide.a`: `EBBTIDE_LIBRARIES` as `make check`
/// sets it, otherwise one that is built now.
pub fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let given = env::var_os("EBBTIDE_LIBRARIES").map(PathBuf::from);
        given.unwrap_or_else(|| built(root(), &["--lib"]))
    })
}

/// Returns the program `ebbtide`: `EBBTIDE_COMMAND`, or one that is built now.
pub fn command() -> &'static Path {
    static COMMAND: OnceLock<PathBuf> = OnceLock::new();
    COMMAND.get_or_init(|| {
        let given = env::var_os("EBBTIDE_COMMAND").map(PathBuf::from);
        let project = root().parent().expect("the project");
        given.unwrap_or_else(|| built(project, &["--package", "ebbtide-cli"]).join("ebbtide"))
    })
}

/// A compiled program.
pub struct Program {
    path: PathBuf,
    way: Way,
    /// Whether valgrind looks for leaks. A child keeps the memory of threads that the fork ended.
    leaks: bool,
    // Removed with the program.
    _home: TempDir,
}

impl Program {
    /// Compiles a file of `tests/c`.
    pub fn new(file: &str, way: Way) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("program");
        let cpp = way == Way::Cpp || Path::new(file).extension() == Some(OsStr::new("cpp"));
        let mut compiler = Command::new(if cpp { "g++" } else { "gcc" });
        if cpp {
            compiler.args(["-std=c++17", "-x", "c++"]);
        } else {
            compiler.args(["-std=c11", "-D_GNU_SOURCE"]);
        }
        compiler.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-pthread"]);
        if way == Way::Sanitized {
            compiler.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        }
        compiler.arg("-I").arg(root().join("include")).arg("-o").arg(&path);
        compiler.arg(root().join("tests/c").join(file)).args(["-x", "none"]);
        if way == Way::Static {
            compiler.arg(libraries().join("libebbtide.a"));
            compiler.args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"]);
        } else {
            compiler.arg("-L").arg(libraries()).arg("-lebbtide");
        }
        succeed(&mut compiler);
        Self { path, way, leaks: file != "forked.c", _home: home }
    }

    /// Returns the command that runs the program, with what it needs to find the library.
    pub fn command(&self) -> Command {
        let mut command = if self.way == Way::Valgrind {
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--quiet", "--error-exitcode=9"]);
            if self.leaks {
                valgrind.args(["--leak-check=full", "--show-leak-kinds=definite,indirect"]);
                valgrind.arg("--errors-for-leak-kinds=definite,indirect");
            }
            valgrind.arg(&self.path);
            valgrind
        } else {
            Command::new(&self.path)
        };
        command.env("LD_LIBRARY_PATH", loader_path()).env("ASAN_OPTIONS", "detect_leaks=1");
        command
    }

    /// Runs the program in a directory of its own until it has passed.
    pub fn pass(&self) {
        let home = tempfile::tempdir().expect("a directory");
        let text = limited(self.command().arg(home.path()));
        assert_eq!(text.trim(), "passed", "{}", self.path.display());
    }
}

/// Returns a folder that has the library under its soname, as if it were installed.
fn loader_path() -> &'static Path {
    static LOADER: OnceLock<PathBuf> = OnceLock::new();
    LOADER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("loader");
        std::fs::create_dir_all(&folder).expect("a folder");
        let link = folder.join("libebbtide.so.0");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(libraries().join("libebbtide.so"), link).expect("a link");
        folder
    })
}

/// Runs a command that may hang; it is killed after [`LIMIT`]. Returns its standard output.
pub fn limited(command: &mut Command) -> String {
    let name = format!("{command:?}");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect(&name);
    let start = Instant::now();
    while child.try_wait().expect("its state").is_none() {
        if start.elapsed() > LIMIT {
            child.kill().expect("a child to kill");
        }
        thread::sleep(Duration::from_millis(5));
    }
    text_of(&name, &child.wait_with_output().expect("its output"))
}

/// Returns whether a tool is installed; says so if it is not.
pub fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        println!("skipped: {tool} is not installed");
    }
    found
}
