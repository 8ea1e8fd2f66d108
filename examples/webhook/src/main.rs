//! `webhook serve DIR ADDRESS` receives; `webhook load ADDRESS CONNECTIONS MESSAGES` sends.

use ebbtide::{Fingerprint, Lease};
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use webhook::{Receiver, Work};

/// Longer than the work ever takes. After a kill its message waits for so long.
const LEASE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", dir, address] => serve(Path::new(dir), address).await,
        ["load", address, connections, messages] => {
            let measured =
                webhook::load::run(address, connections.parse()?, messages.parse()?).await?;
            let at = |share: usize| measured.each[(measured.each.len() - 1) * share / 1000];
            let rate = measured.each.len() as f64 / measured.took.as_secs_f64();
            println!("{} messages, {} done by them", measured.each.len(), measured.done);
            println!(
                "{rate:.0} a second; half of them within {:?}, 99.9 % within {:?}",
                at(500),
                at(999)
            );
            Ok(())
        }
        _ => {
            Err("usage: webhook serve DIR ADDRESS | webhook load ADDRESS CONNECTIONS MESSAGES"
                .into())
        }
    }
}

/// Work that takes its time on a disk: a line of a file. It may be repeated after a kill, so each
/// line has the token of its attempt. A full disk may leave the beginning of a line, so each has an
/// end of line before it, too, and a dot at its end: who reads the file passes over other lines.
/// The file is opened for each line: of a descriptor that all share, only one would learn that a
/// sync has failed.
struct Append(PathBuf);

impl Work for Append {
    async fn work(
        &self,
        id: &str,
        lease: &Lease<'_, Fingerprint>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let (path, line) = (self.0.clone(), format!("\n{id} {} .\n", lease.token()));
        spawn_blocking(move || {
            let mut file = File::options().append(true).open(path)?;
            file.write_all(line.as_bytes())?;
            file.sync_data()
        })
        .await??;
        Ok(())
    }
}

async fn serve(dir: &Path, address: &str) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(dir)?;
    let done = dir.join("done");
    File::options().create(true).append(true).open(&done)?;
    // The name of the file, which a sync of its lines need not write.
    File::open(dir)?.sync_all()?;
    let seen = dir.join("seen");
    let seen = spawn_blocking(move || webhook::open(&seen)).await??;
    let receiver = Arc::new(Receiver { seen, work: Append(done), lease: LEASE });
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let stopped = async { drop(tokio::signal::ctrl_c().await) };
    let routes = webhook::routes(receiver.clone());
    axum::serve(listener, routes).with_graceful_shutdown(stopped).await?;
    spawn_blocking(move || receiver.seen.close()).await??;
    Ok(())
}
