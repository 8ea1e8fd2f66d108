//! One call of a command: its arguments, the key it works on, its reply, and its effects.

use super::raw::{self, RedisModuleCtx, RedisModuleString};
use super::server::is_valkey;
use super::{Slot, Stored, api, one_line};
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_long, c_longlong};

/// The bit of a context's flags that says in Valkey 9 that its client moves a slot here. Headers of
/// Redis do not have it, and use the bit for something else.
const CTX_FLAGS_SLOT_IMPORT_CLIENT: c_int = 1 << 25;

/// An error reply: a code in capitals, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    code: &'static str,
    message: String,
}

impl Failure {
    /// Creates an error reply.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// `Ok` if the command has replied, otherwise the error that is the reply.
pub type Outcome = Result<(), Failure>;

/// How a command uses its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It reads the value.
    Read,
    /// It creates a value.
    Create,
    /// It changes the value.
    Change,
    /// It removes something from the value.
    Remove,
}

impl Access {
    /// Returns the flags of the key specification.
    pub(super) fn flags(self) -> u64 {
        match self {
            Self::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
            Self::Create => raw::REDISMODULE_CMD_KEY_OW | raw::REDISMODULE_CMD_KEY_INSERT,
            Self::Change => {
                let reads = raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE;
                raw::REDISMODULE_CMD_KEY_RW | reads
            }
            Self::Remove => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
        }
    }
}

/// The description of a command for the server.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The name.
    pub name: &'static CStr,
    /// The number of arguments with the name; negative for at least this number.
    pub arity: i32,
    /// Flags, separated by blanks.
    pub flags: &'static CStr,
    /// The categories of access control, where the server has them for modules.
    pub categories: &'static CStr,
    /// The position of the key; 0 if there is none.
    pub key: i32,
    /// What is done with the key.
    pub access: Access,
    /// One sentence.
    pub summary: &'static CStr,
    /// The time it takes.
    pub complexity: &'static CStr,
}

/// A command.
pub trait Command {
    /// Its description for the server.
    const ABOUT: About;

    /// Executes a call.
    ///
    /// # Errors
    /// The error reply; the call has not replied then.
    fn run(call: &Call<'_>) -> Outcome;
}

/// One call of a command.
pub struct Call<'a> {
    pub(super) context: *mut RedisModuleCtx,
    arguments: &'a [*mut RedisModuleString],
    key: usize,
    is_open: Cell<bool>,
    begun: Cell<Option<Begun>>,
}

/// An effect to which bytes may be added before it is propagated, with its event.
struct Begun {
    command: &'static CStr,
    bytes: Vec<u8>,
    event: &'static CStr,
}

/// What the server calls for a command.
///
/// # Safety
/// Called by the server only.
pub(super) unsafe extern "C" fn execute<C: Command>(
    context: *mut RedisModuleCtx,
    arguments: *mut *mut RedisModuleString,
    count: c_int,
) -> c_int {
    // SAFETY: the server passes this number of arguments, which live as long as the call.
    let arguments = unsafe { std::slice::from_raw_parts(arguments, count as usize) };
    let fits = match C::ABOUT.arity {
        most if most < 0 => arguments.len() >= most.unsigned_abs() as usize,
        exactly => arguments.len() == exactly as usize,
    };
    if !fits {
        // SAFETY: the context of this call.
        return unsafe { api(raw::RedisModule_WrongArity)(context) };
    }
    let key = C::ABOUT.key as usize;
    let call = Call { context, arguments, key, is_open: Cell::new(false), begun: Cell::new(None) };
    let outcome = C::run(&call);
    call.end_effect(&[]);
    if let Err(Failure { code, message }) = outcome {
        let text = one_line(&format!("{code} {message}"));
        // SAFETY: the context of this call, and a text that ends with NUL.
        unsafe { api(raw::RedisModule_ReplyWithError)(context, text.as_ptr()) };
    }
    raw::REDISMODULE_OK
}

impl<'a> Call<'a> {
    /// Returns the number of arguments, with the name of the command.
    pub fn count(&self) -> usize {
        self.arguments.len()
    }

