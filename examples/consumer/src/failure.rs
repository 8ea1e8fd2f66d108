//! Why a partition could not be consumed, and whether it makes sense to try again.

use std::fmt::{self, Display, Formatter};

/// The result of this package's functions.
pub type Result<T> = std::result::Result<T, Failure>;

/// An error of a server, a filter or a file.
#[derive(Debug)]
pub enum Failure {
    /// The server does not answer, or another caller of the filter was faster: to be repeated from
    /// the last position.
    Passing(String),
    /// An operator must act first.
    Lasting(String),
}

impl Failure {
    /// A failure that may be over the next time.
    pub fn passing(cause: impl Display) -> Self {
        Self::Passing(cause.to_string())
    }

    /// A failure that stays until an operator acts.
    pub fn lasting(cause: impl Display) -> Self {
        Self::Lasting(cause.to_string())
    }
}

impl Display for Failure {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (Self::Passing(cause) | Self::Lasting(cause)) = self;
        formatter.write_str(cause)
    }
}

impl std::error::Error for Failure {}

impl From<ebbtide::Error> for Failure {
    fn from(error: ebbtide::Error) -> Self {
        match error {
            ebbtide::Error::Conflict { .. } => Self::passing(error),
            _ => Self::lasting(error),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::lasting(error)
    }
}

impl From<redis::RedisError> for Failure {
    fn from(error: redis::RedisError) -> Self {
        let loading = error.code() == Some("LOADING");
        if loading || error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
            Self::passing(error)
        } else {
            Self::lasting(error)
        }
    }
}
