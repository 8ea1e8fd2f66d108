//! What would lose or repeat messages is refused, with an error that says what to do.

use crate::support::{Brand, Broker};
use consumer::consume::{Consumed, Plan, consume};
use consumer::partition::{Partition, Settings, Survives};
use consumer::server::Server;
use consumer::{Failure, Message, Position};
use ebbtide::{Filter, Fingerprint, Options};
use std::fs;
use std::path::Path;
use std::process::Command;

const SMALL: Settings = Settings { window: 1000, fpr: 1e-9, survives: Survives::Kill };
const PLAN: Plan = Plan { settings: SMALL, batch: 10, drain: true };

fn messages(from: u64, count: u64) -> Vec<Message> {
    let message = |number: u64| Message {
        position: Position { major: number, minor: 0 },
        id: Some(number.to_string().into_bytes()),
        body: format!("message {number}").into_bytes(),
    };
    (from..from + count).map(message).collect()
}

fn refusal(result: consumer::Result<Consumed>) -> String {
    match result {
        Err(Failure::Lasting(cause)) => cause,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_partition_has_one_consumer_at_a_time() {
    let home = tempfile::tempdir().expect("a directory");
    let first = Partition::open(home.path(), SMALL).expect("a partition");
    let refused = Partition::open(home.path(), SMALL).expect_err("a second one").to_string();
    assert!(refused.contains("another process consumes this partition"), "{refused}");
    drop(first);
    Partition::open(home.path(), SMALL).expect("a partition");
}

#[test]
fn output_behind_the_last_commit_is_cut_off() {
    let home = tempfile::tempdir().expect("a directory");
    let mut partition = Partition::open(home.path(), SMALL).expect("a partition");
    assert_eq!(partition.take(&messages(1, 5)).expect("a commit"), 5);
    assert_eq!(partition.take(&messages(4, 3)).expect("a commit"), 1);
    drop(partition);
    let output = home.path().join(Partition::OUTPUT);
    let committed = fs::read(&output).expect("an output");
    fs::write(&output, [&committed[..], b"message 7\nmess"].concat()).expect("an output");
    let mut partition = Partition::open(home.path(), SMALL).expect("a partition");
    let position = partition.resume().expect("a position");
    assert_eq!(position, Some(Position { major: 6, minor: 0 }));
    assert_eq!(partition.take(&messages(7, 1)).expect("a commit"), 1);
    let expected: String = (1..8).map(|number| format!("message {number}\n")).collect();
    assert_eq!(fs::read_to_string(&output).expect("an output"), expected);
}

#[test]
fn an_output_that_has_lost_a_commit_is_refused() {
    let home = tempfile::tempdir().expect("a directory");
    let mut partition = Partition::open(home.path(), SMALL).expect("a partition");
    partition.take(&messages(1, 5)).expect("a commit");
    drop(partition);
    fs::write(home.path().join(Partition::OUTPUT), "message 1\n").expect("an output");
    let refused = Partition::open(home.path(), SMALL).expect_err("a loss").to_string();
    assert!(refused.contains("10 bytes, but the filter has committed 50"), "{refused}");
}

#[test]
fn an_output_without_its_filter_is_refused_and_stays_as_it_is() {
    let home = tempfile::tempdir().expect("a directory");
    let mut partition = Partition::open(home.path(), SMALL).expect("a partition");
    partition.take(&messages(1, 5)).expect("a commit");
    drop(partition);
    let [output, seen] = [Partition::OUTPUT, Partition::SEEN].map(|name| home.path().join(name));
    let lines = fs::read(&output).expect("an output");
    fs::rename(&seen, home.path().join("away")).expect("the filter is away");
    for _ in 0..2 {
        let refused = Partition::open(home.path(), SMALL).expect_err("a loss").to_string();
        assert!(refused.contains("no filter, but the output has lines"), "{refused}");
        fs::create_dir_all(&seen).expect("an empty directory");
    }
    assert_eq!(fs::read(&output).expect("an output"), lines);
    fs::remove_dir(&seen).expect("an empty directory");
    fs::rename(home.path().join("away"), &seen).expect("the filter is back");
    let mut partition = Partition::open(home.path(), SMALL).expect("a partition");
    assert_eq!(partition.take(&messages(5, 2)).expect("a commit"), 1);
}

#[test]
fn what_the_first_batch_has_left_before_its_commit_is_cut_off() {
    let home = tempfile::tempdir().expect("a directory");
    drop(Partition::open(home.path(), SMALL).expect("a partition"));
    let output = home.path().join(Partition::OUTPUT);
    fs::write(&output, "message 1\nmess").expect("an output");
    let mut partition = Partition::open(home.path(), SMALL).expect("a partition");
    assert_eq!(partition.take(&messages(1, 1)).expect("a commit"), 1);
    assert_eq!(fs::read_to_string(&output).expect("an output"), "message 1\n");
}

#[test]
fn calls_without_a_stream_are_wrong() {
    for words in [&["run", "nats://127.0.0.1:1", "dir"][..], &["send", "nats://127.0.0.1:1", "7"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_consumer")).args(words).output();
        let output = output.expect("the consumer");
        assert!(!output.status.success(), "{words:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("usage: consumer run"), "{words:?}: {said}");
    }
}

#[test]
fn after_a_conflict_the_messages_are_taken_again() {
    let home = tempfile::tempdir().expect("a directory");
    let mut partition = Partition::open(home.path(), SMALL).expect("a partition");
    // Another caller, which does not respect the lock, inserts the keys during each batch.
    let other = Filter::<Fingerprint>::open(home.path().join(Partition::SEEN), Options::new())
        .expect("a filter");
    let (mut conflicts, mut next) = (0, 1);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let inserted = std::sync::atomic::AtomicU64::new(0);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(order) {
                other.insert(inserted.load(order).to_string()).expect("an insert");
            }
        });
        while conflicts == 0 && next < 100_000 {
            inserted.store(next, order);
            match partition.take(&messages(next, 10)) {
                Ok(_) => next += 10,
                Err(Failure::Passing(cause)) => {
                    assert!(cause.contains("batch"), "{cause}");
                    conflicts += 1;
                }
                Err(failure) => panic!("{failure}"),
            }
        }
        stop.store(true, order);
    });
    assert_eq!(conflicts, 1, "no conflict in {next} messages");
    let position = partition.resume().expect("a position").map_or(0, |last| last.major);
    assert_eq!(position, next - 1, "a batch in conflict has set a position");
    assert_eq!(partition.take(&messages(next, 10)).expect("a commit"), 9);
}

