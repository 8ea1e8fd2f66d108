//! A filter that keeps its log is asked, and restored, as of moments of its past.

use crate::looks::listing;
use crate::support::{Place, Talk, ok, refused, run};
use ebbtide::Timestamp;
use std::fs;
use std::thread;
use std::time::Duration;

/// Many small segments, so that recovery soon needs few of them.
const CREATE: [&str; 6] = ["--last", "1000", "--segment-bytes", "4KiB", "--hash-seed", "7"];
const RUNS: u64 = 5;
const KEYS: u64 = 300;

/// Returns the keys of a run, one per line.
fn keys(run: u64) -> Vec<u8> {
    (run * KEYS..(run + 1) * KEYS).flat_map(|key| format!("key {key}\n").into_bytes()).collect()
}

/// Returns the first key of each run, one per line.
fn asked() -> Vec<u8> {
    (0..RUNS).flat_map(|run| format!("key {}\n", run * KEYS).into_bytes()).collect()
}

/// Returns the names of the files that only a filter that keeps its log has.
fn kept(dir: &str) -> Vec<String> {
    let names = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    let names = names.map(|entry| entry.file_name().into_string().expect("UTF-8"));
    names.filter(|name| name == "keep" || name.starts_with("kept-")).collect()
}

/// A moment after a run, and the answers then.
struct Then {
    /// The moment, as `--at` reads it.
    at: String,
    digest: String,
    answers: String,
}

/// Inserts the keys of all runs, each in a process of its own, with a snapshot after each; returns
/// the moments after them.
fn inserted(dir: &str) -> Vec<Then> {
    let then = |run| {
        ok(&["insert", dir], &keys(run));
        let digest = ok(&["digest", dir], b"");
        let lsn = ok(&["digest", dir, "--json"], b"").json()[0]["lsn"].as_u64().expect("an LSN");
        let answers = ok(&["contains", dir], &asked());
        ok(&["snapshot", dir], b"");
        let [digest, answers] = [digest, answers].map(|outcome| outcome.text().to_owned());
        Then { at: format!("lsn:{}", lsn - 1), digest, answers }
    };
    (0..RUNS).map(then).collect()
}

fn filter(place: &Place, keep: &str) -> (String, Vec<Then>) {
    let dir = place.at("filter");
    ok(&[&["create", &dir, "--keep-log", keep], &CREATE[..]].concat(), b"");
    let moments = inserted(&dir);
    (dir, moments)
}

#[test]
fn a_filter_that_is_not_asked_to_keep_its_log_has_no_file_of_it() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&[&["create", &dir], &CREATE[..]].concat(), b"");
    let moments = inserted(&dir);
    assert_eq!(kept(&dir), [""; 0]);
    let sentence = refused(&["digest", &dir, "--at", &moments[0].at], b"");
    assert!(sentence.contains("--keep-log 24h"), "{sentence}");
}

#[test]
fn answers_as_of_the_end_of_each_run_are_those_that_were_given_then() {
    let place = Place::new();
    let (dir, moments) = filter(&place, "24h");
    assert!(kept(&dir).len() > 5, "{:?}", kept(&dir));
    let before = listing(&dir);
    for Then { at, digest, answers } in &moments {
        assert_eq!(&ok(&["digest", &dir, "--at", at], b"").text(), digest, "{at}");
        assert_eq!(&ok(&["contains", &dir, "--at", at], &asked()).text(), answers, "{at}");
    }
    assert_eq!(moments[1].answers, "1\n1\n0\n0\n0\n");
    assert_eq!(moments[RUNS as usize - 1].answers, "0\n0\n1\n1\n1\n");
    let single = ["contains", &dir, "--at", &moments[0].at, "--key", "key 300"];
    assert_eq!(run(&single, b"").code, Some(1));
    assert_eq!(listing(&dir), before, "looking at the past changes nothing");
    // Also while another process inserts.
    let mut writer = Talk::new(&["check", &dir]);
    assert_eq!(writer.ask("new"), "0");
    for Then { at, digest, answers } in &moments {
        assert_eq!(&ok(&["digest", &dir, "--at", at], b"").text(), digest, "{at}");
        assert_eq!(&ok(&["contains", &dir, "--at", at], &asked()).text(), answers, "{at}");
    }
    let (new, Then { at, digest, .. }) = (place.at("restored"), &moments[2]);
    ok(&["restore", "--at", at, &dir, &new], b"");
    assert_eq!(&ok(&["digest", &new], b"").text(), digest, "{at}");
    writer.end();
}

