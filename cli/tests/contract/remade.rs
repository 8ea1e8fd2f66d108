//! `alter`, `merge` and `split`.

use crate::support::{Place, command, ok, refused, run};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;

/// Returns which of these keys are in a filter.
fn present(dir: &str, keys: std::ops::Range<u64>) -> Vec<u64> {
    let answers = ok(&["contains", dir], &lines(keys.clone()));
    let answers = answers.text().lines().map(|answer| answer == "1");
    keys.zip(answers).filter(|(_, is_in)| *is_in).map(|(key, _)| key).collect()
}

fn lines(keys: std::ops::Range<u64>) -> Vec<u8> {
    keys.map(|key| format!("{key}\n")).collect::<String>().into_bytes()
}

#[test]
fn a_larger_window_has_what_the_smaller_one_has_forgotten() {
    let place = Place::new();
    let (dir, new) = (place.at("seen"), place.at("larger"));
    ok(&["create", &dir, "--last", "100", "--fpr", "1e-9", "--keep-log", "1h"], b"");
    ok(&["insert", &dir], &lines(0..1000));
    assert!(present(&dir, 0..40).is_empty(), "they have left the window");
    assert!(refused(&["alter", &dir, &new], b"").contains("nothing to alter"));
    let told = ok(&["alter", &dir, &new, "--last", "5000", "--fpr", "1e-9"], b"");
    assert!(told.text().contains("1000 operations of 1 filter"));
    assert_eq!(present(&new, 0..40), (0..40).collect::<Vec<_>>());
    assert!(present(&dir, 0..40).is_empty(), "the old one stays as it was");
    ok(&["insert", &new], &lines(1000..1010));
    assert_eq!(run(&["verify", &new], b"").code, Some(0));
}

#[test]
fn filters_with_one_hash_are_merged_and_others_refused() {
    let place = Place::new();
    let [a, b, c, all, wrong] = ["a", "b", "c", "all", "wrong"].map(|name| place.at(name));
    let create = |dir: &str, seed: &str| {
        let kind = ["--kind", "counting", "--capacity", "1000", "--fpr", "1e-9"];
        let settings = ["--hash-seed", seed, "--keep-log", "1h"];
        ok(&[&["create", dir], &kind[..], &settings[..]].concat(), b"");
    };
    create(&a, "7");
    create(&b, "7");
    create(&c, "8");
    ok(&["insert", &a], &lines(0..20));
    ok(&["insert", &b], &lines(10..30));
    let told = ok(&["merge", &a, &b, &all], b"");
    assert!(told.text().contains("40 operations of 2 filters"));
    let counts = ok(&["estimate", &all], &lines(5..25));
    let wanted = [["1"; 5], ["2"; 5], ["2"; 5], ["1"; 5]].concat();
    assert_eq!(counts.text().lines().collect::<Vec<_>>(), wanted);
    assert!(refused(&["merge", &a, &c, &wrong], b"").contains("hash_seed"));
    assert!(!std::path::Path::new(&wrong).exists());
    refused(&["merge", &a, &b, &all], b"");
    let again = format!("{a}/../a");
    let sentence = refused(&["merge", &a, &again, &wrong], b"");
    assert!(sentence.contains("is named twice"), "{sentence}");
    assert!(!std::path::Path::new(&wrong).exists());
}

#[test]
fn a_split_filter_has_each_key_in_one_part() {
    let place = Place::new();
    let (dir, new) = (place.at("seen"), place.at("part"));
    ok(&["create", &dir, "--last", "1000", "--fpr", "1e-9", "--keep-log", "1h"], b"");
    ok(&["insert", &dir], &lines(0..60));
    ok(&["split", &dir, &new, "--into", "3"], b"");
    let parts = (0..3).map(|number| present(&format!("{new}-{number}"), 0..60));
    let parts: Vec<_> = parts.collect();
    assert!(parts.iter().all(|part| part.len() > 5), "{parts:?}");
    let mut all = parts.concat();
    all.sort_unstable();
    assert_eq!(all, (0..60).collect::<Vec<_>>());
}

