//! What operators see: `top`, `report`, `plan --plot`, `stat --watch` and the text of Prometheus.

use crate::looks::{Entry, listing};
use crate::support::{Place, Talk, input, ok, refused, run, signal, skipped, start, stream};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time after which a command that should have ended is taken to hang.
const LIMIT: Duration = Duration::from_secs(60);

/// Creates a filter of some thousand keys, with generations.
fn filled(place: &Place, name: &str) -> String {
    let dir = place.at(name);
    ok(&["create", &dir, "--kind", "age-partitioned", "--window-items", "2000"], b"");
    ok(&["insert", &dir], &input(&stream(3_000, 2_500)));
    dir
}

#[test]
fn top_shows_the_writers_of_a_filter_and_changes_nothing() {
    let place = Place::new();
    let dir = filled(&place, "seen");
    let mut writer = Talk::new(&["check", &dir]);
    assert_eq!(writer.ask("first"), "0");
    // On a busy machine the writer's background threads may not have been at rest.
    let mut left = 10;
    let text = loop {
        let before = rested(&dir);
        let top = ok(&["top", &dir, "--once", "--interval", "0.2", "--size", "120x45"], b"");
        let after = listing(&dir);
        left -= 1;
        if after == before || left == 0 {
            assert_eq!(after, before);
            break top.text().to_owned();
        }
    };
    assert_eq!(text.lines().count(), 45);
    let pid = writer.child.id().to_string();
    for expected in ["age-partitioned", "3001 inserts", "Handles: 1", &pid, "ebbtide", "log"] {
        assert!(text.contains(expected), "{expected:?} is missing:\n{text}");
    }
    assert!(!text.contains("Remarks"), "{text}");
}

/// Returns the listing of a filter once its writer's background threads have nothing left to do.
fn rested(dir: &str) -> BTreeMap<String, Entry> {
    let (begun, mut before) = (Instant::now(), listing(dir));
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = listing(dir);
        if now == before {
            return now;
        }
        assert!(begun.elapsed() < LIMIT, "the writer never rests");
        before = now;
    }
}

#[test]
fn top_shows_several_filters_and_marks_a_stopped_process() {
    let place = Place::new();
    let (dir, other) = (filled(&place, "seen"), filled(&place, "other"));
    let mut writer = Talk::new(&["check", &dir]);
    assert_eq!(writer.ask("first"), "0");
    signal(&writer.child, "STOP");
    let outcome = run(&["top", &dir, &other, "--once", "--interval", "100ms"], b"");
    signal(&writer.child, "CONT");
    let text = outcome.text();
    assert!(text.contains("1 seen!") && text.contains("2 other "), "{text}");
    let remark = format!("process {} (ebbtide) is stopped", writer.child.id());
    assert!(text.contains(&remark), "{text}");
}

#[test]
fn top_without_a_terminal_or_a_filter_gives_one_sentence() {
    let place = Place::new();
    let dir = filled(&place, "seen");
    assert!(refused(&["top", &dir], b"").contains("needs a terminal"));
    let absent = place.at("absent");
    assert!(refused(&["top", &dir, &absent, "--once"], b"").contains(&absent));
    assert!(refused(&["top", &dir, "--size", "10x2", "--once"], b"").contains("20x5"));
}

/// Parses the text format of Prometheus; returns the samples by name and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let (mut described, mut typed, mut closed) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut samples, mut current) = (BTreeMap::new(), String::new());
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), Some(_)) => {
                assert!(described.insert(name.to_owned()), "two texts: {line}");
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                assert!(["counter", "gauge"].contains(&kind), "{line}");
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
                assert!(typed.insert(name.to_owned()), "two types: {line}");
            }
            _ => {
                let (series, value) = line.rsplit_once(' ').expect(line);
                let (name, labels) = series.split_once('{').expect(line);
                assert!(labels.ends_with('}') && labels.starts_with("filter=\""), "{line}");
                assert!(typed.contains(name) && described.contains(name), "{line}");
                if name != current {
                    assert!(closed.insert(name.to_owned()), "{name} is apart");
                    current = name.to_owned();
                }
                let value: f64 = value.parse().expect(line);
                assert!(samples.insert(series.to_owned(), value).is_none(), "twice: {line}");
            }
        }
    }
    samples
}

