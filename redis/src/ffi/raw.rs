//! The part of the server's interface that is used: types, constants and functions as
//! `redismodule.h` of Redis 7.0 declares them (Valkey has the same), and those of later servers
//! that are tested before each use.
//!
//! Written here, not generated from the header: so the module builds without libclang and without
//! a compiler of C. The functions are looked up by their names when the module is loaded.

#![expect(non_upper_case_globals, reason = "functions have the names of the header")]

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_uint, c_ulonglong, c_void};

pub const REDISMODULE_OK: c_int = 0;
pub const REDISMODULE_ERR: c_int = 1;
pub const REDISMODULE_APIVER_1: c_int = 1;

pub const REDISMODULE_READ: c_int = 1;
pub const REDISMODULE_WRITE: c_int = 2;
pub const REDISMODULE_KEYTYPE_EMPTY: c_int = 0;

pub const REDISMODULE_CMD_KEY_RO: u64 = 1;
pub const REDISMODULE_CMD_KEY_RW: u64 = 1 << 1;
pub const REDISMODULE_CMD_KEY_OW: u64 = 1 << 2;
pub const REDISMODULE_CMD_KEY_ACCESS: u64 = 1 << 4;
pub const REDISMODULE_CMD_KEY_UPDATE: u64 = 1 << 5;
pub const REDISMODULE_CMD_KEY_INSERT: u64 = 1 << 6;
pub const REDISMODULE_CMD_KEY_DELETE: u64 = 1 << 7;
pub const REDISMODULE_KSPEC_BS_INDEX: c_uint = 2;
pub const REDISMODULE_KSPEC_FK_RANGE: c_uint = 2;

pub const REDISMODULE_CONFIG_DEFAULT: c_uint = 0;
pub const REDISMODULE_CONFIG_IMMUTABLE: c_uint = 1;
pub const REDISMODULE_CONFIG_MEMORY: c_uint = 1 << 7;

pub const REDISMODULE_CTX_FLAGS_EVICT: c_int = 1 << 9;
pub const REDISMODULE_CTX_FLAGS_OOM: c_int = 1 << 10;
pub const REDISMODULE_CTX_FLAGS_REPLICATED: c_int = 1 << 12;
pub const REDISMODULE_CTX_FLAGS_LOADING: c_int = 1 << 13;
pub const REDISMODULE_CTX_FLAGS_RESP3: c_int = 1 << 22;

pub const REDISMODULE_OPTIONS_HANDLE_IO_ERRORS: c_int = 1;
pub const REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED: c_int = 1 << 1;
pub const REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD: c_int = 1 << 2;

pub const REDISMODULE_NOTIFY_MODULE: c_int = 1 << 13;

/// The event that the server has become a primary or a replica.
pub const RedisModuleEvent_ReplicationRoleChanged: RedisModuleEvent =
    RedisModuleEvent { id: 0, dataver: 1 };

/// Types that only the server looks into.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            pub struct $name {
                _opaque: [u8; 0],
            }
        )*
    };
}

opaque! {
    RedisModuleCommand
    RedisModuleCommandArg
    RedisModuleCtx
    RedisModuleDefragCtx
    RedisModuleDigest
    RedisModuleIO
    RedisModuleInfoCtx
    RedisModuleKey
    RedisModuleServerInfoData
    RedisModuleString
    RedisModuleType
}

/// The bytes of a `RedisModuleCommandArg`, of which the module passes none.
pub const SIZE_OF_ARGUMENT: usize = 72;

#[repr(C)]
pub struct RedisModuleCommandHistoryEntry {
    pub since: *const c_char,
    pub changes: *const c_char,
}

/// Where the keys of a command begin: a union, whose other member is a pointer and a number.
#[repr(C, align(8))]
pub struct BeginSearch {
    pub position: c_int,
    _other: [c_int; 3],
}

/// Which keys follow: a union, whose other member has three numbers, too.
#[repr(C)]
pub struct FindKeys {
    pub last: c_int,
    pub step: c_int,
    pub limit: c_int,
}

#[repr(C)]
pub struct RedisModuleCommandKeySpec {
    pub notes: *const c_char,
    pub flags: u64,
    pub begin_search_type: c_uint,
    pub begin: BeginSearch,
    pub find_keys_type: c_uint,
    pub find: FindKeys,
}

#[repr(C)]
pub struct RedisModuleCommandInfoVersion {
    pub version: c_int,
    pub sizeof_historyentry: usize,
    pub sizeof_keyspec: usize,
    pub sizeof_arg: usize,
}

