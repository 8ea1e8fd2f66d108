//! Opening and closing at any moment.

use crate::child::Checked;
use crate::crew::Crew;
use crate::scenes::NARROW;
use crate::settings::{HANG, Settings, filter_of};
use crate::work::Task;
use std::time::{Duration, Instant};

/// The lifetime of each directory.
const DIRECTORY: Duration = Duration::from_secs(1);

/// Children open, insert a few keys, and close or drop, repeatedly; from time to time one is killed
/// at any point.
pub fn churn(settings: &Settings) -> Checked<()> {
    let (began, mut kills, mut returned) = (Instant::now(), 0, 0);
    for directory in 0.. {
        if began.elapsed() >= settings.churn {
            break;
        }
        let crew = Crew::new(settings, &NARROW, 9 << 24 ^ directory);
        let (more, done) = crew
            .run(|crew| once(crew, settings.processes))
            .map_err(|what| format!("directory {directory}: {what}"))?;
        kills += more;
        returned += done;
    }
    println!("{kills} kills while opening and closing, {returned} operations returned");
    Ok(())
}

fn once(crew: &mut Crew, processes: u64) -> Checked<(u64, u64)> {
    let (began, mut kills) = (Instant::now(), 0);
    let meta = filter_of(crew.home()).join("meta");
    while began.elapsed() < DIRECTORY || !meta.exists() {
        while (crew.children.len() as u64) < processes {
            crew.start(Task::Churn)?;
        }
        crew.pause(2_000, 30_000);
        if began.elapsed() > HANG {
            return Err(format!("no child has made the filter for {HANG:?}"));
        }
        if began.elapsed() >= DIRECTORY {
            // On a slow machine no child may have created the filter between two kills: wait
            // longer.
            continue;
        }
        crew.kill_any()?;
        kills += 1;
    }
    crew.crash()?;
    Ok((kills, crew.returned()))
}

/// All children start at once where there is no directory yet; one creates the filter, the others
/// find it.
pub fn creation(settings: &Settings) -> Checked<()> {
    for turn in 0..settings.share(20, 4) {
        let crew = Crew::new(settings, &NARROW, 10 << 24 ^ turn);
        let done = crew.run(|crew| {
            for _ in 0..settings.processes {
                crew.start(Task::Mixed)?;
            }
            crew.opened()?;
            crew.check()
        });
        done.map_err(|what| format!("directory {turn}: {what}"))?;
    }
    Ok(())
}
