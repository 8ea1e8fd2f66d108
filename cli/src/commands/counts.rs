//! The lines of a run of `dedup`, counted.

use super::run::Ended;

/// Counts the lines of a run.
#[derive(Clone, Default)]
pub struct Counts {
    /// Whether the suppressed lines are printed instead of the others.
    inverts: bool,
    /// Lines whose key was in the window.
    suppressed: u64,
    /// Lines printed.
    printed: u64,
    /// Lines older than the window, whose key was not checked.
    pub late: u64,
}

impl Counts {
    /// Creates the counts of a run that prints the suppressed lines instead of the others, or not.
    pub fn new(inverts: bool) -> Self {
        Self { inverts, ..Self::default() }
    }

    /// Counts a line, and returns whether it is printed.
    pub fn prints(&mut self, present: bool) -> bool {
        let prints = present == self.inverts;
        self.suppressed += u64::from(present);
        self.printed += u64::from(prints);
        prints
    }

    /// Describes the counts of a run that has ended.
    pub fn report(&self, ended: &Ended) -> String {
        format!(
            "lines read: {}, printed: {}, suppressed: {}, late: {}, bad: {}",
            ended.lines, self.printed, self.suppressed, self.late, ended.bad
        )
    }
}
