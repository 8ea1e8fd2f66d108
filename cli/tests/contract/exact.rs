//! Exact windows as a reference for the command.

use crate::support::ok;
use std::collections::{HashMap, HashSet};

/// The lines that count towards the window and refresh a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Every line.
    LastSeen,
    /// Printed lines.
    Accepted,
}

/// The difference between the printed lines and those of exact windows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The number of printed lines.
    pub printed: usize,
    /// Lines printed although the key was within the window: must be 0.
    pub wrongly_printed: usize,
    /// Lines whose key was neither in the window nor in its remaining traces. A key that was
    /// suppressed is not in the window: while it is asked again within the window, it meets the
    /// same slot, and counts once.
    pub surely_new: usize,
    /// Surely new lines that were suppressed: false positives.
    pub wrongly_suppressed: usize,
}

impl Judgement {
    /// Fails if a line was printed wrongly, or if more lines were suppressed than an error rate of
    /// 0.001 explains: the expected number, four standard deviations (a binomial number exceeds
    /// them once in 30,000 runs, and the hash seed is fixed), and one for the rounding.
    pub fn assert_within_promise(&self) {
        assert_eq!(self.wrongly_printed, 0, "{self:?}");
        let expected = self.surely_new as f64 * 0.001;
        let bound = expected + 4.0 * expected.sqrt() + 1.0;
        assert!(self.wrongly_suppressed as f64 <= bound, "{self:?}, at most {bound} are allowed");
    }
}

/// Runs `dedup` over the keys and compares each answer with a window of the last `items` inserts.
///
/// The window covers the inserts of the command itself, so that one wrong answer is counted once.
/// An age-partitioned filter expires keys within a few generations: with (k, l) = (12, 52), the
/// plan for an error rate of 0.001, the last trace of a key remains for at most 13 generations of
/// `items / 52`. A key that was not among the last 1.5 × `items` inserts is therefore surely new.
pub fn judge(keys: &[&[u8]], items: u64, since: Since, more: &[&str]) -> Judgement {
    // The number behind the key identifies each printed line.
    let mut lines = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        lines.extend_from_slice(key);
        lines.extend_from_slice(format!(" {number}\n").as_bytes());
    }
    let last = items.to_string();
    let since_name = if since == Since::LastSeen { "last-seen" } else { "accepted" };
    let fixed =
        ["dedup", "--field", "1", "--hash-seed", "7", "--last", &last, "--since", since_name];
    let outcome = ok(&[&fixed, more].concat(), &lines);
    let numbers: Vec<usize> = outcome
        .lines()
        .iter()
        .map(|line| line.rsplit(|byte| *byte == b' ').next().unwrap_or_default())
        .map(|number| String::from_utf8_lossy(number).parse().expect("number"))
        .collect();
    assert!(numbers.is_sorted(), "not in input order");

    let printed: HashSet<_> = numbers.iter().copied().collect();
    let mut judgement = Judgement { printed: numbers.len(), ..Judgement::default() };
    let mut last_insert: HashMap<&[u8], u64> = HashMap::new();
    let mut last_refused: HashMap<&[u8], u64> = HashMap::new();
    let mut inserts = 0;
    for (number, key) in keys.iter().enumerate() {
        let is_printed = printed.contains(&number);
        // The latest insert has age 1.
        let age = last_insert.get(key).map(|insert| inserts - insert + 1);
        let refused = last_refused.get(key).is_some_and(|then| inserts - then <= items);
        let surely_new = age.is_none_or(|age| age > items + items / 2) && (is_printed || !refused);
        if surely_new && !is_printed {
            last_refused.insert(key, inserts);
        }
        judgement.surely_new += usize::from(surely_new);
        judgement.wrongly_suppressed += usize::from(surely_new && !is_printed);
        judgement.wrongly_printed += usize::from(is_printed && age.is_some_and(|age| age <= items));
        if is_printed || since == Since::LastSeen {
            inserts += 1;
            last_insert.insert(key, inserts);
        }
    }
    judgement
}

/// Returns the number of lines that an exact window of the last `items` lines prints if each line
/// refreshes its key.
pub fn printed_exactly(keys: &[&[u8]], items: usize) -> usize {
    let mut last: HashMap<&[u8], usize> = HashMap::new();
    let mut printed = 0;
    for (number, key) in keys.iter().enumerate() {
        let earlier = last.insert(key, number);
        printed += usize::from(earlier.is_none_or(|earlier| number - earlier > items));
    }
    printed
}
