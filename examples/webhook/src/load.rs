//! A sender of webhooks: many connections, each with one request at a time.

use std::io::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection to the receiver.
pub struct Sender {
    stream: TcpStream,
}

impl Sender {
    /// Connects to an address.
    pub async fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Sends a message and returns whether it was new.
    pub async fn send(&mut self, id: &str) -> Result<bool> {
        let request =
            format!("POST /?id={id} HTTP/1.1\r\nhost: local\r\ncontent-length: 0\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        loop {
            let read = self.stream.read_buf(&mut answer).await?;
            let text = String::from_utf8_lossy(&answer);
            match text.split_once("\r\n\r\n") {
                Some((_, "new")) => return Ok(true),
                Some((_, "seen")) => return Ok(false),
                Some((head, body)) if !head.starts_with("HTTP/1.1 200") && !body.is_empty() => {
                    return Err(Error::new(ErrorKind::Other, body.to_owned()));
                }
                _ if read == 0 => return Err(ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
        }
    }
}

/// What a load measured.
#[derive(Debug)]
pub struct Measured {
    /// The messages that were new.
    pub new: usize,
    /// The time of all.
    pub took: Duration,
    /// The times of the requests, in order.
    pub each: Vec<Duration>,
}

/// Sends `messages` different messages over `connections` connections.
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
                let (mut new, mut each) = (0, Vec::new());
                for message in (number..messages).step_by(connections) {
                    let began = Instant::now();
                    new += usize::from(sender.send(&format!("{stamp}-{message}")).await?);
                    each.push(began.elapsed());
                }
                Ok::<_, Error>((new, each))
            })
        })
        .collect();
    let (mut new, mut each) = (0, Vec::new());
    for task in tasks {
        let (its_new, its_each) = task.await??;
        new += its_new;
        each.extend(its_each);
    }
    each.sort();
    Ok(Measured { new, took: began.elapsed(), each })
}
