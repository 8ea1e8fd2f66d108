//! The proof that what is in the store is the filter: states that were reached on different ways
//! have the same digest.
//!
//! The state as of the end of a snapshot is made twice: of that snapshot, and of the one before and
//! the log in between. A snapshot that lacks a key, a link with a wrong record, or a log with one
//! too few makes them differ. Where a shipper has begun anew in between, as by a take-over, the log
//! may be that of a discarded branch with the same LSNs: those two are not compared.

use crate::assemble::assemble_from;
use crate::chain::{Base, Lengths, Seen, base_hints, link_name, read_link, walk};
use crate::error::{Error, Result};
use crate::link::Content;
use crate::shipped_file::Standing;
use crate::store::{Folder, Store};
use ebbtide::history::At;
use ebbtide::media::{Media, Memory};
use ebbtide::{Any, Digest, Options, Reader};
use std::path::Path;
use std::sync::Arc;

const REMEDY: &str = "do not rely on this copy: ship the filter to a new prefix from a machine \
                      that has it, and keep this one for whoever looks for the reason";

/// How often a verification begins again because what it reads is removed.
const TRIES: u32 = 5;

/// What was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Links, each with a right digest that the next one names.
    pub links: u64,
    /// Bytes of records in them.
    pub log_bytes: u64,
    /// Bases at which a fetch can begin.
    pub bases: u64,
    /// States that were made on two ways, with the same digest.
    pub compared: u64,
    /// The newest state.
    pub digest: Digest,
    /// When the newest link was written, by the clock of its shipper, in microseconds of Unix time.
    pub newest_micros: u64,
    /// The records of the directory that was compared which the store does not have.
    pub unshipped: Option<u64>,
}

/// Reads everything in the store, rebuilds the filter in memory from each base, and compares. With
/// `against`, also compares with a directory that has the filter, as of the same LSN (its log must
/// still have that moment). A shipper may go on meanwhile: what it removes is not missed.
///
/// # Errors
/// [`Error::Object`] for the first object that is not what it should be; [`Error::Store`], also if
/// a shipper has removed what was read each time; [`Error::Filter`].
pub async fn verify(store: &Store, against: Option<&Path>) -> Result<Verified> {
    for _ in 0..TRIES {
        let before = base_hints(store).await?;
        match verify_once(store, against).await {
            Err(error @ Error::Object { .. }) => {
                // A hint is removed before anything else that its base needs.
                let now = base_hints(store).await?;
                if before.iter().all(|hint| now.contains(hint)) {
                    return Err(error);
                }
            }
            verified => return verified,
        }
    }
    Err(Error::Store {
        object: store.to_string(),
        action: "verify",
        found: "what it has is removed by its shipper while it is read".into(),
        remedy: "verify again when less is shipped, or let the shipper keep more (`--keep 1d`)",
        is_transient: true,
    })
}

async fn verify_once(store: &Store, against: Option<&Path>) -> Result<Verified> {
    let Read { bases, links, log_bytes, newest_micros } = read_all(store).await?;
    let mut compared = 0;
    for pair in bases.windows(2) {
        if pair[0].run == pair[1].run {
            compared += u64::from(compare(store, pair[0].number, pair[1].number).await?);
        }
    }
    let object = || store.to_string();
    let Some(&ReadBase { number: newest, .. }) = bases.last() else {
        let remedy = "a shipper that has just begun is done when it has shipped a snapshot";
        return Err(Error::object(object(), "a link at which a fetch can begin", "none", remedy));
    };
    let digest = state(store, newest, None).await?;
    let mut unshipped = None;
    if let Some(dir) = against {
        let own = Reader::<Any>::at(dir, At::Lsn(digest.lsn - 1), Options::new())?.digest()?;
        check(&format!("{} as of LSN {}", store, digest.lsn - 1), own, digest)?;
        compared += 1;
        let lsn = Standing::end(&Reader::<Any>::open(dir, Options::new())?.stat()?);
        unshipped = Some(lsn.saturating_sub(digest.lsn));
    }
    let bases = bases.len() as u64;
    Ok(Verified { links, log_bytes, bases, compared, digest, newest_micros, unshipped })
}

/// What all links add up to.
struct Read {
    bases: Vec<ReadBase>,
    links: u64,
    log_bytes: u64,
    newest_micros: u64,
}

