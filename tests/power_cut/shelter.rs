//! An isolated environment for all processes and files of a run: namespaces for mounts and
//! processes, and a file system in memory.
//!
//! When the run ends, for any reason, the namespaces end with it, and with them every process,
//! mount and loop device in them. No cleanup is necessary, and no leftover of an earlier run can
//! interfere.

use ebbtide_testkit::skipped::skipped;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const INSIDE: &str = "EBBTIDE_POWER_CUT_SHELTER";

/// The command that runs another command in new namespaces, which end with the caller.
const SHELTER: [&str; 8] =
    ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--"];

/// Programs, and the Debian package of each.
const TOOLS: [(&str, &str); 6] = [
    ("qemu-storage-daemon", "qemu-utils"),
    ("mkfs.ext4", "e2fsprogs"),
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
    ("mount", "mount"),
    ("umount", "mount"),
];

/// Returns whether this process is in the shelter.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this program again in the shelter, or prints why that is impossible.
pub fn enter() -> ExitCode {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    if let Some(why) = missing(&path) {
        skipped(&why);
        return ExitCode::SUCCESS;
    }
    let command = || {
        let mut command = Command::new(SHELTER[0]);
        command.args(&SHELTER[1..]).env("PATH", &path);
        command
    };
    let tried = command().arg("true").output().expect("it was found");
    if !tried.status.success() {
        skipped(format_args!("no namespaces: {}", String::from_utf8_lossy(&tried.stderr).trim()));
        return ExitCode::SUCCESS;
    }
    let program = std::env::current_exe().expect("this test's file");
    let mut inside = command();
    inside.arg(program).args(std::env::args_os().skip(1)).env(INSIDE, "yes");
    match inside.status().expect("it was found").code() {
        Some(0) => ExitCode::SUCCESS,
        code => {
            eprintln!("the run ended with {code:?}");
            ExitCode::FAILURE
        }
    }
}

fn missing(path: &std::ffi::OsStr) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("power cuts of a real file system need root".to_owned());
    }
    let there = |tool: &str| std::env::split_paths(path).any(|folder| folder.join(tool).is_file());
    let (tool, package) = TOOLS.iter().find(|(tool, _)| !there(tool))?;
    Some(format!("{tool} is missing, which is in Debian's package {package}"))
}

/// Prepares the shelter: an empty directory in memory, and a file that replaces the boot id.
/// Returns an error if the rig does not work here.
pub fn furnish() -> Result<PathBuf, String> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("power-cut");
    std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    done(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1g", "none"]).arg(&home))?;
    reboot(&home, 0).map_err(|error| error.to_string())?;
    let boot_id = "/proc/sys/kernel/random/boot_id";
    done(Command::new("mount").arg("--bind").arg(home.join("boot_id")).arg(boot_id))?;
    let trial = home.join("trial");
    std::fs::create_dir(&trial).map_err(|error| error.to_string())?;
    done(rig(&trial, "rw").arg("true")).map_err(|why| format!("no rig here: {why}"))?;
    Ok(home)
}

/// Simulates another boot of the machine from now on.
pub fn reboot(home: &Path, number: u64) -> std::io::Result<()> {
    std::fs::write(home.join("boot_id"), format!("00000000-0000-0000-0000-{number:012x}\n"))
}

/// Returns the rig's script, to which the caller adds a command.
pub fn rig(dir: &Path, options: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/power_cut/rig.sh"));
    command.arg(dir).arg(options);
    command
}

/// Runs a command; returns its error output if it failed.
pub fn done(command: &mut Command) -> Result<(), String> {
    let ended = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(format!("{command:?}: {}: {}", ended.status, said.trim()))
}
