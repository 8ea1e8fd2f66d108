//! A place of its own for everything that a run makes: namespaces for mounts and processes, and a file system in memory.
//!
//! When the run ends, by whatever means, the namespaces end with it, and with them every process, mount and
//! loop device in them. Nothing has to be tidied up, and nothing that an earlier run left can be in the way.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const INSIDE: &str = "EBBTIDE_POWER_CUT_SHELTER";

/// What runs a command in new namespaces, all of which die with whoever asked.
const SHELTER: [&str; 8] =
    ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--"];

/// Programs, and the package of Debian that has them.
const TOOLS: [(&str, &str); 6] = [
    ("qemu-storage-daemon", "qemu-utils"),
    ("mkfs.ext4", "e2fsprogs"),
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
    ("mount", "mount"),
    ("umount", "mount"),
];

/// Whether this process is in the shelter.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this program again in the shelter, or says why that cannot be.
pub fn enter() -> ExitCode {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    if let Some(why) = missing(&path) {
        println!("skipped: {why}");
        return ExitCode::SUCCESS;
    }
    let command = || {
        let mut command = Command::new(SHELTER[0]);
        command.args(&SHELTER[1..]).env("PATH", &path);
        command
    };
    let tried = command().arg("true").output().expect("it was found");
    if !tried.status.success() {
        println!("skipped: no namespaces: {}", String::from_utf8_lossy(&tried.stderr).trim());
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

/// Makes the shelter ready: an empty directory in memory, and a file in place of the name that this run of the
/// machine has. Tells why if the rig does not work here.
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

/// From now on this is another run of the machine.
pub fn reboot(home: &Path, number: u64) -> std::io::Result<()> {
    std::fs::write(home.join("boot_id"), format!("00000000-0000-0000-0000-{number:012x}\n"))
}

/// The rig's script, to which a command is to be added.
pub fn rig(dir: &Path, options: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/power_cut/rig.sh"));
    command.arg(dir).arg(options);
    command
}

/// Runs a command; says what it said if it failed.
pub fn done(command: &mut Command) -> Result<(), String> {
    let ended = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(format!("{command:?}: {}: {}", ended.status, said.trim()))
}