    /// Returns an argument; the name of the command is argument 0. One that is not there is empty.
    #[inline]
    pub fn argument(&self, at: usize) -> &'a [u8] {
        let Some(&argument) = self.arguments.get(at) else { return &[] };
        let mut length = 0;
        // SAFETY: a string of the server that lives, unchanged, as long as the call.
        unsafe {
            let bytes = api(raw::RedisModule_StringPtrLen)(argument, &raw mut length);
            std::slice::from_raw_parts(bytes.cast(), length)
        }
    }

    /// Returns the arguments from one on.
    pub fn arguments_from(&self, at: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + '_ {
        (at..self.count().max(at)).map(|at| self.argument(at))
    }

    /// Opens the key, once in a call.
    ///
    /// # Errors
    /// `WRONGTYPE` if it holds something else.
    #[inline]
    pub fn open<V: Stored>(&self, access: Access) -> Result<Slot<'_, V>, Failure> {
        assert!(!self.is_open.replace(true), "a call opens its key once");
        let mode = match access {
            Access::Read => raw::REDISMODULE_READ,
            Access::Create | Access::Change | Access::Remove => {
                raw::REDISMODULE_READ | raw::REDISMODULE_WRITE
            }
        };
        // SAFETY: the context and the arguments are those of this call; the key is among them
        // because the arity was checked; it is opened once.
        unsafe { Slot::open(self.context, self.arguments[self.key], mode) }.ok_or_else(|| {
            let other = "Operation against a key holding the wrong kind of value";
            Failure::new("WRONGTYPE", other)
        })
    }

    /// Returns whether the command comes from the primary, from the append-only file, or from the
    /// node that a slot is moved from.
    pub fn is_replayed(&self) -> bool {
        let replayed = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING;
        let moved = if is_valkey() { CTX_FLAGS_SLOT_IMPORT_CLIENT } else { 0 };
        self.has_flag(replayed | moved)
    }

    /// Returns whether the server uses more memory than it may. One that evicts has just evicted
    /// what this command finds too much, but for what it has itself taken so far.
    pub fn is_out_of_memory(&self) -> bool {
        if !self.has_flag(raw::REDISMODULE_CTX_FLAGS_OOM) {
            return false;
        }
        // SAFETY: the context of this call.
        let memory = unsafe { Memory::of(self.context) };
        !self.evicts()
            || memory
                .most
                .is_some_and(|most| memory.held > most + OWN_BYTES.max(most / STILL_TO_EVICT))
    }

    fn evicts(&self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_EVICT)
    }

    /// Returns whether the client speaks RESP3.
    pub fn is_resp3(&self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_RESP3)
    }

    /// Returns whether the context has one of these flags.
    fn has_flag(&self, flags: c_int) -> bool {
        // SAFETY: the context of this call.
        let all = unsafe { api(raw::RedisModule_GetContextFlags)(self.context) };
        all & flags != 0
    }
}

/// Replies.
impl Call<'_> {
    /// Replies with an integer.
    #[inline]
    pub fn integer(&self, number: i64) {
        // SAFETY: the context of this call, here and below.
        unsafe { api(raw::RedisModule_ReplyWithLongLong)(self.context, number as c_longlong) };
    }

    /// Replies with a boolean; with 1 or 0 to clients without booleans.
    pub fn boolean(&self, is: bool) {
        // SAFETY: as above.
        unsafe { api(raw::RedisModule_ReplyWithBool)(self.context, is.into()) };
    }

    /// Replies with a double.
    pub fn double(&self, number: f64) {
        // SAFETY: as above.
        unsafe { api(raw::RedisModule_ReplyWithDouble)(self.context, number) };
    }

    /// Replies with bytes.
    pub fn bytes(&self, bytes: &[u8]) {
        let (start, length) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: as above; the server copies the bytes.
        unsafe { api(raw::RedisModule_ReplyWithStringBuffer)(self.context, start, length) };
    }

    /// Replies with nil.
    pub fn nil(&self) {
        // SAFETY: as above.
        unsafe { api(raw::RedisModule_ReplyWithNull)(self.context) };
    }

    /// Replies with `OK`.
    pub fn ok(&self) {
        // SAFETY: as above.
        unsafe { api(raw::RedisModule_ReplyWithSimpleString)(self.context, c"OK".as_ptr()) };
    }

    /// Begins an array with this number of replies.
    pub fn array(&self, count: usize) {
        // SAFETY: as above.
        unsafe { api(raw::RedisModule_ReplyWithArray)(self.context, count as c_long) };
    }

    /// Begins a map with this number of pairs; an array for clients without maps.
    pub fn map(&self, pairs: usize) {
        // SAFETY: as above.
        unsafe { api(raw::RedisModule_ReplyWithMap)(self.context, pairs as c_long) };
    }
}

