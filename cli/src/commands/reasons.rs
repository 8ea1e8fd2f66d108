//! The reason of an answer about a key, as a name for programs and as a sentence.

use crate::formatting::{self, counted};
use ebbtide::{ExaminedLog, Explanation, KeyRecord, Timestamp, Within};

/// The facts about a key and its filter.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The kind's name.
    pub kind: &'static str,
    /// The filter's window, if it has one.
    pub window: Option<Within>,
    /// The expected false-positive rate of the filter.
    pub rate: f64,
    /// The probability that this key is a false positive, if it is known.
    pub probability: Option<f64>,
    /// The examined log.
    pub log: &'a ExaminedLog,
    /// The time of the answers, for kinds that use time.
    pub now: Option<Timestamp>,
    /// The answers and the records.
    pub explanation: &'a Explanation,
}

/// Why the filter answers as it does.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    /// One of `inserted`, `not-yet-expired`, `false-positive`, `before-log`, `removed`, `expired`,
    /// `decayed`, `forgotten`, `never-inserted`, `not-in-log`, `unexplained`.
    pub name: &'static str,
    /// The reason in words.
    pub sentence: String,
}

impl Reason {
    /// Finds the reason.
    pub fn new(facts: &Facts<'_>) -> Self {
        let (name, sentence) = match (facts.explanation.present, facts.latest()) {
            (true, Some(record)) => facts.present(record),
            (true, None) => facts.present_without_record(),
            (false, Some(record)) => facts.absent(record),
            (false, None) => facts.absent_without_record(),
        };
        let log = facts.log;
        let unread = if log.end < log.answered {
            format!("; the records of LSN {} to {} cannot be read yet", log.end, log.answered - 1)
        } else {
            String::new()
        };
        Self { name, sentence: sentence + &unread }
    }
}

