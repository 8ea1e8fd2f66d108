//! The filter of a run of `dedup` without `--state`: in this process, without files.

use super::stream::{Fed, Settings};
use crate::args::Dedup;
use crate::failure::{Failure, Result};
use ebbtide::kinds::spec::Spec;
use ebbtide::machine::{Machine, MachineOptions};
use ebbtide::media::{Disk, Media};
use ebbtide::{Any, Checked, Parameters, Since, Timestamp};
use ebbtide_core::hash::{KeyHasher, Seed};
use ebbtide_core::kind::{Precondition, Request};
use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;

/// A filter that ends with its process.
pub struct InMemory {
    machine: RefCell<Machine>,
    clock: RunClock,
}

impl InMemory {
    /// Creates an empty filter with the settings of the command line.
    pub fn new(spec: &Any, arguments: &Dedup) -> Result<Self> {
        let kind = spec.kind()?;
        let function = arguments.hash.map(Into::into).unwrap_or_default();
        let mut options = MachineOptions::new().key_hash(function);
        if let Some(stripes) = arguments.stripes {
            options = options.stripes(stripes);
        }
        if let Some(lead) = arguments.max_lead {
            options = options.max_lead(u64::try_from(lead.as_micros()).unwrap_or(u64::MAX));
        }
        let secret = match arguments.hash_seed {
            Some(seed) => KeyHasher::from_seed(function, Seed(seed)).secret(),
            None => random(),
        };
        let machine = Machine::create(kind, &options, secret, random())?;
        let planned = machine.planned_bytes();
        // Where it cannot be asked, for want of descriptors for example, the filter is tried.
        let fits = Disk::new(std::env::temp_dir()).check_memory(planned);
        if fits.is_err_and(|error| error.kind() == ErrorKind::OutOfMemory) {
            return Err(Failure::Error(format!(
                "the filter takes {planned} bytes of memory, and there are fewer; choose a smaller \
                 window or a larger --fpr, or --state DIR with --image beside-log"
            )));
        }
        Ok(Self { machine: RefCell::new(machine), clock: RunClock::begin() })
    }

    /// Returns all parameters of the kind.
    pub fn parameters(&self) -> Parameters {
        self.machine.borrow().kind().parameters()
    }
}

/// Returns a number that nobody can guess: the standard library draws keys from the system.
fn random() -> u128 {
    let half = |number: u8| u128::from(RandomState::new().hash_one(number));
    half(0) << 64 | half(1)
}

impl Fed for InMemory {
    type Call<'a> = InMemoryCall<'a>;

    fn call(&self, settings: Settings) -> InMemoryCall<'_> {
        InMemoryCall { filter: self, settings }
    }

    fn latest(&self) -> ebbtide::Result<Option<Timestamp>> {
        let latest = self.machine.borrow().latest().time;
        Ok((latest > 0).then(|| Timestamp::from_unix_micros(latest)))
    }

    fn prefetch(&self, key: &[u8]) -> Option<u64> {
        let machine = self.machine.borrow();
        let hash = machine.hash(key);
        machine.prefetch(hash);
        Some(hash)
    }
}

/// An operation with its settings.
#[derive(Clone, Copy)]
pub struct InMemoryCall<'a> {
    filter: &'a InMemory,
    settings: Settings,
}

impl InMemoryCall<'_> {
    /// Checks and inserts a key.
    pub fn check_and_insert(&self, key: &[u8], since: Since) -> ebbtide::Result<Checked> {
        let mut machine = self.filter.machine.borrow_mut();
        let given = self.settings.time.map(Timestamp::as_unix_micros);
        let needs_clock = machine.kind().uses_time() || given.is_some();
        let time = machine.time(needs_clock.then(|| self.filter.clock.now()), given)?;
        let weight = self.settings.weight.map_or(Ok(1), |given| machine.kind().weight(given))?;
        let hash = self.settings.hash.unwrap_or_else(|| machine.hash(key));
        let request = Request::insert(hash).weighing(weight);
        let request = request.under(Precondition::Present(since));
        Ok(machine.write(&request, time, &mut |_| ())?.checked)
    }
}

/// The time of a run: the wall clock's at its beginning, from then on that of a clock which nobody
/// sets.
struct RunClock {
    begun: u64,
    read: u64,
}

impl RunClock {
    /// It advances while the machine sleeps, where the system has such a clock.
    #[cfg(target_os = "linux")]
    const STEADY: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const STEADY: ClockId = ClockId::Monotonic;

    fn begin() -> Self {
        Self { begun: Timestamp::now().as_unix_micros(), read: Self::read() }
    }

    /// Returns microseconds since the Unix epoch.
    fn now(&self) -> u64 {
        self.begun + Self::read().saturating_sub(self.read)
    }

    fn read() -> u64 {
        let time = clock_gettime(Self::STEADY);
        time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1000
    }
}
