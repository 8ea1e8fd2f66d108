//! Serialisation of types with a text form, under the feature `serde`. Plain structs and enums
//! derive it where they are defined.

use crate::engine::read::stats::Digest;
use crate::error::Error;
use crate::options::{Downtime, Durability, Keep};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::str::FromStr;

/// Reads a text by [`FromStr`].
fn read<'de, T: FromStr<Err = Error>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

impl Serialize for Durability {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Durability {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from)
    }
}

impl Serialize for Keep {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Keep {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::read(&text).ok_or_else(|| {
            D::Error::custom(format_args!("expected how much log is kept, found {text:?}"))
        })
    }
}

impl Serialize for Downtime {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Downtime {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from)
    }
}

/// A digest with its hash in hexadecimal digits: few formats have numbers of 128 bits.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Digest")]
struct Shown {
    value: String,
    lsn: u64,
    inserts: u64,
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { lsn, inserts, .. } = *self;
        Shown { value: self.to_string(), lsn, inserts }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Shown { value, lsn, inserts } = Shown::deserialize(from)?;
        let number = u128::from_str_radix(&value, 16).ok().filter(|_| value.len() == 32);
        let value = number.ok_or_else(|| {
            D::Error::custom(format_args!("expected 32 hexadecimal digits, found {value:?}"))
        })?;
        Ok(Self { value, lsn, inserts })
    }
}
