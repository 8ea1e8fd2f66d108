//! A consumer that treats each message once, however often and by whichever worker it is received:
//! the filter is in a server with the module, and expires messages after ten minutes.
//!
//! `redis/demo serve` starts a server; then
//! `cargo run --example consumer -- redis://127.0.0.1:6380/` in this directory.

use redis::{Connection, RedisResult};

/// Creates the filter, or accepts the one that is there: every worker does so at its start.
fn open(connection: &mut Connection) -> RedisResult<()> {
    redis::cmd("EB.RESERVE")
        .arg("seen-messages")
        .arg(&["time-limited", "window", "10m", "fpr", "0.001", "SAME"])
        .query(connection)
}

/// Returns those messages that were not there in the last ten minutes, and remembers all.
fn fresh<'a>(connection: &mut Connection, batch: &[&'a str]) -> RedisResult<Vec<&'a str>> {
    let mut add = redis::cmd("EB.MADDNX");
    let new: Vec<bool> = add.arg("seen-messages").arg(batch).query(connection)?;
    Ok(batch.iter().zip(new).filter_map(|(message, new)| new.then_some(*message)).collect())
}

fn main() -> RedisResult<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6380/".to_owned());
    let connection = &mut redis::Client::open(address)?.get_connection()?;
    open(connection)?;
    for batch in [["a", "b", "c"], ["b", "c", "d"]] {
        println!("{batch:?}: new are {:?}", fresh(connection, &batch)?);
    }
    Ok(())
}
