//! Handling `fork`: how a child detects that it is one, and which files it must not keep open.
//!
//! A child inherits everything but owns nothing. Its copy of a descriptor keeps the parent's byte
//! locks alive, and its operations on them affect the parent. Therefore a [`Guard`] detects a
//! child, and the descriptors of [`Unshared`] files are closed in it before `fork` returns there.
//!
//! Invariants: nothing here ever holds a lock, because a fork in another thread would leave it
//! locked in the child permanently. Code that runs inside `fork` uses atomics and `close(2)` only.
//! Children made by `vfork` or `posix_spawn` share the parent's memory until they execute another
//! program, and count as the parent. Children made by the bare system call detect that they are
//! children, but keep descriptors until they execute another program or exit; on macOS they do not
//! detect it.
//!
//! The atomics are the standard library's: nothing here is shared between processes, or modelled.

use crate::platform::system;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

/// Identifies the process that created it.
#[derive(Debug, Clone, Copy)]
pub struct Guard {
    word: &'static AtomicU64,
    generation: u64,
}

impl Guard {
    /// Creates a guard for this process.
    #[must_use]
    pub fn new() -> Self {
        /// Inherited by children, so that no process has the generation of an ancestor.
        static LAST: AtomicU64 = AtomicU64::new(0);
        // If that fails, the wiped page still works.
        let _ = watch_forks();
        let word = word();
        // Relaxed, here and below: only the number matters; no data depends on it.
        let mut generation = word.load(Ordering::Relaxed);
        if generation == 0 {
            let new = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            generation = match word.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => new,
                Err(theirs) => theirs,
            };
        }
        Self { word, generation }
    }

    /// Returns the number of the process, unique in a chain of forks.
    #[cfg(feature = "telemetry")]
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns true in a child made by fork, and in its children, but not in the process that made
    /// the guard.
    #[must_use]
    #[inline]
    pub fn is_foreign(&self) -> bool {
        self.word.load(Ordering::Relaxed) != self.generation
    }
}

impl Default for Guard {
    fn default() -> Self {
        Self::new()
    }
}

/// The process's generation, zero in a child until it creates a guard of its own.
static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

#[expect(unsafe_code, reason = "a word in a page that the system wipes has no safe owner")]
fn word() -> &'static AtomicU64 {
    /// Without a page, [`in_child`] alone resets it.
    static PLAIN: AtomicU64 = AtomicU64::new(0);
    // Acquire, here and below: partner is the Release that published the page. SAFETY: null, or a
    // word that is published once and never unmapped.
    if let Some(word) = unsafe { WORD.load(Ordering::Acquire).as_ref() } {
        return word;
    }
    let page = wiped_page();
    let new = page.unwrap_or(ptr::from_ref(&PLAIN).cast_mut());
    match WORD.compare_exchange(ptr::null_mut(), new, Ordering::Release, Ordering::Acquire) {
        // SAFETY: a static, or the start of a page of zeros that is never unmapped: aligned, and of
        // a type for which any bits are valid.
        Ok(_) => unsafe { &*new },
        Err(theirs) => {
            if let Some(page) = page {
                // SAFETY: it was mapped just now, and no other thread has seen it.
                let _ = unsafe { munmap(page.cast(), PAGE_BYTES) };
            }
            // SAFETY: published words are never unmapped.
            unsafe { &*theirs }
        }
    }
}

/// Systems with larger pages map, mark and unmap a whole one: they round a length up.
const PAGE_BYTES: usize = 4096;

/// Maps a page of zeros that is zeroed in children, if the system supports it; `None` if memory is
/// short.
#[expect(unsafe_code, reason = "no safe wrapper has pages that the system wipes")]
fn wiped_page() -> Option<*mut AtomicU64> {
    if cfg!(miri) {
        return None; // Miri supports neither such pages nor forks
    }
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new page at an address of the system's choice.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE_BYTES, protection, flags) }.ok()?;
    // SAFETY: the page was just mapped.
    unsafe { system::wipe_in_children(page, PAGE_BYTES) };
    Some(page.cast())
}