#[test]
fn the_text_for_prometheus_is_well_formed_and_has_the_figures_of_stat() {
    let place = Place::new();
    let dir = place.at("quoted \"name\"");
    ok(&["create", &dir, "--kind", "fingerprint", "--window-items", "2000"], b"");
    ok(&["insert", &dir], &input(&stream(3_000, 2_500)));
    let text = ok(&["stat", &dir, "--format", "prometheus"], b"");
    let samples = samples(text.text());
    let filter = dir.replace('\\', "\\\\").replace('"', "\\\"");
    let value = |name: &str| samples[&format!("{name}{{filter=\"{filter}\"}}")];
    let stat = ok(&["stat", &dir, "--json"], b"").json().remove(0);
    assert_eq!(value("ebbtide_inserts_total"), 3000.0);
    for (name, member) in [
        ("ebbtide_fill_ratio", "fill"),
        ("ebbtide_disk_bytes", "disk_bytes"),
        ("ebbtide_log_tail_lsn", "lsn"),
        ("ebbtide_estimated_false_positive_ratio", "estimated_fpr"),
    ] {
        assert_eq!(Some(value(name)), stat[member].as_f64(), "{name}");
    }
    let figure = format!("ebbtide_kind_figure{{filter=\"{filter}\",figure=\"closings\"}}");
    assert!(samples.contains_key(&figure), "{samples:?}");
}

#[test]
fn the_linter_of_prometheus_finds_no_fault() {
    let version = Command::new("promtool").arg("--version").output();
    // An emulator may start what is not there, and end with an error.
    if !version.is_ok_and(|version| version.status.success()) {
        skipped("there is no promtool");
        return;
    }
    let place = Place::new();
    let dir = filled(&place, "seen");
    let text = ok(&["stat", &dir, "--format", "prometheus"], b"").stdout;
    let file = place.at("metrics");
    fs::write(&file, text).expect("space");
    let checked = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(fs::File::open(&file).expect("the file"))
        .output()
        .expect("promtool runs");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success() && said.trim().is_empty(), "{said}");
}

#[test]
fn watched_figures_are_printed_again_until_a_signal_ends_the_command() {
    let place = Place::new();
    let dir = filled(&place, "seen");
    let mut child = start(&["stat", &dir, "--json", "--watch", "0.1"]);
    let lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let taken: Vec<_> = lines.take(3).map(|line| line.expect("a line")).collect();
    assert!(taken.iter().all(|line| line.contains("\"inserts\":3000")), "{taken:?}");
    signal(&child, "TERM");
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break status,
            None => assert!(begun.elapsed() < LIMIT, "it continues after the signal"),
        }
    };
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
    assert!(refused(&["stat", &dir, "--watch=0"], b"").contains("100ms"));
}

/// Checks that a page has no scripts and no outside resources, and that its tags are balanced.
fn check_page(text: &str) {
    for banned in ["<script", "javascript:", "src=", "href=", "url(", "@import"] {
        assert!(!text.contains(banned), "{banned}");
    }
    let schemes = text.matches("http").count() - text.matches("http-equiv").count();
    assert_eq!(schemes, text.matches("http://www.w3.org/2000/svg").count());
    let mut open = Vec::new();
    for tag in text.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("the end of a tag");
        let name: String =
            tag.trim_start_matches('/').chars().take_while(|c| c.is_alphanumeric()).collect();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "unbalanced at {tag}");
        } else if !tag.ends_with('/') && !["!DOCTYPE html"].contains(&tag) && name != "meta" {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(!text.contains("NaN"));
}

