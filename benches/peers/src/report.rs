//! Tables in Markdown, with ratios to ebbtide, and the findings about the goals.

use crate::measure::Sample;
use crate::peers::{Durability, Entry, OURS};
use crate::resources::median;
use std::fmt::Write;

/// The measurements of one stream under one durability with this many writers.
pub struct Scene {
    pub stream: String,
    pub operations: usize,
    pub distinct: usize,
    pub durability: Durability,
    pub writers: usize,
    pub rows: Vec<Row>,
    /// The peers that did not take part, with the reasons.
    pub left_out: Vec<(&'static Entry, &'static str)>,
    /// The time of an fdatasync in each round, where there were any.
    pub syncs: Vec<f64>,
}

/// One peer, with a sample per round.
pub struct Row {
    pub entry: &'static Entry,
    pub samples: Vec<Sample>,
}

/// A figure of a sample.
pub type Figure = fn(&Sample) -> f64;

/// Formats a value with three digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

impl Row {
    /// Returns the median over the rounds.
    pub fn median(&self, figure: Figure) -> f64 {
        median(self.samples.iter().map(figure).collect())
    }

    /// Returns the median, over the rounds, of the ratio to the other's figure of the same round.
    pub fn ratio(&self, other: &Self, figure: Figure) -> f64 {
        let pairs = self.samples.iter().zip(&other.samples);
        median(pairs.map(|(this, other)| figure(this) / figure(other)).collect())
    }
}

impl Scene {
    /// Returns the title of the scene.
    pub fn title(&self) -> String {
        let durability = match self.durability {
            Durability::None => "no fsync",
            Durability::Always => "fsync per operation",
        };
        let writers = if self.writers == 1 { "writer" } else { "writers" };
        format!("{}, {durability}, {} {writers}", self.stream, self.writers)
    }

    fn ours(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.entry.name == OURS)
    }

    /// Returns the peer with files with the smallest figure, among those of which this is true.
    fn least(&self, counts: impl Fn(&Entry) -> bool, figure: Figure) -> Option<&Row> {
        let foreign = |row: &&Row| !row.entry.is_ours() && row.entry.persists();
        let peers = self.rows.iter().filter(foreign).filter(|row| counts(row.entry));
        peers.min_by(|one, other| one.median(figure).total_cmp(&other.median(figure)))
    }

    /// Formats a figure with its ratio to ebbtide's in brackets.
    fn cell(&self, row: &Row, figure: Figure, scale: f64) -> String {
        let value = short(row.median(figure) / scale);
        match self.ours() {
            Some(ours) => format!("{value} ({} ×)", short(row.ratio(ours, figure))),
            None => value,
        }
    }

    /// Returns the table under its title, with the findings.
    pub fn markdown(&self) -> String {
        let unsynced = self.durability == Durability::None;
        let mut head = vec!["", "operations/s", "ns"];
        if unsynced {
            head.extend(["memory, B/key", "after a checkpoint", "disk, B/key"]);
        }
        head.push("an answer survives");
        let keys = self.distinct as f64;
        let cells = self.rows.iter().map(|row| {
            let each = row.median(Sample::each);
            let mut cells = vec![row.entry.name.to_owned(), format!("{:.0}", 1e9 / each)];
            cells.push(self.cell(row, Sample::each, 1.0));
            if unsynced {
                cells.push(self.cell(row, |sample| sample.memory, keys));
                cells.push(self.cell(row, |sample| sample.at_rest, keys));
                let persists = row.entry.persists();
                let disk = persists.then(|| self.cell(row, |sample| sample.disk, keys));
                cells.push(disk.unwrap_or_default());
            }
            cells.push(row.entry.outlives(self.durability).to_string());
            cells
        });
        let table = table(&head, &cells.collect::<Vec<_>>());
        let (title, operations, distinct) = (self.title(), self.operations, self.distinct);
        let notes: Vec<String> = self.findings().into_iter().chain(self.left_out()).collect();
        let notes = notes.join("\n");
        let count = match self.durability {
            Durability::None => format!("{operations} operations, {distinct} keys."),
            Durability::Always => format!("At most {operations} operations."),
        };
        format!("## {title}\n\n{count}\n\n{table}\n{notes}\n")
    }

    /// Returns the peers that did not take part, by reason.
    fn left_out(&self) -> Vec<String> {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for &(entry, reason) in &self.left_out {
            match reasons.iter_mut().find(|known| known.0 == reason) {
                Some((_, names)) => names.push(entry.name),
                None => reasons.push((reason, vec![entry.name])),
            }
        }
        let line =
            |(reason, names): &(_, Vec<_>)| format!("- Left out: {} ({reason}).", names.join(", "));
        reasons.iter().map(line).collect()
    }

    /// Returns the findings about the goals.
    fn findings(&self) -> Vec<String> {
        let Some(ours) = self.ours() else {
            return Vec::new();
        };
        let mut findings = Vec::new();
        if !self.syncs.is_empty() {
            let rounds = ours.samples.iter().zip(&self.syncs);
            let shares = rounds.map(|(sample, sync)| sync / sample.each() / self.writers as f64);
            let (time, share) = (median(self.syncs.clone()) / 1e3, median(shares.collect()));
            findings.push(format!(
                "- `fdatasync` of a page: {} µs. {OURS} does {} of (writers / that time).",
                short(time),
                short(share)
            ));
        }
        let mut least = |what: &str, row: Option<&Row>, figure: Figure| {
            if let Some(row) = row {
                let (name, ratio) = (row.entry.name, short(row.ratio(ours, figure)));
                findings.push(format!("- {what}: {name}, {ratio} × {OURS}."));
            }
        };
        let one = |entry: &Entry| entry.group == 1;
        least("Fastest peer with files", self.least(one, Sample::each), Sample::each);
        if self.durability == Durability::None {
            let safe = self.least(|entry| one(entry) && !entry.fragile, Sample::each);
            least("Fastest whose files a power cut does not destroy", safe, Sample::each);
            let many = |entry: &Entry| entry.group > 1;
            let fastest = self.least(many, Sample::each);
            least("Fastest peer with files, many operations at once", fastest, Sample::each);
            let figures: [(&str, Figure); 3] = [
                ("Least memory of a peer with files", |sample| sample.memory),
                ("Least memory after a checkpoint", |sample| sample.at_rest),
                ("Least disk after a checkpoint", |sample| sample.disk),
            ];
            for (what, figure) in figures {
                least(what, self.least(|_| true, figure), figure);
            }
        }
        findings
    }
}

