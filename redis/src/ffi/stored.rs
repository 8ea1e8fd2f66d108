//! Values of keys: the data type, its callbacks, and the key that a call has open.

use super::api;
use super::raw;
use super::transfer::{Emitter, Loader, Saver, Summary};
use crate::alloc;
use ebbtide_core::atomic::AtomicU64;
use std::alloc::Layout;
use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The most bytes of an allocation that the server's allocator moves when it defragments.
pub const WORDS_THAT_MOVE: usize = 14 << 10;

/// The version of the table of callbacks: that of Redis 7.0.
const METHODS: u64 = 4;

/// What a key holds. Callbacks that save run in a forked child as well, `drop` in any thread.
pub trait Stored: Sized + 'static {
    /// The type's name: nine letters.
    const NAME: &'static CStr;
    /// The version of the encoding that is saved; all up to it are loaded.
    const VERSION: i32;

    /// Saves the value.
    fn save(&self, to: &mut Saver);
    /// Loads a value.
    ///
    /// # Errors
    /// A sentence for the log.
    fn load(from: &mut Loader, version: i32) -> Result<Box<Self>, String>;
    /// Writes the commands that create the value.
    fn rewrite(&self, to: &mut Emitter);
    /// Returns the allocated bytes.
    fn memory_bytes(&self) -> usize;
    /// Returns the number of allocations, roughly: many are released in the background.
    fn effort(&self) -> usize;
    /// Adds the logical state.
    fn digest(&self, to: &mut Summary);
    /// Copies the value; `None` if there is no memory.
    fn copy(&self) -> Option<Box<Self>>;
    /// Passes all allocations of words of at most [`WORDS_THAT_MOVE`].
    fn relocate(&mut self, relocate: &mut dyn FnMut(Box<[AtomicU64]>) -> Box<[AtomicU64]>);
}

/// The registered data type. There is one.
static TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(std::ptr::null_mut());

/// Registers the data type; false if the server refuses.
///
/// # Safety
/// `context` is that of loading the module.
pub(super) unsafe fn register<V: Stored>(context: *mut raw::RedisModuleCtx) -> bool {
    const { assert!(align_of::<V>() <= 16, "most servers can move values") }
    let mut methods = raw::RedisModuleTypeMethods {
        version: METHODS,
        rdb_load: Some(load::<V>),
        rdb_save: Some(save::<V>),
        aof_rewrite: Some(rewrite::<V>),
        mem_usage: Some(memory::<V>),
        digest: Some(digest::<V>),
        free: Some(free::<V>),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: Some(effort::<V>),
        unlink: None,
        copy: Some(copy::<V>),
        defrag: Some(defrag::<V>),
        mem_usage2: None,
        free_effort2: None,
        unlink2: None,
        copy2: None,
        aux_save2: None,
    };
    // SAFETY: the caller's; the server copies the table.
    let made = unsafe {
        let create = api(raw::RedisModule_CreateDataType);
        create(context, V::NAME.as_ptr(), V::VERSION, &raw mut methods)
    };
    TYPE.store(made, Ordering::Relaxed);
    !made.is_null()
}

/// Returns the value behind a pointer that the server has from this module.
///
/// # Safety
/// It is that of a value of this type, and nothing changes it during the call.
unsafe fn of<'a, V: Stored>(value: *const c_void) -> &'a V {
    // SAFETY: the caller's; values are made by `Box::into_raw` only.
    unsafe { &*value.cast::<V>() }
}

