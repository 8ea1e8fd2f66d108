//! Processes that are stopped (SIGSTOP) and resume: they are alive, and keep the locks that they
//! hold.

use crate::child::Checked;
use crate::crew::Crew;
use crate::desk::PROBES;
use crate::reports::Times;
use crate::scenes::{NARROW, WIDE};
use crate::settings::Settings;
use crate::work::Task;
use rustix::process::Signal;
use std::time::Duration;

/// The expected longest time of a durable insert while a stopped process holds nothing that it
/// needs; printed, not required.
const LONG: Duration = Duration::from_millis(50);

/// Stops one of five processes. It holds at most one stripe of 64 for each of its threads. Of the
/// keys that another process inserts meanwhile, most inserts must return, although processes that
/// insert continuously soon wait for the same stripe.
pub fn continues(settings: &Settings) -> Checked<()> {
    let stop = if settings.kills > 500 { 2_000 } else { 500 };
    Crew::new(settings, &WIDE, 5).run(|crew| {
        for _ in 0..5 {
            crew.start(Task::Mixed)?;
        }
        crew.opened()?;
        crew.progress(0)?;
        let mut probe = crew.helper()?;
        for _ in 0..settings.share(5, 2) {
            crew.pause(50_000, 200_000);
            let at = crew.random.below(5) as usize;
            crew.children[at].signal(Signal::STOP)?;
            // A stop takes effect a little after it was sent.
            crew.pause(10_000, 20_000);
            let before = crew.returned();
            let probes = probe.ask(&format!("probe {stop}"))?;
            let meanwhile = crew.returned() - before;
            crew.children[at].signal(Signal::CONT)?;
            println!(
                "stopped for at least {stop} ms: {probes} of {PROBES} probes and {meanwhile} \
                 operations of others returned"
            );
            if probes.parse().unwrap_or(0) < PROBES / 2 {
                return Err(format!("{probes} of {PROBES} inserts returned while one was stopped"));
            }
            let number = crew.children[at].number;
            crew.progress_of(number)?;
        }
        crew.children.push(probe);
        crew.check()
    })
}

/// Stopped processes are killed before they resume: then they are dead.
pub fn killed(settings: &Settings) -> Checked<()> {
    Crew::new(settings, &NARROW, 7).run(|crew| {
        for _ in 0..settings.share(20, 2) {
            while crew.children.len() < 4 {
                crew.start(Task::Mixed)?;
            }
            crew.opened()?;
            crew.pause(20_000, 60_000);
            let at = crew.random.below(4) as usize;
            crew.children[at].signal(Signal::STOP)?;
            crew.pause(20_000, 60_000);
            crew.children.swap_remove(at).kill()?;
            let before = crew.returned();
            crew.progress(before)?;
        }
        crew.check()
    })
}

/// Two processes insert durably, while a third one, which inserts, syncs and writes checkpoints, is
/// stopped from time to time.
pub fn durable(settings: &Settings) -> Checked<()> {
    let stops = settings.share(100, 10);
    Crew::new(settings, &WIDE, 6).run(|crew| {
        crew.start(Task::Always)?;
        crew.start(Task::Always)?;
        crew.start(Task::Writer)?;
        crew.opened()?;
        crew.progress(0)?;
        for _ in 0..stops {
            crew.pause(1_000, 30_000);
            crew.children[2].signal(Signal::STOP)?;
            std::thread::sleep(Duration::from_millis(100));
            crew.children[2].signal(Signal::CONT)?;
        }
        let mut times = Times::default();
        for at in 0..2 {
            crew.children[at].ask("latencies")?;
            let name = format!("latencies-{}", crew.children[at].number);
            let bytes = std::fs::read(crew.home().join(name)).map_err(|error| error.to_string())?;
            for time in bytes.as_chunks::<8>().0 {
                times.add(Duration::from_nanos(u64::from_le_bytes(*time)));
            }
        }
        println!(
            "durable inserts while another process was stopped {stops} times for 100 ms: {}; {} \
             above {LONG:?} (a key in 64 is in a stripe that the stopped one may hold)",
            times.figures(),
            times.above(LONG)
        );
        crew.check()
    })
}
