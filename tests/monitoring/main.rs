//! What a recorder of `metrics` and a subscriber of `tracing` receive, with both features.

use ebbtide::media::Memory;
use ebbtide::{
    AgePartitioned, Details, Durability, Error, Filter, Fingerprint, Options, Stat, monitoring,
};
use ebbtide_testkit::failing::Failing;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};

const HOUR: Duration = Duration::from_secs(3600);

/// The metrics received: values by name, with the label `filter` as another entry.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

impl Received {
    fn values(&self, name: &str) -> Vec<f64> {
        self.0.lock().expect("no panic").get(name).cloned().unwrap_or_default()
    }

    fn sum(&self, name: &str) -> f64 {
        self.values(name).iter().sum()
    }

    fn series(&self, key: &Key) -> Arc<Series> {
        let filter = key.labels().find(|label| label.key() == "filter");
        assert!(filter.is_some_and(|label| !label.value().is_empty()), "{key}");
        Arc::new(Series { name: key.name().to_owned(), received: self.clone() })
    }
}

struct Series {
    name: String,
    received: Received,
}

impl Series {
    fn add(&self, value: f64) {
        let mut all = self.received.0.lock().expect("no panic");
        all.entry(self.name.clone()).or_default().push(value);
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, value: u64) {
        self.add(value as f64);
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, value: f64) {
        self.add(value);
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Recorder for Received {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe_histogram(key, unit, SharedString::const_str(""));
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe_histogram(key, unit, SharedString::const_str(""));
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        let name = format!("described {}", key.as_str());
        self.0.lock().expect("no panic").insert(name, Vec::new());
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.0.lock().expect("no panic").entry(key.name().to_owned()).or_default();
        Histogram::from_arc(self.series(key))
    }
}

/// The spans and events received, as lines: names, fields and values.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn of(&self, start: &str) -> String {
        let lines = self.0.lock().expect("no panic");
        let found = lines.iter().filter(|line| line.starts_with(start));
        found.cloned().collect::<Vec<_>>().join("\n")
    }
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        *self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "ebbtide"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = span.metadata().name().to_owned();
        span.record(&mut Fields(&mut line));
        let mut lines = self.0.lock().expect("no panic");
        lines.push(line);
        Id::from_u64(lines.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let at = span.into_u64() as usize - 1;
        values.record(&mut Fields(&mut self.0.lock().expect("no panic")[at]));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = format!("{}", event.metadata().level());
        event.record(&mut Fields(&mut line));
        self.0.lock().expect("no panic").push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Runs this thread's work with a recorder and a subscriber of its own.
fn observed(work: impl FnOnce()) -> (Received, Lines) {
    let (received, lines) = (Received::default(), Lines::default());
    metrics::with_local_recorder(&received, || {
        tracing::subscriber::with_default(lines.clone(), work);
    });
    (received, lines)
}

fn options() -> Options {
    Options::new().durability(Durability::Always).background(false)
}

#[test]
fn the_course_of_a_filter_is_reported_with_its_directory_and_positions() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let dir = home.path().join("seen");
    let (received, lines) = observed(|| {
        let filter = Filter::create(&dir, AgePartitioned::last(100), options()).expect("a filter");
        (0..10_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        filter.checkpoint().expect("a snapshot");
        filter.close().expect("closed");
        let filter = Filter::<AgePartitioned>::open(&dir, options()).expect("a filter");
        filter.close().expect("closed");
    });
    let directory = format!("directory={}", dir.display());
    for (span, count, field) in [
        ("open", 2, "created=1"),
        ("recovery", 2, "start_lsn="),
        ("checkpoint", 1, "bytes="),
        ("close", 2, "lsn="),
    ] {
        let found = lines.of(&format!("{span} "));
        assert!(found.lines().count() >= count, "{span}: {found}");
        assert!(found.lines().all(|line| line.contains(&directory)), "{span}: {found}");
        assert!(found.contains(field) && !found.contains("failed"), "{span}: {found}");
        let name = format!("ebbtide_{span}_seconds");
        let durations = received.values(&name);
        assert_eq!(durations.len(), found.lines().count(), "{name}");
        assert!(durations.iter().all(|seconds| (0.0..600.0).contains(seconds)), "{durations:?}");
    }
    assert!(received.values("ebbtide_sync_seconds").len() >= 10, "each insert waits for a sync");
    assert!(lines.of("ERROR").is_empty());
    assert_eq!(received.sum("ebbtide_failures_total"), 0.0);
}

#[test]
fn what_is_counted_is_0_from_when_a_filter_is_opened_so_that_the_first_event_is_an_increase() {
    let (received, _) = observed(|| {
        let filter = Filter::create_on(Arc::new(Memory::new()), AgePartitioned::last(9), options());
        drop(filter.expect("a filter"));
    });
    for name in ["background_errors", "failures", "poisonings", "stalls"] {
        let values = received.values(&format!("ebbtide_{name}_total"));
        assert!(!values.is_empty() && values.iter().all(|&value| value == 0.0), "{name}");
    }
    let all = received.0.lock().expect("no panic");
    assert!(all.contains_key("ebbtide_repair_seconds"), "a number of deaths");
}

#[test]
fn a_failed_sync_is_counted_and_the_refusal_of_writes_is_an_event_that_comes_once() {
    let (received, lines) = observed(|| {
        let medium = Failing::new(Memory::new());
        let filter =
            Filter::create_on(Arc::new(medium.clone()), AgePartitioned::last(100), options());
        let filter = filter.expect("a filter");
        let mut failed = false;
        for number in 1..50 {
            medium.fail_after(number, ErrorKind::Other);
            let inserted = filter.insert(format!("key {number}"));
            medium.clear_faults();
            if let Err(Error::Poisoned { .. }) = inserted {
                failed = true;
                break;
            }
        }
        assert!(failed, "no sync failed");
        assert!(matches!(filter.insert("another"), Err(Error::Poisoned { .. })));
    });
    let errors = lines.of("ERROR");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("writes are refused") && errors.contains("a fault on demand"));
    assert_eq!(received.sum("ebbtide_poisonings_total"), 1.0);
    assert!(received.sum("ebbtide_failures_total") > 0.0);
}

