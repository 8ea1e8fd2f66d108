//! What a run is told by its arguments.

use crate::effort::scaled;
use crate::scenes::{SCENES, Scene};
use std::path::PathBuf;

/// How much to do, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many power cuts.
    pub states: u64,
    /// The number of the first.
    pub from: u64,
    /// Where all randomness comes from, except the moments that the machine adds.
    pub seed: u64,
    /// The scene, if not all in turns.
    pub scene: Option<&'static Scene>,
    /// How the file system is mounted, if not in every way in turns.
    pub mount: Option<String>,
    /// A recording that was kept.
    pub replay: Option<PathBuf>,
}

fn number(name: &str, text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{name} must be a number, found {text:?}"))
}

fn scene(name: &str) -> &'static Scene {
    Scene::named(name).unwrap_or_else(|| {
        let known = SCENES.iter().map(|scene| format!("{:?}", scene.name)).collect::<Vec<_>>();
        panic!("--kind is one of {}", known.join(", "))
    })
}

impl Default for Settings {
    fn default() -> Self {
        Self { states: scaled(200), from: 0, seed: 0x0EBB, scene: None, mount: None, replay: None }
    }
}

impl Settings {
    /// The settings, and the arguments that are not ours.
    pub fn read() -> (Self, Vec<String>) {
        let mut settings = Self::default();
        let mut rest = Vec::new();
        let mut arguments = std::env::args();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().unwrap_or_default();
            match argument.as_str() {
                "--states" => settings.states = number(&argument, &value()),
                "--from" => settings.from = number(&argument, &value()),
                "--seed" => settings.seed = number(&argument, &value()),
                "--kind" => settings.scene = Some(scene(&value())),
                "--mount" => settings.mount = Some(value()),
                "--replay" => settings.replay = Some(value().into()),
                _ => rest.push(argument),
            }
        }
        (settings, rest)
    }
}
