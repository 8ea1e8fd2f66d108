//! Events of the real tracing, through the real subscriber.

use ebbtide::{Clock, Filter, Fingerprint, ManualClock, Options, Timestamp};
use ebbtide_tracing::OncePerWindow;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::{Level, debug, error, info, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::prelude::*;

const HOUR: Duration = Duration::from_secs(3600);

fn open(dir: &Path, options: Options) -> Arc<Filter<Fingerprint>> {
    let hour = Fingerprint::window(HOUR).fpr(1e-9);
    Arc::new(Filter::open_or_create(dir, hour, options).unwrap())
}

/// The lines that were written.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn take(&self) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Runs code that emits events, which one layer writes. Returns what it wrote.
fn written(once: &OncePerWindow, emit: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let layer = fmt::layer().without_time().with_target(false).with_ansi(false);
    let layer = layer.with_writer(lines.clone()).with_filter(once.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), emit);
    lines.take()
}

#[test]
fn an_event_passes_once_in_a_window_also_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("events");
    let hand = ManualClock::new(Timestamp::from_unix_millis(1_700_000_000_000));
    let options = Options::new().clock(Clock::from(hand.clone()));
    let emit = || {
        for _ in 0..10 {
            error!(disk = "db-3", "disk full");
        }
    };
    let filter = open(&dir, options.clone());
    let once = OncePerWindow::new(filter.clone());
    assert_eq!(written(&once, emit), ["ERROR disk full disk=\"db-3\""]);
    assert_eq!((once.dropped(Level::ERROR), once.dropped_in_all()), (9, 9));
    filter.close().unwrap();

    let filter = open(&dir, options);
    let once = OncePerWindow::new(filter.clone());
    hand.advance(HOUR / 2);
    assert_eq!(written(&once, emit), Vec::<String>::new());
    // Counted from the event that passed, not from the last one that was dropped.
    hand.advance(HOUR * 3 / 4);
    assert_eq!(written(&once, emit).len(), 1);
    assert_eq!(once.dropped_in_all(), 19);
    filter.close().unwrap();
}

#[test]
fn events_differ_by_level_target_and_fields_and_not_by_what_is_ignored() {
    let home = tempfile::tempdir().unwrap();
    let filter = open(&home.path().join("events"), Options::new());
    let once = OncePerWindow::new(filter).ignoring(["request_id"]);
    let emit = || {
        info!("started");
        warn!("started");
        info!(target: "elsewhere", "started");
        info!(port = 80, "started");
        info!(port = 81, "started");
        info!(port = "80", "started");
        for request_id in 0..5 {
            info!(request_id, "handled");
        }
        // From another place in the source.
        info!("started");
    };
    let lines = written(&once, emit);
    // A number and its text are written alike, and are the same.
    let expected = [
        "INFO started",
        "WARN started",
        "INFO started",
        "INFO started port=80",
        "INFO started port=81",
        "INFO handled request_id=0",
    ];
    assert_eq!(lines, expected);
    assert_eq!((once.dropped(Level::INFO), once.dropped(Level::WARN)), (6, 0));
}

#[test]
fn fields_whose_texts_run_together_are_different() {
    let home = tempfile::tempdir().unwrap();
    let once = OncePerWindow::new(open(&home.path().join("events"), Options::new()));
    let emit = || {
        info!(a = "x", b = "yz", "m");
        info!(a = "xy", b = "z", "m");
        info!(a = "x b=yz", "m");
    };
    assert_eq!(written(&once, emit).len(), 3);
}

#[test]
fn more_severe_events_than_the_level_pass_always() {
    let home = tempfile::tempdir().unwrap();
    let filter = open(&home.path().join("events"), Options::new());
    let once = OncePerWindow::new(filter).only_from(Level::INFO);
    let emit = || {
        for _ in 0..3 {
            error!("e");
            warn!("w");
            info!("i");
            debug!("d");
        }
    };
    assert_eq!(written(&once, emit).len(), 3 + 3 + 1 + 1);
    assert_eq!((once.dropped(Level::WARN), once.dropped(Level::DEBUG)), (0, 2));
}

