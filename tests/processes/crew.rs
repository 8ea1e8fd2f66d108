//! All children of one directory, and the checks of the files that they leave.

use crate::child::{Checked, Child};
use crate::reports;
use crate::scenes::Scene;
use crate::settings::{HANG, Settings, filter_of};
use crate::witness;
use crate::work::Task;
use crate::worker::Role;
use ebbtide::{Any, Filter, inspect};
use ebbtide_testkit::copies::copy_with_newest_damaged;
use ebbtide_testkit::random::Random;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Children that share a filter.
#[derive(Debug)]
pub struct Crew {
    /// The running children. Dropped, and so killed, before their directory.
    pub children: Vec<Child>,
    scene: &'static Scene,
    seed: u64,
    home: TempDir,
    /// The source of all random choices.
    pub random: Random,
    /// The number of children started.
    started: u64,
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

impl Crew {
    /// Creates a crew without children, in an empty directory. `salt` separates its random choices
    /// from those of others.
    pub fn new(settings: &Settings, scene: &'static Scene, salt: u64) -> Self {
        let random = Random::new(settings.seed ^ salt << 32);
        let (seed, home) = (settings.seed, settings.home());
        Self { scene, seed, home, random, children: Vec::new(), started: 0 }
    }

    /// Acts in this directory; an error names the directory.
    pub fn run<T>(mut self, act: impl FnOnce(&mut Self) -> Checked<T>) -> Checked<T> {
        let done = act(&mut self).and_then(|done| self.silence().map(|()| done));
        done.map_err(|what| {
            // Keep the directory for inspection.
            self.home.disable_cleanup(true);
            let said = self.silence().err().unwrap_or_default();
            let threads = if what.contains("hangs") { self.threads() } else { String::new() };
            format!(
                "{} in {}: {what}\n{said}{threads}",
                self.scene.name,
                self.home.path().display()
            )
        })
    }

    fn recruit(&mut self, task: Task, namespace: bool) -> Checked<Child> {
        let (home, child) = (self.home.path().to_path_buf(), self.started);
        self.started += 1;
        let role = Role { scene: self.scene, child, seed: self.seed, task, home };
        Child::start(&role, namespace)
    }

    /// Starts a child, which opens the filter concurrently.
    pub fn start(&mut self, task: Task) -> Checked<()> {
        let child = self.recruit(task, false)?;
        self.children.push(child);
        Ok(())
    }

    /// Starts a child in a separate namespace.
    pub fn start_apart(&mut self, task: Task) -> Checked<()> {
        let child = self.recruit(task, true)?;
        self.children.push(child);
        Ok(())
    }

    /// Starts a child that only executes commands, with the filter open.
    pub fn helper(&mut self) -> Checked<Child> {
        let mut child = self.recruit(Task::Idle, false)?;
        child.opened()?;
        Ok(child)
    }

    /// Waits until all have the filter open.
    pub fn opened(&mut self) -> Checked<()> {
        self.children.iter_mut().try_for_each(Child::opened)
    }

    /// Kills a random child and waits for its end.
    pub fn kill_any(&mut self) -> Checked<()> {
        let at = self.random.below(self.children.len() as u64) as usize;
        self.children.swap_remove(at).kill()
    }

    /// Kills all children at once.
    pub fn kill_all(&mut self) -> Checked<()> {
        use rustix::process::Signal;
        self.children.iter().try_for_each(|child| child.signal(Signal::KILL))?;
        self.children.drain(..).try_for_each(Child::killed)
    }

    /// Sleeps for a random time between these limits, in microseconds.
    pub fn pause(&mut self, least: u64, most: u64) {
        std::thread::sleep(Duration::from_micros(least + self.random.below(most - least)));
    }

    /// Returns the directory with filter and notes.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Returns the number of operations that have returned, over all children.
    pub fn returned(&self) -> u64 {
        witness::total(self.home(), 0..self.started)
    }

    /// Waits until more than `before` operations have returned.
    pub fn progress(&self, before: u64) -> Checked<()> {
        await_more(before, || self.returned())
            .map_err(|()| format!("no operation returns any more{}", self.threads()))
    }

