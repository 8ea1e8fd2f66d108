//! Power cuts by number.
//!
//! Eight are a unit: a recording on an empty disk with five power cuts, and a second one with
//! three. The second begins on the disk after a power cut of the first, so that the power also
//! fails while the filter recovers. A unit is determined by its number and the seed, except for the
//! timing of the machine.

use crate::crew::filter_of;
use crate::cut::Cut;
use crate::image::Image;
use crate::oracle::Oracle;
use crate::recording::{Recording, keep};
use crate::scenes::{SCENES, Scene};
use crate::settings::Settings;
use crate::shelter::{done, reboot};
use ebbtide_testkit::random::{Random, mix};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The number of power cuts of a first recording, and of a second.
const CUTS: [u64; 2] = [5, 3];
const UNIT: u64 = CUTS[0] + CUTS[1];

/// The results of a run.
#[derive(Debug, Default)]
struct Results {
    cuts: u64,
    recordings: u64,
    entries: u64,
    /// Writes that no flush covered.
    open: u64,
    /// Cuts with such writes.
    torn: u64,
    nothing: u64,
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} power cuts of {} recordings ({} writes and flushes); in {} some writes were not \
             flushed ({} in all), {} came before there was a filter",
            self.cuts, self.recordings, self.entries, self.torn, self.open, self.nothing
        )
    }
}

/// One run.
struct Run<'a> {
    settings: &'a Settings,
    home: &'a Path,
    results: Results,
    began: Instant,
    told: Instant,
}

/// Runs the requested power cuts.
pub fn all(settings: &Settings, home: &Path) -> Result<(), String> {
    let now = Instant::now();
    let mut run = Run { settings, home, results: Results::default(), began: now, told: now };
    match &settings.replay {
        Some(dir) => {
            let mut recording = Recording::read(dir)?;
            let mut oracle = Oracle::new(recording.scene);
            run.cuts(&mut recording, &mut oracle, settings.from..settings.from + settings.states)?;
        }
        None => {
            let mut next = settings.from;
            while next < settings.from + settings.states {
                next = run.unit(next)?;
            }
        }
    }
    let seconds = run.began.elapsed().as_secs();
    println!("{}; seed {}, from {}, {seconds} s", run.results, settings.seed, settings.from);
    Ok(())
}

/// Checks that an engine that acknowledges before the flush would be detected: each acknowledgement
/// is moved to the time of the one before it.
pub fn early_acknowledgements(settings: &Settings, home: &Path) -> Result<(), String> {
    const CUTS: u64 = 100;
    let scene = &SCENES[0];
    let mut recording = Recording::make(&home.join("early"), scene, settings.seed, None, None)?;
    recording.noted = recording.noted.hastened();
    let mut oracle = Oracle::new(scene);
    let mut caught = |number| {
        let mut random = Random::new(number);
        let cut = Cut::any(&recording.log, &recording.noted, &mut random);
        check(home, &mut recording, &cut, &mut oracle, &mut random).is_err()
    };
    match (0..CUTS).find(|&number| caught(number)) {
        Some(number) => {
            println!("detected by the power cut number {number}");
            Ok(())
        }
        None => Err(format!("not detected by {CUTS} power cuts, seed {}", settings.seed)),
    }
}

/// Builds the disk after a power cut, mounts it in another simulated boot of the machine, and
/// checks the filter.
fn check(
    home: &Path,
    recording: &mut Recording,
    cut: &Cut,
    oracle: &mut Oracle,
    random: &mut Random,
) -> Result<bool, String> {
    reboot(home, random.below(1 << 40)).map_err(|error| error.to_string())?;
    let disk = recording.disk(cut);
    let (file, mounted) = (home.join("state.img"), home.join("state"));
    let made = disk.write(&file).and_then(|()| std::fs::create_dir_all(&mounted));
    made.map_err(|error| error.to_string())?;
    done(Command::new("mount").args(["-o", "loop"]).args([&file, &mounted]))?;
    let promised = recording.promised(cut);
    let looked =
        catch_unwind(AssertUnwindSafe(|| oracle.check(&filter_of(&mounted), promised, random)));
    done(Command::new("umount").arg(&mounted))?;
    looked.unwrap_or_else(|_| Err("a panic, printed above".to_owned()))
}

