//! `explain`: why the filter answers as it does about each key.

use super::at_rest;
use super::keys::age_answer;
use super::line::Skipped;
use super::reasons::{Facts, Reason};
use super::run::Run;
use super::stream::Stream;
use crate::explain_args::Explain;
use crate::failure::{Failure, Result, painted};
use crate::formatting::{self, counted};
use crate::input::Batch;
use crate::key_args::Origin;
use crate::output::{Form, keyed, object};
use crate::priors::{Beliefs, PriorOption};
use clap::builder::styling::AnsiColor;
use ebbtide::units::visible;
use ebbtide::{
    Any, Error, ExaminedLog, Explained, Explanation, KeyRecord, Options, Reader, Timestamp, Within,
};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::io::stdout;
use std::num::NonZeroUsize;

/// The largest number of keys for which the log is read once.
const KEYS: NonZeroUsize = NonZeroUsize::new(1 << 16).expect("not zero");

/// Explains every key.
pub fn explain(arguments: &Explain) -> Result<()> {
    let reader = at_rest::look(&arguments.dir, &arguments.past, Options::new())?;
    let lines = [&arguments.keys[..], &arguments.lines].concat();
    let origin = Origin { lines, files: arguments.files.clone(), hint: "" };
    let assumed = &arguments.assumed;
    if matches!(assumed.prior, Some(PriorOption::Line)) {
        return Err(Failure::Error(
            "--prior line is for posterior and decide; give explain one prior for all keys"
                .to_owned(),
        ));
    }
    let mut counts = None;
    let beliefs = match (&assumed.prior, &assumed.distinct, assumed.rate) {
        (None, None, None) => None,
        // Without a prior, the others are refused.
        (prior, repeats, rate) => {
            let (prior, repeats) = (prior.as_ref(), repeats.as_ref());
            Some(Beliefs::new(prior, repeats, rate, &mut counts, arguments.reading.delimiter())?)
        }
    };
    let subject = Subject::new(reader, beliefs)?;
    let most = usize::try_from(arguments.records).unwrap_or(usize::MAX);
    let mut shown = 0;
    let stream = Stream::asking(&(), &arguments.reading)?.in_batches_of(KEYS);
    let stream = stream.skipping(Skipped::Answer(Form::Json));
    let ended = stream.feed(origin, true, |batch, run| {
        let (asked, failure) = Asked::of(batch, &stream, run);
        // The reason takes two records, shown or not.
        let explained = subject.reader.explain(&asked.keys, most.max(2))?;
        let mut explanations = asked.keys.iter().zip(&explained.keys);
        for (wrong, &(number, whole)) in asked.wrong.iter().zip(&batch.lines) {
            let blank = if shown == 0 { "" } else { "\n" };
            match (wrong, arguments.json) {
                (Some(wrong), true) => run.print_skipped(number, whole, wrong)?,
                (Some(wrong), false) => {
                    let line = String::from_utf8_lossy(whole);
                    let line = line.escape_debug();
                    let wrong = visible(wrong);
                    run.output.text(&format!("{blank}{line}: ?\n  why      {wrong}"))?;
                }
                (None, is_json) => {
                    let Some((key, explanation)) = explanations.next() else { break };
                    let told = subject.told(key, explanation, &explained, most)?;
                    if is_json {
                        run.output.json(told.json())?;
                    } else {
                        run.output.text(&format!("{blank}{}", told.text()))?;
                    }
                }
            }
            shown += 1;
        }
        failure.map_or(Ok(()), Err)
    })?;
    ended.finish()
}

/// The lines of a batch, up to the first one that ends the run.
struct Asked<'b> {
    /// What is wrong with each line that is skipped.
    wrong: Vec<Option<String>>,
    /// The keys of the others.
    keys: Vec<Cow<'b, [u8]>>,
}

