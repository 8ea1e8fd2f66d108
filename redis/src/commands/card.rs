//! How many different items a filter holds.

use super::key::now;
use crate::ffi::{About, Access, Call, Command, Failure, Outcome};
use crate::value::Value;
use ebbtide_core::Kind;
use ebbtide_core::machine::{Machine, MachineStat};

/// The most blocks of each bank that are looked at.
const SAMPLED: u64 = 1024;

/// `EB.CARD key`.
pub struct Card;

impl Command for Card {
    const ABOUT: About = About {
        name: c"EB.CARD",
        arity: 2,
        flags: c"readonly",
        categories: c"read",
        key: 1,
        access: Access::Read,
        summary: c"Returns how many different items are in the window, as an estimate.",
        complexity: c"O(1): at most 1024 blocks of each bank are looked at",
    };

    fn run(call: &Call<'_>) -> Outcome {
        let mut slot = call.open::<Value>(Self::ABOUT.access)?;
        let Some(value) = slot.value() else {
            call.integer(0);
            return Ok(());
        };
        let machine = value.machine()?;
        let kind = machine.kind().name();
        let known = cardinality(machine).ok_or_else(|| {
            let message = format!(
                "a filter of kind {kind} does not contain how many different items it has; \
                 EB.INFO key inserts counts what was added"
            );
            Failure::new("UNSUPPORTED", message)
        })?;
        call.integer(known as i64);
        Ok(())
    }
}

/// Returns how many different items a filter has in its window, as an estimate; `None` if its kind
/// does not contain that.
pub fn cardinality(machine: &Machine) -> Option<u64> {
    let stat = machine.stat(now(machine).time, SAMPLED);
    let kind = machine.kind();
    let known = match kind.name() {
        // Each item has a slot; items with the same fingerprint in a bucket share one.
        "fingerprint" => stat.fill * stat.cells as f64,
        "bloom" | "counting" | "timing" | "block-timing" => by_fill(&stat, kind)?,
        _ => return None,
    };
    Some(known.round() as u64)
}

/// Returns after how many items with k cells each this share of the cells is in use: of `c` cells
/// `c (1 - exp(-kn / c))` are, in the mean.
fn by_fill(stat: &MachineStat, kind: &dyn Kind) -> Option<f64> {
    let k: f64 = kind.parameters().get("k")?.parse().ok()?;
    let cells = stat.cells as f64;
    // Of a filter whose cells are all in use nothing is known but that there are more than this.
    let empty = (1.0 - stat.fill).max(1.0 / cells.max(1.0));
    Some(-cells / k * empty.ln())
}
