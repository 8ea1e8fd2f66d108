//! Filters in object storage, in a build with the feature `ship`. The place is a directory.

use crate::support::{Place, Talk, command, input, ok, refused, run, signal};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn keys(numbers: std::ops::Range<u32>) -> Vec<u8> {
    input(&numbers.map(|number| number.to_string()).collect::<Vec<_>>())
}

/// Creates a filter with keys, and ships it once.
fn shipped(place: &Place) -> (String, String) {
    let (seen, store) = (place.at("seen"), place.at("store"));
    ok(&["create", &seen, "--last", "100000", "--keep-log", "1h"], b"");
    ok(&["insert", &seen], &keys(0..1000));
    ok(&["ship", &seen, &store, "--once"], b"");
    (seen, store)
}

/// Starts `follow` into a directory; returns once it has begun.
fn follow(arguments: &[&str]) -> Talk {
    let mut command = command(&[&["follow"], arguments].concat());
    let mut talk = Talk::of(command.stderr(Stdio::piped()));
    let mut note = [0; 9];
    let stderr = talk.child.stderr.as_mut().expect("a pipe");
    stderr.read_exact(&mut note).expect("a note");
    talk
}

#[test]
fn an_interval_too_short_to_be_kept_is_refused() {
    let place = Place::new();
    let (seen, store) = (place.at("seen"), place.at("store"));
    for arguments in
        [["ship", &seen, &store, "--every", "0s"], ["follow", &store, &seen, "--every", "9ms"]]
    {
        let sentence = refused(&arguments, b"");
        assert!(sentence.contains("expected at least 10ms"), "{sentence}");
    }
}

