//! The kinds of damage to a file.

use super::states::{State, seal};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A file by its purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Meta,
    Lock,
    Live,
    Bank,
    OldestSegment,
    NewestSegment,
    NewestSnapshot,
    OlderSnapshot,
    BothSnapshots,
    AllSegments,
}

pub const ROLES: [Role; 10] = [
    Role::Meta,
    Role::Lock,
    Role::Live,
    Role::Bank,
    Role::OldestSegment,
    Role::NewestSegment,
    Role::NewestSnapshot,
    Role::OlderSnapshot,
    Role::BothSnapshots,
    Role::AllSegments,
];

impl Role {
    /// Returns the files with this purpose.
    pub fn files(self, state: &State) -> Vec<String> {
        let some = |start: &str, pick: fn(&[String]) -> Vec<String>| pick(&state.names(start));
        match self {
            Self::Meta => vec!["meta".to_owned()],
            Self::Lock => vec!["lock".to_owned()],
            Self::Live => vec!["live".to_owned()],
            Self::Bank => some("live-", <[String]>::to_vec),
            Self::OldestSegment => some("wal-", |all| all[..1].to_vec()),
            Self::NewestSegment => some("wal-", |all| all[all.len() - 1..].to_vec()),
            Self::AllSegments => some("wal-", <[String]>::to_vec),
            Self::NewestSnapshot => some("snap-", |all| all[1..].to_vec()),
            Self::OlderSnapshot => some("snap-", |all| all[..1].to_vec()),
            Self::BothSnapshots => some("snap-", <[String]>::to_vec),
        }
    }

    pub fn is_log(self) -> bool {
        matches!(self, Self::OldestSegment | Self::NewestSegment | Self::AllSegments)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    Empty,
    OneByte,
    Half,
    OneByteLess,
    Removed,
    /// The bit 0-7 of the byte at this offset.
    Flipped(usize, u32),
    /// Random bytes of the same length.
    Foreign,
    /// The file of another filter with the same inserts.
    OfAnother,
    Directory,
    Symlink,
    /// Another format version under a correct checksum.
    Version,
    Extended,
}

pub const DAMAGES: [Damage; 11] = [
    Damage::Empty,
    Damage::OneByte,
    Damage::Half,
    Damage::OneByteLess,
    Damage::Removed,
    Damage::Foreign,
    Damage::OfAnother,
    Damage::Directory,
    Damage::Symlink,
    Damage::Version,
    Damage::Extended,
];

/// Applies the damage to one file. Returns false if that is not possible, for example a flip in an
/// empty file.
pub fn inflict(home: &Path, name: &str, role: Role, damage: Damage, other: &State) -> bool {
    let path = home.join(name);
    let mut bytes = fs::read(&path).expect("a file");
    let length = bytes.len();
    match damage {
        Damage::Empty => bytes.clear(),
        Damage::OneByte => bytes.truncate(1),
        Damage::Half => bytes.truncate(length / 2),
        Damage::OneByteLess => bytes.truncate(length.saturating_sub(1)),
        Damage::Flipped(at, bit) => match bytes.get_mut(at) {
            Some(byte) => *byte ^= 1 << bit,
            None => return false,
        },
        Damage::Foreign => bytes = noise(length),
        Damage::OfAnother => bytes.clone_from(&other.files[name]),
        Damage::Version => match role {
            Role::Lock => return false,
            Role::Meta => bytes = newer_meta(&bytes),
            _ => {
                bytes[8] += 1;
                seal(&mut bytes);
            }
        },
        Damage::Extended => bytes.extend(noise(1000)),
        Damage::Removed | Damage::Directory | Damage::Symlink => {
            fs::remove_file(&path).expect("a file");
            if damage == Damage::Directory {
                fs::create_dir(&path).expect("a new directory");
            } else if damage == Damage::Symlink {
                // To the same bytes: the link itself is refused.
                let target = home.with_extension("target");
                fs::write(&target, &bytes).expect("a file");
                symlink(&target, &path).expect("a link");
            }
            return true;
        }
    }
    // In place: the same inode.
    fs::write(&path, &bytes).expect("a file");
    true
}

/// Restores the file.
pub fn heal(home: &Path, name: &str, state: &State) {
    let path = home.join(name);
    match fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() => fs::remove_dir(&path).expect("an empty directory"),
        Ok(found) if found.is_symlink() => fs::remove_file(&path).expect("a link"),
        _ => {}
    }
    state.put_back(home, name);
}

fn newer_meta(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(bytes.to_vec()).expect("meta is text");
    let (body, _) = text.split_once("checksum ").expect("its last line");
    let (title, rest) = body.split_once('\n').expect("its first line");
    let version: u32 = title.rsplit(' ').next().and_then(|text| text.parse().ok()).expect("one");
    let body = format!("ebbtide meta {}\n{rest}", version + 1);
    let sum = crc32fast::hash(body.as_bytes());
    format!("{body}checksum {sum:08x}\n").into_bytes()
}

/// Returns bytes from a fixed generator (splitmix64).
pub fn noise(length: usize) -> Vec<u8> {
    let mut seed = 0x00C0_FFEE_u64;
    let mut next = || {
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = seed;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ word >> 31) as u8
    };
    (0..length).map(|_| next()).collect()
}
