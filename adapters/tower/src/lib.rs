//! Idempotency keys for tower services.
//!
#![doc = include_str!("../README.md")]

mod refusal;

pub use refusal::{Plain, Refusal, Refuse};

use ebbtide::{Claim, Error, Filter, Fingerprint, Lease};
use http::request::Parts;
use http::{Method, Request, Response, response};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// The header that carries a request's key.
pub const HEADER: &str = "idempotency-key";

/// The longest key, in bytes.
pub const MAX_KEY: usize = 255;

type Scope = Arc<dyn Fn(&Parts) -> Vec<u8> + Send + Sync>;
type Path = Arc<dyn Fn(&Parts) -> &str + Send + Sync>;
type IsDone = Arc<dyn Fn(&response::Parts) -> bool + Send + Sync>;
type OnError = Arc<dyn Fn(&Error) + Send + Sync>;

/// The settings of a layer, which all its services share.
#[derive(Clone)]
struct Settings {
    filter: Arc<Filter<Fingerprint>>,
    lease: Duration,
    required: bool,
    durable: bool,
    scope: Scope,
    path: Path,
    is_done: IsDone,
    on_error: OnError,
}

/// A layer whose services run requests with the same key once. `A` makes the responses to those
/// that do not run, see [`Refuse`]. A key belongs to a method, a path and a
/// [scope](IdempotencyLayer::scope).
#[derive(Clone)]
pub struct IdempotencyLayer<A = Plain> {
    settings: Arc<Settings>,
    refuse: A,
}

impl IdempotencyLayer {
    /// Creates a layer with a filter, whose window is how long a key is remembered after its
    /// request has succeeded, and whose false-positive rate is the share of requests that are taken
    /// for repetitions and never run: choose it small, such as 1e-9.
    #[must_use]
    pub fn new(filter: Arc<Filter<Fingerprint>>) -> Self {
        let settings = Settings {
            filter,
            lease: Duration::from_secs(30),
            required: false,
            durable: false,
            scope: Arc::new(|_| Vec::new()),
            path: Arc::new(|parts| parts.uri.path()),
            is_done: Arc::new(is_success),
            on_error: Arc::new(|_| {}),
        };
        Self { settings: Arc::new(settings), refuse: Plain }
    }
}

impl<A> IdempotencyLayer<A> {
    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Sets for how long a request has its key, up to 97 days: longer than a timeout below this
    /// layer, and no longer than a sender may wait after a kill. Default: 30 s.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|settings| settings.lease = lease)
    }

    /// Refuses requests with `POST` and `PATCH` that have no key, with 400.
    #[must_use]
    pub fn required(self) -> Self {
        self.with(|settings| settings.required = true)
    }

    /// Holds a response back until a power cut cannot make its key forgotten any more: for a sync
    /// that all requests of that time share, and that blocks no thread. So it does with the
    /// response to a repetition of a request that is done. If that sync fails, the response is sent
    /// nevertheless, because the request has run, and a refusal would have its client repeat it;
    /// [`on_error`](Self::on_error) gets the error.
    #[must_use]
    pub fn durable(self) -> Self {
        self.with(|settings| settings.durable = true)
    }

    /// Sets what keys are unique in. Where callers do not trust each other, it must identify the
    /// caller, such as the account of an authenticated request: otherwise the key of one refuses
    /// the request of another. It must be the same in each repetition. Default: one scope.
    #[must_use]
    pub fn scope(self, scope: impl Fn(&Parts) -> Vec<u8> + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.scope = Arc::new(scope))
    }

    /// Sets which path a key belongs to. Default: that of the URI as the layer gets it, from which
    /// axum's `Router::nest` has removed the prefix if the layer is on the router within: then
    /// `/accounts/1/orders` and `/accounts/2/orders` are one path. Return the original one, as in
    /// the [example](crate#nested-routers), or put the layer on the outer router.
    #[must_use]
    pub fn path(self, path: impl Fn(&Parts) -> &str + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.path = Arc::new(path))
    }

    /// Sets by their heads after which responses a key is remembered; after others it is free.
    /// Default: 2xx and 3xx whose `grpc-status` is 0 or not in the head. Trailers are not seen.
    #[must_use]
    pub fn done_if(self, f: impl Fn(&response::Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.is_done = Arc::new(f))
    }

    /// Calls this function with each error of the filter: [`Error::LeaseLost`] if a request took
    /// longer than its lease, others if its key could not be claimed, or not be remembered.
    #[must_use]
    pub fn on_error(self, report: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.on_error = Arc::new(report))
    }

    /// Sets what makes the responses to requests that do not run. Default: [`Plain`].
    #[must_use]
    pub fn refuse_with<B>(self, refuse: B) -> IdempotencyLayer<B> {
        IdempotencyLayer { settings: self.settings, refuse }
    }
}

