//! JetStream. The position is the stream's sequence, the id a header.
//!
//! One stream is one partition. A stream with several subjects can be consumed by subject as well
//! (`filter_subject`); the sequences of a subject have gaps then, and messages that were removed
//! too early cannot be distinguished from messages of other subjects.

use crate::failure::{Failure, Result};
use crate::server::Source;
use crate::{Message, Position};
use async_nats::HeaderMap;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::{Ordered, OrderedConfig};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{Config, RawMessageErrorKind, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use futures::StreamExt;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// The header with a message's id. The server itself would use `Nats-Msg-Id` to drop messages that
/// are repeated within its own, shorter window.
const ID: &str = "Message-Id";

/// How long to wait for the next message of a batch: the client asks the server for some hundred
/// at a time, and a longer batch takes several such requests.
const LINGER: Duration = Duration::from_millis(2);

/// How long a request for messages is valid. The client notices within that time that a server has
/// restarted, and has forgotten the consumer.
const EXPIRES: Duration = Duration::from_secs(2);

/// A NATS server.
#[derive(Debug)]
pub struct JetStream {
    url: String,
    /// Where the connections live: they answer the server also while a partition is at work.
    runtime: Runtime,
}

impl JetStream {
    pub(super) fn new(url: &str) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { url: url.to_owned(), runtime })
    }

    async fn connect(&self) -> Result<Context> {
        let client = async_nats::connect(&self.url).await.map_err(Failure::passing)?;
        Ok(jetstream::new(client))
    }

    pub(super) fn create(&self, stream: &str) -> Result<()> {
        self.runtime.block_on(async {
            let config = Config {
                name: stream.to_owned(),
                subjects: vec![stream.to_owned()],
                ..Config::default()
            };
            let context = self.connect().await?;
            context.get_or_create_stream(config).await.map(drop).map_err(Failure::lasting)
        })
    }

    pub(super) fn send(&self, stream: &str, messages: &[(String, String)]) -> Result<()> {
        self.runtime.block_on(async {
            let context = self.connect().await?;
            for messages in messages.chunks(1000) {
                let mut stored = Vec::new();
                for (id, body) in messages {
                    let mut headers = HeaderMap::new();
                    headers.insert(ID, id.as_str());
                    let sent = context.publish_with_headers(
                        stream.to_owned(),
                        headers,
                        body.clone().into(),
                    );
                    stored.push(sent.await.map_err(Failure::passing)?);
                }
                for stored in stored {
                    stored.await.map_err(Failure::passing)?;
                }
            }
            Ok(())
        })
    }

    pub(super) fn source(
        &self,
        stream: &str,
        position: Option<Position>,
    ) -> Result<JetStreamSource<'_>> {
        let runtime = &self.runtime;
        let last = position.map(|position| position.major);
        runtime.block_on(async {
            let context = self.connect().await?;
            let stream = context.get_stream(stream).await.map_err(|error| match error.kind() {
                GetStreamErrorKind::JetStream(cause)
                    if cause.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    Failure::lasting(format!("no stream {stream} on the server"))
                }
                _ => Failure::passing(error),
            })?;
            let start = match last {
                Some(last) => DeliverPolicy::ByStartSequence { start_sequence: last + 1 },
                None => DeliverPolicy::All,
            };
            let config = OrderedConfig {
                deliver_policy: start,
                max_expires: EXPIRES,
                ..OrderedConfig::default()
            };
            let consumer = stream.create_consumer(config).await.map_err(Failure::passing)?;
            let messages = consumer.messages().await.map_err(Failure::passing)?;
            let mut source = JetStreamSource { runtime, stream, messages, last };
            source.check().await?;
            Ok(source)
        })
    }
}

/// A stream of JetStream, read by an ordered consumer. Nothing is acknowledged, because the
/// position is kept in the filter.
pub struct JetStreamSource<'a> {
    runtime: &'a Runtime,
    stream: Stream,
    messages: Ordered,
    /// The sequence of the last message that was read.
    last: Option<u64>,
}

impl JetStreamSource<'_> {
    /// Checks that the stream has all messages after the position, and was once as long as that.
    async fn check(&mut self) -> Result<()> {
        let Some(last) = self.last else { return Ok(()) };
        let info = self.stream.info().await.map_err(Failure::passing)?;
        let (name, state) = (&info.config.name, &info.state);
        if state.last_sequence < last {
            return Err(Failure::lasting(format!(
                "stream {name} ends at {}, but was consumed up to {last}: it was replaced, or lost \
                 messages; consume it into a new directory",
                state.last_sequence
            )));
        }
        if state.first_sequence > last + 1 {
            return Err(Failure::lasting(format!(
                "stream {name} begins at {}, but was consumed up to {last} only: messages between \
                 were removed; raise the limits of the stream, and consume it into a new directory",
                state.first_sequence
            )));
        }
        Ok(())
    }

    /// Returns the message, or `None` if it was read before: a consumer that the client creates
    /// anew before its first message begins with the stream.
    async fn accept(&mut self, message: jetstream::Message) -> Result<Option<Message>> {
        let sequence = message.info().map_err(Failure::lasting)?.stream_sequence;
        match self.last {
            Some(last) if sequence <= last => return Ok(None),
            Some(last) if sequence > last + 1 => self.check().await?,
            _ => {}
        }
        self.last = Some(sequence);
        let id = message.headers.as_ref().and_then(|headers| headers.get(ID));
        Ok(Some(Message {
            position: Position { major: sequence, minor: 0 },
            id: id.map(|id| id.as_str().as_bytes().to_vec()),
            body: message.payload.to_vec(),
        }))
    }
}

impl Source for JetStreamSource<'_> {
    fn next(&mut self, most: usize, wait: Duration) -> Result<Vec<Message>> {
        let runtime = self.runtime;
        runtime.block_on(async {
            let mut messages = Vec::new();
            let mut next = timeout(wait, self.messages.next()).await.ok();
            while let Some(found) = next {
                let found = found.ok_or_else(|| Failure::passing("the consumer has ended"))?;
                messages.extend(self.accept(found.map_err(Failure::passing)?).await?);
                if messages.len() == most {
                    break;
                }
                next = timeout(LINGER, self.messages.next()).await.ok();
            }
            Ok(messages)
        })
    }

    fn end(&mut self) -> Result<Option<Position>> {
        self.runtime.block_on(async {
            let state = &self.stream.info().await.map_err(Failure::passing)?.state;
            let end = Position { major: state.last_sequence, minor: 0 };
            if state.deleted_count.is_none_or(|deleted| deleted == 0) {
                return Ok((state.messages > 0).then_some(end));
            }
            // The messages with the highest sequences may have been deleted.
            for sequence in (state.first_sequence..=state.last_sequence).rev() {
                match self.stream.get_raw_message(sequence).await {
                    Ok(_) => return Ok(Some(Position { major: sequence, minor: 0 })),
                    Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {}
                    Err(error) => return Err(Failure::passing(error)),
                }
            }
            Ok(None)
        })
    }
}
