//! Replicas, and replicas of replicas, have the state of the primary bit by bit: random commands
//! of all kinds in pipelines, transactions and scripts.

use crate::samples::{Commands, SAMPLES};
use crate::server::{Server, ask, error, is_there, within};
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::random::Random;
use redis::{Cmd, Connection, Pipeline, Value};

/// Commands of each filter.
const COMMANDS: u64 = 300;

/// Returns the sources of random commands: one for each sample, every second with times.
pub fn sources(seed: u64) -> Vec<Commands<'static>> {
    let sources = SAMPLES.iter().enumerate().map(|(at, sample)| {
        Commands::new(sample, format!("key:{at}"), at % 2 == 0, seed + at as u64)
    });
    sources.collect()
}

/// Sends commands: one after the other, in a pipeline, a transaction or a script. Wrong ones (such
/// as an unsupported weight) would hide here, so there must be none.
fn send(connection: &mut Connection, commands: Vec<Cmd>, way: u64) {
    match way {
        0 => commands.iter().for_each(|command| {
            let _: Value = command.query(connection).expect("a reply");
        }),
        1 | 2 => {
            let mut pipe = Pipeline::new();
            if way == 2 {
                pipe.atomic();
            }
            for command in commands {
                pipe.add_command(command);
            }
            let _: Vec<Value> = pipe.query(connection).expect("replies");
        }
        _ => {
            for command in commands {
                let mut script = redis::cmd("EVAL");
                script.arg("return redis.call(unpack(ARGV))").arg(1);
                let words: Vec<Vec<u8>> = command
                    .args_iter()
                    .map(|word| match word {
                        redis::Arg::Simple(word) => word.to_vec(),
                        _ => Vec::new(),
                    })
                    .collect();
                script.arg(&words[1]).arg(words);
                let _: Value = script.query(connection).expect("a reply of a script");
            }
        }
    }
}

