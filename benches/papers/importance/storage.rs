//! The actual memory: the paper counts a cell as a byte, which makes 16,384 of each kind. Packed, a
//! cell up to 7 takes 3 bits and one of a Bloom filter takes one. For comparison: the two-buffer
//! filters, which the paper names but does not measure.

use super::contest::{Algorithm, CELLS, Contestant, Done, K, Score, percent};
use super::seed::seed;
use super::streams::{HIGH, Item};
use super::table::Table;
use ebbtide::Parameters;
use ebbtide::kinds::registry;

/// The paper's upper bound of false positives (section III-D), for which all filters are planned
/// here.
const BOUND: f64 = 0.2;

/// Returns parameters with the longest window of a filter of two buffers that keeps the bound in
/// these bits.
fn longest_window(kind: &str, bits: u64) -> Done<Parameters> {
    let planned = |window: u64| {
        let parameters = Parameters::new().with("window-items", window).with("fpr", BOUND);
        registry::build(kind, &parameters).map(|kind| kind.parameters())
    };
    let (mut low, mut high) = (1, bits);
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        let needed: u64 = planned(middle)?.required("bits", "a number of bits")?;
        if needed <= bits { low = middle } else { high = middle }
    }
    Ok(planned(low)?)
}

/// All kinds in the same memory, planned for 20 % false positives, on the whole trace in its order.
pub fn same_storage(kibibytes: u64, stream: &[Item]) -> Done {
    let bits = kibibytes * 8 * 1024;
    let head = ["filter", "parameters", "FP", "FN", "wFN", "FN above 35"];
    let title =
        format!("{kibibytes} KiB, planned for 20 % FP: the whole trace in its order, data 2, in %");
    let mut table = Table::new(&title, &head);
    let bloom = Parameters::new().with("capacity", CELLS).with("bits", bits).with("k", K);
    let mut filters = vec![("BF", "bloom", bloom, "bits")];
    for algorithm in Algorithm::FORGETTING {
        let parameters = algorithm.cells(bits / 3).with("fpr", BOUND);
        filters.push((algorithm.name(), algorithm.kind(), parameters, "P"));
    }
    for kind in ["two-buffer", "double-buffering"] {
        filters.push((kind, kind, longest_window(kind, bits)?, "window-items"));
    }
    for (name, kind, parameters, telling) in filters {
        let contestant = Contestant::new(kind, parameters, seed())?;
        let told: u64 = contestant.filter.parameters().required(telling, "a number")?;
        let mut score = Score::new();
        contestant.take_all(stream, &mut score)?;
        let [fp, missed, _, weighted] = score.aggregates().map(percent);
        let high = percent(score.false_negatives(HIGH));
        let told = format!("{telling} = {told}");
        table.row([name.to_owned(), told, fp, missed, weighted, high]);
    }
    println!("{table}");
    Ok(())
}
