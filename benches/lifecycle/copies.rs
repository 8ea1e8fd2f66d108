//! Checkpoints, backups and restores, compared with plain copies of the same size.
//!
//! A checkpoint also removes the snapshot before the last one. That may take longer than writing
//! one if the file system informs the disk of freed blocks, so the removal of a plain file is
//! measured as well.

use super::large::{self, MIB, head, key, row};
use super::measuring::{middle, seconds, touch};
use ebbtide::{Durability, Filter, Options, inspect};
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::Path;

/// The bytes read or written at a time.
const PIECE: usize = 1 << 20;

/// The seconds of each, in one round.
struct Round {
    checkpoint: f64,
    backup: f64,
    restore: f64,
    write: f64,
    remove: f64,
    read: f64,
    copy: f64,
    copy_to_fresh: f64,
}

/// A value of a round.
type Figure = fn(&Round) -> f64;

/// Writes this many bytes to a new file and makes them durable.
fn write(path: &Path, bytes: u64) {
    let piece = vec![7; PIECE];
    let mut file = File::create(path).expect("a file");
    for _ in 0..bytes / PIECE as u64 {
        file.write_all(&piece).expect("space");
    }
    file.sync_data().expect("a sync");
}

/// Reads a file to its end.
pub fn read(path: &Path) {
    let (mut file, mut piece) = (File::open(path).expect("a file"), vec![0; PIECE]);
    while file.read(&mut piece).expect("bytes") > 0 {
        black_box(&piece);
    }
}

fn round(filter: &Filter<ebbtide::Any>, directory: &Path, number: u64, bytes: u64) -> Round {
    let [plain, copy, restored] = ["plain", "copy", "restored"].map(|name| directory.join(name));
    // Without a change there is nothing to write.
    filter.insert(key(number)).expect("an insert");
    let (write, checkpoint) = (
        || seconds(|| write(&plain, bytes)),
        || seconds(|| assert!(filter.checkpoint().expect("a checkpoint") > 0)),
    );
    let (write, checkpoint) = match number % 2 {
        0 => (write(), checkpoint()),
        _ => {
            let checkpoint = checkpoint();
            (write(), checkpoint)
        }
    };
    let read = seconds(|| read(&plain));
    let remove = seconds(|| fs::remove_file(&plain).expect("it is there"));
    let backup = seconds(|| filter.backup(&copy).expect("a backup"));
    let restore = seconds(|| inspect::restore(&copy, &restored).expect("a restore"));
    for path in [&copy, &restored] {
        fs::remove_dir_all(path).expect("it is there");
    }
    let from = vec![1_u8; bytes as usize];
    let mut to = Vec::new();
    let copy_to_fresh = seconds(|| to.extend_from_slice(&from));
    let copy = seconds(|| to.copy_from_slice(&from));
    black_box(&to);
    Round { checkpoint, backup, restore, write, remove, read, copy, copy_to_fresh }
}

/// Prints the table.
pub fn run(rounds: usize, mib: u64) {
    let directory = large::directory();
    let options = Options::new().durability(Durability::Never).checkpoint_bytes(u64::MAX);
    let filter = Filter::create(
        directory.path().join("filter"),
        large::spec("age-partitioned", mib),
        options,
    );
    let filter = filter.expect("a filter");
    touch(&filter, mib);
    filter.checkpoint().expect("a checkpoint");
    let bytes = filter.stat().expect("figures").memory_bytes;
    let rounds: Vec<_> =
        (0..rounds as u64).map(|number| round(&filter, directory.path(), number, bytes)).collect();
    println!("\nCopies at {mib} MiB, {} rounds\n", rounds.len());
    head(&[
        "",
        "seconds",
        "MiB/s",
        "beside write and fdatasync",
        "beside these and a removal",
        "beside memory copy",
    ]);
    let figures: [(&str, Figure); 8] = [
        ("checkpoint", |round| round.checkpoint),
        ("backup", |round| round.backup),
        ("restore", |round| round.restore),
        ("plain write and fdatasync", |round| round.write),
        ("removal of as large a file", |round| round.remove),
        ("plain read, cached", |round| round.read),
        ("memory copy", |round| round.copy),
        ("memory copy to fresh pages", |round| round.copy_to_fresh),
    ];
    for (name, figure) in figures {
        let taken = middle(&rounds, figure);
        row([
            name.to_owned(),
            format!("{taken:.3}"),
            format!("{:.0}", (bytes / MIB) as f64 / taken),
            format!("{:.2} ×", middle(&rounds, |round| figure(round) / round.write)),
            format!(
                "{:.2} ×",
                middle(&rounds, |round| figure(round) / (round.write + round.remove))
            ),
            format!("{:.2} ×", middle(&rounds, |round| figure(round) / round.copy)),
        ]);
    }
}
