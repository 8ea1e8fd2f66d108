//! Reading the chain: where a fetch can begin, link after link from there, and what they add up to.
//!
//! A link counts if its digest is right and the next one names it. The chain ends at the first
//! number that has no object; an object beyond that is an error, because one is missing then.

use crate::error::{Error, Result};
use crate::link::{Begin, Content, Link, Snapshot, digest};
use crate::store::{Folder, Store};
use ebbtide::inspect::Piece;
use futures::future::join_all;
use std::collections::BTreeMap;

const DELETED: &str = "somebody has removed it: fetch an older state with `--at`, or ship the \
                       filter to a new prefix from a machine that has it";
const MIXED: &str = "the objects of two filters are mixed here: ship to another prefix";
/// Links that are read at a time, and their bytes, at most. A link has a few MiB, those of a batch
/// more.
const READ_AHEAD: u64 = 16;
const READ_AHEAD_BYTES: u64 = 32 << 20;

/// Returns the name of a link, or of the hint at it.
pub fn link_name(number: u64) -> String {
    format!("{number:020}")
}

/// Reads a link and checks it; `None` if there is none.
pub async fn read_link(store: &Store, number: u64) -> Result<Option<(Link, u128)>> {
    let name = link_name(number);
    let Some(bytes) = store.get(Folder::Chain, &name).await? else { return Ok(None) };
    let object = store.name(Folder::Chain, &name);
    let link = Link::decode(&object, &bytes)?;
    if link.number != number {
        let (expected, found) = (format!("link {number}"), format!("link {}", link.number));
        return Err(Error::object(object, expected, found, MIXED));
    }
    Ok(Some((link, digest(&bytes))))
}

/// Returns whether there is a link, without reading it.
pub async fn has_link(store: &Store, number: u64) -> Result<bool> {
    Ok(store.get_part(Folder::Chain, &link_name(number), 0..1).await?.is_some())
}

/// The newest base whose link was read, by its number; 0 if there is none.
///
/// Links behind it are removed only once its hint was: so while that is there, a number without a
/// link is that of the next one. Links are no such sign, because many are removed at the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewestBase(pub u64);

impl NewestBase {
    /// Notes the next link.
    pub fn note(&mut self, link: &Link) {
        if Base::of(link).is_some() {
            self.0 = link.number;
        }
    }

    /// Returns whether it is known and its hint is there. Asked after the next link was not found.
    pub async fn is_there(self, store: &Store) -> Result<bool> {
        Ok(self.0 > 0 && store.get(Folder::Base, &link_name(self.0)).await?.is_some())
    }
}

/// Returns the numbers of the links at which a fetch can begin, the newest first, as far as hints
/// say, with the store's times of them in microseconds.
pub async fn base_hints(store: &Store) -> Result<Vec<(u64, i64)>> {
    let found = store.list(Folder::Base, None).await?;
    let number = |(name, meta): &(String, object_store::ObjectMeta)| {
        Some((name.parse().ok()?, meta.last_modified.timestamp_micros()))
    };
    let mut numbers: Vec<_> = found.iter().filter_map(number).collect();
    numbers.reverse();
    Ok(numbers)
}

/// The end of the chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tip {
    /// The number of the newest link; 0 for an empty chain.
    pub number: u64,
    /// Its digest.
    pub digest: u128,
}

/// The lengths of links as a list has shown them, by number.
#[derive(Debug, Default)]
pub struct Lengths(BTreeMap<u64, u64>);

impl Lengths {
    /// Lists the links behind a number.
    pub async fn after(store: &Store, number: u64) -> Result<Self> {
        let found = store.list(Folder::Chain, Some(&link_name(number))).await?;
        let length = |(name, meta): (String, object_store::ObjectMeta)| {
            Some((name.parse().ok()?, meta.size))
        };
        Ok(Self(found.into_iter().filter_map(length).collect()))
    }

    /// Returns the numbers, in their order.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.keys().copied()
    }

    /// Returns how many links are read at a time from this one on. Of those that were not listed
    /// the length is not known.
    pub fn window(&self, next: u64) -> u64 {
        let (mut links, mut bytes) = (0, 0_u64);
        while let Some(length) = self.0.get(&(next + links)).filter(|_| links < READ_AHEAD) {
            bytes = bytes.saturating_add(*length);
            if bytes > READ_AHEAD_BYTES {
                break;
            }
            links += 1;
        }
        links.max(1)
    }
}

