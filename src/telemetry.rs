//! Reports of slow and failed work: durations and counts to `metrics`, spans and events to
//! `tracing`, each under the feature of that name. Without both, everything here is empty.
//!
//! Invariants: no report is made by an operation that waits for nothing. A forked child reports
//! nothing: another thread of its parent may have held a lock of the recorder or the subscriber,
//! which the child inherited locked. [`report_in_child`] ends that silence.

#[cfg(not(feature = "telemetry"))]
use crate::error::Result;
#[cfg(not(feature = "telemetry"))]
use std::path::Path;

/// Work whose duration is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Creating or opening a handle.
    Open,
    /// Rebuilding the state of a filter that no process had open.
    Recovery,
    /// Writing a snapshot.
    Checkpoint,
    /// Completing what a dead owner of a stripe left.
    Repair,
    /// Closing a handle.
    Close,
    /// A sync of a log segment.
    Sync,
    /// A wait for a stripe.
    StripeWait,
    /// A wait of a writer for a checkpoint.
    Backpressure,
}

/// Work in progress; dropping this reports how long it took.
#[must_use = "it measures until it is dropped"]
#[derive(Debug)]
pub(crate) struct Timed<'a> {
    #[cfg(feature = "telemetry")]
    running: Option<on::Running<'a>>,
    #[cfg(not(feature = "telemetry"))]
    directory: std::marker::PhantomData<&'a Path>,
}

#[cfg(feature = "telemetry")]
pub use on::report_in_child;
#[cfg(feature = "telemetry")]
pub(crate) use on::{failed_in_background, poisoned, stalled};

#[cfg(not(feature = "telemetry"))]
impl<'a> Timed<'a> {
    /// Begins to measure work on the filter in a directory.
    #[inline(always)]
    pub(crate) fn begin(_: Work, _: &'a Path) -> Self {
        Self { directory: std::marker::PhantomData }
    }

