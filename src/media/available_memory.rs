//! How much memory this process can take without swapping or being killed.
//!
//! The least of what the machine has available and of what each level of the process's control
//! groups still allows, in both versions of their files. Files that are not there bound nothing.

use std::fs::read_to_string;
use std::io;
use std::path::{Path, PathBuf};

/// The files of a level of control groups: the most bytes, the bytes in use, and the name in
/// `memory.stat` of those that are returned under pressure, because they only cache files.
const VERSIONS: [[&str; 3]; 2] = [
    ["memory.max", "memory.current", "inactive_file"],
    ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"],
];

/// Fails if this process cannot take this many bytes more; succeeds if the system does not tell.
/// `remedy` is what the caller can do.
pub(super) fn check(bytes: u64, remedy: &str) -> io::Result<()> {
    match under(Path::new("/")).filter(|&available| available < bytes) {
        Some(available) => Err(lack(bytes, &format!("{available} bytes are available"), remedy)),
        None => Ok(()),
    }
}

/// Creates the error for too little memory.
pub(super) fn lack(bytes: u64, found: &str, remedy: &str) -> io::Error {
    let sentence = format!("expected {bytes} bytes of memory for it, but {found}; {remedy}");
    io::Error::new(io::ErrorKind::OutOfMemory, sentence)
}

/// Returns the bytes that the files below `root` tell.
fn under(root: &Path) -> Option<u64> {
    let machine = read_to_string(root.join("proc/meminfo")).ok();
    let machine = machine.and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    });
    let groups = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let groups = groups.lines().filter_map(|line| of_group(root, line));
    groups.chain(machine).min()
}

/// Returns the bytes that a line of `/proc/self/cgroup` stands for: `number:controllers:path`,
/// without controllers in version 2.
fn of_group(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (mount, [most, used, cache]) = match controllers {
        "" => (root.join("sys/fs/cgroup"), VERSIONS[0]),
        _ if controllers.split(',').any(|name| name == "memory") => {
            (root.join("sys/fs/cgroup/memory"), VERSIONS[1])
        }
        _ => return None,
    };
    let number = |file: PathBuf| read_to_string(file).ok()?.trim().parse::<u64>().ok();
    // In a container the path may be the host's, below a mount that begins at the group itself.
    let levels = Path::new(path.trim_start_matches('/')).ancestors();
    let left = levels.map(|level| mount.join(level)).filter_map(|level| {
        let (most, used) = (number(level.join(most))?, number(level.join(used))?);
        let stat = read_to_string(level.join("memory.stat")).unwrap_or_default();
        let cached = stat.lines().find_map(|line| line.strip_prefix(cache)?.trim().parse().ok());
        Some(most.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
    });
    left.min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Writes files below a new directory, and returns what they tell.
    fn told(name: &str, files: &[(&str, &str)]) -> Option<u64> {
        let root = std::env::temp_dir().join(format!("ebbtide-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        let bytes = under(&root);
        let _ = fs::remove_dir_all(&root);
        bytes
    }

    #[test]
    fn without_groups_it_is_what_the_machine_has() {
        let memory = ("proc/meminfo", "MemTotal:  9 kB\nMemAvailable:       7 kB\n");
        assert_eq!(told("machine", &[memory]), Some(7 << 10));
        assert_eq!(told("nothing", &[]), None);
        assert_eq!(told("other", &[("proc/meminfo", "MemAvailable: many\n")]), None);
    }

    #[test]
    fn the_tightest_level_of_a_group_counts_without_what_only_caches_files() {
        let files = [
            ("proc/meminfo", "MemAvailable: 1000000 kB\n"),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "70\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/memory.current", "700\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 200\nactive_file 5\n"),
        ];
        assert_eq!(told("two", &files), Some(500));
    }

    #[test]
    fn groups_of_the_first_version_count_and_so_does_a_mount_that_begins_at_the_group() {
        let files = [
            ("proc/self/cgroup", "9:cpu:/x\n8:hugetlb,memory:/host/path\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "6000\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 1500\n"),
        ];
        assert_eq!(told("one", &files), Some(500));
    }
}
