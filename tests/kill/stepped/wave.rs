//! The inserts of a survivor beside a stopped victim, and their durations.

use super::scenes::Scene;
use ebbtide::Filter;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The time to wait for inserts that the victim may block after all others have returned: they may
/// only be slow.
const SETTLED: Duration = Duration::from_millis(60);
/// The time within which the others must return: a generous limit, because the claim is not about
/// duration.
const PATIENCE: Duration = Duration::from_secs(30);

/// The inserts that a stopped victim may block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldUp {
    /// None.
    Nothing,
    /// The keys of these stripes.
    Stripes(BTreeSet<u32>),
    /// The keys of one stripe.
    AnyStripe,
}

impl fmt::Display for HeldUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::AnyStripe => f.write_str("any"),
            Self::Stripes(stripes) => {
                let stripes: Vec<_> = stripes.iter().map(u32::to_string).collect();
                f.write_str(&stripes.join(","))
            }
        }
    }
}

impl HeldUp {
    /// Returns whether the victim may block the inserts that have not returned.
    fn allows(&self, waiting: &BTreeSet<u32>) -> bool {
        match self {
            Self::Nothing => waiting.is_empty(),
            Self::Stripes(stripes) => waiting.is_subset(stripes),
            Self::AnyStripe => waiting.len() <= 1,
        }
    }
}

/// The inserts of the survivor.
#[derive(Debug)]
pub struct Beside {
    /// Inserts in separate threads.
    pub at_once: Range<u64>,
    /// Inserts afterwards, except for stripes in which no other insert has returned.
    pub in_turn: Range<u64>,
    /// The inserts that may be blocked.
    pub held_up: HeldUp,
}

impl Beside {
    /// Parses the command of [`super::children::Survivor::stand`].
    pub fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.strip_prefix("stand ")?.split(' ');
        let mut number = || parts.next()?.parse().ok();
        let (start, middle, end) = (number()?, number()?, number()?);
        let held_up = match parts.next()? {
            "nothing" => HeldUp::Nothing,
            "any" => HeldUp::AnyStripe,
            stripes => {
                let stripes = stripes.split(',').map(|stripe| stripe.parse().ok());
                HeldUp::Stripes(stripes.collect::<Option<_>>()?)
            }
        };
        Some(Self { at_once: start..middle, in_turn: middle..end, held_up })
    }
}

/// The durations of the inserts that returned while the victim was stopped.
#[derive(Debug, Default)]
pub struct Stood {
    /// The number of inserts that did not return although they should have.
    pub overdue: usize,
    /// The number of concurrent inserts that the victim blocked.
    pub held_up: usize,
    /// The durations of the other concurrent inserts.
    pub at_once: Vec<Duration>,
    /// The durations of those one by one.
    pub in_turn: Vec<Duration>,
}

impl Stood {
    /// Parses the survivor's answer.
    pub fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.trim_end().split(' ');
        let (overdue, held_up) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let mut times = || -> Option<Vec<Duration>> {
            let texts = parts.next()?.split(',').filter(|text| !text.is_empty());
            texts.map(|text| text.parse().ok().map(Duration::from_nanos)).collect()
        };
        Some(Self { overdue, held_up, at_once: times()?, in_turn: times()? })
    }
}

impl fmt::Display for Stood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.overdue, self.held_up)?;
        for times in [&self.at_once, &self.in_turn] {
            let texts: Vec<_> = times.iter().map(|time| time.as_nanos().to_string()).collect();
            write!(f, " {}", texts.join(","))?;
        }
        Ok(())
    }
}

/// In the survivor: the blocked inserts.
#[derive(Debug, Default)]
pub struct Wave {
    returned: Option<Receiver<(u64, Duration)>>,
    left: usize,
    /// Inserts not begun.
    skipped: Vec<u64>,
}

impl Wave {
    /// See [`super::children::Survivor::stand`].
    pub fn stand(
        &mut self,
        scene: &'static Scene,
        filter: &'static Filter,
        beside: &Beside,
    ) -> Stood {
        let (tell, returned) = channel();
        for number in beside.at_once.clone() {
            let tell = tell.clone();
            std::thread::spawn(move || {
                let start = Instant::now();
                scene.insert_durably(filter, number).expect("an insert beside the victim");
                // There is no receiver any more if this process is about to end.
                let _ = tell.send((number, start.elapsed()));
            });
        }
        let mut waiting: BTreeSet<u64> = beside.at_once.clone().collect();
        let stripes = |waiting: &BTreeSet<u64>| -> BTreeSet<u32> {
            waiting.iter().map(|&number| scene.stripe(number)).collect()
        };
        let mut stood = Stood::default();
        let start = Instant::now();
        while !waiting.is_empty() && start.elapsed() < PATIENCE {
            let settles = beside.held_up.allows(&stripes(&waiting));
            match returned.recv_timeout(if settles { SETTLED } else { PATIENCE }) {
                Ok((number, time)) => {
                    waiting.remove(&number);
                    stood.at_once.push(time);
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => panic!("an insert failed"),
            }
        }
        let held_up = stripes(&waiting);
        (self.returned, self.left) = (Some(returned), waiting.len());
        if !beside.held_up.allows(&held_up) {
            stood.overdue = waiting.len();
            return stood;
        }
        stood.held_up = waiting.len();
        // The stripes in which an insert has returned; the victim may hold a stripe without any of
        // these keys.
        let free = stripes(&beside.at_once.clone().filter(|it| !waiting.contains(it)).collect());
        for number in beside.in_turn.clone() {
            let stripe = scene.stripe(number);
            if !free.contains(&stripe) || held_up.contains(&stripe) {
                self.skipped.push(number);
                continue;
            }
            let start = Instant::now();
            scene.insert_durably(filter, number).expect("an insert beside the victim");
            stood.in_turn.push(start.elapsed());
        }
        stood
    }

    /// Waits for the blocked inserts, and makes the skipped ones.
    pub fn join(&mut self, scene: &Scene, filter: &Filter) {
        if let Some(returned) = self.returned.take() {
            returned.iter().take(self.left).for_each(drop);
        }
        for number in self.skipped.drain(..) {
            scene.insert(filter, number).expect("an insert after the victim");
        }
    }
}