/// Returns whether a link that was put has a number that was used and removed before. Then the
/// chain continues without it: nobody reads it, and it fences nobody.
pub async fn is_stray(store: &Store, Tip { number, digest }: Tip) -> Result<bool> {
    // A link is removed only while there are later ones.
    if Lengths::after(store, number).await?.numbers().next().is_none() {
        return Ok(false);
    }
    // A successor names it.
    let next = read_link(store, number + 1).await?;
    Ok(next.is_none_or(|(link, _)| link.before != digest))
}

/// Passes the links from a number on to `visit`, until it returns false, or the chain ends.
/// `before` is the digest of the link before, if it is known. Returns the last link that was read.
pub async fn walk(
    store: &Store,
    from: (u64, Option<u128>),
    visit: impl FnMut(Link) -> Result<bool>,
) -> Result<Tip> {
    match walk_sound(store, from, visit).await? {
        (tip, None) => Ok(tip),
        (_, Some(damage)) => Err(damage),
    }
}

/// As [`walk`], and ends before a link that is damaged, or is missing although there are later
/// ones: that is the error which is returned beside the link before it.
pub async fn walk_sound(
    store: &Store,
    (from, mut before): (u64, Option<u128>),
    mut visit: impl FnMut(Link) -> Result<bool>,
) -> Result<(Tip, Option<Error>)> {
    let mut tip = Tip { number: from - 1, digest: before.unwrap_or(0) };
    let mut lengths = Lengths::after(store, tip.number).await?;
    loop {
        let next = tip.number + 1;
        let numbers = next..next + lengths.window(next);
        let mut is_end = false;
        for read in join_all(numbers.map(|number| read_link(store, number))).await {
            let (link, digest) = match read {
                Ok(Some(read)) => read,
                Ok(None) => {
                    is_end = true;
                    break;
                }
                Err(damage @ Error::Object { .. }) => return Ok((tip, Some(damage))),
                Err(error) => return Err(error),
            };
            let (number, wanted) = (link.number, before);
            if wanted.is_some_and(|wanted| wanted != link.before) {
                let object = store.name(Folder::Chain, &link_name(number));
                let expected = format!("the link after {:032x}", wanted.unwrap_or(0));
                let found = format!("that after {:032x}", link.before);
                return Err(Error::object(object, expected, found, MIXED));
            }
            (tip, before) = (Tip { number, digest }, Some(digest));
            if !visit(link)? {
                return Ok((tip, None));
            }
        }
        if !is_end {
            continue;
        }
        lengths = Lengths::after(store, tip.number).await?;
        let Some(later) = lengths.numbers().next() else { return Ok((tip, None)) };
        // It may have been put just now.
        if read_link(store, tip.number + 1).await?.is_none() {
            let object = store.name(Folder::Chain, &link_name(tip.number + 1));
            let expected = format!("a link, because there is {}", link_name(later));
            return Ok((tip, Some(Error::object(object, expected, "nothing", DELETED))));
        }
    }
}

/// Where a fetch begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// At the creation of the filter: this link has its `meta`.
    Creation(Begin),
    /// With a snapshot.
    Snapshot(Snapshot),
}

impl Base {
    /// Returns the base in a link, if it is one.
    pub fn of(link: &Link) -> Option<Self> {
        match &link.content {
            Content::Begin(begin) if begin.first == 1 && !begin.continues => {
                Some(Self::Creation(begin.clone()))
            }
            Content::Snapshot(snapshot) => Some(Self::Snapshot(snapshot.clone())),
            _ => None,
        }
    }

    /// Returns the number of the log.
    pub fn log(&self) -> u128 {
        match self {
            Self::Creation(begin) => begin.log,
            Self::Snapshot(snapshot) => snapshot.log,
        }
    }

    /// Returns the LSN from which records are needed.
    pub fn start(&self) -> u64 {
        match self {
            Self::Creation(_) => 1,
            Self::Snapshot(snapshot) => snapshot.start,
        }
    }

    /// Returns the LSN below which they are needed.
    pub fn end(&self) -> u64 {
        match self {
            Self::Creation(_) => 1,
            Self::Snapshot(snapshot) => snapshot.end,
        }
    }

