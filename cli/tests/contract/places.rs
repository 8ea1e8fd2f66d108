//! The directories of new filters, and the messages about usage errors and limits.

use crate::support::{Outcome, Place, command, ok, refused, run};
use std::fs;
use std::process::Command;

const BLOOM: [&str; 4] = ["--kind", "bloom", "--capacity", "9"];

#[test]
fn a_directory_of_other_files_is_refused_and_not_changed() {
    let place = Place::new();
    let (dir, copy) = (place.at("sources"), place.at("copy"));
    fs::create_dir(&dir).expect("a directory");
    // Some have names that a filter might use.
    for name in ["main.rs", "live", "tmp-7"] {
        fs::write(format!("{dir}/{name}"), "mine").expect("write");
    }
    ok(&[&["create", &copy], &BLOOM[..]].concat(), b"");
    for arguments in [
        &[&["create", &dir], &BLOOM[..]].concat()[..],
        &["dedup", "--last", "5", "--state", &dir],
        &["dedup", "--state", &dir],
        &["backup", &copy, &dir],
        &["restore", &copy, &dir],
        &["salvage", &copy, &dir],
    ] {
        let sentence = refused(arguments, b"a\n");
        assert!(
            sentence.contains(&dir) && sentence.contains("main.rs"),
            "{arguments:?}: {sentence}"
        );
        for name in ["main.rs", "live", "tmp-7"] {
            assert_eq!(fs::read(format!("{dir}/{name}")).expect(name), b"mine", "{arguments:?}");
        }
        assert_eq!(fs::read_dir(&dir).expect("a directory").count(), 3, "{arguments:?}");
    }
}

#[test]
fn a_filter_that_has_kept_log_and_lost_its_meta_is_none_of_other_files() {
    let place = Place::new();
    let (dir, copy) = (place.at("seen"), place.at("copy"));
    ok(&["create", &dir, "--last", "100", "--keep-log", "1h"], b"");
    for round in 0..3 {
        ok(&["insert", &dir, "--key", &round.to_string()], b"");
        ok(&["snapshot", &dir], b"");
    }
    ok(&["alter", &dir, "--last", "200"], b"");
    ok(&["backup", &dir, &copy], b"");
    let names = |dir: &str| -> Vec<String> {
        let entries = fs::read_dir(dir).expect("a directory");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        entries.map(|entry| name(entry).into_string().expect("UTF-8")).collect()
    };
    for (dir, beside) in [(&dir, ["kept-", "-meta-"]), (&copy, ["second-", "second-meta"])] {
        fs::remove_file(format!("{dir}/meta")).expect("removed");
        let before = names(dir);
        let has = |part: &str| before.iter().any(|name| name.contains(part));
        assert!(beside.into_iter().all(has), "{before:?}");
        for arguments in [
            &[&["create", dir], &BLOOM[..]].concat()[..],
            &["dedup", "--last", "5", "--state", dir],
        ] {
            let sentence = refused(arguments, b"a\n");
            assert!(sentence.contains("copy `meta` from any backup"), "{sentence}");
        }
        // Without its present log, what is kept shows that there was a filter, and second copies do
        // not.
        for name in
            before.iter().filter(|name| name.starts_with("wal-") || name.starts_with("snap-"))
        {
            fs::remove_file(format!("{dir}/{name}")).expect("removed");
        }
        let left = names(dir).len();
        let sentence = refused(&[&["create", dir], &BLOOM[..]].concat(), b"");
        let expected = match beside[0] {
            "kept-" => "copy `meta` from any backup",
            _ => "and no filter",
        };
        assert!(sentence.contains(expected), "{sentence}");
        assert_eq!(names(dir).len(), left);
    }
}

