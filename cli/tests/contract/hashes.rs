//! The function that hashes keys: selected with `--hash`, reported by `stat`; and its secret, which
//! no command reveals.

use crate::support::{Outcome, Place, input, ok, refused, run, stream};
use std::fs;

const LAST_500: [&str; 4] = ["--kind", "age-partitioned", "--window-items", "500"];

fn created(place: &Place, name: &str, options: &[&str]) -> String {
    let dir = place.at(name);
    ok(&[&["create", &dir], options, &LAST_500[..]].concat(), b"");
    dir
}

fn member(command: &str, dir: &str, name: &str) -> serde_json::Value {
    ok(&[command, dir, "--json"], b"").json().remove(0)[name].clone()
}

#[test]
fn a_filter_keeps_the_hash_it_was_created_with() {
    let place = Place::new();
    let keys = input(&stream(2_000, 900));
    for (name, options, hash) in [
        ("plain", &[][..], "fast"),
        ("fast", &["--hash", "fast"], "fast"),
        ("keyed", &["--hash", "keyed"], "keyed"),
    ] {
        let dir = created(&place, name, options);
        ok(&["insert", &dir], &keys);
        assert_eq!(member("stat", &dir, "hash"), hash, "{name}");
        let text = ok(&["stat", &dir], b"").text().to_owned();
        let row = text.lines().find(|line| line.starts_with("hash "));
        assert!(row.is_some_and(|row| row.ends_with(hash)), "{text}");
        let (copy, again) = (place.at(&format!("{name}-copy")), place.at(&format!("{name}-again")));
        ok(&["backup", &dir, &copy], b"");
        ok(&["restore", &copy, &again], b"");
        for dir in [&dir, &again] {
            let answers =
                ok(&["contains", dir], &input(&stream(2_000, 900)[1_900..])).text().to_owned();
            assert!(answers.lines().all(|answer| answer == "1"), "{name}");
        }
    }
    let sentence = refused(&["create", &place.at("none"), "--hash", "md5", "--kind", "bloom"], b"");
    assert!(sentence.contains("--hash") && sentence.contains("keyed"), "{sentence}");
}

#[test]
fn equal_hashes_and_seeds_give_equal_digests() {
    let place = Place::new();
    let keys: Vec<_> = (0..500)
        .map(|number| format!("{}\tkey {number}", 1_700_000_000_000_u64 + number))
        .collect();
    let digest = |name: &str, options: &[&str]| {
        let dir = created(&place, name, options);
        ok(&["insert", &dir, "--event-time"], &input(&keys));
        member("digest", &dir, "digest")
    };
    let keyed = digest("one", &["--hash", "keyed", "--hash-seed", "7"]);
    assert_eq!(keyed, digest("two", &["--hash", "keyed", "--hash-seed", "7"]));
    assert_ne!(keyed, digest("other", &["--hash", "keyed", "--hash-seed", "8"]));
    assert_ne!(keyed, digest("fast", &["--hash", "fast", "--hash-seed", "7"]));
}

#[test]
fn dedup_keeps_a_hash_and_refuses_another() {
    let place = Place::new();
    let keys = stream(3_000, 500);
    let seeded = ["dedup", "--last", "1000", "--hash-seed", "7"];
    let keyed = [&seeded[..], &["--hash", "keyed"]].concat();
    let once = ok(&keyed, &input(&keys)).stdout;
    let state = place.at("state");
    let kept = [&keyed[..], &["--state", &state]].concat();
    let mut printed = ok(&kept, &input(&keys[..1_500])).stdout;
    printed.extend(ok(&["dedup", "--state", &state], &input(&keys[1_500..])).stdout);
    assert_eq!(printed, once, "in two runs as in one");
    let other = ["dedup", "--last", "1000", "--hash", "fast", "--state", &state];
    let sentence = refused(&other, &input(&keys));
    assert!(sentence.contains("expected --hash fast, found keyed"), "{sentence}");
    let seed = ["dedup", "--last", "1000", "--hash-seed", "918273645", "--state", &state];
    let sentence = refused(&seed, &input(&keys));
    assert!(sentence.contains("hash-seed") && !sentence.contains("918273645"), "{sentence}");
}

