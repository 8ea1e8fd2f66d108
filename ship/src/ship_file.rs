//! The file `ship` in a filter's directory: the numbers of the newest beginnings of its shippers,
//! and that of the newest link that they have put, or were about to put.
//!
//! If the newest link of the chain has one of the former, nobody else has shipped since, nor this
//! directory in a later state that was taken back by more than that beginning. By the latter it is
//! known that less than that was not taken back either. The engine does not read the file; a copy
//! made by `fetch`, `backup` or `restore` does not have it.

use crate::error::Result;
use crate::snapshot::local;
use ebbtide::media::{Access, Media};
use std::io::ErrorKind;

const NAME: &str = "ship";
const TEMPORARY: &str = "ship.new";
const TITLE: &str = "ebbtide shippers of this directory";
/// Begins the line with the number of a link. It follows the title, and has always the same length,
/// so that it is replaced by one write within a sector.
const NEWEST: &str = "newest ";
const DIGITS: usize = 20;
/// Beginnings that are kept: one that was not answered may be put late.
const SHIPPERS: usize = 8;

/// Returns a random number, for a beginning.
pub fn random_id() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    half() << 64 | half()
}

#[derive(Debug, Default)]
struct Note {
    /// `None` in the file of an earlier version.
    newest: Option<u64>,
    /// The last is the oldest.
    shippers: Vec<u128>,
}

impl Note {
    fn read(media: &dyn Media) -> std::io::Result<Self> {
        let file = match media.open(NAME, Access::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            file => file?,
        };
        let mut bytes = vec![0; file.bytes()?.min(1 << 12) as usize];
        file.read_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(&bytes);
        let (lines, mut note) = (text.lines().skip(1), Self::default());
        for line in lines {
            match line.strip_prefix(NEWEST) {
                Some(number) => note.newest = Some(number.parse().unwrap_or(0)),
                None => note.shippers.extend(u128::from_str_radix(line, 16)),
            }
        }
        Ok(note)
    }

    fn write(&self, media: &dyn Media) -> std::io::Result<()> {
        let newest = self.newest.unwrap_or(0);
        let shippers: String =
            self.shippers.iter().map(|number| format!("{number:032x}\n")).collect();
        match media.remove(TEMPORARY) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = media.create(TEMPORARY, 0)?;
        let text = format!("{TITLE}\n{NEWEST}{newest:0DIGITS$}\n{shippers}");
        file.write_at(text.as_bytes(), 0)?;
        file.sync()?;
        media.rename(TEMPORARY, NAME)?;
        media.sync()
    }
}

/// Returns whether a shipper is one of this directory.
pub fn has(media: &dyn Media, shipper: u128) -> Result<bool> {
    has_any(media, &[shipper])
}

/// Returns whether one of these shippers is one of this directory.
pub fn has_any(media: &dyn Media, shippers: &[u128]) -> Result<bool> {
    let note = Note::read(media).map_err(|error| local("read", media, NAME, &error))?;
    Ok(shippers.iter().any(|shipper| note.shippers.contains(shipper)))
}

/// Returns whether a shipper is one of this directory, which was not set back to before this link
/// of it.
pub fn has_put(media: &dyn Media, shipper: u128, link: u64) -> Result<bool> {
    let note = Note::read(media).map_err(|error| local("read", media, NAME, &error))?;
    let is_later = note.newest.is_none_or(|newest| newest >= link);
    Ok(is_later && note.shippers.contains(&shipper))
}

/// Notes a shipper that is about to begin with this link. That of the newest link stays, if it is
/// one of this directory: its successors may die before they have begun.
pub fn write(media: &dyn Media, (shipper, link): (u128, u64), newest: u128) -> Result<()> {
    let write = || {
        let Note { newest: before_newest, shippers: before } = Note::read(media)?;
        let of_newest = before.iter().copied().find(|&known| known == newest);
        // Of this chain. Of another one the number says nothing.
        let known = before_newest.filter(|_| of_newest.is_some());
        let link = link.max(known.unwrap_or(0));
        let others = before.iter().copied().filter(|&known| known != newest);
        let shippers = [Some(shipper), of_newest].into_iter().flatten().chain(others);
        let shippers = shippers.take(SHIPPERS).collect();
        Note { newest: Some(link), shippers }.write(media)
    };
    write().map_err(|error| local("write", media, NAME, &error))
}

/// Notes the link that a shipper is about to put.
pub fn raise(media: &dyn Media, link: u64) -> Result<()> {
    let raise = || {
        if Note::read(media)?.newest.is_none_or(|newest| newest >= link) {
            return Ok(());
        }
        let file = media.open(NAME, Access::Write)?;
        file.write_at(
            format!("{link:0DIGITS$}").as_bytes(),
            (TITLE.len() + 1 + NEWEST.len()) as u64,
        )?;
        file.sync()
    };
    raise().map_err(|error| local("write", media, NAME, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::media::Memory;

    fn directory() -> Memory {
        let media = Memory::new();
        media.make().expect("a directory");
        media
    }

    #[test]
    fn the_newest_beginnings_and_that_of_the_newest_link_are_known() {
        let media = directory();
        write(&media, (1, 1), 0).expect("written");
        for shipper in 2..20 {
            write(&media, (shipper, 2), 1).expect("written");
        }
        let known: Vec<_> = (0..20).filter(|&id| has(&media, id).expect("read")).collect();
        assert_eq!(known, [1, 13, 14, 15, 16, 17, 18, 19]);
    }

    #[test]
    fn the_number_of_the_newest_link_only_rises() {
        let media = directory();
        write(&media, (7, 3), 0).expect("written");
        assert!(has_put(&media, 7, 3).expect("read") && !has_put(&media, 7, 4).expect("read"));
        raise(&media, 12).expect("raised");
        raise(&media, 11).expect("as it was");
        assert!(has_put(&media, 7, 12).expect("read") && !has_put(&media, 7, 13).expect("read"));
        assert!(!has_put(&media, 8, 1).expect("read"));
    }

    #[test]
    fn a_beginning_lowers_the_number_only_for_another_chain() {
        let media = directory();
        write(&media, (7, 3), 0).expect("written");
        raise(&media, 12).expect("raised");
        write(&media, (8, 9), 7).expect("written");
        assert!(has_put(&media, 7, 12).expect("read"));
        write(&media, (9, 5), 1).expect("written");
        assert!(has_put(&media, 7, 5).expect("read") && !has_put(&media, 7, 6).expect("read"));
    }

    #[test]
    fn the_file_of_an_earlier_version_is_read() {
        let media = directory();
        let file = media.create(NAME, 0).expect("a file");
        file.write_at(format!("{TITLE}\n{:032x}\n{:032x}\n", 5, 4).as_bytes(), 0).expect("written");
        raise(&media, 12).expect("as it was");
        assert!(has(&media, 4).expect("read") && has_put(&media, 5, 1000).expect("read"));
        write(&media, (6, 12), 4).expect("written");
        assert!(has_put(&media, 4, 12).expect("read") && !has_put(&media, 4, 13).expect("read"));
    }
}
