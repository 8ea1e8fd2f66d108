//! In place of `shipped`, in builds without the feature `ship`: nothing is shown of shippers.

use crate::failure::Result;
use ebbtide::Stat;
use serde_json::Value;
use std::path::Path;

pub fn json(_: &Path, _: &Stat, _: bool) -> Result<Option<Value>> {
    Ok(None)
}

pub fn text(_: &Path, _: &Stat, _: bool) -> Result<Option<String>> {
    Ok(None)
}
