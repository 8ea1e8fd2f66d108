//! Filters in the middle of an alteration, in files, copies and exports, on replicas and after
//! kills: both filters are there, and the former one is dropped at the same command everywhere.

use crate::altered::ALTERATIONS;
use crate::replicas::rewrite;
use crate::server::{Server, ask, error, is_there};
use ebbtide_core::hash::DigestHasher;
use ebbtide_core::kinds::spec::{Any, Spec};
use ebbtide_core::machine::{Machine, MachineOptions};
use ebbtide_core::{KeyHash, Since};
use ebbtide_testkit::environment::{SEED, number};
use ebbtide_testkit::random::Random;
use redis::{Cmd, Connection, RedisError, Value};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The first time, in milliseconds.
const START: u64 = 1_700_000_000_000;

/// Returns a command that adds an item, some time after the one before.
fn addition(random: &mut Random, now: &mut u64) -> Cmd {
    *now += random.below(9);
    // Every eighth is late.
    let late = if random.below(8) == 0 { random.below(900) } else { 0 };
    let mut insert = redis::cmd("EB.INSERT");
    insert.arg("seen");
    if random.below(2) == 0 {
        insert.arg("NX");
    }
    insert.arg("AT").arg(*now - late).arg("ITEMS");
    (0..1 + random.below(3)).for_each(|_| {
        insert.arg(format!("item-{}", random.below(60)));
    });
    insert
}

fn add(connections: &mut [Connection], random: &mut Random, now: &mut u64, count: u64) {
    for _ in 0..count {
        let next = addition(random, now);
        let replies = connections.iter_mut().map(|to| next.query::<Value>(to).expect("replies"));
        let replies: Vec<Value> = replies.collect();
        assert!(replies.windows(2).all(|pair| pair[0] == pair[1]), "{replies:?}");
    }
}

/// Returns a server whose filter is in the middle of an alteration.
fn begin(server: &Server, (before, after): (&str, &str), random: &mut Random, now: &mut u64) {
    let mut connection = [server.connect()];
    let () = server.ask("FLUSHALL");
    let () = server.ask(&format!("EB.RESERVE seen {before} SEED 7"));
    add(&mut connection, random, now, 60);
    let _: Value = server.ask("EB.CLAIM seen claimed 3600000");
    let () = server.ask(&format!("EB.ALTER seen {after}"));
    add(&mut connection, random, now, 12);
    assert_ne!(server.ask::<String>("EB.INFO seen former"), "", "{before}, {after}");
}

fn export(connection: &mut Connection) -> Vec<Vec<u8>> {
    let (mut cursor, mut pieces) = ("0".to_owned(), Vec::new());
    loop {
        let words = format!("EB.SCANDUMP seen {cursor}");
        let (next, piece): (String, Vec<u8>) = ask(connection, &words);
        pieces.push(piece);
        if next == "0" {
            return pieces;
        }
        cursor = next;
    }
}

fn load(connection: &mut Connection, key: &str, number: usize, piece: &[u8]) -> Result<(), String> {
    let mut load = redis::cmd("EB.LOADCHUNK");
    let reply: Result<String, RedisError> = load.arg(key).arg(number).arg(piece).query(connection);
    reply.map(drop).map_err(|error| error.code().unwrap_or("ERR").to_owned())
}

