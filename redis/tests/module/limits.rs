//! What a client may not exceed, whichever command it uses, and that replicas and files are never
//! refused.

use crate::server::{Server, ask, command, is_there};
use ebbtide_core::kind::{MOST_COUNT, MOST_WEIGHT};
use ebbtide_core::kinds::registry;
use ebbtide_core::machine::{Logged, Machine, MachineOptions};
use ebbtide_core::{Parameters, Since};
use redis::{Connection, RedisError};

/// The keys for which `machine` is made: 2.7 MiB, in several chunks.
const KEYS: u64 = 100_000;

/// Returns a filter in memory, with its records.
fn machine(parameters: &Parameters, items: u64) -> (Machine, Vec<Logged>) {
    let kind = registry::build("counting", parameters).expect("a kind");
    let options = MachineOptions::new().stripes(1);
    let mut machine = Machine::create(kind, &options, 7, 4711).expect("a machine");
    let mut records = Vec::new();
    for item in 0..items {
        let (hash, now) = (machine.hash(&item.to_le_bytes()), machine.latest());
        let log = &mut |record| records.push(record);
        machine.check_and_insert(hash, Since::LastSeen, now, log).expect("an insert");
    }
    (machine, records)
}

fn large() -> (Machine, Vec<Logged>) {
    machine(&Parameters::new().with("capacity", KEYS).with("counter-bits", 16), 1000)
}

/// Returns the reply to a command with bytes, or the code and text of its error.
fn send(connection: &mut Connection, words: &str, bytes: &[u8]) -> Result<String, String> {
    let replied: Result<String, RedisError> = command(words).arg(bytes).query(connection);
    replied.map_err(|error| {
        format!("{} {}", error.code().unwrap_or("ERR"), error.detail().unwrap_or(""))
    })
}

/// Returns the bytes that the server uses now.
fn used(server: &Server) -> u64 {
    server.info("memory", "used_memory").parse().expect("bytes")
}

fn limit(server: &Server, bytes: u64) {
    let () = server.ask(&format!("CONFIG SET maxmemory {bytes}"));
}

#[test]
fn no_command_of_a_client_creates_a_filter_above_the_largest_one() {
    if !is_there() {
        return;
    }
    let server = Server::start("--ebbtide.max-filter-bytes 1mb");
    let (machine, _) = large();
    assert!(machine.planned_bytes() > 2 << 20, "{}", machine.planned_bytes());
    let first = machine.pieces().next().expect("a piece");
    let connection = &mut server.connect();
    for (words, bytes) in [("EB.CREATE seen", machine.identity()), ("EB.LOADCHUNK seen 0", first)] {
        let refused = send(connection, words, &bytes).expect_err(words);
        assert!(refused.starts_with("TOOLARGE"), "{words}: {refused}");
        let planned = machine.planned_bytes().to_string();
        assert!(refused.contains(&planned), "{words}: {refused}, planned {planned}");
        assert!(refused.contains("ebbtide.max-filter-bytes"), "{words}: {refused}");
        assert_eq!(ask::<i64>(connection, "EXISTS seen"), 0, "{words}");
        let () = ask(connection, "CONFIG SET ebbtide.max-filter-bytes 8mb");
        assert_eq!(send(connection, words, &bytes).as_deref(), Ok("OK"), "{words}");
        let () = ask(connection, "DEL seen");
        let () = ask(connection, "CONFIG SET ebbtide.max-filter-bytes 1mb");
    }
}

