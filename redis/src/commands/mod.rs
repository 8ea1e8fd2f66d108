//! The commands, by what they do.

mod alter;
mod apply;
mod bloom;
mod both;
mod card;
mod claim;
pub mod effects;
mod help;
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
        && context.command::<card::Card>()
        && context.command::<help::Help>()
        && context.command::<inspect::Info>()
        && context.command::<inspect::ScanDump>()
        && context.command::<inspect::Debug>()
        && context.command::<apply::Create>()
        && context.command::<apply::Succeed>()
        && context.command::<apply::Apply>()
        && context.command::<apply::LoadChunk>()
}

/// Registers the commands `BF.*`; false if another module has one of them.
#[must_use]
pub fn register_bf(context: &Context) -> bool {
    context.command::<bloom::Reserve>()
        && context.command::<bloom::Add>()
        && context.command::<bloom::AddMany>()
        && context.command::<bloom::Insert>()
        && context.command::<bloom::Exists>()
        && context.command::<bloom::ExistMany>()
        && context.command::<bloom::Card>()
        && context.command::<bloom::Info>()
        && context.command::<bloom::ScanDump>()
        && context.command::<bloom::LoadChunk>()
}