#[test]
fn a_report_of_each_kind_is_one_page_without_scripts_and_outside_resources() {
    let place = Place::new();
    for (kind, parameters, generations) in [
        ("age-partitioned", ["--window-items", "2000"], true),
        ("fingerprint", ["--window", "10m"], true),
        ("time-limited", ["--window", "10m"], true),
        ("timing", ["--window-items", "2000"], true),
        ("bloom", ["--capacity", "5000"], false),
    ] {
        let (dir, page) = (place.at(kind), place.at(&format!("{kind}.html")));
        ok(&["create", &dir, "--kind", kind, parameters[0], parameters[1]], b"");
        ok(&["insert", &dir], &input(&stream(3_000, 2_500)));
        let before = listing(&dir);
        ok(&["report", &dir, "-o", &page], b"");
        assert_eq!(listing(&dir), before, "{kind}");
        let text = fs::read_to_string(&page).expect("a page");
        check_page(&text);
        assert_eq!(text.contains("Fill by generation"), generations, "{kind}");
        assert!(text.contains("False-positive rate: "), "{kind}");
        assert!(text.contains("<b>3000</b><span>inserts since creation"), "{kind}");
        assert!(text.contains("No process has the filter open"), "{kind}");
        assert!(text.contains("prefers-color-scheme:dark"));
    }
}

#[test]
fn a_report_beside_a_writer_names_its_process_and_can_be_a_picture() {
    let place = Place::new();
    let dir = place.at("<seen> & \"more\"");
    ok(&["create", &dir, "--kind", "time-limited", "--window", "10m"], b"");
    let mut writer = Talk::new(&["check", &dir]);
    (0..200).for_each(|key| assert_eq!(writer.ask(&format!("key {key}")), "0"));
    let (page, picture) = (place.at("r.html"), place.at("r.svg"));
    ok(&["report", &dir, "-o", &page], b"");
    ok(&["report", &dir, "--output", &picture], b"");
    let text = fs::read_to_string(page).expect("a page");
    check_page(&text);
    assert!(text.contains("Ages of ") && text.contains("Growth of the kept log"), "{text}");
    assert!(text.contains(&format!("<td>{} ebbtide</td>", writer.child.id())), "{text}");
    assert!(text.contains("&lt;seen&gt; &amp; &quot;more&quot;"));
    check_page(&fs::read_to_string(picture).expect("a picture"));
    assert!(refused(&["report", &dir, "-o", &place.at("r.pdf")], b"").contains(".html or .svg"));
}

