//! The settings of a run, from its arguments.

use crate::scenes::{SCENES, Scene};
use ebbtide_testkit::environment::{SEED, parsed, scaled};
use std::path::PathBuf;

/// The amount and the mode of the work.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The number of power cuts.
    pub states: u64,
    /// The number of the first.
    pub from: u64,
    /// The seed of all random choices; the machine adds its own timing.
    pub seed: u64,
    /// The scene, if not all in turn.
    pub scene: Option<&'static Scene>,
    /// The mount options, if not all in turn.
    pub mount: Option<String>,
    /// A recording that was kept.
    pub replay: Option<PathBuf>,
}

fn scene(name: &str) -> &'static Scene {
    Scene::named(name).unwrap_or_else(|| {
        let known = SCENES.iter().map(|scene| format!("{:?}", scene.name)).collect::<Vec<_>>();
        panic!("--kind is one of {}", known.join(", "))
    })
}

impl Default for Settings {
    fn default() -> Self {
        Self { states: scaled(200), from: 0, seed: SEED, scene: None, mount: None, replay: None }
    }
}

impl Settings {
    /// Returns the settings, and the remaining arguments.
    pub fn read() -> (Self, Vec<String>) {
        let mut settings = Self::default();
        let mut rest = Vec::new();
        let mut arguments = std::env::args();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().unwrap_or_default();
            match argument.as_str() {
                "--states" => settings.states = parsed(&argument, &value()),
                "--from" => settings.from = parsed(&argument, &value()),
                "--seed" => settings.seed = parsed(&argument, &value()),
                "--kind" => settings.scene = Some(scene(&value())),
                "--mount" => settings.mount = Some(value()),
                "--replay" => settings.replay = Some(value().into()),
                _ => rest.push(argument),
            }
        }
        (settings, rest)
    }
}
