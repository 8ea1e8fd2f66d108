//! Small file systems, mounted for the duration of a test.

use crate::child::HANG;
use crate::skipped::skipped;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs `mount` or a similar program; returns false if that is not possible here.
pub fn run(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

/// Unmounts a file system; returns false if it stays busy. A child that another test is starting
/// has the files open for a moment that this process has open.
pub fn unmount(path: &str) -> bool {
    let began = Instant::now();
    while !run("umount", &[path]) {
        if began.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Waits until no namespace has the device mounted; returns false if one still does after
/// [`HANG`]. A namespace that another test makes begins with a copy of all mounts.
pub fn wait_until_unused(device: &str) -> bool {
    let began = Instant::now();
    let mut exclusive = File::options();
    exclusive.read(true).custom_flags(libc::O_EXCL);
    while exclusive.open(device).is_err() {
        if began.elapsed() > HANG {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Mounts a file system, runs `act` in it and unmounts it; or reports that this is not possible.
pub fn mounted(arguments: &[&str], act: impl FnOnce(&Path)) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let path = place.path().to_string_lossy().into_owned();
    if !run("mount", &[arguments, &[&path]].concat()) {
        skipped(format_args!("the system does not mount {arguments:?}, or not for this user"));
        return;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| act(place.path())));
    assert!(unmount(&path), "unmounted");
    outcome.expect("see above");
}
