//! All trials of an experiment: for each memory the number of functions with the least cost, for
//! each filter.

use super::geometry::{Geometry, MOST_FUNCTIONS};
use super::streams::Stream;
use super::trial::{self, Score, Scores};
use ebbtide::{Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A stream and a window.
pub struct Condition<'a> {
    pub stream: &'a Stream,
    pub window: u64,
}

/// The best of a filter's trials.
#[derive(Debug, Clone)]
pub struct Best {
    pub geometry: Geometry,
    pub score: Score,
}

/// The results of the trials with one memory.
#[derive(Debug, Clone, Default)]
pub struct Point {
    pub bpi: u64,
    /// The best trials of the three filters, in the order of [`trial::NAMES`].
    pub best: [Option<Best>; 3],
    /// The tried numbers of functions.
    pub tried: Vec<u32>,
}

impl Point {
    /// Adds a trial; returns whether one of the filters has improved.
    fn take(&mut self, geometry: Geometry, scores: Scores) -> bool {
        self.tried.push(geometry.k);
        let mut better = false;
        for (best, score) in self.best.iter_mut().zip(scores) {
            if best.as_ref().is_none_or(|best| score.penalty() < best.score.penalty()) {
                *best = Some(Best { geometry, score });
                better = true;
            }
        }
        better
    }
}

/// Tries all numbers of functions, but stops after `patience` in a row that were best for none of
/// the filters.
fn point(condition: &Condition<'_>, bpi: u64, patience: u32) -> Result<Point> {
    let mut point = Point { bpi, ..Point::default() };
    let mut worse = 0;
    let functions = 1..=MOST_FUNCTIONS;
    for geometry in functions.filter_map(|k| Geometry::of_paper(condition.window, bpi, k)) {
        if worse == patience {
            break;
        }
        let scores = trial::run(condition.stream, &geometry)?;
        worse = if point.take(geometry, scores) { 0 } else { worse + 1 };
    }
    Ok(point)
}

/// Runs the trials of all conditions with all memories, on all processors. Returns for each
/// condition its points, by memory.
///
/// # Errors
///
/// Those of the filters.
pub fn run(
    conditions: &[Condition<'_>],
    memories: &[u64],
    patience: u32,
) -> Result<Vec<Vec<Point>>> {
    let jobs: Vec<(usize, u64)> = (0..conditions.len())
        .flat_map(|condition| memories.iter().map(move |&bpi| (condition, bpi)))
        .collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![Vec::new(); conditions.len()]));
    let work = || {
        while let Some(&(number, bpi)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let condition = &conditions[number];
            let point = point(condition, bpi, patience)?;
            let (name, window) = (condition.stream.name, condition.window);
            eprintln!("{name}, w = {window}: {bpi} bits an item, k {:?} tried", point.tried);
            done.lock()[number].push(point);
        }
        Ok::<(), Error>(())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    let mut points = done.into_inner();
    points.iter_mut().for_each(|points| points.sort_by_key(|point| point.bpi));
    Ok(points)
}
