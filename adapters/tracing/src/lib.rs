//! Events of tracing that pass once in a window of time.
//!
#![doc = include_str!("../README.md")]

mod text;

use ebbtide::{Error, Filter, Fingerprint, Since};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing_core::{Event, Interest, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{self, Context};

type OnError = Arc<dyn Fn(&Error) + Send + Sync>;

/// Lets an event pass once in the window of a filter, and counts those that it drops.
///
/// Two events are the same if level, target, and all fields with their values (the message is one)
/// are the same, except the fields that [`ignoring`](OncePerWindow::ignoring) names. The value of
/// an error is its text with those of its sources. Spans do not matter, nor the place in the source
/// code, which is another one after each change of the program.
///
/// It is a filter of one layer (`fmt::layer().with_filter(once)`), or, as a layer in the
/// subscriber's stack (`registry().with(fmt::layer()).with(once)`), of all of them. A clone shares
/// the filter and the counts. Each use counts as one: an event that two layers ask about with the
/// same filter passes in the first only.
#[derive(Clone)]
pub struct OncePerWindow {
    filter: Arc<Filter<Fingerprint>>,
    ignored: Arc<[String]>,
    from: Level,
    dropped: Arc<[AtomicU64; LEVELS]>,
    on_error: Option<OnError>,
}

const LEVELS: usize = 5;

thread_local! {
    /// Whether this thread is asking a filter for an event.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

impl OncePerWindow {
    /// Creates one with a filter. Its window is how long an event is not repeated, counted from
    /// when it passed; its false-positive rate is the share of different events that never pass.
    #[must_use]
    pub fn new(filter: Arc<Filter<Fingerprint>>) -> Self {
        Self {
            filter,
            ignored: Arc::default(),
            from: Level::ERROR,
            dropped: Arc::default(),
            on_error: None,
        }
    }

    /// Ignores fields when events are compared: those that differ each time, such as durations and
    /// numbers of requests. A second call replaces the list.
    #[must_use]
    pub fn ignoring<T: Into<String>>(mut self, fields: impl IntoIterator<Item = T>) -> Self {
        self.ignored = fields.into_iter().map(Into::into).collect();
        self
    }

    /// Lets all events pass that are more severe than a level: `only_from(Level::WARN)` drops no
    /// error. Default: `ERROR`, so that repeated errors are dropped, too.
    #[must_use]
    pub fn only_from(mut self, level: Level) -> Self {
        self.from = level;
        self
    }

    /// Calls this function with each error of the filter; the event passes then. The function must
    /// not use the filter.
    #[must_use]
    pub fn on_error(mut self, report: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(report));
        self
    }

    /// Returns how many events of a level this value and its clones have dropped.
    #[must_use]
    pub fn dropped(&self, level: Level) -> u64 {
        self.dropped[index(level)].load(Ordering::Relaxed)
    }

    /// Returns how many events this value and its clones have dropped.
    #[must_use]
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns whether an event passes, and notes it.
    fn passes(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        // Levels are ordered by verbosity: what is more severe is less.
        if *metadata.level() < self.from || is_of_the_engine(metadata) {
            return true;
        }
        let key = text::key(event, &self.ignored);
        let Some(_asking) = Asking::begin() else { return true };
        match self.filter.call().since(Since::LastAccepted).check_and_insert(key) {
            Ok(checked) if !checked.is_new() => {
                self.dropped[index(*metadata.level())].fetch_add(1, Ordering::Relaxed);
                false
            }
            Ok(_) => true,
            Err(error) => {
                self.on_error.iter().for_each(|report| report(&error));
                true
            }
        }
    }
}

/// Returns whether an event comes from the engine (its feature `tracing`), which may hold locks of
/// this filter or another one at that moment, so that it must not be asked.
fn is_of_the_engine(metadata: &Metadata<'_>) -> bool {
    metadata.target() == "ebbtide" || metadata.target().starts_with("ebbtide::")
}

fn index(level: Level) -> usize {
    match level {
        Level::ERROR => 0,
        Level::WARN => 1,
        Level::INFO => 2,
        Level::DEBUG => 3,
        Level::TRACE => 4,
    }
}

/// A thread that asks a filter, until this is dropped.
struct Asking;

impl Asking {
    /// Returns nothing if this thread asks already: for an event of `on_error`, for example.
    fn begin() -> Option<Self> {
        (!ASKING.replace(true)).then_some(Self)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKING.set(false);
    }
}

impl<S: Subscriber> layer::Filter<S> for OncePerWindow {
    /// True: what is the same is known only once an event has its values.
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.passes(event)
    }
}

impl<S: Subscriber> Layer<S> for OncePerWindow {
    /// Sometimes: the layers' own filters are then asked about each event and span. What they said
    /// of an event that is dropped here would otherwise count for the next one on this thread.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.passes(event)
    }
}

impl fmt::Debug for OncePerWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut once = f.debug_struct("OncePerWindow");
        once.field("filter", &self.filter).field("ignored", &self.ignored);
        once.field("from", &self.from).field("dropped", &self.dropped_in_all());
        once.finish_non_exhaustive()
    }
}
