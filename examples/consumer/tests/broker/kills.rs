//! Consumers are killed again and again, and yet each message comes out exactly once.
//!
//! `EBBTIDE_KILLS` sets how often (40), `EBBTIDE_SEED` repeats a run.

use crate::support::{Brand, Broker, consumer, wait_until};
use consumer::partition::Partition;
use consumer::server::Server;
use consumer::traffic::{message, mix, order};
use consumer::{Message, Position};
use ebbtide::{Error, Filter, Fingerprint, Options};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const STREAMS: usize = 4;

/// The keys that are compared with a position, on either side of it. With their repetitions they
/// are fewer than the window.
const COMPARED: usize = 1500;

/// What a stream contains, as the server shows it, and what must come of it.
struct Log<'a> {
    server: &'a Server,
    stream: &'a str,
    messages: Vec<Message>,
    /// For each message the number of those before it, of which no repetition counts.
    before: Vec<usize>,
    /// The different ones, by their first occurrence.
    distinct: Vec<Vec<u8>>,
    seen: HashSet<Vec<u8>>,
    /// The output, and its length after each of the different ones.
    output: Vec<u8>,
    lengths: Vec<u64>,
}

impl<'a> Log<'a> {
    fn new(server: &'a Server, stream: &'a str) -> Self {
        let (messages, before, distinct) = (Vec::new(), Vec::new(), Vec::new());
        let (seen, output, lengths) = (HashSet::new(), Vec::new(), vec![0]);
        Self { server, stream, messages, before, distinct, seen, output, lengths }
    }

    /// Reads some of what has been sent since.
    fn read(&mut self) {
        // A consumer of JetStream that reads nothing for seconds would be removed by the server.
        let last = self.messages.last().map(|message| message.position);
        let mut source = self.server.source(self.stream, last).expect("a stream");
        for message in source.next(10_000, Duration::from_millis(200)).expect("messages") {
            self.before.push(self.distinct.len());
            let id = message.id.clone().expect("an id");
            if self.seen.insert(id.clone()) {
                self.distinct.push(id);
                self.output.extend_from_slice(&message.body);
                self.output.push(b'\n');
                self.lengths.push(self.output.len() as u64);
            }
            self.messages.push(message);
        }
    }

    /// Returns the numbers of messages, and of different ones, up to a position.
    fn up_to(&mut self, position: Position) -> (usize, usize) {
        wait_until("message at a position", || {
            let last = self.messages.last().map(|message| message.position);
            let reached = last >= Some(position);
            if !reached {
                self.read();
            }
            reached.then_some(())
        });
        let at = self.messages.binary_search_by_key(&position, |message| message.position);
        let messages = at.expect("a position that is a message's") + 1;
        (messages, self.before.get(messages).copied().unwrap_or(self.distinct.len()))
    }
}

/// What the deaths left.
#[derive(Debug, Default)]
struct Found {
    /// Partitions that were compared.
    compared: usize,
    /// Those of them with output of a batch that was not committed.
    unfinished: usize,
    /// Partitions that had a later position than when they were compared before.
    advanced: usize,
}

