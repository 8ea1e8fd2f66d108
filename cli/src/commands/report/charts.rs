//! The diagrams of a report.

use super::samples::Samples;
use crate::commands::observer::{self, Observation};
use crate::formatting;
use crate::plot::{Axis, Bar, Chart, Marks};
use ebbtide::{Age, BlockFill, GenerationFill};

/// The bars of a histogram, and the steps of a curve.
const BINS: usize = 24;
/// The bars of the fill by block; more blocks share bars.
const BLOCKS: usize = 96;

/// Returns the diagrams that the filter's kind has.
pub fn all(seen: &Observation, samples: &Samples) -> Vec<Chart> {
    let charts = [
        generations(seen),
        blocks(seen),
        ages(seen, samples),
        rates(seen, samples),
        growth(samples),
    ];
    charts.into_iter().flatten().collect()
}

fn generations(seen: &Observation) -> Option<Chart> {
    let generations = &seen.details.generations;
    let bar = |generation: &GenerationFill| Bar {
        label: observer::age(generation.began),
        value: generation.fill(),
    };
    (!generations.is_empty()).then(|| Chart {
        title: "Fill by generation, the open one first".to_owned(),
        x: Axis::linear("began this long ago"),
        y: Axis::linear("share of cells in use"),
        marks: vec![Marks::Bars(generations.iter().map(bar).collect())],
    })
}

fn blocks(seen: &Observation) -> Option<Chart> {
    let blocks = &seen.details.blocks;
    let together = blocks.len().div_ceil(BLOCKS).max(1);
    let bar = |blocks: &[BlockFill]| {
        let (used, cells) = blocks
            .iter()
            .fold((0, 0), |(used, cells), block| (used + block.used, cells + block.cells));
        let first = blocks.first()?;
        let value = if cells == 0 { 0.0 } else { used as f64 / cells as f64 };
        Some(Bar { label: format!("{}/{}", first.bank, first.block), value })
    };
    (blocks.len() > 1).then(|| Chart {
        title: "Fill by block: even, unless keys are chosen to collide".to_owned(),
        x: Axis::linear("bank/block"),
        y: Axis::linear("share of cells in use"),
        marks: vec![
            Marks::Bars(blocks.chunks(together).filter_map(bar).collect()),
            Marks::Level { name: "whole filter".to_owned(), y: seen.stat.fill },
        ],
    })
}

/// Returns an age of the unit of another one.
fn like(unit: Age, amount: u64) -> Age {
    match unit {
        Age::Items(_) => Age::Items(amount),
        Age::Time(_) => Age::micros(amount),
    }
}

/// Returns the greatest age of keys in the filter.
fn reach(seen: &Observation, ages: &[Age]) -> Option<Age> {
    let oldest = seen.details.generations.iter().map(|generation| generation.began);
    oldest.chain(ages.iter().copied()).max_by_key(|age| age.width())
}

fn ages(seen: &Observation, samples: &Samples) -> Option<Chart> {
    let ages = samples.ages.as_ref().filter(|ages| !ages.is_empty())?;
    let most = reach(seen, ages)?;
    let width = most.width() / BINS as u64 + 1;
    let mut counts = [0_u32; BINS];
    for age in ages {
        if let Some(count) = counts.get_mut((age.width() / width) as usize) {
            *count += 1;
        }
    }
    let all = ages.len() + samples.expired;
    let bar = |(at, count): (u64, &u32)| Bar {
        label: observer::age(like(most, at * width)),
        value: f64::from(*count) / all as f64,
    };
    Some(Chart {
        title: format!(
            "Ages of {all} keys of the kept log; {} of them have expired",
            samples.expired
        ),
        x: Axis::linear("at least this long ago"),
        y: Axis::linear("share of keys"),
        marks: vec![Marks::Bars((0..).zip(&counts).map(bar).collect())],
    })
}

fn rates(seen: &Observation, samples: &Samples) -> Option<Chart> {
    let (probes, found) = samples.probes;
    let measured = found as f64 / probes.max(1) as f64;
    let mut marks = Vec::new();
    let mut label = "whole window".to_owned();
    if let Some(most) = samples.false_ages.as_ref().and_then(|ages| reach(seen, ages)) {
        let ages = samples.false_ages.iter().flatten().map(|age| age.width());
        let mut ages: Vec<u64> = ages.collect();
        ages.sort_unstable();
        let (unit, name) = match most {
            Age::Items(_) => (1.0, "inserts"),
            Age::Time(_) => (1e6, "seconds"),
        };
        let point = |bin: usize| {
            let reach = (most.width() as f64 * bin as f64 / BINS as f64).ceil();
            let within = ages.partition_point(|age| *age as f64 <= reach);
            (reach / unit, within as f64 / probes.max(1) as f64)
        };
        let points = (0..=BINS).map(point).collect();
        marks.push(Marks::Line { name: "measured".to_owned(), points });
        label = format!("only keys of this many last {name} count");
    } else if found > 0 {
        marks.push(Marks::Level { name: "measured".to_owned(), y: measured });
    }
    marks.push(Marks::Level { name: "estimated".to_owned(), y: seen.stat.estimated_fpr });
    marks.push(Marks::Level { name: "planned".to_owned(), y: seen.stat.planned_fpr });
    Some(Chart {
        title: format!(
            "False-positive rate: {found} of {} keys never inserted were found",
            formatting::count(probes as f64)
        ),
        x: Axis::linear(&label),
        y: Axis::log("share of keys"),
        marks,
    })
}

fn growth(samples: &Samples) -> Option<Chart> {
    let (first, last) = (samples.growth.first()?, samples.growth.last()?);
    let (unit, name) = match last.0 - first.0 {
        span if span < 600.0 => (1.0, "seconds"),
        span if span < 36_000.0 => (60.0, "minutes"),
        span if span < 864_000.0 => (3600.0, "hours"),
        _ => (86_400.0, "days"),
    };
    let points = samples.growth.iter().map(|(time, lsn)| ((time - last.0) / unit, *lsn)).collect();
    (samples.growth.len() > 1).then(|| Chart {
        title: "Growth of the kept log".to_owned(),
        x: Axis { includes: Vec::new(), ..Axis::linear(&format!("{name} before the last record")) },
        y: Axis { includes: Vec::new(), ..Axis::linear("LSN") },
        marks: vec![Marks::Line { name: "records".to_owned(), points }],
    })
}
