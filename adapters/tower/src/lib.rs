//! Idempotency keys for tower services.
//!
#![doc = include_str!("../README.md")]

mod claimed;
mod future;
mod refusal;

pub use future::IdempotencyFuture;
pub use refusal::{Plain, Refusal, Refuse};

use claimed::Claimed;
use ebbtide::{Claim, Error, Filter, Fingerprint};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// The header that carries a request's key.
pub const HEADER: &str = "idempotency-key";

/// The longest key, in bytes. A longer one is refused.
pub const MAX_KEY: usize = 255;

/// How long a request may take, unless [`IdempotencyLayer::lease`] says otherwise.
pub const LEASE: Duration = Duration::from_secs(30);

/// Maps a request to what its key is unique in; see [`IdempotencyLayer::scope`].
type Scope = Arc<dyn Fn(&Parts) -> Vec<u8> + Send + Sync>;
type OnError = Arc<dyn Fn(&Error) + Send + Sync>;

/// The settings of a layer, which all its services share.
struct Settings {
    filter: Arc<Filter<Fingerprint>>,
    lease: Duration,
    required: bool,
    durable: bool,
    scope: Scope,
    is_done: fn(StatusCode) -> bool,
    on_error: OnError,
}

/// A layer whose services run requests with the same key once. `A` makes the responses to those
/// that do not run, see [`Refuse`].
///
/// A key belongs to a method, a path and a [scope](IdempotencyLayer::scope).
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
            lease: LEASE,
            required: false,
            durable: false,
            scope: Arc::new(|_| Vec::new()),
            is_done: |status| status.is_success() || status.is_redirection(),
            on_error: Arc::new(|_| {}),
        };
        Self { settings: Arc::new(settings), refuse: Plain }
    }
}

impl<A> IdempotencyLayer<A> {
    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::clone(&self.settings);
        change(&mut settings);
        self.settings = Arc::new(settings);
        self
    }

    /// Sets for how long a request has its key, from a millisecond to 97 days: longer than the
    /// service ever takes, and no longer than a sender may wait after the server was killed during
    /// its request. Put a timeout that is shorter below this layer. Default: [`LEASE`].
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
    /// that all requests of that time share, and that blocks no thread.
    #[must_use]
    pub fn durable(self) -> Self {
        self.with(|settings| settings.durable = true)
    }

    /// Sets what keys are unique in: two requests whose scopes differ never have the same key. The
    /// scope must identify the caller, such as the account of an authenticated request, wherever
    /// callers do not trust each other: otherwise the key of one refuses the request of another.
    /// It must be the same in each repetition, so not a token that is renewed. Default: one scope.
    #[must_use]
    pub fn scope(self, scope: impl Fn(&Parts) -> Vec<u8> + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.scope = Arc::new(scope))
    }

    /// Sets which responses mean that the work is done, so that the key is remembered. After any
    /// other response the key is free again. Default: 2xx and 3xx.
    #[must_use]
    pub fn done_if(self, is_done: fn(StatusCode) -> bool) -> Self {
        self.with(|settings| settings.is_done = is_done)
    }

    /// Calls this function with each error of the filter, for a log or a metric:
    /// [`Error::LeaseLost`] if a request took longer than its lease, and others if its key could
    /// not be claimed (it is refused with 503) or not be remembered (its response is passed on).
    #[must_use]
    pub fn on_error(self, report: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.on_error = Arc::new(report))
    }

    /// Sets what makes the responses to requests that do not run: a function of the [`Refusal`].
    /// Default: [`Plain`].
    #[must_use]
    pub fn refuse_with<B>(self, refuse: B) -> IdempotencyLayer<B> {
        IdempotencyLayer { settings: self.settings, refuse }
    }
}

/// What becomes of a request.
enum Decision {
    /// It runs, as if this layer were not there.
    Pass,
    /// It runs, and has its key.
    Run(Claimed),
    /// It does not run.
    Refuse(Refusal),
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
        let mut key = Vec::new();
        let scope = (self.scope)(parts);
        let method = parts.method.as_str().as_bytes();
        for part in [&scope, method, parts.uri.path().as_bytes(), value] {
            key.extend((part.len() as u64).to_le_bytes());
            key.extend(part);
        }
        Ok(Some(key))
    }

    fn decide(&self, parts: &Parts) -> Decision {
        let key = match self.key(parts) {
            Ok(Some(key)) => key,
            Ok(None) => return Decision::Pass,
            Err(refusal) => return Decision::Refuse(refusal),
        };
        match self.filter.claim(&key, self.lease) {
            Ok(Claim::Yours(lease)) => {
                let token = lease.into_token();
                Decision::Run(Claimed::new(self.filter.clone(), key, token))
            }
            Ok(Claim::Seen) => Decision::Refuse(Refusal::Done),
            Ok(Claim::InProgress { until }) => Decision::Refuse(Refusal::InProgress { until }),
            Err(error) => {
                (self.on_error)(&error);
                Decision::Refuse(Refusal::Failed)
            }
        }
    }
}

impl<S, A: Clone> Layer<S> for IdempotencyLayer<A> {
    type Service = Idempotency<S, A>;

    fn layer(&self, inner: S) -> Self::Service {
        Idempotency { inner, settings: self.settings.clone(), refuse: self.refuse.clone() }
    }
}

/// A service that runs requests with the same key once; see [`IdempotencyLayer`].
#[derive(Clone)]
pub struct Idempotency<S, A = Plain> {
    inner: S,
    settings: Arc<Settings>,
    refuse: A,
}

impl<S, A, B, R> Service<Request<B>> for Idempotency<S, A>
where
    S: Service<Request<B>, Response = Response<R>>,
    A: Refuse<R>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = IdempotencyFuture<S::Future, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let decision = self.settings.decide(&parts);
        let request = Request::from_parts(parts, body);
        match decision {
            Decision::Pass => IdempotencyFuture::pass(self.inner.call(request)),
            Decision::Run(claimed) => {
                // If this panics, the claim is dropped, which releases the key.
                let response = self.inner.call(request);
                IdempotencyFuture::run(response, claimed, self.settings.clone())
            }
            Decision::Refuse(refusal) => IdempotencyFuture::refuse(self.refuse.refuse(refusal)),
        }
    }
}

impl Clone for Settings {
    fn clone(&self) -> Self {
        Self {
            filter: self.filter.clone(),
            scope: self.scope.clone(),
            on_error: self.on_error.clone(),
            ..*self
        }
    }
}

impl<A: Clone> Clone for IdempotencyLayer<A> {
    fn clone(&self) -> Self {
        Self { settings: self.settings.clone(), refuse: self.refuse.clone() }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut settings = f.debug_struct("Settings");
        settings.field("filter", &self.filter).field("lease", &self.lease);
        settings.field("required", &self.required).field("durable", &self.durable);
        settings.finish_non_exhaustive()
    }
}

impl<A> fmt::Debug for IdempotencyLayer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<S: fmt::Debug, A> fmt::Debug for Idempotency<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut service = f.debug_struct("Idempotency");
        service.field("inner", &self.inner).field("settings", &self.settings);
        service.finish_non_exhaustive()
    }
}
