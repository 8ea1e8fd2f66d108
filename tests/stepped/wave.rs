//! What a survivor does beside a victim that stands still, and how long each of it takes.

use crate::scenes::Scene;
use ebbtide::Filter;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long those that the victim may hold up are waited for once all others have returned: they may only be slow.
const SETTLED: Duration = Duration::from_millis(60);
/// How long the others may take: it is not timing that is claimed here, only that they return.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which inserts a victim that stands still may hold up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldUp {
    /// None.
    Nothing,
    /// The keys of this stripe.
    Stripe(u32),
    /// The keys of one stripe.
    AnyStripe,
}

impl fmt::Display for HeldUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::AnyStripe => f.write_str("any"),
            Self::Stripe(stripe) => stripe.fmt(f),
        }
    }
}

impl HeldUp {
    /// Whether the inserts that have not returned may be held up by the victim.
    fn allows(self, waiting: &BTreeSet<u32>) -> bool {
        match self {
            Self::Nothing => waiting.is_empty(),
            Self::Stripe(stripe) => waiting.iter().all(|&other| other == stripe),
            Self::AnyStripe => waiting.len() <= 1,
        }
    }
}

/// What the survivor is to insert.
#[derive(Debug)]
pub struct Beside {
    /// Each by a thread of its own.
    pub at_once: Range<u64>,
    /// Afterwards, but for those of stripes in which none of the others has returned.
    pub in_turn: Range<u64>,
    /// What may be.
    pub held_up: HeldUp,
}

impl Beside {
    /// What [`crate::children::Survivor::stand`] said, if it did.
    pub fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.strip_prefix("stand ")?.split(' ');
        let mut number = || parts.next()?.parse().ok();
        let (start, middle, end) = (number()?, number()?, number()?);
        let held_up = match parts.next()? {
            "nothing" => HeldUp::Nothing,
            "any" => HeldUp::AnyStripe,
            stripe => HeldUp::Stripe(stripe.parse().ok()?),
        };
        Some(Self { at_once: start..middle, in_turn: middle..end, held_up })
    }
}

/// How long the inserts took that returned while the victim stood.
#[derive(Debug, Default)]
pub struct Stood {
    /// How many did not return, though they should have.
    pub overdue: usize,
    /// How many of those at once the victim held up.
    pub held_up: usize,
    /// The others.
    pub at_once: Vec<Duration>,
    /// Those one by one.
    pub in_turn: Vec<Duration>,
}

impl Stood {
    /// What the survivor answers.
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

/// In the survivor: what the victim holds up.
#[derive(Debug, Default)]
pub struct Wave {
    returned: Option<Receiver<(u64, Duration)>>,
    left: usize,
    /// Not begun.
    skipped: Vec<u64>,
}

impl Wave {
    /// See [`crate::children::Survivor::stand`].
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
                // Nobody listens any more if this process is about to end.
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
        // Those of which a key has returned; the victim may hold one that no key was in.
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

    /// Waits for those that were held up, and does those that would have been.
    pub fn join(&mut self, scene: &Scene, filter: &Filter) {
        if let Some(returned) = self.returned.take() {
            returned.iter().take(self.left).for_each(drop);
        }
        for number in self.skipped.drain(..) {
            scene.insert(filter, number).expect("an insert after the victim");
        }
    }
}
