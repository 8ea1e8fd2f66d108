//! Determines, on a copy, which of the next inserts has the effect that a scene tests.

use super::copies::Copied;
use super::scenes::{Aim, SILENCES, Scene};
use ebbtide::Filter;
use std::ops::Range;
use std::path::Path;

/// The number of inserts after a checkpoint, so that there is something to recover.
const LATER: u64 = 20;
/// The number of inserts within which the effect must occur.
const MOST: u64 = 20_000;
/// The number of inserts between two checks of the statistics, which take longer than an insert.
const STRIDE: u64 = 64;

/// Returns the inserts before those that warm up and the operations under test, so that the first
/// of the latter has the effect that the scene tests. `next` is the number of the next insert,
/// `place` the LSN of its record counted from the beginning of the timeline.
pub fn before(scene: &Scene, dir: &Path, next: u64, place: u64) -> Result<Range<u64>, String> {
    let warm = scene.victims;
    let before = match scene.aim {
        Aim::Anywhere => next,
        Aim::Step | Aim::Banks | Aim::Room => change(scene, dir, next)? - warm,
        Aim::AfterStep => change(scene, dir, next)? + 1 - warm,
        Aim::Silence => (next + warm).next_multiple_of(SILENCES) - warm,
        Aim::Segment => {
            let records = scene.segment_records();
            next + (2 * records - warm - place % records) % records
        }
        Aim::Later => next + LATER,
    };
    Ok(next..before.max(next))
}

fn figure(scene: &Scene, filter: &Filter) -> u64 {
    let stat = filter.stat().expect("figures");
    match scene.aim {
        Aim::Banks => stat.banks.into(),
        Aim::Room => stat.memory_bytes,
        _ => stat.step.unwrap_or(0),
    }
}

/// Returns the first insert after `next` that has the effect of the scene.
fn change(scene: &Scene, dir: &Path, next: u64) -> Result<u64, String> {
    let insert = |copied: &Copied, number| {
        scene.insert(&copied.filter, number).map_err(|error| format!("on a copy: {error}"))
    };
    let copied = || Copied::of(scene, dir).map_err(|error| format!("a copy: {error}"));
    let coarse = copied()?;
    insert(&coarse, next)?;
    let start = figure(scene, &coarse.filter);
    let mut at = next + 1;
    while figure(scene, &coarse.filter) == start {
        if at > next + MOST {
            return Err(format!("no effect in {MOST} inserts"));
        }
        for number in at..at + STRIDE {
            insert(&coarse, number)?;
        }
        at += STRIDE;
    }
    // The effect occurred within the last stride: repeat it and check each insert.
    drop(coarse);
    let fine = copied()?;
    for number in next..at - STRIDE {
        insert(&fine, number)?;
    }
    for number in at - STRIDE..at {
        insert(&fine, number)?;
        if figure(scene, &fine.filter) != start {
            return Ok(number);
        }
    }
    Err("the effect on one copy did not occur on another".to_owned())
}
