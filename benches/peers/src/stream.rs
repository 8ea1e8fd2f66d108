//! Streams of keys, generated before any clock starts, and once for all peers.

use crate::peers::{Key, Result};
use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::str::FromStr;
use xxhash_rust::xxh3::xxh3_128;

/// The seeds of the generated keys, so that every run has the same keys.
const KEY_SEED: u64 = 0x7065_6572_7320_6b65;
const RANK_SEED: u64 = 0x7065_6572_7320_7261;

/// The source of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Each key is new.
    Uniform,
    /// As many distinct keys as the stream is long, the one of rank `r` with probability
    /// proportional to `1/r`.
    Zipf,
    /// The lines of a file, or the words in one column of it, counted from 1.
    File(PathBuf, Option<usize>),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Ok(match text {
            "uniform" => Self::Uniform,
            "zipf" => Self::Zipf,
            _ => match text.rsplit_once(':').map(|(path, column)| (path, column.parse())) {
                Some((_, Ok(0))) => return Err("columns are counted from 1".to_owned()),
                Some((path, Ok(column))) => Self::File(path.into(), Some(column)),
                _ => Self::File(text.into(), None),
            },
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf => f.write_str("zipf"),
            Self::File(path, _) => {
                f.write_str(&path.file_stem().unwrap_or_default().to_string_lossy())
            }
        }
    }
}

/// The keys of a stream in order.
pub struct Stream {
    pub name: String,
    pub keys: Vec<Key>,
    /// The number of distinct keys.
    pub distinct: usize,
}

impl Stream {
    /// Reads the first `length` keys of a source, or fewer if it ends before; returns `None` if its
    /// file is missing.
    pub fn read(source: &Source, length: usize) -> Result<Option<Self>> {
        let keys = match source {
            Source::Uniform => (0..length as u64).map(key).collect(),
            Source::Zipf => zipf(length),
            Source::File(path, column) => match fs::read(path) {
                Ok(text) => lines(&text, *column, length),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(format!("{}: {error}", path.display()).into()),
            },
        };
        let distinct = distinct(&keys);
        if distinct == 0 {
            return Err(format!("the stream {source} has no keys").into());
        }
        Ok(Some(Self { name: source.to_string(), keys, distinct }))
    }
}

/// Returns keys that are in no stream.
pub fn unseen_keys(count: usize) -> Vec<Key> {
    (0..count as u64).map(|number| key(u64::MAX / 4 - number)).collect()
}

/// Returns the number of distinct keys.
pub fn distinct(keys: &[Key]) -> usize {
    keys.iter().collect::<HashSet<_>>().len()
}

/// Returns output `number` of SplitMix64 from a seed. Different numbers give different outputs.
fn mixed(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the key of this number: 16 bytes as of a hash or a random id, in no order.
fn key(number: u64) -> Key {
    let halves = [mixed(KEY_SEED, 2 * number), mixed(KEY_SEED, 2 * number + 1)];
    let mut key = Key::default();
    key[..8].copy_from_slice(&halves[0].to_le_bytes());
    key[8..].copy_from_slice(&halves[1].to_le_bytes());
    key
}

fn zipf(length: usize) -> Vec<Key> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=length)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let draw = |number: u64| {
        let part = (mixed(RANK_SEED, number) >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        key(sums.partition_point(|&upto| upto <= part) as u64)
    };
    (0..length as u64).map(draw).collect()
}

/// Hashes each line or word to a key, because lines differ in length.
fn lines(text: &[u8], column: Option<usize>, length: usize) -> Vec<Key> {
    let whole = |line: &[u8]| xxh3_128(line.trim_ascii_end()).to_le_bytes();
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let keys = lines.filter_map(|line| match column {
        None => Some(whole(line)),
        Some(column) => {
            let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            words.nth(column - 1).map(whole)
        }
    });
    keys.take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(source: &Source, length: usize) -> Stream {
        Stream::read(source, length).expect("a stream").expect("it needs no file")
    }

    #[test]
    fn a_stream_is_the_same_each_time_and_longer_ones_continue_shorter_ones() {
        let (short, long) = (made(&Source::Uniform, 1000), made(&Source::Uniform, 2000));
        assert_eq!(short.keys, long.keys[..1000]);
        assert_eq!(made(&Source::Zipf, 1000).keys, made(&Source::Zipf, 1000).keys);
        let pinned = 94_213_882_599_789_262_327_158_126_183_298_407_875;
        assert_eq!(xxh3_128(short.keys.as_flattened()), pinned, "other keys than those of before");
    }

    #[test]
    fn all_uniform_keys_are_new() {
        assert_eq!(made(&Source::Uniform, 100_000).distinct, 100_000);
    }

    #[test]
    fn zipf_ranks_come_as_often_as_their_law_says() {
        let length = 100_000;
        let keys = made(&Source::Zipf, length).keys;
        let harmonic: f64 = (1..=length).map(|rank| 1.0 / rank as f64).sum();
        for rank in [1, 2, 10, 100] {
            let expected = length as f64 / harmonic / rank as f64;
            let found = keys.iter().filter(|&&found| found == key(rank - 1)).count() as f64;
            let off = (found - expected).abs();
            assert!(off < 5.0 * expected.sqrt(), "rank {rank}: {found} times, not {expected}");
        }
    }

    #[test]
    fn a_file_gives_its_lines_or_the_words_of_a_column() {
        let text = b"1 a x\n2 b y\r\n\n3 a z\n4\n";
        let whole = |text: &str| xxh3_128(text.as_bytes()).to_le_bytes();
        assert_eq!(lines(text, Some(2), 9), ["a", "b", "a"].map(whole));
        assert_eq!(lines(text, None, 2), ["1 a x", "2 b y"].map(whole));
        assert_eq!(distinct(&lines(text, None, 9)), 4);
    }

    #[test]
    fn sources_are_read_from_words() {
        assert_eq!("zipf".parse(), Ok(Source::Zipf));
        assert_eq!("a/b.log:2".parse(), Ok(Source::File("a/b.log".into(), Some(2))));
        assert_eq!("c:/b.log".parse(), Ok(Source::File("c:/b.log".into(), None)));
        assert!("b.log:0".parse::<Source>().is_err());
    }

    #[test]
    fn a_missing_file_is_no_stream() {
        let source = Source::File("/nowhere/at/all".into(), None);
        assert!(Stream::read(&source, 10).expect("no error").is_none());
    }
}