    /// Returns the number of the first link that is needed, if this base is in link `number`.
    pub fn first_link(&self, number: u64) -> u64 {
        match self {
            Self::Creation(_) => number,
            Self::Snapshot(snapshot) => snapshot.from_link,
        }
    }
}

/// Log without a gap, as links have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The link in which it began; 0 if that is not known.
    pub began: u64,
    /// The number of the log.
    pub log: u128,
    /// The LSN of the next record; 0 if that is not known.
    pub next: u64,
    /// The links with records: number and first LSN.
    pub links: Vec<(u64, u64)>,
    /// The newest records.
    pub last: Option<Piece>,
    /// The newest base in it, with the number of its link. Without one, nothing of it can be
    /// fetched.
    pub base: Option<(u64, Base)>,
}

impl Run {
    /// Creates a run without records.
    pub fn new(began: u64, log: u128, next: u64) -> Self {
        Self { began, log, next, links: Vec::new(), last: None, base: None }
    }

    /// Returns whether records of this LSN follow.
    fn leads_to(&self, log: u128, lsn: u64) -> bool {
        self.log == log && (self.next == lsn || self.next == 0)
    }
}

/// What the links of a chain add up to. A run that has no base yet can be discarded: then a later
/// link continues the one before.
#[derive(Debug, Default)]
pub struct Seen {
    /// The uuid of the filter.
    pub filter: Option<u128>,
    /// The newest timeline.
    pub timeline: u64,
    /// Who put the newest link.
    pub shipper: u128,
    /// Who put links before, and that one.
    pub shippers: Vec<u128>,
    /// The run at the end; `None` before the first link.
    pub run: Option<Run>,
    /// The run before it, as long as that at the end has no base.
    aside: Option<Run>,
    /// The numbers of links that are bases.
    pub bases: Vec<u64>,
    /// The numbers of all links that were seen, and whether they are beginnings.
    pub numbers: Vec<(u64, bool)>,
}

impl Seen {
    /// Begins with a base, whose link is among those that follow.
    pub fn from_base(base: &Base) -> Self {
        let run = match base {
            Base::Creation(_) => None,
            Base::Snapshot(snapshot) => Some(Run::new(0, snapshot.log, 0)),
        };
        Self { run, ..Self::default() }
    }

    /// Returns the newest run that can be fetched.
    pub fn whole(&self) -> Option<&Run> {
        let is_whole = |run: &&Run| run.base.is_some();
        self.run.as_ref().filter(is_whole).or(self.aside.as_ref().filter(is_whole))
    }

    /// Returns the link in which the run at the end began.
    pub fn began(&self) -> u64 {
        self.run.as_ref().map_or(0, |run| run.began)
    }

    /// Takes the next link.
    pub fn take(&mut self, store: &Store, link: Link) -> Result<()> {
        let number = link.number;
        let wrong = |expected: String, found: String| {
            Err(Error::object(
                store.name(Folder::Chain, &link_name(number)),
                expected,
                found,
                MIXED,
            ))
        };
        if let Some(filter) = self.filter.filter(|&filter| filter != link.filter) {
            let found = format!("a link of {:032x}", link.filter);
            return wrong(format!("one of filter {filter:032x}"), found);
        }
        self.filter = Some(link.filter);
        (self.timeline, self.shipper) = (self.timeline.max(link.timeline), link.shipper);
        if !self.shippers.contains(&link.shipper) {
            self.shippers.push(link.shipper);
        }
        self.numbers.push((number, matches!(link.content, Content::Begin(_))));
        let base = Base::of(&link);
        match link.content {
            Content::Begin(begin) if begin.continues => {
                if !self.continues(begin.log, begin.first) {
                    let expected = "the LSN that follows the records of the chain".to_owned();
                    return wrong(expected, format!("LSN {}", begin.first));
                }
            }
            Content::Begin(begin) => {
                let before = self.run.replace(Run::new(number, begin.log, begin.first));
                let is_kept = |run: &Run| run.base.is_some() || self.aside.is_none();
                self.aside = before.filter(is_kept).or(self.aside.take());
            }
            Content::Log(piece, _) => {
                let (log, first) = (piece.log, piece.first);
                // The links before may have been removed.
                let run = self.run.get_or_insert(Run::new(0, log, first));
                if !run.leads_to(log, first) {
                    let expected = format!("LSN {} of log {:032x}", run.next, run.log);
                    return wrong(expected, format!("LSN {first} of {log:032x}"));
                }
                run.links.push((number, first));
                run.next = piece.end();
                run.last = Some(piece);
            }
            Content::Snapshot(of) => {
                let run = self.run.get_or_insert(Run::new(0, of.log, of.end));
                if run.next == 0 {
                    run.next = of.end;
                }
                if run.log != of.log || run.next < of.end {
                    let expected = format!("records up to LSN {} of {:032x}", of.end, of.log);
                    return wrong(expected, format!("up to {} of {:032x}", run.next, run.log));
                }
            }
        }
        if let (Some(base), Some(run)) = (base, &mut self.run) {
            run.base = Some((number, base));
            self.aside = None;
            self.bases.push(number);
        }
        Ok(())
    }

