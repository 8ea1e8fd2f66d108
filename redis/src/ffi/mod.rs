//! The server's interface: all calls of it, behind safe functions.
//!
//! Nothing but this folder and the allocator is `unsafe`. The server calls the module in one thread
//! (`free` and the child of a fork excepted), with pointers that are valid for the call. The
//! functions of its interface are looked up when the module is loaded; those that not every
//! supported server has are tested before each use.

#![expect(unsafe_code, reason = "the server's interface is one of C")]

mod call;
mod load;
pub(crate) mod raw;
mod server;
mod settings;
mod stored;
mod transfer;

pub use call::{About, Access, Call, Command, Failure, Outcome};
pub use load::{Context, Roles, begin, monotonic, random, role};
pub use settings::{
    Choice, Figures, Number, Text, apply_settings, register_choice, register_figures,
    register_number, register_text,
};
pub use stored::{Slot, Stored, WORDS_THAT_MOVE};
pub use transfer::{Emitter, Loader, Saver, Summary};

pub use raw::{RedisModuleCtx, RedisModuleString};

/// Returns a function of the interface that every supported server has.
#[inline]
fn api<F>(function: Option<F>) -> F {
    function.expect("Redis 7.0 and Valkey 7.2 have this function")
}

/// Returns text without what would end a reply or a line of the log, and without NUL.
fn one_line(text: &str) -> std::ffi::CString {
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    let text: String = text.chars().map(clean).collect();
    std::ffi::CString::new(text).unwrap_or_default()
}