/// Returns a secret in all forms in which it might leak: as a whole and in halves, in either byte
/// order.
fn spellings(secret: &str) -> Vec<String> {
    let halves =
        secret.as_bytes().chunks(16).map(|half| std::str::from_utf8(half).expect("digits"));
    let mut found = vec![secret.to_owned()];
    found.push(u128::from_str_radix(secret, 16).expect("a number").to_string());
    for half in halves {
        let number = u64::from_str_radix(half, 16).expect("a number");
        for number in [number, number.swap_bytes()] {
            found.extend([format!("{number:x}"), number.to_string()]);
        }
    }
    found
}

#[test]
fn no_command_reveals_the_secret() {
    for hash in ["fast", "keyed"] {
        let place = Place::new();
        let dir = created(&place, "filter", &["--hash", hash]);
        let file = place.at("filter/meta");
        let meta = fs::read_to_string(&file).expect("meta");
        let secret = meta.lines().find_map(|line| line.strip_prefix("seed ")).expect("a seed");
        let spellings = spellings(secret);
        let silent = |what: &str, outcome: &Outcome| {
            let said = format!("{}{}", outcome.text(), outcome.stderr).to_lowercase();
            let told = spellings.iter().find(|spelling| said.contains(spelling.as_str()));
            assert!(told.is_none(), "{hash}: {what} reveals {told:?}: {said}");
        };
        let (copy, again) = (place.at("copy"), place.at("again"));
        let keys = input(&stream(300, 200));
        let commands: &[&[&str]] = &[
            &["insert", &dir],
            &["contains", &dir],
            &["contains", &dir, "--json"],
            &["check", &dir, "--json"],
            &["age", &dir, "--json"],
            &["estimate", &dir],
            &["remove", &dir],
            &["stat", &dir],
            &["stat", &dir, "--json"],
            &["digest", &dir],
            &["digest", &dir, "--json"],
            &["wal", &dir],
            &["wal", &dir, "--json"],
            &["verify", &dir],
            &["verify", &dir, "--json"],
            &["snapshot", &dir, "--json"],
            &["backup", &dir, &copy],
            &["restore", &copy, &again],
            &["dedup", "--last", "500", "--state", &dir],
            &["dedup", "--last", "500", "--hash-seed", "1", "--state", &dir],
            &["create", &dir, "--kind", "bloom", "--capacity", "10"],
        ];
        for command in commands {
            silent(command[0], &run(command, &keys));
        }
        // Not even with a damaged `meta`, in particular where the seed is its last entry.
        let at = meta.find("seed ").expect("a seed");
        for end in (at..at + 60).chain([0, 1, 20]) {
            fs::write(&file, &meta[..end]).expect("write");
            for command in [&["verify", &dir][..], &["verify", &dir, "--json"], &["stat", &dir]] {
                silent(&format!("{} with {end} bytes of meta", command[0]), &run(command, b""));
            }
        }
        fs::write(&file, &meta[at..]).expect("write");
        silent("verify", &run(&["verify", &dir], b""));
    }
}

/// Returns the hashes of keys in the log, as reported by the library.
fn logged_hashes(dir: &str) -> Vec<u64> {
    let mut hashes = Vec::new();
    let note = |entry: &ebbtide::inspect::Entry| {
        let details = entry.details().into_iter();
        hashes.extend(details.filter(|(name, _)| *name == "hash").map(|(_, hash)| hash));
        Ok(())
    };
    ebbtide::inspect::wal(dir, note).expect("a log");
    hashes
}

