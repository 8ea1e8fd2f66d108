//! Processes in different pid namespaces, which cannot address each other, share a filter.

use crate::child::Checked;
use crate::crew::Crew;
use crate::scenes::NARROW;
use crate::settings::Settings;
use crate::work::Task;
use ebbtide_testkit::skipped::skipped;
use std::process::{Command, Stdio};

/// Two processes here and two in separate namespaces, killed in turn.
pub fn all(settings: &Settings) -> Checked<()> {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "true"]);
    let made = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !made.is_ok_and(|status| status.success()) {
        skipped("pid namespaces are not available here");
        return Ok(());
    }
    Crew::new(settings, &NARROW, 8).run(|crew| {
        for _ in 0..2 {
            crew.start(Task::Mixed)?;
            crew.start_apart(Task::Mixed)?;
        }
        for kill in 0..settings.share(30, 4) {
            crew.pause(50_000, 150_000);
            let at = crew.random.below(4) as usize;
            let victim = crew.children.remove(at);
            let apart = victim.is_apart();
            victim.kill()?;
            if apart {
                crew.start_apart(Task::Mixed)?
            } else {
                crew.start(Task::Mixed)?
            }
            let before = crew.returned();
            crew.progress(before).map_err(|what| format!("kill {kill}: {what}"))?;
        }
        crew.check()
    })
}