    /// Notes a number that describes the work.
    #[inline(always)]
    pub(crate) fn note(&self, _: &'static str, _: u64) {}

    /// Ends the measurement.
    #[inline(always)]
    pub(crate) fn end(self) {}

    /// Notes whether the work failed.
    #[inline(always)]
    pub(crate) fn result<T, E>(
        &mut self,
        result: std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        result
    }
}

/// Reports a failed background task, whose error no caller receives.
#[cfg(not(feature = "telemetry"))]
#[inline(always)]
pub(crate) fn failed_in_background<T>(_: &'static str, _: &Path, _: Result<T>) {}

/// Reports that writes to a filter are refused from now on.
#[cfg(not(feature = "telemetry"))]
#[inline(always)]
pub(crate) fn poisoned(_: &Path, _: &str) {}

/// Reports that another handle makes no progress, and was overtaken or waited for.
#[cfg(not(feature = "telemetry"))]
#[inline(always)]
pub(crate) fn stalled(_: &'static str, _: &Path) {}

#[cfg(feature = "telemetry")]
mod on {
    use super::{Timed, Work};
    use crate::error::Result;
    use crate::platform::fork::Guard;
    use crate::primitives::Instant;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// Waits for a stripe that are shorter are not reported: to report one takes about as long.
    const REPORTED_WAIT: Duration = Duration::from_micros(10);
    /// A wait for a stripe that is longer is a stall.
    const STALL: Duration = Duration::from_secs(1);

    /// The work whose failures are counted.
    #[cfg(feature = "metrics")]
    const FAILING: [Work; 4] = [Work::Open, Work::Checkpoint, Work::Close, Work::Sync];
    /// The background tasks that may fail.
    const TASKS: [&str; 9] = [
        "allocation",
        "attach",
        "checkpoint",
        "gaps",
        "heartbeat",
        "mapping",
        "place",
        "release",
        "sync",
    ];
    /// What may make no progress.
    const STALLS: [&str; 3] = ["a checkpoint", "the holder of a stripe", "the leader of a sync"];

    /// The process that reports, by its generation; 0 before the first report. Relaxed: only the
    /// number matters.
    static HOME: AtomicU64 = AtomicU64::new(0);

    /// Returns whether this process may report: it is not a forked child of one that has reported.
    fn may_report() -> bool {
        let here = Guard::new().generation();
        match HOME.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(home) => home == here,
        }
    }

    /// Lets a forked child report too. Call it in the child, once its recorder and its subscriber
    /// are known to be usable there: installed after the fork, or free of locks.
    pub fn report_in_child() {
        HOME.store(Guard::new().generation(), Ordering::Relaxed);
    }

    /// Work in progress that will be reported.
    #[derive(Debug)]
    pub(super) struct Running<'a> {
        work: Work,
        directory: &'a Path,
        begun: Instant,
        failed: bool,
        #[cfg(feature = "tracing")]
        span: Option<tracing::span::EnteredSpan>,
    }

    impl<'a> Timed<'a> {
        pub(crate) fn begin(work: Work, directory: &'a Path) -> Self {
            let running = || Running {
                work,
                directory,
                begun: Instant::now(),
                failed: false,
                #[cfg(feature = "tracing")]
                span: span_of(work, directory),
            };
            let running = may_report().then(running);
            #[cfg(feature = "metrics")]
            if running.is_some() && work == Work::Open {
                counts::register(directory);
            }
            Self { running }
        }

        pub(crate) fn note(&self, name: &'static str, value: u64) {
            #[cfg(feature = "tracing")]
            if let Some(span) = self.running.as_ref().and_then(|running| running.span.as_ref()) {
                span.record(name, value);
            }
            #[cfg(not(feature = "tracing"))]
            let _ = (name, value);
        }

        pub(crate) fn end(self) {}

        pub(crate) fn result<T, E>(
            &mut self,
            result: std::result::Result<T, E>,
        ) -> std::result::Result<T, E> {
            if let Some(running) = &mut self.running {
                running.failed = result.is_err();
            }
            result
        }
    }

    /// Returns the span of work whose course is of interest; syncs and waits are too frequent.
    #[cfg(feature = "tracing")]
    fn span_of(work: Work, directory: &Path) -> Option<tracing::span::EnteredSpan> {
        use tracing::field::Empty;
        use tracing::info_span;
        let directory = directory.display();
        let span = match work {
            Work::Open => {
                info_span!(target: "ebbtide", "open", %directory, created = Empty, failed = Empty)
            }
            Work::Recovery => info_span!(target: "ebbtide", "recovery",
                %directory,
                start_lsn = Empty,
                stop_lsn = Empty,
                records = Empty,
                damaged_snapshots = Empty,
                failed = Empty
            ),
            Work::Checkpoint => info_span!(target: "ebbtide", "checkpoint",
                %directory,
                start_lsn = Empty,
                end_lsn = Empty,
                bytes = Empty,
                failed = Empty
            ),
            Work::Repair => {
                info_span!(target: "ebbtide", "repair", %directory, stripe = Empty, inserts = Empty)
            }
            Work::Close => {
                info_span!(target: "ebbtide", "close", %directory, lsn = Empty, failed = Empty)
            }
            Work::Sync | Work::StripeWait | Work::Backpressure => return None,
        };
        Some(span.entered())
    }

    impl Drop for Running<'_> {
        fn drop(&mut self) {
            let took = self.begun.elapsed();
            if self.work == Work::StripeWait && took < REPORTED_WAIT {
                return;
            }
            #[cfg(feature = "tracing")]
            if let Some(span) = &self.span {
                if self.failed {
                    span.record("failed", true);
                }
                let duration_us = took.as_micros() as u64;
                tracing::info!(target: "ebbtide", duration_us, "finished");
            }
            #[cfg(feature = "metrics")]
            counts::measure(self.work, self.directory, took, self.failed);
            if self.work == Work::StripeWait && took >= STALL {
                stalled("the holder of a stripe", self.directory);
            }
        }
    }

    pub(crate) fn failed_in_background<T>(task: &'static str, directory: &Path, result: Result<T>) {
        debug_assert!(TASKS.contains(&task), "a handle that opens registers {task}");
        let Err(error) = result else { return };
        if !may_report() {
            return;
        }
        #[cfg(feature = "tracing")]
        tracing::error!(
            target: "ebbtide",
            directory = %directory.display(),
            task,
            %error,
            "a background task failed"
        );
        #[cfg(feature = "metrics")]
        counts::background_errors(counts::label(directory), task).increment(1);
        let _ = (directory, task, error);
    }

