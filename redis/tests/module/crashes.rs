//! Servers that are killed at any moment: what they had acknowledged is there, and the state is the
//! one that the acknowledged commands lead to, in this order.

use crate::samples::{SAMPLES, reserve};
use crate::server::{Server, ask, is_there};
use ebbtide_core::kinds::spec::{Any, Spec};
use ebbtide_core::machine::{Machine, MachineOptions};
use ebbtide_core::{Parameters, Since};
use ebbtide_testkit::environment::{SEED, number};
use ebbtide_testkit::random::Random;
use redis::{Connection, Value};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Kills of each combination of settings, if `EBBTIDE_KILLS` sets no number for all.
const KILLS: u64 = 2;
const SECRET: u128 = 7;

/// One filter, the commands that it got, and a filter in memory that gets the same.
struct Stream {
    key: String,
    items: Vec<u64>,
    control: Machine,
    /// How many items the control has got.
    done: usize,
}

/// Returns streams of kinds that use no clock, so that a control can be made.
fn streams() -> Vec<Stream> {
    let kinds = ["age-partitioned", "counting", "fingerprint", "stable"];
    let samples = kinds.map(|kind| SAMPLES.iter().find(|sample| sample.name == kind));
    let stream = |(at, sample): (usize, Option<&'static ebbtide_testkit::samples::Sample>)| {
        let sample = sample.expect("a sample");
        let pairs = sample.parameters.iter();
        let parameters = pairs.fold(Parameters::new(), |all, (name, value)| all.with(name, value));
        let kind = Any::new(sample.kind, parameters).kind().expect("a kind");
        let options = MachineOptions::new()
            .key_hash(ebbtide_core::KeyHash::Keyed)
            .stripes(2)
            .block_bytes(2048);
        let control = Machine::create(kind, &options, SECRET, 1).expect("a machine");
        Stream { key: format!("key:{at}"), items: Vec::new(), control, done: 0 }
    };
    samples.into_iter().enumerate().map(stream).collect()
}

impl Stream {
    fn reserve(&self, at: usize, server: &Server) {
        let kinds = ["age-partitioned", "counting", "fingerprint", "stable"];
        let sample = SAMPLES.iter().find(|sample| sample.name == kinds[at]).expect("a sample");
        let words = reserve(sample).join(" ");
        let settings = format!("SEED {SECRET} STRIPES 2 BLOCK 2048");
        let () = server.ask(&format!("EB.RESERVE {} {words} {settings}", self.key));
    }

    /// Asserts that the server has at least the acknowledged items, and the state that these and
    /// some of those in flight lead to. Returns to this state.
    fn assert_continues(&mut self, server: &Server, acknowledged: usize) {
        let lsn: u64 = server.ask(&format!("EB.INFO {} lsn", self.key));
        while self.control.position().next_lsn - 1 < lsn {
            let item = self.items.get(self.done).expect("the server has no more than was sent");
            let hash = self.control.hash(item.to_string().as_bytes());
            let time = self.control.time(Some(0), None).expect("a time");
            let added = self.control.check_and_insert(hash, Since::LastSeen, time, &mut |_| {});
            added.expect("an insert");
            self.done += 1;
        }
        assert_eq!(self.control.position().next_lsn - 1, lsn, "no half of a command");
        let done = self.done;
        assert!(done >= acknowledged, "{}: {done} of {acknowledged} acknowledged", self.key);
        assert_eq!(server.digest(&self.key), format!("{:032x}", self.control.digest()));
        self.items.truncate(done);
    }
}

/// Sends items in pipelines until the connection breaks; returns how many of each stream were
/// acknowledged.
fn write(
    mut connection: Connection,
    all: &mut [Stream],
    random: &mut Random,
    wait: bool,
) -> Vec<usize> {
    let mut acknowledged: Vec<usize> = all.iter().map(|stream| stream.items.len()).collect();
    loop {
        let mut pipe = redis::pipe();
        let mut sent = acknowledged.clone();
        for _ in 0..1 + random.below(40) {
            let at = random.below(all.len() as u64) as usize;
            let item = random.below(300);
            pipe.cmd("EB.ADD").arg(&all[at].key).arg(item).ignore();
            all[at].items.push(item);
            sent[at] += 1;
        }
        if wait {
            pipe.cmd("WAIT").arg(1).arg(0);
        }
        match pipe.query::<Vec<Value>>(&mut connection) {
            Ok(_) => acknowledged = sent,
            Err(_) => return acknowledged,
        }
    }
}