#[test]
fn in_the_stack_of_layers_it_counts_for_all_of_them_and_spans_pass() {
    let home = tempfile::tempdir().unwrap();
    let once = OncePerWindow::new(open(&home.path().join("events"), Options::new()));
    let (one, other) = (Lines::default(), Lines::default());
    let layer = |lines: &Lines| fmt::layer().with_ansi(false).with_writer(lines.clone()).boxed();
    let stack = tracing_subscriber::registry().with(vec![layer(&one), layer(&other)]);
    tracing::subscriber::with_default(stack.with(once.clone()), || {
        for number in 0..3 {
            let _span = tracing::info_span!("job", number).entered();
            info!("begun");
        }
    });
    for lines in [one.take(), other.take()] {
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("job{number=0}"), "{lines:?}");
    }
    assert_eq!(once.dropped_in_all(), 2);
}

/// A layer that writes lines, with a filter of its own.
fn from_warn<S>(lines: &Lines) -> impl Layer<S> + use<S>
where
    S: tracing::Subscriber + for<'span> tracing_subscriber::registry::LookupSpan<'span>,
{
    let layer = fmt::layer().without_time().with_target(false).with_ansi(false);
    layer.with_writer(lines.clone()).with_filter(LevelFilter::WARN)
}

#[test]
fn a_layer_with_a_filter_of_its_own_has_all_events_that_pass() {
    let home = tempfile::tempdir().unwrap();
    let once = OncePerWindow::new(open(&home.path().join("events"), Options::new()));
    let (some, all) = (Lines::default(), Lines::default());
    let layer = fmt::layer().without_time().with_target(false).with_ansi(false);
    let layer = layer.with_writer(all.clone());
    let stack = tracing_subscriber::registry().with(from_warn(&some)).with(layer);
    tracing::subscriber::with_default(stack.with(once), || {
        let begin = || info!("begun");
        begin();
        begin();
        error!("failed");
        begin();
        let _span = tracing::error_span!("job", number = 1).entered();
        error!("ended");
    });
    assert_eq!(some.take(), ["ERROR failed", "ERROR job{number=1}: ended"]);
    assert_eq!(all.take(), ["INFO begun", "ERROR failed", "ERROR job{number=1}: ended"]);
}

#[test]
fn errors_with_other_sources_are_other_events() {
    let home = tempfile::tempdir().unwrap();
    let once = OncePerWindow::new(open(&home.path().join("events"), Options::new()));
    let refused = Outer(std::io::Error::other("refused"));
    let reset = Outer(std::io::Error::other("reset"));
    let lines = written(&once, || {
        for error in [&refused, &reset, &refused] {
            error!(error = error as &(dyn std::error::Error + 'static), "no answer");
        }
    });
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("refused") && lines[1].contains("reset"), "{lines:?}");
}

/// An error whose cause its text does not say.
#[derive(Debug)]
struct Outer(std::io::Error);

impl std::fmt::Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the request failed")
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn of_threads_that_emit_an_event_at_once_one_is_heard() {
    let home = tempfile::tempdir().unwrap();
    let once = OncePerWindow::new(open(&home.path().join("events"), Options::new()));
    let lines = Lines::default();
    let layer = fmt::layer().with_writer(lines.clone()).with_filter(once.clone());
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                tracing::dispatcher::with_default(&dispatch, || {
                    for number in 0..200 {
                        info!(number, "event");
                    }
                });
            });
        }
    });
    assert_eq!((lines.take().len(), once.dropped_in_all()), (200, 7 * 200));
}

#[test]
fn events_pass_if_the_filter_fails() {
    let home = tempfile::tempdir().unwrap();
    let filter = open(&home.path().join("events"), Options::new());
    filter.close().unwrap();
    let errors = Arc::new(Mutex::new(Vec::new()));
    let reported = errors.clone();
    let once = OncePerWindow::new(filter);
    let once = once.on_error(move |error| reported.lock().unwrap().push(error.code().name()));
    let lines = written(&once, || {
        error!("disk full");
        error!("disk full");
    });
    assert_eq!(lines, ["ERROR disk full", "ERROR disk full"]);
    assert_eq!(*errors.lock().unwrap(), ["closed", "closed"]);
    assert_eq!(once.dropped_in_all(), 0);
}

#[test]
fn events_of_the_engine_are_not_asked_about() {
    let home = tempfile::tempdir().unwrap();
    let once = OncePerWindow::new(open(&home.path().join("events"), Options::new()));
    let emit = || {
        for _ in 0..2 {
            warn!(target: "ebbtide", "slow");
            warn!(target: "ebbtide::engine", "slow");
            warn!(target: "ebbtide_of_another", "slow");
        }
    };
    assert_eq!(written(&once, emit).len(), 5);
}