/// # Safety
/// Called by the server only, as all callbacks below.
unsafe extern "C" fn load<V: Stored>(io: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    // SAFETY: the server's channel, valid for this call.
    let mut loader = unsafe { Loader::new(io) };
    let refused = if version > V::VERSION {
        let own = V::VERSION;
        Err(format!("expected encoding {own} or less, found {version}: use a later version"))
    } else {
        V::load(&mut loader, version)
    };
    match refused {
        Ok(value) => Box::into_raw(value).cast(),
        Err(reason) => {
            loader.log(&reason);
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// As [`load`].
unsafe extern "C" fn save<V: Stored>(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server's channel and a value of this type.
    unsafe { of::<V>(value).save(&mut Saver::new(io)) }
}

/// # Safety
/// As [`load`].
unsafe extern "C" fn rewrite<V: Stored>(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: the server's channel, the name of the key and a value of this type.
    unsafe { of::<V>(value).rewrite(&mut Emitter::new(io, key)) }
}

/// # Safety
/// As [`load`].
unsafe extern "C" fn memory<V: Stored>(value: *const c_void) -> usize {
    // SAFETY: a value of this type.
    unsafe { of::<V>(value) }.memory_bytes()
}

/// # Safety
/// As [`load`].
unsafe extern "C" fn effort<V: Stored>(
    _: *mut raw::RedisModuleString,
    value: *const c_void,
) -> usize {
    // SAFETY: a value of this type.
    unsafe { of::<V>(value) }.effort()
}

/// # Safety
/// As [`load`].
unsafe extern "C" fn digest<V: Stored>(to: *mut raw::RedisModuleDigest, value: *mut c_void) {
    // SAFETY: the server's digest and a value of this type.
    unsafe { of::<V>(value).digest(&mut Summary::new(to)) }
}

/// # Safety
/// As [`load`].
unsafe extern "C" fn copy<V: Stored>(
    _: *mut raw::RedisModuleString,
    _: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    // SAFETY: a value of this type.
    let copied = unsafe { of::<V>(value) }.copy();
    copied.map_or(std::ptr::null_mut(), |value| Box::into_raw(value).cast())
}

/// # Safety
/// As [`load`]; the server does not use the value any more. May run in any thread.
unsafe extern "C" fn free<V: Stored>(value: *mut c_void) {
    // SAFETY: made by `Box::into_raw`, and freed once.
    drop(unsafe { Box::from_raw(value.cast::<V>()) });
}

/// # Safety
/// As [`load`].
unsafe extern "C" fn defrag<V: Stored>(
    context: *mut raw::RedisModuleDefragCtx,
    _: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    // SAFETY: read as every function of the interface.
    let Some(server) = (unsafe { raw::RedisModule_DefragAlloc }) else { return 0 };
    // SAFETY: the context of this call, and memory of the server's allocator.
    let mut moved = |memory: *mut c_void| unsafe { server(context, memory) };
    let is_block = alloc::is_block(Layout::new::<V>());
    // SAFETY: a value of this type, which only this callback uses now.
    unsafe { move_all::<V>(value, is_block, &mut moved) };
    0
}

/// Moves a value: itself, if its memory is a whole block of the server, and its small allocations.
/// `moved` returns the new place of an allocation with its content, or null if it stays.
///
/// # Safety
/// `value` is the only pointer to a value of this type; `moved` releases what it moves.
unsafe fn move_all<V: Stored>(
    value: *mut *mut c_void,
    is_block: bool,
    moved: &mut dyn FnMut(*mut c_void) -> *mut c_void,
) {
    const { assert!(align_of::<AtomicU64>() <= align_of::<*mut u8>(), "words are whole blocks") }
    // SAFETY: a box has the address of its allocation. The server knows it if that is a whole
    // block, as those of words are; the content is where the returned pointer points.
    unsafe {
        let place = if is_block { moved(*value) } else { std::ptr::null_mut() };
        if !place.is_null() {
            *value = place;
        }
        (*(*value).cast::<V>()).relocate(&mut |words| {
            let old = Box::into_raw(words);
            let place = moved(old.cast());
            let start = if place.is_null() { old.cast() } else { place.cast::<AtomicU64>() };
            Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, old.len()))
        });
    }
}

/// The key that a call has open.
pub struct Slot<'a, V> {
    key: *mut raw::RedisModuleKey,
    value: Option<&'a mut V>,
    call: PhantomData<&'a ()>,
}

