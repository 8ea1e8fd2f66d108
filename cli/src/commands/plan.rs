//! `plan`: the requirements of a filter, before anything is created.

use super::alter;
use super::look::{bytes, parameter_rows, parameters_json};
use crate::args::Plan;
use crate::failure::Result;
use crate::kept_parameters::Named;
use crate::kind_options::described;
use crate::output::{Output, object, table};
use ebbtide::Parameters;
use ebbtide::inspect::{self, PlannedPart};
use serde_json::{Map, Value};

/// Prints the plan.
pub fn plan(arguments: &Plan) -> Result<()> {
    if let Some(dir) = &arguments.alter {
        let (kind, last) = (arguments.kind.as_deref(), arguments.last);
        let named = Named { kind, last, options: &arguments.kind_options };
        return alter::plan(dir, named, arguments.json);
    }
    let (kind, parameters) =
        described(arguments.kind.as_deref(), arguments.last, &arguments.kind_options)?;
    let plan = inspect::plan(kind, &parameters, &arguments.creation.options())?;
    if let Some(file) = &arguments.plot {
        super::plan_plot::write(&parameters, file)?;
    }
    let mut output = Output::new()?;
    if arguments.json {
        output.json(plan_json(kind, &plan))?;
    } else {
        let faster = faster(kind, &parameters, arguments);
        output.text(&plan_text(kind, &plan, faster.as_ref()))?;
    }
    output.flush()
}

/// The highest load of the plan with faster inserts.
const FASTER: f64 = 0.8;

/// Returns a plan in more memory whose inserts are faster, if the kind has one and the arguments
/// do not settle it: not if it is above the limit of memory.
fn faster(kind: &str, parameters: &Parameters, arguments: &Plan) -> Option<inspect::Plan> {
    let is_settled = |name| parameters.get(name).is_some();
    if kind != "fingerprint" || ["max-load", "slots", "words"].into_iter().any(is_settled) {
        return None;
    }
    let parameters = parameters.clone().with("max-load", FASTER);
    inspect::plan(kind, &parameters, &arguments.creation.options()).ok()
}

fn plan_json(kind: &str, plan: &inspect::Plan) -> Map<String, Value> {
    let part = |part: &PlannedPart| {
        let PlannedPart { name, bits, keeps, rate } = *part;
        Value::Object(object([
            ("name", name.into()),
            ("bits", bits.into()),
            ("keeps", keeps.into()),
            ("rate", rate.into()),
        ]))
    };
    let parts: Vec<Value> = plan.parts.iter().map(part).collect();
    object([
        ("kind", kind.into()),
        ("parameters", parameters_json(&plan.parameters)),
        ("parts", parts.into()),
        ("memory_bytes", plan.memory_bytes.into()),
        ("disk_bytes", plan.disk_bytes.into()),
        ("written_bytes", plan.written_bytes.into()),
        ("bits_per_key", plan.bits_per_key.into()),
        ("fpr", plan.fpr.into()),
        ("stripes", plan.stripes.into()),
        ("blocks", plan.blocks.into()),
    ])
}

/// Returns what the memory of a plan leaves out: a window in time without a rate is planned as it
/// begins.
fn grows(plan: &inspect::Plan) -> &'static str {
    let has = |name| plan.parameters.get(name).is_some();
    match has("window") && !has("rate") && plan.bits_per_key.is_none() {
        true => " at first; it grows with the keys, and --rate says how many a second",
        false => "",
    }
}

/// Returns what inserts write to the disk.
fn disk_writes(plan: &inspect::Plan) -> String {
    const RATE: f64 = 1000.0;
    const DAY: f64 = 86_400.0;
    let a_day = bytes((plan.written_bytes * RATE * DAY) as u64);
    format!("{:.0} bytes an insert; at 1000 a second {a_day} a day", plan.written_bytes)
}

fn plan_text(kind: &str, plan: &inspect::Plan, faster: Option<&inspect::Plan>) -> String {
    let mut rows = vec![("kind", kind.to_owned())];
    rows.extend(parameter_rows(&plan.parameters));
    rows.push(("expected FPR", format!("{:.3e}", plan.fpr)));
    if let Some(bits) = plan.bits_per_key {
        rows.push(("bits a key", format!("{bits:.1}")));
    }
    let keys = plan.bits_per_key.map(|bits| plan.memory_bytes as f64 * 8.0 / bits);
    rows.extend(plan.parts.iter().map(|part| {
        let PlannedPart { name, bits, keeps, rate } = *part;
        let bits = match keys {
            Some(keys) => format!("{:.1} bits a key", bits / keys),
            None => format!("{bits:.0} bits"),
        };
        (name, format!("{bits}, for {keeps} {rate:.3e}"))
    }));
    rows.extend([
        ("memory", bytes(plan.memory_bytes) + grows(plan)),
        ("disk", format!("{} at most, with snapshots and WAL", bytes(plan.disk_bytes))),
        ("disk writes", disk_writes(plan)),
        ("stripes", plan.stripes.to_string()),
        ("blocks", plan.blocks.to_string()),
    ]);
    if let Some(faster) = faster {
        let bits = faster.bits_per_key.map(|bits| format!(", {bits:.1} bits a key"));
        let memory = bytes(faster.memory_bytes);
        rows.push((
            "faster inserts",
            format!("--max-load {FASTER}: {memory}{}", bits.unwrap_or_default()),
        ));
    }
    table(&rows)
}
