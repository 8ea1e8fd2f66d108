//! The search over all reachable states, breadth first, so that the path to a violation is a
//! shortest one.

use super::actor;
use super::world::{Rules, World};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// The result of a search.
pub struct Found {
    /// The number of states, or of states seen before a violation.
    pub states: usize,
    /// The violation, if there is one.
    pub wrong: Option<String>,
    /// The states that lead to it.
    trace: Vec<World>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} states; {:?} after", self.states, self.wrong)?;
        self.trace.iter().try_for_each(|world| writeln!(f, "  {world:?}"))
    }
}

/// Returns the fingerprint that identifies a state. Among a few million states two collide with a
/// probability of one in a million; a collision is reproducible, because the hash has no seed.
fn fingerprint(world: &World) -> u64 {
    let mut hasher = Folded(0);
    world.hash(&mut hasher);
    hasher.finish()
}

/// A hash by one multiplication for each number, which takes a fifth of the time of the standard
/// library's: nobody chooses these keys.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        const ODD: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xa076_1d64_78bd_642f];
        let product = u128::from(self.0 ^ number ^ ODD[0]) * u128::from(ODD[1]);
        self.0 = self.0.rotate_left(23) ^ product as u64 ^ (product >> 64) as u64;
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// By fingerprint, which needs no other hash.
type Seen = HashMap<u64, u64, BuildHasherDefault<Folded>>;

/// Explores all states from `first` on, until one violates an invariant.
pub fn explore(first: &World, rules: Rules) -> Found {
    // Each state seen, with the state from which it was first reached.
    let mut seen = Seen::from_iter([(fingerprint(first), 0)]);
    let mut level = vec![(fingerprint(first), first.clone())];
    while !level.is_empty() {
        let mut next_level = Vec::new();
        for (parent, world) in &level {
            for step in actor::steps(world, rules) {
                let wrong = match step {
                    Err(wrong) => Some(wrong),
                    Ok(next) => {
                        let print = fingerprint(&next);
                        if seen.contains_key(&print) {
                            continue;
                        }
                        seen.insert(print, *parent);
                        let wrong = next.wrong();
                        next_level.push((print, next));
                        wrong
                    }
                };
                if wrong.is_some() {
                    let last = next_level.last().filter(|(_, next)| next.wrong().is_some());
                    let last = last.map_or(*parent, |(print, _)| *print);
                    return Found {
                        states: seen.len(),
                        wrong,
                        trace: trace(first, last, &seen, rules),
                    };
                }
            }
        }
        level = next_level;
    }
    Found { states: seen.len(), wrong: None, trace: Vec::new() }
}

/// Reconstructs the path to a state.
fn trace(first: &World, last: u64, seen: &Seen, rules: Rules) -> Vec<World> {
    let mut way = vec![last];
    while let Some(&parent) = way.last().and_then(|at| seen.get(at)).filter(|&&parent| parent != 0)
    {
        way.push(parent);
    }
    let mut worlds = vec![first.clone()];
    for &print in way.iter().rev().skip(1) {
        let steps = actor::steps(&worlds[worlds.len() - 1], rules);
        worlds.extend(steps.into_iter().flatten().find(|next| fingerprint(next) == print));
    }
    worlds
}
