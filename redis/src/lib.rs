//! Forgetting filters as a data type of Redis and Valkey.
//!
//! A key holds one filter of any kind, in the server's memory. Replicas and the append-only file
//! get the records of its changes (`EB.APPLY`), never the users' commands: state is a function of
//! the filter's identity and its records, and a replica hashes nothing and reads no clock.
//!
//! [`commands`] has the commands, [`value`] what a key holds, [`former`] the filter that it had
//! before an alteration, [`persist`] how a value is saved, loaded and copied, [`pieces`] what it
//! consists of then, [`leases`] the time and the tokens of claims, [`arguments`] how arguments are
//! read, [`config`] the settings,
//! [`figures`] those of `INFO`. [`ffi`] and [`alloc`] are the server's interface.

mod alloc;
mod arguments;
mod commands;
mod config;
mod ffi;
mod figures;
mod former;
mod leases;
mod persist;
mod pieces;
mod value;

use std::ffi::c_int;

/// Loads the module: servers look this function up by its name.
///
/// # Safety
/// Called by the server only.
#[expect(unsafe_code, reason = "the entry of a library that a server loads")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    context: *mut ffi::RedisModuleCtx,
    _: *mut *mut ffi::RedisModuleString,
    arguments: c_int,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { ffi::begin(context, (c"ebbtide", 1), arguments, register) }
}

/// Registers everything; false if the server refuses something.
fn register(context: &ffi::Context) -> bool {
    alloc::measure();
    context.category(c"ebbtide");
    ffi::register_figures::<figures::All>(context);
    leases::begin();
    context.data_type::<value::Value>()
        && commands::register(context)
        && config::register(context)
        && ffi::apply_settings(context)
        && (!config::has_bf_commands() || commands::register_bf(context))
        // Last: Redis 7.0 calls a subscriber also if it has unloaded the module, whose load failed.
        && context.follow_role::<leases::WallClock>()
}