impl Run<'_> {
    fn random(&self, number: u64) -> Random {
        Random::new(mix(self.settings.seed) ^ mix(number))
    }

    /// Runs the power cuts from this number on that belong to the same unit. Returns the number of
    /// the next.
    fn unit(&mut self, from: u64) -> Result<u64, String> {
        let unit = from / UNIT;
        let upto = ((unit + 1) * UNIT).min(self.settings.from + self.settings.states);
        let scene = self.settings.scene.unwrap_or(&SCENES[unit as usize % SCENES.len()]);
        let mut random = self.random(!unit);
        let mut oracle = Oracle::new(scene);
        let second = unit * UNIT + CUTS[0];
        let mut recording = self.record(from, scene, random.below(u64::MAX), None)?;
        self.cuts(&mut recording, &mut oracle, from.min(second)..upto.min(second))?;
        if upto > second {
            let cut = Cut::any(&recording.log, &recording.noted, &mut random);
            let left = (recording.disk(&cut), recording.promised(&cut));
            let seed = random.below(u64::MAX);
            let mut recording = self.record(from, scene, seed, Some((&left.0, left.1)))?;
            self.cuts(&mut recording, &mut oracle, from.max(second)..upto)?;
        }
        Ok(upto)
    }

    fn record(
        &mut self,
        number: u64,
        scene: &'static Scene,
        seed: u64,
        left: Option<(&Image, Option<[u64; 2]>)>,
    ) -> Result<Recording, String> {
        reboot(self.home, seed >> 24).map_err(|error| error.to_string())?;
        let dir = self.home.join(if left.is_some() { "second" } else { "first" });
        let mounted = self.settings.mount.as_deref();
        let recording = Recording::make(&dir, scene, seed, mounted, left).map_err(|why| {
            let seed = self.settings.seed;
            let kept = self.kept(&dir, number);
            format!("recording for number {number}, `{}`, seed {seed}: {why}\n{kept}", scene.name)
        })?;
        self.results.recordings += 1;
        self.results.entries += recording.log.entries().len() as u64;
        Ok(recording)
    }

    fn cuts(
        &mut self,
        recording: &mut Recording,
        oracle: &mut Oracle,
        numbers: std::ops::Range<u64>,
    ) -> Result<(), String> {
        let mut cuts: Vec<_> = numbers
            .map(|number| {
                let mut random = self.random(number);
                let cut = Cut::any(&recording.log, &recording.noted, &mut random);
                (number, cut, random)
            })
            .collect();
        cuts.sort_by_key(|(_, cut, _)| cut.issued);
        for (number, cut, mut random) in cuts {
            let open = cut.open(&recording.log).len() as u64;
            let found = check(self.home, recording, &cut, oracle, &mut random)
                .map_err(|what| self.failed(recording, number, &cut, &what))?;
            self.results.cuts += 1;
            self.results.open += open;
            self.results.torn += u64::from(open > 0);
            self.results.nothing += u64::from(!found);
        }
        if self.told.elapsed() > Duration::from_secs(5) {
            self.told = Instant::now();
            eprintln!("{} of {} power cuts", self.results.cuts, self.settings.states);
        }
        Ok(())
    }

    /// Keeps the recording and prints how to reproduce the failure.
    fn failed(&self, recording: &Recording, number: u64, cut: &Cut, what: &str) -> String {
        let (name, seed) = (recording.scene.name, self.settings.seed);
        let told = format!("number {number}, `{name}`, seed {seed}, {cut}: {what}");
        if self.settings.replay.is_some() {
            return told;
        }
        let kept = self.kept(recording.dir(), number);
        format!("{told}\n{kept}\nagain: --replay THERE --seed {seed} --from {number} --states 1")
    }

    fn kept(&self, dir: &Path, number: u64) -> String {
        match keep(dir, &format!("{}-{number}", self.settings.seed)) {
            Ok(kept) => format!("the recording is kept: {}", kept.display()),
            Err(error) => format!("the recording could not be kept: {error}"),
        }
    }
}
