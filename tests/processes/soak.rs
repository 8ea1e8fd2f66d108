//! Kills at random moments, over a long time.

use crate::child::Checked;
use crate::crew::Crew;
use crate::scenes::{FORGETTING, LASTING, Scene};
use crate::settings::Settings;
use crate::work::Task;
use std::ops::Range;

/// The number of kills between two checks.
const BETWEEN_CHECKS: u64 = 20;

/// The number of kills in a directory.
const PER_DIRECTORY: u64 = 60;

/// Filters in which no key expires: checks that every operation that returned is present.
pub fn lasting(settings: &Settings) -> Checked<()> {
    soak(settings, &LASTING, settings.from.div_ceil(2)..settings.kills.div_ceil(2), 1)
}

/// Filters with small windows: survivors must make progress, and leave the state of a replay.
pub fn forgetting(settings: &Settings) -> Checked<()> {
    soak(settings, &FORGETTING, settings.from / 2..settings.kills / 2, 2)
}

fn soak(
    settings: &Settings,
    scenes: &'static [Scene],
    kills: Range<u64>,
    salt: u64,
) -> Checked<()> {
    let (mut done, mut returned) = (0, 0);
    for (turn, scene) in scenes.iter().cycle().enumerate() {
        if done >= kills.end {
            break;
        }
        let kills_here = PER_DIRECTORY.min(kills.end - done);
        done += kills_here;
        if done <= kills.start {
            continue;
        }
        let crew = Crew::new(settings, scene, salt << 24 ^ turn as u64);
        let ran = crew.run(|crew| directory(crew, settings.processes, kills_here));
        returned += ran.map_err(|what| {
            let what = format!("directory {turn}, among the first {done} kills: {what}");
            // Print now: the other tests of a long run take hours.
            eprintln!("{what}");
            what
        })?;
        if turn % 10 == 9 && kills.end > 1_000 {
            eprintln!("{done} kills, {returned} operations; continue with --from {}", 2 * done);
        }
    }
    println!(
        "{} kills, {returned} operations returned, seed {}",
        done - kills.start,
        settings.seed
    );
    Ok(())
}

fn directory(crew: &mut Crew, processes: u64, kills: u64) -> Checked<u64> {
    for kill in 0..kills {
        while (crew.children.len() as u64) < processes {
            crew.start(Task::Mixed)?;
        }
        crew.pause(50_000, 200_000);
        crew.kill_any()?;
        if (kill + 1) % BETWEEN_CHECKS == 0 || kill + 1 == kills {
            crew.start(Task::Mixed)?;
            let checked = if crew.random.below(3) == 0 { crew.crash() } else { crew.check() };
            checked.map_err(|what| format!("kill {kill}: {what}"))?;
        }
    }
    Ok(crew.returned())
}
