//! Servers of streams.

mod jetstream;
mod redis;

use crate::failure::{Failure, Result};
use crate::{Message, Position};
use jetstream::JetStream;
use redis::Redis;
use std::time::Duration;

/// A server, by its URL.
#[derive(Debug)]
pub enum Server {
    /// A NATS server with JetStream: `nats://HOST:PORT`.
    JetStream(JetStream),
    /// A Redis server: `redis://HOST:PORT` or `unix:///PATH`.
    Redis(Redis),
}

/// A stream that is read from a position on. Messages come in their order, each once.
pub trait Source {
    /// Waits up to `wait` for a message, and returns it with those that are there, or come within
    /// milliseconds, up to `most`.
    ///
    /// # Errors
    /// [`Failure::Lasting`] if messages behind the position have been removed from the stream
    /// before they were read; [`Failure::Passing`] if the server does not answer.
    fn next(&mut self, most: usize, wait: Duration) -> Result<Vec<Message>>;

    /// Returns the position of the last message of the stream, `None` if it is empty.
    ///
    /// # Errors
    /// As [`Source::next`].
    fn end(&mut self) -> Result<Option<Position>>;
}

impl Server {
    /// Prepares connections to a server.
    ///
    /// # Errors
    /// [`Failure::Lasting`] for a URL that names no server. Whether it answers is not checked.
    pub fn new(url: &str) -> Result<Self> {
        match url.split_once("://") {
            Some(("nats", _)) => Ok(Self::JetStream(JetStream::new(url)?)),
            Some(("redis" | "unix", _)) => Ok(Self::Redis(Redis::new(url)?)),
            _ => Err(Failure::lasting(format!(
                "{url}: not a server; nats://HOST:PORT, redis://HOST:PORT or unix:///PATH is"
            ))),
        }
    }

    /// Connects, and begins with the message after `position`, or with the first one.
    ///
    /// # Errors
    /// As [`Source::next`]; [`Failure::Lasting`] if there is no such stream, or not the one that
    /// the position belongs to.
    pub fn source(&self, stream: &str, position: Option<Position>) -> Result<Box<dyn Source + '_>> {
        Ok(match self {
            Self::JetStream(server) => Box::new(server.source(stream, position)?),
            Self::Redis(server) => Box::new(server.source(stream, position)?),
        })
    }

    /// Creates a stream if it does not exist.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub fn create(&self, stream: &str) -> Result<()> {
        match self {
            Self::JetStream(server) => server.create(stream),
            // A stream of Redis exists from its first message on.
            Self::Redis(_) => Ok(()),
        }
    }

    /// Appends messages, given as ids and bodies, to a stream, in this order.
    ///
    /// # Errors
    /// If the server does not answer, or refuses. Some of the messages may have been appended.
    pub fn send(&self, stream: &str, messages: &[(String, String)]) -> Result<()> {
        match self {
            Self::JetStream(server) => server.send(stream, messages),
            Self::Redis(server) => server.send(stream, messages),
        }
    }
}
