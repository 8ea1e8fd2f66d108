//! The model of a stream from the options: the probability of each key, and how keys repeat.

use crate::failure::{Failure, Result, misfit};
use ebbtide::inference::{Distinct, KeyPrior, Stream};
use ebbtide::{Any, Error, Frequencies, Options, Prior, Reader};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The default exponent of a power law, from the paper.
const EXPONENT: f64 = 1.0;

/// The source of a key's prior.
#[derive(Debug, Clone)]
pub enum PriorOption {
    /// This probability for all keys.
    Number(f64),
    /// This number of equally likely keys.
    Uniform(u64),
    /// Keys are ranks, from 1 to this number, with probabilities that fall with this power.
    PowerLaw(u64, f64),
    /// A file of lines of keys and counts.
    Table(PathBuf),
    /// A filter that counts the stream.
    Counted(PathBuf),
    /// The end of each line.
    Line,
}

/// Parses a `--prior`.
pub fn parse_prior(text: &str) -> std::result::Result<PriorOption, String> {
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    let read = match name {
        "line" if text == "line" => Some(PriorOption::Line),
        "uniform" => value.parse().ok().map(PriorOption::Uniform),
        "power-law" => power_law(value).map(|(keys, power)| PriorOption::PowerLaw(keys, power)),
        "table" => path(value).map(PriorOption::Table),
        "counted" => path(value).map(PriorOption::Counted),
        _ => probability(text).map(PriorOption::Number),
    };
    read.ok_or_else(|| {
        "expected a probability from 0 to 1, uniform:U, power-law:U[:EXPONENT], table:FILE, \
         counted:DIR or line"
            .to_owned()
    })
}

/// How the keys of a stream repeat.
#[derive(Debug, Clone)]
pub enum DistinctOption {
    /// No key comes twice.
    All,
    /// This number of equally likely keys.
    Uniform(u64),
    /// This number of keys, with probabilities that fall with this power of their rank.
    PowerLaw(u64, f64),
    /// A file of lines of numbers of inserts and of distinct keys among them.
    Points(PathBuf),
}

/// Parses a `--distinct`.
pub fn parse_distinct(text: &str) -> std::result::Result<DistinctOption, String> {
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    let read = match name {
        "all" if text == "all" => Some(DistinctOption::All),
        "uniform" => value.parse().ok().map(DistinctOption::Uniform),
        "power-law" => power_law(value).map(|(keys, power)| DistinctOption::PowerLaw(keys, power)),
        "points" => path(value).map(DistinctOption::Points),
        _ => None,
    };
    read.ok_or_else(|| "expected all, uniform:U, power-law:U[:EXPONENT] or points:FILE".to_owned())
}

/// Parses a `--rate`.
pub fn parse_rate(text: &str) -> std::result::Result<f64, String> {
    let read = text.parse().ok().filter(|rate: &f64| *rate > 0.0 && rate.is_finite());
    read.ok_or_else(|| "expected inserts a second, more than 0".to_owned())
}

/// Parses `U` or `U:EXPONENT`.
fn power_law(text: &str) -> Option<(u64, f64)> {
    let (keys, exponent) = match text.split_once(':') {
        Some((keys, exponent)) => (keys, exponent.parse().ok()?),
        None => (text, EXPONENT),
    };
    Some((keys.parse().ok()?, exponent))
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

fn probability(text: &str) -> Option<f64> {
    text.parse().ok().filter(|p| (0.0..=1.0).contains(p))
}

/// The assumed model of the stream.
pub struct Beliefs<'a> {
    keys: Keys<'a>,
    /// How keys repeat, and the insert rate.
    stream: Stream,
}

/// The source of each key's prior.
enum Keys<'a> {
    /// A model.
    Modelled(Box<dyn Prior + 'a>),
    /// A model of ranks: the key is its rank, from 1 to this number.
    Ranked(Box<dyn Prior + 'a>, u64),
    /// The line of the key.
    OfLine,
}

impl<'a> Beliefs<'a> {
    /// Builds the model from the options for the prior, for how keys repeat, and for the inserts
    /// per second. `counts` keeps a counting filter open. Lines of tables
    /// end with the same delimiter as lines of keys.
    pub fn new(
        prior: Option<&PriorOption>,
        repeats: Option<&DistinctOption>,
        rate: Option<f64>,
        counts: &'a mut Option<Reader<Any>>,
        delimiter: u8,
    ) -> Result<Self> {
        let prior = prior.ok_or_else(no_prior)?;
        let (keys, known) = Keys::new(prior, counts, delimiter)?;
        let distinct = match repeats {
            Some(option) => distinct(option)?,
            None => known,
        };
        let stream = Stream::new(0.0, distinct);
        let stream = if let Some(rate) = rate { stream.rate(rate) } else { stream };
        Ok(Self { keys, stream })
    }

    /// Returns the model of a key with this prior.
    pub fn with(&self, probability: f64) -> KeyPrior<'_> {
        self.stream.with(probability)
    }

    /// Returns the model of a key; `told` is the prior on its line, used only if lines contain
    /// priors.
    pub fn of(&self, key: &[u8], told: f64) -> ebbtide::Result<KeyPrior<'_>> {
        let p = match &self.keys {
            Keys::Modelled(prior) => prior.probability(key),
            Keys::Ranked(prior, most) => {
                if !(1..=*most).contains(&rank(key)) {
                    return Err(Error::Parameter {
                        name: "key",
                        expected: format!("its rank, from 1 to {most}"),
                        found: format!("{:?}", String::from_utf8_lossy(key)),
                    });
                }
                prior.probability(key)
            }
            Keys::OfLine => told,
        };
        Ok(self.with(p))
    }
}

