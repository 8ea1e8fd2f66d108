//! Options of the commands that make filters from the operations of others, or alter them.

use crate::formatting::parse_positive;
use crate::kept_parameters::Named;
use crate::key_args::{KEEPS, parse_keep};
use crate::kind_options::KindOptions;
use clap::Args;
use ebbtide::Keep;
use std::num::NonZeroU64;
use std::path::PathBuf;

/// The kind and the parameters of a filter that is made or altered.
#[derive(Debug, Args)]
pub struct Remade {
    /// The kind of the filter; by default it stays the same.
    #[arg(long)]
    pub kind: Option<String>,
    /// The window in inserts; the same as --window-items.
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_positive::<NonZeroU64, u64>,
        conflicts_with_all = ["window-items", "window"]
    )]
    pub last: Option<NonZeroU64>,
    /// The kind's parameters.
    #[command(flatten)]
    pub kind_options: KindOptions,
    /// The settings that the commands share.
    #[command(flatten)]
    pub settings: Settings,
}

impl Remade {
    /// Returns the kind and the parameters that are named.
    pub fn named(&self) -> Named<'_> {
        Named { kind: self.kind.as_deref(), last: self.last, options: &self.kind_options }
    }
}

/// Settings of all filters that are made or altered.
#[derive(Debug, Args)]
pub struct Settings {
    /// How much of its log the filter keeps from now on: a time such as 24h, a size such as 10GiB,
    /// or nothing, the default of a new one.
    #[arg(long, value_name = KEEPS, value_parser = parse_keep)]
    pub keep_log: Option<Keep>,
    /// Continue although the log does not reach back to the creation of a filter: what was inserted
    /// before the log begins is then forgotten.
    #[arg(long)]
    pub forget: bool,
}

/// Options of `alter`.
#[derive(Debug, Args)]
pub struct Alter {
    /// The directory of the filter, which others may use meanwhile.
    pub dir: PathBuf,
    /// The directory of a new filter, which must not contain a filter. Without it DIR itself is
    /// altered.
    pub new: Option<PathBuf>,
    /// The kind and the parameters.
    #[command(flatten)]
    pub remade: Remade,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Options of `merge`.
#[derive(Debug, Args)]
pub struct Merge {
    /// The directories of the filters, which others may use meanwhile, and at the end that of the
    /// new one.
    #[arg(required = true, num_args = 3.., value_names = ["DIR", "DIR", "NEW"])]
    pub dirs: Vec<PathBuf>,
    /// The kind and the parameters of the new filter; without any, those of the first one.
    #[command(flatten)]
    pub remade: Remade,
}

/// The largest number of filters that one is split into: each takes a pass over its log.
const MOST_PARTS: u64 = 1024;

fn parse_parts(text: &str) -> Result<NonZeroU64, String> {
    let parts: NonZeroU64 = parse_positive::<NonZeroU64, u64>(text)?;
    if parts.get() > MOST_PARTS {
        return Err(format!("expected at most {MOST_PARTS} filters"));
    }
    Ok(parts)
}

/// Options of `split`.
#[derive(Debug, Args)]
pub struct Split {
    /// The directory of the filter, which others may use meanwhile.
    pub dir: PathBuf,
    /// The directories of the new filters, to which a hyphen and a number from 0 are added.
    pub new: PathBuf,
    /// The number of new filters, at most 1024. Each key is in one of them, by its hash.
    #[arg(long, value_name = "N", value_parser = parse_parts)]
    pub into: NonZeroU64,
    /// The settings that the commands share.
    #[command(flatten)]
    pub settings: Settings,
}