impl<'b> Asked<'b> {
    /// Parses the lines; returns as well why the next one ends the run.
    fn of(batch: &Batch<'b>, stream: &Stream<'_, ()>, run: &mut Run) -> (Self, Option<Failure>) {
        let count = batch.lines.len();
        let mut asked = Self { wrong: Vec::with_capacity(count), keys: Vec::with_capacity(count) };
        for &(number, whole) in &batch.lines {
            if !run.take(batch.path, number) {
                break;
            }
            match stream.line(batch, whole, number, run) {
                Ok(Ok(line)) => {
                    stream.accept(&line);
                    asked.keys.push(line.key);
                    asked.wrong.push(None);
                }
                Ok(Err(wrong)) => asked.wrong.push(Some(wrong)),
                Err(failed) => return (asked, Some(failed)),
            }
        }
        (asked, None)
    }
}

/// The filter in question.
struct Subject<'a> {
    reader: Reader<Any>,
    beliefs: Option<Beliefs<'a>>,
    kind: &'static str,
    /// The filter's window, if it has one.
    window: Option<Within>,
    /// The expected false-positive rate.
    rate: f64,
}

impl<'a> Subject<'a> {
    fn new(reader: Reader<Any>, beliefs: Option<Beliefs<'a>>) -> Result<Self> {
        let stat = reader.stat()?;
        let number = |name| stat.parameters.get(name)?.parse().ok();
        let window = number("window").map(Within::micros);
        let window = window.or(number("window-items").map(Within::Items));
        let (kind, rate) = (stat.kind, stat.estimated_fpr);
        Ok(Self { reader, beliefs, kind, window, rate })
    }

