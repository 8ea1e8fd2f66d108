//! A sender of webhooks: many connections, each with one request at a time.

use std::io::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection to the receiver.
pub struct Sender {
    stream: TcpStream,
}

/// What the receiver answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// 200: this request did the work.
    Done,
    /// 200: an earlier request did it.
    DoneBefore,
    /// 503: another request is doing it.
    InProgress,
    /// 500: the work has failed.
    Failed,
}

impl Answer {
    /// Returns whether the message need not be sent again.
    pub fn is_200(self) -> bool {
        matches!(self, Self::Done | Self::DoneBefore)
    }

    /// Parses an answer; `None` if more of it is to come.
    fn parse(text: &str) -> Option<Result<Self>> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() < length?.parse().ok()? {
            return None;
        }
        Some(match (head.get(9..12), body) {
            (Some("200"), "done") => Ok(Self::Done),
            (Some("200"), "done before") => Ok(Self::DoneBefore),
            (Some("503"), "in progress") if head.contains("retry-after: ") => Ok(Self::InProgress),
            (Some("500"), _) => Ok(Self::Failed),
            _ => Err(Error::new(ErrorKind::InvalidData, text.to_owned())),
        })
    }
}

impl Sender {
    /// Connects to an address.
    pub async fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Sends a message once.
    pub async fn send(&mut self, id: &str) -> Result<Answer> {
        let request =
            format!("POST /?id={id} HTTP/1.1\r\nhost: local\r\ncontent-length: 0\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        loop {
            let read = self.stream.read_buf(&mut answer).await?;
            if let Some(answer) = Answer::parse(&String::from_utf8_lossy(&answer)) {
                return answer;
            }
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// What a load measured.
#[derive(Debug)]
pub struct Measured {
    /// The messages whose work was done.
    pub done: usize,
    /// The time of all.
    pub took: Duration,
    /// The times of the requests, in order.
    pub each: Vec<Duration>,
}

/// Sends `messages` different messages over `connections` connections, each once.
pub async fn run(address: &str, connections: usize, messages: usize) -> Result<Measured> {
    let mut senders = Vec::new();
    for _ in 0..connections {
        senders.push(Sender::connect(address).await?);
    }
    let stamp = std::process::id();
    let began = Instant::now();
    let tasks: Vec<_> = senders
        .into_iter()
        .enumerate()
        .map(|(number, mut sender)| {
            tokio::spawn(async move {
                let (mut done, mut each) = (0, Vec::new());
                for message in (number..messages).step_by(connections) {
                    let began = Instant::now();
                    let answer = sender.send(&format!("{stamp}-{message}")).await?;
                    done += usize::from(answer == Answer::Done);
                    each.push(began.elapsed());
                }
                Ok::<_, Error>((done, each))
            })
        })
        .collect();
    let (mut done, mut each) = (0, Vec::new());
    for task in tasks {
        let (its_done, its_each) = task.await??;
        done += its_done;
        each.extend(its_each);
    }
    each.sort();
    Ok(Measured { done, took: began.elapsed(), each })
}
