//! One suite for every medium, and tests of their individual features.

mod holes;
mod memory;

use crate::media::{Access, ByteLocks, Disk, MappedHead, Media, Memory};
use ebbtide_core::block::{load, store};
use std::io::ErrorKind;
use std::sync::Arc;

/// Runs a claim on each medium; `media` and `again` are two handles on one existing directory.
fn on_every_medium(claim: impl Fn(&dyn Media, &dyn Media)) {
    // Miri has neither `fallocate` nor mappings of files.
    if !cfg!(miri) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::new(directory.path().join("parent/filter"));
        disk.make().expect("a directory");
        claim(&disk, &Disk::new(disk.path()));
    }
    let memory = Memory::new();
    memory.make().expect("a directory");
    claim(&memory, &memory.clone());
}

fn sorted(media: &dyn Media) -> Vec<String> {
    let mut names = media.list().expect("the directory is there");
    names.sort();
    names
}

fn kind<T: std::fmt::Debug>(result: std::io::Result<T>) -> ErrorKind {
    result.expect_err("a refusal").kind()
}

#[test]
fn nothing_is_there_before_the_directory_is_made() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let disk = Disk::new(parent.path().join("filter"));
    let memory = Memory::default();
    for media in [&disk as &dyn Media, &memory] {
        assert_eq!(kind(media.list()), ErrorKind::NotFound);
        assert_eq!(kind(media.create("a", 8)), ErrorKind::NotFound);
        assert_eq!(kind(media.locks("lock", Access::Write)), ErrorKind::NotFound);
        assert_eq!(kind(media.sync()), ErrorKind::NotFound);
        media.make().expect("made");
        media.make().expect("it may be there already");
        assert!(sorted(media).is_empty());
    }
}

#[test]
fn a_new_file_is_zeros_of_its_length_with_space_allocated() {
    on_every_medium(|media, again| {
        let bytes = 3 * 4096 + 5;
        media.create("a", bytes).expect("space");
        let file = again.open("a", Access::Read).expect("it is there");
        assert_eq!(file.bytes().expect("open"), bytes);
        assert!(file.allocated_bytes().expect("open") >= bytes);
        let mut buffer = vec![1; bytes as usize];
        file.read_at(&mut buffer, 0).expect("all of it");
        assert!(buffer.iter().all(|&byte| byte == 0));
    });
}

#[test]
fn creation_is_exclusive() {
    on_every_medium(|media, again| {
        media.create("a", 8).expect("space").write_at(b"first", 0).expect("space");
        assert_eq!(kind(again.create("a", 16)), ErrorKind::AlreadyExists);
        assert_eq!(media.open("a", Access::Read).expect("it is there").bytes().expect("open"), 8);
    });
}

#[test]
fn names_can_be_listed_renamed_over_others_and_removed() {
    on_every_medium(|media, again| {
        let a = media.create("a", 8).expect("space");
        let b = again.create("b", 16).expect("space");
        let (first, second) = (a.identity().expect("open"), b.identity().expect("open"));
        assert_ne!(first, second);
        assert_eq!(sorted(media), ["a", "b"]);
        again.rename("a", "b").expect("both are there");
        assert_eq!(sorted(media), ["b"]);
        let renamed = media.open("b", Access::Read).expect("it is there");
        assert_eq!(renamed.identity().expect("open"), first);
        assert_eq!(b.bytes().expect("a replaced file stays open"), 16);
        media.rename("b", "b").expect("onto itself");
        media.sync().expect("synced");
        media.remove("b").expect("it is there");
        assert!(sorted(again).is_empty());
        assert_eq!(kind(media.remove("b")), ErrorKind::NotFound);
        assert_eq!(kind(media.rename("b", "a")), ErrorKind::NotFound);
        assert_eq!(kind(media.open("b", Access::Write)), ErrorKind::NotFound);
    });
}

#[test]
fn writes_at_any_offset_read_back_and_grow_the_file() {
    on_every_medium(|media, again| {
        let file = media.create("a", 0).expect("space");
        let mut model = Vec::new();
        for (offset, length) in [(0, 3), (3, 5), (1, 1), (7, 30), (100, 9), (64, 64), (130, 0)] {
            let bytes: Vec<u8> = (0..length).map(|i| (offset * 31 + i + 1) as u8).collect();
            file.write_at(&bytes, offset as u64).expect("space");
            if length > 0 {
                model.resize(model.len().max(offset + length), 0);
                model[offset..offset + length].copy_from_slice(&bytes);
            }
        }
        file.sync().expect("synced");
        let other = again.open("a", Access::Read).expect("it is there");
        assert_eq!(other.bytes().expect("open"), model.len() as u64);
        for (offset, length) in [(0, model.len()), (5, 11), (8, 8), (127, 1), (128, 0)] {
            let mut buffer = vec![0; length];
            other.read_at(&mut buffer, offset as u64).expect("within the file");
            assert_eq!(buffer, model[offset..offset + length]);
        }
        assert_eq!(kind(other.read_at(&mut [0; 2], 127)), ErrorKind::UnexpectedEof);
        assert_eq!(kind(other.read_at(&mut [0; 1], 1 << 40)), ErrorKind::UnexpectedEof);
    });
}

