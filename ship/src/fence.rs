//! A fence without a directory: a *begin* that continues what can be fetched. From then on the
//! chain stands still, for as long as a download takes, until the next shipper begins.

use crate::chain::{Seen, Tip, is_stray, link_name, read_chain, walk};
use crate::error::{Error, Result};
use crate::fetch::nothing;
use crate::link::{Begin, Cause, Content, Link, digest, random_id};
use crate::store::{Folder, Put, Store};
use bytes::Bytes;

/// Fences whoever ships. Returns what the chain adds up to with the *begin*, and its end.
///
/// # Errors
/// [`Error::Object`] if nothing can be fetched, or the chain is damaged; [`Error::Store`]: then it
/// may have happened.
pub async fn fence(store: &Store) -> Result<(Seen, Tip)> {
    let (mut seen, mut tip) = read_chain(store).await?;
    loop {
        let link = begin(store, &seen, tip)?;
        let (number, name) = (link.number, link_name(link.number));
        let bytes = Bytes::from(link.encode());
        let own = Tip { number, digest: digest(&bytes) };
        let is_there = match store.put_new(Folder::Chain, &name, bytes.clone()).await? {
            // Its own, if only an answer was lost.
            Put::Exists => store.get(Folder::Chain, &name).await?.is_some_and(|is| is == bytes),
            _ => true,
        };
        if is_there && !is_stray(store, own).await? {
            seen.take(store, link)?;
            return Ok((seen, own));
        }
        // The writer was faster, or what follows was removed since it was read.
        let from = (tip.number + 1, Some(tip.digest));
        match walk(store, from, |link| seen.take(store, link).map(|()| true)).await {
            Err(Error::Object { .. }) => (seen, tip) = read_chain(store).await?,
            walked => tip = walked?,
        }
    }
}

/// Returns the link that continues a chain.
fn begin(store: &Store, seen: &Seen, tip: Tip) -> Result<Link> {
    let run = seen.whole();
    let found = seen.filter.zip(run.and_then(|run| Some((run, &run.base.as_ref()?.1))));
    let Some((filter, (run, base))) = found else {
        let is_empty = seen.filter.is_none();
        let wanted =
            if is_empty { "a shipped filter" } else { "a link at which a fetch can begin" };
        return Err(nothing(store, wanted));
    };
    let (cause, meta) = (Cause::Started, base.meta().to_vec());
    let begin = Begin { cause, log: run.log, first: run.next, continues: true, meta };
    let by = (seen.timeline + 1, random_id());
    Ok(Link::behind((tip.number, tip.digest), by, filter, Content::Begin(begin)))
}
