//! The largest possible number of handles.

use crate::child::{Checked, Child};
use crate::crew::Crew;
use crate::scenes::WIDE;
use crate::settings::Settings;
use crate::work::Task;

/// The largest number of handles of a filter.
const MOST: usize = 126;

/// The number of handles of other processes.
const OTHERS: usize = 6;

/// One process opens most handles, others one each. The next handle is refused with the reason, and
/// opens once another is closed.
pub fn all(settings: &Settings) -> Checked<()> {
    Crew::new(settings, &WIDE, 11).run(|crew| {
        let mut many = crew.helper()?;
        for _ in 0..OTHERS {
            crew.start(Task::Mixed)?;
        }
        crew.opened()?;
        let more = MOST - OTHERS - 1;
        expect(&mut many, &format!("handles {more}"), &format!("{more} more"))?;
        expect(&mut many, "stat", &MOST.to_string())?;
        let refused = many.ask("handles 1")?;
        println!("one handle too many: {refused}");
        if !refused.starts_with("refused") || !refused.contains("handles") {
            return Err(format!("handle {}: {refused}", MOST + 1));
        }
        expect(&mut many, "release", "released")?;
        expect(&mut many, "handles 1", &format!("{more} more"))?;
        // The session slot of a killed handle is free at once.
        crew.kill_any()?;
        expect(&mut many, "handles 1", &format!("{} more", more + 1))?;
        for _ in 0..=more {
            expect(&mut many, "release", "released")?;
        }
        crew.children.push(many);
        crew.check()
    })
}

fn expect(child: &mut Child, command: &str, expected: &str) -> Checked<()> {
    let answer = child.ask(command)?;
    if answer == expected {
        Ok(())
    } else {
        Err(format!("asked {command}: {answer:?}, expected {expected:?}"))
    }
}
