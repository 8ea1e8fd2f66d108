//! Cases of RedisBloom's suite about exports and imports in pieces (`test_scandump*`), and about
//! values that `RESTORE` must refuse. `docs/runs/redis-cases.md` lists all cases.

use crate::commands::with_server;
use crate::damaged::{correct, seal, table};
use crate::samples::{Commands, SAMPLES};
use crate::server::{Server, ask, command, error, is_there};
use ebbtide_testkit::environment::SEED;
use ebbtide_testkit::random::Random;
use redis::{Connection, RedisError, Value};

/// The header of a piece.
const HEADER: usize = 32;

/// Returns all pieces of a filter, and the cursor of the second one.
fn export(connection: &mut Connection, key: &str) -> (Vec<Vec<u8>>, String) {
    let (mut cursor, mut pieces, mut second) = ("0".to_owned(), Vec::new(), String::new());
    loop {
        let mut dump = redis::cmd("EB.SCANDUMP");
        let (next, piece): (String, Vec<u8>) =
            dump.arg(key).arg(&cursor).query(connection).expect("a piece");
        pieces.push(piece);
        if pieces.len() == 1 {
            second.clone_from(&next);
        }
        if next == "0" {
            return (pieces, second);
        }
        cursor = next;
    }
}

/// Sends one piece; returns the code of the error.
fn load(connection: &mut Connection, key: &str, number: u64, piece: &[u8]) -> Result<(), String> {
    let mut load = redis::cmd("EB.LOADCHUNK");
    let reply: Result<String, RedisError> = load.arg(key).arg(number).arg(piece).query(connection);
    reply.map(|_| ()).map_err(|error| error.code().unwrap_or("ERR").to_owned())
}

fn import(connection: &mut Connection, key: &str, pieces: &[Vec<u8>]) {
    for (number, piece) in (0..).zip(pieces) {
        load(connection, key, number, piece).expect("a piece");
    }
}

/// Returns the bytes that the server uses, or has used at most.
fn memory(server: &Server, field: &str) -> u64 {
    server.info("memory", field).parse().expect("bytes")
}

/// Returns random bytes.
fn noise(random: &mut Random, length: u64) -> Vec<u8> {
    let words = (0..length.div_ceil(8)).flat_map(|_| random.below(u64::MAX).to_le_bytes());
    words.take(length as usize).collect()
}

/// Adds items `first` to `last` - 1.
fn add(connection: &mut Connection, key: &str, first: u32, last: u32) {
    let items: Vec<u32> = (first..last).collect();
    let _: Vec<i64> = redis::cmd("EB.MADD").arg(key).arg(items).query(connection).expect("replies");
}

/// RedisBloom: `test_scandump`, `test_scandump_with_expansion`, `test_dump_and_load`, and those of
/// `test_cuckoo.py`.
#[test]
fn every_kind_is_exported_to_another_server_empty_and_filled_and_continues_there() {
    if !is_there() {
        return;
    }
    let (server, other) = (Server::start(""), Server::start(""));
    let (from, to) = (&mut server.connect(), &mut other.connect());
    for (at, sample) in SAMPLES.iter().enumerate() {
        let mut source = Commands::new(sample, format!("key:{at}"), true, 31);
        let key = source.key.clone();
        let _: String = source.reserve().query(from).expect(sample.name);
        for round in 0..3 {
            let (pieces, _) = export(from, &key);
            assert_eq!(pieces.len() == 2, round == 0, "{}: an empty one has no chunk", sample.name);
            let () = ask(to, "FLUSHALL");
            import(to, &key, &pieces);
            assert_eq!(other.digest(&key), server.digest(&key), "{}", sample.name);
            // The step of an empty filter that uses time is that of the clock.
            if round > 0 {
                let figures: Value = ask(from, &format!("EB.INFO {key}"));
                assert_eq!(ask::<Value>(to, &format!("EB.INFO {key}")), figures, "{}", sample.name);
            }
            // Both get the same commands from here.
            for _ in 0..60 {
                let next = source.next();
                let reply: Value = next.query(from).expect(sample.name);
                assert_eq!(next.query::<Value>(to).expect(sample.name), reply, "{}", sample.name);
            }
            assert_eq!(other.digest(&key), server.digest(&key), "{}", sample.name);
        }
    }
}

