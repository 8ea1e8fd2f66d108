//! Shows progress on standard error, but only on a terminal that does not also show the answers or
//! read the keys.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr, stdin, stdout};

/// A progress bar over the bytes read, or nothing.
pub struct Progress(ProgressBar);

impl Progress {
    /// Creates a bar over `total` bytes, or a running count if the total is unknown.
    pub fn new(total: Option<u64>, reads_stdin: bool, prints_answers: bool) -> Self {
        let disturbs =
            (prints_answers && stdout().is_terminal()) || (reads_stdin && stdin().is_terminal());
        if disturbs || !stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let (bar, template) = match total {
            Some(total) => (
                ProgressBar::new(total),
                "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            ),
            None => (ProgressBar::no_length(), "{spinner} {bytes}, {bytes_per_sec}"),
        };
        Self(match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        })
    }

    /// Returns a bar that is not shown.
    pub fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Adds `bytes` to the bytes read.
    pub fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Returns a function that counts bytes read, for another thread.
    pub fn counter(&self) -> impl Fn(u64) + Send + use<> {
        let bar = self.0.clone();
        move |bytes| bar.inc(bytes)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