#[test]
fn a_filter_restored_from_a_backup_keeps_as_much_log_as_the_original() {
    let place = Place::new();
    let [dir, copy] = ["seen", "copy"].map(|name| place.at(name));
    let keeps = |dir: &str| ok(&["stat", dir], b"").text().contains("\nkept log ");
    ok(&["create", &dir, "--last", "100", "--keep-log", "24h"], b"");
    ok(&["insert", &dir, "--key", "a"], b"");
    ok(&["backup", &dir, &copy], b"");
    assert!(keeps(&dir));
    ok(&["verify", &copy], b"");
    // Any of its files may be damaged or missing, also the small one.
    let whole = fs::read(format!("{copy}/keep")).expect("it is there");
    for (round, keep) in [Some(&*whole), Some(b"ebbtide keep 6\nlog"), None].into_iter().enumerate()
    {
        let restored = place.at(&format!("restored-{round}"));
        match keep {
            Some(bytes) => fs::write(format!("{copy}/keep"), bytes).expect("space"),
            None => fs::remove_file(format!("{copy}/keep")).expect("removed"),
        }
        let verified = run(&["verify", &copy], b"");
        assert_eq!(verified.code == Some(0), round == 0, "{verified:?}");
        ok(&["restore", &copy, &restored], b"");
        assert!(keeps(&restored), "{round}");
    }
    // Without both, as in the backup of an earlier build, none is kept.
    fs::remove_file(format!("{copy}/second-keep")).expect("removed");
    ok(&["verify", &copy], b"");
    let restored = place.at("restored-from-an-earlier-one");
    ok(&["restore", &copy, &restored], b"");
    assert!(!keeps(&restored));
    // What a filter was at a moment is only looked at, until an option says otherwise.
    let past = place.at("past");
    ok(&["restore", "--at", "lsn:2", &dir, &past], b"");
    assert!(!keeps(&past));
}

#[test]
fn an_empty_directory_a_fresh_file_system_and_a_filter_are_accepted() {
    let place = Place::new();
    let (empty, fresh) = (place.at("empty"), place.at("fresh"));
    fs::create_dir(&empty).expect("a directory");
    fs::create_dir_all(format!("{fresh}/lost+found")).expect("a directory");
    let dedup = |dir| ["dedup", "--last", "5", "--fpr", "1e-9", "--state", dir];
    for dir in [&empty, &fresh, &place.at("missing")] {
        assert_eq!(ok(&dedup(dir), b"a\n").text(), "a\n");
        // The directory now contains a filter, and another file beside it does no harm.
        fs::write(format!("{dir}/notes.txt"), "mine").expect("write");
        assert_eq!(ok(&dedup(dir), b"a\nb\n").text(), "b\n");
        assert!(refused(&[&["create", dir], &BLOOM[..]].concat(), b"").contains("already holds"));
    }
}

#[test]
fn the_likely_spelling_is_suggested() {
    for (arguments, meant) in [
        (&["inser", "x"][..], "did you mean 'insert'?"),
        (&["dedup", "--windw", "3s"], "did you mean '--window'?"),
        (&["dedup", "--since", "last-sen"], "did you mean 'last-seen'?"),
    ] {
        let sentence = refused(arguments, b"");
        assert!(sentence.contains(meant), "{sentence}");
    }
    let sentence = refused(&["dedup", "--since", "yesterday"], b"");
    assert!(!sentence.contains("mean"), "{sentence}");
}

#[test]
fn help_ends_with_examples_that_run() {
    for command in ["dedup", "create"] {
        let help = ok(&[command, "--help"], b"");
        let (_, examples) = help.text().split_once("\nExamples:\n").expect("examples");
        let place = Place::new();
        place.file("access.log", b"a - - [24/Nov/2025:10:00:00 +0100] \"GET / HTTP/1.1\" 200\n");
        place.file("events.tsv", b"1700000000\ta\n");
        place.file("events.jsonl.gz", b"{\"user\": 1, \"item\": 2}\n");
        place.file("orders.csv", b"order,created\n1,2025-11-24 10:00:00\n");
        let simple = examples.lines().map(str::trim).filter(|line| line.starts_with("ebbtide "));
        assert!(simple.clone().count() >= 2, "{examples}");
        for line in simple {
            let words: Vec<_> = line.split(' ').skip(1).collect();
            let output = Command::new(env!("CARGO_BIN_EXE_ebbtide"))
                .args(words)
                .current_dir(place.at(""))
                .output()
                .expect("run");
            assert!(output.status.success(), "{line}: {output:?}");
        }
    }
}

