//! Loading the module: its name, options, commands and type.

use super::call::{About, Command, execute};
use super::raw::{self, RedisModuleCtx};
use super::server::{IS_VALKEY, is_valkey};
use super::{Stored, api, one_line, stored};
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// The bit of module options that says to Valkey 9 that slots may be moved as commands of an
/// append-only file. Headers of Redis do not have it.
const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;

/// How often the server has become a primary or a replica.
static ROLES: AtomicU64 = AtomicU64::new(0);

/// Returns a number that is another one whenever the server has become a primary or a replica.
pub fn role() -> u64 {
    ROLES.load(Ordering::Relaxed)
}

/// What depends on the role of the server.
pub trait Roles {
    /// Called when the server has become a primary or a replica.
    fn changed();
}

/// # Safety
/// Called by the server only.
unsafe extern "C" fn changed_role<R: Roles>(
    _: *mut RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    _: *mut c_void,
) {
    ROLES.fetch_add(1, Ordering::Relaxed);
    R::changed();
}

/// The context of loading the module.
pub struct Context(*mut RedisModuleCtx);

/// Begins to load the module under this name, with this number of arguments, and lets `register`
/// register what it has. Returns what the server expects.
///
/// # Safety
/// Called with the context of `RedisModule_OnLoad`, there.
pub unsafe fn begin(
    context: *mut RedisModuleCtx,
    (name, version): (&CStr, c_int),
    arguments: c_int,
    register: fn(&Context) -> bool,
) -> c_int {
    // SAFETY: the caller's.
    if !unsafe { raw::begin(context, name, version) } {
        return raw::REDISMODULE_ERR;
    }
    let context = Context(context);
    // SAFETY: read as every function of the interface. The newest of those that are used:
    let newest = unsafe { raw::RedisModule_RegisterNumericConfig };
    if newest.is_none() {
        log(&context, "ebbtide needs Redis 7.0 or later, or Valkey 7.2 or later");
        return raw::REDISMODULE_ERR;
    }
    if arguments > 0 {
        log(
            &context,
            "the module takes no arguments: write settings as `ebbtide.name value` in the \
             configuration file, or as `--ebbtide.name value` at the start",
        );
        return raw::REDISMODULE_ERR;
    }
    let done = register(&context);
    if done { raw::REDISMODULE_OK } else { raw::REDISMODULE_ERR }
}

impl Context {
    pub(super) fn pointer(&self) -> *mut RedisModuleCtx {
        self.0
    }

    /// Registers the data type, and that it deals with short reads, loads in the background of a
    /// replica, and says itself when a key has changed; false if the server refuses.
    #[must_use]
    pub fn data_type<V: Stored>(&self) -> bool {
        let mut options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
            | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
            | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
        IS_VALKEY.store(self.finds_valkey(), Ordering::Relaxed);
        if is_valkey() {
            options |= HANDLE_ATOMIC_SLOT_MIGRATION;
        }
        // SAFETY: the context of loading.
        unsafe {
            api(raw::RedisModule_SetModuleOptions)(self.0, options);
            stored::register::<V>(self.0)
        }
    }

    fn finds_valkey(&self) -> bool {
        // SAFETY: the context of loading; what is returned is released here.
        unsafe {
            let info = api(raw::RedisModule_GetServerInfo)(self.0, c"server".as_ptr());
            let name = c"valkey_version".as_ptr();
            let found = api(raw::RedisModule_ServerInfoGetFieldC)(info, name);
            api(raw::RedisModule_FreeServerInfo)(self.0, info);
            !found.is_null()
        }
    }

    /// Lets [`role`] follow the role of the server, and tells `R`; false if the server refuses.
    #[must_use]
    pub fn follow_role<R: Roles>(&self) -> bool {
        // SAFETY: the context of loading; the event is one of the interface.
        let done = unsafe {
            let subscribe = api(raw::RedisModule_SubscribeToServerEvent);
            subscribe(self.0, raw::RedisModuleEvent_ReplicationRoleChanged, Some(changed_role::<R>))
        };
        done == raw::REDISMODULE_OK
    }