#[test]
fn files_copies_and_exports_have_both_filters_and_drop_the_former_one_at_the_same_command() {
    if !is_there() {
        return;
    }
    let primary = Server::start("--appendonly yes --appendfsync no");
    let (replica, elsewhere) = (Server::replica(&primary, ""), Server::start(""));
    let mut random = Random::new(number("EBBTIDE_SEED").unwrap_or(SEED));
    for (before, after) in ALTERATIONS {
        let mut now = START;
        begin(&primary, (before, after), &mut random, &mut now);
        let connection = &mut primary.connect();
        let what = format!("{before}, {after}");
        let digest = primary.digest("seen");
        primary.settle(&[&replica]);
        assert_eq!(replica.digest("seen"), digest, "{what}: the replica");
        let () = ask(connection, "DEBUG LOADAOF");
        assert_eq!(primary.digest("seen"), digest, "{what}: the file of effects");
        let () = ask(connection, "DEBUG RELOAD");
        assert_eq!(primary.digest("seen"), digest, "{what}: a snapshot");
        for preamble in ["yes", "no"] {
            let () = ask(connection, &format!("CONFIG SET aof-use-rdb-preamble {preamble}"));
            rewrite(&primary);
            let () = ask(connection, "DEBUG LOADAOF");
            assert_eq!(primary.digest("seen"), digest, "{what}: rewritten, preamble {preamble}");
        }
        let to = &mut elsewhere.connect();
        let () = ask(to, "FLUSHALL");
        let payload: Vec<u8> = redis::cmd("DUMP").arg("seen").query(connection).expect("a payload");
        let () = redis::cmd("RESTORE").arg("seen").arg(0).arg(payload).query(to).expect("a value");
        let pieces = export(connection);
        for (number, piece) in pieces.iter().enumerate() {
            load(to, "loaded", number, piece).expect("a piece");
        }
        let () = ask(to, "COPY seen copied");
        for key in ["seen", "loaded", "copied"] {
            assert_eq!(elsewhere.digest(key), digest, "{what}: {key}");
            let usage: Vec<u64> =
                ["seen", key].map(|key| ask(to, &format!("MEMORY USAGE {key}"))).into();
            assert!(usage[0].abs_diff(usage[1]) < 100, "{what}: {usage:?}");
        }
        // All of them continue until the former filter is dropped, with the same commands.
        let mut all = [primary.connect(), elsewhere.connect()];
        let mut steps = 0;
        while !ask::<String>(connection, "EB.INFO seen former").is_empty() {
            assert_ne!(ask::<String>(to, "EB.INFO seen former"), "", "{what}");
            add(&mut all, &mut random, &mut now, 1);
            steps += 1;
            assert!(steps < 1000, "{what}: the former filter stays");
        }
        assert_eq!(ask::<String>(to, "EB.INFO seen former"), "", "{what}");
        assert_eq!(elsewhere.digest("seen"), primary.digest("seen"), "{what}");
        primary.settle(&[&replica]);
        assert_eq!(replica.digest("seen"), primary.digest("seen"), "{what}");
        let () = ask(connection, "DEBUG LOADAOF");
        assert_eq!(elsewhere.digest("seen"), primary.digest("seen"), "{what}: the file at the end");
        assert_eq!(ask::<Vec<String>>(connection, "EB.DEBUG POSITION seen").len(), 3, "{what}");
    }
    assert_eq!(replica.info("stats", "unexpected_error_replies"), "0");
    assert_eq!(replica.info("ebbtide", "ebbtide_records_emitted"), "0");
}

