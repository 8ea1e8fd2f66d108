//! Finding out, on a copy, which of the next inserts will do what a scene is about.

use crate::copies::Copied;
use crate::scenes::{Aim, SILENCES, Scene};
use ebbtide::Filter;
use std::ops::Range;
use std::path::Path;

/// Inserts after a checkpoint, so that there is something to recover.
const LATER: u64 = 20;
/// Inserts in which it must have happened.
const MOST: u64 = 20_000;
/// Inserts between two looks at the figures, which take longer than an insert.
const STRIDE: u64 = 64;

/// The inserts that come before those to warm up and the operations under test, so that the first of the latter does what the scene
/// is about. `next` is the number of the next insert, `place` the LSN of its record counted from the beginning of the era.
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

/// The first insert after `next` that changes what the scene is about.
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
            return Err(format!("nothing happened in {MOST} inserts"));
        }
        for number in at..at + STRIDE {
            insert(&coarse, number)?;
        }
        at += STRIDE;
    }
    // It happened within the last stride: once more, and each looked at.
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
    Err("what happened on one copy did not on another".to_owned())
}
