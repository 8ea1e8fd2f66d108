//! The daemon is ended by a signal while nobody reads its output.

use ebbtide::{Fingerprint, Options, Reader};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// A line that no pipe takes whole.
const LINE: usize = 4 << 20;
const SIGTERM: i32 = 15;

/// The daemon, which is killed when this is dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn inserts(dir: &Path) -> u64 {
    let reader = Reader::<Fingerprint>::open(dir, Options::new());
    reader.and_then(|reader| reader.stat()).map_or(0, |stat| stat.inserts)
}

#[test]
fn a_line_whose_key_is_recorded_is_written_whole_before_a_signal_ends_the_process() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("seen");
    let mut command = Command::new(env!("CARGO_BIN_EXE_exporter"));
    command.arg(&dir).arg("127.0.0.1:0").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut daemon = Daemon(command.spawn().expect("a daemon"));
    let mut lines = daemon.0.stdin.take().expect("its input");
    let fed = thread::spawn(move || {
        for letter in b'a'..b'e' {
            let mut line = vec![letter; LINE];
            line.push(b'\n');
            if lines.write_all(&line).is_err() {
                break;
            }
        }
    });
    until("no line was recorded", || inserts(&dir) > 0);
    let id = daemon.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());

    let mut output = daemon.0.stdout.take().expect("its output");
    let printed = thread::spawn(move || {
        let mut printed = Vec::new();
        output.read_to_end(&mut printed).map(|_| printed)
    });
    let mut status = None;
    until("the daemon does not end", || {
        status = daemon.0.try_wait().expect("a child");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.signal()), Some(SIGTERM));
    let printed = printed.join().expect("no panic").expect("its output");
    fed.join().expect("no panic");
    let whole = printed.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::len);
    let (whole, count): (Vec<_>, _) = (whole.collect(), inserts(&dir));
    assert_eq!(whole, vec![LINE + 1; count as usize]);
}
