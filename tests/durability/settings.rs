//! The settings of a run, from its arguments.

use ebbtide_testkit::crash::monitor;
use ebbtide_testkit::environment::{SEED, effort, parsed, scaled};
use ebbtide_testkit::samples::{SAMPLES, index_of};

/// The amount and the mode of the work.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The number of random crash images.
    pub images: u64,
    /// The first image, small workload or kind, to continue an earlier run.
    pub from: u64,
    /// The seed of all random choices.
    pub seed: u64,
    /// A single image: seed and number.
    pub only: Option<(u64, u64)>,
    /// The number of small workloads whose power cuts are enumerated completely.
    pub workloads: u64,
    /// One in this many first cuts is followed by all second cuts.
    pub every: u64,
    /// The number of samples in which every call fails.
    pub kinds: u64,
    /// One in this many of those calls fails.
    pub calls: u64,
    /// Whether to continue after a failure and count.
    pub all: bool,
}

impl Settings {
    /// Returns the settings, and the remaining arguments.
    pub fn read() -> (Self, Vec<String>) {
        let mut settings = Self {
            images: scaled(30_000),
            from: 0,
            seed: SEED,
            only: None,
            workloads: 1,
            every: 10_000_u64.div_ceil(effort()),
            kinds: 1,
            // Which ones depends on the seed.
            calls: 200_u64.div_ceil(effort()),
            all: false,
        };
        let mut rest = Vec::new();
        let mut arguments = std::env::args();
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().unwrap_or_else(|| panic!("{name} needs a value"));
            match name.as_str() {
                "--images" => settings.images = parsed(&name, &value()),
                "--from" => settings.from = parsed(&name, &value()),
                "--seed" => settings.seed = parsed(&name, &value()),
                "--workloads" => settings.workloads = parsed(&name, &value()),
                "--every" => settings.every = parsed(&name, &value()).max(1),
                "--kinds" => settings.kinds = parsed(&name, &value()),
                "--calls" => settings.calls = parsed(&name, &value()).max(1),
                "--blind" => monitor::be_blind(),
                "--all" => settings.all = true,
                "--only" => {
                    let text = value();
                    let (seed, image) = text.split_once(':').expect("--only SEED:IMAGE");
                    settings.only = Some((parsed(&name, seed), parsed(&name, image)));
                }
                _ => rest.push(name),
            }
        }
        (settings, rest)
    }

    /// Returns the workloads of the samples in which every call fails: first one that removes and
    /// whose blocks grow, then one whose banks open and close.
    pub fn kinds(&self) -> impl Iterator<Item = u64> {
        let first = ["dynamic-count", "time-limited"].map(index_of);
        let others = (0..SAMPLES.len()).filter(move |sample| !first.contains(sample));
        let all = first.into_iter().chain(others).map(|sample| sample as u64);
        all.skip(self.from as usize).take(self.kinds as usize)
    }

    /// Returns the number of threads: one per processor.
    pub fn threads(&self) -> u64 {
        std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64)
    }
}