/// Lets the server save or rewrite its file now and then.
fn disturb(server: &Server, random: &mut Random, is_over: &AtomicBool) {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port));
    let Ok(mut connection) = client.and_then(|client| client.get_connection()) else { return };
    while !is_over.load(Ordering::Relaxed) {
        let command = ["BGREWRITEAOF", "BGSAVE", "PING"][random.below(3) as usize];
        if let Err(error) = redis::cmd(command).query::<Value>(&mut connection)
            && error.is_io_error()
        {
            return;
        }
        thread::sleep(Duration::from_millis(random.below(30)));
    }
}

/// Runs a server until it is killed at a random moment; returns what it had acknowledged.
fn live(server: &mut Server, all: &mut [Stream], random: &mut Random, wait: bool) -> Vec<usize> {
    let (seeds, over) = ([random.below(u64::MAX), random.below(u64::MAX)], AtomicBool::new(false));
    let moment = Duration::from_millis(random.below(150));
    let pid = server.pid();
    let (shown, connection): (&Server, _) = (server, server.connect());
    let acknowledged = thread::scope(|scope| {
        let writer = scope.spawn(|| write(connection, all, &mut Random::new(seeds[0]), wait));
        scope.spawn(|| disturb(shown, &mut Random::new(seeds[1]), &over));
        thread::sleep(moment);
        let kill = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        assert!(kill.expect("the command kill").success());
        let acknowledged = writer.join().expect("the writer");
        over.store(true, Ordering::Relaxed);
        acknowledged
    });
    server.kill();
    acknowledged
}

#[test]
fn killed_servers_continue_with_all_that_they_had_acknowledged() {
    if !is_there() {
        return;
    }
    let settings = ["always", "everysec", "no"]
        .into_iter()
        .flat_map(|sync| ["yes", "no"].map(|preamble| (sync, preamble)));
    let settings: Vec<_> = settings.collect();
    let kills = number("EBBTIDE_KILLS").map_or(KILLS, |all| all.div_ceil(settings.len() as u64));
    for (at, (sync, preamble)) in settings.into_iter().enumerate() {
        let random = &mut Random::new(number("EBBTIDE_SEED").unwrap_or(SEED) + at as u64);
        let mut server = Server::start(&format!(
            "--appendonly yes --appendfsync {sync} --aof-use-rdb-preamble {preamble} \
             --auto-aof-rewrite-percentage 0"
        ));
        let mut all = streams();
        all.iter().enumerate().for_each(|(at, stream)| stream.reserve(at, &server));
        for _ in 0..kills {
            let acknowledged = live(&mut server, &mut all, random, false);
            server.restart();
            // Sometimes it is killed while it loads.
            if random.below(3) == 0 {
                server.kill();
                server.start_and_kill(Duration::from_millis(random.below(20)));
                server.restart();
            }
            for (stream, acknowledged) in all.iter_mut().zip(acknowledged) {
                // While an `fsync` takes long, `everysec` postpones even the write to the kernel,
                // for up to two seconds.
                let least = if sync == "everysec" { 0 } else { acknowledged };
                stream.assert_continues(&server, least);
            }
        }
    }
}

#[test]
fn a_replica_has_what_the_killed_primary_waited_for() {
    if !is_there() {
        return;
    }
    let random = &mut Random::new(number("EBBTIDE_SEED").unwrap_or(SEED) + 99);
    let kills = number("EBBTIDE_KILLS").map_or(3, |all| all.div_ceil(20));
    for _ in 0..kills {
        let mut primary = Server::start("");
        let replica = Server::replica(&primary, "");
        primary.settle(&[&replica]);
        let mut all = streams();
        all.iter().enumerate().for_each(|(at, stream)| stream.reserve(at, &primary));
        let acknowledged = live(&mut primary, &mut all, random, true);
        let connection = &mut replica.connect();
        let () = ask(connection, "REPLICAOF NO ONE");
        for (stream, acknowledged) in all.iter_mut().zip(acknowledged) {
            // The filter itself may not have come, if nothing was acknowledged.
            if ask::<i64>(connection, &format!("EXISTS {}", stream.key)) == 1 {
                stream.assert_continues(&replica, acknowledged);
            } else {
                assert_eq!(acknowledged, 0);
            }
        }
    }
}