#[test]
fn an_import_of_both_filters_may_be_interrupted_anywhere_and_wrong_pieces_change_nothing() {
    if !is_there() {
        return;
    }
    let mut server = Server::start("--appendonly yes --appendfsync no");
    let (mut random, mut now) = (Random::new(SEED), START);
    begin(&server, ALTERATIONS[0], &mut random, &mut now);
    let digest = server.digest("seen");
    let pieces = export(&mut server.connect());
    assert!(pieces.len() >= 5, "a head, and two or more of each filter: {}", pieces.len());
    for preamble in ["yes", "no"] {
        let () = server.ask(&format!("CONFIG SET aof-use-rdb-preamble {preamble}"));
        let _: Value = server.ask("DEL copy");
        for (number, piece) in pieces.iter().enumerate() {
            let connection = &mut server.connect();
            for wrong in [number + 1, 77] {
                assert!(load(connection, "copy", wrong, piece).is_err());
            }
            // The pieces of one filter alone, and those of a filter that has another hash.
            if number > 0 {
                let other = if number == 1 { &pieces[0] } else { &pieces[number - 1] };
                assert_eq!(load(connection, "copy", number, other), Err("DAMAGED".to_owned()));
            }
            load(connection, "copy", number, piece).expect("a piece");
            rewrite(&server);
            server.restart();
            let connection = &mut server.connect();
            let () = ask(connection, "DEBUG RELOAD");
            let is_last = number + 1 == pieces.len();
            let state = if is_last { "ready" } else { "loading" };
            assert_eq!(ask::<String>(connection, "EB.INFO copy state"), state, "piece {number}");
            if !is_last {
                assert_eq!(ask::<usize>(connection, "EB.INFO copy next-piece"), number + 1);
                assert!(error(connection, "EB.EXISTS copy a").starts_with("NOTREADY"));
                let _: Value = ask(connection, "COPY copy second REPLACE");
                assert_eq!(ask::<usize>(connection, "EB.INFO second next-piece"), number + 1);
            }
        }
        assert_eq!(server.digest("copy"), digest);
        let _: Value = server.ask("DEL copy");
    }
    // The second filter of an import must be one that the first one may follow.
    let elsewhere = Server::start("");
    begin(&elsewhere, ALTERATIONS[1], &mut random, &mut now);
    let others = export(&mut elsewhere.connect());
    let seal = others.iter().position(|piece| piece[12] == 3 && piece.starts_with(b"EBBTMEM"));
    let next = seal.expect("the last piece of the current filter") + 1;
    let connection = &mut server.connect();
    for (number, piece) in others.iter().enumerate().take(next) {
        load(connection, "mixed", number, piece).expect("a piece");
    }
    let () = elsewhere.ask("EB.RESERVE hashed bloom capacity 10 SEED 8");
    let (_, hashed): (String, Vec<u8>) = elsewhere.ask("EB.SCANDUMP hashed 0");
    for other in [&others[1], &others[0], &hashed] {
        assert_eq!(load(connection, "mixed", next, other), Err("DAMAGED".to_owned()));
    }
    assert_eq!(ask::<usize>(connection, "EB.INFO mixed next-piece"), next);
    for (number, piece) in others.iter().enumerate().skip(next) {
        load(connection, "mixed", number, piece).expect("a piece");
    }
    assert_eq!(server.digest("mixed"), elsewhere.digest("seen"));
}

/// What a server got: an item, or a window.
#[derive(Debug, Clone, Copy)]
enum Sent {
    Item(u64),
    Window(u64),
}

/// Filters in memory that get what a server gets.
struct Control {
    current: Machine,
    former: Option<(Machine, u64)>,
}

fn machine(window: u64) -> Machine {
    let spec: Any =
        format!("fingerprint fpr=0.0001 window-items={window}").parse().expect("a kind");
    let options = MachineOptions::new().key_hash(KeyHash::Keyed);
    Machine::create(spec.kind().expect("a kind"), &options, 7, 1).expect("a machine")
}

impl Control {
    fn new(window: u64) -> Self {
        Self { current: machine(window), former: None }
    }

    fn apply(&mut self, sent: Sent) {
        match sent {
            Sent::Item(item) => {
                let former = self.former.as_mut().map(|(former, _)| former);
                for machine in former.into_iter().chain([&mut self.current]) {
                    let (hash, time) =
                        (machine.hash(item.to_string().as_bytes()), machine.latest());
                    let log = &mut |_| {};
                    machine.check_and_insert(hash, Since::LastSeen, time, log).expect("an insert");
                }
                let inserts = self.current.content().totals().inserts;
                self.former.take_if(|(_, window)| inserts >= *window);
            }
            Sent::Window(window) if self.former.is_none() => {
                let same = self.current.kind().parameters() == machine(window).kind().parameters();
                if !same {
                    let former = std::mem::replace(&mut self.current, machine(window));
                    self.former = Some((former, window));
                }
            }
            Sent::Window(_) => {}
        }
    }