/// RedisBloom: `test_scandump_huge`, `test_scandump_with_content`.
#[test]
fn the_export_of_a_huge_filter_is_as_large_as_what_was_written() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, "EB.RESERVE huge bloom capacity 64M fpr 0.01 STRIPES 1");
        for _ in 0..6 {
            let _: i64 = ask(connection, "EB.ADD huge foo");
        }
        let planned: u64 = ask(connection, "EB.INFO huge planned-memory");
        let (pieces, _) = export(connection, "huge");
        let sum: usize = pieces.iter().map(Vec::len).sum();
        assert!(planned > 64 << 20 && sum < 16 << 20, "{sum} of {planned} bytes");
        import(connection, "copy", &pieces);
        assert_eq!(ask::<i64>(connection, "EB.EXISTS copy foo"), 1);
        assert_eq!(server.digest("copy"), server.digest("huge"));
        let used: u64 = ask(connection, "EB.INFO huge memory");
        assert_eq!(ask::<u64>(connection, "EB.INFO copy memory"), used);
        let () = ask(connection, "DEL copy");
        add(connection, "huge", 0, 1000);
        let digest = server.digest("huge");
        let (pieces, _) = export(connection, "huge");
        let () = ask(connection, "DEL huge");
        import(connection, "copy", &pieces);
        let items: Vec<u32> = (0..1000).collect();
        let mut all = redis::cmd("EB.MEXISTS");
        let found: Vec<i64> = all.arg("copy").arg(items).query(connection).expect("replies");
        assert_eq!(found, [1; 1000]);
        assert_eq!(server.digest("copy"), digest);
    });
}

/// RedisBloom: `test_scandump_scan_small`, `test_scandump_scan_big`, `test_arbitrary_offset`.
#[test]
fn any_number_in_a_cursor_gets_that_piece_or_an_error() {
    with_server("", |server| {
        let connection = &mut server.connect();
        for kind in ["bloom capacity 50 fpr 0.1", "bloom capacity 3M STRIPES 1"] {
            let () = ask(connection, &format!("EB.RESERVE seen {kind}"));
            add(connection, "seen", 0, 1500);
            let digest = server.digest("seen");
            let (pieces, second) = export(connection, "seen");
            let chain = second.split_once('-').expect("a number and a chain").1;
            let mut random = Random::new(SEED);
            let small = 0..pieces.len() as u64 + 40;
            let large = (0..60).map(|_| random.below(u64::MAX) >> random.below(64));
            let numbers: Vec<u64> =
                small.chain(large).chain([u64::MAX, 1 << 32, 1 << 63]).collect();
            for number in numbers {
                let mut dump = redis::cmd("EB.SCANDUMP");
                let dump = dump.arg("seen").arg(format!("{number}-{chain}"));
                let reply: Result<(String, Vec<u8>), RedisError> = dump.query(connection);
                match (reply, usize::try_from(number).ok().and_then(|at| pieces.get(at))) {
                    (Ok((_, piece)), Some(expected)) => assert!(piece == *expected, "{number}"),
                    (Err(error), None) => assert_eq!(error.code(), Some("PARAMETER"), "{number}"),
                    (reply, _) => panic!("{number}: {:?}", reply.map(|(next, _)| next)),
                }
            }
            for wrong in [format!("-1-{chain}"), format!("1-{chain}0"), "1-".to_owned()] {
                let error = error(connection, &format!("EB.SCANDUMP seen {wrong}"));
                let code = error.split(' ').next().expect("a code");
                assert!(["PARAMETER", "CHANGED"].contains(&code), "{wrong}: {error}");
            }
            assert!(error(connection, "EB.SCANDUMP none 0").starts_with("NOTFOUND"));
            assert_eq!(server.digest("seen"), digest);
            let () = ask(connection, "DEL seen");
        }
    });
}

