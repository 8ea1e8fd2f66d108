//! Reading the chain: where a fetch can begin, link after link from there, and what they add up to.
//!
//! A link counts if its digest is right and the next one names it. The chain ends at the first
//! number that has no object; an object beyond that is an error, because one is missing then.

use crate::error::{Error, Result};
use crate::link::{Begin, Content, Link, Snapshot, digest};
use crate::store::{Folder, Store};
use ebbtide::inspect::Piece;
use futures::StreamExt;

const DELETED: &str = "somebody has removed it: fetch an older state with `--at`, or ship the \
                       filter to a new prefix from a machine that has it";
const MIXED: &str = "the objects of two filters are mixed here: ship to another prefix";
/// Links that are read at a time.
const READ_AHEAD: usize = 16;

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

/// Returns the numbers of the links at which a fetch can begin, the newest first, as far as hints
/// say, with the store's times of them.
pub async fn base_hints(store: &Store) -> Result<Vec<(u64, i64)>> {
    let found = store.list(Folder::Base, None).await?;
    let number = |(name, meta): &(String, object_store::ObjectMeta)| {
        Some((name.parse().ok()?, meta.last_modified.timestamp()))
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

/// Passes the links from a number on to `visit`, until it returns false, or the chain ends. `before`
/// is the digest of the link before, if it is known. Returns the last link that was read.
pub async fn walk(
    store: &Store,
    (from, mut before): (u64, Option<u128>),
    mut visit: impl FnMut(Link) -> Result<bool>,
) -> Result<Tip> {
    let mut tip = Tip { number: from - 1, digest: before.unwrap_or(0) };
    loop {
        let numbers = futures::stream::iter(tip.number + 1..);
        let mut links = numbers.map(|number| read_link(store, number)).buffered(READ_AHEAD);
        while let Some(read) = links.next().await {
            let Some((link, digest)) = read? else { break };
            let (number, wanted) = (link.number, before);
            if wanted.is_some_and(|wanted| wanted != link.before) {
                let object = store.name(Folder::Chain, &link_name(number));
                let expected = format!("the link after {:032x}", wanted.unwrap_or(0));
                let found = format!("that after {:032x}", link.before);
                return Err(Error::object(object, expected, found, MIXED));
            }
            (tip, before) = (Tip { number, digest }, Some(digest));
            if !visit(link)? {
                return Ok(tip);
            }
        }
        drop(links);
        let later = store.list(Folder::Chain, Some(&link_name(tip.number))).await?;
        let Some((later, _)) = later.first() else { return Ok(tip) };
        // It may have been put just now.
        if read_link(store, tip.number + 1).await?.is_none() {
            let object = store.name(Folder::Chain, &link_name(tip.number + 1));
            let expected = format!("a link, because there is {later}");
            return Err(Error::object(object, expected, "nothing", DELETED));
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
    pub fn from_link(&self, number: u64) -> u64 {
        match self {
            Self::Creation(_) => number,
            Self::Snapshot(snapshot) => snapshot.from_link,
        }
    }
}

/// Log without a gap, as links have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The number of the log.
    pub log: u128,
    /// The LSN of the next record.
    pub next: u64,
    /// The links with records: number and first LSN.
    pub links: Vec<(u64, u64)>,
    /// The newest base in it, with the number of its link.
    pub base: Option<(u64, Base)>,
}

/// What the links of a chain add up to.
#[derive(Debug, Default)]
pub struct Seen {
    /// The uuid of the filter.
    pub filter: Option<u128>,
    /// The newest timeline.
    pub timeline: u64,
    /// Who put the newest link.
    pub shipper: u128,
    /// The newest records, wherever they are.
    pub last: Option<Piece>,
    /// The log that is continued; `None` before the first link.
    pub run: Option<Run>,
    /// Whether the newest records are in it.
    pub has_last: bool,
    /// The numbers of links that are bases.
    pub bases: Vec<u64>,
}

impl Seen {
    /// Begins with a base, whose link is among those that follow. `from`: the first of them.
    pub fn from_base(base: &Base) -> Self {
        let run = match base {
            Base::Creation(_) => None,
            Base::Snapshot(snapshot) => {
                let (log, links) = (snapshot.log, Vec::new());
                Some(Run { log, next: 0, links, base: None })
            }
        };
        Self { run, ..Self::default() }
    }

    /// Takes the next link.
    pub fn take(&mut self, store: &Store, link: Link) -> Result<()> {
        let number = link.number;
        let wrong = |expected: String, found: String| {
            Error::object(store.name(Folder::Chain, &link_name(number)), expected, found, MIXED)
        };
        if let Some(filter) = self.filter.filter(|&filter| filter != link.filter) {
            let found = format!("a link of {:032x}", link.filter);
            return Err(wrong(format!("one of filter {filter:032x}"), found));
        }
        self.filter = Some(link.filter);
        (self.timeline, self.shipper) = (self.timeline.max(link.timeline), link.shipper);
        let base = Base::of(&link);
        if base.is_some() {
            self.bases.push(number);
        }
        match link.content {
            Content::Begin(begin) if !begin.continues => {
                let base = base.map(|base| (number, base));
                let (log, next, links) = (begin.log, begin.first, Vec::new());
                self.run = Some(Run { log, next, links, base });
                self.has_last = false;
            }
            Content::Begin(_) => {}
            Content::Log(piece, _) => {
                let Some(run) = &mut self.run else {
                    return Err(wrong("a begin".into(), "records".into()));
                };
                // Before the first records it is known only for a log that begins.
                let next = if run.next == 0 { piece.first } else { run.next };
                if (piece.log, piece.first) != (run.log, next) {
                    let expected = format!("LSN {next} of log {:032x}", run.log);
                    return Err(wrong(expected, format!("LSN {} of {:032x}", piece.first, piece.log)));
                }
                run.links.push((number, piece.first));
                run.next = piece.end();
                (self.last, self.has_last) = (Some(piece), true);
            }
            Content::Snapshot(snapshot) => {
                let Some(run) = self.run.as_mut().filter(|run| run.log == snapshot.log) else {
                    return Err(wrong("records".into(), "a snapshot of another log".into()));
                };
                if run.next == 0 {
                    run.next = snapshot.end;
                }
                if run.next < snapshot.end {
                    let expected = format!("records up to LSN {}", snapshot.end);
                    return Err(wrong(expected, format!("records up to {}", run.next)));
                }
                run.base = base.map(|base| (number, base));
            }
        }
        Ok(())
    }
}
