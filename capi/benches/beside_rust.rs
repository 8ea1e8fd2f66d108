//! The price of a call from C beside the same call from Rust: `make bench`.
//!
//! Both run in this process, in turns of short rounds, on two filters of the same parameters: the
//! functions of `libebbtide.so` as a C program calls them, through the loader, and the crate
//! itself, compiled with the same settings. The output is the median of the quotients of
//! neighbouring rounds, which a busy machine disturbs less than times.

use engine::{Any, Filter, Options};
use libloading::{Library, Symbol};
use std::env;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Instant;

type Open = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const c_char,
    *mut *mut c_void,
) -> *mut c_void;
type Operate = unsafe extern "C" fn(
    *mut c_void,
    *const c_void,
    usize,
    *const c_void,
    *mut *mut c_void,
) -> c_int;
type Close = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;

const SPEC: &str = "age-partitioned last=1M fpr=0.001";
const OPTIONS: &str = "durability=never hash-seed=7";
const ROUNDS: usize = 400;
/// Keys of a round: about a millisecond.
const KEYS: u64 = 5_000;

/// Nanoseconds for each call of a round, from Rust and from C.
struct Pair {
    rust: f64,
    c: f64,
}

/// Returns the folder of the libraries.
fn libraries() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/release");
    env::var_os("EBBTIDE_LIBRARIES").map_or(built, PathBuf::from)
}

/// Returns a key of 16 bytes.
fn key(number: u64) -> [u8; 16] {
    let mut key = *b"order   00000000";
    key[8..].copy_from_slice(&number.to_le_bytes());
    key
}

/// Measures a round: nanoseconds for each call.
fn round(first: u64, mut operate: impl FnMut(&[u8; 16])) -> f64 {
    let start = Instant::now();
    for number in first..first + KEYS {
        operate(&key(number));
    }
    start.elapsed().as_secs_f64() * 1e9 / KEYS as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(name: &str, pairs: &[Pair]) {
    let quotient = median(pairs.iter().map(|pair| pair.c / pair.rust).collect());
    let rust = median(pairs.iter().map(|pair| pair.rust).collect());
    let c = median(pairs.iter().map(|pair| pair.c).collect());
    println!("{name:<32} Rust {rust:6.1} ns   C {c:6.1} ns   C / Rust {quotient:.3}");
}

/// Measures rounds in turns; every second pair begins with C. `first` is the first key of a round.
fn pairs(
    first: impl Fn(u64) -> u64,
    mut rust: impl FnMut(&[u8; 16]),
    mut c: impl FnMut(&[u8; 16]),
) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for at in 0..ROUNDS {
        let first = first(at as u64);
        pairs.push(if at % 2 == 0 {
            let rust = round(first, &mut rust);
            Pair { rust, c: round(first, &mut c) }
        } else {
            let c = round(first, &mut c);
            Pair { rust: round(first, &mut rust), c }
        });
    }
    pairs.split_off(ROUNDS / 10)
}

/// Measures the operations of the crate beside these of the library.
fn measure(
    rust: &Filter<Any>,
    check_and_insert: impl Fn(&[u8; 16]) -> c_int,
    contains: impl Fn(&[u8; 16]) -> c_int,
) {
    report(
        "check_and_insert of new keys",
        &pairs(
            |at| at * KEYS,
            |key| _ = rust.check_and_insert(key).expect("an answer"),
            |key| _ = check_and_insert(key),
        ),
    );
    report(
        "check_and_insert of present keys",
        &pairs(
            |_| (ROUNDS as u64 - 1) * KEYS,
            |key| _ = rust.check_and_insert(key).expect("an answer"),
            |key| _ = check_and_insert(key),
        ),
    );
    report(
        "contains",
        &pairs(
            |_| (ROUNDS as u64 - 1) * KEYS,
            |key| assert!(rust.contains(key).expect("an answer")),
            |key| assert!(contains(key) == 1),
        ),
    );
}

fn main() {
    let home = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let home = home.expect("a directory");
    let path = libraries().join("libebbtide.so");
    // SAFETY: the library has no initialisers that could do harm, and the types are those of its
    // header.
    let library = unsafe { Library::new(&path) }
        .unwrap_or_else(|error| panic!("{}: {error}; run `make` first", path.display()));
    // SAFETY: as above.
    let (open, check_and_insert, contains, close): (
        Symbol<'_, Open>,
        Symbol<'_, Operate>,
        Symbol<'_, Operate>,
        Symbol<'_, Close>,
    ) = unsafe {
        let get = |name: &[u8]| library.get::<Operate>(name).expect("a function");
        (
            library.get(b"ebbtide_create").expect("a function"),
            get(b"ebbtide_check_and_insert"),
            get(b"ebbtide_contains"),
            library.get(b"ebbtide_close").expect("a function"),
        )
    };
    let text = |text: &str| CString::new(text).expect("no NUL");
    let c_path = text(home.path().join("c").to_str().expect("UTF-8"));
    // SAFETY: texts that end with NUL, and no place for an error.
    let c = unsafe {
        open(c_path.as_ptr(), text(SPEC).as_ptr(), text(OPTIONS).as_ptr(), ptr::null_mut())
    };
    assert!(!c.is_null(), "cannot create a filter");
    let spec: Any = SPEC.parse().expect("a spec");
    let options: Options = OPTIONS.parse().expect("options");
    let rust = Filter::create(home.path().join("rust"), spec, options).expect("a filter");

    let call = |function: &Operate, key: &[u8; 16]| {
        let mut error = ptr::null_mut();
        // SAFETY: the filter is open, the key has 16 bytes, and the error may be stored.
        let answer =
            unsafe { function(c, key.as_ptr().cast(), key.len(), ptr::null(), &mut error) };
        assert!(answer >= 0, "an error");
        answer
    };
    measure(&rust, |key| call(&check_and_insert, key), |key| call(&contains, key));
    // SAFETY: the filter is open, and not used any more.
    assert_eq!(unsafe { close(c, ptr::null_mut()) }, 0);
    rust.close().expect("a clean end");
}