#[test]
fn every_command_that_looks_answers_as_of_a_moment() {
    let place = Place::new();
    let (dir, counts) = (place.at("filter"), place.at("counts"));
    ok(&[&["create", &dir, "--kind", "block-timing"], &CREATE[..], &KEEP].concat(), b"");
    let counting = ["create", &counts, "--kind", "counting", "--capacity", "5000"];
    ok(&[&counting, &CREATE[2..], &KEEP].concat(), b"");
    let costs = ["--false-positive", "2", "--false-negative", "1"];
    let prior = ["--prior", "0.001"];
    let looks: [Vec<&str>; 5] = [
        vec!["age", &dir],
        vec!["contains", &dir, "--json"],
        [&["posterior", &dir, "--ages"], &prior[..]].concat(),
        [&["decide", &dir], &prior[..], &costs].concat(),
        vec!["estimate", &counts, "--with-keys"],
    ];
    let figures = |at: &[&str]| {
        let stat = ok(&[&["stat", &dir, "--json"], at].concat(), b"").json().remove(0);
        ["inserts", "lsn", "durable_lsn", "time", "fill", "estimated_fpr"]
            .map(|of| stat[of].clone())
    };
    let mut moments = Vec::new();
    for number in 0..3 {
        for filter in [&dir, &counts] {
            ok(&["insert", filter], &keys(number));
        }
        let answers = looks.clone().map(|look| ok(&look, &asked()).text().to_owned());
        let figures = figures(&[]);
        // The filters have different LSNs: of a sync that lasts there is a note in the log.
        let of_counts = ok(&["stat", &counts, "--json"], b"").json()[0]["lsn"].as_u64();
        let lsns = [figures[1].as_u64(), of_counts].map(|lsn| lsn.expect("an LSN") - 1);
        moments.push((lsns, figures, answers));
        for filter in [&dir, &counts] {
            ok(&["snapshot", filter], b"");
        }
    }
    for (lsns, then, answers) in &moments {
        let [at, at_of_counts] = lsns.map(|lsn| format!("lsn:{lsn}"));
        assert_eq!(&figures(&["--at", &at]), then, "{at}");
        for (look, answer) in looks.iter().zip(answers) {
            let at = if look.contains(&counts.as_str()) { &at_of_counts } else { &at };
            let look = [&look[..], &["--at", at]].concat();
            assert_eq!(ok(&look, &asked()).text(), answer, "{look:?}");
        }
        let page = place.at("page.html");
        ok(&["report", &dir, "--output", &page, "--at", &at], b"");
        let page = fs::read_to_string(&page).expect("a page");
        assert!(page.contains(&format!("as of {at}</h1>")), "{page}");
        let inserts = format!("<b>{}</b><span>inserts since creation", then[0]);
        assert!(page.contains(&inserts), "{inserts}: {page}");
    }
}

const KEEP: [&str; 2] = ["--keep-log", "1GiB"];

#[test]
fn a_time_is_the_moment_before_the_first_operation_that_is_later() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--kind", "time-limited", "--window", "10m", "--keep-log", "24h"], b"");
    let lines = b"2025-06-02T08:00:00Z\ta\n2025-06-02T08:04:00Z\tb\n2025-06-02T08:20:00Z\tc\n";
    ok(&["insert", &dir, "--event-time"], lines);
    for (at, answers) in [
        ("2025-06-02T07:59:59Z", "0\n0\n0\n"),
        ("2025-06-02T08:00:00Z", "1\n0\n0\n"),
        ("2025-06-02T10:05:00+02:00", "1\n1\n0\n"),
        ("1748852400", "0\n0\n1\n"),
    ] {
        assert_eq!(ok(&["contains", &dir, "--at", at], b"a\nb\nc\n").text(), answers, "{at}");
    }
}

#[test]
fn a_position_is_the_moment_before_it_got_beyond() {
    let place = Place::new();
    let (state, output, lines) = (place.at("state"), place.at("output"), place.at("lines"));
    let dedup = ["dedup", "--last", "1000", "--keep-log", "24h", "--state", &state];
    let dedup = [&dedup[..], &["--output", &output, &lines]].concat();
    fs::write(&lines, "a\nb\n").expect("space");
    ok(&dedup, b"");
    fs::write(&lines, "a\nb\nc\nd\n").expect("space");
    ok(&dedup, b"");
    // The length of the output is the position of this source.
    let at = format!("position:{}=4", u64::MAX - 1);
    assert_eq!(ok(&["contains", &state, "--at", &at], b"a\nb\nc\n").text(), "1\n1\n0\n");
    let digest = ok(&["digest", &state, "--at", &at, "--json"], b"").json().remove(0);
    assert_eq!(digest["inserts"], 2);
}