    /// Goes back to the run that a begin continues: the newest one with a base ([`Seen::whole`]).
    fn continues(&mut self, log: u128, first: u64) -> bool {
        let leads = |run: &Option<Run>| run.as_ref().is_some_and(|run| run.leads_to(log, first));
        // As a shipper does: it continues what can be fetched, and nothing else. There is one aside
        // only as long as the run has no base.
        if leads(&self.aside) {
            self.run = self.aside.take();
        }
        leads(&self.run) || self.run.is_none()
    }
}

/// Returns what the chain adds up to, from its newest base on.
pub async fn read_chain(store: &Store) -> Result<(Seen, Tip)> {
    let mut failed = None;
    for (number, _) in base_hints(store).await? {
        match read_from_base(store, number).await {
            Ok(Some(read)) => return Ok(read),
            // It may have been removed, because there is a newer one, or be damaged.
            Ok(None) => {}
            Err(error @ Error::Object { .. }) => failed = failed.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    // A beginning is never removed: what a list says is not needed.
    match (read_from(store, 1, Seen::default()).await, failed) {
        // What lies before the bases is removed, which is not the fault.
        (Err(Error::Object { .. }), Some(failed)) => Err(failed),
        (read, _) => read,
    }
}

/// Returns what the chain adds up to from the base in this link on; `None` if it is gone.
async fn read_from_base(store: &Store, number: u64) -> Result<Option<(Seen, Tip)>> {
    let Some((link, _)) = read_link(store, number).await? else { return Ok(None) };
    let Some(base) = Base::of(&link) else { return Ok(None) };
    let (seen, tip) = read_from(store, base.first_link(number), Seen::from_base(&base)).await?;
    Ok((tip.number >= number).then_some((seen, tip)))
}

async fn read_from(store: &Store, from: u64, mut seen: Seen) -> Result<(Seen, Tip)> {
    let tip = walk(store, (from, None), |link| seen.take(store, link).map(|()| true)).await?;
    Ok((seen, tip))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns the windows in which links of these lengths are read, from link 1 on.
    fn windows(lengths: &[u64]) -> Vec<u64> {
        let lengths = Lengths((1..).zip(lengths.iter().copied()).collect());
        let (mut next, mut found) = (1, Vec::new());
        while next <= lengths.0.len() as u64 {
            found.push(lengths.window(next));
            next += found[found.len() - 1];
        }
        found
    }

    #[test]
    fn links_are_read_ahead_up_to_a_number_and_a_length_and_at_least_one() {
        assert_eq!(windows(&[1000; 40]), [16, 16, 8]);
        assert_eq!(windows(&[4 * MIB; 20]), [8, 8, 4]);
        assert_eq!(windows(&[33 * MIB; 3]), [1, 1, 1]);
        assert_eq!(windows(&[MIB, 32 * MIB, 31 * MIB, MIB, 1]), [1, 1, 2, 1]);
        assert_eq!(windows(&[u64::MAX, u64::MAX, 1]), [1, 1, 1]);
    }

    #[test]
    fn links_that_were_not_listed_are_read_one_by_one() {
        let lengths = Lengths([(1, 1), (2, 1), (4, 1)].into());
        assert_eq!([1, 3, 4, 5].map(|next| lengths.window(next)), [2, 1, 1, 1]);
        assert_eq!(lengths.numbers().collect::<Vec<_>>(), [1, 2, 4]);
    }
}
