//! Where keys come from and how answers look: several files, `--key`, `EBBTIDE_DIR`, `--with-keys`,
//! counts of lines, and what packages install.

use crate::support::{Place, command, ok, refused, run};
use std::fs;

fn counts(place: &Place) -> String {
    let dir = place.at("counts");
    ok(&["create", &dir, "--kind", "counting", "--capacity", "100"], b"");
    dir
}

#[test]
fn commands_over_keys_take_several_files_in_order() {
    let place = Place::new();
    let dir = counts(&place);
    let (first, second) = (place.file("first", b"a\nb"), place.file("second", b"a\n"));
    ok(&["insert", &dir, &first, "-", &second], b"c\n");
    let asked = ok(&["estimate", &dir, &second, &first, "-"], b"c\n");
    assert_eq!(asked.text(), "2\n2\n1\n1\n");
}

#[test]
fn a_key_is_given_by_an_option_and_never_taken_for_a_file() {
    let place = Place::new();
    let dir = counts(&place);
    ok(&["insert", &dir, "--key", "hello", "--key", "-x", "--key", ""], b"unread\n");
    let asked = ok(&["contains", &dir, "--key", "hello", "--key", "-x", "--key", "unread"], b"");
    assert_eq!(asked.text(), "1\n1\n0\n");
    ok(&["insert", &dir, "--weight", "--key", "heavy\t7"], b"");
    assert_eq!(ok(&["estimate", &dir, "--key", "heavy"], b"").text(), "7\n");
    let sentence = refused(&["insert", &dir, "hello"], b"");
    let advice = "cannot read hello: No such file or directory (os error 2); it is taken for a \
                  file of keys, and a key itself is given by --key";
    assert_eq!(sentence, format!("ebbtide: {advice}"));
    let file = place.file("keys", b"a\n");
    refused(&["insert", &dir, &file, "--key", "b"], b"");
    let sentence = refused(&["insert", &dir, "--weight", "--key", "light"], b"");
    assert!(sentence.contains("the command line, line 1: "), "{sentence}");
}

#[test]
fn contains_answers_a_single_key_by_its_exit_code_too() {
    let place = Place::new();
    let dir = counts(&place);
    ok(&["insert", &dir, "--key", "a"], b"");
    assert_eq!(ok(&["contains", &dir, "--key", "a"], b"").text(), "1\n");
    let absent = run(&["contains", &dir, "--key", "b"], b"");
    assert_eq!((absent.code, absent.text(), &*absent.stderr), (Some(1), "0\n", ""));
    // More than one question has no single answer.
    ok(&["contains", &dir, "--key", "b", "--key", "c"], b"");
    ok(&["contains", &dir], b"b\n");
    ok(&["contains", &dir], b"");
}

