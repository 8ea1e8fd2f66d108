//! The server's configuration, and its `INFO`.

use super::raw;
use super::{Context, api, one_line};
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

/// A setting that is a number.
pub struct Number {
    /// Its name after that of the module.
    pub name: &'static CStr,
    /// Its default.
    pub default: i64,
    /// Its bounds.
    pub bounds: (i64, i64),
    /// Whether it counts bytes: the server then takes units, as in `64mb`.
    pub is_bytes: bool,
    /// Its value.
    pub value: AtomicI64,
}

/// A setting that is one of some words.
pub struct Choice {
    /// Its name after that of the module.
    pub name: &'static CStr,
    /// The words; the first one is the default.
    pub words: &'static [&'static CStr],
    /// Whether it can be set when the module is loaded only.
    pub is_fixed: bool,
    /// The number of the chosen word.
    pub value: AtomicI64,
}

/// A setting that is text in a form of its own.
pub struct Text {
    /// Its name after that of the module.
    pub name: &'static CStr,
    /// Its default.
    pub default: &'static CStr,
    /// Returns it.
    pub get: fn() -> String,
    /// Sets it, or says why not.
    pub set: fn(&str) -> Result<(), String>,
}

/// The text that was returned to the server last: it does not take it over.
static SHOWN: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(std::ptr::null_mut());

fn string(text: &str) -> *mut raw::RedisModuleString {
    let (start, length) = (text.as_ptr().cast(), text.len());
    // SAFETY: the server copies the text; it needs no context for it.
    unsafe { api(raw::RedisModule_CreateString)(std::ptr::null_mut(), start, length) }
}

/// # Safety
/// Called by the server only, with what was registered, as all functions below.
unsafe extern "C" fn get_number(_: *const c_char, setting: *mut c_void) -> c_longlong {
    // SAFETY: registered with a static.
    unsafe { &*setting.cast::<AtomicI64>() }.load(Ordering::Relaxed)
}

/// # Safety
/// As [`get_number`].
unsafe extern "C" fn set_number(
    _: *const c_char,
    value: c_longlong,
    setting: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: registered with a static.
    unsafe { &*setting.cast::<AtomicI64>() }.store(value, Ordering::Relaxed);
    raw::REDISMODULE_OK
}

/// # Safety
/// As [`get_number`].
unsafe extern "C" fn get_choice(name: *const c_char, setting: *mut c_void) -> c_int {
    // SAFETY: the caller's.
    unsafe { get_number(name, setting) as c_int }
}

/// # Safety
/// As [`get_number`].
unsafe extern "C" fn set_choice(
    name: *const c_char,
    value: c_int,
    setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { set_number(name, value.into(), setting, error) }
}

/// # Safety
/// As [`get_number`].
unsafe extern "C" fn get_text(
    _: *const c_char,
    setting: *mut c_void,
) -> *mut raw::RedisModuleString {
    // SAFETY: registered with a static.
    let text = unsafe { &*setting.cast::<Text>() };
    let shown = string(&(text.get)());
    let before = SHOWN.swap(shown, Ordering::Relaxed);
    if !before.is_null() {
        // SAFETY: the server has used it by now.
        unsafe { api(raw::RedisModule_FreeString)(std::ptr::null_mut(), before) };
    }
    shown
}

/// # Safety
/// As [`get_number`].
unsafe extern "C" fn set_text(
    _: *const c_char,
    value: *mut raw::RedisModuleString,
    setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let mut length = 0;
    // SAFETY: registered with a static; a string of the server, valid for the call.
    let (text, bytes) = unsafe {
        let start = api(raw::RedisModule_StringPtrLen)(value, &raw mut length);
        (&*setting.cast::<Text>(), std::slice::from_raw_parts(start.cast(), length))
    };
    let set = std::str::from_utf8(bytes).map_err(|_| "expected text".to_owned());
    match set.and_then(|value| (text.set)(value)) {
        Ok(()) => raw::REDISMODULE_OK,
        Err(reason) => {
            // SAFETY: the server takes a string here.
            unsafe { *error = string(&reason) };
            raw::REDISMODULE_ERR
        }
    }
}

/// Registers a number; false if the server refuses.
#[must_use]
pub fn register_number(context: &Context, setting: &'static Number) -> bool {
    let (least, most) = setting.bounds;
    let flags = if setting.is_bytes {
        raw::REDISMODULE_CONFIG_MEMORY
    } else {
        raw::REDISMODULE_CONFIG_DEFAULT
    };
    // SAFETY: the context of loading; what is registered is static.
    let done = unsafe {
        api(raw::RedisModule_RegisterNumericConfig)(
            context.pointer(),
            setting.name.as_ptr(),
            setting.default,
            flags,
            least,
            most,
            Some(get_number),
            Some(set_number),
            None,
            (&raw const setting.value).cast_mut().cast(),
        )
    };
    done == raw::REDISMODULE_OK
}

/// Registers a choice; false if the server refuses.
#[must_use]
pub fn register_choice(context: &Context, setting: &'static Choice) -> bool {
    let mut words: Vec<_> = setting.words.iter().map(|word| word.as_ptr()).collect();
    let numbers: Vec<c_int> = (0..).take(words.len()).collect();
    let flags = if setting.is_fixed {
        raw::REDISMODULE_CONFIG_IMMUTABLE
    } else {
        raw::REDISMODULE_CONFIG_DEFAULT
    };
    // SAFETY: as above; the server copies words and numbers.
    let done = unsafe {
        api(raw::RedisModule_RegisterEnumConfig)(
            context.pointer(),
            setting.name.as_ptr(),
            0,
            flags,
            words.as_mut_ptr(),
            numbers.as_ptr(),
            words.len() as c_int,
            Some(get_choice),
            Some(set_choice),
            None,
            (&raw const setting.value).cast_mut().cast(),
        )
    };
    done == raw::REDISMODULE_OK
}

/// Registers a text; false if the server refuses.
#[must_use]
pub fn register_text(context: &Context, setting: &'static Text) -> bool {
    // SAFETY: as above.
    let done = unsafe {
        api(raw::RedisModule_RegisterStringConfig)(
            context.pointer(),
            setting.name.as_ptr(),
            setting.default.as_ptr(),
            raw::REDISMODULE_CONFIG_DEFAULT,
            Some(get_text),
            Some(set_text),
            None,
            (&raw const *setting).cast_mut().cast(),
        )
    };
    done == raw::REDISMODULE_OK
}

/// Applies the values of the server's configuration file; false if one is refused.
#[must_use]
pub fn apply_settings(context: &Context) -> bool {
    // SAFETY: the context of loading.
    let done = unsafe { api(raw::RedisModule_LoadConfigs)(context.pointer()) };
    done == raw::REDISMODULE_OK
}

/// Registers the figures of `INFO`.
pub fn register_figures<F: Figures>(context: &Context) {
    // SAFETY: the context of loading.
    unsafe { api(raw::RedisModule_RegisterInfoFunc)(context.pointer(), Some(inform::<F>)) };
}

/// The figures of `INFO`.
pub trait Figures {
    /// Returns names and numbers.
    fn all() -> Vec<(&'static str, u64)>;
}

/// # Safety
/// Called by the server only.
unsafe extern "C" fn inform<F: Figures>(to: *mut raw::RedisModuleInfoCtx, _: c_int) {
    // SAFETY: the context of this call; names end with NUL.
    unsafe {
        api(raw::RedisModule_InfoAddSection)(to, c"".as_ptr());
        for (name, number) in F::all() {
            api(raw::RedisModule_InfoAddFieldULongLong)(to, one_line(name).as_ptr(), number);
        }
    }
}