/// A base that was read.
struct ReadBase {
    /// The number of its link.
    number: u64,
    /// The link in which its run of log began; 0 if that is not known.
    run: u64,
}

/// Returns the oldest base, with the number of its link. A shipper that was fenced may have put the
/// hint at one late, when all that it needs was removed.
async fn oldest_base(store: &Store) -> Result<Option<(u64, Base)>> {
    let mut oldest = None;
    // The newest first.
    for (number, _) in base_hints(store).await? {
        let Some((link, _)) = read_link(store, number).await? else { continue };
        let Some(base) = Base::of(&link) else { continue };
        if let (Base::Creation(_), Some((newer, by))) = (&base, &oldest)
            && is_removed(store, number, Base::first_link(by, *newer)).await?
        {
            continue;
        }
        oldest = Some((number, base));
    }
    Ok(oldest)
}

/// Returns whether of the links between two only beginnings are there, which are never removed.
async fn is_removed(store: &Store, number: u64, next: u64) -> Result<bool> {
    let listed = Lengths::after(store, number).await?;
    let between: Vec<_> = listed.numbers().take_while(|&found| found < next).collect();
    if between.len() as u64 + number + 1 >= next {
        return Ok(false);
    }
    for number in between {
        if let Some((link, _)) = read_link(store, number).await?
            && !matches!(link.content, Content::Begin(_))
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads all links from the oldest base on.
async fn read_all(store: &Store) -> Result<Read> {
    let (mut from, mut oldest, mut seen) = (1, 1, Seen::default());
    if let Some((number, base)) = oldest_base(store).await? {
        (from, oldest, seen) = (base.first_link(number), number, Seen::from_base(&base));
    }
    let (mut bases, mut links, mut log_bytes, mut newest_micros) = (Vec::new(), 0, 0, 0);
    walk(store, (from, None), |link| {
        links += 1;
        newest_micros = link.written;
        if let Content::Log(piece, _) = &link.content {
            log_bytes += piece.records.len() as u64;
        }
        seen.take(store, link)?;
        let run = seen.began();
        // The snapshot of an older one may be removed, and its link needed by a newer one.
        let kept = seen.bases.drain(..).filter(|&number| number >= oldest);
        bases.extend(kept.map(|number| ReadBase { number, run }));
        Ok(true)
    })
    .await?;
    Ok(Read { bases, links, log_bytes, newest_micros })
}

/// Compares the state as of the end of the base in link `next`, if the log leads there from the
/// base in link `number`. Returns whether it does.
async fn compare(store: &Store, number: u64, next: u64) -> Result<bool> {
    let base = |link: Option<_>| link.and_then(|(link, _)| Base::of(&link));
    let (older, newer) = (read_link(store, number).await?, read_link(store, next).await?);
    let (Some(older), Some(newer)) = (base(older), base(newer)) else { return Ok(false) };
    // What began anew has no log before.
    if older.log() != newer.log() || newer.end() <= older.end() || newer.end() < 2 {
        return Ok(false);
    }
    let lsn = newer.end() - 1;
    let by_log = match state(store, number, Some(lsn)).await {
        Err(Error::Filter(ebbtide::Error::NotKept { .. })) => return Ok(false),
        found => found?,
    };
    let object = store.name(Folder::Chain, &link_name(next));
    check(&object, by_log, state(store, next, Some(lsn)).await?)?;
    Ok(true)
}

fn check(object: &str, expected: Digest, found: Digest) -> Result<()> {
    if expected.value == found.value {
        return Ok(());
    }
    let expected = format!("the digest {expected} of the filter as of LSN {}", expected.lsn - 1);
    Err(Error::object(object, expected, found.to_string(), REMEDY))
}

/// Returns the digest of what a fetch from this base yields: all of it, or as of an LSN.
async fn state(store: &Store, number: u64, lsn: Option<u64>) -> Result<Digest> {
    let memory = Memory::new();
    let media: Arc<dyn Media> = Arc::new(memory);
    if assemble_from(store, media.clone(), number, lsn).await?.is_none() {
        let object = store.name(Folder::Chain, &link_name(number));
        return Err(Error::object(object, "a link", "nothing", REMEDY));
    }
    let options = Options::new();
    Ok(match lsn {
        Some(lsn) => Reader::<Any>::at_on(media, At::Lsn(lsn), options)?.digest()?,
        None => Reader::<Any>::open_on(media, options)?.digest()?,
    })
}
