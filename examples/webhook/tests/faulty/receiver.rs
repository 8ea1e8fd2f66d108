//! `faulty DIR SEED`: a receiver whose work fails, panics, and takes longer than its lease.
//!
//! `DIR/work` gets a line for each attempt that begins, and one when its work is done, before it is
//! confirmed: `begun ID TOKEN`, `finished ID TOKEN`. A line `overlap ID TOKEN` is one too many: two
//! attempts had a lease of the same message at the same time. Each line ends with ` .`: a kill may
//! cut one off where a page of the file ends.

mod random;

use ebbtide::{Fingerprint, Lease};
use parking_lot::Mutex;
use random::Random;
use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use webhook::{Receiver, Work};

const LEASE: Duration = Duration::from_millis(100);

struct Faulty {
    lines: File,
    seed: u64,
    /// The messages that are worked on, with the token and a time before which the lease is not
    /// over.
    at_work: Mutex<HashMap<String, (u64, Instant)>>,
}

impl Faulty {
    /// Writes a line. It begins with the end of the line before, which may have been cut off.
    fn note(&self, what: &str, id: &str, token: u64) -> std::io::Result<()> {
        (&self.lines).write_all(format!("\n{what} {id} {token} .").as_bytes())
    }

    /// Enters an attempt. Returns whether another one of the same message has a lease, too.
    fn overlaps(&self, id: &str, token: u64, lease_until: Instant) -> bool {
        let mut at_work = self.at_work.lock();
        let other = at_work.insert(id.to_owned(), (token, lease_until));
        other.is_some_and(|(_, until)| Instant::now() < until)
    }

    /// Removes an attempt, unless another one has taken its place.
    fn leave(&self, id: &str, token: u64) {
        let mut at_work = self.at_work.lock();
        if at_work.get(id).is_some_and(|&(other, _)| other == token) {
            at_work.remove(id);
        }
    }
}

impl Work for Faulty {
    async fn work(
        &self,
        id: &str,
        lease: &Lease<'_, Fingerprint>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let token = lease.token();
        // The renewed lease is over this long after now, or later.
        let lease_until = Instant::now() + LEASE;
        lease.extend(LEASE)?;
        if self.overlaps(id, token, lease_until) {
            self.note("overlap", id, token)?;
        }
        self.note("begun", id, token)?;
        let mut random = Random(self.seed ^ token);
        let takes = match random.below(50) {
            0 => LEASE * 2,
            _ => Duration::from_micros(random.below(10_000)),
        };
        tokio::time::sleep(takes).await;
        self.leave(id, token);
        match random.below(10) {
            0 => return Err("the work has failed".into()),
            // A panic, without its message.
            1 => std::panic::resume_unwind(Box::new(())),
            _ => {}
        }
        self.note("finished", id, token)?;
        if random.below(4) == 0 {
            // A kill before the confirmation is more probable so.
            tokio::time::sleep(Duration::from_millis(random.below(10))).await;
        }
        Ok(())
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().collect();
    let (dir, seed) = (Path::new(&arguments[1]), arguments[2].parse()?);
    let lines = File::options().create(true).append(true).open(dir.join("work"))?;
    let work = Faulty { lines, seed, at_work: Mutex::default() };
    let receiver = Receiver { seen: webhook::open(&dir.join("seen"))?, work, lease: LEASE };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, webhook::routes(Arc::new(receiver))).await?;
    Ok(())
}
