//! The medium in memory: its size, and failures on demand of a medium around it.

use crate::media::failing::Failing;
use crate::media::tests::*;

fn made(capacity: u64) -> Memory {
    let memory = Memory::with_capacity(capacity);
    memory.make().expect("nothing fails yet");
    memory
}

#[test]
fn a_full_memory_refuses_to_grow_until_there_is_space() {
    let memory = made(100);
    let file = memory.create("a", 60).expect("it fits");
    assert_eq!(kind(memory.create("b", 41)), ErrorKind::StorageFull);
    assert_eq!(memory.list().expect("made"), ["a"]);
    file.write_at(&[1; 40], 60).expect("it just fits");
    file.write_at(&[2; 100], 0).expect("no growth");
    assert_eq!(kind(file.write_at(&[3], 100)), ErrorKind::StorageFull);
    assert_eq!(file.bytes().expect("open"), 100);
    memory.set_capacity(101);
    file.write_at(&[3], 100).expect("there is space");
    memory.remove("a").expect("it is there");
    memory.create("b", 101).expect("a removed file takes no space");
}

#[test]
fn a_mapped_file_does_not_move() {
    let memory = made(u64::MAX);
    let file = memory.create("a", 8).expect("space");
    let map = file.map(Access::Write).expect("a word");
    assert_eq!(kind(file.write_at(&[1], 8)), ErrorKind::Unsupported);
    drop(map);
    file.write_at(&[1], 8).expect("no longer mapped");
}

#[test]
fn the_chosen_call_fails_once_and_does_nothing() {
    let memory = Failing::new(made(u64::MAX));
    memory.fail_after(2, ErrorKind::StorageFull);
    let file = memory.create("a", 8).expect("the first call");
    assert_eq!(kind(file.write_at(&[1], 0)), ErrorKind::StorageFull);
    let mut byte = [7];
    file.read_at(&mut byte, 0).expect("it fails but once");
    assert_eq!(byte, [0]);
    assert!(!memory.clear_faults(), "it has struck");

    memory.fail_after(1, ErrorKind::Other);
    assert!(memory.clear_faults(), "it waited");
    memory.sync().expect("forgotten");
}

#[test]
fn every_call_can_fail() {
    let memory = Failing::new(made(u64::MAX));
    let all = |memory: &Failing<Memory>| -> std::io::Result<()> {
        memory.make()?;
        memory.list()?;
        let file = memory.create("a", 8)?;
        file.bytes()?;
        file.allocated_bytes()?;
        file.identity()?;
        file.write_at(&[1], 0)?;
        file.read_at(&mut [0], 0)?;
        file.sync()?;
        file.map(Access::Write)?;
        memory.open("a", Access::Read)?;
        let locks = memory.locks("lock", Access::Write)?;
        locks.try_lock(0, Access::Write)?;
        locks.is_held_by_others(0..1)?;
        locks.unlock(0)?;
        memory.boot_id()?;
        memory.sync()?;
        memory.rename("a", "b")?;
        memory.rename_new("b", "c")?;
        memory.remove("c")
    };
    let mut failures = 0;
    loop {
        memory.fail_after(failures + 1, ErrorKind::Other);
        let result = all(&memory);
        let waiting = memory.clear_faults();
        for name in ["a", "b", "c"] {
            let _ = memory.remove(name);
        }
        if waiting {
            result.expect("nothing failed");
            break;
        }
        result.expect_err("one call failed");
        failures += 1;
    }
    assert_eq!(failures, 20);
}
