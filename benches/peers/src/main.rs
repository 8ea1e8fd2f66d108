//! Runs the same check-and-insert stream on ebbtide and its alternatives: measures time per
//! operation, memory and disk space per key.
//!
//! Each peer runs in each round in a separate process, one after the other; each round begins with
//! another peer. Results are medians over the rounds, ratios are medians of ratios within a round.
//! README.md describes the settings of each peer.

mod chart;
mod measure;
mod peers;
mod report;
mod resources;
mod stream;

use clap::{Parser, Subcommand};
use measure::Order;
use peers::{ALL, Durability, Entry, Result};
use report::{Row, Scene};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use stream::{Source, Stream};

/// Runs the same check-and-insert stream on ebbtide and its alternatives.
#[derive(Parser)]
#[command(disable_help_subcommand = true)]
struct Arguments {
    /// The number of operations.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// `uniform` (each key is new), `zipf` (exponent 1), or a file: each line is a key, or with
    /// `FILE:N` the Nth word of each.
    #[arg(long, value_delimiter = ',', default_value = "uniform")]
    stream: Vec<Source>,
    /// `none` (no fsync) or `always` (an fsync for each operation, or one that several writers
    /// share).
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,always")]
    durability: Vec<Durability>,
    /// The number of concurrent threads, or tasks. Default: 1 without fsync; 1, 8, 64 and 512 with
    /// it.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    writers: Vec<u16>,
    /// Runs only these peers.
    #[arg(long, value_delimiter = ',', value_parser = entry)]
    peers: Vec<&'static Entry>,
    /// The number of rounds over which medians are taken.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// The seconds after which each run with fsync stops, if its keys last that long.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// The directory of temporary files: on the file system to measure. Default: beside this
    /// program.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Writes `peers.md`, a chart for each stream and a summary of the first to this directory.
    #[arg(long)]
    write: Option<PathBuf>,
    #[command(subcommand)]
    inner: Option<Inner>,
}

#[derive(Subcommand)]
enum Inner {
    /// One run of one peer, in a separate process.
    #[command(hide = true)]
    Measure(Order),
}

fn entry(name: &str) -> std::result::Result<&'static Entry, String> {
    let names: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
    Entry::named(name).ok_or_else(|| format!("there are {}", names.join(", ")))
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    let done = match arguments.inner.take() {
        Some(Inner::Measure(order)) => order.obey(),
        None => compare(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn writers(&self, durability: Durability) -> Vec<usize> {
        match (self.writers.as_slice(), durability) {
            ([], Durability::None) => vec![1],
            ([], Durability::Always) => vec![1, 8, 64, 512],
            (given, _) => given.iter().map(|&writers| writers.into()).collect(),
        }
    }

    fn entries(&self) -> Vec<&'static Entry> {
        if self.peers.is_empty() { ALL.iter().collect() } else { self.peers.clone() }
    }
}

/// Measures everything requested, and prints each scene when it is complete.
fn compare(arguments: &Arguments) -> Result<()> {
    let beside = std::env::current_exe()?.parent().map(Path::to_owned).unwrap_or_default();
    let parent = arguments.dir.as_ref().unwrap_or(&beside);
    let dir = tempfile::Builder::new().prefix("peers-").tempdir_in(parent)?;
    let head = head(arguments);
    println!("{head}");
    if resources::in_memory(dir.path())? {
        println!("{} is in memory: syncs cost nothing there. Choose a --dir.\n", parent.display());
    }
    if cfg!(not(feature = "rocksdb")) {
        println!("skipped: rocksdb was not compiled in (feature `rocksdb`)\n");
    }
    let mut scenes = Vec::new();
    for source in &arguments.stream {
        let length = usize::try_from(arguments.keys)?;
        let Some(stream) = Stream::read(source, length)? else {
            println!("skipped: the file of stream {source} is not there\n");
            continue;
        };
        let keys = dir.path().join("keys");
        fs::write(&keys, stream.keys.as_flattened())?;
        for &durability in &arguments.durability {
            for writers in arguments.writers(durability) {
                let scene = measure_scene(arguments, dir.path(), &stream, durability, writers)?;
                println!("{}", scene.markdown());
                scenes.push(scene);
            }
        }
    }
    match &arguments.write {
        Some(folder) => write_down(folder, &head, &scenes),
        None => Ok(()),
    }
}

/// Measures all rounds of one stream, durability and number of writers.
fn measure_scene(
    arguments: &Arguments,
    dir: &Path,
    stream: &Stream,
    durability: Durability,
    writers: usize,
) -> Result<Scene> {
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for entry in arguments.entries() {
        match entry.skipped(durability, writers) {
            None => rows.push(Row { entry, samples: Vec::new() }),
            Some(reason) => left_out.push((entry, reason)),
        }
    }
    let mut syncs = Vec::new();
    for round in 0..usize::from(arguments.rounds) {
        if durability == Durability::Always {
            syncs.push(resources::fdatasync(dir)?);
        }
        for turn in 0..rows.len() {
            // Each round begins with another peer, so that no peer is always first, or always after
            // the same one.
            let at = (round + turn) % rows.len();
            let row = &mut rows[at];
            let order = Order {
                peer: row.entry.name.to_owned(),
                keys: dir.join("keys"),
                distinct: stream.distinct,
                durability,
                writers,
                seconds: arguments.seconds,
                dir: dir.join("peer"),
            };
            fs::create_dir(&order.dir)?;
            resources::settle(dir)?;
            row.samples.push(order.run()?);
            fs::remove_dir_all(&order.dir)?;
        }
    }
    let (stream, operations, distinct) = (stream.name.clone(), stream.keys.len(), stream.distinct);
    Ok(Scene { stream, operations, distinct, durability, writers, rows, left_out, syncs })
}

/// Describes the machine and the versions.
fn head(arguments: &Arguments) -> String {
    let system = rustix::system::uname();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (name, release) = (system.sysname().to_string_lossy(), system.release().to_string_lossy());
    let (versions, rounds) = (peers::versions(), arguments.rounds);
    format!(
        "{name} {release}, {cores} cores; {versions}. Medians of {rounds} rounds; in brackets, \
         times ebbtide's figure in the same round.\n"
    )
}

/// Writes all tables to one file, a chart for each stream, and a summary of the first.
fn write_down(folder: &Path, head: &str, scenes: &[Scene]) -> Result<()> {
    fs::create_dir_all(folder)?;
    let tables: Vec<String> = scenes.iter().map(Scene::markdown).collect();
    let path = folder.join("peers.md");
    fs::write(&path, format!("{head}\n{}", tables.join("\n")))?;
    println!("table: {}", path.display());
    let path = folder.join("summary.svg");
    if chart::draw_summary(&path, scenes)? {
        println!("chart: {}", path.display());
    }
    for scenes in scenes.chunk_by(|one, next| one.stream == next.stream) {
        let path = folder.join(format!("peers-{}.svg", scenes[0].stream));
        chart::draw(&path, scenes)?;
        println!("chart: {}", path.display());
    }
    Ok(())
}
