//! The file `ship` in a filter's directory: the numbers of the newest beginnings of its shippers.
//!
//! If the newest link of the chain has one of them, nobody else has shipped since, nor this
//! directory in a later state that was taken back. The engine does not read the file; a copy made
//! by `fetch`, `backup` or `restore` does not have it.

use crate::error::Result;
use crate::snapshot::local;
use ebbtide::media::{Access, Media};
use std::io::ErrorKind;

const NAME: &str = "ship";
const TEMPORARY: &str = "ship.new";
const TITLE: &str = "ebbtide shippers of this directory";

fn read(media: &dyn Media) -> std::io::Result<Vec<u128>> {
    let file = match media.open(NAME, Access::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let mut bytes = vec![0; file.bytes()?.min(1 << 12) as usize];
    file.read_at(&mut bytes, 0)?;
    let text = String::from_utf8_lossy(&bytes);
    let numbers = text.lines().skip(1).filter_map(|line| u128::from_str_radix(line, 16).ok());
    Ok(numbers.collect())
}

/// Returns whether a shipper is one of this directory.
pub fn has(media: &dyn Media, shipper: u128) -> Result<bool> {
    let found = read(media).map_err(|error| local("read", media, NAME, &error))?;
    Ok(found.contains(&shipper))
}

/// Notes a shipper that is about to begin. That of the newest link stays, if it is one of this
/// directory: its successor may die before it has begun.
pub fn write(media: &dyn Media, shipper: u128, newest: u128) -> Result<()> {
    let write = || {
        let before = read(media)?.into_iter().find(|&known| known == newest);
        let lines = [Some(shipper), before].into_iter().flatten();
        let lines: String = lines.map(|number| format!("{number:032x}\n")).collect();
        match media.remove(TEMPORARY) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = media.create(TEMPORARY, 0)?;
        file.write_at(format!("{TITLE}\n{lines}").as_bytes(), 0)?;
        file.sync()?;
        media.rename(TEMPORARY, NAME)?;
        media.sync()
    };
    write().map_err(|error| local("write", media, NAME, &error))
}