#[repr(C)]
pub struct RedisModuleCommandInfo {
    pub version: *const RedisModuleCommandInfoVersion,
    pub summary: *const c_char,
    pub complexity: *const c_char,
    pub since: *const c_char,
    pub history: *mut RedisModuleCommandHistoryEntry,
    pub tips: *const c_char,
    pub arity: c_int,
    pub key_specs: *mut RedisModuleCommandKeySpec,
    pub args: *mut RedisModuleCommandArg,
}

pub type Execute =
    unsafe extern "C" fn(*mut RedisModuleCtx, *mut *mut RedisModuleString, c_int) -> c_int;
pub type Inform = unsafe extern "C" fn(*mut RedisModuleInfoCtx, c_int);
pub type GetNumber = unsafe extern "C" fn(*const c_char, *mut c_void) -> c_longlong;
pub type SetNumber = unsafe extern "C" fn(
    *const c_char,
    c_longlong,
    *mut c_void,
    *mut *mut RedisModuleString,
) -> c_int;
pub type GetChoice = unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int;
pub type SetChoice =
    unsafe extern "C" fn(*const c_char, c_int, *mut c_void, *mut *mut RedisModuleString) -> c_int;
pub type GetText = unsafe extern "C" fn(*const c_char, *mut c_void) -> *mut RedisModuleString;
pub type SetText = unsafe extern "C" fn(
    *const c_char,
    *mut RedisModuleString,
    *mut c_void,
    *mut *mut RedisModuleString,
) -> c_int;
/// An event, and the version of what it comes with.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RedisModuleEvent {
    pub id: u64,
    pub dataver: u64,
}

pub type OnEvent = unsafe extern "C" fn(*mut RedisModuleCtx, RedisModuleEvent, u64, *mut c_void);
/// Called after a setting was changed. None is used.
pub type Applied =
    unsafe extern "C" fn(*mut RedisModuleCtx, *mut c_void, *mut *mut RedisModuleString) -> c_int;

/// The callbacks of a data type; those that are never used have no type of their own.
#[repr(C)]
pub struct RedisModuleTypeMethods {
    pub version: u64,
    pub rdb_load: Option<unsafe extern "C" fn(*mut RedisModuleIO, c_int) -> *mut c_void>,
    pub rdb_save: Option<unsafe extern "C" fn(*mut RedisModuleIO, *mut c_void)>,
    pub aof_rewrite:
        Option<unsafe extern "C" fn(*mut RedisModuleIO, *mut RedisModuleString, *mut c_void)>,
    pub mem_usage: Option<unsafe extern "C" fn(*const c_void) -> usize>,
    pub digest: Option<unsafe extern "C" fn(*mut RedisModuleDigest, *mut c_void)>,
    pub free: Option<unsafe extern "C" fn(*mut c_void)>,
    pub aux_load: Option<unsafe extern "C" fn()>,
    pub aux_save: Option<unsafe extern "C" fn()>,
    pub aux_save_triggers: c_int,
    pub free_effort: Option<unsafe extern "C" fn(*mut RedisModuleString, *const c_void) -> usize>,
    pub unlink: Option<unsafe extern "C" fn()>,
    pub copy: Option<
        unsafe extern "C" fn(
            *mut RedisModuleString,
            *mut RedisModuleString,
            *const c_void,
        ) -> *mut c_void,
    >,
    pub defrag: Option<
        unsafe extern "C" fn(
            *mut RedisModuleDefragCtx,
            *mut RedisModuleString,
            *mut *mut c_void,
        ) -> c_int,
    >,
    pub mem_usage2: Option<unsafe extern "C" fn()>,
    pub free_effort2: Option<unsafe extern "C" fn()>,
    pub unlink2: Option<unsafe extern "C" fn()>,
    pub copy2: Option<unsafe extern "C" fn()>,
    pub aux_save2: Option<unsafe extern "C" fn()>,
}

const _: () = {
    assert!(size_of::<RedisModuleCommandHistoryEntry>() == 16);
    assert!(size_of::<BeginSearch>() == 16 && align_of::<BeginSearch>() == 8);
    assert!(size_of::<FindKeys>() == 12 && align_of::<FindKeys>() == 4);
    assert!(size_of::<RedisModuleCommandKeySpec>() == 56);
    assert!(size_of::<RedisModuleCommandInfoVersion>() == 32);
    assert!(size_of::<RedisModuleCommandInfo>() == 72);
    assert!(size_of::<RedisModuleTypeMethods>() == 152);
    assert!(size_of::<RedisModuleEvent>() == 16);
};

