//! Below the global subscriber, where an event may be emitted while another one is filtered. It has
//! a process of its own, because there is one global subscriber in each.

use ebbtide::{Filter, Fingerprint, Options};
use ebbtide_tracing::OncePerWindow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tracing::{error, warn};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;

static ERRORS: AtomicUsize = AtomicUsize::new(0);
static WARNINGS: AtomicUsize = AtomicUsize::new(0);

struct Count;

impl<S: tracing::Subscriber> Layer<S> for Count {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let is_error = *event.metadata().level() == tracing::Level::ERROR;
        let count = if is_error { &ERRORS } else { &WARNINGS };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn what_a_report_of_an_error_emits_passes_without_a_question() {
    let home = tempfile::tempdir().unwrap();
    let hour = Fingerprint::window(Duration::from_secs(3600));
    let filter = Filter::create(home.path().join("events"), hour, Options::new()).unwrap();
    filter.close().unwrap();
    // Each question fails, so a question about the report would report without end.
    let once = OncePerWindow::new(Arc::new(filter)).on_error(|error| warn!("failed: {error}"));
    tracing_subscriber::registry().with(Count.with_filter(once)).init();
    for _ in 0..3 {
        error!("disk full");
    }
    assert_eq!((ERRORS.load(Ordering::Relaxed), WARNINGS.load(Ordering::Relaxed)), (3, 3));
}
