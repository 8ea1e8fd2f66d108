//! The responses to requests that do not run.

use ebbtide::Timestamp;
use http::{Response, StatusCode, header};

/// Why a request does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A request with this key has succeeded within the window; or this is a false positive.
    Done,
    /// A request with this key is running.
    InProgress {
        /// When its lease ends, by the wall clock, if it does not end before.
        until: Timestamp,
    },
    /// The layer requires a key, and the request has none.
    Missing,
    /// The key is empty, longer than [`MAX_KEY`](crate::MAX_KEY), or there are two.
    Malformed,
    /// The filter has failed.
    Failed,
}

impl Refusal {
    /// Returns the status of the response: 409, 400 for a key that is missing or malformed, 503 if
    /// the filter has failed.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Done | Self::InProgress { .. } => StatusCode::CONFLICT,
            Self::Missing | Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Failed => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the seconds until the end of the running request's lease, which may end sooner.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        let Self::InProgress { until } = self else { return None };
        let millis = until.since(Timestamp::now()).as_millis();
        Some(u64::try_from(millis.div_ceil(1000)).unwrap_or(u64::MAX).max(1))
    }
}

/// What makes the responses to requests that do not run: [`Plain`], or a function
/// `Fn(Refusal) -> Response<R>`.
pub trait Refuse<R> {
    /// Returns the response to a request that does not run.
    fn refuse(&self, refusal: Refusal) -> Response<R>;
}

/// Responds with [`Refusal::status`], an empty body (the default of its type), and `Retry-After` if
/// a request with the key is in progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl<R: Default> Refuse<R> for Plain {
    fn refuse(&self, refusal: Refusal) -> Response<R> {
        let mut response = Response::new(R::default());
        *response.status_mut() = refusal.status();
        if let Some(seconds) = refusal.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl<R, F: Fn(Refusal) -> Response<R>> Refuse<R> for F {
    fn refuse(&self, refusal: Refusal) -> Response<R> {
        self(refusal)
    }
}
