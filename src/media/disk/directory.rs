//! The directory of a filter, opened once: all file operations use its descriptor.
//!
//! A path may come to refer to another directory while a filter is open: the directory is moved, or
//! removed and created again. Operations by path would then change another filter. By descriptor
//! they stay in the directory that was opened, wherever it is moved, and fail if it is gone.
//!
//! Defines how names in the directory are opened, created, renamed and removed, which file systems
//! are refused, and the owner and permissions of new files.

use crate::media::{Ownership, no_links};
use crate::platform::system;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, RawMode, RenameFlags, Stat, StatFs, Uid, chownat,
    fchmod, fchown, fstat, linkat, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The file whose owner, group and mode all others get.
const MODEL: &str = "meta";
/// Its second copy, in a backup.
const SECOND_MODEL: &str = "second-meta";
/// The default permissions of a new filter's files: their owner reads and writes.
const PRIVATE: RawMode = 0o600;
/// The permissions that a filter's file can have: none of them is a program.
const READ_AND_WRITE: RawMode = 0o666;

/// The bit by which new files get the group of their directory.
const SET_GROUP_ID: RawMode = 0o2000;
/// The permissions of the filter's group.
const OF_GROUP: RawMode = 0o060;

/// A directory, and its descriptor from its first use on.
#[derive(Debug)]
pub(super) struct Directory {
    /// As passed by the caller, for messages.
    path: PathBuf,
    /// Independent of later changes of the working directory.
    absolute: PathBuf,
    mode: Option<RawMode>,
    /// The group that the permissions of `mode` are for, if it is not that of the creator.
    group: Option<u32>,
    /// The user who gets the files, if the creator may give them away.
    user: Option<u32>,
    opened: OnceLock<OwnedFd>,
}

impl Directory {
    /// Creates it for the directory at `path`, which need not exist yet. `mode`: the permissions of
    /// files that are created before there is a `meta` to take them from.
    pub(super) fn new(path: PathBuf, mode: Option<u32>) -> Self {
        // Without a working directory the path is tried as it is.
        let absolute = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        let mode = mode.map(|mode| mode as RawMode);
        Self { path, absolute, mode, group: None, user: None, opened: OnceLock::new() }
    }

    /// As [`Directory::new`], for a copy of a filter whose files are these users'.
    pub(super) fn of_copy(path: PathBuf, of: Ownership) -> Self {
        let Ownership { mode, user, group } = of;
        let mode = (mode & 0o660) | 0o600;
        Self { group: Some(group), user: Some(user), ..Self::new(path, Some(mode)) }
    }

