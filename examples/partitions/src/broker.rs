//! The stream of orders, and that of assignments: its newest message says who has which partition.

use crate::Result;
use crate::partition::{Message, Name};
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::{Ordered, OrderedConfig};
use async_nats::jetstream::stream::{Config, LastRawMessageErrorKind, Stream};
use async_nats::jetstream::{self, Context};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

const STREAM: &str = "orders";
const ASSIGNMENTS: &str = "assignments";
/// How long to wait for the first message of a batch, and for each further one.
const WAIT: Duration = Duration::from_millis(300);
const LINGER: Duration = Duration::from_millis(5);
/// How long a request for messages is valid.
const EXPIRES: Duration = Duration::from_secs(2);

/// A connection to a server.
pub struct Broker {
    runtime: Runtime,
    context: Context,
    stream: Stream,
    assignments: Stream,
}

impl Debug for Broker {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Broker").finish_non_exhaustive()
    }
}

impl Broker {
    /// Connects, and creates stream and bucket if they are not there.
    ///
    /// # Errors
    /// Those of the server.
    pub fn connect(url: &str) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (context, stream, assignments) = runtime.block_on(async {
            let context = jetstream::new(async_nats::connect(url).await?);
            let subjects = vec![format!("{STREAM}.>")];
            let config = Config { name: STREAM.to_owned(), subjects, ..Config::default() };
            let stream = context.get_or_create_stream(config).await?;
            let name = ASSIGNMENTS.to_owned();
            let config = Config { subjects: vec![name.clone()], name, ..Config::default() };
            let assignments = context.get_or_create_stream(config).await?;
            Ok::<_, Box<dyn std::error::Error>>((context, stream, assignments))
        })?;
        Ok(Self { runtime, context, stream, assignments })
    }

    /// Publishes orders to their partitions, of which there are `count`.
    ///
    /// # Errors
    /// Those of the server.
    pub fn publish<'a>(&self, orders: impl Iterator<Item = &'a [u8]>, count: u64) -> Result<()> {
        self.runtime.block_on(async {
            let mut stored = Vec::new();
            for order in orders {
                let subject = format!("{STREAM}.{}", Name::of(order, count));
                stored.push(self.context.publish(subject, order.to_vec().into()).await?);
            }
            for stored in stored {
                stored.await?;
            }
            Ok(())
        })
    }

    /// Replaces the assignments: the member of each partition.
    ///
    /// # Errors
    /// Those of the server.
    pub fn assign(&self, members: &BTreeMap<Name, &str>) -> Result<()> {
        let lines = members.iter().map(|(partition, member)| format!("{partition} {member}\n"));
        let table: String = lines.collect();
        self.runtime.block_on(async {
            self.context.publish(ASSIGNMENTS, table.into()).await?.await?;
            Ok(())
        })
    }

    /// Returns the partitions that are assigned to a member.
    ///
    /// # Errors
    /// Those of the server.
    pub fn assigned_to(&self, member: &str) -> Result<Vec<Name>> {
        let newest = self.assignments.get_last_raw_message_by_subject(ASSIGNMENTS);
        let table = match self.runtime.block_on(newest) {
            Ok(newest) => String::from_utf8(newest.payload.to_vec())?,
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => String::new(),
            Err(error) => return Err(error.into()),
        };
        let lines = table.lines().filter_map(|line| line.split_once(' '));
        let own = lines.filter(|(_, owner)| *owner == member);
        Ok(own.filter_map(|(partition, _)| Name::parse(partition)).collect())
    }

    /// Returns the sequence of the newest message of a partition; 0 if it has none.
    ///
    /// # Errors
    /// Those of the server.
    pub fn last(&self, partition: Name) -> Result<u64> {
        let subject = format!("{STREAM}.{partition}");
        match self.runtime.block_on(self.stream.get_last_raw_message_by_subject(&subject)) {
            Ok(newest) => Ok(newest.sequence),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the messages of a partition behind this sequence.
    ///
    /// # Errors
    /// Those of the server.
    pub fn read(&self, partition: Name, sequence: u64) -> Result<Messages> {
        self.runtime.block_on(async {
            let config = OrderedConfig {
                filter_subject: format!("{STREAM}.{partition}"),
                deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: sequence + 1 },
                max_expires: EXPIRES,
                ..OrderedConfig::default()
            };
            let messages = self.stream.create_consumer(config).await?.messages().await?;
            Ok(Messages { messages, sequence })
        })
    }

    /// Returns the next messages, up to `most`; none if there are none at present.
    ///
    /// # Errors
    /// Those of the server. Messages that were read before the error are lost with it: drop `from`,
    /// and [`read`](Broker::read) anew from the position in the filter.
    pub fn next(&self, from: &mut Messages, most: usize) -> Result<Vec<Message>> {
        self.runtime.block_on(async {
            let mut found = Vec::new();
            let mut wait = WAIT;
            while found.len() < most
                && let Ok(next) = timeout(wait, from.messages.next()).await
            {
                let message = next.ok_or("the consumer has ended")??;
                let sequence = message.info().map_err(|error| error.to_string())?.stream_sequence;
                // A consumer that the client creates anew may begin earlier.
                if sequence > from.sequence {
                    from.sequence = sequence;
                    found.push(Message { sequence, order: message.payload.to_vec() });
                }
                wait = LINGER;
            }
            Ok(found)
        })
    }
}

/// The messages of a partition, read by an ordered consumer. Nothing is acknowledged, because the
/// position is in the filter.
pub struct Messages {
    messages: Ordered,
    sequence: u64,
}
