//! The search over all reachable states, breadth first, so that the path to a violation is a
//! shortest one.

use super::actor;
use super::world::{Rules, World};
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

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
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Explores all states from `first` on, until one violates an invariant.
pub fn explore(first: &World, rules: Rules) -> Found {
    // Each state seen, with the state from which it was first reached.
    let mut seen = HashMap::from([(fingerprint(first), 0)]);
    let mut level = vec![first.clone()];
    while !level.is_empty() {
        let mut next_level = Vec::new();
        for world in &level {
            let parent = fingerprint(world);
            for step in actor::steps(world, rules) {
                let wrong = match step {
                    Err(wrong) => Some(wrong),
                    Ok(next) => {
                        let print = fingerprint(&next);
                        if seen.contains_key(&print) {
                            continue;
                        }
                        seen.insert(print, parent);
                        let wrong = next.wrong();
                        next_level.push(next);
                        wrong
                    }
                };
                if wrong.is_some() {
                    let last = next_level.last().filter(|next| next.wrong().is_some());
                    let last = last.map_or(parent, fingerprint);
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
fn trace(first: &World, last: u64, seen: &HashMap<u64, u64>, rules: Rules) -> Vec<World> {
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