    fn told<'k>(
        &self,
        key: &'k Cow<'k, [u8]>,
        explanation: &'k Explanation,
        explained: &'k Explained,
        most: usize,
    ) -> Result<Told<'k>> {
        let (log, now) = (&explained.log, explained.now);
        let probability = match &self.beliefs {
            _ if !explanation.present || explanation.inserts > 0 => None,
            _ if log.is_complete => Some(1.0),
            Some(beliefs) => self.false_positive(beliefs, key, log, now)?,
            None => None,
        };
        let (kind, window, rate) = (self.kind, self.window, self.rate);
        let facts = Facts { kind, window, rate, probability, log, now, explanation };
        let reason = Reason::new(&facts);
        let records = &explanation.records;
        let records = &records[records.len().saturating_sub(most)..];
        Ok(Told { key, facts, reason, records })
    }

    /// Returns the probability that a key is a false positive, given the evidence of its cells and
    /// that it is older than the log; `None` for kinds without evidence.
    fn false_positive(
        &self,
        beliefs: &Beliefs<'_>,
        key: &[u8],
        log: &ExaminedLog,
        now: Option<Timestamp>,
    ) -> Result<Option<f64>> {
        let prior = beliefs.of(key, 0.0)?;
        let ages = match self.reader.call().age_posterior(key, &prior) {
            Ok(ages) => ages,
            Err(Error::Unsupported { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let youngest = match self.window {
            Some(Within::Time(_)) => log.since.and_then(|since| age(now, since)).unwrap_or(0),
            _ => log.inserts,
        };
        let oldest = match self.window {
            Some(window) => window.width().max(youngest),
            None => u64::MAX,
        };
        let inside = ages.between(youngest..oldest);
        let older = ages.between(oldest..u64::MAX) + ages.never();
        Ok((inside + older > 0.0).then(|| older / (inside + older)))
    }
}

/// Returns the time from `since` to `now`, in microseconds.
fn age(now: Option<Timestamp>, since: Timestamp) -> Option<u64> {
    Some(now?.as_unix_micros().saturating_sub(since.as_unix_micros()))
}

/// An explanation to print.
struct Told<'a> {
    key: &'a [u8],
    facts: Facts<'a>,
    reason: Reason,
    /// The records to show.
    records: &'a [KeyRecord],
}

impl Told<'_> {
    fn text(&self) -> String {
        let Facts { explanation, log, now, .. } = self.facts;
        let (state, colour) = match explanation.present {
            true => ("present", AnsiColor::Green),
            false => ("absent", AnsiColor::Yellow),
        };
        let state = painted(state, colour, &stdout());
        let key = String::from_utf8_lossy(self.key);
        let mut text = format!("{}: {state}\n", key.escape_debug());
        text += &format!("  why      {}\n", self.reason.sentence);
        match age_answer(explanation.age) {
            (_, "age", _) => {}
            (age, "age_seconds", _) => text += &format!("  age      at least {age} s\n"),
            (age, ..) => text += &format!("  age      at least {age} inserts\n"),
        }
        if let Some(estimate) = explanation.estimate {
            let more = if estimate.at_least { "+" } else { "" };
            text += &format!("  count    {}{more}\n", estimate.count);
        }
        let complete = if log.is_complete { ", complete" } else { "" };
        text += &format!(
            "  log      LSN {} to {}{complete}: {}, {} of this key",
            log.first,
            log.end.saturating_sub(1),
            counted(log.inserts, "insert"),
            explanation.inserts
        );
        if explanation.removals > 0 {
            text += &format!("; {} of it", counted(explanation.removals, "removal"));
        }
        text.push('\n');
        let hidden = explanation.inserts + explanation.removals - self.records.len() as u64;
        if hidden > 0 {
            text += &format!("           not shown: {}\n", counted(hidden, "older record"));
        }
        for record in self.records {
            text += &record_text(record, now);
        }
        let mut places = vec![format!("stripe {}", explanation.stripe)];
        places.extend(explanation.blocks.iter().map(|block| {
            format!("block {} of {} in bank {}", block.block, block.blocks, block.bank)
        }));
        text + &format!("  place    {}", places.join(", "))
    }

    fn json(&self) -> Map<String, Value> {
        let Facts { explanation, log, now, rate, probability, .. } = self.facts;
        let mut all = keyed(self.key);
        let (_, age, value) = age_answer(explanation.age);
        let estimate = explanation.estimate;
        let records = self.records.iter().map(|record| record_json(record, now).into());
        let blocks = explanation.blocks.iter().map(|block| {
            Value::Object(object([
                ("bank", block.bank.into()),
                ("since_step", block.since.into()),
                ("block", block.block.into()),
                ("blocks", block.blocks.into()),
            ]))
        });
        all.extend(object([
            ("present", explanation.present.into()),
            ("reason", self.reason.name.into()),
            ("sentence", self.reason.sentence.as_str().into()),
            ("false_positive_probability", probability.into()),
            ("estimated_fpr", rate.into()),
            (age, value),
            ("estimate", estimate.map(|estimate| estimate.count).into()),
            ("at_least", estimate.map(|estimate| estimate.at_least).into()),
            ("inserts", explanation.inserts.into()),
            ("removals", explanation.removals.into()),
            ("records", records.collect::<Vec<Value>>().into()),
            ("stripe", explanation.stripe.into()),
            ("blocks", blocks.collect::<Vec<_>>().into()),
            ("log_first_lsn", log.first.into()),
            ("log_end_lsn", log.end.into()),
            ("log_inserts", log.inserts.into()),
            ("log_complete", log.is_complete.into()),
        ]));
        all
    }
}

fn record_text(record: &KeyRecord, now: Option<Timestamp>) -> String {
    let what = if record.removes { "removed" } else { "inserted" };
    let mut text = format!(
        "           LSN {}: {what} at {}, {} ago",
        record.lsn,
        formatting::time(record.time),
        counted(record.inserts_since, "insert")
    );
    if let Some(age) = age(now, record.time) {
        text += &format!(", {} s ago", formatting::seconds(age));
    }
    if record.step > 0 {
        text += &format!(", step {}", record.step);
    }
    if record.weight != 1 {
        text += &format!(", weight {}", record.weight);
    }
    text + "\n"
}

fn record_json(record: &KeyRecord, now: Option<Timestamp>) -> Map<String, Value> {
    let operation = if record.removes { "remove" } else { "insert" };
    object([
        ("lsn", record.lsn.into()),
        ("operation", operation.into()),
        ("time", record.time.as_unix_millis().into()),
        ("stream_time", record.is_stream_time.into()),
        ("inserts_ago", record.inserts_since.into()),
        ("seconds_ago", age(now, record.time).map(|age| age as f64 / 1e6).into()),
        ("step", record.step.into()),
        ("weight", record.weight.into()),
    ])
}
