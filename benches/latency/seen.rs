//! The measurements.

use super::large::{row, time};
use hdrhistogram::Histogram;
use std::fs;
use std::ops::{AddAssign, Sub};

/// The printed quantiles.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];
/// The longest time that is distinguished from longer ones.
const MOST_NANOS: u64 = 60_000_000_000;

/// A histogram of times with three digits.
fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MOST_NANOS, 3).expect("bounds that can be")
}

/// Times of an operation, separated by whether a checkpoint ran meanwhile.
pub struct Times {
    alone: Histogram<u64>,
    beside: Histogram<u64>,
    /// The scheduling events of the threads meanwhile.
    pub tasks: Tasks,
}

impl Times {
    fn new() -> Self {
        Self { alone: times(), beside: times(), tasks: Tasks::default() }
    }

    /// Records a time.
    #[inline]
    pub fn note(&mut self, nanos: u64, beside: bool) {
        let histogram = if beside { &mut self.beside } else { &mut self.alone };
        histogram.saturating_record(nanos);
    }

    fn add(&mut self, other: &Self) {
        self.alone.add(&other.alone).expect("the same bounds");
        self.beside.add(&other.beside).expect("the same bounds");
        self.tasks += other.tasks;
    }

    fn print(&self, name: &str) {
        let mut all = self.alone.clone();
        all.add(&self.beside).expect("the same bounds");
        print(name, &all);
        print(&format!("{name}, while a checkpoint runs"), &self.beside);
        print(&format!("{name}, while none runs"), &self.alone);
    }
}

/// The measurements of a thread.
pub struct Seen {
    /// Single inserts.
    pub insert: Times,
    /// Inserts that caused a shift.
    pub shift: Histogram<u64>,
    /// The control.
    pub control: Times,
}

impl Seen {
    /// Creates empty measurements.
    pub fn new() -> Self {
        Self { insert: Times::new(), shift: times(), control: Times::new() }
    }

    /// Combines the measurements of two threads.
    pub fn add(mut self, other: Self) -> Self {
        self.insert.add(&other.insert);
        self.shift.add(&other.shift).expect("the same bounds");
        self.control.add(&other.control);
        self
    }

    /// Prints a table's rows.
    pub fn print(&self) {
        self.insert.print("insert");
        print("insert, that shifted", &self.shift);
        self.control.print("control");
    }

    /// Prints the scheduling events of the threads.
    pub fn print_tasks(&self) {
        for (name, times) in [("inserts", &self.insert), ("control", &self.control)] {
            let Tasks { preempted, faults } = times.tasks;
            println!("{name}: preempted {preempted} times, {faults} page faults");
        }
    }
}

fn print(name: &str, times: &Histogram<u64>) {
    if times.is_empty() {
        return;
    }
    let quantiles = QUANTILES.map(|quantile| time(times.value_at_quantile(quantile) as f64));
    let cells = [name.to_owned(), times.len().to_string()].into_iter().chain(quantiles);
    row(cells.chain([time(times.max() as f64)]));
}

/// The scheduling events of a thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tasks {
    preempted: u64,
    faults: u64,
}

impl Tasks {
    /// Returns the events since the start of the thread.
    pub fn now() -> Self {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let preempted =
            status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
        // The tenth field; the second one, in parentheses, may contain spaces.
        let faults = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(7));
        let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok());
        Self {
            preempted: number(preempted).unwrap_or_default(),
            faults: number(faults).unwrap_or_default(),
        }
    }

    /// Returns the events since an earlier count.
    pub fn until_now(self) -> Self {
        Self::now() - self
    }
}

impl Sub for Tasks {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { preempted: self.preempted - before.preempted, faults: self.faults - before.faults }
    }
}

impl AddAssign for Tasks {
    fn add_assign(&mut self, more: Self) {
        self.preempted += more.preempted;
        self.faults += more.faults;
    }
}

/// Returns the seconds of processor time that the machine's host gave to other machines since the
/// start.
pub fn stolen() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // The line `cpu`: user, nice, system, idle, iowait, irq, softirq, steal, in hundredths of a
    // second.
    let steal = stat.lines().next().and_then(|line| line.split_whitespace().nth(8));
    steal.and_then(|text| text.parse::<f64>().ok()).unwrap_or_default() / 100.0
}
