//! The settings of a call, from its keyword arguments.

use crate::errors::{wrong_type, wrong_value};
use crate::slot::PATIENCE;
use crate::times;
use ebbtide::inference::{Distinct, Stream};
use ebbtide::{Any, Call, Durability, Entry, Filter, Handle, Since, Timestamp};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

/// An optional keyword argument.
pub type Argument<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// The settings of a write.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    time: Option<Timestamp>,
    durability: Option<Durability>,
    since: Since,
    weight: Option<f64>,
}

impl Settings {
    /// Reads the settings of a call.
    #[inline]
    pub fn new(
        time: Argument<'_, '_>,
        durability: Argument<'_, '_>,
        since: Argument<'_, '_>,
        weight: Argument<'_, '_>,
    ) -> PyResult<Self> {
        let mut all = Self::default();
        if let Some(time) = time {
            all.time = Some(times::timestamp(time)?);
        }
        if let Some(durability) = durability {
            all.durability = Some(times::durability(durability)?);
        }
        if let Some(since) = since {
            all.since = since_of(since)?;
        }
        if let Some(weight) = weight {
            all.weight = Some(number("weight", weight)?);
        }
        Ok(all)
    }

    /// Returns the time, if it is not the clock's.
    pub fn time(&self) -> Option<Timestamp> {
        self.time
    }

    /// Returns a call that waits for nothing.
    #[inline]
    pub fn quick<'a>(&self, filter: &'a Filter) -> Call<'a, Filter> {
        self.applied(filter).without_waiting()
    }

    /// Returns a call that waits no longer than a look at signals may be delayed.
    pub fn patient<'a>(&self, filter: &'a Filter) -> Call<'a, Filter> {
        self.applied(filter).waiting_at_most(PATIENCE)
    }

    /// Returns a key with these settings of its own.
    pub fn entry<'k>(&self, key: &'k [u8]) -> Entry<&'k [u8]> {
        let mut entry = Entry::new(key);
        if let Some(time) = self.time {
            entry = entry.time(time);
        }
        match self.weight {
            Some(weight) => entry.weight(weight),
            None => entry,
        }
    }

    #[inline]
    fn applied<'a>(&self, filter: &'a Filter) -> Call<'a, Filter> {
        let mut call = filter.call().since(self.since);
        if let Some(time) = self.time {
            call = call.time(time);
        }
        if let Some(durability) = self.durability {
            call = call.durability(durability);
        }
        if let Some(weight) = self.weight {
            call = call.weight(weight);
        }
        call
    }
}

/// The settings of a question.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    time: Option<Timestamp>,
}

impl Asked {
    /// Reads the settings of a question.
    #[inline]
    pub fn new(time: Argument<'_, '_>) -> PyResult<Self> {
        Ok(Self { time: time.map(times::timestamp).transpose()? })
    }

    /// Returns a call that waits for nothing.
    #[inline]
    pub fn quick<'a, H: Handle<Kind = Any>>(&self, call: Call<'a, H>) -> Call<'a, H> {
        self.applied(call).without_waiting()
    }

    /// Returns a call that waits no longer than a look at signals may be delayed.
    pub fn patient<'a, H: Handle<Kind = Any>>(&self, call: Call<'a, H>) -> Call<'a, H> {
        self.applied(call).waiting_at_most(PATIENCE)
    }

    #[inline]
    fn applied<'a, H: Handle<Kind = Any>>(&self, call: Call<'a, H>) -> Call<'a, H> {
        match self.time {
            Some(time) => call.time(time),
            None => call,
        }
    }
}

/// Returns a number.
pub fn number(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    if value.is_instance_of::<PyBool>() || value.is_instance_of::<PyString>() {
        return Err(wrong_type(name, "a number", value));
    }
    value.extract::<f64>().map_err(|_| wrong_type(name, "a number", value))
}

/// Returns the belief about a key: the probability that an insert is of this key, in a stream in
/// which no key repeats, and the inserts a second of all keys.
pub fn prior(probability: &Bound<'_, PyAny>, rate: Argument<'_, '_>) -> PyResult<Stream<f64>> {
    let stream = Stream::new(number("prior", probability)?, Distinct::ALL);
    match rate {
        Some(rate) => Ok(stream.rate(number("rate", rate)?)),
        None => Ok(stream),
    }
}

fn since_of(value: &Bound<'_, PyAny>) -> PyResult<Since> {
    const EXPECTED: &str = "\"last-seen\" or \"last-accepted\"";
    let Ok(text) = value.cast::<PyString>() else {
        return Err(wrong_type("since", EXPECTED, value));
    };
    match text.to_str()? {
        "last-seen" => Ok(Since::LastSeen),
        "last-accepted" => Ok(Since::LastAccepted),
        other => Err(wrong_value(value.py(), "since", EXPECTED, other)),
    }
}