/// Formats a Markdown table whose columns are aligned in the source too.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count(), 3]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    let mut line = |cells: &[&str]| {
        for (cell, &width) in cells.iter().zip(&widths) {
            let _ = write!(out, "| {cell:<width$} ");
        }
        out.push_str("|\n");
    };
    line(head);
    line(&vec!["---"; head.len()]);
    for row in rows {
        line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, times: &[f64], memory: f64) -> Row {
        let entry = Entry::named(name).expect("a peer");
        let sample = |&nanoseconds: &f64| Sample {
            operations: 10,
            nanoseconds,
            memory,
            at_rest: memory,
            disk: 2.0 * memory,
        };
        Row { entry, samples: times.iter().map(sample).collect() }
    }

    fn scene(durability: Durability, rows: Vec<Row>, syncs: Vec<f64>) -> Scene {
        let stream = "uniform".to_owned();
        let left_out =
            ["moka", "fastbloom"].map(|name| (Entry::named(name).expect("a peer"), "no files"));
        Scene {
            stream,
            operations: 10,
            distinct: 10,
            durability,
            writers: 4,
            rows,
            left_out: left_out.into(),
            syncs,
        }
    }

    #[test]
    fn figures_are_short() {
        let all = [1234.5, 99.96, 12.34, 9.999, 0.123].map(short);
        assert_eq!(all, ["1234", "100", "12.3", "10.0", "0.12"]);
    }

    #[test]
    fn ratios_are_of_the_same_round_so_noise_that_hits_both_does_not_count() {
        let ours = row(OURS, &[100.0, 1000.0, 200.0], 1.0);
        let peer = row("lmdb", &[300.0, 2000.0, 800.0], 1.0);
        assert_eq!(peer.ratio(&ours, Sample::each), 3.0);
        assert_eq!(ours.ratio(&ours, Sample::each), 1.0);
    }

    #[test]
    fn the_fastest_peer_has_files_and_is_not_ours() {
        let rows = vec![
            row(OURS, &[100.0], 35.0),
            row("ebbtide-1000", &[50.0], 35.0),
            row("fastbloom", &[20.0], 18.0),
            row("lmdb", &[900.0], 500.0),
            row("fjall", &[2500.0], 400.0),
            row("lmdb-1000", &[600.0], 500.0),
        ];
        let scene = scene(Durability::None, rows, Vec::new());
        let text = scene.markdown();
        assert!(text.contains("Fastest peer with files: lmdb, 9.00 × ebbtide."), "{text}");
        let safe = "Fastest whose files a power cut does not destroy: fjall, 25.0 × ebbtide.";
        assert!(text.contains(safe), "{text}");
        assert!(text.contains("at once: lmdb-1000, 6.00 × ebbtide."), "{text}");
        assert!(text.contains("Least disk after a checkpoint: fjall, 11.4 × ebbtide."), "{text}");
        assert!(text.contains("| 3.50 (1.00 ×)"), "{text}");
    }

    #[test]
    fn syncs_are_compared_with_what_the_disk_could_do_for_as_many_writers() {
        // Ten operations in 500 ns by four writers, where a sync takes 100 ns: half of four in 100
        // ns.
        let scene = scene(Durability::Always, vec![row(OURS, &[500.0], 0.0)], vec![100.0]);
        let text = scene.markdown();
        assert!(text.contains("ebbtide does 0.50 of (writers / that time)"), "{text}");
        assert!(text.contains("- Left out: moka, fastbloom (no files)."), "{text}");
    }
}
