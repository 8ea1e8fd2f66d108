//! Runs the recipes of docs/recipes.md, in a directory in place of `/var`: cron's commands, the
//! rotations of logrotate, and the units of systemd as far as they can be checked.

use crate::support::{Place, project_file, skipped};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ebbtide");

/// The recipes, for a directory in place of `/var`.
struct Recipes {
    place: Place,
    page: String,
}

impl Recipes {
    fn new() -> Self {
        let place = Place::new();
        let var = place.at("var");
        for dir in ["log/app", "lib/app", "lib/logrotate"] {
            fs::create_dir_all(format!("{var}/{dir}")).expect("a directory");
        }
        let page = fs::read_to_string(project_file("docs/recipes.md")).expect("the page");
        Self { place, page: page.replace("/var/", &format!("{var}/")) }
    }

    fn at(&self, path: &str) -> String {
        self.place.at(&format!("var/{path}"))
    }

    /// Returns the blocks of the page in this language.
    fn blocks(&self, language: &str) -> Vec<String> {
        let fences = self.page.split("```").skip(1).step_by(2);
        let of_language =
            |block: &str| Some(block.strip_prefix(language)?.strip_prefix('\n')?.to_owned());
        let blocks: Vec<String> = fences.filter_map(of_language).collect();
        assert!(!blocks.is_empty(), "the page has blocks of {language}");
        blocks
    }

    /// Returns the command of the line for cron, without its time and user.
    fn cron_command(&self) -> String {
        let line = self.blocks("cron").concat();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[5], "app", "five parts of the time, then the user");
        words[6..].join(" ")
    }

    fn shell(&self, commands: &str) -> Output {
        let folder = Path::new(PROGRAM).parent().expect("a folder");
        let path = std::env::var("PATH").expect("a path");
        Command::new("sh")
            .args(["-e", "-c", commands])
            .env("PATH", format!("{}:{path}", folder.display()))
            .output()
            .expect("a shell")
    }

    /// Runs commands, which must succeed and print nothing.
    fn run(&self, commands: &str) {
        let output = self.shell(commands);
        assert!(output.status.success() && output.stderr.is_empty(), "{commands}: {output:?}");
    }

    fn append(&self, text: &str) {
        let log = fs::File::options().create(true).append(true).open(self.at("log/app/app.log"));
        std::io::Write::write_all(&mut log.expect("a log"), text.as_bytes()).expect("space");
    }

    fn output(&self) -> String {
        fs::read_to_string(self.at("log/app/new.log")).expect("the output")
    }
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        skipped(format_args!("there is no {program}"));
    }
    found
}

#[test]
fn the_command_for_cron_writes_each_line_once_and_prints_nothing() {
    let recipes = Recipes::new();
    recipes.append("one\ntwo\none\n");
    recipes.run(&recipes.cron_command());
    recipes.append("two\nthree\n");
    recipes.run(&recipes.cron_command());
    recipes.run(&recipes.cron_command());
    assert_eq!(recipes.output(), "one\ntwo\nthree\n");
}

#[test]
fn no_line_is_lost_or_repeated_over_rotations_by_logrotate() {
    if !has("logrotate") {
        return;
    }
    for (language, dated) in
        [("logrotate", false), ("logrotate", true), ("logrotate-copytruncate", false)]
    {
        let recipes = Recipes::new();
        let mut configuration = recipes.blocks(language).concat();
        if dated {
            let format = "    dateext\n    dateformat -%Y%m%d-%s\n    daily\n";
            configuration = configuration.replace("    daily\n", format);
        }
        let (file, state) = (recipes.place.at("app.conf"), recipes.at("lib/logrotate/status"));
        fs::write(&file, configuration).expect("space");
        let mut expected = String::new();
        for round in 0..6 {
            // Written partly before the rotation, which no run has read then.
            for part in ["before", "after"] {
                let text = format!("the line of round {round} that was written {part} a run\n");
                recipes.append(&text);
                expected += &text;
                if part == "before" {
                    recipes.run(&recipes.cron_command());
                }
            }
            let rotate =
                Command::new("logrotate").args(["--force", "--state", &state, &file]).output();
            let rotate = rotate.expect("it runs");
            assert!(rotate.status.success(), "{rotate:?}");
            if dated {
                // A name has its second.
                std::thread::sleep(std::time::Duration::from_millis(1100));
            }
        }
        recipes.append("the last\n");
        recipes.run(&recipes.cron_command());
        assert_eq!(recipes.output(), expected + "the last\n", "{language}, dated: {dated}");
    }
}