    fn digest(&self) -> String {
        let Some((former, _)) = &self.former else {
            return format!("{:032x}", self.current.digest());
        };
        let mut both = DigestHasher::default();
        for digest in [self.current.digest(), former.digest()] {
            both.words(&[digest as u64, (digest >> 64) as u64]);
        }
        both.words(&[0]);
        format!("{:032x}", both.finish())
    }
}

/// Sends items and alterations in pipelines until the connection breaks; returns how many were
/// acknowledged.
fn write(mut connection: Connection, all: &mut Vec<Sent>, random: &mut Random) -> usize {
    let mut acknowledged = all.len();
    loop {
        let mut pipe = redis::pipe();
        for _ in 0..1 + random.below(30) {
            if random.below(30) == 0 {
                let window = 20 + random.below(60);
                pipe.cmd("EB.ALTER").arg("seen").arg("fingerprint").arg("last").arg(window);
                all.push(Sent::Window(window));
            } else {
                let item = random.below(100);
                pipe.cmd("EB.ADD").arg("seen").arg(item);
                all.push(Sent::Item(item));
            }
        }
        pipe.ignore_errors();
        match pipe.query::<Vec<Value>>(&mut connection) {
            Ok(_) => acknowledged = all.len(),
            Err(_) => return acknowledged,
        }
    }
}

#[test]
fn a_killed_server_and_its_replica_have_what_some_prefix_of_the_commands_leads_to() {
    if !is_there() {
        return;
    }
    let random = &mut Random::new(number("EBBTIDE_SEED").unwrap_or(SEED) + 5);
    let kills = number("EBBTIDE_KILLS").map_or(3, |all| all.div_ceil(10));
    for preamble in ["yes", "no"] {
        let mut server = Server::start(&format!(
            "--appendonly yes --appendfsync always --aof-use-rdb-preamble {preamble} \
             --auto-aof-rewrite-percentage 0"
        ));
        let () = server.ask("EB.RESERVE seen fingerprint last 50 fpr 0.0001 SEED 7");
        let (mut control, mut altered) = (Control::new(50), 0);
        for _ in 0..kills {
            let replica = Server::replica(&server, "--repl-diskless-load swapdb");
            server.settle(&[&replica]);
            let (connection, pid) = (server.connect(), server.pid());
            let moment = Duration::from_millis(20 + random.below(150));
            let seed = random.below(u64::MAX);
            let rewrites = random.below(2) == 0;
            let (mut all, mut acknowledged) = (Vec::new(), 0);
            thread::scope(|scope| {
                let all = &mut all;
                let writer = scope.spawn(move || write(connection, all, &mut Random::new(seed)));
                if rewrites {
                    let _: Result<Value, _> =
                        redis::cmd("BGREWRITEAOF").query(&mut server.connect());
                }
                thread::sleep(moment);
                let kill = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
                assert!(kill.expect("the command kill").success());
                acknowledged = writer.join().expect("the writer");
            });
            let () = ask(&mut replica.connect(), "REPLICAOF NO ONE");
            server.restart();
            let (digest, replicated) = (server.digest("seen"), replica.digest("seen"));
            let (mut found, mut is_replica_found) = (None, control.digest() == replicated);
            for (done, sent) in all.iter().enumerate() {
                if done >= acknowledged && control.digest() == digest && found.is_none() {
                    found = Some((done, control.former.is_some()));
                }
                if found.is_some() && is_replica_found {
                    break;
                }
                control.apply(*sent);
                is_replica_found |= control.digest() == replicated;
            }
            let at_end = control.digest() == digest;
            assert!(found.is_some() || at_end, "{acknowledged} of {} acknowledged", all.len());
            assert!(is_replica_found, "the replica has a state that never was");
            // Continue from what the server has.
            altered += u32::from(!server.ask::<String>("EB.INFO seen former").is_empty());
            let _: Value = server.ask("DEL seen");
            let () = server.ask("EB.RESERVE seen fingerprint last 50 fpr 0.0001 SEED 7");
            control = Control::new(50);
        }
        println!("{altered} of {kills} kills in the middle of an alteration");
    }
}