#[test]
fn no_command_of_a_client_takes_more_memory_than_the_server_may_use() {
    if !is_there() {
        return;
    }
    let server = Server::start("");
    let (machine, records) = large();
    let pieces: Vec<_> = machine.pieces().collect();
    assert!(pieces.len() > 4, "{}", pieces.len());
    let connection = &mut server.connect();
    limit(&server, used(&server) + (1 << 20));
    for (words, bytes) in
        [("EB.CREATE seen", machine.identity()), ("EB.LOADCHUNK seen 0", pieces[0].clone())]
    {
        let refused = send(connection, words, &bytes).expect_err(words);
        assert!(refused.starts_with("TOOLARGE") && refused.contains("maxmemory"), "{refused}");
        assert_eq!(ask::<i64>(connection, "EXISTS seen"), 0, "{words}");
    }
    limit(&server, 0);
    assert!(send(connection, "EB.CREATE created", &machine.identity()).is_ok());
    assert!(send(connection, "EB.LOADCHUNK loaded 0", &pieces[0]).is_ok());
    limit(&server, 1 << 20);
    let refused = send(connection, "EB.LOADCHUNK loaded 1", &pieces[1]).expect_err("a piece");
    assert!(refused.starts_with("OOM") && refused.contains("maxmemory"), "{refused}");
    let refused = send(connection, "EB.APPLY created 1", &records[0].record).expect_err("records");
    assert!(refused.starts_with("OOM"), "{refused}");
    assert_eq!(ask::<i64>(connection, "EB.INFO loaded next-piece"), 1);
    assert_eq!(ask::<i64>(connection, "EB.INFO created lsn"), 0);
    // Both continue where they were.
    limit(&server, 0);
    for (number, piece) in pieces.iter().enumerate().skip(1) {
        assert!(send(connection, &format!("EB.LOADCHUNK loaded {number}"), piece).is_ok());
    }
    for record in &records {
        let words = format!("EB.APPLY created {}", record.lsn);
        assert!(send(connection, &words, &record.record).is_ok(), "{words}");
    }
    let digest = format!("{:032x}", machine.digest());
    assert_eq!((server.digest("loaded"), server.digest("created")), (digest.clone(), digest));
}

#[test]
fn a_replica_and_a_restart_take_what_they_would_refuse_to_a_client() {
    if !is_there() {
        return;
    }
    let mut primary = Server::start("--appendonly yes --appendfsync no --aof-use-rdb-preamble no");
    let small = "--maxmemory 1mb --maxmemory-policy noeviction";
    let lower = "--ebbtide.max-filter-bytes 4kb --ebbtide.max-command-records 1";
    let replica = Server::replica(&primary, &format!("{small} {lower}"));
    let (machine, _) = large();
    let connection = &mut primary.connect();
    let () = ask(connection, "EB.RESERVE reserved counting capacity 100k");
    let () = ask(connection, "EB.MADD reserved a b c d e f g");
    assert!(send(connection, "EB.CREATE created", &machine.identity()).is_ok());
    let () = ask(connection, "EB.MADD created a b c d e f g");
    let load = |connection: &mut Connection, key: &str| {
        for (number, piece) in machine.pieces().enumerate() {
            assert!(send(connection, &format!("EB.LOADCHUNK {key} {number}"), &piece).is_ok());
        }
    };
    load(connection, "loaded");
    primary.settle(&[&replica]);
    let keys = ["reserved", "created", "loaded"];
    let digests = |server: &Server| keys.map(|key| server.digest(key));
    let before = digests(&primary);
    assert_eq!(digests(&replica), before);
    assert_eq!(replica.info("ebbtide", "ebbtide_diverged"), "0");
    // The same from a file of effects, and from one that was rewritten.
    for rewritten in [false, true] {
        if rewritten {
            crate::replicas::rewrite(&primary);
        }
        primary.restart_with(&format!("{small} {lower}"));
        assert_eq!(digests(&primary), before, "rewritten: {rewritten}");
    }
    let connection = &mut primary.connect();
    let refused = send(connection, "EB.CREATE new", &machine.identity()).expect_err("a client");
    assert!(refused.starts_with("TOOLARGE"), "{refused}");
}

/// Returns the records that the server has emitted.
fn emitted(server: &Server) -> u64 {
    server.info("ebbtide", "ebbtide_records_emitted").parse().expect("a number")
}