/// An entry for a descriptor that children must close; reused, never freed.
#[derive(Debug)]
struct Place {
    descriptor: AtomicI32,
    next: Option<&'static Place>,
}

/// The content of an unused entry.
const FREE: i32 = -1;

static PLACES: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());

#[expect(unsafe_code, reason = "a list that can be walked inside fork has no locks")]
fn places() -> impl Iterator<Item = &'static Place> {
    // Acquire: partner is the Release that published the entry. SAFETY: null, or an entry that was
    // leaked and of which only the descriptor still changes.
    let first: Option<&'static Place> = unsafe { PLACES.load(Ordering::Acquire).as_ref() };
    std::iter::successors(first, |place| place.next)
}

/// Makes future children close this descriptor.
fn register(descriptor: i32) -> &'static Place {
    let take = |place: &&Place| {
        let taken = &place.descriptor;
        taken.compare_exchange(FREE, descriptor, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    };
    if let Some(place) = places().find(take) {
        return place;
    }
    let mut next = places().next();
    loop {
        // An entry that loses the race is dropped and allocated again, which is rare.
        let new = Box::new(Place { descriptor: AtomicI32::new(descriptor), next });
        let seen = next.map_or(ptr::null_mut(), |place| ptr::from_ref(place).cast_mut());
        if let Some(place) = publish(seen, new) {
            return place;
        }
        next = places().next();
    }
}

#[expect(unsafe_code, reason = "a list that can be walked inside fork has no locks")]
fn publish(seen: *mut Place, new: Box<Place>) -> Option<&'static Place> {
    let new = Box::into_raw(new);
    match PLACES.compare_exchange(seen, new, Ordering::SeqCst, Ordering::Relaxed) {
        // SAFETY: it was leaked just now, and is never freed or borrowed mutably.
        Ok(_) => Some(unsafe { &*new }),
        Err(_) => {
            // SAFETY: it came from a box just now, and no other thread has seen it.
            drop(unsafe { Box::from_raw(new) });
            None
        }
    }
}

/// Numbers of begun and ended forks. If the number ended at one moment equals the number begun at a
/// later moment, no fork was in progress in between.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