/// Returns whether a request has succeeded. A call of gRPC that failed before its first message has
/// the status 200, no body, and another `grpc-status` than 0 in its head.
fn is_success(head: &response::Parts) -> bool {
    (head.status.is_success() || head.status.is_redirection())
        && head.headers.get_all("grpc-status").iter().all(|status| status == "0")
}

impl Settings {
    /// Returns the key of a request: none if it has none, or is of a method that changes nothing.
    fn key(&self, parts: &Parts) -> Result<Option<Vec<u8>>, Refusal> {
        if [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE].contains(&parts.method) {
            return Ok(None);
        }
        let mut values = parts.headers.get_all(HEADER).iter();
        let Some(value) = values.next() else {
            let needs = self.required && [Method::POST, Method::PATCH].contains(&parts.method);
            return if needs { Err(Refusal::Missing) } else { Ok(None) };
        };
        let value = value.as_bytes();
        if values.next().is_some() || value.is_empty() || value.len() > MAX_KEY {
            return Err(Refusal::Malformed);
        }
        // Each part with its length, so that no two requests have the same text.
        let (mut key, scope) = (Vec::new(), (self.scope)(parts));
        let (method, path) = (parts.method.as_str().as_bytes(), (self.path)(parts).as_bytes());
        for part in [&scope, method, path, value] {
            key.extend((part.len() as u64).to_le_bytes());
            key.extend(part);
        }
        Ok(Some(key))
    }

    /// Claims the key of a request, if it has one, or returns why the request does not run.
    async fn claim(&self, parts: &Parts) -> Result<Option<Lease<'_, Fingerprint>>, Refusal> {
        let Some(key) = self.key(parts)? else { return Ok(None) };
        let failed = |error| {
            (self.on_error)(&error);
            Refusal::Failed
        };
        match self.filter.claim(&key, self.lease).map_err(failed)? {
            Claim::Yours(lease) => Ok(Some(lease)),
            Claim::Seen if self.durable => {
                self.wait_until_durable(&key).await.map_err(failed)?;
                Err(Refusal::Done)
            }
            Claim::Seen => Err(Refusal::Done),
            Claim::InProgress { until } => Err(Refusal::InProgress { until }),
        }
    }

    /// Waits until a key that is in the window is durable. The request that has inserted it need
    /// not have waited for that: its client may have hung up.
    async fn wait_until_durable(&self, key: &[u8]) -> ebbtide::Result<()> {
        // The ticket of a claim whose answer is "seen" is that of the key.
        self.filter.issue(|call| call.claim(key, self.lease).map(drop))?.await
    }

    /// Inserts the claimed key and ends the claim.
    async fn confirm(&self, lease: Lease<'_, Fingerprint>) {
        let confirmed = match self.durable.then(|| self.filter.issue(|call| call.confirm(&lease))) {
            Some(Ok(ticket)) => ticket.await,
            Some(Err(error)) => Err(error),
            None => lease.confirm(),
        };
        if let Err(error) = confirmed {
            (self.on_error)(&error);
        }
    }
}

impl<S, A: Clone> Layer<S> for IdempotencyLayer<A> {
    type Service = Idempotency<S, A>;

    fn layer(&self, inner: S) -> Self::Service {
        Idempotency { inner, settings: self.settings.clone(), refuse: self.refuse.clone() }
    }
}

/// A service that runs requests with the same key once; see [`IdempotencyLayer`]. The service in it
/// is one that can be cloned and sent, as those of axum and tonic.
#[derive(Clone)]
pub struct Idempotency<S, A = Plain> {
    inner: S,
    settings: Arc<Settings>,
    refuse: A,
}

impl<S, A, B, R> Service<Request<B>> for Idempotency<S, A>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send> + Clone + Send + 'static,
    A: Refuse<R> + Clone + Send + 'static,
    B: Send + 'static,
    S::Error: Send,
    R: Send,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready; its clone need not be.
        let next = self.inner.clone();
        let mut service = std::mem::replace(&mut self.inner, next);
        let (settings, refuse) = (self.settings.clone(), self.refuse.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let lease = match settings.claim(&parts).await {
                Ok(lease) => lease,
                Err(refusal) => return Ok(refuse.refuse(refusal)),
            };
            // Whatever ends this early, an error, a panic or a client that hangs up, drops the
            // lease, which releases the key.
            let (head, body) = service.call(Request::from_parts(parts, body)).await?.into_parts();
            if let Some(lease) = lease.filter(|_| (settings.is_done)(&head)) {
                settings.confirm(lease).await;
            }
            Ok(Response::from_parts(head, body))
        })
    }
}