    pub(crate) fn poisoned(directory: &Path, cause: &str) {
        if !may_report() {
            return;
        }
        #[cfg(feature = "tracing")]
        tracing::error!(
            target: "ebbtide",
            directory = %directory.display(),
            cause,
            "writes are refused until the filter is reopened"
        );
        #[cfg(feature = "metrics")]
        counts::poisonings(counts::label(directory)).increment(1);
        let _ = (directory, cause);
    }

    pub(crate) fn stalled(what: &'static str, directory: &Path) {
        debug_assert!(STALLS.contains(&what), "a handle that opens registers {what}");
        if !may_report() {
            return;
        }
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "ebbtide", directory = %directory.display(), what, "no progress");
        #[cfg(feature = "metrics")]
        counts::stalls(counts::label(directory), what).increment(1);
        let _ = (directory, what);
    }

    /// The durations and counts of the `metrics` facade.
    #[cfg(feature = "metrics")]
    mod counts {
        use super::{FAILING, STALLS, TASKS, Work};
        use ebbtide_core::units::visible;
        use metrics::{Counter, Histogram, counter, histogram};
        use std::path::Path;
        use std::time::Duration;

        /// Returns the value of the label `filter`.
        pub(super) fn label(directory: &Path) -> String {
            visible(&directory.display().to_string())
        }

        /// Registers, as 0, what is counted for the filter in a directory. Who scrapes it would
        /// otherwise see a series that begins with the first event, and 1 is no increase then.
        pub(super) fn register(directory: &Path) {
            let filter = label(directory);
            let failing = FAILING.map(|work| failures(filter.clone(), work));
            let tasks = TASKS.map(|task| background_errors(filter.clone(), task));
            let stalls = STALLS.map(|what| stalls(filter.clone(), what));
            for counter in failing.iter().chain(&tasks).chain(&stalls) {
                counter.increment(0);
            }
            poisonings(filter.clone()).increment(0);
            // One for each process that has died.
            drop(durations(filter, Work::Repair));
        }

        pub(super) fn measure(work: Work, directory: &Path, took: Duration, failed: bool) {
            let filter = label(directory);
            durations(filter.clone(), work).record(took);
            if failed {
                debug_assert!(FAILING.contains(&work), "a handle that opens registers {work:?}");
                failures(filter, work).increment(1);
            }
        }

        fn durations(filter: String, work: Work) -> Histogram {
            let name = match work {
                Work::Open => "ebbtide_open_seconds",
                Work::Recovery => "ebbtide_recovery_seconds",
                Work::Checkpoint => "ebbtide_checkpoint_seconds",
                Work::Repair => "ebbtide_repair_seconds",
                Work::Close => "ebbtide_close_seconds",
                Work::Sync => "ebbtide_sync_seconds",
                Work::StripeWait => "ebbtide_stripe_wait_seconds",
                Work::Backpressure => "ebbtide_backpressure_seconds",
            };
            histogram!(name, "filter" => filter)
        }

        fn failures(filter: String, work: Work) -> Counter {
            let work = format!("{work:?}").to_lowercase();
            counter!("ebbtide_failures_total", "filter" => filter, "work" => work)
        }

        pub(super) fn background_errors(filter: String, task: &'static str) -> Counter {
            counter!("ebbtide_background_errors_total", "filter" => filter, "task" => task)
        }

        pub(super) fn poisonings(filter: String) -> Counter {
            counter!("ebbtide_poisonings_total", "filter" => filter)
        }

        pub(super) fn stalls(filter: String, what: &'static str) -> Counter {
            counter!("ebbtide_stalls_total", "filter" => filter, "what" => what)
        }
    }

    #[cfg(all(test, not(miri)))]
    mod tests {
        use super::*;
        use crate::platform::fork::children::Child;

        #[test]
        fn a_child_of_a_process_that_reports_is_silent_until_it_asks_to_report() {
            assert!(may_report());
            assert!(Child::fork(|| !may_report()).holds());
            let asked = || {
                report_in_child();
                may_report()
            };
            assert!(Child::fork(asked).holds());
            assert!(may_report());
        }
    }
}
