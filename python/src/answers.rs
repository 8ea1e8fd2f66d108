//! Answers of the engine as objects of `ebbtide/_types.py`.

use crate::times;
use ebbtide::history::{AlterationPlan, Altered, Change, Commit, Operation, Remade};
use ebbtide::inspect::{Plan, Report, Salvaged};
use ebbtide::{
    Admission, Cardinality, Checked, Digest, Estimate, OpenClaim, Parameters, Stat, Within,
};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule, PyTuple};

/// The module `ebbtide._types`.
static TYPES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Finds the classes of answers. Done once, when the module is imported: a child made by `fork`
/// must not find it half done.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    TYPES.get_or_try_init(py, || py.import("ebbtide._types").map(Bound::unbind))?;
    Ok(())
}

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let types = TYPES.get(py).ok_or_else(|| PyRuntimeError::new_err("ebbtide is not imported"))?;
    types.bind(py).getattr(name)
}

/// Returns the byte that stands for the answer of a check in bulk.
pub fn byte(checked: Checked) -> u8 {
    match checked {
        Checked::Present => 0,
        Checked::New => 1,
        Checked::TooLate => 2,
    }
}

/// Returns an `Estimate`.
pub fn estimate<'py>(py: Python<'py>, estimate: Estimate) -> PyResult<Bound<'py, PyAny>> {
    class(py, "Estimate")?.call1((estimate.count, estimate.at_least))
}

/// Returns a `Cardinality`.
pub fn cardinality<'py>(py: Python<'py>, answer: Cardinality) -> PyResult<Bound<'py, PyAny>> {
    let reach = match answer.reach {
        Within::Items(items) => items.into_pyobject(py)?.into_any(),
        Within::Time(time) => times::delta(py, time)?,
    };
    class(py, "Cardinality")?.call1((answer.keys, answer.standard_error, reach))
}

/// Returns the list of several `Estimate`s.
pub fn estimates<'py>(py: Python<'py>, all: &[Estimate]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let class = class(py, "Estimate")?;
    all.iter().map(|estimate| class.call1((estimate.count, estimate.at_least))).collect()
}

/// Returns an `Admission`.
pub fn admission<'py>(py: Python<'py>, answer: Admission) -> PyResult<Bound<'py, PyAny>> {
    class(py, "Admission")?.call1((answer.admitted, estimate(py, answer.estimate)?))
}

/// Returns a `Digest`.
pub fn digest<'py>(py: Python<'py>, digest: Digest) -> PyResult<Bound<'py, PyAny>> {
    class(py, "Digest")?.call1((digest.to_string(), digest.lsn, digest.inserts))
}

/// Returns an `OpenClaim`.
pub fn open_claim<'py>(py: Python<'py>, open: &OpenClaim) -> PyResult<Bound<'py, PyAny>> {
    let (age, remaining) = (times::delta(py, open.age)?, times::delta(py, open.remaining)?);
    class(py, "OpenClaim")?.call1((open.hash, open.token, age, remaining))
}

/// Returns parameters as a `dict`.
pub fn parameters<'py>(py: Python<'py>, given: &Parameters) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    given.iter().try_for_each(|(name, value)| all.set_item(name, value))?;
    Ok(all)
}

/// Returns a `Stat`.
pub fn stat<'py>(py: Python<'py>, stat: &Stat) -> PyResult<Bound<'py, PyAny>> {
    let all = PyDict::new(py);
    let figures = PyDict::new(py);
    stat.figures.iter().try_for_each(|(name, value)| figures.set_item(name, value))?;
    let time = stat.time.map(|time| times::datetime(py, time)).transpose()?.flatten();
    let lead = stat.clock_lead.map(|lead| times::delta(py, lead)).transpose()?;
    all.set_item("kind", stat.kind)?;
    all.set_item("parameters", parameters(py, &stat.parameters)?)?;
    all.set_item("inserts", stat.inserts)?;
    all.set_item("operations", stat.operations)?;
    all.set_item("lsn", stat.lsn)?;
    all.set_item("durable_lsn", stat.durable_lsn)?;
    all.set_item("step", stat.step)?;
    all.set_item("time", time)?;
    all.set_item("clock_lead", lead)?;
    all.set_item("fill", stat.fill)?;
    all.set_item("distinct_keys", stat.distinct_keys)?;
    all.set_item("distinct_keys_error", stat.distinct_keys_error)?;
    all.set_item("estimated_fpr", stat.estimated_fpr)?;
    all.set_item("planned_fpr", stat.planned_fpr)?;
    all.set_item("saturated", stat.saturated)?;
    all.set_item("figures", figures)?;
    all.set_item("memory_bytes", stat.memory_bytes)?;
    all.set_item("image", stat.image.to_string())?;
    all.set_item("disk_bytes", stat.disk_bytes)?;
    all.set_item("stripes", stat.stripes)?;
    all.set_item("blocks", stat.blocks)?;
    all.set_item("banks", stat.banks)?;
    all.set_item("handles", stat.handles)?;
    all.set_item("snapshots", stat.snapshots)?;
    all.set_item("wal_segments", stat.wal_segments)?;
    all.set_item("refused", stat.refused)?;
    let oldest = stat.oldest_claim.map(|age| times::delta(py, age)).transpose()?;
    all.set_item("claims", stat.claims)?;
    all.set_item("oldest_claim", oldest)?;
    all.set_item("keep_log", stat.keep_log.to_string())?;
    all.set_item("kept_log_from", stat.kept_log_from)?;
    let kept = stat.kept_log_for.map(|age| times::delta(py, age)).transpose()?;
    all.set_item("kept_log_for", kept)?;
    all.set_item("kept_log_is_short", stat.kept_log_is_short)?;
    all.set_item("kept_log_bytes", stat.kept_log_bytes)?;
    all.set_item("durability", stat.durability.to_string())?;
    all.set_item("key_hash", stat.key_hash.to_string())?;
    all.set_item("max_lead", times::delta(py, stat.max_lead)?)?;
    all.set_item("format", stat.format)?;
    class(py, "Stat")?.call((), Some(&all))
}