#[test]
fn the_units_are_valid_and_run_the_command_of_cron() {
    let recipes = Recipes::new();
    let (service, timer) =
        (recipes.blocks("systemd-service").concat(), recipes.blocks("systemd-timer").concat());
    let start = service.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/"));
    assert_eq!(start, Some(&*recipes.cron_command()));
    if !has("systemd-analyze") {
        return;
    }
    let service = service.replace("/usr/bin/ebbtide", PROGRAM);
    let [service_file, timer_file] =
        [("app-new.service", service), ("app-new.timer", timer)].map(|(name, text)| {
            let path = recipes.place.at(name);
            fs::write(&path, text).expect("space");
            path
        });
    let units = ["verify", &service_file, &timer_file];
    let verified = Command::new("systemd-analyze").args(units).output().expect("it runs");
    let said = String::from_utf8_lossy(&verified.stderr);
    // It also reports units of the machine; these two have no fault.
    assert!(!said.contains("app-new"), "{said}");
}

#[test]
fn half_a_line_is_left_to_the_next_run_which_cron_mails_and_is_no_error() {
    let recipes = Recipes::new();
    recipes.append("one\nhalf");
    let output = recipes.shell(&recipes.cron_command());
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("left for a later run"), "{said}");
    assert_eq!(recipes.output(), "one\n");
    recipes.append(" a line\n");
    recipes.run(&recipes.cron_command());
    assert_eq!(recipes.output(), "one\nhalf a line\n");
}

#[test]
fn no_line_is_in_two_outputs_if_a_run_was_killed_before_they_were_rotated() {
    let recipes = Recipes::new();
    recipes.append("one\n");
    recipes.run(&recipes.cron_command());
    recipes.append("two\n");
    // What a run leaves that is killed when it has written a line, and not recorded it.
    fs::write(recipes.at("log/app/new.log"), "one\ntwo\n").expect("space");
    let rotated = recipes.shell(&recipes.blocks("sh")[0]);
    assert!(rotated.status.success(), "{rotated:?}");
    recipes.append("three\n");
    recipes.run(&recipes.cron_command());
    let first = fs::read_to_string(recipes.at("log/app/new.log.1")).expect("the first output");
    assert_eq!(first + &recipes.output(), "one\ntwo\nthree\n");
}

#[test]
fn a_backup_that_fails_or_is_killed_leaves_the_one_before() {
    let recipes = Recipes::new();
    recipes.append("one\n");
    recipes.run(&recipes.cron_command());
    // As cron runs it: without an end at the first command that fails.
    let backup = format!("set +e\n{}", recipes.blocks("sh")[1]);
    let at = |name: &str| recipes.at(&format!("lib/app/{name}"));
    let is_whole = |name: &str| recipes.shell(&format!("ebbtide verify {}", at(name)));
    recipes.run(&backup);
    fs::rename(at("seen"), at("away")).expect("renamed");
    for _ in 0..2 {
        assert!(!recipes.shell(&backup).status.success());
        assert!(is_whole("seen-backup").status.success());
    }
    fs::rename(at("away"), at("seen")).expect("renamed");
    // What killed ones leave: half of a copy, and nothing under the name of the last one.
    fs::create_dir(at("seen-backup.new")).expect("a directory");
    recipes.run(&backup);
    assert!(["seen-backup", "seen-backup.old"].map(is_whole).iter().all(|it| it.status.success()));
    fs::remove_dir_all(at("seen-backup")).expect("removed");
    recipes.run(&backup);
    assert!(["seen-backup", "seen-backup.old"].map(is_whole).iter().all(|it| it.status.success()));
}

#[test]
fn the_output_can_be_rotated_and_the_filter_backed_up_as_the_page_says() {
    let recipes = Recipes::new();
    recipes.append("one\n");
    recipes.run(&recipes.cron_command());
    recipes.append("two\none\n");
    let blocks = <[String; 3]>::try_from(recipes.blocks("sh")).expect("three blocks");
    let [rotate, backup, alter] = blocks;
    recipes.run(&rotate);
    assert_eq!(recipes.output(), "");
    let first = fs::read(recipes.at("log/app/new.log.1")).expect("the first output");
    assert_eq!(first, b"one\ntwo\n");
    recipes.append("three\n");
    recipes.run(&recipes.cron_command());
    assert_eq!(recipes.output(), "three\n");
    for _ in 0..2 {
        recipes.run(&backup);
        let verify = format!("ebbtide verify {}", recipes.at("lib/app/seen-backup"));
        assert!(recipes.shell(&verify).status.success());
    }
    let seen = recipes.at("lib/app/seen");
    let create = format!("ebbtide create {seen} --window 10m --rate 500 --keep-log 48h");
    recipes.run(&format!("rm -r {seen}; {create}"));
    recipes.run(&format!("printf 'one\\ntwo\\n' | ebbtide insert {seen}"));
    recipes.run(&alter);
    let asked = format!("printf 'one\\ntwo\\nfour\\n' | ebbtide contains {seen}");
    assert_eq!(recipes.shell(&asked).stdout, b"1\n1\n0\n");
    let stat = recipes.shell(&format!("ebbtide stat {seen} --json"));
    let stat = String::from_utf8(stat.stdout).expect("text");
    assert!(stat.contains("86400") && stat.contains("172800s"), "{stat}");
}