    /// Returns the directory that has the path now, which may be a different one.
    pub(super) fn at_its_path(&self) -> Self {
        let (path, absolute) = (self.path.clone(), self.absolute.clone());
        let Self { mode, group, user, .. } = *self;
        Self { path, absolute, mode, group, user, opened: OnceLock::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path, independent of the working directory.
    pub(super) fn absolute(&self) -> &Path {
        &self.absolute
    }

    /// Creates the directory if it is missing, with its parents, durably.
    pub(super) fn make(&self) -> io::Result<()> {
        let absolute = &self.absolute;
        let missing: Vec<&Path> =
            absolute.ancestors().take_while(|place| !place.exists()).collect();
        let standing = missing.last().and_then(|lowest| lowest.parent()).unwrap_or(absolute);
        accept(&rustix::fs::statfs(standing)?)?;
        // A user that may write a directory may replace the filter's files. Therefore no other user
        // may, whatever the umask, unless users that share the filter's files need it to create new
        // ones.
        let writers = self.mode.unwrap_or(PRIVATE) & 0o022;
        let mut mode = 0o755 | writers;
        if absolute.is_file() {
            let reason = "this is a file, and a filter is a directory: choose another name";
            return Err(io::Error::new(io::ErrorKind::NotADirectory, reason));
        }
        // A copy may not get its group.
        let first = if self.group.is_some() { 0o755 } else { mode };
        fs::DirBuilder::new().recursive(true).mode(u64::from(first) as u32).create(absolute)?;
        if writers != 0 {
            // Those above need not be readable, only passable.
            for &above in missing.iter().skip(1) {
                let made = File::open(above)?;
                let mode = fstat(&made)?.st_mode & 0o7777;
                if mode & 0o001 == 0 && self.gives_group(&made)? {
                    // If this is refused, somebody else has made it.
                    let _ = fchmod(&made, Mode::from_raw_mode(mode | (writers >> 1)));
                }
            }
        }
        if !missing.is_empty() {
            let made = File::open(absolute)?;
            if writers != 0 {
                if !self.gives_group(&made)? {
                    mode &= !0o020;
                }
                // It may have inherited the set-group-id bit, by which new files get its group.
                let inherited = fstat(&made)?.st_mode & SET_GROUP_ID;
                fchmod(&made, Mode::from_raw_mode(mode | inherited))?;
            }
            self.give_to_user(&made)?;
        }
        // A directory survives a power cut only if its parent was synced.
        for place in missing.iter().rev() {
            if let Some(parent) = place.parent() {
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(())
    }

    /// Returns the permissions of the file whose permissions all others get.
    pub(super) fn mode(&self) -> io::Result<u32> {
        Ok((u64::from(self.model()?.st_mode) & 0o777) as u32)
    }

    /// Returns whose that file is, without what an access control list says.
    pub(super) fn ownership(&self) -> io::Result<Ownership> {
        let (name, model) = self.named_model()?;
        let mut mode = model.st_mode & 0o777;
        if mode & OF_GROUP != 0 && self.access_list(name)?.is_some() {
            mode &= !0o070;
        }
        let (user, group) = (model.st_uid, model.st_gid);
        Ok(Ownership { mode: u64::from(mode) as u32, user, group })
    }

    /// Returns the access control list of a file.
    fn access_list(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        system::access_list(&self.open(name, OFlags::RDONLY)?)
    }

    /// Returns the status of that file.
    fn model(&self) -> io::Result<Stat> {
        self.named_model().map(|(_, found)| found)
    }

    /// Returns the name and the status of that file.
    fn named_model(&self) -> io::Result<(&'static str, Stat)> {
        let (name, found) = match self.stat(MODEL) {
            // Of a backup that has lost its first copy.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (SECOND_MODEL, self.stat(SECOND_MODEL)?)
            }
            found => (MODEL, found?),
        };
        if is_regular(&found) { Ok((name, found)) } else { Err(not_a_file("something else")) }
    }

    /// Gives a new file or directory the group that the permissions are for; false if this is
    /// refused.
    fn gives_group(&self, made: &File) -> io::Result<bool> {
        let Some(group) = self.group.filter(|_| self.mode.is_some_and(|mode| mode & OF_GROUP != 0))
        else {
            return Ok(true);
        };
        let has_it = fstat(made)?.st_gid == group;
        Ok(has_it || fchown(made, None, Some(Gid::from_raw(group))).is_ok())
    }

    /// Gives a new file or directory of a copy to the user of the filter. Where this is refused,
    /// which it is except to root, it stays its creator's.
    fn give_to_user(&self, made: &File) -> io::Result<()> {
        let own = fstat(made)?.st_uid;
        if let Some(user) = self.user.filter(|&user| user != own) {
            let _ = fchown(made, Some(Uid::from_raw(user)), None);
        }
        Ok(())
    }

    /// Returns the descriptor.
    pub(super) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        if self.opened.get().is_none() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::open(&self.absolute, flags, Mode::empty())?;
            // If another thread was faster, its descriptor is equivalent.
            let _ = self.opened.set(above_standard_streams(opened)?);
        }
        self.opened.get().map(AsFd::as_fd).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Fails on a file system that is not local.
    pub(super) fn check_local(&self) -> io::Result<()> {
        accept(&rustix::fs::fstatfs(self.descriptor()?)?)
    }

    /// Opens a regular file. Any other type of file with the name is refused, unread.
    pub(super) fn open(&self, name: &str, flags: OFlags) -> io::Result<File> {
        // A pipe would block its opener without NONBLOCK; for regular files it has no effect.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mode = Mode::from_raw_mode(PRIVATE);
        let file = match openat(self.descriptor()?, name, flags, mode) {
            Ok(descriptor) => File::from(above_standard_streams(descriptor)?),
            Err(Errno::LOOP) => return Err(not_a_file("a symbolic link")),
            Err(Errno::ACCESS) => return Err(self.denied(name)),
            Err(error) => return Err(error.into()),
        };
        if !file.metadata()?.is_file() {
            return Err(not_a_file("a directory, pipe or device"));
        }
        if flags.contains(OFlags::CREATE) {
            self.adopt(&file).inspect_err(|_| {
                if flags.contains(OFlags::EXCL) {
                    // The first error is the one to report.
                    let _ = self.remove(name);
                }
            })?;
        }
        Ok(file)
    }

    /// Gives a new file owner, group and mode of the filter's `meta`, so that processes of all
    /// users that share the filter can open it, whichever created it. Only root can give a file
    /// away; a process that is neither root nor the owner shares by the group.
    pub(super) fn adopt(&self, file: &File) -> io::Result<()> {
        let own = fstat(file)?;
        let identity = |stat: &Stat| (stat.st_dev, stat.st_ino);
        let is_model = |stat: &Stat| is_regular(stat) && identity(stat) != identity(&own);
        let model = self.stat(MODEL).ok().filter(is_model);
        let mut mode = model.as_ref().map(|model| model.st_mode).or(self.mode).unwrap_or(PRIVATE);
        mode &= READ_AND_WRITE;
        if model.is_none() && !self.gives_group(file)? {
            mode &= !OF_GROUP;
        }
        // With such a list, the group's bits are the most that any of its entries gives.
        if model.is_some()
            && mode & OF_GROUP != 0
            && let Some(list) = self.access_list(MODEL)?
            && system::set_access_list(file, &list).is_err()
        {
            mode &= !OF_GROUP;
        }
        // If this is refused, the file stays its creator's, as it would be without.
        if own.st_mode & 0o777 != mode {
            let _ = fchmod(file, Mode::from_raw_mode(mode));
        }
        let Some(model) = model else { return self.give_to_user(file) };
        let group = (own.st_gid != model.st_gid).then(|| Gid::from_raw(model.st_gid));
        let user = (own.st_uid != model.st_uid).then(|| Uid::from_raw(model.st_uid));
        if user.is_none() && group.is_none() {
            return Ok(());
        }
        if fchown(file, user, group).is_err() && group.is_some() {
            let _ = fchown(file, None, group);
        }
        Ok(())
    }

    /// Returns user and group of the filter's `meta`, or of this process if there is none yet.
    pub(super) fn owner(&self) -> (u32, u32) {
        let us = || (geteuid().as_raw(), getegid().as_raw());
        self.stat(MODEL).map_or_else(|_| us(), |model| (model.st_uid, model.st_gid))
    }

    /// Gives a name the owner and group of the filter's `meta`, as far as that is allowed.
    pub(super) fn give_to_owner(&self, name: &str) {
        if let Ok(directory) = self.descriptor() {
            let (user, group) = self.owner();
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            // If this is refused, the file stays its creator's.
            let _ = chownat(directory, name, Some(user), Some(group), flags);
        }
    }

    /// Creates the error for a file that must not be opened, with its owner and a remedy.
    fn denied(&self, name: &str) -> io::Error {
        let Ok(stat) = self.stat(name) else { return Errno::ACCESS.into() };
        let (mode, user, group) = (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid);
        let us = geteuid().as_raw();
        let sentence = format!(
            "permission denied: it belongs to user {user} and group {group} (mode {mode:04o}), and \
             this process runs as user {us}; give it to the owner of `{MODEL}`, or run as one who \
             may"
        );
        io::Error::new(io::ErrorKind::PermissionDenied, sentence)
    }

    /// Returns the status of the file with this name; links are not followed.
    pub(super) fn stat(&self, name: &str) -> io::Result<Stat> {
        Ok(statat(self.descriptor()?, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Returns the names in the directory that are UTF-8: no file of a filter has another.
    pub(super) fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(self.descriptor()?)? {
            if let Ok(name) = String::from_utf8(entry?.file_name().to_bytes().to_vec())
                && name != "."
                && name != ".."
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let directory = self.descriptor()?;
        Ok(renameat(directory, from, directory, to)?)
    }

    pub(super) fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        let directory = self.descriptor()?;
        match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => self.move_by_link(from, to),
            renamed => Ok(renamed?),
        }
    }

    /// Gives a file a second name.
    pub(super) fn link_new(&self, from: &str, to: &str) -> io::Result<()> {
        let directory = self.descriptor()?;
        match linkat(directory, from, directory, to, AtFlags::empty()) {
            Err(refused @ (Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK)) => {
                Err(no_links(refused))
            }
            linked => Ok(linked?),
        }
    }

    /// Renames without replacing, if the system has no such call; briefly both names exist.
    pub(super) fn move_by_link(&self, from: &str, to: &str) -> io::Result<()> {
        let directory = self.descriptor()?;
        linkat(directory, from, directory, to, AtFlags::empty())?;
        self.remove(from).inspect_err(|_| {
            // The first error is the one to report.
            let _ = self.remove(to);
        })
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(self.descriptor()?, name, AtFlags::empty())?)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(system::sync_directory(self.descriptor()?)?)
    }
}

/// If a program has closed its standard streams, a new file could get the number of one, and the
/// next message printed would be written into it.
pub(super) fn above_standard_streams(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    const FIRST_FREE: i32 = 3;
    if descriptor.as_raw_fd() >= FIRST_FREE {
        return Ok(descriptor);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&descriptor, FIRST_FREE)?)
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn not_a_file(found: &str) -> io::Error {
    let sentence =
        format!("expected a regular file, found {found}; remove it, it is none of the filter's");
    io::Error::new(io::ErrorKind::InvalidInput, sentence)
}

/// Accepts every file system that is not known to be shared with other machines or served by a
/// process.
fn accept(answer: &StatFs) -> io::Result<()> {
    let Some(name) = system::not_local(answer) else { return Ok(()) };
    let sentence = format!(
        "it is on {name}; a filter needs a local file system such as ext4, XFS, btrfs, tmpfs or \
         APFS"
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, sentence))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(target_os = "linux", not(ebbtide_portable)))]
    use ebbtide_testkit::skipped::skipped;

    fn at(place: &Path) -> Directory {
        Directory::new(place.to_path_buf(), None)
    }

    #[test]
    fn where_renaming_always_replaces_links_do_not() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let directory = at(place.path());
        let [a, b, c] = ["a", "b", "c"].map(|name| place.path().join(name));
        fs::write(&a, "first").expect("space");
        fs::write(&b, "second").expect("space");
        let refusal = directory.move_by_link("a", "b").expect_err("it is there");
        assert_eq!(refusal.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(
            directory.move_by_link("a", "a").expect_err("so is this").kind(),
            refusal.kind()
        );
        assert_eq!(fs::read(&b).expect("it is there"), b"second");
        directory.move_by_link("a", "c").expect("nobody has that name");
        assert!(!a.exists());
        assert_eq!(fs::read(&c).expect("it is there"), b"first");
    }

    #[test]
    fn work_stays_in_the_directory_that_was_opened_wherever_it_is_moved() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let (old, new) = (place.path().join("a"), place.path().join("b"));
        let directory = at(&old);
        directory.make().expect("a directory");
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        directory.open("before", create).expect("a file");
        fs::rename(&old, &new).expect("moved");
        fs::create_dir(&old).expect("another of the same name");
        directory.open("after", create).expect("a file");
        directory.rename("before", "renamed").expect("renamed");
        assert_eq!(fs::read_dir(&old).expect("it is there").count(), 0, "the new one is untouched");
        let mut names = directory.list().expect("the old one");
        names.sort();
        assert_eq!(names, ["after", "renamed"]);
        fs::remove_dir_all(&new).expect("removed");
        let gone = directory.open("more", create).expect_err("there is no directory");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_dir(&old).expect("it is there").count(), 0);
    }

    #[test]
    fn new_files_have_the_mode_of_meta_whatever_the_umask() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("a temporary directory");
        let mode_of = |name: &str| {
            let metadata = fs::metadata(place.path().join(name)).expect("it is there");
            metadata.permissions().mode() & 0o7777
        };
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let shared = Directory::new(place.path().to_path_buf(), Some(0o660));
        shared.open("first", create).expect("a file");
        assert_eq!(mode_of("first"), 0o660, "as the creator wants it");
        shared.open(MODEL, create).expect("a file");
        at(place.path()).open("second", create).expect("a file");
        assert_eq!(mode_of("second"), 0o660, "as `meta` has it");
        fs::remove_file(place.path().join(MODEL)).expect("removed");
        at(place.path()).open("third", create).expect("a file");
        assert_eq!(mode_of("third"), 0o600, "private without a word");
    }

    #[cfg(all(target_os = "linux", not(ebbtide_portable)))]
    #[test]
    fn an_access_control_list_of_meta_opens_no_file_to_its_group() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("a temporary directory");
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let model = at(place.path()).open(MODEL, create).expect("a file");
        // Version, then tag, permissions and number of each entry: the owner, user 4711, the
        // group (nothing), the mask, others.
        let mut list = 2_u32.to_le_bytes().to_vec();
        let entries = [(1, 6, !0), (2, 6, 4711), (4, 0, !0), (0x10, 6, !0), (0x20, 0, !0_u32)];
        for (tag, may, number) in entries {
            let (tag, may): (u16, u16) = (tag, may);
            list.extend(tag.to_le_bytes().into_iter().chain(may.to_le_bytes()));
            list.extend(number.to_le_bytes());
        }
        if let Err(error) = system::set_access_list(&model, &list) {
            skipped(format!("the file system has no access control lists: {error}"));
            return;
        }
        assert_eq!(fstat(&model).expect("it is there").st_mode & 0o777, 0o660, "that of the mask");
        let made = at(place.path()).open("made", create).expect("a file");
        assert_eq!(system::access_list(&made).expect("an answer"), Some(list), "as `meta` has it");
        let of = at(place.path()).ownership().expect("there is a file");
        assert_eq!(of.mode, 0o600, "a copy is its owner's");
        // What has no list gets none.
        let other = tempfile::tempdir().expect("a temporary directory");
        let shared = Directory::new(other.path().to_path_buf(), Some(0o660));
        shared.open(MODEL, create).expect("a file");
        let made = at(other.path()).open("made", create).expect("a file");
        assert_eq!(system::access_list(&made).expect("an answer"), None);
        let mode = made.metadata().expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o660);
    }

    #[test]
    fn a_shared_directory_keeps_the_bit_by_which_its_files_get_its_group() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let place = tempfile::tempdir().expect("a temporary directory");
        let groups = place.path().join("groups");
        fs::create_dir(&groups).expect("a directory");
        let group = if geteuid().is_root() { 4711 } else { getegid().as_raw() };
        std::os::unix::fs::chown(&groups, None, Some(group)).expect("the group is ours");
        fs::set_permissions(&groups, fs::Permissions::from_mode(0o2775)).expect("permissions");
        let dir = groups.join("above").join("filter");
        let shared = Directory::new(dir.clone(), Some(0o660));
        shared.make().expect("a directory");
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        shared.open("first", create).expect("a file");
        let of = |path: &Path| {
            let found = fs::metadata(path).expect("it is there");
            (found.gid(), found.permissions().mode() & 0o7777)
        };
        assert_eq!(of(&dir), (group, 0o2775));
        assert_eq!(of(&dir.join("first")), (group, 0o660));
        assert_eq!(of(&groups.join("above")).1 & 0o2010, 0o2010, "passable for the group");
    }

    #[test]
    fn copies_are_for_the_group_if_they_get_it_and_never_for_others() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
        let place = tempfile::tempdir().expect("a temporary directory");
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let copy = |name: &str, group: u32| {
            let dir = place.path().join(name);
            let of = Ownership { mode: 0o777, user: geteuid().as_raw(), group };
            let copy = Directory::of_copy(dir.clone(), of);
            copy.make().expect("a directory");
            copy.open("first", create).expect("a file");
            [dir.join("first"), dir].map(|path| {
                let found = fs::metadata(path).expect("it is there");
                (found.gid(), found.permissions().mode() & 0o777)
            })
        };
        let own = getegid().as_raw();
        assert_eq!(copy("own", own), [(own, 0o660), (own, 0o775)]);
        let other = own + 4711;
        let expected = if geteuid().is_root() {
            [(other, 0o660), (other, 0o775)]
        } else {
            [(own, 0o600), (own, 0o755)]
        };
        assert_eq!(copy("other", other), expected);
        // Root gives them to the user of the filter.
        let dir = place.path().join("given");
        let of = Ownership { mode: 0o600, user: 4711, group: own };
        let given = Directory::of_copy(dir.clone(), of);
        given.make().expect("a directory");
        given.open("first", create).expect("a file");
        let expected = if geteuid().is_root() { 4711 } else { geteuid().as_raw() };
        for path in [dir.join("first"), dir] {
            assert_eq!(fs::metadata(path).expect("it is there").uid(), expected);
        }
        // Of what is no file there is nothing to copy.
        let (link, dir) = (place.path().join("link"), place.path().join("dir"));
        for path in [&link, &dir] {
            fs::create_dir(path).expect("a directory");
        }
        symlink("elsewhere", link.join(MODEL)).expect("a link");
        fs::create_dir(dir.join(MODEL)).expect("a directory");
        for path in [link, dir] {
            assert!(at(&path).mode().is_err() && at(&path).ownership().is_err());
        }
    }
}
