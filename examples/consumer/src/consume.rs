//! The loop of a consumer.

use crate::failure::{Failure, Result};
use crate::partition::{Partition, Settings};
use crate::server::Server;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// How long a consumer waits for the first message of a batch, and for a server that is down.
const WAIT: Duration = Duration::from_millis(500);

/// What a consumer does.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How the partitions are kept.
    pub settings: Settings,
    /// The most messages of a commit. A commit never waits for more than there are.
    pub batch: usize,
    /// Ends with the message that was the last one of the stream at the beginning.
    pub drain: bool,
}

/// What a consumer did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Consumed {
    /// The messages that were read.
    pub messages: usize,
    /// Those that were passed on.
    pub new: usize,
    /// The commits that it took.
    pub commits: usize,
}

/// Consumes a stream, into the directory `dir`. While the server is down, it waits.
///
/// # Errors
/// [`Failure::Lasting`], after which an operator must act. Nothing is lost by it.
pub fn consume(server: &Server, stream: &str, dir: &Path, plan: Plan) -> Result<Consumed> {
    let mut partition = Partition::open(dir, plan.settings)?;
    let mut consumed = Consumed::default();
    loop {
        match read_on(server, stream, &mut partition, plan, &mut consumed) {
            Err(Failure::Passing(cause)) => {
                eprintln!("{stream}: {cause}; continuing from the last commit");
                thread::sleep(WAIT);
            }
            ended => return ended.map(|()| consumed),
        }
    }
}

/// Consumes from the last commit until something fails or the stream is drained.
fn read_on(
    server: &Server,
    stream: &str,
    partition: &mut Partition,
    plan: Plan,
    consumed: &mut Consumed,
) -> Result<()> {
    let mut position = partition.resume()?;
    let mut source = server.source(stream, position)?;
    let end = if plan.drain { source.end()? } else { None };
    while !plan.drain || position < end {
        let messages = source.next(plan.batch, WAIT)?;
        let Some(last) = messages.last() else { continue };
        position = Some(last.position);
        consumed.new += partition.take(&messages)?;
        consumed.messages += messages.len();
        consumed.commits += 1;
    }
    Ok(())
}