#[test]
fn a_mapping_and_the_calls_see_the_same_bytes() {
    on_every_medium(|media, again| {
        let file = media.create("a", 8192).expect("space");
        let map = file.map(Access::Write).expect("whole words");
        let reading = again.open("a", Access::Read).expect("it is there");
        let view = reading.map(Access::Read).expect("whole words");
        assert_eq!((map.words().len(), view.words().len()), (1024, 1024));
        map.populate(500..600);
        map.populate(1000..5000);
        view.populate(0..1);

        store(&map.words()[513], 0x0807_0605_0403_0201);
        let mut bytes = [0; 8];
        reading.read_at(&mut bytes, 513 * 8).expect("within the file");
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
        file.write_at(&[9], 513 * 8 + 7).expect("within the file");
        assert_eq!(load(&view.words()[513]), 0x0907_0605_0403_0201);

        media.remove("a").expect("it is there");
        store(&map.words()[0], 7);
        assert_eq!(load(&view.words()[0]), 7, "a removed file stays mapped");
        drop((file, reading, map));
        assert_eq!(load(&view.words()[0]), 7, "a mapping outlives its file");
    });
}

#[test]
fn only_whole_words_are_mapped() {
    on_every_medium(|media, _| {
        assert_eq!(
            kind(media.create("a", 4097).expect("space").map(Access::Read)),
            ErrorKind::InvalidData
        );
        let empty =
            media.create("b", 0).expect("space").map(Access::Write).expect("no words at all");
        assert!(empty.words().is_empty());
        empty.populate(0..1);
    });
}

#[test]
fn a_mapping_that_is_too_short_for_its_head_is_not_used() {
    on_every_medium(|media, _| {
        let file = media.create("a", 64).expect("space");
        let map = || file.map(Access::Write).expect("a mapping");
        assert_eq!(map().words().len(), 8);
        assert!(MappedHead::<9>::new(map()).is_none());
        let whole = MappedHead::<8>::new(map()).expect("as long as it is");
        store(&whole.head()[7], 5);
        assert_eq!(load(&whole.words()[7]), 5);
    });
}

#[test]
fn a_file_opened_for_reading_is_not_written() {
    on_every_medium(|media, _| {
        media.create("a", 8).expect("space");
        let file = media.open("a", Access::Read).expect("it is there");
        file.write_at(b"x", 0).expect_err("opened for reading");
        file.map(Access::Write).expect_err("opened for reading");
    });
}

#[test]
fn a_rename_that_must_not_replace_does_not() {
    on_every_medium(|media, again| {
        let moved = media.create("a", 8).expect("space").identity().expect("open");
        media.create("b", 16).expect("space");
        assert_eq!(kind(again.rename_new("a", "b")), ErrorKind::AlreadyExists);
        assert_eq!(kind(again.rename_new("a", "a")), ErrorKind::AlreadyExists);
        assert_eq!(kind(again.rename_new("c", "b")), ErrorKind::NotFound);
        assert_eq!(kind(again.rename_new("c", "d")), ErrorKind::NotFound);
        assert_eq!(sorted(media), ["a", "b"]);
        let kept = media.open("b", Access::Read).expect("it is there");
        assert_eq!(kept.bytes().expect("open"), 16);
        again.rename_new("a", "c").expect("nobody has that name");
        assert_eq!(sorted(media), ["b", "c"]);
        let renamed = media.open("c", Access::Read).expect("it is there");
        assert_eq!(renamed.identity().expect("open"), moved);
    });
}

fn locks(media: &dyn Media) -> Box<dyn ByteLocks> {
    media.locks("lock", Access::Write).expect("no error")
}

fn try_lock(locks: &dyn ByteLocks, byte: u64) -> bool {
    locks.try_lock(byte, Access::Write).expect("no error")
}

fn share(locks: &dyn ByteLocks, byte: u64) -> bool {
    locks.try_lock(byte, Access::Read).expect("no error")
}

