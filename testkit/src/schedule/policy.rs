//! Random policies that select the next thread, and for how long. Some mistakes appear when threads
//! alternate at every step, others when one thread sleeps at a bad moment while others make much
//! progress.

use crate::random::Random;
use std::time::Duration;

/// The number of steps with one change of priorities.
const SPAN: u64 = 6_000;

/// The state of a thread.
#[derive(Debug, Clone, Copy)]
pub enum Doing {
    /// The thread can take its next step.
    Works,
    /// The thread waits until this time, or until it is woken, if that is possible.
    Waits(Duration, bool),
}

/// A policy.
#[derive(Debug)]
pub enum Policy {
    /// Turns of this many steps on average; then any thread.
    Walk { turn: u64 },
    /// Probabilistic concurrency testing (Burckhardt et al., 2010): the thread of the highest
    /// priority runs. At a few steps chosen beforehand it falls below all others; so does a waiting
    /// thread.
    Priorities { changes: Vec<u64>, of: Vec<u64>, lowest: u64 },
}

impl Policy {
    /// Draws a policy.
    pub fn choose_one(random: &mut Random) -> Self {
        if random.below(3) > 0 {
            return Self::Walk { turn: [2, 6, 20, 60, 200][random.below(5) as usize] };
        }
        let mut changes: Vec<u64> = (0..random.below(6)).map(|_| random.below(SPAN)).collect();
        changes.sort_unstable_by(|a, b| b.cmp(a));
        Self::Priorities { changes, of: Vec::new(), lowest: 1 << 32 }
    }

    /// Returns how many steps the thread that is chosen after `steps` steps may take.
    pub fn length_of_turn(&mut self, steps: u64, random: &mut Random) -> u64 {
        match self {
            Self::Walk { turn } => 1 + random.below(2 * *turn),
            Self::Priorities { changes, .. } => {
                while changes.last().is_some_and(|&change| change <= steps) {
                    changes.pop();
                }
                changes.last().map_or(u64::MAX, |change| change - steps)
            }
        }
    }

    /// Records that a thread has used up its turn, and could continue.
    pub fn turn_is_over(&mut self, thread: usize) {
        if let Self::Priorities { of, lowest, .. } = self {
            fall(of, lowest, thread);
        }
    }

    /// Chooses one of the runnable threads.
    pub fn choose(
        &mut self,
        runnable: &[usize],
        current: usize,
        threads: &[Doing],
        random: &mut Random,
    ) -> usize {
        match self {
            Self::Walk { .. } => {
                // A waiting thread lets another one run, if there is any.
                let waits = matches!(threads[current], Doing::Waits(..));
                let others = runnable.iter().filter(|&&thread| !waits || thread != current);
                let others: Vec<usize> = others.copied().collect();
                let among = if others.is_empty() { runnable } else { &others };
                among[random.below(among.len() as u64) as usize]
            }
            Self::Priorities { of, lowest, .. } => {
                for &thread in runnable {
                    while of.len() <= thread {
                        of.push((1 << 33) + random.below(1 << 32));
                    }
                }
                if matches!(threads[current], Doing::Waits(..)) {
                    fall(of, lowest, current);
                }
                runnable.iter().copied().max_by_key(|&thread| of[thread]).unwrap_or(current)
            }
        }
    }
}

fn fall(of: &mut [u64], lowest: &mut u64, thread: usize) {
    if let Some(priority) = of.get_mut(thread) {
        *lowest -= 1;
        *priority = *lowest;
    }
}