/// Compares a partition whose consumer has died with its stream.
fn compare(dir: &Path, log: &mut Log<'_>, found: &mut Found) -> Option<Position> {
    let seen = match Filter::<Fingerprint>::open(dir.join(Partition::SEEN), Options::new()) {
        Err(Error::NotAFilter { .. }) => return None,
        opened => opened.expect("a filter that recovers"),
    };
    let positions: HashMap<_, _> = seen.positions().expect("positions").into_iter().collect();
    found.compared += 1;
    let written = fs::read(dir.join(Partition::OUTPUT)).expect("an output");
    if positions.is_empty() {
        assert_eq!(seen.stat().expect("figures").inserts, 0, "keys without a position");
        found.unfinished += usize::from(!written.is_empty());
        return None;
    }
    let position = Position { major: positions[&0], minor: positions[&1] };
    let length = positions[&2];
    let (messages, distinct) = log.up_to(position);
    assert_eq!(length, log.lengths[distinct], "the length of the output at {position:?}");
    assert!(written.len() as u64 >= length, "committed output is missing");
    let committed = length as usize;
    assert!(written[..committed] == log.output[..committed], "another output at {position:?}");
    found.unfinished += usize::from(written.len() > committed);

    let (before, behind) = log.distinct.split_at(distinct);
    let before = &before[before.len().saturating_sub(COMPARED)..];
    let behind = &behind[..behind.len().min(COMPARED)];
    let contained = seen.contains_all(before).expect("answers");
    assert!(contained.iter().all(|&contained| contained), "a key before {position:?} is missing");
    let contained = seen.contains_all(behind).expect("answers");
    assert!(!contained.contains(&true), "a key behind {position:?} is remembered");
    let inserts = seen.stat().expect("figures").inserts;
    assert_eq!(inserts, messages as u64, "not the messages up to {position:?}");
    Some(position)
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

fn lengths(dir: &Path, streams: &[String]) -> Vec<u64> {
    let length = |path| fs::metadata(path).map_or(0, |data| data.len());
    streams.iter().map(|stream| length(dir.join(stream).join(Partition::OUTPUT))).collect()
}

/// One life of a consumer, killed at a random moment.
fn live(url: &str, dir: &Path, streams: &[String], random: u64) {
    let batch = ["1", "10", "100", "1000"][(random % 4) as usize];
    let survives = ["kill", "power-cut", "power-cut-at-once"][(random / 4 % 3) as usize];
    let before = lengths(dir, streams);
    let options = ["--batch", batch, "--survives", survives];
    let mut consumer = consumer(url, dir, &options, streams);
    let later = Duration::from_micros(random / 48 % 20_000);
    if !(random / 12).is_multiple_of(4) {
        // While it consumes: the messages of this life, at least, are new.
        wait_until("output", || {
            assert!(consumer.ended().is_none(), "a consumer has failed");
            let now = lengths(dir, streams);
            now.iter().zip(&before).any(|(now, before)| now > before).then_some(())
        });
    }
    // Otherwise while it starts.
    thread::sleep(later);
    assert!(consumer.ended().is_none(), "a consumer has failed");
    consumer.kill();
}

/// Consumes all that is there.
fn drain(url: &str, dir: &Path, streams: &[String]) {
    let ended = consumer(url, dir, &["--drain"], streams).wait();
    assert!(ended.success(), "a consumer has failed");
}

/// A server with streams, and the messages that they are to have, in order.
struct Scene<'a> {
    url: &'a str,
    server: &'a Server,
    streams: Vec<String>,
    orders: Vec<Vec<u64>>,
    count: u64,
}

impl<'a> Scene<'a> {
    fn new(url: &'a str, server: &'a Server, count: u64, seed: u64) -> Self {
        let streams: Vec<_> = (0..STREAMS).map(|number| format!("orders-{number}")).collect();
        for stream in &streams {
            server.create(stream).expect("a stream");
        }
        let orders = (0..STREAMS as u64).map(|number| order(count, mix(seed ^ mix(number))));
        Self { url, server, streams, orders: orders.collect(), count }
    }

    fn logs(&self) -> Vec<Log<'_>> {
        self.streams.iter().map(|stream| Log::new(self.server, stream)).collect()
    }

    /// Sends a share of the messages for each life, in pieces to each stream in turn.
    fn produce(&self, lives: impl IntoIterator<Item = u64>, kills: u64) {
        for piece in lives.into_iter().flat_map(|life| 4 * life..4 * (life + 1)) {
            for (stream, order) in self.streams.iter().zip(&self.orders) {
                let place = |piece| (order.len() as u64 * piece / (4 * kills)) as usize;
                let messages: Vec<_> = order[place(piece)..place(piece + 1)]
                    .iter()
                    .map(|&number| message(stream, number))
                    .collect();
                self.server.send(stream, &messages).expect("a server");
            }
        }
    }

    /// Kills consumers while a producer is at work, and compares what every second one left.
    fn kill(&self, dir: &Path, kills: u64, seed: u64) -> Found {
        let mut found = Found::default();
        let (begin, lives) = mpsc::channel::<u64>();
        thread::scope(|scope| {
            scope.spawn(|| self.produce(lives, kills));
            let mut logs = self.logs();
            let mut last = vec![None; STREAMS];
            for life in 0..kills {
                begin.send(life).expect("a producer");
                live(self.url, dir, &self.streams, mix(seed ^ mix(life)));
                // Comparing opens and closes the filter. The other half is left to the consumer.
                if life.is_multiple_of(2) {
                    continue;
                }
                for ((stream, log), last) in self.streams.iter().zip(&mut logs).zip(&mut last) {
                    let position = compare(&dir.join(stream), log, &mut found);
                    assert!(position >= *last, "{stream} went back to {position:?}");
                    found.advanced += usize::from(position > *last);
                    *last = position;
                }
            }
            drop(begin);
        });
        found
    }

    /// Compares the outputs with those of another directory and with the messages, the positions
    /// with the ends of the streams, and the filters with all messages.
    fn compare_ends(&self, dir: &Path, undisturbed: &Path) {
        let output = |dir: &Path, stream| {
            fs::read_to_string(dir.join(stream).join(Partition::OUTPUT)).expect("an output")
        };
        let logs = self.logs().into_iter();
        for ((stream, order), mut log) in self.streams.iter().zip(&self.orders).zip(logs) {
            let text = output(dir, stream);
            assert!(text == output(undisturbed, stream), "{stream}: not as an undisturbed run");
            assert_eq!(text.lines().count() as u64, self.count, "{stream}: messages");
            for (line, number) in text.lines().zip(0..) {
                assert_eq!(line, message(stream, number).1, "{stream}: message {number}");
            }
            let position = compare(&dir.join(stream), &mut log, &mut Found::default());
            let end = log.messages.last().map(|last| last.position);
            assert_eq!(position, end, "{stream}: not at its end");
            assert_eq!(log.messages.len(), order.len(), "{stream}: messages of the server");
        }
    }
}

