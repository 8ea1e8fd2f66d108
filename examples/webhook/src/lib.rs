//! A receiver of webhooks whose work may fail. The sender repeats a message until it is answered
//! with 200, so the receiver gets some messages twice. It must not take the repetition of a message
//! whose work has failed for that of one whose work is done: `docs/handlers.md`.
//!
//! | `POST /?id=…` | answer |
//! |---|---|
//! | the work is done | 200 `done`, once that survives a power cut |
//! | it was done before | 200 `done before`, once that survives a power cut |
//! | another request is doing it | 503, with the seconds to wait in `Retry-After` |
//! | it has failed | 500: the next request does it |
//!
//! Any number of requests wait at a time, share their syncs, and block no thread of tokio.

pub mod load;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use ebbtide::{Claim, Durability, Filter, Fingerprint, Lease, Options, Timestamp};
use serde::Deserialize;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any sender repeats a message.
const WINDOW: Duration = Duration::from_secs(86_400);

/// What is to be done for a message.
pub trait Work: Send + Sync + 'static {
    /// Does it. The work is done when this returns `Ok`, and must survive a power cut by then.
    /// Where attempts share a file, a failed sync must fail each of them whose data it may concern:
    /// Linux reports it once for each time that the file was opened, so one attempt gets the error,
    /// and the next sync of that descriptor succeeds although data are lost.
    /// `lease.token()` orders the attempts; `lease.extend` renews the lease of work that is long.
    fn work(
        &self,
        id: &str,
        lease: &Lease<'_, Fingerprint>,
    ) -> impl Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send;
}

/// The messages that were worked on, the work, and how long a request may take for it.
pub struct Receiver<W> {
    pub seen: Filter<Fingerprint>,
    pub work: W,
    pub lease: Duration,
}

#[derive(Deserialize)]
struct Message {
    id: String,
}

/// Opens the messages that were worked on. This may recover, and blocks.
pub fn open(dir: &Path) -> ebbtide::Result<Filter<Fingerprint>> {
    // A false positive is a message that is never worked on, so they are rare: 1 in 10⁹ messages.
    let window = Fingerprint::window(WINDOW).fpr(1e-9);
    // Nothing is synced but for tickets, and in the background.
    let options = Options::new().durability(Durability::Interval(Duration::from_secs(1)));
    Filter::open_or_create(dir, window, options)
}

/// Returns the routes of the server.
pub fn routes<W: Work>(receiver: Arc<Receiver<W>>) -> Router {
    Router::new().route("/", post(receive::<W>)).with_state(receiver)
}

async fn receive<W: Work>(
    State(receiver): State<Arc<Receiver<W>>>,
    Query(message): Query<Message>,
) -> Response {
    // In a task of its own: a sender that hangs up does not stop the work in the middle.
    let answered = tokio::spawn(async move { answer(&receiver, &message.id).await }).await;
    answered.unwrap_or_else(|_| failed("the work has panicked"))
}

async fn answer<W: Work>(receiver: &Receiver<W>, id: &str) -> Response {
    let lease = match receiver.seen.claim(id, receiver.lease) {
        Ok(Claim::Yours(lease)) => lease,
        Ok(Claim::Seen) => return done_before(receiver, id).await,
        Ok(Claim::InProgress { until }) => return in_progress(until),
        Err(error) => return failed(error),
    };
    if let Err(error) = receiver.work.work(id, &lease).await {
        return failed(error); // The lease is dropped, which releases the message.
    }
    match confirm(&receiver.seen, &lease).await {
        Ok(()) => (StatusCode::OK, "done").into_response(),
        // The work took longer than its lease, for example. Another request may be doing it again.
        Err(error) => failed(error),
    }
}

/// Answers for a message whose work is done. The request that did it may still be waiting until the
/// message is durable, or may have been killed before; the sender must not forget it earlier. The
/// ticket of a claim whose answer is "seen" is that of the message.
async fn done_before<W>(receiver: &Receiver<W>, id: &str) -> Response {
    let seen = receiver.seen.issue(|call| call.claim(id, receiver.lease).map(drop));
    let durable = match seen {
        Ok(ticket) => ticket.await,
        Err(error) => Err(error),
    };
    match durable {
        Ok(()) => (StatusCode::OK, "done before").into_response(),
        Err(error) => failed(error),
    }
}

/// Inserts the message and ends its claim; returns once that cannot be forgotten any more.
async fn confirm(
    seen: &Filter<Fingerprint>,
    lease: &Lease<'_, Fingerprint>,
) -> ebbtide::Result<()> {
    seen.issue(|call| call.confirm(lease))?.await
}

/// Not 409: there are senders that do not repeat a message after an answer of 4xx.
fn in_progress(until: Timestamp) -> Response {
    let wait = until.since(Timestamp::now()).as_millis().div_ceil(1000).max(1);
    let headers = [(header::RETRY_AFTER, wait.to_string())];
    (StatusCode::SERVICE_UNAVAILABLE, headers, "in progress").into_response()
}

fn failed(error: impl ToString) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
}