/// Effects: what replicas and the append-only file get in place of the user's command.
impl Call<'_> {
    fn own_key(&self) -> *mut RedisModuleString {
        self.arguments[self.key]
    }

    /// Begins the effect `command key bytes`, which [`Call::end_effect`] or the end of the call
    /// propagates: what a call does to a key should be one effect, because the server makes a
    /// transaction of several, of which a file may end in the middle.
    pub fn begin_effect(&self, command: &'static CStr, bytes: Vec<u8>, event: &'static CStr) {
        self.begun.set(Some(Begun { command, bytes, event }));
    }

    /// Propagates the effect that was begun, with more bytes as a further argument if there are
    /// any, and publishes its event; false if none was begun.
    #[inline]
    pub fn end_effect(&self, more: &[u8]) -> bool {
        let Some(Begun { command, bytes, event }) = self.begun.take() else { return false };
        self.replicate(command, &bytes, more);
        self.changed(event);
        true
    }

    /// Propagates `command key bytes more`, without `more` if it is empty.
    pub fn replicate(&self, command: &CStr, bytes: &[u8], more: &[u8]) {
        let format = if more.is_empty() { c"sb" } else { c"sbb" };
        // SAFETY: the context and the key of this call; the format names a string of the server,
        // and pointers with lengths, of which the last ones are not read if it does not name them.
        unsafe {
            api(raw::RedisModule_Replicate)(
                self.context,
                command.as_ptr(),
                format.as_ptr(),
                self.own_key(),
                bytes.as_ptr(),
                bytes.len(),
                more.as_ptr(),
                more.len(),
            );
        }
    }

    /// Propagates `command key number bytes`.
    #[inline]
    pub fn replicate_numbered(&self, command: &CStr, number: u64, bytes: &[u8]) {
        // SAFETY: as in `replicate`, with a `long long` in between.
        unsafe {
            api(raw::RedisModule_Replicate)(
                self.context,
                command.as_ptr(),
                c"slb".as_ptr(),
                self.own_key(),
                number as c_longlong,
                bytes.as_ptr(),
                bytes.len(),
            );
        }
    }

    /// Propagates `command key number bytes number bytes`.
    pub fn replicate_twice_numbered(&self, command: &CStr, two: [(u64, &[u8]); 2]) {
        let [(first, bytes), (second, more)] = two;
        // SAFETY: as in `replicate_numbered`, twice.
        unsafe {
            api(raw::RedisModule_Replicate)(
                self.context,
                command.as_ptr(),
                c"slblb".as_ptr(),
                self.own_key(),
                first as c_longlong,
                bytes.as_ptr(),
                bytes.len(),
                second as c_longlong,
                more.as_ptr(),
                more.len(),
            );
        }
    }

    /// Tells transactions that watch the key, and clients that cache it, that it has changed, and
    /// publishes the event to those who subscribed to events of modules.
    #[inline]
    pub fn changed(&self, event: &CStr) {
        // SAFETY: the context and the key of this call.
        unsafe {
            api(raw::RedisModule_SignalModifiedKey)(self.context, self.own_key());
            api(raw::RedisModule_NotifyKeyspaceEvent)(
                self.context,
                raw::REDISMODULE_NOTIFY_MODULE,
                event.as_ptr(),
                self.own_key(),
            );
        }
    }

    /// Returns how many bytes the server may still allocate: all of its memory if it evicts other
    /// keys for them; `None` if it has no limit.
    pub fn memory_left(&self) -> Option<u64> {
        // SAFETY: the context of this call.
        let Memory { used, most, .. } = unsafe { Memory::of(self.context) };
        Some(if self.evicts() { most? } else { most?.saturating_sub(used) })
    }
}

/// What a command may have allocated before it asks for the server's memory.
const OWN_BYTES: u64 = 256 << 10;

/// A server that evicts may hold this part more than its limit: it stops evicting after a fraction
/// of a millisecond, and continues before the next command.
const STILL_TO_EVICT: u64 = 64;

/// The memory of the server, in bytes.
struct Memory {
    used: u64,
    /// What of it counts against the limit: not the buffers of replicas and of files.
    held: u64,
    /// The limit; `None` if there is none.
    most: Option<u64>,
}

impl Memory {
    /// # Safety
    /// `context` is that of a call.
    unsafe fn of(context: *mut RedisModuleCtx) -> Self {
        // SAFETY: the caller's; what is returned is released here.
        unsafe {
            let info = api(raw::RedisModule_GetServerInfo)(context, c"memory".as_ptr());
            let field = |name: &CStr| {
                let mut error = 0;
                let read = api(raw::RedisModule_ServerInfoGetFieldUnsigned);
                let number = read(info, name.as_ptr(), &raw mut error);
                (error == 0).then_some(number)
            };
            let used = field(c"used_memory").unwrap_or(0);
            let held = used.saturating_sub(field(c"mem_not_counted_for_evict").unwrap_or(0));
            let most = field(c"maxmemory").filter(|&most| most > 0);
            api(raw::RedisModule_FreeServerInfo)(context, info);
            Self { used, held, most }
        }
    }
}