fn held(locks: &dyn ByteLocks, bytes: std::ops::Range<u64>) -> bool {
    locks.is_held_by_others(bytes).expect("no error")
}

#[test]
fn a_byte_is_locked_by_one_at_a_time() {
    on_every_medium(|media, again| {
        let (a, b, c) = (locks(media), locks(media), locks(again));
        assert!(try_lock(&*a, 1));
        assert!(try_lock(&*a, 1), "it is its own");
        for other in [&b, &c] {
            assert!(!try_lock(&**other, 1) && !share(&**other, 1));
        }
        assert!(try_lock(&*b, 0), "another byte is free");
        a.unlock(1).expect("no error");
        a.unlock(1).expect("nothing to unlock");
        assert!(try_lock(&*c, 1), "free again");
        b.unlock(1).expect("none of its own");
        assert!(!try_lock(&*a, 1));
        drop(c);
        assert!(try_lock(&*a, 1), "dropped means unlocked");
        assert!(!try_lock(&*a, 0), "and nobody else's");
        assert_eq!(sorted(media), ["lock"]);
    });
}

#[test]
fn readers_share_a_byte() {
    on_every_medium(|media, again| {
        let (a, b) = (locks(media), locks(again));
        assert!(share(&*a, 7) && share(&*b, 7));
        assert!(!try_lock(&*a, 7), "two share it");
        assert!(held(&*b, 7..8), "and still do");
        b.unlock(7).expect("no error");
        assert!(try_lock(&*a, 7), "a sole reader becomes the only holder");
        assert!(!share(&*b, 7));
        assert!(share(&*a, 7), "and shares again");
        assert!(share(&*b, 7));
    });
}

#[test]
fn what_others_hold_is_distinguished_from_what_one_holds_oneself() {
    on_every_medium(|media, again| {
        let (a, b) = (locks(media), locks(again));
        assert!(!held(&*a, 0..128));
        assert!(try_lock(&*a, 5) && try_lock(&*a, 9));
        assert!(!held(&*a, 0..128) && !held(&*a, 5..6));
        assert!(held(&*b, 5..6) && held(&*b, 0..6) && held(&*b, 9..10) && held(&*b, 0..128));
        assert!(!held(&*b, 0..5) && !held(&*b, 6..9) && !held(&*b, 10..128));
        assert!(!held(&*b, 5..5) && !held(&*b, 0..0), "no bytes, no holders");
        assert!(share(&*b, 7));
        assert!(held(&*a, 4..10), "one of others among two of its own");
        assert!(!held(&*a, 8..128) && !held(&*a, 0..7));
        drop(b);
        assert!(!held(&*a, 0..128));
    });
}

#[test]
fn locks_opened_for_reading_are_shared_only_and_need_the_file() {
    on_every_medium(|media, again| {
        assert_eq!(kind(media.locks("lock", Access::Read)), ErrorKind::NotFound);
        let writing = locks(media);
        let reading = again.locks("lock", Access::Read).expect("it is there now");
        assert_eq!(kind(reading.try_lock(3, Access::Write)), ErrorKind::PermissionDenied);
        assert!(share(&*reading, 3) && held(&*writing, 3..4) && !try_lock(&*writing, 3));
        reading.unlock(3).expect("no error");
        assert!(try_lock(&*writing, 3) && held(&*reading, 0..128) && !share(&*reading, 3));
    });
}

#[test]
fn locks_stay_with_the_file_whatever_its_name() {
    on_every_medium(|media, _| {
        let first = locks(media);
        assert!(try_lock(&*first, 0));
        media.rename("lock", "other").expect("it is there");
        assert!(try_lock(&*locks(media), 0), "a new file");
        let other = media.locks("other", Access::Write).expect("no error");
        assert!(!try_lock(&*other, 0));
    });
}

#[test]
fn the_boot_id_stays() {
    on_every_medium(|media, again| {
        let id = media.boot_id().expect("the system knows it");
        assert_ne!(id, 0);
        assert_eq!(again.boot_id().expect("the system knows it"), id);
    });
}

mod disk {
    use super::*;
    #[cfg(all(target_os = "linux", not(ebbtide_portable)))]
    use crate::media::ImagePlace;
    #[cfg(all(target_os = "linux", not(ebbtide_portable)))]
    use ebbtide_testkit::skipped::skipped;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn links_and_directories_in_the_place_of_files_are_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::new(directory.path());
        let target = directory.path().join("target");
        std::fs::write(&target, b"precious").expect("space");
        symlink(&target, directory.path().join("link")).expect("a link");
        symlink(directory.path().join("new"), directory.path().join("dangling")).expect("a link");
        std::fs::create_dir(directory.path().join("folder")).expect("a directory");

