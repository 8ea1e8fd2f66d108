//! `webhook serve DIR ADDRESS` receives; `webhook load ADDRESS CONNECTIONS MESSAGES` sends.

use ebbtide::{Durability, Filter, Fingerprint, Options};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", dir, address] => serve(dir, address).await,
        ["load", address, connections, messages] => {
            let measured =
                webhook::load::run(address, connections.parse()?, messages.parse()?).await?;
            let at = |share: usize| measured.each[(measured.each.len() - 1) * share / 1000];
            let rate = measured.each.len() as f64 / measured.took.as_secs_f64();
            println!("{} messages, {} of them new", measured.each.len(), measured.new);
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

async fn serve(dir: &str, address: &str) -> Result<(), Box<dyn Error>> {
    // Opening may recover, so it has a thread that may block.
    let dir = dir.to_owned();
    let opened = tokio::task::spawn_blocking(move || {
        // Nothing is synced but for tickets, and in the background.
        let options = Options::new().durability(Durability::Interval(Duration::from_secs(1)));
        Filter::open_or_create(dir, Fingerprint::window(DAY).fpr(0.0001), options)
    });
    let seen = Arc::new(opened.await??);
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let stopped = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, webhook::routes(seen.clone())).with_graceful_shutdown(stopped).await?;
    tokio::task::spawn_blocking(move || seen.close()).await??;
    Ok(())
}