    /// Registers a category of access control, where the server has them for modules. A server that
    /// refuses has it already.
    pub fn category(&self, name: &CStr) {
        // SAFETY: the context of loading.
        unsafe {
            if let Some(add) = raw::RedisModule_AddACLCategory {
                add(self.0, name.as_ptr());
            }
        }
    }

    /// Registers a command; false if the server refuses.
    #[must_use]
    pub fn command<C: Command>(&self) -> bool {
        let about = C::ABOUT;
        let (name, key) = (about.name.as_ptr(), about.key);
        // SAFETY: the context of loading; texts that end with NUL.
        unsafe {
            let flags = about.flags.as_ptr();
            let create = api(raw::RedisModule_CreateCommand);
            let step = c_int::from(key > 0);
            let made = create(self.0, name, Some(execute::<C>), flags, key, key, step);
            if made != raw::REDISMODULE_OK {
                let name = about.name.to_string_lossy();
                log(self, &format!("{name} is a command of another module, or of the server"));
                return false;
            }
            let command = api(raw::RedisModule_GetCommand)(self.0, name);
            if let Some(set) = raw::RedisModule_SetCommandACLCategories {
                // Without the module's own category, which came later than this function.
                let add = raw::RedisModule_AddACLCategory;
                let all = about.categories.to_string_lossy().into_owned();
                let all = if add.is_some() { format!("ebbtide {all}") } else { all };
                set(command, one_line(&all).as_ptr());
            }
            describe(command, &about)
        }
    }
}

/// Sets what `COMMAND DOCS` and `COMMAND GETKEYS` show; false if the server refuses.
///
/// # Safety
/// `command` is one of this module, which is being loaded.
unsafe fn describe(command: *mut raw::RedisModuleCommand, about: &About) -> bool {
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: raw::SIZE_OF_ARGUMENT,
    };
    // SAFETY: structures of numbers, pointers and unions of them, of which all zeros is a value.
    let mut keys: [raw::RedisModuleCommandKeySpec; 2] = unsafe { std::mem::zeroed() };
    // All zeros ends the list.
    if about.key > 0 {
        keys[0].flags = about.access.flags();
        keys[0].begin_search_type = raw::REDISMODULE_KSPEC_BS_INDEX;
        keys[0].begin.position = about.key;
        keys[0].find_keys_type = raw::REDISMODULE_KSPEC_FK_RANGE;
        keys[0].find.step = 1;
    }
    let is_question = about.key > 0 && about.flags.to_bytes().starts_with(b"readonly");
    let info = raw::RedisModuleCommandInfo {
        version: &raw const version,
        summary: about.summary.as_ptr(),
        complexity: about.complexity.as_ptr(),
        since: c"0.1.0".as_ptr(),
        history: std::ptr::null_mut(),
        // Windows, ages and counts change by time, also where nothing is written: an answer that
        // is cached would not be invalidated.
        tips: if is_question { c"nondeterministic_output".as_ptr() } else { std::ptr::null() },
        arity: about.arity,
        key_specs: keys.as_mut_ptr(),
        args: std::ptr::null_mut(),
    };
    // SAFETY: the caller's; the server copies everything.
    let done = unsafe { api(raw::RedisModule_SetCommandInfo)(command, &raw const info) };
    done == raw::REDISMODULE_OK
}

/// Writes a line to the server's log.
fn log(context: &Context, text: &str) {
    let text = one_line(text);
    // SAFETY: the context of loading; the format takes one text.
    unsafe {
        let write = api(raw::RedisModule_Log);
        write(context.0, c"warning".as_ptr(), c"%s".as_ptr(), text.as_ptr());
    }
}

/// Returns a random number of the server.
pub fn random() -> u128 {
    let mut bytes = [0_u8; 16];
    // SAFETY: as many bytes as passed.
    unsafe { api(raw::RedisModule_GetRandomBytes)(bytes.as_mut_ptr(), bytes.len()) };
    u128::from_le_bytes(bytes)
}

/// Returns the reading of the server's monotonic clock, in microseconds. Nobody can set it. It
/// stands where there is no server: in tests of this library.
pub fn monotonic() -> u64 {
    // SAFETY: it takes nothing and returns a number.
    unsafe { raw::RedisModule_MonotonicMicroseconds.map_or(0, |read| read()) }
}