#[test]
fn a_file_size_limit_is_an_error_and_leaves_the_filter_intact() {
    let place = Place::new();
    let (dir, keys) = (place.at("filter"), place.at("keys"));
    let lines: String = (0..200_000).map(|number| format!("key {number}\n")).collect();
    fs::write(&keys, lines).expect("write");
    let create = ["--kind", "bloom", "--capacity", "1000", "--segment-bytes", "64KiB"];
    ok(&[&["create", &dir], &create[..]].concat(), b"");
    // Less than a segment.
    let insert = with_files_of(32, &["insert", &dir, &keys]);
    assert_eq!(insert.code, Some(2), "{insert:?}");
    assert!(insert.stderr.contains("File too large"), "{}", insert.stderr);
    assert_eq!(run(&["verify", &dir], b"").code, Some(0));
    ok(&["insert", &dir, &keys], b"");
}

#[test]
fn claims_take_no_file_size_before_the_first_one() {
    let place = Place::new();
    let dir = place.at("filter");
    let create = ["create", &dir, "--kind", "bloom", "--capacity", "1000"];
    let small = ["--segment-bytes", "64KiB"];
    let created = with_files_of(1024, &[&create[..], &small[..]].concat());
    assert_eq!(created.code, Some(0), "{created:?}");
    let claim = ["run", "--claim", "a", &dir, "--", "true"];
    let refused = with_files_of(1024, &claim);
    assert!(refused.stderr.contains("room for claims"), "{refused:?}");
    assert!(refused.stderr.contains("File too large"), "{refused:?}");
    // What was refused left nothing behind: without the limit the same claim works.
    ok(&claim, b"");
    ok(&["contains", &dir], b"a\n");
    assert_eq!(run(&["verify", &dir], b"").code, Some(0));
}

/// Runs the command with files of at most this many KiB.
fn with_files_of(kibibytes: u64, arguments: &[&str]) -> Outcome {
    let script = format!("ulimit -f {}; exec \"$0\" \"$@\"", kibibytes * 2);
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_ebbtide")]).args(arguments);
    let output = shell.output().expect("run");
    Outcome {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn a_backup_into_the_directory_of_the_filter_is_refused() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&[&["create", &dir], &BLOOM[..]].concat(), b"");
    for dest in [format!("{dir}/copy"), format!("{dir}/a/b"), format!("{dir}/../filter/copy")] {
        let sentence = refused(&["backup", &dir, &dest], b"");
        assert!(sentence.contains("is within the directory of the filter"), "{sentence}");
        assert!(!fs::exists(&dest).expect("an answer"), "{dest}");
    }
    ok(&["backup", &dir, &place.at("filter-copy")], b"");
}

#[test]
fn an_empty_variable_with_the_place_of_the_image_counts_as_unset() {
    let place = Place::new();
    let dir = place.at("filter");
    let create = [&["create", &dir], &BLOOM[..]].concat();
    let output = command(&create).env("EBBTIDE_IMAGE", "").output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_new_filter_within_the_directory_of_another_is_refused() {
    let place = Place::new();
    let (dir, other) = (place.at("filter"), place.at("other"));
    for dir in [&dir, &other] {
        ok(&["create", dir, "--last", "100", "--keep-log", "1h", "--hash-seed", "7"], b"");
    }
    let (inside, parts) = (format!("{dir}/new"), format!("{dir}/part"));
    let names = || fs::read_dir(&dir).expect("a directory").count();
    let before = names();
    for arguments in [
        &["backup", &dir, &inside][..],
        &["restore", &dir, &inside],
        &["restore", "--at", "lsn:0", &dir, &inside],
        &["salvage", &dir, &inside],
        &["alter", &dir, &inside, "--last", "200"],
        &["merge", &other, &dir, &inside],
        &["split", &dir, &parts, "--into", "2"],
    ] {
        let sentence = refused(arguments, b"");
        assert!(sentence.contains("is within the directory"), "{arguments:?}: {sentence}");
        assert_eq!(names(), before, "{arguments:?}");
    }
}