/// Returns the browser, if there is one.
fn browser() -> Option<&'static str> {
    let is_there = |name: &&&str| {
        let version = Command::new(name).arg("--version").stderr(Stdio::null()).output();
        version.is_ok_and(|version| version.status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"].iter().find(is_there).copied()
}

/// Runs the browser with a time limit; returns its output.
fn browse(browser: &str, home: &Path, arguments: &[&str]) -> String {
    let output = Command::new("timeout")
        .args(["90", browser, "--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--disable-dev-shm-usage", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", home.display()))
        .args(arguments)
        .output()
        .expect("the browser runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_browser_shows_the_report_without_an_error_in_light_and_dark() {
    let Some(browser) = browser() else {
        skipped("there is no Chromium");
        return;
    };
    let place = Place::new();
    let dir = filled(&place, "seen");
    let page = place.at("r.html");
    ok(&["report", &dir, "-o", &page], b"");
    let home = place.at("browser");
    let address = format!("file://{page}");
    let shown = browse(browser, Path::new(&home), &["--dump-dom", &address]);
    // What the parser had to correct would differ from what was written.
    let written = fs::read_to_string(&page).expect("a page");
    for element in ["<svg", "<rect", "<path", "<text", "<td", "<title"] {
        assert_eq!(shown.matches(element).count(), written.matches(element).count(), "{element}");
    }
    assert!(written.matches("<svg").count() > 1);
    let mut pictures = Vec::new();
    for (name, more) in [
        ("light", "--blink-settings=preferredColorScheme=1"),
        ("dark", "--blink-settings=preferredColorScheme=0"),
    ] {
        let picture = place.at(&format!("{name}.png"));
        let save = format!("--screenshot={picture}");
        browse(browser, Path::new(&home), &[more, "--window-size=1100,1400", &save, &address]);
        pictures.push(fs::read(&picture).expect("a picture"));
    }
    assert!(pictures.iter().all(|picture| picture.len() > 20_000));
    assert_ne!(pictures[0], pictures[1], "light and dark look the same");
}

#[test]
fn a_plan_is_drawn_for_windows_of_items_and_of_time() {
    let place = Place::new();
    for (asked, kinds) in [
        (&["--last", "100000"][..], &["fingerprint", "age-partitioned", "bloom"][..]),
        (&["--window", "10m", "--rate", "500"][..], &["fingerprint", "time-limited"][..]),
    ] {
        let file = place.at("plan.svg");
        let outcome = ok(&[&["plan"], asked, &["--plot", &file]].concat(), b"");
        assert!(outcome.text().contains("memory"), "the plan is printed too");
        let text = fs::read_to_string(&file).expect("a picture");
        check_page(&text);
        for kind in kinds {
            // A legend and a line in each of two diagrams.
            assert_eq!(text.matches(&format!(">{kind}<")).count(), 4, "{kind}");
        }
    }
    let nowhere = place.at("none/plan.svg");
    assert!(refused(&["plan", "--last", "9", "--plot", &nowhere], b"").contains("cannot write"));
}

/// Runs `top` in a terminal of its own, which `script` makes and copies to the file `screen`;
/// returns its process, and the command with the pipe to its keyboard. `None` without that program.
fn top_in_a_terminal(dir: &str, screen: &str) -> Option<(Talk, String)> {
    let version = Command::new("script").arg("--version").output();
    if !version.is_ok_and(|version| version.status.success()) {
        skipped("there is no `script`");
        return None;
    }
    let ebbtide = env!("CARGO_BIN_EXE_ebbtide");
    // The terminal's own settings must be back at the end.
    let line = format!(
        "stty cols 100 rows 40; before=$(stty -g); echo pid $$; sh -c 'echo $$; exec {ebbtide} top \
         {dir} --interval 0.1'; code=$?; [ \"$before\" = \"$(stty -g)\" ] && echo restored; \
         exit $code"
    );
    let mut script = Command::new("script");
    script.args(["-qefc", &line, screen]).env("TERM", "xterm").env("SHELL", "/bin/sh");
    let mut talk = Talk::of(&mut script);
    assert!(talk.hear().starts_with("pid "));
    let pid = talk.hear().trim().to_owned();
    Some((talk, pid))
}

#[test]
fn top_leaves_the_terminal_as_it_was_after_a_key_and_after_a_signal() {
    let place = Place::new();
    let dir = filled(&place, "seen");
    for (number, key) in [Some("q"), Some("\u{3}"), None].into_iter().enumerate() {
        let screen = place.at(&format!("screen-{number}"));
        let Some((mut talk, pid)) = top_in_a_terminal(&dir, &screen) else { return };
        // Until the first view is there, the key could be read by the shell.
        let began = Instant::now();
        let shown = || String::from_utf8_lossy(&fs::read(&screen).unwrap_or_default()).into_owned();
        while !shown().contains("age-partitioned") {
            assert!(began.elapsed() < LIMIT, "{:?}", shown());
            std::thread::sleep(Duration::from_millis(10));
        }
        match key {
            Some(key) => talk.say(&format!("\t{key}")),
            None => {
                let sent = Command::new("kill").args(["-s", "TERM", &pid]).status();
                assert!(sent.expect("kill runs").success());
            }
        }
        let status = talk.child.wait().expect("wait");
        let text = talk.rest();
        assert_eq!(status.code(), Some(if key.is_some() { 0 } else { 128 + 15 }), "{text:?}");
        assert!(text.contains("age-partitioned"), "{text:?}");
        for sequence in ["\u{1b}[?1049h", "\u{1b}[?1049l", "restored"] {
            assert!(text.contains(sequence), "{sequence:?} is missing: {text:?}");
        }
    }
}