impl<V: Stored> Slot<'_, V> {
    /// Opens a key; `None` if it holds a value of another type.
    ///
    /// # Safety
    /// Context and name are those of a call, which has no other key open.
    #[inline]
    pub(super) unsafe fn open(
        context: *mut raw::RedisModuleCtx,
        name: *mut raw::RedisModuleString,
        mode: c_int,
    ) -> Option<Self> {
        // SAFETY: the caller's. The interface takes no key, null, for one that is not there.
        let (key, holds) = unsafe {
            let key = api(raw::RedisModule_OpenKey)(context, name, mode);
            (key, api(raw::RedisModule_KeyType)(key))
        };
        let mut slot = Self { key, value: None, call: PhantomData };
        if holds == raw::REDISMODULE_KEYTYPE_EMPTY {
            return Some(slot);
        }
        // SAFETY: an open key with a value. Of this type it was made by `Box::into_raw`; nobody
        // else has a reference, because the server executes one call after the other.
        unsafe {
            let found = api(raw::RedisModule_ModuleTypeGetType)(key);
            if found != TYPE.load(Ordering::Relaxed) {
                return None;
            }
            slot.value = api(raw::RedisModule_ModuleTypeGetValue)(key).cast::<V>().as_mut();
        }
        Some(slot)
    }

    /// Returns the value, if the key has one.
    #[inline]
    pub fn value(&mut self) -> Option<&mut V> {
        self.value.as_deref_mut()
    }

    /// Gives the key a value, in place of the one it has.
    pub fn set(&mut self, value: Box<V>) {
        self.value = None;
        let (key, of) = (self.key, TYPE.load(Ordering::Relaxed));
        let place = Box::into_raw(value);
        // SAFETY: a key that was opened for writing. The server owns the value from now on, and
        // returns it as it would for a key that is opened with it.
        unsafe {
            api(raw::RedisModule_ModuleTypeSetValue)(key, of, place.cast());
            self.value = place.as_mut();
        }
    }
}

impl<V> Drop for Slot<'_, V> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed once. The interface takes null.
        unsafe { api(raw::RedisModule_CloseKey)(self.key) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use ebbtide_core::Parameters;
    use ebbtide_core::kinds::registry;
    use ebbtide_core::machine::{Machine, MachineOptions};

    /// The content of an allocation of this layout, moved as the server moves it.
    fn moved(memory: *mut c_void, layout: Layout) -> *mut c_void {
        // SAFETY: memory of this layout, which is used no more.
        unsafe {
            let place = std::alloc::alloc(layout);
            place.copy_from_nonoverlapping(memory.cast(), layout.size());
            std::alloc::dealloc(memory.cast(), layout);
            place.cast()
        }
    }

    /// A value with a key, and the layouts of its words.
    fn filled() -> (Value, Vec<Layout>) {
        let kind = registry::build("bloom", &Parameters::new().with("capacity", 100));
        let options = MachineOptions::new().block_bytes(512);
        let mut machine =
            Machine::create(kind.expect("a kind"), &options, 1, 2).expect("a machine");
        let time = machine.time(Some(1), None).expect("a time");
        for key in 0..100_u32 {
            let hash = machine.hash(&key.to_le_bytes());
            assert!(machine.insert(hash, time, &mut |_| {}).expect("an insert"));
        }
        let mut words = Vec::new();
        machine.relocate(WORDS_THAT_MOVE, |moved| {
            words.push(Layout::for_value(&*moved));
            moved
        });
        assert!(words.len() > 1, "the state and a chunk: {words:?}");
        (Value::ready(machine), words)
    }

    /// Moves a value, and checks that all of these allocations moved, in this order.
    fn check_moved(is_block: bool) {
        let (mut filled, words) = filled();
        let digest = filled.machine().expect("it is ready").digest();
        let own = is_block.then(Layout::new::<Value>);
        let mut left = own.into_iter().chain(words);
        let mut value: *mut c_void = Box::into_raw(Box::new(filled)).cast();
        let before = value;
        // SAFETY: the only pointer to the value; the closure moves what it is given.
        unsafe {
            move_all::<Value>(&raw mut value, is_block, &mut |memory| {
                moved(memory, left.next().expect("one of the allocations"))
            });
        }
        assert!(left.next().is_none());
        assert_eq!(value != before, is_block);
        // SAFETY: where it is now; freed once.
        let mut value = unsafe { Box::from_raw(value.cast::<Value>()) };
        assert_eq!(value.machine().expect("it is ready").digest(), digest);
    }

    #[test]
    fn a_value_that_is_moved_answers_as_before() {
        check_moved(true);
    }

    #[test]
    fn a_value_that_is_a_part_of_a_block_stays_and_its_words_move() {
        check_moved(false);
    }
}
