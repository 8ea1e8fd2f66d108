//! The settings of a run, from its arguments.

/// The amount of work.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The number of schedules.
    pub count: u64,
    /// The first of them, to continue an earlier run.
    pub from: u64,
    /// The seed of all random choices.
    pub seed: u64,
}

fn number(name: &str, text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{name} must be a number, found {text:?}"))
}

impl Settings {
    /// Returns the settings, and the remaining arguments.
    pub fn read() -> (Self, Vec<String>) {
        let mut settings = Self { count: 100_000, from: 0, seed: 20_261_122 };
        let mut rest = Vec::new();
        let mut arguments = std::env::args();
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().unwrap_or_else(|| panic!("{name} needs a value"));
            match name.as_str() {
                "--count" => settings.count = number(&name, &value()),
                "--from" => settings.from = number(&name, &value()),
                "--seed" => settings.seed = number(&name, &value()),
                _ => rest.push(name),
            }
        }
        (settings, rest)
    }
}
