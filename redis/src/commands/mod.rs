//! The commands, by what they do.

mod alter;
mod both;
mod claim;
pub mod effects;
mod insert;
mod inspect;
mod key;
mod limits;
mod query;
mod reserve;

use crate::ffi::Context;

/// Registers all commands; false if the server refuses one.
#[must_use]
pub fn register(context: &Context) -> bool {
    context.command::<reserve::Reserve>()
        && context.command::<alter::Alter>()
        && context.command::<insert::Add>()
        && context.command::<insert::AddMany>()
        && context.command::<insert::AddNew>()
        && context.command::<insert::AddManyNew>()
        && context.command::<insert::Insert>()
        && context.command::<insert::Delete>()
        && context.command::<claim::Claim>()
        && context.command::<claim::Confirm>()
        && context.command::<claim::Release>()
        && context.command::<claim::Extend>()
        && context.command::<query::Exists>()
        && context.command::<query::ExistMany>()
        && context.command::<query::SeenWithin>()
        && context.command::<query::Age>()
        && context.command::<query::Count>()
        && context.command::<inspect::Info>()
        && context.command::<inspect::ScanDump>()
        && context.command::<inspect::Debug>()
        && context.command::<effects::Create>()
        && context.command::<effects::Succeed>()
        && context.command::<effects::Apply>()
        && context.command::<effects::LoadChunk>()
}
