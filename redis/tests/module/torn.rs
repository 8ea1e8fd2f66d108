//! Append-only files that end inside what was written for one command, as after a power cut: the
//! server continues them, and all that it acknowledges then is there after the next start.

use crate::server::{Server, is_there};
use redis::Value;
use std::fs::{self, File};
use std::path::PathBuf;

/// Returns the file that the server appends to.
fn written(server: &Server) -> PathBuf {
    let folder = fs::read_dir(server.home().join("appendonlydir")).expect("the folder");
    let paths = folder.map(|entry| entry.expect("an entry").path());
    let is_written = |path: &PathBuf| path.to_string_lossy().ends_with(".incr.aof");
    paths.filter(is_written).max().expect("a file that is appended to")
}

fn length(server: &Server) -> u64 {
    fs::metadata(written(server)).expect("the file").len()
}

const DEFAULT: &str = "fingerprint window-items=1000";

/// What a server has got before its last command, and that one.
struct Story {
    /// Whether there is a default specification.
    creates: bool,
    before: &'static [&'static str],
    last: String,
}

impl Story {
    fn start(&self) -> Server {
        let server = Server::start("--appendonly yes --appendfsync always");
        self.configure(&server);
        for words in self.before {
            let _: Value = server.ask(words);
        }
        server
    }

    fn configure(&self, server: &Server) {
        if self.creates {
            let mut config = redis::cmd("CONFIG");
            config.arg("SET").arg("ebbtide.default-spec").arg(DEFAULT);
            let () = config.query(&mut server.connect()).expect("a default specification");
        }
    }

    /// Lets the file end after a part, in thousandths, of what is written for the last command.
    fn assert_is_continued_after(&self, part: u64) {
        let mut server = self.start();
        let from = length(&server);
        let _: Value = server.ask(&self.last);
        let to = length(&server);
        server.kill();
        let file = File::options().write(true).open(written(&server)).expect("the file");
        let cut = (from + (to - from) * part / 1000).clamp(from + 1, to - 1);
        file.set_len(cut).expect("a shorter file");
        let name: String = self.last.chars().take(40).collect();
        let name = format!("{name}: {from} to {to}, cut at {cut}");
        server.restart();
        self.configure(&server);
        for item in ["d", "e", "f"] {
            assert_eq!(server.ask::<i64>(&format!("EB.ADD seen {item}")), 1, "{name}");
        }
        server.restart();
        let found: Vec<i64> = server.ask("EB.MEXISTS seen d e f");
        assert_eq!(found, [1, 1, 1], "{name}");
        assert_eq!(server.info("ebbtide", "ebbtide_diverged"), "0", "{name}");
    }
}

fn stories() -> Vec<Story> {
    let altered = &[
        "EB.RESERVE seen age-partitioned last 1000",
        "EB.ADD seen a",
        "EB.ALTER seen age-partitioned last 2000",
        "EB.ADD seen b",
    ];
    let claimed = &["EB.RESERVE seen fingerprint window 1h", "EB.CLAIM seen a 60000"];
    let large = &["EB.RESERVE seen age-partitioned last 100000"];
    let many: Vec<_> = (0..40_000).map(|item: u32| item.to_string()).collect();
    let story = |creates, before, last: &str| Story { creates, before, last: last.to_owned() };
    vec![
        story(false, altered, "EB.ADD seen c"),
        story(false, altered, "EB.MADD seen c x y"),
        story(false, altered, "EB.CLAIM seen c 60000"),
        story(false, claimed, "EB.ALTER seen fingerprint window 2h"),
        story(true, &[], "EB.ADD seen c"),
        story(true, &[], "EB.CLAIM seen c 60000"),
        story(false, large, &format!("EB.MADD seen {}", many.join(" "))),
    ]
}

#[test]
fn a_file_that_ends_inside_a_command_is_continued_without_a_divergence() {
    if !is_there() {
        return;
    }
    for story in stories() {
        for part in [0, 500, 800, 900, 1000] {
            story.assert_is_continued_after(part);
        }
    }
}

#[test]
fn a_command_has_one_effect() {
    if !is_there() {
        return;
    }
    for story in stories() {
        let server = story.start();
        let from = length(&server) as usize;
        let _: Value = server.ask(&story.last);
        let bytes = fs::read(written(&server)).expect("the file");
        let effects = bytes[from..].windows(5).filter(|word| word == b"\r\nEB.");
        assert_eq!(effects.count(), 1, "{}", story.last);
    }
}