#[test]
fn published_figures_are_those_of_the_filter_and_every_report_is_described() {
    let mut figures = Vec::new();
    let (received, _) = observed(|| {
        let medium = Arc::new(Memory::new());
        let filter = Filter::create_on(medium, AgePartitioned::last(100), options());
        let filter = filter.expect("a filter");
        (0..7_u64).for_each(|key| assert!(filter.insert(key.to_le_bytes()).is_ok()));
        let (stat, details) = (filter.stat().expect("stat"), filter.details().expect("details"));
        figures = monitoring::metrics(&stat, &details).iter().map(|figure| figure.name).collect();
        monitoring::publish(Path::new("a filter"), &stat, &details);
        monitoring::describe();
    });
    assert_eq!(received.values("ebbtide_inserts_total"), [7.0]);
    assert_eq!(received.values("ebbtide_handles"), [1.0]);
    let all = received.0.lock().expect("no panic");
    assert!(figures.iter().all(|name| all.contains_key(*name)));
    let is_figure = |name: &str| figures.contains(&name) || name.starts_with("described ");
    let reported: Vec<_> = all.keys().filter(|name| !is_figure(name)).collect();
    assert!(reported.len() >= 3, "{reported:?}");
    for name in reported {
        assert!(all.contains_key(&format!("described {name}")), "{name}");
    }
}