    /// Waits until one more operation of a child has returned.
    pub fn progress_of(&self, child: u64) -> Checked<()> {
        let returned = || witness::total(self.home(), child..=child);
        await_more(returned(), returned)
            .map_err(|()| format!("child {child} makes no progress{}", self.threads()))
    }

    fn threads(&self) -> String {
        let of =
            |child: &Child| format!("\nchild {}:{}", child.number, reports::threads(child.pid()));
        self.children.iter().map(of).collect()
    }

    /// Checks that no child has reported an error.
    fn silence(&self) -> Checked<()> {
        let said = std::fs::read_to_string(Role::said_in(self.home())).unwrap_or_default();
        if said.is_empty() { Ok(()) } else { Err(format!("children printed: {said}")) }
    }

    fn keys(&self) -> String {
        format!("check {}", if self.scene.keeps_all { self.started } else { 0 })
    }

    fn sound(&self) -> Checked<()> {
        let report = inspect::verify(filter_of(self.home())).map_err(text)?;
        if report.is_sound() { Ok(()) } else { Err(format!("{report:?}")) }
    }

    /// All children end their work, and some close. The digests of a remaining handle, of a new
    /// handle, of a recovery after all were killed, and of a recovery from an older snapshot must
    /// be equal; and every operation that returned must be present. No child is left.
    pub fn check(&mut self) -> Checked<()> {
        self.silence()?;
        self.children.iter_mut().try_for_each(|child| child.tell("end"))?;
        self.children.iter_mut().try_for_each(|child| child.told("end").map(drop))?;
        let stays = self.random.below(self.children.len() as u64) as usize;
        let mut holder = self.children.swap_remove(stays);
        for child in std::mem::take(&mut self.children) {
            if self.random.below(4) == 0 {
                child.close()?;
            } else {
                self.children.push(child);
            }
        }
        // An event without a following insert is not replayed.
        holder.ask("insert")?;
        let live = holder.ask("digest")?;
        if !self.children.is_empty() {
            self.attach(&live)?;
        }
        self.children.push(holder);
        self.kill_all()?;
        self.recover(Some(&live))
    }

    /// Kills all children at once during their work; every operation that returned must be present.
    pub fn crash(&mut self) -> Checked<()> {
        self.silence()?;
        self.kill_all()?;
        self.recover(None)
    }

    /// Checks that a new handle sees the same state as the open ones.
    fn attach(&mut self, live: &str) -> Checked<()> {
        let mut guest = self.helper()?;
        same("a later handle", &guest.ask("digest")?, live)?;
        let (handles, expected) = (guest.ask("stat")?, self.children.len() + 2);
        if handles != expected.to_string() {
            return Err(format!("{handles} handles, expected {expected}"));
        }
        guest.ask(&self.keys())?;
        self.sound().map_err(|what| format!("while in use: {what}"))?;
        if self.random.below(2) == 0 { guest.kill() } else { guest.close() }
    }

    /// Checks the recovery of a filter that no handle has open.
    fn recover(&mut self, live: Option<&str>) -> Checked<()> {
        self.sound()?;
        let mut first = self.helper()?;
        let recovered = first.ask("digest")?;
        if let Some(live) = live {
            same("recovery", &recovered, live)?;
        }
        first.ask(&self.keys())?;
        if self.random.below(2) == 0 {
            return first.kill();
        }
        first.close()?;
        self.sound().map_err(|what| format!("after a close: {what}"))?;
        if let Some(copy) = copy_with_newest_damaged(&filter_of(self.home())).map_err(text)? {
            let again = Filter::<Any>::open(copy.path(), self.scene.options()).map_err(text)?;
            let digest = again.digest().map_err(text)?;
            let replayed = format!("{digest} after {} inserts", digest.inserts);
            same("recovery from an older snapshot", &replayed, &recovered)?;
        }
        Ok(())
    }
}

fn await_more(before: u64, count: impl Fn() -> u64) -> Result<(), ()> {
    let began = Instant::now();
    while count() <= before {
        if began.elapsed() > HANG {
            return Err(());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(())
}

fn same(what: &str, found: &str, expected: &str) -> Checked<()> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("the digest of {what} is {found}, expected {expected}"))
    }
}
