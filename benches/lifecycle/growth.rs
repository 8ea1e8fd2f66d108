//! What grows with the number of keys, and how fast: full windows of a million to a billion keys.
//!
//! `cargo bench --bench lifecycle -- --only growth [--kind fingerprint] [--keys 1e6,1e7,1e8,1e9]
//! [--records 10000000] [--plot FILE.svg]`
//!
//! Of each operation the time of one, in a turn of two million; of checkpoint, backup, opening and
//! recovery the whole time. The recovery is that of a process that was killed after `--records`
//! inserts since its snapshot. A billion keys take 10 GiB of the disk and half an hour.

use super::crash;
use super::large::{self, argument, head, key, row, time};
use super::measuring::seconds;
use ebbtide::{Any, Durability, Filter, Options, Parameters};
use plotters::prelude::*;
use std::hint::black_box;

/// The inserts and questions of a turn.
const TURN: u64 = 2_000_000;
/// The keys of a batch.
const BATCH: u64 = 4096;

/// What is measured, in the order of the table: the first ones are of one operation.
const FIGURES: [&str; 9] = [
    "insert",
    "check-and-insert",
    "contains, present",
    "contains, absent",
    "bulk check-and-insert",
    "checkpoint",
    "backup",
    "open",
    "recovery",
];
/// How many of them are of one operation.
const OPERATIONS: usize = 5;

/// Returns the nanoseconds of each of these operations.
fn each(count: u64, work: impl FnOnce()) -> f64 {
    seconds(work) * 1e9 / count as f64
}

fn batches(keys: std::ops::Range<u64>, mut with: impl FnMut(&[[u8; 16]])) {
    let mut batch = Vec::new();
    for start in keys.clone().step_by(BATCH as usize) {
        batch.clear();
        batch.extend((start..keys.end.min(start + BATCH)).map(key));
        with(&batch);
    }
}

/// Measures a filter with a full window of this many keys. Returns its bytes and the figures.
fn measure(kind: &str, keys: u64, records: u64) -> (u64, [f64; FIGURES.len()]) {
    let directory = large::directory();
    let (dir, copy) = (directory.path().join("filter"), directory.path().join("copy"));
    let spec = Any::new(kind, Parameters::new().with("window-items", keys));
    let options = Options::new().durability(Durability::Never);
    let filter = Filter::create(&dir, spec, options).expect("space");
    let mut next = 0;
    let mut take = |count: u64| {
        next += count;
        next - count..next
    };
    // Twice, so that each block has aged.
    batches(take(2 * keys), |keys| {
        filter.insert_all(keys).expect("inserts");
    });
    let turn = TURN.min(keys);
    let insert = each(turn, || {
        for number in take(turn) {
            black_box(filter.insert(key(number)).expect("an insert"));
        }
    });
    let check = each(turn, || {
        for number in take(turn) {
            black_box(filter.check_and_insert(key(number)).expect("an insert"));
        }
    });
    // Of the whole window, in no order.
    let end = take(0).end;
    let step = (keys / turn * 2 / 3) | 1;
    let contains = |from: u64| {
        each(turn, || {
            for number in 0..turn {
                let key = key(from.wrapping_sub(1 + number * step % keys));
                black_box(filter.contains(key).expect("an answer"));
            }
        })
    };
    let (present, absent) = (contains(end), contains(1 << 60));
    let bulk = each(turn, || {
        let mut answers = Vec::new();
        batches(take(turn), |keys| {
            answers.clear();
            filter.check_and_insert_all(keys, &mut answers).expect("inserts");
        });
    });
    let checkpoint = seconds(|| assert!(filter.checkpoint().expect("space") > 0)) * 1e9;
    filter.insert(key(take(1).start)).expect("an insert");
    let backup = seconds(|| filter.backup(&copy).expect("space")) * 1e9;
    std::fs::remove_dir_all(&copy).expect("it is there");
    let bytes = filter.stat().expect("figures").memory_bytes;
    filter.close().expect("closed");
    drop(filter);
    let opened = crash::round(&dir, take(0).end, records);
    let (open, recovery) = (opened.clean * 1e9, opened.crashed * 1e9);
    (bytes, [insert, check, present, absent, bulk, checkpoint, backup, open, recovery])
}

fn plot(path: &str, rows: &[(u64, [f64; FIGURES.len()])]) {
    const WIDE: (u32, u32) = (900, 420);
    let root = SVGBackend::new(path, WIDE).into_drawing_area();
    root.fill(&WHITE).expect("a picture");
    let (first, last) = (rows[0].0 as f64, rows[rows.len() - 1].0 as f64);
    let sides = root.split_evenly((1, 2));
    let titles = ["one operation, ns", "the whole filter, s"];
    for (at, (side, title)) in sides.iter().zip(titles).enumerate() {
        let range = if at == 0 { 0..OPERATIONS } else { OPERATIONS..FIGURES.len() };
        let unit = if at == 0 { 1.0 } else { 1e-9 };
        let all = rows.iter().flat_map(|(_, figures)| &figures[range.clone()]);
        let bounds = all.fold((f64::MAX, 0_f64), |(least, most), &figure| {
            (least.min(figure * unit), most.max(figure * unit))
        });
        let mut chart = ChartBuilder::on(side)
            .caption(title, ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(34)
            .y_label_area_size(48)
            .build_cartesian_2d(
                (first..last).log_scale(),
                (bounds.0 * 0.7..bounds.1 * 1.6).log_scale(),
            )
            .expect("a chart");
        let power = |keys: &f64| format!("10^{}", keys.log10().round());
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("keys").x_label_formatter(&power).y_label_formatter(&f64::to_string);
        mesh.light_line_style(TRANSPARENT).draw().expect("a chart");
        for (color, figure) in range.enumerate() {
            let points = rows.iter().map(|(keys, all)| (*keys as f64, all[figure] * unit));
            let color = Palette99::pick(color).to_rgba();
            let line = LineSeries::new(points, color.stroke_width(2)).point_size(3);
            let drawn = chart.draw_series(line).expect("a line");
            drawn.label(FIGURES[figure]).legend(move |(x, y)| {
                PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2))
            });
        }
        let labels =
            chart.configure_series_labels().position(SeriesLabelPosition::UpperLeft).draw();
        labels.expect("a chart");
    }
    root.present().expect("a file");
}

/// Prints the table, and draws it.
pub fn run() {
    let kind: String = argument("kind", "fingerprint".to_owned());
    let sizes: String = argument("keys", "1e6,1e7,1e8,1e9".to_owned());
    let records = argument("records", 10_000_000);
    println!("`{kind}`, a full window of each size; recovery with {records} records\n");
    let mut names = vec!["keys", "MiB"];
    names.extend(FIGURES);
    head(&names);
    let mut rows = Vec::new();
    for size in sizes.split(',') {
        let keys = size.parse::<f64>().expect("--keys 1e6,1e7") as u64;
        let (bytes, figures) = measure(&kind, keys, records);
        let mut cells = vec![size.to_owned(), (bytes / large::MIB).to_string()];
        cells.extend(figures.map(time));
        row(cells);
        rows.push((keys, figures));
    }
    let path: String = argument("plot", String::new());
    if !path.is_empty() && rows.len() > 1 {
        plot(&path, &rows);
    }
}