impl<'a> Facts<'a> {
    /// Returns the insert record that keeps the key longest, of those at hand.
    fn latest(&self) -> Option<&'a KeyRecord> {
        let inserts = self.explanation.records.iter().filter(|record| !record.removes);
        match self.window {
            Some(Within::Time(_)) => inserts.max_by_key(|record| (record.time, record.lsn)),
            _ => inserts.max_by_key(|record| record.lsn),
        }
    }

    /// Returns whether a record is older than the window, if there is one.
    fn is_outside(&self, record: &KeyRecord) -> bool {
        match (self.window, self.now) {
            (Some(Within::Items(items)), _) => record.inserts_since >= items,
            (Some(Within::Time(time)), Some(now)) => now.since(record.time) > time,
            _ => false,
        }
    }

    /// Returns whether the log covers the whole window.
    fn covers_window(&self) -> bool {
        match (self.window, self.now, self.log.since) {
            (Some(Within::Items(items)), ..) => self.log.inserts >= items,
            (Some(Within::Time(time)), Some(now), Some(since)) => now.since(since) >= time,
            _ => false,
        }
    }

    /// Describes the filter's window.
    fn width(&self) -> String {
        match self.window {
            Some(Within::Items(items)) => format!("the last {items} inserts"),
            Some(Within::Time(time)) => format!("the last {}", formatting::duration(time)),
            None => "all inserts".to_owned(),
        }
    }

    /// Describes when a record was written.
    fn when(&self, record: &KeyRecord) -> String {
        match (self.window, self.now) {
            (Some(Within::Time(_)), Some(now)) => {
                let age = now.as_unix_micros().saturating_sub(record.time.as_unix_micros());
                format!("{} s ago", formatting::seconds(age))
            }
            _ => format!("{} ago", counted(record.inserts_since, "insert")),
        }
    }

    /// Describes which earlier record made a check at this one answer that the key was present, if
    /// one did.
    fn repeats(&self, record: &KeyRecord) -> Option<String> {
        let records = self.explanation.records.iter().filter(|other| !other.removes);
        let before = records.take_while(|other| other.lsn < record.lsn).last()?;
        let between = before.inserts_since - record.inserts_since;
        let micros = |record: &KeyRecord| record.time.as_unix_micros();
        let distance = match self.window? {
            Within::Items(items) if between <= items => counted(between, "insert"),
            Within::Time(window) if record.time.since(before.time) <= window => {
                format!("{} s", formatting::seconds(micros(record).saturating_sub(micros(before))))
            }
            _ => return None,
        };
        Some(format!(", {distance} after record LSN {}: as a repeat", before.lsn))
    }

    /// Describes how probable a false positive is.
    fn chance(&self) -> String {
        let rate = formatting::significant(self.rate);
        match self.probability {
            Some(probability) => {
                format!(
                    "a false positive, whose probability is {}",
                    formatting::significant(probability)
                )
            }
            None => format!("a false positive, as which {rate} of all new keys are found"),
        }
    }

    /// Returns whether the records remove the key as often as they insert it, if all are at hand.
    fn is_removed(&self) -> bool {
        let records = &self.explanation.records;
        let all = self.explanation.inserts + self.explanation.removals;
        let sum = |removes| -> u64 {
            let some = records.iter().filter(|record| record.removes == removes);
            some.map(|record| u64::from(record.weight)).sum()
        };
        records.len() as u64 == all && sum(true) > 0 && sum(true) >= sum(false)
    }

    fn present(&self, record: &KeyRecord) -> (&'static str, String) {
        let (lsn, when) = (record.lsn, self.when(record));
        if self.is_removed() {
            let chance = self.chance();
            let (name, sentence) = match self.log.is_complete {
                true => ("false-positive", "it is a false positive".to_owned()),
                false => ("before-log", format!("it was inserted before the log, or is {chance}")),
            };
            let sentence = format!(
                "record LSN {lsn} inserted it {when}, and all its inserts were \
                                    removed again: {sentence}"
            );
            return (name, sentence);
        }
        if self.is_outside(record) {
            let sentence = format!(
                "record LSN {lsn} inserted it {when}, before {}: it has not expired yet, or is {}",
                self.width(),
                self.chance()
            );
            return ("not-yet-expired", sentence);
        }
        let repeats = self.repeats(record).unwrap_or_default();
        ("inserted", format!("record LSN {lsn} inserted it {when}{repeats}"))
    }

    fn present_without_record(&self) -> (&'static str, String) {
        if self.log.is_complete {
            let sentence = "no record inserted it since the filter was created or cleared: it is a \
                            false positive";
            return ("false-positive", sentence.to_owned());
        }
        let sentence = if self.covers_window() {
            format!(
                "no record of the kept log inserted it, and the log covers {}: it was inserted \
                 before and has not expired yet, or is {}",
                self.width(),
                self.chance()
            )
        } else {
            format!(
                "no record of the kept log inserted it: it was inserted before LSN {}, or is {}",
                self.log.first,
                self.chance()
            )
        };
        ("before-log", sentence)
    }

    fn absent(&self, record: &KeyRecord) -> (&'static str, String) {
        let (lsn, when) = (record.lsn, self.when(record));
        let inserted = format!("record LSN {lsn} inserted it {when}");
        if self.is_outside(record) {
            return ("expired", format!("{inserted}, before {}: it has expired", self.width()));
        }
        if self.explanation.removals > 0 {
            return ("removed", format!("{inserted}; removals have taken out its inserts"));
        }
        if self.kind.starts_with("decaying") {
            return ("decayed", format!("{inserted}; its count has decayed to nothing"));
        }
        if is_random(self.kind) {
            return ("forgotten", format!("{inserted}; a filter of this kind forgets at random"));
        }
        let cause = if self.explanation.estimate.is_some() {
            "removals of keys with the same counters may have taken it out"
        } else {
            "that does not explain the answer; check the filter with `ebbtide verify`"
        };
        ("unexplained", format!("{inserted}; {cause}"))
    }

    fn absent_without_record(&self) -> (&'static str, String) {
        if self.log.is_complete {
            let sentence = "no record inserted it since the filter was created or cleared";
            return ("never-inserted", sentence.to_owned());
        }
        let first = self.log.first;
        let sentence = match (self.window, self.explanation.estimate) {
            (Some(_), _) => format!("it was not inserted within {}", self.width()),
            (None, Some(_)) => format!(
                "no record of the kept log inserted it: it was never inserted, or removed or \
                 decayed since a record before LSN {first}"
            ),
            (None, None) if is_random(self.kind) => format!(
                "no record of the kept log inserted it: it was never inserted, or forgotten since \
                 a record before LSN {first}"
            ),
            (None, None) => "it was never inserted".to_owned(),
        };
        let is_sure = self.window.is_none() && sentence == "it was never inserted";
        (if is_sure { "never-inserted" } else { "not-in-log" }, sentence)
    }
}

/// Returns whether a kind forgets keys at random.
fn is_random(kind: &str) -> bool {
    kind == "stable" || kind.starts_with("importance")
}