#[test]
fn a_command_that_needs_more_records_than_it_may_changes_nothing() {
    if !is_there() {
        return;
    }
    let server = Server::start("");
    let connection = &mut server.connect();
    let () = ask(connection, "EB.RESERVE counts spectral capacity 100");
    let () = ask(connection, "EB.RESERVE seen bloom capacity 100");
    let refused = |connection: &mut Connection, words: &str| {
        let before = emitted(&server);
        let error = crate::server::error(connection, words);
        assert!(error.starts_with("TOOLARGE"), "{words}: {error}");
        assert!(error.contains("ebbtide.max-command-records"), "{words}: {error}");
        assert_eq!(emitted(&server), before, "{words}");
    };
    // By default four of the greatest counts, of 65,536 records each.
    refused(connection, &format!("EB.INSERT counts TIMES {MOST_COUNT} ITEMS a b c d e"));
    let () = ask(connection, "CONFIG SET ebbtide.max-command-records 2");
    let three = 2 * u64::from(MOST_WEIGHT) + 1;
    for words in [
        &format!("EB.INSERT counts TIMES {three} ITEMS a"),
        &format!("EB.INSERT counts TIMES {} ITEMS a b", MOST_WEIGHT + 1),
        &format!("EB.INSERT counts TIMES {} TIMED 1 a 2 b", MOST_WEIGHT + 1),
        &format!("EB.DEL counts a TIMES {three}"),
        "EB.MADD seen a b c",
        "EB.MADDNX seen a b c",
        "EB.INSERT seen ITEMS a b c",
        "EB.INSERT seen NX TIMED 1 a 2 b 3 c",
    ] {
        refused(connection, words);
    }
    assert_eq!(ask::<Vec<f64>>(connection, "EB.COUNT counts a b"), [0.0, 0.0]);
    assert_eq!(ask::<Vec<i64>>(connection, "EB.MEXISTS seen a b c"), [0, 0, 0]);
    // As many as the setting says are taken.
    let two = 2 * u64::from(MOST_WEIGHT);
    assert_eq!(ask::<Vec<i64>>(connection, &format!("EB.INSERT counts TIMES {two} ITEMS a")), [1]);
    assert_eq!(ask::<Vec<f64>>(connection, "EB.COUNT counts a"), [two as f64]);
    assert_eq!(ask::<i64>(connection, &format!("EB.DEL counts a TIMES {two}")), 1);
    assert_eq!(ask::<Vec<i64>>(connection, "EB.MADD seen a b"), [1, 1]);
    assert_eq!(ask::<Vec<i64>>(connection, "EB.INSERT seen TIMED 1 c 2 d"), [1, 1]);
    assert_eq!(emitted(&server), 2 + 2 + 2 + 2);
}

#[test]
fn a_count_beyond_the_counters_emits_the_records_that_fill_them() {
    if !is_there() {
        return;
    }
    let server = Server::start("");
    let replica = Server::replica(&server, "");
    let connection = &mut server.connect();
    for (key, words, records, count) in [
        ("few", "counting capacity 1000 counter-bits 4", 1, 15.0),
        ("many", "counting capacity 1000 counter-bits 32", 257, 4_294_967_295.0),
        (
            "ring",
            "decaying capacity 1000 epoch 1h decay sliding-window window-epochs 2",
            1,
            65_535.0,
        ),
    ] {
        let () = ask(connection, &format!("EB.RESERVE {key} {words}"));
        for item in ["a", "b"] {
            let before = emitted(&server);
            let words = format!("EB.INSERT {key} TIMES {MOST_COUNT} ITEMS {item}");
            assert_eq!(ask::<Vec<i64>>(connection, &words), [1], "{key}");
            assert_eq!(emitted(&server) - before, records, "{key}");
            assert_eq!(ask::<Vec<f64>>(connection, &format!("EB.COUNT {key} {item}")), [count]);
        }
    }
    server.settle(&[&replica]);
    for key in ["few", "many", "ring"] {
        assert_eq!(replica.digest(key), server.digest(key), "{key}");
    }
}