/// Returns a `Commit`.
pub fn commit<'py>(py: Python<'py>, commit: &Commit) -> PyResult<Bound<'py, PyAny>> {
    let class_of_operation = class(py, "Operation")?;
    let operations = commit.operations.iter().map(|one| operation(&class_of_operation, one));
    let operations = PyTuple::new(py, operations.collect::<PyResult<Vec<_>>>()?)?;
    class(py, "Commit")?.call1((commit.lsn, commit.timeline, operations))
}

fn operation<'py>(class: &Bound<'py, PyAny>, operation: &Operation) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let all = PyDict::new(py);
    let kind = match operation.change {
        Change::Insert { hash, weight } => {
            all.set_item("hash", hash)?;
            all.set_item("weight", weight)?;
            "insert"
        }
        Change::Remove { hash, weight } => {
            all.set_item("hash", hash)?;
            all.set_item("weight", weight)?;
            "remove"
        }
        Change::Clear => "clear",
        Change::Position { source, position } => {
            all.set_item("source", source)?;
            all.set_item("position", position)?;
            "position"
        }
        Change::Claim { hash, token, lease } => {
            all.set_item("hash", hash)?;
            all.set_item("token", token)?;
            all.set_item("lease", times::delta(py, lease)?)?;
            "claim"
        }
        Change::Release { hash, token } => {
            all.set_item("hash", hash)?;
            all.set_item("token", token)?;
            "release"
        }
        _ => "unknown",
    };
    all.set_item("is_stream_time", operation.is_stream_time)?;
    let time = operation.time.map(|time| times::datetime(py, time)).transpose()?.flatten();
    class.call((operation.lsn, time, kind), Some(&all))
}

/// Returns an `Altered`.
pub fn altered<'py>(py: Python<'py>, altered: Altered) -> PyResult<Bound<'py, PyAny>> {
    let Altered { lsn, operations, is_whole, since, stopped, .. } = altered;
    let since = since.map(|time| times::datetime(py, time)).transpose()?.flatten();
    let stopped = times::delta(py, stopped)?;
    class(py, "Altered")?.call1((lsn, operations, is_whole, since, stopped))
}

/// Returns an `AlterationPlan`.
pub fn alteration_plan<'py>(py: Python<'py>, plan: AlterationPlan) -> PyResult<Bound<'py, PyAny>> {
    let AlterationPlan { records, first_lsn, memory_before, memory_after, .. } = plan;
    let has_window = !plan.must_forget();
    let since = plan.since.map(|time| times::datetime(py, time)).transpose()?.flatten();
    let all = (records, first_lsn, since, has_window, memory_before, memory_after);
    class(py, "AlterationPlan")?.call1(all)
}

/// Returns a `Remade`.
pub fn remade<'py>(py: Python<'py>, made: Remade) -> PyResult<Bound<'py, PyAny>> {
    let since = made.since.map(|time| times::datetime(py, time)).transpose()?.flatten();
    class(py, "Remade")?.call1((made.operations, made.is_whole, since))
}

/// Returns a `Plan`.
pub fn plan<'py>(py: Python<'py>, plan: &Plan) -> PyResult<Bound<'py, PyAny>> {
    let sizes = (plan.memory_bytes, plan.disk_bytes, plan.written_bytes, plan.bits_per_key);
    let (memory, disk, written, bits) = sizes;
    let all = parameters(py, &plan.parameters)?;
    let (fpr, stripes, blocks) = (plan.fpr, plan.stripes, plan.blocks);
    class(py, "Plan")?.call1((plan.kind, all, memory, disk, written, bits, fpr, stripes, blocks))
}

/// Returns a `Report`.
pub fn report<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyAny>> {
    let class_of_file = class(py, "FileReport")?;
    let files = report.files.iter().map(|file| {
        let damage: Vec<_> = file.damage.iter().map(ToString::to_string).collect();
        class_of_file.call1((&file.name, &file.detail, file.bytes, damage))
    });
    class(py, "Report")?.call1((files.collect::<PyResult<Vec<_>>>()?,))
}

/// Returns a `Salvaged`.
pub fn salvaged<'py>(py: Python<'py>, found: &Salvaged) -> PyResult<Bound<'py, PyAny>> {
    let lost = match &found.lost {
        Some(lost) => (lost.end.saturating_sub(found.lsn), Some(lost.cause.to_string())),
        None => (0, None),
    };
    let beyond = found.beyond.map_or(0, |beyond| beyond.operations);
    let damaged: Vec<_> = found.damaged.iter().map(ToString::to_string).collect();
    class(py, "Salvaged")?.call1((
        found.lsn,
        found.inserts,
        found.durable_lsn,
        lost,
        beyond,
        damaged,
    ))
}
