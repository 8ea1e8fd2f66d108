//! A filter that `top` shows: its last look, and its throughput so far.

use crate::commands::observer::{Observation, Observer};
use crate::failure::Failure;
use crate::moment::Past;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// Looks whose throughput is kept.
const KEPT: usize = 512;

/// A filter that is shown.
pub struct Shown {
    pub dir: PathBuf,
    /// `None` until the filter could be opened.
    observer: Option<Observer>,
    /// The last look, or why it failed.
    pub seen: Result<Observation, String>,
    /// Inserts a second, the latest last.
    pub rates: VecDeque<f64>,
}

impl Shown {
    /// Creates it for a directory.
    pub fn new(dir: &Path) -> Self {
        let seen = Err("not looked at yet".to_owned());
        Self { dir: dir.to_owned(), observer: None, seen, rates: VecDeque::new() }
    }

    /// Looks at the filter; opens it first if that has not succeeded yet.
    pub fn look(&mut self) {
        let look = |observer: &mut Option<Observer>, dir: &Path| {
            let observer = match observer {
                Some(observer) => observer,
                None => observer.insert(Observer::open(dir, Past::default())?),
            };
            observer.look()
        };
        self.seen = look(&mut self.observer, &self.dir).map_err(|failure| match failure {
            Failure::Error(message) => message,
            Failure::Parameter { name, expected, found } => {
                format!("{name}: expected {expected}, found {found}")
            }
            Failure::ClosedPipe | Failure::Stopped(_) => "the look was interrupted".to_owned(),
        });
        match &self.seen {
            Ok(seen) => self.rates.extend(seen.rate),
            // The next look opens what has the path then.
            Err(_) => self.observer = None,
        }
        while self.rates.len() > KEPT {
            self.rates.pop_front();
        }
    }
}