/// Counters with the real semantics of the facade.
#[derive(Default)]
struct Atomics(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Atomics {
    fn value(&self, name: &str) -> u64 {
        self.0.lock().expect("no panic")[name].load(Ordering::SeqCst)
    }
}

impl Recorder for Atomics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut all = self.0.lock().expect("no panic");
        Counter::from_arc(all.entry(key.name().to_owned()).or_default().clone())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn a_published_counter_continues_after_a_clear_and_figures_that_come_late_begin_nothing() {
    let atomics = Atomics::default();
    metrics::with_local_recorder(&atomics, || {
        let medium = Arc::new(Memory::new());
        let filter = Filter::create_on(medium, AgePartitioned::last(100), options());
        let filter = filter.expect("a filter");
        let figures = |inserts: u64| {
            for key in 0..inserts {
                assert!(filter.insert(key.to_le_bytes()).is_ok());
            }
            (filter.stat().expect("stat"), filter.details().expect("details"))
        };
        let published = |(stat, details): &(Stat, Details)| {
            monitoring::publish(Path::new("a filter that is cleared"), stat, details);
            atomics.value("ebbtide_inserts_total")
        };
        let early = figures(7);
        let late = figures(3);
        // A thread of another scraper took its figures before, and publishes them after.
        assert_eq!([&early, &late, &early, &late].map(published), [7, 10, 10, 10]);
        filter.clear().expect("cleared");
        assert_eq!(published(&figures(2)), 10, "these may have come late, too");
        assert_eq!(published(&figures(1)), 13);
        assert_eq!(published(&figures(4)), 17);
        filter.clear().expect("cleared");
        assert_eq!([0, 0, 1].map(|inserts| published(&figures(inserts))), [17, 17, 18]);
    });
}

/// Returns the names of metrics in a text.
fn named(text: &str) -> BTreeSet<String> {
    let rests = text.match_indices("ebbtide_").map(|(at, _)| &text[at..]);
    let is_name = |letter: &char| letter.is_ascii_lowercase() || *letter == '_';
    rests.map(|rest| rest.chars().take_while(is_name).collect()).collect()
}

#[test]
fn the_dashboard_and_the_page_for_operators_name_the_metrics_that_there_are() {
    let mut known = BTreeSet::from(["ebbtide_clock_lead_seconds".to_owned()]);
    let (received, _) = observed(|| {
        let medium = Arc::new(Memory::new());
        let timed = Filter::create_on(medium, Fingerprint::window(HOUR), options());
        let timed = timed.expect("a filter").into_any();
        let counted =
            Filter::create_on(Arc::new(Memory::new()), AgePartitioned::last(100), options());
        for filter in [timed, counted.expect("a filter").into_any()] {
            assert!(filter.insert("a key").expect("inserted"));
            let (stat, details) = (filter.stat().expect("stat"), filter.details().expect("these"));
            let figures = monitoring::metrics(&stat, &details);
            known.extend(figures.iter().map(|figure| figure.name.to_owned()));
        }
        monitoring::describe();
    });
    let described = received.0.lock().expect("no panic");
    known.extend(described.keys().filter_map(|name| Some(name.strip_prefix("described ")?.into())));
    let text = |file: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        std::fs::read_to_string(path).expect(file)
    };
    let dashboard = text("examples/exporter/dashboard.json");
    assert!(serde_json::from_str::<serde_json::Value>(&dashboard).is_ok(), "no JSON");
    let page = text("docs/operating.md");
    // Those of shippers are of another package.
    let is_of_filters = |name: &String| !name.starts_with("ebbtide_ship");
    let on_page: BTreeSet<String> = named(&page).into_iter().filter(is_of_filters).collect();
    for name in named(&dashboard).iter().chain(&on_page) {
        let whole = ["_bucket", "_count"].iter().find_map(|part| name.strip_suffix(part));
        let is_known = known.contains(name) || whole.is_some_and(|whole| known.contains(whole));
        assert!(is_known, "{name} is no metric");
    }
    let missing: Vec<_> = known.difference(&on_page).collect();
    assert_eq!(missing, ["ebbtide_oldest_generation_age_inserts"], "written as `or _inserts`");
}