#[test]
fn a_window_of_time_grows_no_further_than_the_largest_filter_and_loses_no_item() {
    if !is_there() {
        return;
    }
    let server = Server::start("--ebbtide.max-filter-bytes 300kb");
    let replica = Server::replica(&server, "");
    let connection = &mut server.connect();
    let () = ask(connection, "EB.RESERVE seen fingerprint window 10m");
    let () = ask(connection, "EB.RESERVE given time-limited window 10m max-memory 400KiB");
    let items = |from: u64| (from..from + 1000).map(|item| format!(" {item}")).collect::<String>();
    for from in (0..120_000).step_by(1000) {
        for key in ["seen", "given"] {
            let words = format!("EB.INSERT {key} ITEMS{}", items(from));
            let _: Vec<i64> = ask(connection, &words);
        }
    }
    // What `memory` has besides: the tables of the machine.
    for (key, most) in [("seen", 300 << 10), ("given", 400 << 10)] {
        let memory: i64 = ask(connection, &format!("EB.INFO {key} memory"));
        assert!((most / 2..=most).contains(&memory), "{key}: {memory}");
        assert_eq!(ask::<i64>(connection, &format!("EB.INFO {key} saturated")), 1, "{key}");
        for from in (0..120_000).step_by(10_000) {
            let there: Vec<i64> = ask(connection, &format!("EB.MEXISTS {key}{}", items(from)));
            assert!(there.iter().all(|&there| there == 1), "{key}");
        }
    }
    // The setting is that of the creation.
    let () = ask(connection, "CONFIG SET ebbtide.max-filter-bytes 8mb");
    let () = ask(connection, "EB.RESERVE seen fingerprint window 10m SAME");
    let other = "EB.RESERVE given time-limited window 10m max-memory 500KiB SAME";
    assert!(server.error(other).contains("max-memory"));
    let little = "EB.RESERVE little fingerprint window 10m max-memory 5KiB";
    assert!(server.error(little).contains("at least"));
    server.settle(&[&replica]);
    for key in ["seen", "given"] {
        assert_eq!(replica.digest(key), server.digest(key), "{key}");
    }
}

/// As a cache is after some time.
#[test]
fn a_full_cache_that_evicts_takes_new_filters_as_large_as_all_of_it() {
    if !is_there() {
        return;
    }
    let server = Server::start("--maxmemory 24mb --maxmemory-policy volatile-lru");
    let connection = &mut server.connect();
    // Filters have no TTL, so they are spared.
    let fill = |connection: &mut Connection| {
        let mut pipe = redis::pipe();
        for key in 0..3000 {
            let value = vec![b'x'; 10_000];
            pipe.cmd("SET").arg(format!("cached:{key}")).arg(value).arg(&["EX", "9999"]).ignore();
        }
        let () = pipe.query(connection).expect("replies");
    };
    fill(connection);
    assert_ne!(server.info("stats", "evicted_keys"), "0");
    assert_eq!(ask::<String>(connection, "EB.RESERVE seen bloom capacity 2M"), "OK");
    fill(connection);
    let (machine, _) = large();
    assert_eq!(send(connection, "EB.CREATE created", &machine.identity()).as_deref(), Ok("OK"));
    fill(connection);
    for (number, piece) in machine.pieces().enumerate() {
        let words = format!("EB.LOADCHUNK loaded {number}");
        assert_eq!(send(connection, &words, &piece).as_deref(), Ok("OK"), "{words}");
    }
    assert_eq!(server.digest("loaded"), format!("{:032x}", machine.digest()));
    fill(connection);
    let _: i64 = ask(connection, "DEL seen");
    let () = ask(connection, "EB.RESERVE seen fingerprint last 1000");
    fill(connection);
    assert_eq!(ask::<String>(connection, "EB.ALTER seen fingerprint last 1M"), "OK");
    let refused = crate::server::error(connection, "EB.RESERVE large bloom capacity 30M");
    assert!(refused.starts_with("TOOLARGE") && refused.contains("maxmemory"), "{refused}");
}

/// As at a client's start, while the server is full.
#[test]
fn what_creates_nothing_needs_no_memory() {
    if !is_there() {
        return;
    }
    let server = Server::start("");
    let connection = &mut server.connect();
    let () = ask(connection, "EB.RESERVE seen fingerprint last 1000 fpr 0.001");
    for policy in ["noeviction", "volatile-lru"] {
        let () = ask(connection, &format!("CONFIG SET maxmemory-policy {policy}"));
        limit(&server, 100_000);
        for words in [
            "EB.RESERVE seen fingerprint last 1000 fpr 0.001 SAME",
            "EB.ALTER seen fingerprint last 1000 fpr 0.001",
        ] {
            assert_eq!(ask::<String>(connection, words), "OK", "{policy}");
        }
        for words in [
            "EB.RESERVE new fingerprint last 1000",
            "EB.RESERVE new fingerprint last 1000 SAME",
            "EB.ALTER seen fingerprint last 500",
        ] {
            let refused = crate::server::error(connection, words);
            assert!(refused.starts_with("OOM"), "{policy}, {words}: {refused}");
        }
        assert_eq!(ask::<i64>(connection, "EXISTS new"), 0);
        assert_eq!(ask::<String>(connection, "EB.INFO seen former"), "");
        limit(&server, 0);
    }
}