extern "C" fn before() {
    BEGUN.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn in_parent() {
    ENDED.fetch_add(1, Ordering::SeqCst);
}

#[expect(unsafe_code, reason = "descriptors are closed behind the backs of their owners")]
extern "C" fn in_child() {
    for place in places() {
        // Taken out first: closing twice could close another file that received the number
        // meanwhile.
        let descriptor = place.descriptor.swap(FREE, Ordering::SeqCst);
        if descriptor != FREE {
            // SAFETY: the owner is an `Unshared`, which leaves its descriptor alone in a child.
            unsafe { libc::close(descriptor) };
        }
    }
    // SAFETY: null, or a word that is published once and never unmapped.
    if let Some(word) = unsafe { WORD.load(Ordering::Acquire).as_ref() } {
        word.store(0, Ordering::Relaxed); // in case it was not wiped
    }
    // Forks of other threads do not continue in the child.
    ENDED.store(BEGUN.load(Ordering::SeqCst), Ordering::SeqCst);
}

/// Registers the handlers for every later fork.
#[expect(unsafe_code, reason = "no safe wrapper offers it")]
fn watch_forks() -> io::Result<()> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    // Acquire: partner is the Release below. Two threads may both read false; handlers that are
    // called twice are harmless.
    if WATCHED.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: the handlers stay as long as the program's code, never unwind, and in a child do only
    // what is allowed there.
    match unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } {
        0 => {
            WATCHED.store(true, Ordering::Release);
            Ok(())
        }
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// An open file that stays with its process: children made by `fork` do not have it.
#[derive(Debug)]
pub struct Unshared {
    file: ManuallyDrop<File>,
    place: &'static Place,
    guard: Guard,
}

impl Unshared {
    /// The number of attempts to open while other threads fork, and the pause between them: some
    /// seconds in total. After that a child may have the file too, as children of the bare system
    /// call do.
    const TRIES: u32 = 1000;
    const PAUSE: Duration = Duration::from_millis(1);

    /// Opens a file, repeatedly if necessary.
    ///
    /// # Errors
    /// Those of `open`, and the system's error if forks cannot be watched.
    pub fn open(open: impl Fn() -> io::Result<File>) -> io::Result<Self> {
        watch_forks()?;
        for _ in 1..Self::TRIES {
            // SeqCst: a fork whose child receives the file but not its entry below began before the
            // second number is read, and ends after the first one is.
            let ended = ENDED.load(Ordering::SeqCst);
            let opened = Self::register(open()?);
            if BEGUN.load(Ordering::SeqCst) == ended {
                return Ok(opened);
            }
            drop(opened);
            std::thread::sleep(Self::PAUSE);
        }
        Ok(Self::register(open()?))
    }

    fn register(file: File) -> Self {
        let place = register(file.as_raw_fd());
        Self { file: ManuallyDrop::new(file), place, guard: Guard::new() }
    }

    /// Returns the file.
    ///
    /// # Errors
    /// In a child made by fork, where it is closed.
    pub fn file(&self) -> io::Result<&File> {
        if self.guard.is_foreign() {
            return Err(io::Error::other("it was opened before this process was forked"));
        }
        Ok(&self.file)
    }
}

impl Drop for Unshared {
    #[expect(unsafe_code, reason = "in a child the descriptor is no longer ours to close")]
    fn drop(&mut self) {
        if self.guard.is_foreign() {
            // It is closed; its number and its entry may be reused by now.
            return;
        }
        // Before closing it: a child must not close another file that receives the number next.
        self.place.descriptor.store(FREE, Ordering::SeqCst);
        // SAFETY: dropped only here, and the file is not used any more.
        unsafe { ManuallyDrop::drop(&mut self.file) };
    }
}

/// Real child processes, for tests here and elsewhere.
#[cfg(test)]
pub(crate) mod children {
    use std::io::{PipeReader, Read};

    /// A forked child; dropping this kills it.
    pub(crate) struct Child {
        pid: libc::pid_t,
        report: PipeReader,
    }

    impl Child {
        /// Forks. The child runs `claim`, reports whether it holds, and then idles. `claim` must
        /// not panic, nor take locks that other threads may have held.
        pub(crate) fn fork(claim: impl FnOnce() -> bool) -> Self {
            // SAFETY: the child does only what the comment above describes.
            #[expect(unsafe_code, reason = "tests of forks need forks")]
            Self::make(|| unsafe { libc::fork() }, claim)
        }

        /// As [`Child::fork`], by the bare system call, which bypasses the C library's handlers.
        /// Where the system wipes no pages such children are not detected, and this is a fork.
        pub(crate) fn clone_barely(claim: impl FnOnce() -> bool) -> Self {
            #[cfg(all(target_os = "linux", not(ebbtide_portable)))]
            {
                let flags = libc::c_long::from(libc::SIGCHLD);
                // SAFETY: as above; with these arguments it is a fork.
                #[expect(unsafe_code, reason = "tests of forks need forks")]
                let clone = || unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) as _ };
                Self::make(clone, claim)
            }
            #[cfg(not(all(target_os = "linux", not(ebbtide_portable))))]
            Self::fork(claim)
        }

        #[expect(unsafe_code, reason = "a child must not return into the test")]
        fn make(fork: impl FnOnce() -> libc::pid_t, claim: impl FnOnce() -> bool) -> Self {
            let (report, reporting) = std::io::pipe().expect("a pipe");
            let pid = fork();
            assert!(pid >= 0, "no fork");
            if pid == 0 {
                // SAFETY: a plain system call. The alarm ends a child whose parent died, or that
                // hangs.
                unsafe { libc::alarm(60) };
                let _ = rustix::io::write(&reporting, &[u8::from(claim())]);
                loop {
                    // SAFETY: a plain system call.
                    unsafe { libc::pause() };
                }
            }
            Self { pid, report }
        }

        /// Waits for the child's report.
        pub(crate) fn holds(&mut self) -> bool {
            let mut byte = [0];
            self.report.read_exact(&mut byte).expect("the child lives and reports");
            byte == [1]
        }
    }

    impl Drop for Child {
        #[expect(
            unsafe_code,
            reason = "no safe wrapper for children that are not of another program"
        )]
        fn drop(&mut self) {
            // SAFETY: plain system calls on a child that no other thread waits for.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::children::Child;
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::os::fd::{AsFd, BorrowedFd};

    fn some_file() -> File {
        File::open("/dev/null").expect("it is everywhere")
    }

    fn is_open(descriptor: i32) -> bool {
        // SAFETY: only queries whether the number is in use, and changes nothing.
        #[expect(unsafe_code, reason = "the question is whether the number is in use")]
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        rustix::io::fcntl_getfd(descriptor).is_ok()
    }

    #[test]
    fn a_guard_is_foreign_in_a_child_and_one_made_there_is_not() {
        let ours = Guard::new();
        let grandchild = |theirs: Guard| {
            let mut grandchild = Child::clone_barely(|| {
                ours.is_foreign() && theirs.is_foreign() && !Guard::new().is_foreign()
            });
            grandchild.holds()
        };
        let claim = || {
            let before = ours.is_foreign();
            let theirs = Guard::new();
            before && ours.is_foreign() && !theirs.is_foreign() && grandchild(theirs)
        };
        for fork in [Child::fork, Child::clone_barely] {
            assert!(fork(claim).holds());
            assert!(!ours.is_foreign());
        }
        assert_eq!(Guard::new().generation, ours.generation);
    }

    #[test]
    fn a_child_has_its_parents_file_closed_and_opens_its_own() {
        let ours = Unshared::open(|| Ok(some_file())).expect("open");
        let descriptor = ours.file().expect("ours").as_raw_fd();
        let claim = || {
            let closed = !is_open(descriptor) && ours.file().is_err();
            let Ok(theirs) = Unshared::open(|| Ok(some_file())) else {
                return false;
            };
            closed && theirs.file().is_ok()
        };
        assert!(Child::fork(claim).holds());
        assert!(is_open(descriptor) && ours.file().is_ok());
    }

    #[test]
    fn dropping_it_in_a_child_leaves_the_number_to_its_new_owner() {
        let mut ours = Some(Unshared::open(|| Ok(some_file())).expect("open"));
        let descriptor = ours.as_ref().expect("just made").file().expect("ours").as_raw_fd();
        let mut child = Child::fork(|| {
            // The lowest free number is assigned, so one of these receives it.
            let others: [File; 64] = std::array::from_fn(|_| some_file());
            let reused = others.iter().any(|file| file.as_raw_fd() == descriptor);
            let next = Unshared::open(|| Ok(some_file()));
            drop(ours.take()); // only the child's copy
            let kept = others.iter().all(|file| is_open(file.as_raw_fd()));
            // Nor is its entry taken from the next file.
            let mut grandchild =
                Child::fork(|| next.as_ref().is_ok_and(|next| !is_open(next.file.as_raw_fd())));
            reused && kept && grandchild.holds()
        });
        assert!(child.holds());
        assert!(is_open(descriptor));
    }

    #[test]
    fn a_fork_between_opening_and_registering_makes_it_open_again() {
        let (opened, children) = (Cell::new(0), RefCell::new(Vec::new()));
        let file = Unshared::open(|| {
            let file = some_file();
            opened.set(opened.get() + 1);
            if opened.get() == 1 {
                // This child has the first file but not its entry.
                children.borrow_mut().push(Child::fork(|| true));
            }
            Ok(file)
        });
        let file = file.expect("open");
        assert!(opened.get() > 1);
        assert!(children.borrow_mut()[0].holds());
        rustix::io::fcntl_getfd(file.file().expect("ours").as_fd()).expect("open");
    }

    #[test]
    fn places_are_reused() {
        // Other tests have files open too, but fewer than are opened here.
        for _ in 0..1000 {
            Unshared::open(|| Ok(some_file())).expect("open");
        }
        assert!(places().count() < 1000);
    }

    #[test]
    fn a_refusal_to_open_is_passed_on() {
        let refused = Unshared::open(|| Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(refused.expect_err("refused").kind(), io::ErrorKind::PermissionDenied);
    }
}
