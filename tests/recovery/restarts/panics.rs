//! Panics elsewhere in the program do not affect the filter: it works, and closes, while a thread
//! unwinds.

use super::{digest, directory, insert, kinds, names, open, reference, stream};
use ebbtide::{Error, Filter, Timestamp};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Uses a filter while its thread unwinds, and records the result: a second panic would end the
/// process.
struct WhileUnwinding<'a>(&'a Filter, &'a mut Option<Result<(), Error>>);

impl WhileUnwinding<'_> {
    fn use_it(&self) -> Result<(), Error> {
        for number in 100..200_u64 {
            let time = Timestamp::from_unix_millis(1_000_000 + number);
            self.0.call().time(time).insert(number.to_le_bytes())?;
        }
        self.0.sync()?;
        self.0.checkpoint().map(|_| ())
    }
}

impl Drop for WhileUnwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.1 = Some(self.use_it());
        }
    }
}

#[test]
fn a_filter_used_while_a_thread_unwinds_from_another_panic_is_not_poisoned() {
    let home = directory();
    let dir = home.path().join("f");
    let filter = Filter::create(&dir, kinds()[1].clone(), stream()).expect("a filter");
    insert(&filter, 0..100);
    let mut used = None;
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _last = WhileUnwinding(&filter, &mut used);
        panic!("nothing to do with the filter");
    }));
    unwound.expect_err("it panicked");
    used.expect("it unwound").expect("all of it went well");
    insert(&filter, 200..300);
    filter.sync().expect("it is not poisoned");
    let before = digest(&filter);
    assert_eq!(before.inserts, 300);
    filter.close().expect("a clean close");
    assert_eq!(digest(&open(&dir, stream())).value, before.value);
}

#[test]
fn a_filter_dropped_while_a_thread_unwinds_is_closed_normally() {
    let home = directory();
    let dir = home.path().join("f");
    let unwound = catch_unwind(|| {
        let filter = Filter::create(&dir, kinds()[1].clone(), stream()).expect("a filter");
        insert(&filter, 0..300);
        panic!("nothing to do with the filter");
    });
    unwound.expect_err("it panicked");
    assert_eq!(names(&dir, "snap-").len(), 1, "a clean close writes a snapshot");
    let expected = digest(&reference(&[0..200, 200..300]));
    let found = digest(&open(&dir, stream()));
    assert_eq!((found.value, found.inserts), (expected.value, expected.inserts));
}
