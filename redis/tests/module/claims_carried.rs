//! Claims on replicas, in files, in copies and after kills: whoever holds one holds it there, and
//! nobody else does.

use crate::claims::{LONG, RESERVE, assert_lost, claim, left, own};
use crate::replicas::{reserve, rewrite, sources};
use crate::samples::{Commands, SAMPLES};
use crate::server::{Server, ask, command, error, is_there, within};
use ebbtide_core::Parameters;
use ebbtide_core::claims::{Claimant, LeaseTime};
use ebbtide_core::kinds::registry;
use ebbtide_core::machine::{Machine, MachineOptions};
use ebbtide_testkit::environment::{SEED, number, scaled};
use ebbtide_testkit::random::Random;
use redis::{Connection, RedisError, Value};
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Claims of each filter that are taken, and then confirmed, renewed, released or kept, beside
/// other commands.
fn run(connection: &mut Connection, all: &mut [Commands<'_>], random: &mut Random) {
    for round in 0..scaled(60) {
        for source in &mut *all {
            let _: Value = source.next().query(connection).expect(source.sample.name);
            let (key, item) = (source.key.clone(), format!("claimed {}", random.below(40)));
            // Some leases end while the test runs.
            let lease = if random.below(4) == 0 { 5 } else { LONG };
            let mut claim = redis::cmd("EB.CLAIM");
            claim.arg(&key).arg(&item).arg(lease);
            let (word, token): (String, u64) = claim.query(connection).expect(source.sample.name);
            let (name, lease) = match random.below(4) {
                _ if word != "YOURS" => continue,
                0 => ("EB.CONFIRM", None),
                1 => ("EB.RELEASE", None),
                2 => ("EB.EXTEND", Some(2 * LONG)),
                _ => continue,
            };
            let mut end = redis::cmd(name);
            end.arg(&key).arg(&item).arg(token).arg(lease);
            // A short lease may be over.
            if let Err(error) = end.query::<Value>(connection) {
                assert_eq!(error.code(), Some("LEASELOST"), "{round}: {error}");
            }
        }
    }
}

#[test]
fn replicas_files_and_copies_have_the_claims_of_filters_of_every_kind() {
    if !is_there() {
        return;
    }
    let primary = Server::start("--appendonly yes --appendfsync no");
    let (replica, elsewhere) = (Server::replica(&primary, ""), Server::start(""));
    let (mut all, mut random) = (sources(5), Random::new(6));
    let connection = &mut primary.connect();
    reserve(connection, &all);
    run(connection, &mut all, &mut random);
    primary.settle(&[&replica]);
    let digests = |server: &Server| -> Vec<String> {
        (0..SAMPLES.len()).map(|at| server.digest(&format!("key:{at}"))).collect()
    };
    let before = digests(&primary);
    assert_eq!(digests(&replica), before, "the replica");
    assert_eq!(replica.info("stats", "unexpected_error_replies"), "0");
    assert_eq!(replica.info("ebbtide", "ebbtide_records_emitted"), "0");
    let () = ask(connection, "DEBUG LOADAOF");
    assert_eq!(digests(&primary), before, "the file of effects");
    let () = ask(connection, "DEBUG RELOAD");
    assert_eq!(digests(&primary), before, "a snapshot");
    for preamble in ["yes", "no"] {
        let () = ask(connection, &format!("CONFIG SET aof-use-rdb-preamble {preamble}"));
        rewrite(&primary);
        let () = ask(connection, "DEBUG LOADAOF");
        assert_eq!(digests(&primary), before, "a rewritten file, preamble {preamble}");
    }
    for (at, sample) in SAMPLES.iter().enumerate() {
        let key = format!("key:{at}");
        let payload: Vec<u8> = redis::cmd("DUMP").arg(&key).query(connection).expect("a payload");
        let mut restore = redis::cmd("RESTORE");
        let to = &mut elsewhere.connect();
        let () = restore.arg(&key).arg(0).arg(payload).query(to).expect("a value");
        let () = ask(connection, &format!("COPY {key} copy DB 1"));
        let () = ask(connection, "SELECT 1");
        let copied: String = ask(connection, "EB.DEBUG DIGEST copy");
        assert_eq!(copied, before[at], "{}", sample.name);
        let () = ask(connection, "FLUSHDB");
        let () = ask(connection, "SELECT 0");
    }
    assert_eq!(digests(&elsewhere), before, "elsewhere");
    // All of them continue.
    run(connection, &mut all, &mut random);
    primary.settle(&[&replica]);
    assert_eq!(digests(&replica), digests(&primary));
}

#[test]
fn a_promoted_replica_holds_the_claims_and_gives_no_token_that_it_missed() {
    if !is_there() {
        return;
    }
    let primary = Server::start("");
    let replica = Server::replica(&primary, "");
    let connection = &mut primary.connect();
    let () = ask(connection, RESERVE);
    let held = own(connection, "a", LONG);
    let (confirmed, released) = (own(connection, "b", LONG), own(connection, "c", LONG));
    let () = ask(connection, &format!("EB.CONFIRM seen b {confirmed}"));
    let () = ask(connection, &format!("EB.RELEASE seen c {released}"));
    primary.settle(&[&replica]);
    assert_eq!(replica.ask::<i64>("EB.INFO seen claims"), 1);
    let () = replica.ask("REPLICAOF NO ONE");
    // What the replica misses: other items, and one that both give.
    let mut missed = own(connection, "d", LONG);
    for item in 0..100 {
        missed = own(connection, &format!("missed-{item}"), LONG).max(missed);
    }
    let connection = &mut replica.connect();
    assert!(left(&replica, "a") > LONG - 60_000);
    assert_eq!(claim(connection, "b", LONG), ("SEEN".to_owned(), 0));
    let tokens = ["c", "d", "e"].map(|item| own(connection, item, LONG));
    assert!(tokens[0] > missed && tokens.is_sorted(), "{tokens:?} after {missed}");
    assert_lost(connection, "c", released);
    assert_lost(connection, "d", missed - 100);
    let () = ask(connection, &format!("EB.CONFIRM seen a {held}"));
    let () = ask(connection, &format!("EB.CONFIRM seen d {}", tokens[1]));
    assert_eq!(claim(connection, "a", LONG).0, "SEEN");
}

/// Claims an item for a long time.
fn own_of(server: &Server, item: &str) -> u64 {
    own(&mut server.connect(), item, LONG)
}

/// Returns a server that was the primary and is a replica, with the filter still in its memory, and
/// the one that has taken its place; and the token that the first one gave.
fn taken_over() -> (Server, Server, u64) {
    let first = Server::start("");
    let second = Server::replica(&first, "");
    let () = first.ask(RESERVE);
    let token = own_of(&first, "a");
    first.settle(&[&second]);
    let () = first.ask(&format!("FAILOVER TO 127.0.0.1 {}", second.port));
    within("the replica takes over", || {
        second.info("replication", "role") == "master"
            && first.info("replication", "master_link_status") == "up"
    });
    assert_eq!(second.info("stats", "sync_full"), "0", "the filter was not loaded again");
    (first, second, token)
}

#[test]
fn a_server_that_is_the_primary_again_gives_no_token_that_it_missed_as_a_replica() {
    if !is_there() {
        return;
    }
    let (first, second, mut last) = taken_over();
    for item in ["b", "c"] {
        let token = own_of(&second, item);
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    second.settle(&[&first]);
    let () = first.ask("REPLICAOF NO ONE");
    let missed = own_of(&second, "d");
    let token = own_of(&first, "e");
    assert!(token > missed, "{token} after {missed}");
    // It knows all tokens from here on.
    assert_eq!(own_of(&first, "f"), token + 1);
}

#[test]
fn a_server_that_got_no_claim_as_a_replica_gives_no_token_that_it_missed() {
    if !is_there() {
        return;
    }
    let (first, second, given) = taken_over();
    let () = first.ask("REPLICAOF NO ONE");
    let missed = own_of(&second, "b");
    let token = own_of(&first, "c");
    assert!(missed > given && token > missed, "{token} after {missed} after {given}");
    assert_eq!(own_of(&first, "d"), token + 1);
}

#[test]
fn claims_are_held_over_a_restart_with_a_snapshot_and_with_an_append_only_file() {
    if !is_there() {
        return;
    }
    for settings in ["", "--appendonly yes", "--appendonly yes --aof-use-rdb-preamble no"] {
        let mut server = Server::start(settings);
        let connection = &mut server.connect();
        let () = ask(connection, RESERVE);
        let token = own(connection, "a", LONG);
        let () = ask(connection, &format!("EB.EXTEND seen a {token} {}", 2 * LONG));
        let short = own(connection, "b", 200);
        if settings.is_empty() {
            let () = ask(connection, "SAVE");
        } else {
            rewrite(&server);
        }
        let digest = server.digest("seen");
        server.restart();
        assert_eq!(server.digest("seen"), digest, "{settings}");
        assert!((LONG..=2 * LONG).contains(&left(&server, "a")), "{settings}");
        within("a lease ends after a restart", || {
            let (word, token) = claim(&mut server.connect(), "b", LONG);
            assert!(word == "INPROGRESS" || token > short, "{word} {token}");
            word == "YOURS"
        });
        let connection = &mut server.connect();
        assert_lost(connection, "b", short);
        let () = ask(connection, &format!("EB.CONFIRM seen a {token}"));
        assert_eq!(claim(connection, "a", LONG).0, "SEEN", "{settings}");
    }
}

/// Adds the pieces of a filter.
fn import(connection: &mut Connection, pieces: &[Vec<u8>]) {
    for (number, piece) in pieces.iter().enumerate() {
        let mut load = redis::cmd("EB.LOADCHUNK");
        let () = load.arg("seen").arg(number).arg(piece).query(connection).expect("a piece");
    }
}

/// As after a failover to a server whose clock is behind, or a restart after it was set back.
#[test]
fn a_lease_from_a_clock_that_was_hours_ahead_ends_after_its_length() {
    if !is_there() {
        return;
    }
    let server = Server::start("");
    let connection = &mut server.connect();
    let parameters = Parameters::new().with("capacity", 1000);
    let kind = registry::build("bloom", &parameters).expect("a kind");
    let mut machine = Machine::create(kind, &MachineOptions::new(), 7, 1).expect("a machine");
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
    let ahead = wall as u64 + 3 * 3_600_000_000;
    let mut own_there = |item: &str, lease: u64| {
        let lease = LeaseTime::new(Duration::from_millis(lease)).expect("a lease");
        let claimant =
            Claimant { hash: machine.hash(item.as_bytes()), now: ahead, lease, above: 0 };
        let time = machine.latest();
        machine.claim(&claimant, time, &mut |_| {}).expect("room");
    };
    own_there("short", 300);
    own_there("long", LONG);
    let pieces: Vec<_> = machine.pieces().collect();
    import(connection, &pieces);
    let first = left(&server, "long");
    assert!((LONG - 60_000..=LONG).contains(&first), "{first}");
    within("the lease is over", || match claim(&mut server.connect(), "short", LONG) {
        (word, left) if word == "INPROGRESS" => {
            assert!(left <= 300, "{left}");
            false
        }
        (word, _) => word == "YOURS",
    });
    assert!(left(&server, "long") < first);
    assert_eq!(ask::<i64>(connection, "EB.INFO seen claims"), 2);
    assert!(ask::<u64>(connection, "EB.INFO seen oldest-claim") < 60_000);
}

#[test]
fn as_many_claims_as_a_filter_holds_are_saved_exported_and_loaded_in_pieces() {
    if !is_there() {
        return;
    }
    const MOST: u64 = 1 << 16;
    let mut server = Server::start("--appendonly yes --appendfsync no --aof-use-rdb-preamble no");
    let connection = &mut server.connect();
    let () = ask(connection, RESERVE);
    let empty: u64 = ask(connection, "EB.INFO seen memory");
    let mut last = 0;
    for from in (0..MOST).step_by(4096) {
        let mut pipe = redis::pipe();
        for item in from..from + 4096 {
            pipe.cmd("EB.CLAIM").arg("seen").arg(item).arg(LONG);
        }
        let replies: Vec<(String, u64)> = pipe.query(connection).expect("replies");
        assert!(replies.iter().all(|(word, _)| word == "YOURS"), "from {from}");
        last = replies[4095].1;
    }
    assert_eq!(ask::<u64>(connection, "EB.INFO seen claims"), MOST);
    let memory: u64 = ask(connection, "EB.INFO seen memory");
    assert!((2 << 20..8 << 20).contains(&(memory - empty)), "{empty}, then {memory}");
    let full = error(connection, "EB.CLAIM seen more 1000");
    assert!(full.starts_with("CLAIMSFULL") && full.contains("65536"), "{full}");
    assert_eq!(claim(connection, "5", LONG).0, "INPROGRESS");
    let () = ask(connection, &format!("EB.RELEASE seen {} {last}", MOST - 1));
    assert!(own(connection, "more", LONG) > last);
    let digest = server.digest("seen");
    let (mut cursor, mut pieces) = ("0".to_owned(), Vec::new());
    loop {
        let words = format!("EB.SCANDUMP seen {cursor}");
        let (next, piece): (String, Vec<u8>) = ask(connection, &words);
        pieces.push(piece);
        if next == "0" {
            break;
        }
        cursor = next;
    }
    assert!(pieces.len() >= 6, "the first, four of claims, the last: {}", pieces.len());
    let () = ask(connection, "DEBUG RELOAD");
    assert_eq!(server.digest("seen"), digest, "a snapshot");
    rewrite(&server);
    server.restart();
    assert_eq!(server.digest("seen"), digest, "a rewritten file");
    // A restart between two pieces of claims.
    let connection = &mut server.connect();
    let () = ask(connection, "DEL seen");
    import(connection, &pieces[..3]);
    rewrite(&server);
    server.restart();
    let connection = &mut server.connect();
    for (number, piece) in pieces.iter().enumerate().skip(3) {
        let mut load = redis::cmd("EB.LOADCHUNK");
        let () = load.arg("seen").arg(number).arg(piece).query(connection).expect("a piece");
    }
    assert_eq!(server.digest("seen"), digest, "pieces");
    assert_eq!(ask::<u64>(connection, "EB.INFO seen claims"), MOST);
}

/// How a worker's claim has ended, as far as the worker knows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Kept,
    ConfirmSent,
    Confirmed,
    ReleaseSent,
    Released,
}

/// A claim that a worker got.
#[derive(Debug, Clone, Copy)]
struct Got {
    item: u64,
    token: u64,
    end: End,
}

/// Claims items, and confirms, releases or keeps them, until the connection breaks.
fn work(mut connection: Connection, items: (u64, u64), random: &mut Random) -> Vec<Got> {
    let mut all = Vec::new();
    loop {
        let item = items.0 + random.below(items.1);
        let words = format!("EB.CLAIM seen {item} {LONG}");
        let reply: Result<(String, u64), RedisError> = command(&words).query(&mut connection);
        let Ok((word, token)) = reply else { return all };
        if word != "YOURS" {
            continue;
        }
        let mut got = Got { item, token, end: End::Kept };
        let (name, sent, done) = match random.below(3) {
            0 => ("CONFIRM", End::ConfirmSent, End::Confirmed),
            1 => ("RELEASE", End::ReleaseSent, End::Released),
            _ => {
                all.push(got);
                continue;
            }
        };
        let words = format!("EB.{name} seen {item} {token}");
        let reply: Result<Value, RedisError> = command(&words).query(&mut connection);
        if let Err(error) = &reply {
            assert_ne!(error.code(), Some("LEASELOST"), "{got:?}");
        }
        got.end = if reply.is_ok() { done } else { sent };
        all.push(got);
        if reply.is_err() {
            return all;
        }
    }
}

/// Asserts that nobody got an item that another worker had, and that each is, after the kill, as
/// its last owner left it.
fn assert_kept(server: &Server, items: (u64, u64), all: &[Got]) {
    let connection = &mut server.connect();
    let mut by_item: BTreeMap<u64, Vec<Got>> = BTreeMap::new();
    all.iter().for_each(|got| by_item.entry(got.item).or_default().push(*got));
    let greatest = all.iter().map(|got| got.token).max().unwrap_or(0);
    for item in items.0..items.0 + items.1 {
        let mut owners = by_item.remove(&item).unwrap_or_default();
        owners.sort_unstable_by_key(|got| got.token);
        for pair in owners.windows(2) {
            assert!(pair[0].token < pair[1].token, "{pair:?}");
            let is_free = [End::Released, End::ReleaseSent].contains(&pair[0].end);
            assert!(is_free, "two had it: {pair:?}");
        }
        let (word, token) = claim(connection, &item.to_string(), LONG);
        let last = owners.last();
        let allowed: &[&str] = match last.map(|got| got.end) {
            Some(End::Confirmed) => &["SEEN"],
            Some(End::ConfirmSent) => &["SEEN", "INPROGRESS"],
            Some(End::Kept) => &["INPROGRESS"],
            // A claim whose reply did not arrive may have been given.
            Some(End::Released | End::ReleaseSent) | None => &["YOURS", "INPROGRESS"],
        };
        assert!(allowed.contains(&word.as_str()), "{word}: {owners:?}");
        if word == "YOURS" {
            assert!(token > greatest, "{token} after {greatest}");
        }
        let Some(&Got { token, end, .. }) = last else { continue };
        if word == "INPROGRESS" && [End::Kept, End::ConfirmSent].contains(&end) {
            let () = ask(connection, &format!("EB.CONFIRM seen {item} {token}"));
            assert_eq!(claim(connection, &item.to_string(), LONG).0, "SEEN");
        } else if end == End::Released {
            assert_lost(connection, &item.to_string(), token);
        }
    }
}

#[test]
fn a_killed_server_gives_no_item_to_a_second_worker_and_forgets_no_confirmed_one() {
    if !is_there() {
        return;
    }
    const ITEMS: u64 = 40;
    let random = &mut Random::new(number("EBBTIDE_SEED").unwrap_or(SEED) + 7);
    let kills = number("EBBTIDE_KILLS").map_or(3, |all| all.div_ceil(10));
    let mut acknowledged = 0;
    for preamble in ["yes", "no"] {
        let mut server = Server::start(&format!(
            "--appendonly yes --appendfsync always --aof-use-rdb-preamble {preamble} \
             --auto-aof-rewrite-percentage 0"
        ));
        let () = server.ask(RESERVE);
        for kill in 0..kills {
            let items = (kill * ITEMS, ITEMS);
            let moment = Duration::from_millis(20 + random.below(200));
            let all: Vec<Got> = thread::scope(|scope| {
                let workers = (0..4).map(|_| {
                    let (connection, seed) = (server.connect(), random.below(u64::MAX));
                    scope.spawn(move || work(connection, items, &mut Random::new(seed)))
                });
                let workers: Vec<_> = workers.collect();
                if random.below(2) == 0 {
                    let _: Value = server.ask("BGREWRITEAOF");
                }
                thread::sleep(moment);
                server.kill();
                workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
            });
            acknowledged += all.len();
            server.restart();
            assert_kept(&server, items, &all);
        }
    }
    assert!(acknowledged > 0, "the servers were killed before anything happened");
}
