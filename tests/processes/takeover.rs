//! Measures how long a stripe stays held by a dead process; only a hang is an error.

use crate::child::Checked;
use crate::crew::Crew;
use crate::reports::Times;
use crate::scenes::{LARGE, SMALL, Scene};
use crate::settings::Settings;
use crate::work::Task;
use std::time::Duration;

/// A longer gap means that the stripe was held when its owner died.
const HELD: Duration = Duration::from_millis(2);

/// A filter of 1 MiB.
pub fn small(settings: &Settings) -> Checked<()> {
    Crew::new(settings, &SMALL, 3).run(|crew| measure(crew, settings, &SMALL, 7_000, 100_000))
}

/// A filter of 64 MiB that is fully in use, with a log of 32 MB since the last snapshot.
pub fn large(settings: &Settings) -> Checked<()> {
    Crew::new(settings, &LARGE, 4).run(|crew| measure(crew, settings, &LARGE, 490_000, 1_000_000))
}

fn measure(
    crew: &mut Crew,
    settings: &Settings,
    scene: &Scene,
    before: u64,
    after: u64,
) -> Checked<()> {
    let mut survivor = crew.helper()?;
    survivor.ask(&format!("fill {before}"))?;
    survivor.ask("checkpoint")?;
    survivor.ask(&format!("fill {after}"))?;
    let (mut all, mut held) = (Times::default(), Times::default());
    for _ in 0..settings.share(60, 5) {
        let returned = crew.returned();
        crew.start(Task::Fast)?;
        crew.opened()?;
        // The victim makes progress.
        crew.progress(returned)?;
        crew.pause(1_000, 20_000);
        let victim = crew.children.pop().ok_or("no child to kill")?;
        let answer = survivor.ask(&format!("kill {}", victim.pid().as_raw_nonzero()))?;
        victim.killed()?;
        let nanos = answer.parse().map_err(|_| format!("a time, not {answer:?}"))?;
        let gap = Duration::from_nanos(nanos);
        all.add(gap);
        if gap > HELD {
            held.add(gap);
        }
    }
    println!(
        "{}: from a kill to the next insert: {}; of these with the stripe held: {}",
        scene.name,
        all.figures(),
        held.figures()
    );
    crew.children.push(survivor);
    crew.start(Task::Fast)?;
    crew.check()
}