#[test]
fn a_filter_restored_as_of_a_moment_has_its_state_and_works() {
    let place = Place::new();
    let (dir, moments) = filter(&place, "24h");
    for (number, Then { at, digest, answers }) in moments.iter().enumerate() {
        let new = place.at(&format!("restored-{number}"));
        let restored = ok(&["restore", "--at", at, &dir, &new], b"");
        let (lsn, inserts) = (&at["lsn:".len()..], (number as u64 + 1) * KEYS);
        let sentence =
            format!("{new} has every record up to LSN {lsn}, {inserts} inserts in all\n");
        assert_eq!(restored.text(), sentence);
        assert_eq!(&ok(&["digest", &new], b"").text(), digest);
        assert_eq!(&ok(&["contains", &new], &asked()).text(), answers);
        assert_eq!(ok(&["check", &new], b"new\nnew\n").text(), "0\n1\n");
        assert_eq!(run(&["verify", &new], b"").code, Some(0));
        assert_eq!(kept(&new), [""; 0]);
        assert!(refused(&["restore", "--at", at, &dir, &new], b"").contains("already holds"));
    }
}

#[test]
fn a_moment_that_is_not_kept_is_an_error_with_the_lsns_that_are() {
    let place = Place::new();
    let (dir, moments) = filter(&place, "24KiB");
    let now = &moments[RUNS as usize - 1];
    assert_eq!(ok(&["digest", &dir, "--at", &now.at], b"").text(), now.digest);
    let new = place.at("restored");
    let mut stated = Vec::new();
    for at in ["lsn:3", "lsn:1000000"] {
        let contains = refused(&["contains", &dir, "--at", at], b"key 1\n");
        let restore = refused(&["restore", "--at", at, &dir, &new], b"");
        for sentence in [contains, restore] {
            let (_, rest) = sentence.split_once("it has LSN ").expect("the LSNs");
            let words: Vec<_> = rest.split([' ', ';']).collect();
            let lsn = |word: &str| word.parse::<u64>().expect("an LSN");
            stated.push((lsn(words[0]), lsn(words[2])));
        }
        assert!(refused(&["digest", &new], b"").contains("not an ebbtide filter"));
    }
    stated.dedup();
    let &[(from, last)] = &stated[..] else { panic!("{stated:?}") };
    assert!(3 < from && from < last, "{from} to {last}");
    for (lsn, is_kept) in [(from - 1, false), (from, true), (last, true), (last + 1, false)] {
        let asked = run(&["digest", &dir, "--at", &format!("lsn:{lsn}")], b"");
        assert_eq!(asked.code == Some(0), is_kept, "{lsn} of {from} to {last}: {asked:?}");
    }
}

#[test]
fn what_is_kept_is_removed_by_the_first_snapshot_after_keep_log_nothing() {
    let place = Place::new();
    let (dir, moments) = filter(&place, "24h");
    let (count, now) = (kept(&dir).len(), &moments[RUNS as usize - 1]);
    assert!(count > 5, "{count}");
    // The next run need not repeat the option.
    ok(&["insert", &dir, "--key", "key 1499"], b"");
    assert!(kept(&dir).len() >= count);
    ok(&["insert", &dir, "--keep-log", "nothing", "--key", "key 1499"], b"");
    ok(&["snapshot", &dir], b"");
    let left = kept(&dir);
    assert!(left.iter().all(|name| name == "keep"), "{left:?}");
    refused(&["digest", &dir, "--at", &moments[0].at], b"");
    assert_eq!(ok(&["contains", &dir], &asked()).text(), now.answers);
    // A filter may also begin to keep it later.
    ok(&["check", &dir, "--keep-log", "24h", "--key", "key 1499"], b"");
    for number in 0..4 {
        ok(&["insert", &dir], &keys(number));
        ok(&["snapshot", &dir], b"");
    }
    assert!(kept(&dir).len() > 2, "{:?}", kept(&dir));
}