#[test]
fn the_printed_log_shows_equal_keys_but_no_hash() {
    let place = Place::new();
    for hash in ["fast", "keyed"] {
        let dir = created(&place, hash, &["--hash", hash]);
        let keys = ["a", "b", "a", "abc", "b", "a"].map(str::to_owned);
        ok(&["insert", &dir], &input(&keys));
        let hashes = logged_hashes(&dir);
        assert_eq!(hashes.len(), keys.len());
        let printed = || {
            let text = ok(&["wal", &dir], b"").text().to_owned();
            let json = ok(&["wal", &dir, "--json"], b"");
            for hash in &hashes {
                for spelling in spellings(&format!("{hash:032x}")) {
                    let tells = |said: &str| said.to_lowercase().contains(&spelling);
                    // The upper half of what looks like a secret is zero.
                    let told = spelling != "0" && (tells(&text) || tells(json.text()));
                    assert!(!told, "{spelling}: {text}{}", json.text());
                }
            }
            let tags = json
                .json()
                .into_iter()
                .filter_map(|entry| entry["key"].as_str().map(str::to_owned));
            (text, tags.collect::<Vec<_>>())
        };
        let (text, tags) = printed();
        for (at, tag) in tags.iter().enumerate() {
            for (other, key) in keys.iter().enumerate() {
                assert_eq!(keys[at] == *key, *tag == tags[other], "{tags:?}");
            }
        }
        assert_eq!(tags.len(), keys.len());
        let words = text.lines().filter_map(|line| line.split("  key ").nth(1)?.split(' ').next());
        let in_text: Vec<_> = words.collect();
        assert!(in_text.len() == keys.len() && in_text[0] == in_text[2], "{text}");
        let (again, others) = printed();
        assert!(again != text && others[0] != tags[0], "each run has its own tags");
    }
}

#[test]
fn stat_warns_of_a_saturated_filter_but_not_of_a_full_one() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--kind", "bloom", "--capacity", "1000", "--fpr", "0.001"], b"");
    let keys =
        |from: u64| input(&(from..from + 1000).map(|key| key.to_string()).collect::<Vec<_>>());
    ok(&["insert", &dir], &keys(0));
    assert_eq!(member("stat", &dir, "saturated"), false);
    assert!(!ok(&["stat", &dir], b"").text().contains("SATURATED"));
    ok(&["insert", &dir], &keys(1000));
    assert_eq!(member("stat", &dir, "saturated"), true);
    let rate = |name| member("stat", &dir, name).as_f64().expect("a rate");
    assert!(rate("estimated_fpr") > 2.0 * rate("planned_fpr"));
    let text = ok(&["stat", &dir], b"").text().to_owned();
    let warning = text.lines().last().expect("a line");
    assert!(warning.starts_with("SATURATED: ") && warning.contains("ebbtide plan"), "{text}");
}

#[test]
fn a_window_with_max_memory_takes_no_more_loses_no_key_and_says_that_it_is_saturated() {
    let place = Place::new();
    let dir = place.at("filter");
    let create = ["create", &dir, "--window", "10m", "--max-memory"];
    let too_little = refused(&[&create[..], &["5KiB"]].concat(), b"");
    assert!(too_little.contains("max-memory") && too_little.contains("at least"), "{too_little}");
    let wrong = refused(&[&create[..], &["much"]].concat(), b"");
    assert!(wrong.contains("64KiB"), "{wrong}");
    ok(&[&create[..], &["256KiB"]].concat(), b"");
    let keys = input(&(0..100_000).map(|key| key.to_string()).collect::<Vec<_>>());
    ok(&["insert", &dir], &keys);
    let memory = member("stat", &dir, "memory_bytes").as_u64().expect("bytes");
    assert!((128 << 10..=256 << 10).contains(&memory), "{memory}");
    assert_eq!(member("stat", &dir, "saturated"), true);
    assert!(ok(&["stat", &dir], b"").text().contains("--max-memory"));
    let answers = ok(&["contains", &dir], &keys).text().to_owned();
    assert_eq!(answers.lines().filter(|line| *line == "1").count(), 100_000, "a key is gone");
}