        assert_eq!(kind(disk.open("link", Access::Read)), ErrorKind::InvalidInput);
        assert_eq!(kind(disk.open("link", Access::Write)), ErrorKind::InvalidInput);
        assert_eq!(kind(disk.create("link", 8)), ErrorKind::AlreadyExists);
        assert_eq!(kind(disk.create("dangling", 8)), ErrorKind::AlreadyExists);
        assert_eq!(kind(disk.locks("link", Access::Write)), ErrorKind::InvalidInput);
        assert_eq!(kind(disk.open("folder", Access::Read)), ErrorKind::InvalidInput);
        disk.open("folder", Access::Write).expect_err("a directory");
        assert_eq!(std::fs::read(&target).expect("it is there"), b"precious");
        assert!(!directory.path().join("new").exists());
    }

    #[test]
    fn files_are_private() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::new(directory.path());
        disk.create("a", 8).expect("space");
        drop(locks(&disk));
        for name in ["a", "lock"] {
            let mode =
                directory.path().join(name).metadata().expect("it is there").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{name} has mode {mode:o}");
        }
    }

    #[cfg(all(target_os = "linux", not(ebbtide_portable)))]
    #[test]
    fn a_bank_that_finds_no_space_takes_no_place_in_its_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let places = [ImagePlace::Memory, ImagePlace::Directory(directory.path().to_path_buf())];
        for place in places {
            let disk = Disk::new(directory.path()).image(place);
            let Ok(Some(store)) = disk.create_unnamed(1 << 20) else {
                skipped("the file system has no files without names");
                continue;
            };
            for _ in 0..3 {
                store.create(0, 1 << 63, 4096).expect_err("no file is that long");
            }
            let bank = store.create(0, 8192, 8192).expect("the place is free");
            bank.write_at(&[7; 8], 8184).expect("it is the bank's");
        }
    }

    #[test]
    fn a_creation_beyond_all_space_leaves_nothing_behind() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::new(directory.path());
        // An exbibyte fits in no file system. Not "too large": it is refused before any space is
        // taken from other programs.
        for bytes in [1 << 60, u64::MAX] {
            let error = disk.create("a", bytes).expect_err("no disk is that large");
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
            assert!(sorted(&disk).is_empty());
        }
    }
}