fn survives_kills(brand: Brand) {
    let home = tempfile::tempdir().expect("a directory");
    let Some(broker) = Broker::start(brand, home.path()) else { return };
    let kills = number("EBBTIDE_KILLS", 40);
    let seed = number("EBBTIDE_SEED", u64::from(std::process::id()));
    println!("{brand:?}: EBBTIDE_KILLS={kills} EBBTIDE_SEED={seed}");
    let server = Server::new(&broker.url).expect("a server");
    let scene = Scene::new(&broker.url, &server, 12_500 + 25 * kills, seed);
    let dir = home.path().join("killed");
    let found = scene.kill(&dir, kills, seed);
    println!("{brand:?}: {found:?}");
    assert!(found.compared > 0 && found.advanced > 0, "nothing was tested: {found:?}");
    drain(&broker.url, &dir, &scene.streams);
    let undisturbed = home.path().join("undisturbed");
    drain(&broker.url, &undisturbed, &scene.streams);
    scene.compare_ends(&dir, &undisturbed);
}

#[test]
fn with_jetstream_each_message_comes_out_once_however_often_the_consumer_is_killed() {
    survives_kills(Brand::Nats);
}

#[test]
fn with_redis_each_message_comes_out_once_however_often_the_consumer_is_killed() {
    survives_kills(Brand::Redis);
}

/// A server that is restarted below a consumer.
fn survives_a_restart_of_the_server(brand: Brand) {
    let home = tempfile::tempdir().expect("a directory");
    let Some(mut broker) = Broker::start(brand, home.path()) else { return };
    let streams = ["restarted".to_owned()];
    let server = Server::new(&broker.url).expect("a server");
    server.create(&streams[0]).expect("a stream");
    let dir = home.path().join("state");
    let mut consumer = consumer(&broker.url, &dir, &[], &streams);
    let mut expected = String::new();
    for round in 0..3 {
        let messages: Vec<_> =
            (round * 100..round * 100 + 150).map(|number| message("restarted", number)).collect();
        server.send(&streams[0], &messages).expect("a server");
        for (_, body) in &messages[if round == 0 { 0 } else { 50 }..] {
            expected += &format!("{body}\n");
        }
        let output = dir.join(&streams[0]).join(Partition::OUTPUT);
        wait_until("output", || {
            assert!(consumer.ended().is_none(), "the consumer has failed");
            (fs::read(&output).is_ok_and(|found| found == expected.as_bytes())).then_some(())
        });
        broker.restart(Duration::from_millis(300 * round));
    }
    assert!(consumer.ended().is_none(), "the consumer has failed");
}

#[test]
fn a_consumer_outlives_a_restart_of_jetstream() {
    survives_a_restart_of_the_server(Brand::Nats);
}

#[test]
fn a_consumer_outlives_a_restart_of_redis() {
    survives_a_restart_of_the_server(Brand::Redis);
}
