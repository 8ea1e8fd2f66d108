//! `plan`: the requirements of a filter, before anything is created.

use super::look::{bytes, parameter_rows, parameters_json};
use crate::args::Plan;
use crate::failure::Result;
use crate::kind_options::{KIND_OF_WINDOWS, kind_or_implied};
use crate::output::{Output, object, table};
use ebbtide::inspect;
use serde_json::{Map, Value};

/// The false-positive rate without `--fpr`, as for `dedup`.
const FPR: f64 = 0.001;

/// Prints the plan.
pub fn plan(arguments: &Plan) -> Result<()> {
    let mut parameters = arguments.kind_options.parameters();
    let kind = match (&arguments.kind, arguments.last) {
        (None, Some(_)) => KIND_OF_WINDOWS,
        (kind, _) => kind_or_implied(kind.as_deref(), &arguments.kind_options)?,
    };
    if let Some(last) = arguments.last {
        parameters.set("window-items", last);
    }
    if arguments.kind.is_none() && arguments.kind_options.get("fpr").is_none() {
        parameters.set("fpr", FPR);
    }
    let plan = inspect::plan(kind, &parameters, &arguments.creation.options())?;
    if let Some(file) = &arguments.plot {
        super::plan_plot::write(arguments, FPR, file)?;
    }
    let mut output = Output::new()?;
    if arguments.json {
        output.json(plan_json(kind, &plan))?;
    } else {
        output.text(&plan_text(kind, &plan))?;
    }
    output.flush()
}

fn plan_json(kind: &str, plan: &inspect::Plan) -> Map<String, Value> {
    object([
        ("kind", kind.into()),
        ("parameters", parameters_json(&plan.parameters)),
        ("memory_bytes", plan.memory_bytes.into()),
        ("disk_bytes", plan.disk_bytes.into()),
        ("bits_per_key", plan.bits_per_key.into()),
        ("fpr", plan.fpr.into()),
        ("stripes", plan.stripes.into()),
        ("blocks", plan.blocks.into()),
    ])
}

fn plan_text(kind: &str, plan: &inspect::Plan) -> String {
    let mut rows = vec![("kind", kind.to_owned())];
    rows.extend(parameter_rows(&plan.parameters));
    rows.push(("expected FPR", format!("{:.3e}", plan.fpr)));
    if let Some(bits) = plan.bits_per_key {
        rows.push(("bits a key", format!("{bits:.1}")));
    }
    rows.extend([
        ("memory", bytes(plan.memory_bytes)),
        ("disk", format!("{}: live image, three snapshots, WAL", bytes(plan.disk_bytes))),
        ("stripes", plan.stripes.to_string()),
        ("blocks", plan.blocks.to_string()),
    ]);
    table(&rows)
}