impl<'a> Keys<'a> {
    /// Returns the source of the priors, and how keys repeat as far as it implies that.
    fn new(
        option: &PriorOption,
        counts: &'a mut Option<Reader<Any>>,
        delimiter: u8,
    ) -> Result<(Self, Distinct)> {
        Ok(match option {
            PriorOption::Number(p) => Self::modelled(*p),
            PriorOption::Uniform(universe) => Self::modelled(Stream::uniform(*universe)?),
            PriorOption::PowerLaw(universe, exponent) => {
                let stream = Stream::power_law(*universe, *exponent, rank)?;
                let distinct = stream.distinct().clone();
                (Self::Ranked(Box::new(stream), *universe), distinct)
            }
            PriorOption::Table(path) => Self::modelled(Stream::table(counted(path, delimiter)?)?),
            PriorOption::Counted(dir) => {
                let reader = counts.insert(Reader::open(dir, Options::new())?);
                if reader.estimate(b"").is_err() || reader.frequency(b"").is_ok() {
                    return Err(uncounted(dir, reader.kind()));
                }
                Self::modelled(Frequencies::new(reader))
            }
            PriorOption::Line => (Self::OfLine, Distinct::ALL),
        })
    }

    fn modelled(prior: impl Prior + 'a) -> (Self, Distinct) {
        let distinct = prior.distinct().clone();
        (Self::Modelled(Box::new(prior)), distinct)
    }
}

fn uncounted(dir: &Path, kind: &str) -> Failure {
    Failure::Error(format!(
        "--prior counted: {} is of kind {kind}, and a prior is a share of all inserts, which only \
         a counting, spectral or dynamic-count filter counts; name one of these",
        dir.display()
    ))
}

fn no_prior() -> Failure {
    Failure::Error(
        "--prior is missing: a posterior is only as good as its prior, and no default fits every \
         stream; give the probability that an insert is of the key, as a number, uniform:U, \
         power-law:U, table:FILE, counted:DIR or line"
            .to_owned(),
    )
}

fn distinct(option: &DistinctOption) -> Result<Distinct> {
    Ok(match option {
        DistinctOption::All => Distinct::ALL,
        DistinctOption::Uniform(universe) => Distinct::uniform(*universe)?,
        DistinctOption::PowerLaw(universe, exponent) => Distinct::power_law(*universe, *exponent)?,
        DistinctOption::Points(path) => Distinct::sampled(&points(path)?)?,
    })
}

/// Parses a key as its rank; returns 0 if it is not a number.
fn rank(key: &[u8]) -> u64 {
    number(key).unwrap_or(0)
}

/// Reads lines `KEY<TAB>COUNT`.
fn counted(path: &Path, delimiter: u8) -> Result<Vec<(Vec<u8>, u64)>> {
    table(path, delimiter, "KEY<TAB>COUNT", |key, count| Some((key.to_vec(), number(count)?)))
}

/// Reads lines `J<TAB>D`.
fn points(path: &Path) -> Result<Vec<(f64, f64)>> {
    table(path, b'\n', "J<TAB>D", |j, d| Some((number(j)?, number(d)?)))
}

/// Reads the lines of a file, each split at its last tab.
fn table<T>(
    path: &Path,
    delimiter: u8,
    expected: &str,
    read: impl Fn(&[u8], &[u8]) -> Option<T>,
) -> Result<Vec<T>> {
    let text = fs::read(path).map_err(|error| Failure::reading(path, &error))?;
    let text = text.strip_suffix(&[delimiter]).unwrap_or(&text);
    let lines = text.split(|byte| *byte == delimiter).zip(1..).filter(|_| !text.is_empty());
    let row = |(line, at): (&[u8], u64)| {
        let tab = memchr::memrchr(b'\t', line);
        tab.and_then(|tab| read(&line[..tab], &line[tab + 1..])).ok_or_else(|| {
            Failure::Error(format!("{}, line {at}: {}", path.display(), misfit(expected, line)))
        })
    };
    lines.map(row).collect()
}

fn number<T: FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_prior_is_read() {
        for (text, expected) in [
            ("0.25", "Number(0.25)"),
            ("1e-9", "Number(1e-9)"),
            ("uniform:65536", "Uniform(65536)"),
            ("power-law:65536", "PowerLaw(65536, 1.0)"),
            ("power-law:65536:0.8", "PowerLaw(65536, 0.8)"),
            ("table:a:b", "Table(\"a:b\")"),
            ("counted:/tmp/counts", "Counted(\"/tmp/counts\")"),
            ("line", "Line"),
        ] {
            assert_eq!(format!("{:?}", parse_prior(text).expect(text)), expected);
        }
        for (text, expected) in [
            ("all", "All"),
            ("uniform:7", "Uniform(7)"),
            ("power-law:7", "PowerLaw(7, 1.0)"),
            ("points:d", "Points(\"d\")"),
        ] {
            assert_eq!(format!("{:?}", parse_distinct(text).expect(text)), expected);
        }
    }

    #[test]
    fn malformed_priors_are_refused() {
        let texts = ["", "1.5", "-1", "NaN", "uniform", "uniform:x", "power-law:9:x", "table:"];
        for text in texts.into_iter().chain(["line:", "lines", "counted", "zipf:9", "0.5:1"]) {
            assert!(parse_prior(text).is_err(), "{text:?} was accepted as a prior");
            assert!(parse_distinct(text).is_err(), "{text:?} was accepted as repeats");
        }
    }
}
