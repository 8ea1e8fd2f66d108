//! The future of a response, which ends the claim of its request.

use crate::Settings;
use crate::claimed::Claimed;
use ebbtide::Ticket;
use http::Response;
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

pin_project! {
    /// The future of [`Idempotency`](crate::Idempotency). If it is dropped before its end, or if
    /// the service panics, the key is free again.
    pub struct IdempotencyFuture<F, R> {
        #[pin]
        state: State<F, R>,
    }
}

pin_project! {
    #[project = Projected]
    enum State<F, R> {
        Pass { #[pin] response: F },
        Run { #[pin] response: F, claimed: Option<Claimed>, settings: Arc<Settings> },
        Sync { ticket: Ticket<()>, response: Option<Response<R>>, settings: Arc<Settings> },
        Refuse { response: Option<Response<R>> },
    }
}

/// Polled again after its end, as no future may be.
const ENDED: &str = "a future that has ended is not polled";

impl<F, R> IdempotencyFuture<F, R> {
    pub(crate) fn pass(response: F) -> Self {
        Self { state: State::Pass { response } }
    }

    pub(crate) fn run(response: F, claimed: Claimed, settings: Arc<Settings>) -> Self {
        Self { state: State::Run { response, claimed: Some(claimed), settings } }
    }

    pub(crate) fn refuse(response: Response<R>) -> Self {
        Self { state: State::Refuse { response: Some(response) } }
    }
}

/// Ends the claim of a request that has its response. Returns a ticket if it is to be awaited.
fn end(claimed: Claimed, is_done: bool, settings: &Settings) -> Option<Ticket<()>> {
    if !is_done {
        return None; // The claim is dropped, which releases the key.
    }
    let confirmed = match settings.durable {
        true => claimed.issue_confirm(),
        false => claimed.confirm().map(|()| None),
    };
    confirmed.unwrap_or_else(|error| {
        (settings.on_error)(&error);
        None
    })
}

impl<F, R, E> Future for IdempotencyFuture<F, R>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match self.as_mut().project().state.project() {
                Projected::Pass { response } => return response.poll(context),
                Projected::Refuse { response } => {
                    return Poll::Ready(Ok(response.take().expect(ENDED)));
                }
                Projected::Run { response, claimed, settings } => {
                    // A service that fails drops this future, and with it the claim.
                    let result = ready!(response.poll(context));
                    let claimed = claimed.take().expect(ENDED);
                    let Ok(response) = result else { return Poll::Ready(result) };
                    let is_done = (settings.is_done)(response.status());
                    match end(claimed, is_done, settings) {
                        None => return Poll::Ready(Ok(response)),
                        Some(ticket) => State::Sync {
                            ticket,
                            response: Some(response),
                            settings: settings.clone(),
                        },
                    }
                }
                Projected::Sync { ticket, response, settings } => {
                    if let Err(error) = ready!(Pin::new(ticket).poll(context)) {
                        (settings.on_error)(&error);
                    }
                    return Poll::Ready(Ok(response.take().expect(ENDED)));
                }
            };
            self.as_mut().project().state.set(next);
        }
    }
}

impl<F, R> fmt::Debug for IdempotencyFuture<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Pass { .. } => "Pass",
            State::Run { .. } => "Run",
            State::Sync { .. } => "Sync",
            State::Refuse { .. } => "Refuse",
        };
        f.debug_struct("IdempotencyFuture").field("state", &state).finish_non_exhaustive()
    }
}