#[test]
fn commands_that_change_a_filter_or_follow_it_refuse_a_moment() {
    let place = Place::new();
    let dir = place.at("filter");
    ok(&["create", &dir, "--last", "1000", "--keep-log", "nothing"], b"");
    let moment = ["--at", "lsn:1"];
    for command in
        ["insert", "check", "remove", "wal", "history", "verify", "clear", "snapshot", "top"]
    {
        let sentence = refused(&[&[command, &dir], &moment[..]].concat(), b"");
        assert!(sentence.contains("unexpected argument '--at'"), "{command}: {sentence}");
    }
    let watched = refused(&["stat", &dir, "--watch", "1", "--at", "lsn:1"], b"");
    assert!(watched.contains("cannot be used with"), "{watched}");
    for moment in ["lsn:x", "position:7", "yesterday", "2025-06-02T08:00:00"] {
        let sentence = refused(&["contains", &dir, "--at", moment], b"");
        assert!(sentence.contains("lsn:N, position:SOURCE=N, or a time"), "{sentence}");
    }
}

#[test]
fn an_amount_of_log_that_is_none_and_a_filter_that_no_later_run_opens_are_refused() {
    let place = Place::new();
    let dir = place.at("filter");
    let sentence = refused(&["create", &dir, "--last", "9", "--keep-log", "much"], b"");
    assert!(sentence.contains("nothing, a time such as 24h, or a size such as 10GiB"));
    assert!(!fs::exists(&dir).expect("a look"));
    let sentence = refused(&["dedup", "--last", "9", "--keep-log", "24h"], b"a\n");
    assert!(sentence.contains("--state"), "{sentence}");
}

#[test]
fn an_explanation_reads_the_kept_log_also_as_of_a_moment() {
    let place = Place::new();
    let (dir, moments) = filter(&place, "24h");
    // Inserted in the first run, and long out of the log that recovery needs.
    let now = ok(&["explain", &dir, "key 0", "--json"], b"").json().remove(0);
    assert_eq!(now["inserts"].as_u64(), Some(1), "{now}");
    assert_eq!(now["present"].as_bool(), Some(false), "{now}");
    let then = ["explain", &dir, "key 0", "--json", "--at", &moments[0].at];
    let then = ok(&then, b"").json().remove(0);
    assert_eq!(then["present"].as_bool(), Some(true), "{then}");
    let records = ok(&["wal", &dir], b"");
    assert!(records.text().lines().count() > (RUNS * KEYS) as usize);
}

#[test]
fn as_of_a_moment_figures_of_files_say_that_they_are_those_of_now() {
    let place = Place::new();
    let (dir, moments) = filter(&place, "1h");
    let at = moments[0].at.as_str();
    let now = ok(&["stat", &dir], b"").text().to_owned();
    let then = ok(&["stat", &dir, "--at", at], b"").text().to_owned();
    let row = |text: &str, name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.map(|value| value.trim().to_owned())
    };
    for name in ["disk  ", "snapshots  ", "WAL segments  ", "kept log  "] {
        let (now, then) = (row(&now, name).expect(name), row(&then, name).expect(name));
        assert!(!now.contains("(now)") && then.ends_with(" (now)"), "{name}: {now}; {then}");
    }
    assert!(row(&now, "handles  ").is_some() && row(&then, "handles  ").is_none(), "{then}");
    assert_eq!(row(&then, "inserts  ").as_deref(), Some("300"));
    let json = ok(&["stat", &dir, "--json", "--at", at], b"").json().remove(0);
    assert_eq!(json["at"], at);
    for name in json["of_now"].as_array().expect("names") {
        assert!(json.get(name.as_str().expect("a name")).is_some(), "{name} is no figure");
    }
    assert!(ok(&["stat", &dir, "--json"], b"").json()[0].get("of_now").is_none());
    let text = ok(&["stat", &dir, "--format", "prometheus", "--at", at], b"").text().to_owned();
    assert!(text.starts_with(&format!("# As of {at}, ")), "{text}");
    let page = place.at("page.html");
    ok(&["report", &dir, "--output", &page, "--at", at], b"");
    let page = fs::read_to_string(&page).expect("a page");
    assert_eq!(page.matches(" (now)</td>").count(), 4, "{page}");
    for name in ["inserts now", "records not durable yet", "log since the newest"] {
        assert!(!page.contains(name), "{name}");
    }
}

#[test]
fn a_plan_to_alter_counts_the_records_of_the_log_that_the_alteration_reads() {
    let place = Place::new();
    let (dir, _) = filter(&place, "1h");
    // Also what no recovery would replay.
    let records = ok(&["history", &dir, "--json"], b"").lines().len() as u64;
    assert!(records >= RUNS * KEYS);
    let end = ok(&["digest", &dir, "--json"], b"").json()[0]["lsn"].as_u64().expect("an LSN");
    let plan = ok(&["plan", "--alter", &dir, "--last", "5000", "--json"], b"").json().remove(0);
    let (planned, from) = (plan["records"].as_u64(), plan["from_lsn"].as_u64());
    // All slots of the log, with notes of the engine, which the alteration reads too.
    assert_eq!((planned, from, &plan["whole"]), (Some(end - 1), Some(1), &true.into()), "{plan}");
    let altered = ok(&["alter", &dir, "--last", "5000", "--json"], b"").json().remove(0);
    assert_eq!(altered["operations"], RUNS * KEYS, "{altered}");
}

