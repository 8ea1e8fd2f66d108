//! The balance: what wrong answers cost, by exact knowledge of all clicks.

use super::audit::{COMPLAINT, Decision, Entry, Plain};
use super::clicks::{Click, DAY};
use std::collections::HashMap;

/// The mistakes of one way to decide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mistakes {
    /// Duplicates that were paid.
    pub paid: u64,
    /// Clicks that were refused and are no duplicates.
    pub refused: u64,
    /// What both cost, in cents.
    pub cents: u64,
}

impl Mistakes {
    /// Adds the decision on a click.
    fn add(&mut self, click: &Click, is_duplicate: bool, refuse: bool) {
        match (is_duplicate, refuse) {
            (true, false) => {
                self.paid += 1;
                self.cents += u64::from(click.cents + COMPLAINT);
            }
            (false, true) => {
                self.refused += 1;
                self.cents += u64::from(click.cents);
            }
            _ => {}
        }
    }
}

/// The balance of an audit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Balance {
    /// The number of duplicates, counted exactly.
    pub duplicates: u64,
    /// Clicks whose decision was lost.
    pub held: u64,
    /// Every click is paid.
    pub no_filter: Mistakes,
    /// Every click that the window contains is refused.
    pub plain: Mistakes,
    /// Every click that the window contains is refused, if it was counted before.
    pub counted: Mistakes,
    /// The audit's decisions.
    pub decided: Mistakes,
}

/// Compares decisions with the exact answers. Clicks without a decision cost nothing.
pub fn balance(clicks: &[Click], entries: &[Entry]) -> Balance {
    let mut last: HashMap<&str, u64> = HashMap::new();
    let mut balance = Balance::default();
    for (click, entry) in clicks.iter().zip(entries) {
        let before = last.insert(&click.key, click.time);
        let is_duplicate = before.is_some_and(|before| click.time - before < DAY);
        balance.duplicates += u64::from(is_duplicate);
        if entry.decision == Decision::Held {
            balance.held += 1;
            continue;
        }
        balance.no_filter.add(click, is_duplicate, false);
        balance.plain.add(click, is_duplicate, entry.plain != Plain::New);
        balance.counted.add(click, is_duplicate, entry.plain == Plain::Seen);
        balance.decided.add(click, is_duplicate, entry.decision == Decision::Refuse);
    }
    balance
}

/// Prints the balance.
pub fn print(clicks: &[Click], entries: &[Entry]) {
    let Balance { duplicates, held, no_filter, plain, counted, decided } = balance(clicks, entries);
    let worth: u64 = clicks.iter().map(|click| u64::from(click.cents)).sum();
    let euros = |cents: u64| format!("{}.{:02}", cents / 100, cents % 100);
    println!("{} clicks for {} euros; {duplicates} duplicates", clicks.len(), euros(worth));
    if held > 0 {
        println!("{held} decisions were lost in a power cut: `held` in the ledger");
    }
    println!("{:<24} {:>16} {:>16} {:>12}", "", "duplicates paid", "clicks refused", "euros lost");
    let ways = [
        ("no filter", no_filter),
        ("plain question", plain),
        ("plain, and counted", counted),
        ("decisions by price", decided),
    ];
    for (name, Mistakes { paid, refused, cents }) in ways {
        println!("{name:<24} {paid:>16} {refused:>16} {:>12}", euros(cents));
    }
}