#[test]
fn stat_shows_behind_all_other_figures_what_is_not_shipped() {
    let place = Place::new();
    let seen = place.at("seen");
    ok(&["create", &seen, "--last", "100000"], b"");
    let before = ok(&["stat", "--json", &seen], b"").json().remove(0);
    assert!(before.get("ship").is_none(), "it was never shipped");
    ok(&["insert", &seen], &keys(0..1000));
    let store = place.at("store");
    ok(&["ship", &seen, &store, "--once"], b"");
    ok(&["insert", &seen], &keys(1000..1010));
    let stat = ok(&["stat", "--json", &seen], b"").json().remove(0);
    let names = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    let expected = [names(&before), vec!["ship".to_owned()]].concat();
    assert_eq!(names(&stat), expected);
    let ship = &stat["ship"];
    assert_eq!((&ship["url"], &ship["stopped"]), (&store.clone().into(), &true.into()));
    let records = ship["unshipped_records"].as_u64().expect("a number");
    assert!((10..30).contains(&records), "{ship}");
    assert_eq!(ship["unshipped_bytes"], records * 32);
    assert!(ship["unshipped_seconds"].as_f64().expect("a number") > 0.0, "{ship}");
    let text = ok(&["stat", &seen], b"");
    let shown = text.text().split_once("shipped to").expect("the shipper").1.to_owned();
    for words in [store.as_str(), "not shipped", "has stopped"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[test]
fn a_file_of_figures_that_cannot_be_written_keeps_nothing_from_being_shipped() {
    let place = Place::new();
    let (seen, store) = shipped(&place);
    let figures = place.at("missing/ship.prom");
    let arguments = ["ship", &seen, &store, "--every", "50ms", "--metrics", &figures];
    let mut child = command(&arguments).spawn().expect("a shipper");
    ok(&["insert", &seen], &keys(1000..1010));
    let begun = Instant::now();
    let mut copies = 0;
    loop {
        assert!(begun.elapsed() < Duration::from_secs(120), "nothing is shipped");
        copies += 1;
        let copy = place.at(&format!("copy-{copies}"));
        ok(&["fetch", &store, &copy], b"");
        if run(&["contains", &copy, "--key", "1009"], b"").code == Some(0) {
            break;
        }
    }
    // Several looks, in which it is noted once.
    std::thread::sleep(Duration::from_secs(3));
    assert!(child.try_wait().expect("a process").is_none(), "it has ended");
    signal(&child, "TERM");
    let ended = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    // The last one is an error.
    assert_eq!(said.matches("cannot write").count(), 2, "{said}");
    assert!(said.contains(&figures) && ended.status.code() == Some(2), "{said}");
}

#[test]
fn the_figures_of_a_shipper_that_ends_because_it_has_stalled_say_that_it_has_stopped() {
    let place = Place::new();
    let (seen, store) = shipped(&place);
    let figures = place.at("ship.prom");
    let arguments =
        ["ship", &seen, &store, "--every", "50ms", "--stall", "1s", "--metrics", &figures];
    let child = command(&arguments).spawn().expect("a shipper");
    let begun = Instant::now();
    while !fs::exists(&figures).expect("an answer") {
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Nothing can be put into a file.
    fs::rename(place.at("store/chain"), place.at("chain")).expect("a rename");
    fs::write(place.at("store/chain"), "").expect("a file");
    ok(&["insert", &seen], &keys(1000..1010));
    let ended = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("nothing was shipped for") && ended.status.code() == Some(2), "{said}");
    let text = fs::read_to_string(&figures).expect("figures");
    let stopped = text.lines().find(|line| line.starts_with("ebbtide_ship_stopped{"));
    assert!(stopped.is_some_and(|line| line.ends_with(" 1")), "{text}");
}

#[test]
fn figures_are_written_beside_files_of_similar_names_and_leave_no_other_one() {
    let place = Place::new();
    let (seen, store) = shipped(&place);
    fs::create_dir(place.at("figures")).expect("a directory");
    fs::write(place.at("figures/ship.new"), "mine").expect("a file");
    let figures = place.at("figures/ship.prom");
    ok(&["ship", &seen, &store, "--once", "--metrics", &figures], b"");
    let text = fs::read_to_string(&figures).expect("figures");
    assert!(text.contains("ebbtide_ship_confirmed_lsn"), "{text}");
    assert_eq!(fs::read_to_string(place.at("figures/ship.new")).expect("a file"), "mine");
    assert_eq!(fs::read_dir(place.at("figures")).expect("a directory").count(), 2);
}

#[test]
fn a_shipper_that_has_stalled_is_seen() {
    let place = Place::new();
    let (seen, store) = shipped(&place);
    let file = format!("{seen}/shipped");
    let text = fs::read_to_string(&file).expect("a note");
    let old = |line: &str| match line.split_once(' ') {
        Some((name @ ("succeeded-ms" | "progressed-ms"), _)) => format!("{name} 1700000000000\n"),
        Some(("stopped", _)) => "stopped no\n".to_owned(),
        _ => format!("{line}\n"),
    };
    fs::write(&file, text.lines().map(old).collect::<String>()).expect("a note");
    let text = ok(&["stat", &seen], b"");
    let stalled = text.text().lines().find(|line| line.starts_with("STALLED: nothing"));
    assert!(stalled.is_some_and(|line| line.contains("has died, or hangs")), "{}", text.text());
    assert_eq!(ok(&["stat", "--json", &seen], b"").json()[0]["ship"]["stalled"], true);
    let verified = run(&["ship", "verify", &store, "--against", &seen], b"");
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(verified.stderr.contains("STALLED"), "{verified:?}");
    assert!(verified.text().contains("not shipped"), "{verified:?}");
}

#[test]
fn a_follower_continues_in_its_directory_and_is_promoted() {
    let place = Place::new();
    let (seen, store) = shipped(&place);
    let new = place.at("new");
    let mut talk = follow(&[&store, &new]);
    assert_eq!((talk.ask("17"), talk.ask("x")), ("1".to_owned(), "0".to_owned()));
    let refusal = refused(&["promote", &new], b"");
    assert!(refusal.contains("a follower that runs"), "{refusal}");
    talk.kill();
    assert!(refused(&["stat", &new], b"").contains("filter"));
    ok(&["insert", &seen], &keys(1000..1010));
    ok(&["ship", &seen, &store, "--once"], b"");
    // A URL is a place as well.
    let url = format!("file://{store}");
    assert!(refused(&["follow", &url, &new], b"").contains("found a copy of"));
    let other = place.at("other");
    let mut talk = follow(&[&url, &other, "--every", "100ms"]);
    assert_eq!(talk.ask("1009"), "1");
    signal(&talk.child, "TERM");
    talk.child.wait().expect("it ends");
    let promoted = ok(&["promote", &new], b"");
    assert!(promoted.text().contains("is the writer, in timeline"), "{promoted:?}");
    ok(&["contains", &new, "--key", "1009"], b"");
    ok(&["insert", &new], &keys(2000..2001));
    ok(&["ship", &new, &store, "--once"], b"");
    let refusal = run(&["ship", &seen, &store, "--once"], b"");
    assert_eq!(refusal.code, Some(3), "{refusal:?}");
    assert!(refusal.stderr.contains("refuses this directory"), "{refusal:?}");
}

/// Returns the code with which a command ends without being stopped, within a minute.
fn code(talk: &mut Talk) -> Option<i32> {
    let begun = Instant::now();
    loop {
        match talk.child.try_wait().expect("an answer") {
            Some(status) => return status.code(),
            None if begun.elapsed() > Duration::from_secs(60) => return None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[test]
fn a_follower_that_cannot_follow_any_more_ends_although_its_input_is_open_and_idle() {
    let place = Place::new();
    let (_, store) = shipped(&place);
    let new = place.at("new");
    let mut talk = follow(&[&store, &new, "--every", "10ms"]);
    assert_eq!(talk.ask("17"), "1");
    let chain = Path::new(&store).join("chain");
    let names = fs::read_dir(&chain).expect("a list").map(|entry| entry.expect("a name"));
    let newest = names.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()).max();
    let next = format!("{:020}", newest.expect("a link") + 1);
    fs::write(chain.join(&next), "no link").expect("a file");
    let ended = code(&mut talk);
    if ended.is_none() {
        talk.kill();
        panic!("it has not ended");
    }
    assert_eq!(ended, Some(2));
    let mut said = String::new();
    talk.child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert!(said.contains(&next) && said.contains("a link of a chain"), "{said}");
    assert_eq!(said.matches(&next).count(), 1, "{said}");
}

#[test]
fn a_key_that_is_asked_while_the_copy_is_too_far_behind_is_answered_by_a_mark_and_ends_no_follower()
{
    let place = Place::new();
    let (_, store) = shipped(&place);
    let new = place.at("new");
    for mut talk in [
        Talk::of(command(&["follow", &store, &new, "--max-lag", "0s"]).stderr(Stdio::piped())),
        Talk::of(command(&["follow", &store, "--max-lag", "0s"]).stderr(Stdio::piped())),
    ] {
        assert_eq!([talk.ask("17"), talk.ask("18")], ["?", "?"]);
        assert!(talk.child.try_wait().expect("a process").is_none(), "it has ended");
        talk.child.kill().expect("killed");
        let mut said = String::new();
        talk.child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        talk.child.wait().expect("it ends");
        assert_eq!(said.matches("refused to answer").count(), 1, "{said}");
    }
}

/// Returns a figure of a shipper.
fn figure(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("ebbtide_ship_{name}{{")));
    let value = line.and_then(|line| line.rsplit_once(' ')).expect("a figure").1;
    value.parse().expect("a number")
}

#[test]
fn a_shipper_that_starts_after_a_take_over_ends_as_fenced() {
    let place = Place::new();
    let (seen, store) = shipped(&place);
    let (new, figures) = (place.at("new"), place.at("ship.prom"));
    ok(&["ship", &seen, &store, "--once", "--metrics", &figures], b"");
    let before = fs::read_to_string(&figures).expect("figures");
    ok(&["promote", &store, &new], b"");
    ok(&["insert", &new], &keys(2000..2010));
    ok(&["ship", &new, &store, "--once"], b"");
    let fenced = run(&["ship", &seen, &store, "--once", "--metrics", &figures], b"");
    assert_eq!(fenced.code, Some(3), "{fenced:?}");
    assert!(fenced.stderr.contains("one of another directory has begun timeline"), "{fenced:?}");
    assert_eq!(fenced.stderr.lines().count(), 1, "{fenced:?}");
    let text = fs::read_to_string(&figures).expect("figures");
    for (name, value) in [("fenced", 1.0), ("stopped", 1.0), ("failures_total", 1.0)] {
        assert_eq!(figure(&text, name), value, "{name}: {text}");
    }
    // What it has shipped itself.
    for name in ["confirmed_lsn", "timeline", "last_success_timestamp_seconds"] {
        assert_eq!(figure(&text, name).floor(), figure(&before, name).floor(), "{name}: {text}");
    }
    // Other refusals are no take-over.
    let other = place.at("other");
    ok(&["create", &other, "--last", "100"], b"");
    refused(&["ship", &other, &store, "--once", "--metrics", &figures], b"");
    let text = fs::read_to_string(&figures).expect("figures");
    assert_eq!((figure(&text, "fenced"), figure(&text, "stopped")), (0.0, 1.0), "{text}");
}

#[test]
fn a_mistyped_directory_is_refused_with_its_name_and_not_created() {
    let place = Place::new();
    let (seen, store) = shipped(&place);
    let (mistyped, new, other) = (place.at("mistyped"), place.at("new"), place.at("other"));
    for arguments in [
        &["fetch", &mistyped, &new][..],
        &["fetch", &format!("file://{mistyped}"), &new],
        &["follow", &mistyped],
        &["follow", &mistyped, &new],
        &["promote", &mistyped, &new],
        &["ship", "verify", &mistyped],
    ] {
        let sentence = refused(arguments, b"");
        let is_whole = sentence.contains(&mistyped) && sentence.contains("correct the path");
        assert!(is_whole, "{arguments:?}: {sentence}");
    }
    let sentence = refused(&["ship", &mistyped, &other, "--once"], b"");
    assert!(
        sentence.contains(&mistyped) && sentence.contains("not an ebbtide filter"),
        "{sentence}"
    );
    let nothing = ok(&["fetch", &mistyped, &new, "--if-empty"], b"");
    assert!(nothing.text().contains("nothing to fetch"), "{}", nothing.text());
    for dir in [&mistyped, &new, &other] {
        assert!(!fs::exists(dir).expect("an answer"), "{dir} was created");
    }
    ok(&["fetch", &store, &new], b"");
    ok(&["ship", "verify", &store, "--against", &seen], b"");
}