/// Consumes a stream, changes it by `harm`, and returns how its consumer refuses it then.
fn refused_after(brand: Brand, harm: impl Fn(&Broker, &Server, &Path)) -> Option<String> {
    let home = tempfile::tempdir().expect("a directory");
    let broker = Broker::start(brand, home.path())?;
    let server = Server::new(&broker.url).expect("a server");
    let message = |number: u64| (number.to_string(), format!("message {number}"));
    let dir = home.path().join("state");
    server.create("orders").expect("a stream");
    server.send("orders", &(0..20).map(message).collect::<Vec<_>>()).expect("a server");
    let consumed = consume(&server, "orders", &dir, PLAN).expect("a drained stream");
    assert_eq!((consumed.messages, consumed.new), (20, 20));
    let consumed = consume(&server, "orders", &dir, PLAN).expect("a drained stream");
    assert_eq!(consumed, Consumed::default());
    server.send("orders", &(20..40).map(message).collect::<Vec<_>>()).expect("a server");
    harm(&broker, &server, home.path());
    Some(refusal(consume(&server, "orders", &dir, PLAN)))
}

fn redis(broker: &Broker, command: &[&str]) {
    let socket = broker.url.strip_prefix("unix://").expect("a socket");
    let done = Command::new("redis-cli").args(["-s", socket]).args(command).output();
    assert!(done.expect("redis-cli, which comes with the server").status.success());
}

fn nats(broker: &Broker, change: impl AsyncFnOnce(async_nats::jetstream::Context)) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = async_nats::connect(&broker.url).await.expect("a server");
        change(async_nats::jetstream::new(client)).await;
    });
}

#[test]
fn messages_that_jetstream_removed_before_they_were_read_are_missed() {
    let refused = refused_after(Brand::Nats, |broker, _, _| {
        nats(broker, async |context| {
            let stream = context.get_stream("orders").await.expect("a stream");
            stream.purge().sequence(30).await.expect("a purge");
        });
    });
    if let Some(refused) = refused {
        assert!(refused.contains("begins at 30, but was consumed up to 20 only"), "{refused}");
    }
}

#[test]
fn a_stream_of_jetstream_without_its_newest_messages_is_drained() {
    let home = tempfile::tempdir().expect("a directory");
    let Some(broker) = Broker::start(Brand::Nats, home.path()) else { return };
    let server = Server::new(&broker.url).expect("a server");
    server.create("orders").expect("a stream");
    let message = |number: u64| (number.to_string(), format!("message {number}"));
    server.send("orders", &(0..20).map(message).collect::<Vec<_>>()).expect("a server");
    nats(&broker, async |context| {
        let stream = context.get_stream("orders").await.expect("a stream");
        for sequence in [15, 19, 20] {
            assert!(stream.delete_message(sequence).await.expect("a message"));
        }
    });
    let (dir, (ended, end)) = (home.path().join("state"), std::sync::mpsc::channel());
    std::thread::spawn(move || ended.send(consume(&server, "orders", &dir, PLAN)));
    let consumed = end.recv_timeout(std::time::Duration::from_secs(60)).expect("it ends");
    assert_eq!(consumed.expect("a drained stream").new, 17);
}

#[test]
fn a_stream_of_jetstream_that_was_created_anew_is_noticed() {
    let refused = refused_after(Brand::Nats, |broker, server, _| {
        nats(broker, async |context| {
            context.delete_stream("orders").await.expect("a stream");
        });
        server.create("orders").expect("a stream");
        server.send("orders", &[("1".to_owned(), "another".to_owned())]).expect("a server");
    });
    if let Some(refused) = refused {
        assert!(refused.contains("ends at 1, but was consumed up to 20"), "{refused}");
    }
}

#[test]
fn entries_that_redis_trimmed_before_they_were_read_are_missed() {
    let refused = refused_after(Brand::Redis, |broker, _, _| {
        redis(broker, &["XTRIM", "orders", "MAXLEN", "=", "10"]);
    });
    if let Some(refused) = refused {
        assert!(refused.contains("or trimmed beyond it"), "{refused}");
    }
}

#[test]
fn a_stream_of_redis_that_was_created_anew_is_noticed() {
    let refused = refused_after(Brand::Redis, |broker, server, _| {
        redis(broker, &["DEL", "orders"]);
        server.send("orders", &[("1".to_owned(), "another".to_owned())]).expect("a server");
    });
    if let Some(refused) = refused {
        assert!(refused.contains("it was replaced"), "{refused}");
    }
}

#[test]
fn a_stream_that_does_not_exist_is_refused() {
    let home = tempfile::tempdir().expect("a directory");
    let Some(broker) = Broker::start(Brand::Nats, home.path()) else { return };
    let server = Server::new(&broker.url).expect("a server");
    let refused = refusal(consume(&server, "absent", &home.path().join("state"), PLAN));
    assert!(refused.contains("no stream absent on the server"), "{refused}");
}