/// RedisBloom: `test_scandump_invalid`, `test_scandump_load_small`, `test_scandump_load_big`.
#[test]
fn random_pieces_change_neither_a_usable_filter_nor_one_that_waits_for_pieces() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, "EB.RESERVE seen bloom capacity 2M STRIPES 1");
        add(connection, "seen", 0, 5000);
        let digest = server.digest("seen");
        let (pieces, _) = export(connection, "seen");
        load(connection, "half", 0, &pieces[0]).expect("the first piece");
        load(connection, "half", 1, &pieces[1]).expect("the second piece");
        let half: Vec<String> = ask(connection, "DEBUG DIGEST-VALUE half");
        let mut random = Random::new(SEED);
        for round in 0..110 {
            let most = if round < 100 { 4096 } else { 36 << 20 };
            let length = random.below(most);
            let piece = noise(&mut random, length);
            let number = [2, random.below(10), random.below(u64::MAX)][round % 3];
            let usable = load(connection, "seen", number, &piece).expect_err("it is usable");
            let waiting = load(connection, "half", number, &piece).expect_err("it is noise");
            let allowed = if number >> 32 == 0 { "EXISTS" } else { "PARAMETER" };
            assert_eq!(usable, allowed, "piece {number}");
            assert!(["DAMAGED", "NOTREADY", "PARAMETER"].contains(&&*waiting), "{waiting}");
            assert!(load(connection, "new", number, &piece).is_err());
        }
        for number in ["-9223372036854775808", "922337203685477588", "4"] {
            let words = format!("EB.LOADCHUNK seen {number} abcd");
            assert!(command(&words).query::<Value>(connection).is_err(), "{words}");
        }
        assert_eq!(ask::<i64>(connection, "EXISTS new"), 0);
        assert_eq!(ask::<Vec<String>>(connection, "DEBUG DIGEST-VALUE half"), half);
        assert_eq!(server.digest("seen"), digest);
        for (number, piece) in (0..).zip(&pieces).skip(2) {
            load(connection, "half", number, piece).expect("a piece");
        }
        assert_eq!(server.digest("half"), digest);
    });
}

/// RedisBloom: `test_scandump_invalid_header`.
#[test]
fn a_first_piece_with_a_changed_byte_creates_nothing() {
    with_server("", |server| {
        let connection = &mut server.connect();
        for kind in ["bloom capacity 5 fpr 0.01", "counting capacity 100"] {
            let () = ask(connection, &format!("EB.RESERVE seen {kind}"));
            add(connection, "seen", 0, 50);
            let digest = server.digest("seen");
            let (pieces, _) = export(connection, "seen");
            let first = &pieces[0];
            let mut pipe = redis::pipe();
            for at in 0..first.len() {
                let mut changed = first.clone();
                changed[at] = if at % 2 == 0 { !changed[at] } else { changed[at] ^ 1 };
                pipe.cmd("EB.LOADCHUNK").arg("new").arg(0).arg(changed);
                pipe.cmd("EB.LOADCHUNK").arg("new").arg(0).arg(&first[..at]);
            }
            pipe.ignore_errors();
            let replies: Vec<Value> = pipe.query(connection).expect("replies");
            let is_error = |reply: &Value| matches!(reply, Value::ServerError(_));
            assert!(replies.iter().all(is_error), "{kind}");
            assert_eq!(ask::<i64>(connection, "DBSIZE"), 1);
            import(connection, "new", &pieces);
            assert_eq!(server.digest("new"), digest);
            let () = ask(connection, "FLUSHALL");
        }
    });
}