/// Returns whether nothing is kept any more, after another run and a snapshot.
fn has_lost_its_past(dir: &str) -> bool {
    ok(&["insert", dir, "--key", "one more"], b"");
    ok(&["snapshot", dir], b"");
    kept(dir).iter().all(|name| name == "keep")
}

#[test]
fn a_refused_run_removes_nothing_of_the_past() {
    let place = Place::new();
    let (dir, _) = filter(&place, "24h");
    let file = place.file("keys", b"a\n");
    let gone = place.at("gone");
    let nothing = ["--keep-log", "nothing"];
    for run in [
        // Another kind, another window, another hash than the filter's.
        &["dedup", "--state", &dir, "--kind", "timing", "--last", "1000", &file][..],
        &["dedup", "--state", &dir, "--last", "500", &file],
        &["dedup", "--state", &dir, "--last", "1000", "--hash-seed", "8", &file],
        // Files and options by which no line can be read.
        &["dedup", "--state", &dir, "--last", "1000", &gone],
        &["dedup", "--state", &dir, "--last", "1000", "--output", &place.at("out"), &gone],
        &["dedup", "--state", &dir, "--last", "1000", "--delimiter", ",", &file],
        &["insert", &dir, &gone],
        &["insert", &dir, "--delimiter", ",", &file],
        &["check", &dir, &gone],
        &["remove", &dir, &gone],
        // Alterations that would forget something, or that are impossible.
        &["alter", &dir, "--kind", "stable"],
    ] {
        let sentence = refused(&[run, &nothing].concat(), b"");
        assert!(!has_lost_its_past(&dir), "{run:?}: {sentence}");
    }
    ok(&[&["insert", &dir, &file][..], &nothing].concat(), b"");
    assert!(has_lost_its_past(&dir), "the run that is not refused");
}

/// Returns the time now, as `--at` reads it, and lets the clock go beyond it.
fn moment() -> String {
    let time = Timestamp::now().as_unix_millis().to_string();
    thread::sleep(Duration::from_millis(50));
    time
}

#[test]
fn before_the_time_of_a_clear_or_an_alteration_by_a_command_the_filter_is_what_it_was() {
    let place = Place::new();
    let (dir, restored) = (place.at("filter"), place.at("restored"));
    ok(&["create", &dir, "--last", "100", "--keep-log", "24h"], b"");
    ok(&["insert", &dir], b"a\n");
    thread::sleep(Duration::from_millis(50));
    let before = moment();
    ok(&["clear", &dir], b"");
    let between = moment();
    ok(&["alter", &dir, "--last", "200"], b"");
    let after = moment();
    ok(&["insert", &dir], b"b\n");
    let has = |at: &str| ok(&["contains", &dir, "--at", at], b"a\n").text().to_owned();
    assert_eq!((has(&before), has(&between)), ("1\n".to_owned(), "0\n".to_owned()));
    ok(&["restore", &dir, &restored, "--at", &before], b"");
    assert_eq!(ok(&["contains", &restored], b"a\n").text(), "1\n");
    let items = |at: &str| {
        let stat = ok(&["stat", &dir, "--json", "--at", at], b"").json().remove(0);
        stat["parameters"]["window-items"].as_u64()
    };
    assert_eq!([&before, &between, &after].map(|at| items(at)), [Some(100), Some(100), Some(200)]);
}

#[test]
fn figures_are_those_of_now_and_keys_that_left_the_window_since_the_last_record_are_none() {
    let place = Place::new();
    for kind in ["time-limited", "fingerprint"] {
        let dir = place.at(kind);
        ok(&["create", &dir, "--kind", kind, "--window", "1s", "--rate", "100"], b"");
        ok(&["insert", &dir], b"a\nb\nc\n");
        thread::sleep(Duration::from_millis(2500));
        assert_eq!(ok(&["contains", &dir], b"a\nb\nc\n").text(), "0\n0\n0\n", "{kind}");
        for command in ["distinct", "stat"] {
            let told = ok(&[command, &dir, "--json"], b"").json().remove(0);
            assert_eq!(told["distinct_keys"].as_f64(), Some(0.0), "{kind}: {command}");
        }
    }
}
