//! By what chance it is decided whose turn it is, and for how long: some mistakes show when threads alternate at every
//! step, others when one sleeps at a bad place while others do a lot.

use crate::random::Random;
use crate::stage::Doing;

/// Steps of which a change of priorities happens at one.
const SPAN: u64 = 6_000;

/// One way to choose.
#[derive(Debug)]
pub enum Policy {
    /// Turns of so many steps on average; then anybody.
    Walk { turn: u64 },
    /// Probabilistic concurrency testing (Burckhardt et al., 2010): the thread of the highest priority goes on. At a few steps
    /// chosen beforehand it falls below all others; so does who waits.
    Priorities { changes: Vec<u64>, of: Vec<u64>, lowest: u64 },
}

impl Policy {
    /// Any of them.
    pub fn choose_one(random: &mut Random) -> Self {
        if random.below(3) > 0 {
            return Self::Walk { turn: [2, 6, 20, 60, 200][random.below(5) as usize] };
        }
        let mut changes: Vec<u64> = (0..random.below(6)).map(|_| random.below(SPAN)).collect();
        changes.sort_unstable_by(|a, b| b.cmp(a));
        Self::Priorities { changes, of: Vec::new(), lowest: 1 << 32 }
    }

    /// How many steps whoever was chosen after so many may take.
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

    /// A thread has had its turn, and could go on.
    pub fn turn_is_over(&mut self, thread: usize) {
        if let Self::Priorities { of, lowest, .. } = self {
            fall(of, lowest, thread);
        }
    }

    /// One of those who can go on.
    pub fn choose(
        &mut self,
        runnable: &[usize],
        current: usize,
        threads: &[Doing],
        random: &mut Random,
    ) -> usize {
        match self {
            Self::Walk { .. } => {
                // Who waits lets somebody else go on, if there is anybody.
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