/// RedisBloom: `test_scandump_invalid_header_alloc`, and `test_cuckoo.py`:
/// `test_number_of_buckets_does_not_overflow`.
#[test]
fn a_first_piece_with_absurd_sizes_and_a_right_checksum_takes_no_memory() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let before = memory(server, "used_memory");
        for kind in ["bloom capacity 5", "counting capacity 100", "time-limited window 1m"] {
            let () = ask(connection, &format!("EB.RESERVE seen {kind}"));
            add(connection, "seen", 0, 50);
            let digest = server.digest("seen");
            let first = export(connection, "seen").0.remove(0);
            for word in 0..(first.len() - HEADER) / 8 {
                let mut pipe = redis::pipe();
                for value in [u64::MAX, 1 << 63, 1 << 40, 1 << 32, 3 << 20] {
                    let mut changed = first.clone();
                    let place = HEADER + word * 8;
                    changed[place..place + 8].copy_from_slice(&value.to_le_bytes());
                    correct(&mut changed);
                    pipe.cmd("EB.LOADCHUNK").arg("new").arg(0).arg(changed);
                    pipe.cmd("EB.INFO").arg("new");
                    pipe.cmd("DEL").arg("new");
                }
                pipe.ignore_errors();
                let replies: Result<Vec<Value>, RedisError> = pipe.query(connection);
                replies.unwrap_or_else(|error| panic!("word {word}: {error}: {}", server.log()));
            }
            assert_eq!(server.digest("seen"), digest);
            let () = ask(connection, "DEL seen");
        }
        let peak = memory(server, "used_memory_peak");
        assert!(peak < before + (16 << 20), "{before}, at most {peak} bytes");
    });
}

/// RedisBloom: `test_load_error_handling`, `test_rdb_load_guards`,
/// `test_bf_restore_corrupt_rdb.py`, and `test_cuckoo.py`: `test_rdb_load_zero_numfilters`.
#[test]
fn a_value_with_wrong_numbers_or_without_its_end_is_not_restored() {
    with_server("--rdbcompression no", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, "EB.RESERVE seen bloom capacity 10");
        add(connection, "seen", 0, 10);
        let digest = server.digest("seen");
        let payload: Vec<u8> = redis::cmd("DUMP").arg("seen").query(connection).expect("a payload");
        // A type (1 byte), the module's number (9), and two numbers with their marks: the format
        // and the state.
        assert_eq!(payload[10..14], [2, 1, 2, 0], "two numbers");
        let table = table();
        let mut restore = |mut payload: Vec<u8>| {
            seal(&mut payload, &table);
            let mut restore = redis::cmd("RESTORE");
            let reply: Result<String, RedisError> =
                restore.arg("new").arg(0).arg(payload).query(connection);
            reply.map_err(|error| error.to_string())
        };
        for place in [11, 13] {
            for value in (0..64_u8).filter(|&value| value != payload[place]) {
                let mut changed = payload.clone();
                changed[place] = value;
                // A diverged filter, state 2, is a right value.
                assert_eq!(restore(changed).is_ok(), (place, value) == (13, 2), "{value} {place}");
                let () = server.ask("DEL new");
            }
            for large in [u64::MAX, 1 << 63, 1 << 32] {
                let mut changed = payload[..place].to_vec();
                changed.push(0x81);
                changed.extend(large.to_be_bytes());
                changed.extend(&payload[place + 1..]);
                assert!(restore(changed).is_err(), "{large}");
            }
        }
        // The version of the payload and its sum are the last ten bytes.
        let end = payload.len() - 10;
        for length in (1..end).filter(|length| *length < 200 || length % 97 == 0) {
            let cut = [&payload[..length], &payload[end..]].concat();
            let error = restore(cut).expect_err("it is cut");
            assert!(error.contains("Bad data format"), "{length}: {error}");
        }
        assert_eq!(restore(payload), Ok("OK".to_owned()));
        assert_eq!(server.digest("new"), digest);
        assert_eq!(server.digest("seen"), digest);
    });
}

/// RedisBloom: `test_load_bloom_with_large_number_of_filters`: a value of a great many parts.
#[test]
fn a_filter_of_as_many_stripes_as_there_may_be_is_saved_loaded_and_exported() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, "EB.RESERVE wide bloom capacity 1M STRIPES 4096");
        assert!(error(connection, "EB.RESERVE w bloom capacity 1M STRIPES 4097").contains("4096"));
        add(connection, "wide", 0, 15_000);
        let digest = server.digest("wide");
        let () = ask(connection, "DEBUG RELOAD");
        assert_eq!(server.digest("wide"), digest);
        let (pieces, _) = export(connection, "wide");
        import(connection, "copy", &pieces);
        assert_eq!(server.digest("copy"), digest);
    });
}
