//! A receiver of webhooks. The sender repeats a message until it gets an answer, so the receiver
//! sees some messages twice; it must act on each once.
//!
//! `POST /?id=…` is answered with `new` or `seen`, and only once the answer survives a power cut.
//! Any number of requests wait at a time, share their syncs, and block no thread of tokio.

pub mod load;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::post;
use ebbtide::{Filter, Fingerprint};
use serde::Deserialize;
use std::sync::Arc;

/// The messages of the last day.
pub type Seen = Arc<Filter<Fingerprint>>;

#[derive(Deserialize)]
struct Message {
    id: String,
}

/// Returns the routes of the server.
pub fn routes(seen: Seen) -> Router {
    Router::new().route("/", post(receive)).with_state(seen)
}

async fn receive(
    State(seen): State<Seen>,
    Query(message): Query<Message>,
) -> Result<&'static str, (StatusCode, String)> {
    let is_new = remember(&seen, &message.id).await.map_err(|error| {
        // The sender tries again; so does the next request.
        (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    })?;
    Ok(if is_new { "new" } else { "seen" })
}

/// Returns whether the message is new, once that cannot be forgotten any more.
async fn remember(seen: &Seen, id: &str) -> ebbtide::Result<bool> {
    let ticket = seen.issue(|call| call.check_and_insert(id))?;
    Ok(ticket.await?.is_new())
}