#[test]
fn all_parts_of_a_split_are_made_whoever_reads_the_sentences() {
    let place = Place::new();
    let (dir, new) = (place.at("seen"), place.at("part"));
    ok(&["create", &dir, "--last", "100", "--keep-log", "1h"], b"");
    let (read, closed) = std::io::pipe().expect("a pipe");
    drop(read);
    let full = fs::File::options().write(true).open("/dev/full").expect("a device");
    for (output, code, said) in
        [(Stdio::from(closed), 0, ""), (Stdio::from(full), 2, "cannot write to standard output")]
    {
        let ended = command(&["split", &dir, &new, "--into", "5"]).stdout(output).output();
        let ended = ended.expect("it runs");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(code) && stderr.contains(said), "{ended:?}");
        for number in 0..5 {
            let part = format!("{new}-{number}");
            ok(&["verify", &part], b"");
            fs::remove_dir_all(part).expect("removed");
        }
    }
}

#[test]
fn a_log_that_does_not_begin_with_the_filter_is_refused_unless_that_may_be() {
    let place = Place::new();
    let (dir, new) = (place.at("seen"), place.at("new"));
    ok(&["create", &dir, "--last", "100", "--segment-bytes", "4KiB"], b"");
    for round in 0..6 {
        ok(&["insert", &dir], &lines(round * 300..(round + 1) * 300));
        ok(&["snapshot", &dir], b"");
    }
    assert!(refused(&["alter", &dir, &new, "--last", "5000"], b"").contains("--forget"));
    ok(&["alter", &dir, &new, "--last", "5000", "--forget"], b"");
    assert!(present(&new, 1790..1800).len() == 10);
}

#[test]
fn a_directory_that_stands_keeps_its_mode_and_a_link_is_refused_before_the_work() {
    let place = Place::new();
    let [dir, new, link] = ["seen", "new", "link"].map(|name| place.at(name));
    ok(&["create", &dir, "--last", "100", "--keep-log", "1h"], b"");
    fs::create_dir(&new).expect("a directory");
    symlink(&new, &link).expect("a link");
    for link in [&link, &format!("{link}/")] {
        let sentence = refused(&["alter", &dir, link, "--last", "200"], b"");
        assert!(sentence.contains("could not replace a link"), "{sentence}");
    }
    assert_eq!(fs::read_dir(place.at("")).expect("a directory").count(), 3, "nothing is left");
    for mode in [0o700, 0o750, 0o2770] {
        fs::set_permissions(&new, Permissions::from_mode(mode)).expect("its mode");
        ok(&["alter", &dir, &new, "--last", "200"], b"");
        let found = fs::metadata(&new).expect("a directory").permissions().mode();
        assert_eq!(found & 0o7777, mode, "{found:o}");
        assert_eq!(run(&["verify", &new], b"").code, Some(0));
        fs::remove_dir_all(&new).and_then(|()| fs::create_dir(&new)).expect("an empty one");
    }
}

#[test]
fn a_split_that_cannot_end_does_not_begin() {
    let place = Place::new();
    let [dir, new, third] = ["seen", "part", "part-2"].map(|name| place.at(name));
    ok(&["create", &dir, "--last", "100", "--keep-log", "1h"], b"");
    ok(&["create", &third, "--last", "100"], b"");
    let sentence = refused(&["split", &dir, &new, "--into", "4"], b"");
    assert!(sentence.contains(&third), "{sentence}");
    let [linked, empty] = ["linked", "empty"].map(|name| place.at(name));
    fs::create_dir(&empty).expect("a directory");
    symlink(&empty, format!("{linked}-2")).expect("a link");
    let refusal = refused(&["split", &dir, &linked, "--into", "4"], b"");
    assert!(refusal.contains("could not replace a link"), "{refusal}");
    let sentence = refused(&["split", &dir, &new, "--into", "1025"], b"");
    assert!(sentence.contains("at most 1024"), "{sentence}");
    assert_eq!(fs::read_dir(place.at("")).expect("a directory").count(), 4, "nothing was made");
}