/// Tests of locks and mappings in forked children, and of the locks of their parents.
mod forks {
    use super::*;
    use crate::platform::fork::children::Child;
    use memmap2::MmapMut;
    use std::cell::Cell;
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    fn disk() -> (tempfile::TempDir, Disk) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::new(directory.path());
        (directory, disk)
    }

    #[test]
    fn a_byte_is_free_once_the_parent_releases_it_though_the_child_lives() {
        let (_directory, disk) = disk();
        // The child by the bare system call still has the descriptor, and with it the lock.
        for fork in [Child::fork, Child::clone_barely] {
            let ours = locks(&disk);
            assert!(try_lock(&*ours, 5));
            let mut child = fork(|| true);
            assert!(child.holds());
            assert!(held(&*locks(&disk), 5..6));
            drop(ours);
            assert!(!held(&*locks(&disk), 0..128));
            drop(child);
        }
    }

    #[test]
    fn a_child_neither_uses_nor_frees_its_parents_locks() {
        let (_directory, disk) = disk();
        let ours = Cell::new(None);
        for fork in [Child::fork, Child::clone_barely] {
            let locked = locks(&disk);
            assert!(try_lock(&*locked, 5));
            ours.set(Some(locked));
            let mut child = fork(|| {
                // Taken out of the child's copy only.
                let Some(ours) = ours.take() else {
                    return false;
                };
                ours.try_lock(6, Access::Write).is_err()
                    && ours.unlock(5).is_err()
                    && ours.is_held_by_others(0..1).is_err()
            });
            assert!(child.holds());
            let other = locks(&disk);
            assert!(held(&*other, 5..6) && !held(&*other, 6..7));
            ours.set(None);
        }
    }

    #[test]
    fn a_child_takes_locks_of_its_own() {
        let (_directory, disk) = disk();
        let ours = locks(&disk);
        assert!(try_lock(&*ours, 5));
        let mut child = Child::fork(|| {
            let theirs = disk.locks("lock", Access::Write);
            let locked = theirs.as_ref().is_ok_and(|theirs| {
                let lock = |byte| theirs.try_lock(byte, Access::Write).ok();
                (lock(5), lock(6)) == (Some(false), Some(true))
            });
            std::mem::forget(theirs);
            locked
        });
        assert!(child.holds());
        assert!(held(&*ours, 6..7));
        drop(child);
        assert!(!held(&*ours, 0..128), "it died");
    }

    #[test]
    fn a_mapping_inherited_from_the_parent_is_let_alone() {
        const BYTES: usize = 1 << 20;
        let (_directory, disk) = disk();
        let file = disk.create("a", BYTES as u64).expect("space");
        let mut ours = Some(file.map(Access::Write).expect("whole words"));
        let place = ours.as_ref().expect("just made").words().as_ptr().addr();
        let mut child = Child::fork(|| {
            // Private memory, until some of it lies at the address of the parent's mapping: advice
            // or unmapping would lose its content.
            let mut theirs = Vec::new();
            let reused = (0..64).any(|_| {
                let Ok(mut memory) = MmapMut::map_anon(BYTES) else {
                    return false;
                };
                memory.fill(7);
                let start = memory.as_ptr().addr();
                theirs.push(memory);
                start < place + BYTES && place < start + BYTES
            });
            // Taken out of the child's copy only.
            if let Some(ours) = ours.take() {
                ours.populate(0..1);
                ours.release(0..BYTES / 8);
            }
            // A fault here would end the child without a report.
            reused && theirs.iter().flat_map(|memory| memory.iter()).all(|&byte| byte == 7)
        });
        assert!(child.holds());
    }

    /// Set for the process that [`a_killed_parents_byte_is_free_though_its_child_lives`] kills.
    const PARENT: &str = "EBBTIDE_TEST_PARENT_IN";

    /// Locks a byte, forks, and waits for its death. The child reports when it runs, because only
    /// then has it closed the inherited descriptors. Then it waits for the test to end its input,
    /// and answers.
    fn be_killed(disk: &Disk) {
        let (input, output) = (std::io::stdin(), std::io::stdout());
        let ours = locks(disk);
        assert!(try_lock(&*ours, 5));
        let _child = Child::fork(|| {
            rustix::io::write(&output, b"ready\n").is_ok()
                && rustix::io::read(&input, &mut [0]).is_ok()
                && rustix::io::write(&output, b"alive\n").is_ok()
        });
        std::thread::sleep(Duration::from_secs(60));
    }

    #[test]
    fn a_killed_parents_byte_is_free_though_its_child_lives() {
        if let Some(directory) = std::env::var_os(PARENT) {
            return be_killed(&Disk::new(directory));
        }
        let (directory, disk) = disk();
        let name = "media::tests::forks::a_killed_parents_byte_is_free_though_its_child_lives";
        let mut parent = Command::new(std::env::current_exe().expect("it runs"))
            .args(["--exact", "--nocapture", name])
            .env(PARENT, directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this very program");
        let input = parent.stdin.take().expect("piped");
        let mut output = BufReader::new(parent.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.ends_with("ready\n") {
            assert_ne!(output.read_line(&mut line).expect("text"), 0, "it ended: {line}");
        }
        let ours = locks(&disk);
        assert!(held(&*ours, 5..6));
        parent.kill().expect("it runs");
        parent.wait().expect("our child");
        assert!(!held(&*ours, 0..128) && try_lock(&*ours, 5));

        drop(input); // the grandchild waits for this
        let mut answer = [0; 6];
        output.read_exact(&mut answer).expect("the grandchild lives");
        assert_eq!(&answer, b"alive\n");
    }
}

#[test]
fn what_memory_cannot_hold_is_an_error_that_tells_how_much_is_missing() {
    let memory = Memory::new();
    memory.make().expect("a directory");
    for bytes in [1 << 45, 1 << 62, u64::MAX - 7] {
        for allocated in [0, bytes] {
            let error = memory.create_with_hole("large", bytes, allocated).expect_err("too large");
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        }
    }
    assert!(memory.list().expect("names").is_empty());
    let file = memory.create("small", 8).expect("a small file");
    let error = file.write_at(&[1], 1 << 45).expect_err("too far");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(file.bytes().expect("a length"), 8);
    file.write_at(&[1], 64).expect("it still grows");
}

#[test]
fn a_filter_in_memory_that_is_larger_than_memory_is_refused() {
    let bloom = crate::Bloom::capacity(4_000_000_000_000);
    let created = crate::Filter::create_on(Arc::new(Memory::new()), bloom, crate::Options::new());
    match created {
        Err(crate::Error::Io { source, .. }) => {
            assert_eq!(source.kind(), ErrorKind::OutOfMemory);
        }
        other => panic!("expected an error of memory, found {other:?}"),
    }
}