/// The function that looks up all others.
type GetApi = unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int;

/// Functions of the interface, by their names in the header; `None` before they are looked up, and
/// if the server has none of that name.
macro_rules! functions {
    ($($name:ident($($parameters:tt)*) $(-> $returns:ty)?;)*) => {
        $(
            pub static mut $name: Option<unsafe extern "C" fn($($parameters)*) $(-> $returns)?> =
                None;
        )*

        /// Looks up all functions.
        ///
        /// # Safety
        /// In the thread that loads the module, before anything else is called; `get` is the
        /// server's function.
        unsafe fn look_up(get: GetApi) {
            $(
                // What the server lacks it leaves as it is.
                // SAFETY: the caller's; the server stores the address of a function here, of the
                // type that the header declares, which is a pointer as `Option` of it is.
                unsafe {
                    let name = concat!(stringify!($name), "\0");
                    get(name.as_ptr().cast(), (&raw mut $name).cast());
                }
            )*
        }
    };
}

functions! {
    RedisModule_AddACLCategory(*mut RedisModuleCtx, *const c_char) -> c_int;
    RedisModule_Alloc(usize) -> *mut c_void;
    RedisModule_Calloc(usize, usize) -> *mut c_void;
    RedisModule_CloseKey(*mut RedisModuleKey);
    RedisModule_CreateCommand(
        *mut RedisModuleCtx,
        *const c_char,
        Option<Execute>,
        *const c_char,
        c_int,
        c_int,
        c_int,
    ) -> c_int;
    RedisModule_CreateDataType(
        *mut RedisModuleCtx,
        *const c_char,
        c_int,
        *mut RedisModuleTypeMethods,
    ) -> *mut RedisModuleType;
    RedisModule_CreateString(*mut RedisModuleCtx, *const c_char, usize) -> *mut RedisModuleString;
    RedisModule_DefragAlloc(*mut RedisModuleDefragCtx, *mut c_void) -> *mut c_void;
    RedisModule_DigestAddStringBuffer(*mut RedisModuleDigest, *const c_char, usize);
    RedisModule_DigestEndSequence(*mut RedisModuleDigest);
    RedisModule_EmitAOF(*mut RedisModuleIO, *const c_char, *const c_char, ...);
    RedisModule_Free(*mut c_void);
    RedisModule_FreeServerInfo(*mut RedisModuleCtx, *mut RedisModuleServerInfoData);
    RedisModule_FreeString(*mut RedisModuleCtx, *mut RedisModuleString);
    RedisModule_GetCommand(*mut RedisModuleCtx, *const c_char) -> *mut RedisModuleCommand;
    RedisModule_GetContextFlags(*mut RedisModuleCtx) -> c_int;
    RedisModule_GetRandomBytes(*mut u8, usize);
    RedisModule_GetServerInfo(*mut RedisModuleCtx, *const c_char) -> *mut RedisModuleServerInfoData;
    RedisModule_InfoAddFieldULongLong(*mut RedisModuleInfoCtx, *const c_char, c_ulonglong) -> c_int;
    RedisModule_InfoAddSection(*mut RedisModuleInfoCtx, *const c_char) -> c_int;
    RedisModule_IsIOError(*mut RedisModuleIO) -> c_int;
    RedisModule_IsModuleNameBusy(*const c_char) -> c_int;
    RedisModule_KeyType(*mut RedisModuleKey) -> c_int;
    RedisModule_LoadConfigs(*mut RedisModuleCtx) -> c_int;
    RedisModule_LoadStringBuffer(*mut RedisModuleIO, *mut usize) -> *mut c_char;
    RedisModule_LoadUnsigned(*mut RedisModuleIO) -> u64;
    RedisModule_Log(*mut RedisModuleCtx, *const c_char, *const c_char, ...);
    RedisModule_LogIOError(*mut RedisModuleIO, *const c_char, *const c_char, ...);
    RedisModule_ModuleTypeGetType(*mut RedisModuleKey) -> *mut RedisModuleType;
    RedisModule_ModuleTypeGetValue(*mut RedisModuleKey) -> *mut c_void;
    RedisModule_ModuleTypeSetValue(*mut RedisModuleKey, *mut RedisModuleType, *mut c_void) -> c_int;
    RedisModule_MonotonicMicroseconds() -> u64;
    RedisModule_NotifyKeyspaceEvent(
        *mut RedisModuleCtx,
        c_int,
        *const c_char,
        *mut RedisModuleString,
    ) -> c_int;
    RedisModule_OpenKey(*mut RedisModuleCtx, *mut RedisModuleString, c_int) -> *mut RedisModuleKey;
    RedisModule_Realloc(*mut c_void, usize) -> *mut c_void;
    RedisModule_RegisterEnumConfig(
        *mut RedisModuleCtx,
        *const c_char,
        c_int,
        c_uint,
        *mut *const c_char,
        *const c_int,
        c_int,
        Option<GetChoice>,
        Option<SetChoice>,
        Option<Applied>,
        *mut c_void,
    ) -> c_int;
    RedisModule_RegisterInfoFunc(*mut RedisModuleCtx, Option<Inform>) -> c_int;
    RedisModule_RegisterNumericConfig(
        *mut RedisModuleCtx,
        *const c_char,
        c_longlong,
        c_uint,
        c_longlong,
        c_longlong,
        Option<GetNumber>,
        Option<SetNumber>,
        Option<Applied>,
        *mut c_void,
    ) -> c_int;
    RedisModule_RegisterStringConfig(
        *mut RedisModuleCtx,
        *const c_char,
        *const c_char,
        c_uint,
        Option<GetText>,
        Option<SetText>,
        Option<Applied>,
        *mut c_void,
    ) -> c_int;
    RedisModule_Replicate(*mut RedisModuleCtx, *const c_char, *const c_char, ...) -> c_int;
    RedisModule_ReplyWithArray(*mut RedisModuleCtx, c_long) -> c_int;
    RedisModule_ReplyWithBool(*mut RedisModuleCtx, c_int) -> c_int;
    RedisModule_ReplyWithDouble(*mut RedisModuleCtx, f64) -> c_int;
    RedisModule_ReplyWithError(*mut RedisModuleCtx, *const c_char) -> c_int;
    RedisModule_ReplyWithLongLong(*mut RedisModuleCtx, c_longlong) -> c_int;
    RedisModule_ReplyWithMap(*mut RedisModuleCtx, c_long) -> c_int;
    RedisModule_ReplyWithNull(*mut RedisModuleCtx) -> c_int;
    RedisModule_ReplyWithSimpleString(*mut RedisModuleCtx, *const c_char) -> c_int;
    RedisModule_ReplyWithStringBuffer(*mut RedisModuleCtx, *const c_char, usize) -> c_int;
    RedisModule_SaveStringBuffer(*mut RedisModuleIO, *const c_char, usize);
    RedisModule_SaveUnsigned(*mut RedisModuleIO, u64);
    RedisModule_ServerInfoGetFieldC(*mut RedisModuleServerInfoData, *const c_char) -> *const c_char;
    RedisModule_ServerInfoGetFieldUnsigned(
        *mut RedisModuleServerInfoData,
        *const c_char,
        *mut c_int,
    ) -> c_ulonglong;
    RedisModule_SetCommandACLCategories(*mut RedisModuleCommand, *const c_char) -> c_int;
    RedisModule_SetCommandInfo(*mut RedisModuleCommand, *const RedisModuleCommandInfo) -> c_int;
    RedisModule_SetModuleAttribs(*mut RedisModuleCtx, *const c_char, c_int, c_int);
    RedisModule_SetModuleOptions(*mut RedisModuleCtx, c_int);
    RedisModule_SignalModifiedKey(*mut RedisModuleCtx, *mut RedisModuleString) -> c_int;
    RedisModule_StringPtrLen(*const RedisModuleString, *mut usize) -> *const c_char;
    RedisModule_SubscribeToServerEvent(
        *mut RedisModuleCtx,
        RedisModuleEvent,
        Option<OnEvent>,
    ) -> c_int;
    RedisModule_TryAlloc(usize) -> *mut c_void;
    RedisModule_WrongArity(*mut RedisModuleCtx) -> c_int;
}

/// Begins to load a module: looks up all functions, and tells the server its name. Returns whether
/// the name is free.
///
/// # Safety
/// Called with the context of `RedisModule_OnLoad`, there.
pub unsafe fn begin(context: *mut RedisModuleCtx, name: &CStr, version: c_int) -> bool {
    // SAFETY: a context of loading begins with the address of the function that looks up others;
    // the module is being loaded by this thread.
    unsafe {
        look_up(context.cast::<GetApi>().read());
        if RedisModule_IsModuleNameBusy.is_some_and(|busy| busy(name.as_ptr()) != 0) {
            return false;
        }
        if let Some(set) = RedisModule_SetModuleAttribs {
            set(context, name.as_ptr(), version, REDISMODULE_APIVER_1);
        }
    }
    true
}
