//! Statistics and plans as JSON, with the members of `ebbtide stat --json` and `ebbtide plan
//! --json`.

use engine::inspect::{Plan, PlannedPart};
use engine::units::micros_text;
use engine::{Durability, Parameters, Stat};
use serde_json::{Map, Value, json};

/// Returns the statistics as one line of JSON.
pub fn text(stat: &Stat) -> String {
    let figures: Map<_, _> =
        stat.figures.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect();
    let lead = stat.clock_lead.map(|lead| u64::try_from(lead.as_millis()).unwrap_or(u64::MAX));
    let oldest = stat.oldest_claim.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    json!({
        "kind": stat.kind,
        "parameters": parameters(&stat.parameters),
        "inserts": stat.inserts,
        "operations": stat.operations,
        "lsn": stat.lsn,
        "durable_lsn": stat.durable_lsn,
        "step": stat.step,
        "time": stat.time.map(|time| time.as_unix_millis()),
        "clock_lead_ms": lead,
        "fill": stat.fill,
        "distinct_keys": stat.distinct_keys,
        "distinct_keys_error": stat.distinct_keys_error,
        "estimated_fpr": stat.estimated_fpr,
        "planned_fpr": stat.planned_fpr,
        "saturated": stat.saturated,
        "figures": figures,
        "memory_bytes": stat.memory_bytes,
        "image": stat.image.to_string(),
        "disk_bytes": stat.disk_bytes,
        "stripes": stat.stripes,
        "blocks": stat.blocks,
        "banks": stat.banks,
        "handles": stat.handles,
        "snapshots": stat.snapshots,
        "wal_segments": stat.wal_segments,
        "claims": stat.claims,
        "oldest_claim_ms": oldest,
        "keep_log": stat.keep_log.to_string(),
        "kept_log_from": stat.kept_log_from,
        "kept_log_seconds": stat.kept_log_for.map(|age| age.as_secs()),
        "kept_log_bytes": stat.kept_log_bytes,
        "kept_log_short": stat.kept_log_is_short,
        "durability": durability(stat.durability),
        "hash": stat.key_hash.to_string(),
        "max_lead_seconds": stat.max_lead.as_secs_f64(),
    })
    .to_string()
}

/// Returns a plan as one line of JSON.
pub fn plan(plan: &Plan) -> String {
    let part = |part: &PlannedPart| {
        let PlannedPart { name, bits, keeps, rate } = *part;
        json!({ "name": name, "bits": bits, "keeps": keeps, "rate": rate })
    };
    json!({
        "kind": plan.kind,
        "parameters": parameters(&plan.parameters),
        "parts": plan.parts.iter().map(part).collect::<Vec<_>>(),
        "memory_bytes": plan.memory_bytes,
        "disk_bytes": plan.disk_bytes,
        "written_bytes": plan.written_bytes,
        "bits_per_key": plan.bits_per_key,
        "fpr": plan.fpr,
        "stripes": plan.stripes,
        "blocks": plan.blocks,
    })
    .to_string()
}

/// Returns the parameters of the kind, as numbers where they are numbers.
fn parameters(parameters: &Parameters) -> Value {
    let number = |text: &str| match (text.parse::<u64>(), text.parse::<f64>()) {
        (Ok(whole), _) => whole.into(),
        (_, Ok(number)) if number.is_finite() => number.into(),
        _ => Value::from(text),
    };
    parameters.iter().map(|(name, value)| (name.to_owned(), number(value))).collect()
}

/// Returns the durability in the form of the option.
fn durability(durability: Durability) -> String {
    match durability {
        Durability::Always => "always".to_owned(),
        Durability::Never => "never".to_owned(),
        Durability::Interval(longest) => {
            micros_text(u64::try_from(longest.as_micros()).unwrap_or(u64::MAX))
        }
    }
}