#[test]
fn the_environment_names_the_filter_where_no_argument_does() {
    let place = Place::new();
    let dir = counts(&place);
    let with = |arguments: &[&str]| {
        let mut command = command(arguments);
        let child = command.env("EBBTIDE_DIR", &dir).spawn().expect("start");
        let output = child.wait_with_output().expect("wait");
        (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
    };
    assert_eq!(with(&["insert", "--key", "a"]), (Some(0), String::new()));
    assert_eq!(with(&["estimate", "--key", "a", "--with-keys"]), (Some(0), "1\ta\n".to_owned()));
    let (code, stat) = with(&["stat", "--json"]);
    assert!(code == Some(0) && stat.contains("\"inserts\":1"), "{stat}");
    assert_eq!(with(&["explain", "--key", "a"]).0, Some(0));
    // The first argument is always the directory.
    assert_eq!(with(&["contains", "no such filter"]).0, Some(2));
    refused(&["stat"], b"");
}

#[test]
fn answers_have_their_keys_behind_them_on_request() {
    let place = Place::new();
    let dir = place.at("filter");
    let kind = ["--kind", "block-timing", "--window-items", "100"];
    ok(&[&["create", &dir, "--hash-seed", "7"], &kind[..]].concat(), b"");
    assert_eq!(ok(&["check", &dir, "--with-keys"], b"a\nb\na\n").text(), "0\ta\n0\tb\n1\ta\n");
    assert_eq!(ok(&["contains", &dir, "--with-keys"], b"b\nx\n").text(), "1\tb\n0\tx\n");
    assert_eq!(ok(&["age", &dir, "--with-keys"], b"x\na\n").text(), "-\tx\n0\ta\n");
    let prior = ["--prior", "0.001", "--with-keys"];
    let posterior = ok(&[&["posterior", &dir], &prior[..]].concat(), b"x\n");
    assert_eq!(posterior.text(), "0\tx\n");
    let costs = ["--false-positive", "1", "--false-negative", "1"];
    let decided = ok(&[&["decide", &dir], &prior[..], &costs].concat(), b"x\n");
    assert_eq!(decided.text(), "0\tx\n");
    // Keys of several lines stay apart.
    let asked = ok(&["contains", &dir, "--with-keys", "-0"], b"a\0b\nc\0");
    assert_eq!(asked.stdout, b"1\ta\x000\tb\nc\0");
    let skipped =
        run(&["contains", &dir, "--with-keys", "--skip-bad", "--json-field", "k"], b"x\n");
    assert_eq!(skipped.text(), "?\tx\n");
    let member = ok(&["contains", &dir, "--with-keys", "--json-field", "k"], b"{\"k\":\"a\"}\n");
    assert_eq!(member.text(), "1\ta\n", "the key, not its line");
    refused(&["contains", &dir, "--with-keys", "--json"], b"");
}

#[test]
fn dedup_counts_its_lines_and_prints_either_part_of_them() {
    let lines = b"a\nb\na\nc\nb\n";
    for more in [&[][..], &["--at-least-once"], &["--batch", "2"]] {
        let dedup = [&["dedup", "--last", "100", "--hash-seed", "7", "--stats"], more].concat();
        let outcome = run(&dedup, lines);
        assert_eq!((outcome.code, outcome.text()), (Some(0), "a\nb\nc\n"), "{more:?}");
        let stats = "ebbtide: lines read: 5, printed: 3, suppressed: 2, late: 0, bad: 0\n";
        assert_eq!(outcome.stderr, stats, "{more:?}");
        let inverted = run(&[&dedup[..], &["--invert"]].concat(), lines);
        assert_eq!((inverted.code, inverted.text()), (Some(0), "a\nb\n"), "{more:?}");
        let stats = "ebbtide: lines read: 5, printed: 2, suppressed: 2, late: 0, bad: 0\n";
        assert_eq!(inverted.stderr, stats, "{more:?}");
    }
}

#[test]
fn late_lines_are_counted_and_are_no_suppressed_lines() {
    let start = 1_700_000_000_000_u64;
    let lines = format!("{}\ta\n{start}\tb\nbad\n{}\ta\n", start + 3_600_000, start + 3_600_000);
    let dedup = ["dedup", "--window", "1m", "--event-time", "--skip-bad", "--stats"];
    let outcome = run(&dedup, lines.as_bytes());
    let stats = "lines read: 4, printed: 2, suppressed: 1, late: 1, bad: 1\n";
    assert!(outcome.stderr.ends_with(stats), "{}", outcome.stderr);
    let inverted = run(&[&dedup[..], &["--invert"]].concat(), lines.as_bytes());
    assert_eq!(inverted.lines().len(), 1);
    let stats = "lines read: 4, printed: 1, suppressed: 1, late: 1, bad: 1\n";
    assert!(inverted.stderr.ends_with(stats), "{}", inverted.stderr);
}

#[test]
fn a_window_is_all_that_create_needs() {
    let place = Place::new();
    for (at, window) in [["--window", "10m"], ["--last", "1000"]].iter().enumerate() {
        let dir = place.at(&at.to_string());
        ok(&[&["create", &dir], &window[..]].concat(), b"");
        let stat = ok(&["stat", &dir, "--json"], b"").json().remove(0);
        assert_eq!(stat["kind"], "fingerprint");
        assert_eq!(stat["parameters"]["fpr"], 0.001);
    }
    let dir = place.at("named");
    ok(&["create", &dir, "--kind", "age-partitioned", "--last", "1000", "--fpr", "0.01"], b"");
    let stat = ok(&["stat", &dir, "--json"], b"").json().remove(0);
    assert_eq!(
        (&stat["kind"], &stat["parameters"]["window-items"]),
        (&"age-partitioned".into(), &1000.into())
    );
    let sentence = refused(&["create", &place.at("nothing")], b"");
    assert!(sentence.contains("the kind is missing"), "{sentence}");
}

#[test]
fn shells_get_completions_and_packages_get_manual_pages() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = ok(&["completions", shell], b"");
        assert!(script.text().contains("json-field"), "{shell}");
    }
    refused(&["completions", "tcsh"], b"");
    let place = Place::new();
    let dir = place.at("man1");
    fs::create_dir(&dir).expect("a directory");
    ok(&["man", "--output", &dir], b"");
    let pages = fs::read_dir(&dir).expect("pages").count();
    let help = ok(&["--help"], b"");
    let listed = help.text().lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = listed.take_while(|line| !line.is_empty());
    // Deeper lines continue a description.
    let named =
        commands.filter_map(|line| line.strip_prefix("  ").filter(|it| !it.starts_with(' ')));
    let names = named.filter_map(|line| line.split_whitespace().next());
    let names: Vec<_> = names.filter(|name| *name != "help").collect();
    assert!(names.len() > 20, "{names:?}");
    for name in &names {
        let path = format!("{dir}/ebbtide-{name}.1");
        assert!(fs::metadata(&path).is_ok(), "{path}");
    }
    assert_eq!(pages, names.len() + 1);
    let page = ok(&["man", "dedup"], b"");
    assert!(page.text().contains(".TH ebbtide\\-dedup 1") || page.text().contains("dedup 1"));
    assert!(page.text().contains("Examples:"), "{}", page.text());
    let source = concat!("ebbtide ", env!("CARGO_PKG_VERSION"));
    assert!(page.text().contains(source), "{}", page.text());
    refused(&["man", "nothing"], b"");
}

#[test]
fn every_help_has_examples_and_lookups_list_no_options_of_writes() {
    for command in ["contains", "estimate", "age", "posterior", "decide", "explain"] {
        let help = ok(&[command, "--help"], b"");
        assert!(!help.text().contains("--durability"), "{command}");
        assert!(help.text().contains("Lines and keys:"), "{command}");
        assert!(help.text().contains("Examples:"), "{command}");
    }
    assert!(ok(&["insert", "--help"], b"").text().contains("--durability"));
}
