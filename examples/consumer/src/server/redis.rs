//! Redis Streams. The position is an entry's id; a message's own id and its body are fields.

use crate::failure::{Failure, Result};
use crate::server::Source;
use crate::{Message, Position};
use redis::streams::{StreamId, StreamInfoStreamReply, StreamRangeReply, StreamReadReply};
use redis::{Client, Commands, Connection, FromRedisValue, Value};
use std::collections::VecDeque;
use std::time::Duration;

/// The fields of an entry.
const ID: &str = "id";
const BODY: &str = "body";

/// The entries that are read at a time, at least.
const AHEAD: usize = 1000;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A Redis server.
#[derive(Debug)]
pub struct Redis {
    client: Client,
}

impl Redis {
    pub(super) fn new(url: &str) -> Result<Self> {
        Ok(Self { client: Client::open(url)? })
    }

    fn connect(&self) -> Result<Connection> {
        let connection = self.client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        Ok(connection)
    }

    pub(super) fn send(&self, stream: &str, messages: &[(String, String)]) -> Result<()> {
        let mut connection = self.connect()?;
        for messages in messages.chunks(AHEAD) {
            let mut pipeline = redis::pipe();
            for (id, body) in messages {
                pipeline.xadd(stream, "*", &[(ID, id), (BODY, body)]).ignore();
            }
            pipeline.exec(&mut connection)?;
        }
        Ok(())
    }

    pub(super) fn source(&self, stream: &str, position: Option<Position>) -> Result<RedisSource> {
        let connection = self.connect()?;
        let stream = stream.to_owned();
        let mut source = RedisSource { connection, stream, last: position, ahead: VecDeque::new() };
        source.read(AHEAD, Duration::from_millis(1))?;
        Ok(source)
    }
}

/// A stream of Redis, read without a consumer group, because the position is kept in the filter.
pub struct RedisSource {
    connection: Connection,
    stream: String,
    /// The position of the last entry that was read.
    last: Option<Position>,
    /// Entries that were read and not returned yet.
    ahead: VecDeque<Message>,
}

impl RedisSource {
    /// Reads up to `count` entries ahead, and waits up to `wait` for the first.
    ///
    /// The entry at the position must still be in the stream when those behind it have been read.
    /// Entries are removed from the beginning, so then none behind it has been removed before, and
    /// the stream is the one that the position belongs to.
    fn read(&mut self, count: usize, wait: Duration) -> Result<()> {
        let Position { major, minor } = self.last.unwrap_or_default();
        let last = format!("{major}-{minor}");
        let mut pipeline = redis::pipe();
        let read = pipeline.cmd("XREAD").arg("COUNT").arg(count);
        // 0 would wait without a limit.
        read.arg("BLOCK").arg(wait.as_millis().max(1) as u64);
        read.arg("STREAMS").arg(&self.stream).arg(&last);
        pipeline.xrange(&self.stream, &last, &last);
        let (read, at_position): (Option<StreamReadReply>, StreamRangeReply) =
            pipeline.query(&mut self.connection)?;
        if self.last.is_some() && at_position.ids.is_empty() {
            return Err(Failure::lasting(format!(
                "stream {} was consumed up to {last}, but has no such entry: it was replaced, or \
                 trimmed beyond it (XTRIM MINID {last} is safe); consume it into a new directory",
                self.stream
            )));
        }
        for entry in read.into_iter().flat_map(|read| read.keys).flat_map(|key| key.ids) {
            let message = message(entry)?;
            self.last = Some(message.position);
            self.ahead.push_back(message);
        }
        Ok(())
    }
}

impl Source for RedisSource {
    fn next(&mut self, most: usize, wait: Duration) -> Result<Vec<Message>> {
        if self.ahead.is_empty() {
            self.read(most.max(AHEAD), wait)?;
        }
        let count = self.ahead.len().min(most);
        Ok(self.ahead.drain(..count).collect())
    }

    fn end(&mut self) -> Result<Option<Position>> {
        if !self.connection.exists(&self.stream)? {
            return Ok(None);
        }
        let info: StreamInfoStreamReply = self.connection.xinfo_stream(&self.stream)?;
        (info.length > 0).then(|| position(&info.last_entry.id)).transpose()
    }
}

fn message(entry: StreamId) -> Result<Message> {
    let bytes = |field: &str| match entry.map.get(field) {
        Some(Value::BulkString(bytes)) => Ok(Some(bytes.clone())),
        Some(other) => Vec::from_redis_value_ref(other).map(Some).map_err(Failure::lasting),
        None => Ok(None),
    };
    let Some(body) = bytes(BODY)? else {
        return Err(Failure::lasting(format!("entry {} has no field {BODY}", entry.id)));
    };
    Ok(Message { position: position(&entry.id)?, id: bytes(ID)?, body })
}

fn position(id: &str) -> Result<Position> {
    let parts = id.split_once('-').and_then(|(major, minor)| {
        Some(Position { major: major.parse().ok()?, minor: minor.parse().ok()? })
    });
    parts.ok_or_else(|| Failure::lasting(format!("{id}: not the id of an entry")))
}