/// Sends a number of random commands of all filters.
pub fn run(connection: &mut Connection, all: &mut [Commands<'_>], random: &mut Random, count: u64) {
    let mut left = count * all.len() as u64;
    while left > 0 {
        let many = (1 + random.below(30)).min(left);
        let commands = (0..many).map(|_| {
            let chosen = random.below(all.len() as u64) as usize;
            all[chosen].next()
        });
        let commands = commands.collect();
        send(connection, commands, random.below(4));
        left -= many;
    }
}

/// Creates the filters.
pub fn reserve(connection: &mut Connection, all: &[Commands<'_>]) {
    for source in all {
        let _: String = source.reserve().query(connection).expect(source.sample.name);
    }
}

/// Asserts that all filters are the same on all servers, and that they hold something.
pub fn assert_same(all: &[Commands<'_>], servers: &[&Server]) {
    for source in all {
        let digest = servers[0].digest(&source.key);
        let lsn: u64 = servers[0].ask(&format!("EB.INFO {} lsn", source.key));
        assert!(lsn > 0, "{} is empty", source.sample.name);
        for server in &servers[1..] {
            assert_eq!(server.digest(&source.key), digest, "{}", source.sample.name);
        }
    }
    let digest: String = servers[0].ask("DEBUG DIGEST");
    servers.iter().for_each(|server| assert_eq!(server.ask::<String>("DEBUG DIGEST"), digest));
}

#[test]
fn replicas_of_replicas_have_the_same_digests_and_so_have_their_own_files() {
    if !is_there() {
        return;
    }
    let files = "--appendonly yes --appendfsync no";
    let primary = Server::start(files);
    let mut replica = Server::replica(&primary, files);
    let mut second = Server::replica(&replica, files);
    let (mut all, mut random) = (sources(1), Random::new(2));
    let connection = &mut primary.connect();
    reserve(connection, &all);
    run(connection, &mut all, &mut random, scaled(COMMANDS));
    primary.settle(&[&replica, &second]);
    assert_same(&all, &[&primary, &replica, &second]);
    assert_eq!(replica.info("stats", "unexpected_error_replies"), "0");
    assert_eq!(primary.info("ebbtide", "ebbtide_records_applied"), "0");
    assert_eq!(replica.info("ebbtide", "ebbtide_records_emitted"), "0");
    for server in [&mut replica, &mut second] {
        server.restart_alone();
        assert_same(&all, &[&primary, server]);
        let _: () = server.ask("DEBUG RELOAD");
        assert_same(&all, &[&primary, server]);
    }
}

#[test]
fn a_lost_connection_ends_in_a_partial_or_a_full_synchronisation() {
    if !is_there() {
        return;
    }
    for load in ["disabled", "swapdb"] {
        let primary = Server::start("--repl-diskless-sync yes");
        let replica = Server::replica(&primary, &format!("--repl-diskless-load {load}"));
        let (mut all, mut random) = (sources(3), Random::new(4));
        let connection = &mut primary.connect();
        reserve(connection, &all);
        for round in 0..6 {
            run(connection, &mut all, &mut random, scaled(COMMANDS) / 10 + 1);
            match round % 3 {
                0 => drop(primary.ask::<Value>("CLIENT KILL TYPE replica")),
                1 => drop(primary.ask::<Value>("DEBUG CHANGE-REPL-ID")),
                _ => {}
            }
            if round % 3 == 1 {
                let _: Value = primary.ask("CLIENT KILL TYPE replica");
            }
            run(connection, &mut all, &mut random, scaled(COMMANDS) / 10 + 1);
        }
        primary.settle(&[&replica]);
        assert_same(&all, &[&primary, &replica]);
        let full: u64 = primary.info("stats", "sync_full").parse().expect("a number");
        assert!(full >= 2, "{full} full synchronisations");
    }
}

/// Rewrites the append-only file, after a rewrite that may be in progress.
pub fn rewrite(server: &Server) {
    let is_done = || {
        ["aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress"]
            .iter()
            .all(|field| server.info("persistence", field) == "0")
    };
    within("the file may be rewritten", is_done);
    let _: Value = server.ask("BGREWRITEAOF");
    within("the file is rewritten", is_done);
    assert_eq!(server.info("persistence", "aof_last_bgrewrite_status"), "ok");
}

/// A replica that was written to notices it; a full synchronisation repairs it.
#[test]
fn a_replica_that_differs_says_so_until_it_is_synchronised_in_full() {
    if !is_there() {
        return;
    }
    let primary = Server::start("");
    let mut replica =
        Server::replica(&primary, "--replica-read-only no --appendonly yes --appendfsync no");
    let () = primary.ask("EB.RESERVE seen age-partitioned last 1000");
    let () = primary.ask("EB.ADD seen a");
    primary.settle(&[&replica]);
    let before = replica.digest("seen");
    assert_eq!(replica.ask::<i64>("EB.ADD seen only-here"), 1);
    let () = primary.ask("EB.ADD seen b");
    primary.settle(&[&replica]);
    assert!(replica.error("EB.EXISTS seen a").starts_with("DIVERGED"));
    assert_eq!(replica.ask::<String>("EB.INFO seen state"), "diverged");
    assert_eq!(replica.info("ebbtide", "ebbtide_diverged"), "1");
    assert_ne!(replica.info("stats", "unexpected_error_replies"), "0");
    // The mark is saved, copied, and written to the append-only file in both its forms.
    let () = replica.ask("DEBUG RELOAD");
    let () = replica.ask("COPY seen copied");
    for key in ["seen", "copied"] {
        assert!(replica.error(&format!("EB.EXISTS {key} a")).starts_with("DIVERGED"));
    }
    let () = replica.ask("CONFIG SET aof-use-rdb-preamble no");
    rewrite(&replica);
    let () = replica.ask("DEBUG LOADAOF");
    assert!(replica.error("EB.EXISTS seen a").starts_with("DIVERGED"));
    let () = primary.ask("DEBUG CHANGE-REPL-ID");
    let _: Value = primary.ask("CLIENT KILL TYPE replica");
    primary.settle(&[&replica]);
    assert_ne!(replica.digest("seen"), before);
    assert_eq!(replica.digest("seen"), primary.digest("seen"));
    assert_eq!(replica.info("ebbtide", "ebbtide_diverged"), "0");
    // The server begins a new file after the synchronisation; the old one counts until it is there.
    rewrite(&replica);
    replica.restart_alone();
    assert_eq!(replica.digest("seen"), primary.digest("seen"));
}

/// Returns the effects of some commands, as the append-only file has them: LSN and records.
fn effects(server: &Server) -> Vec<(u64, Vec<u8>)> {
    let folder = server.home().join("appendonlydir");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("a file");
        let mut at = 0;
        while let Some(next) = find(&bytes[at..], b"EB.APPLY\r\n") {
            at += next + 10;
            let mut words = Vec::new();
            for _ in 0..3 {
                let line = at + find(&bytes[at..], b"\r\n").expect("a length");
                let text = std::str::from_utf8(&bytes[at + 1..line]).expect("digits");
                let length: usize = text.parse().expect("a length");
                words.push(bytes[line + 2..line + 2 + length].to_vec());
                at = line + 4 + length;
            }
            let lsn = String::from_utf8(words[1].clone()).expect("text").parse();
            found.push((lsn.expect("a number"), words.remove(2)));
        }
    }
    found.sort();
    found
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[test]
fn effects_of_an_ordinary_client_are_applied_or_change_nothing() {
    if !is_there() {
        return;
    }
    let source = Server::start("--appendonly yes --appendfsync always");
    let () = source.ask("EB.RESERVE seen counting capacity 1000");
    let () = source.ask("EB.RESERVE other counting capacity 1000");
    let connection = &mut source.connect();
    for item in 0..5 {
        let () = ask(connection, &format!("EB.MADD seen {item} {item}x"));
    }
    let effects = effects(&source);
    assert_eq!(effects.len(), 5);
    let target = Server::start("--appendonly yes --appendfsync always");
    let (_, first): (String, Vec<u8>) = source.ask("EB.SCANDUMP seen 0");
    let identity = &first[find(&first, b"ebbtide identity").expect("the identity")..];
    let mut create = redis::cmd("EB.CREATE");
    let target_connection = &mut target.connect();
    let _: String = create.arg("seen").arg(identity).query(target_connection).expect("an identity");
    assert!(error(target_connection, "EB.CREATE seen x").starts_with("EXISTS"));
    assert!(error(target_connection, "EB.CREATE new x").starts_with("DAMAGED"));
    let apply = |connection: &mut Connection, key: &str, lsn: u64, records: &[u8]| {
        let mut apply = redis::cmd("EB.APPLY");
        let reply: Result<String, _> = apply.arg(key).arg(lsn).arg(records).query(connection);
        reply.map_err(|error| error.code().unwrap_or("ERR").to_owned())
    };
    for (lsn, records) in &effects {
        let before = target.digest("seen");
        let mut flipped = records.clone();
        flipped[33] ^= 4;
        for (lsn, wrong) in [
            (lsn + 1, records.clone()),
            (*lsn, flipped),
            (*lsn, records[1..].to_vec()),
            (*lsn, Vec::new()),
            (*lsn, [&records[32..], &records[..32]].concat()),
        ] {
            let refused = apply(target_connection, "seen", lsn, &wrong).expect_err("it is wrong");
            assert!(["DIVERGED", "PARAMETER"].contains(&&*refused), "{refused}");
            assert_eq!(target.digest("seen"), before, "nothing has changed");
        }
        assert_eq!(apply(connection, "other", *lsn, records), Err("DIVERGED".to_owned()));
        assert_eq!(apply(target_connection, "none", *lsn, records), Err("NOTFOUND".to_owned()));
        apply(target_connection, "seen", *lsn, records).expect("the next records");
        let again = apply(target_connection, "seen", *lsn, records);
        assert_eq!(again, Err("DIVERGED".to_owned()), "told twice");
    }
    assert_eq!(target.digest("seen"), source.digest("seen"));
    // Effects of effects: the target's own file has them.
    let () = ask(target_connection, "DEBUG LOADAOF");
    assert_eq!(target.digest("seen"), source.digest("seen"));
    assert_eq!(target.info("ebbtide", "ebbtide_diverged"), "0");
}

#[test]
fn effects_that_are_together_are_applied_as_far_as_they_are_right() {
    if !is_there() {
        return;
    }
    let server = Server::start("--appendonly yes --appendfsync always");
    let () = server.ask("EB.RESERVE seen counting capacity 1000");
    for item in 0..3 {
        let () = server.ask(&format!("EB.MADD seen {item} {item}x"));
    }
    let effects = effects(&server);
    let digest = server.digest("seen");
    let (_, first): (String, Vec<u8>) = server.ask("EB.SCANDUMP seen 0");
    let identity = &first[find(&first, b"ebbtide identity").expect("the identity")..];
    let connection = &mut server.connect();
    let mut send = |name: &str, arguments: &[&[u8]]| {
        let mut command = redis::cmd(name);
        command.arg("copy").arg(arguments);
        let reply = command.query::<String>(connection);
        reply.map_err(|error| error.code().unwrap_or("ERR").to_owned())
    };
    let [(_, one), (second, two), (third, three)] = &effects[..] else { panic!("three effects") };
    let [second, third] = [second, third].map(|lsn| lsn.to_string().into_bytes());
    assert_eq!(send("EB.CREATE", &[identity, two]), Err("DIVERGED".to_owned()));
    assert_eq!(send("EB.CREATE", &[identity, &one[1..]]), Err("PARAMETER".to_owned()));
    assert_eq!(server.ask::<i64>("EXISTS copy"), 0, "nothing was created");
    assert_eq!(send("EB.CREATE", &[identity, one]), Ok("OK".to_owned()));
    // The second part is wrong, then the first one, then none.
    let wrong = send("EB.APPLY", &[&second, two, &second, three]);
    assert_eq!(wrong, Err("DIVERGED".to_owned()));
    let wrong = send("EB.APPLY", &[&second, two, &third, three]);
    assert_eq!(wrong, Err("DIVERGED".to_owned()), "the first part is there");
    assert_ne!(server.digest("copy"), digest, "and nothing behind what was wrong");
    assert_eq!(send("EB.APPLY", &[&third, three]), Ok("OK".to_owned()));
    assert_eq!(server.digest("copy"), digest);
    // Its own file has what was applied.
    let () = server.ask("DEBUG LOADAOF");
    assert_eq!(server.digest("copy"), digest);
    assert_eq!(server.info("ebbtide", "ebbtide_diverged"), "0");
}

/// RedisBloom: `test_cf_loadchunk_replicates_to_replica`; valkey-bloom:
/// `test_replication_behavior`.
#[test]
fn imported_pieces_reach_the_replica_also_if_it_joins_halfway() {
    if !is_there() {
        return;
    }
    let primary = Server::start("");
    let first = Server::replica(&primary, "");
    let connection = &mut primary.connect();
    let () = ask(connection, "EB.RESERVE big bloom capacity 2e6 STRIPES 3");
    for from in 0..50 {
        let mut add = redis::cmd("EB.MADD");
        add.arg("big").arg((from * 100..from * 100 + 100).collect::<Vec<u32>>());
        let _: Vec<i64> = add.query(connection).expect("replies");
    }
    let (mut cursor, mut number, mut second) = ("0".to_owned(), 0, None);
    loop {
        let mut dump = redis::cmd("EB.SCANDUMP");
        let (next, piece): (String, Vec<u8>) =
            dump.arg("big").arg(&cursor).query(connection).expect("a piece");
        let mut load = redis::cmd("EB.LOADCHUNK");
        let _: String = load.arg("copy").arg(number).arg(piece).query(connection).expect("a piece");
        if number == 1 {
            let joining = Server::replica(&primary, "");
            primary.settle(&[&joining]);
            second = Some(joining);
        }
        if next == "0" {
            break;
        }
        (cursor, number) = (next, number + 1);
    }
    let second = second.expect("there are several pieces");
    primary.settle(&[&first, &second]);
    for server in [&first, &second] {
        assert_eq!(server.digest("copy"), primary.digest("big"));
    }
}
