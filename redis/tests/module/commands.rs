//! Each command: replies, errors, and the named cases of RedisBloom's and valkey-bloom's suites.

use crate::server::{Server, ask, command, error, free_port, is_there, spawn, within};
use redis::Value;

/// Runs with a new server, if there is one.
pub fn with_server(settings: &str, test: impl FnOnce(&Server)) {
    if is_there() {
        test(&Server::start(settings));
    }
}

/// RedisBloom: `test_custom_filter`, `test_set`, `test_validation`.
#[test]
fn a_filter_must_be_reserved_and_says_what_is_new() {
    with_server("", |server| {
        assert!(server.error("EB.ADD seen a").starts_with("NOTFOUND"));
        let () = server.ask("EB.RESERVE seen age-partitioned window-items 1000 fpr 0.05");
        assert_eq!(server.ask::<i64>("EB.ADD seen foo"), 1);
        assert_eq!(server.ask::<i64>("EB.ADD seen foo"), 0);
        assert_eq!(server.ask::<i64>("EB.EXISTS seen foo"), 1);
        assert_eq!(server.ask::<i64>("EB.EXISTS seen nonexist"), 0);
        assert_eq!(server.ask::<i64>("EB.EXISTS elsewhere foo"), 0);
        assert!(server.error("EB.RESERVE seen bloom capacity 10").starts_with("EXISTS"));
        for wrong in [
            "EB.RESERVE w age-partitioned window-items blah",
            "EB.RESERVE w age-partitioned window-items 0",
            "EB.RESERVE w age-partitioned window-items 10 fpr 4",
            "EB.RESERVE w age-partitioned window-items 10 fpr",
            "EB.RESERVE w time-limited window 10",
            "EB.RESERVE w nothing",
            "EB.RESERVE w bloom capacity 10 HASH md5",
            "EB.RESERVE w bloom capacity 10 STRIPES 0",
            "EB.RESERVE w bloom capacity 10 BLOCK 1",
            "EB.RESERVE w bloom capacity 10 SEED -1",
            "EB.RESERVE w bloom capacity 10 capacity 10",
            "EB.RESERVE w bloom capacity 10 HASH fast HASH keyed",
            "EB.RESERVE w bloom capacity 10 SEED 1 SEED 2",
            "EB.RESERVE w bloom capacity 10 STRIPES 1 STRIPES 2",
            "EB.RESERVE w bloom capacity 10 BLOCK 1KiB BLOCK 2KiB",
            "EB.RESERVE w bloom capacity 10 SAME SAME",
        ] {
            let error = server.error(wrong);
            assert!(error.starts_with("PARAMETER"), "{wrong}: {error}");
        }
        assert!(server.error("EB.ADD seen").contains("wrong number of arguments"));
        assert_eq!(server.ask::<String>("TYPE seen"), "ebbfilter");
        let () = server.ask("SET text x");
        for wrong in ["EB.ADD text a", "EB.EXISTS text a", "EB.INFO text"] {
            assert!(server.error(wrong).starts_with("WRONGTYPE"), "{wrong}");
        }
        assert_eq!(server.error("GET seen").split(' ').next(), Some("WRONGTYPE"));
    });
}

/// RedisBloom: `test_multi`, `test_insert`, `test_missing`.
#[test]
fn many_items_get_a_reply_each() {
    with_server("", |server| {
        let () = server.ask("EB.RESERVE seen bloom capacity 100");
        assert_eq!(server.ask::<Vec<i64>>("EB.MADD seen a b a"), [1, 1, 0]);
        assert_eq!(server.ask::<Vec<i64>>("EB.MEXISTS seen a b c"), [1, 1, 0]);
        assert_eq!(server.ask::<Vec<i64>>("EB.MEXISTS elsewhere a b"), [0, 0]);
        assert_eq!(server.ask::<Vec<i64>>("EB.MADDNX seen c a"), [1, 0]);
        assert_eq!(server.ask::<Vec<i64>>("EB.INSERT seen NX ITEMS c d"), [0, 1]);
        for wrong in [
            "EB.INSERT seen NX ITEMS",
            "EB.INSERT seen NX ITEM a",
            "EB.INSERT seen AT 7 TIMED 1 a",
            "EB.INSERT seen AT 7 AT 8 ITEMS a",
            "EB.INSERT seen NX NX ITEMS a",
            "EB.INSERT seen TIMES 1 TIMES 1 ITEMS a",
            "EB.INSERT seen TIMED 1 a 2",
            "EB.INSERT seen AT x ITEMS a",
            "EB.INSERT seen AT -5 ITEMS a",
            "EB.INSERT seen AT 18446744073709551615 ITEMS a",
        ] {
            assert!(server.error(wrong).starts_with("PARAMETER"), "{wrong}");
        }
        assert!(server.error("EB.INSERT seen TIMES 2 ITEMS a").starts_with("UNSUPPORTED"));
        assert!(server.error("EB.INSERT elsewhere ITEMS a").starts_with("NOTFOUND"));
        assert!(server.error("EB.DEL seen a").starts_with("UNSUPPORTED"));
        assert_eq!(server.ask::<i64>("EB.INFO seen inserts"), 5);
    });
}

/// The branch's `apbf.py`: `test_simple`, `test_expiry_count`, `test_expiry_time`.
#[test]
fn items_leave_the_window_by_count_and_by_time() {
    with_server("", |server| {
        let () = server.ask("EB.RESERVE last age-partitioned last 100 fpr 0.0001");
        let connection = &mut server.connect();
        assert_eq!(ask::<i64>(connection, "EB.ADD last first"), 1);
        for item in 0..60 {
            assert_eq!(ask::<i64>(connection, &format!("EB.ADD last {item}")), 1);
        }
        assert_eq!(ask::<i64>(connection, "EB.EXISTS last first"), 1);
        assert_eq!(ask::<Vec<i64>>(connection, "EB.WITHIN last 10 first 59"), [0, 1]);
        let age = ask::<Vec<Option<i64>>>(connection, "EB.AGE last first 59 none");
        assert!((20..=60).contains(&age[0].expect("it is there")) && age[2].is_none(), "{age:?}");
        for item in 60..400 {
            let () = ask(connection, &format!("EB.ADD last {item}"));
        }
        assert_eq!(ask::<i64>(connection, "EB.EXISTS last first"), 0);

        let () = ask(connection, "EB.RESERVE recent time-limited window 10m fpr 0.0001");
        let at = |ms: u64| format!("EB.INSERT recent AT {ms} ITEMS ");
        let start = 1_700_000_000_000_u64;
        assert_eq!(ask::<Vec<i64>>(connection, &(at(start) + "a")), [1]);
        let later = start + 5 * 60_000;
        assert_eq!(ask::<Vec<i64>>(connection, &(at(later) + "b a")), [1, 0]);
        assert_eq!(ask::<Vec<i64>>(connection, "EB.WITHIN recent 1m a b"), [1, 1]);
        let much = start + 3_600_000;
        assert_eq!(ask::<Vec<i64>>(connection, &(at(much) + "c")), [1]);
        assert_eq!(ask::<Vec<i64>>(connection, "EB.MEXISTS recent a b c"), [0, 0, 1]);
        assert_eq!(ask::<Vec<i64>>(connection, &(at(start) + "late")), [-1]);
        let timed = format!("EB.INSERT recent TIMED {start} x {much} y");
        assert_eq!(ask::<Vec<i64>>(connection, &timed), [-1, 1]);
        let far = error(connection, "EB.INSERT recent AT 99999999999999 ITEMS z");
        assert!(far.starts_with("TIMEAHEAD"), "{far}");
        // Nothing of a command with a wrong time is inserted.
        let half = format!("EB.INSERT recent TIMED {much} w 99999999999999 z");
        assert!(error(connection, &half).starts_with("TIMEAHEAD"));
        assert_eq!(ask::<i64>(connection, "EB.EXISTS recent w"), 0);
    });
}

/// RedisBloom's `test_cuckoo.py`: `test_count`, `test_setnx`, `test_num_deletes`.
#[test]
fn items_are_counted_and_removed() {
    with_server("", |server| {
        let () = server.ask("EB.RESERVE counts counting capacity 1000 counter-bits 8");
        assert_eq!(server.ask::<Vec<i64>>("EB.INSERT counts TIMES 3 ITEMS a"), [1]);
        assert_eq!(server.ask::<i64>("EB.ADD counts a"), 0);
        assert_eq!(server.ask::<Vec<f64>>("EB.COUNT counts a b"), [4.0, 0.0]);
        assert_eq!(server.ask::<i64>("EB.ADDNX counts a"), 0);
        assert_eq!(server.ask::<i64>("EB.DEL counts a TIMES 9"), 0);
        assert_eq!(server.ask::<i64>("EB.DEL counts a TIMES 3"), 1);
        assert_eq!(server.ask::<Vec<f64>>("EB.COUNT counts a"), [1.0]);
        assert_eq!(server.ask::<i64>("EB.DEL counts a"), 1);
        assert_eq!(server.ask::<i64>("EB.DEL counts a"), 0);
        assert!(server.error("EB.AGE counts a").starts_with("UNSUPPORTED"));
        assert!(server.error("EB.WITHIN counts 5 a").starts_with("UNSUPPORTED"));
        assert!(server.error("EB.WITHIN counts soon a").starts_with("PARAMETER"));
        assert!(server.error("EB.INSERT counts TIMES 1.5 ITEMS a").starts_with("PARAMETER"));
        assert!(server.error("EB.INSERT counts IMPORTANCE 1 ITEMS a").starts_with("UNSUPPORTED"));
        assert!(server.error("EB.DEL counts a TIMES 0").starts_with("PARAMETER"));
        assert!(server.error("EB.DEL elsewhere a").starts_with("NOTFOUND"));
        assert_eq!(server.ask::<Vec<f64>>("EB.COUNT elsewhere a"), [0.0]);
        assert_eq!(server.ask::<Vec<Option<i64>>>("EB.AGE elsewhere a"), [None]);
    });
}

/// RedisBloom: `test_info`, `test_card`, `test_debug`, `test_mem_usage`; `test_resp3.py`.
#[test]
fn a_filter_is_described_in_both_protocols() {
    with_server("", |server| {
        let () = server.ask("EB.RESERVE seen time-limited window 10m fpr 0.001 SEED 0x5eed");
        let () = server.ask("EB.MADD seen a b c");
        let fields: Vec<Value> = server.ask("EB.INFO seen");
        assert_eq!(fields.len(), 42);
        let distinct: f64 = server.ask("EB.INFO seen distinct-keys");
        let error: f64 = server.ask("EB.INFO seen distinct-keys-error");
        assert!((distinct - 3.0).abs() <= 6.0 * error && error < 1.0, "{distinct}, {error}");
        assert_eq!(server.ask::<i64>("EB.INFO seen INSERTS"), 3);
        assert_eq!(server.ask::<String>("EB.INFO seen kind"), "time-limited");
        let parameters: String = server.ask("EB.INFO seen parameters");
        assert!(parameters.contains("window=10m") && parameters.contains("fpr=0.001"));
        assert!(server.ask::<f64>("EB.INFO seen planned-fpr") <= 0.001);
        assert!(server.error("EB.INFO seen colour").starts_with("PARAMETER"));
        assert!(server.error("EB.INFO elsewhere").starts_with("NOTFOUND"));
        assert!(server.error("EB.DEBUG NOTHING seen").starts_with("PARAMETER"));
        let usage: u64 = server.ask("MEMORY USAGE seen");
        let memory: u64 = server.ask("EB.INFO seen memory");
        assert!((memory..memory + 500).contains(&usage), "{usage}, {memory}");
        let position: Vec<Value> = server.ask("EB.DEBUG POSITION seen");
        assert_eq!(position[1], Value::Int(server.ask("EB.INFO seen lsn")));
        let connection = &mut server.connect();
        let _: Value = ask(connection, "HELLO 3");
        let Value::Map(fields) = ask::<Value>(connection, "EB.INFO seen") else {
            panic!("a map in RESP3");
        };
        assert_eq!(fields.len(), 21);
        let () = ask(connection, "EB.RESERVE counts counting capacity 10");
        assert_eq!(ask::<Value>(connection, "EB.COUNT counts a"), {
            Value::Array(vec![Value::Double(0.0)])
        });
    });
}

/// RedisBloom: `test_error_rate`, `test_very_high_error_rate`.
#[test]
fn the_rate_of_false_positives_is_as_planned() {
    with_server("", |server| {
        for rate in [0.001, 0.2] {
            let () = server.ask(&format!("EB.RESERVE f{rate} bloom capacity 2000 fpr {rate}"));
            let mut pipe = redis::pipe();
            for item in 0..2000 {
                pipe.cmd("EB.ADD").arg(format!("f{rate}")).arg(item);
            }
            let _: Vec<i64> = pipe.query(&mut server.connect()).expect("replies");
            let mut ask = redis::cmd("EB.MEXISTS");
            ask.arg(format!("f{rate}")).arg((2000..12_000).collect::<Vec<u32>>());
            let found: Vec<i64> = ask.query(&mut server.connect()).expect("replies");
            let share = found.iter().sum::<i64>() as f64 / 10_000.0;
            assert!(share < rate * 1.5 + 0.001 && share > rate * 0.3 - 0.001, "{rate}: {share}");
        }
    });
}

/// RedisBloom: all `test_scandump*`, `test_arbitrary_offset`, `test_load_error_handling`,
/// `test_dump_and_load`.
#[test]
fn a_filter_is_exported_and_imported_in_pieces() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, "EB.RESERVE big bloom capacity 3e6 STRIPES 3");
        for from in 0..100 {
            let mut add = redis::cmd("EB.MADD");
            add.arg("big").arg((from * 100..from * 100 + 100).collect::<Vec<u32>>());
            let _: Vec<i64> = add.query(connection).expect("replies");
        }
        let (mut cursor, mut pieces) = ("0".to_owned(), Vec::new());
        loop {
            let mut dump = redis::cmd("EB.SCANDUMP");
            let (next, piece): (String, Vec<u8>) =
                dump.arg("big").arg(&cursor).query(connection).expect("a piece");
            pieces.push((cursor, piece));
            if next == "0" {
                break;
            }
            cursor = next;
        }
        assert!(pieces.len() > 4, "{}", pieces.len());
        // Any piece again, out of turn.
        for (cursor, piece) in pieces.iter().rev() {
            let mut dump = redis::cmd("EB.SCANDUMP");
            let (_, again): (String, Vec<u8>) =
                dump.arg("big").arg(cursor).query(connection).expect("a piece");
            assert!(again == *piece, "at {cursor}");
        }
        let load = |connection: &mut redis::Connection, key: &str, number: usize, piece: &[u8]| {
            let mut load = redis::cmd("EB.LOADCHUNK");
            load.arg(key).arg(number).arg(piece).query::<String>(connection)
        };
        let code = |result: Result<String, redis::RedisError>| {
            result.expect_err("it is wrong").code().unwrap_or("ERR").to_owned()
        };
        assert_eq!(code(load(connection, "copy", 1, &pieces[1].1)), "NOTREADY");
        assert_eq!(code(load(connection, "copy", 0, &pieces[1].1)), "DAMAGED");
        load(connection, "copy", 0, &pieces[0].1).expect("piece 0");
        assert!(error(connection, "EB.ADD copy a").starts_with("NOTREADY"));
        assert!(error(connection, "EB.SCANDUMP copy 0").starts_with("NOTREADY"));
        assert_eq!(ask::<String>(connection, "EB.INFO copy state"), "loading");
        assert_eq!(code(load(connection, "copy", 2, &pieces[2].1)), "NOTREADY");
        let mut flipped = pieces[1].1.clone();
        flipped[100] ^= 1;
        assert_eq!(code(load(connection, "copy", 1, &flipped)), "DAMAGED");
        // Half a filter survives a restart of the server, and is copied.
        let () = ask(connection, "DEBUG RELOAD");
        let () = ask(connection, "COPY copy half");
        for key in ["copy", "half"] {
            for (number, (_, piece)) in pieces.iter().enumerate().skip(1) {
                load(connection, key, number, piece).expect("a piece");
            }
            assert_eq!(server.digest(key), server.digest("big"));
        }
        assert_eq!(code(load(connection, "copy", 0, &pieces[0].1)), "EXISTS");
        for wrong in ["99-0", "x", "1", "-1", "99999999999-77"] {
            let error = error(connection, &format!("EB.SCANDUMP big {wrong}"));
            assert!(error.starts_with("PARAMETER") || error.starts_with("CHANGED"), "{error}");
        }
        let () = ask(connection, "EB.ADD big one-more");
        let changed = error(connection, &format!("EB.SCANDUMP big {}", pieces[1].0));
        assert!(changed.starts_with("CHANGED"), "{changed}");
    });
}

#[test]
fn arguments_of_the_module_are_refused_with_what_to_write_instead() {
    if !is_there() {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    let arguments = ["ebbtide.bf-commands", "yes"].map(str::to_owned);
    let mut server = spawn(free_port(), home.path(), &arguments, &[]);
    within("the server refuses the module", || {
        let log = std::fs::read_to_string(home.path().join("log")).unwrap_or_default();
        log.contains("as `--ebbtide.name value` at the start")
    });
    assert!(!server.wait().expect("its end").success());
}

/// As every client does at its start.
#[test]
fn reserving_again_is_accepted_if_it_is_the_same() {
    with_server("", |server| {
        let asked = "time-limited window 10m fpr 0.001 HASH fast SEED 4711 STRIPES 2 SAME";
        for _ in 0..2 {
            assert_eq!(server.ask::<String>(&format!("EB.RESERVE seen {asked}")), "OK");
        }
        for other in
            ["Time-Limited WINDOW 600s fpr 0.001 SAME", "time-limited window=10m fpr=0.001 same"]
        {
            assert_eq!(server.ask::<String>(&format!("EB.RESERVE seen {other}")), "OK");
        }
        for (other, what) in [
            ("time-limited window 11m fpr 0.001 SAME", "window"),
            ("age-partitioned last 100 SAME", "kind"),
            ("time-limited window 10m fpr 0.001 HASH keyed SAME", "hash"),
            ("time-limited window 10m fpr 0.001 SEED 5 SAME", "seed"),
            ("time-limited window 10m fpr 0.001 STRIPES 3 SAME", "stripes"),
            ("time-limited window 10m fpr 0.001 BLOCK 1KiB SAME", "block"),
        ] {
            let error = server.error(&format!("EB.RESERVE seen {other}"));
            assert!(error.starts_with(&format!("MISMATCH {what}")), "{error}");
            let is_alterable = ["window", "kind"].contains(&what);
            let remedy = if is_alterable { "EB.ALTER changes" } else { "another key" };
            assert!(error.contains(remedy), "{error}");
        }
        let error = server.error("EB.RESERVE seen time-limited window 20m fpr 0.001 SAME");
        assert!(error.contains("expected 20m, found 10m; EB.ALTER"), "{error}");
    });
}

#[test]
fn the_fast_hash_refuses_a_seed_of_which_it_would_drop_bits() {
    with_server("", |server| {
        let (fits, large) = (u128::from(u64::MAX), u128::from(u64::MAX) + 1);
        let expected = "SEED: HASH fast takes a number below 2^64";
        let refused = |words: &str| {
            let error = server.error(words);
            assert!(error.starts_with("PARAMETER") && error.contains(expected), "{words}: {error}");
        };
        refused(&format!("EB.RESERVE seen bloom capacity 10 HASH fast SEED {large}"));
        assert_eq!(server.ask::<i64>("EXISTS seen"), 0);
        let () = server.ask(&format!("EB.RESERVE seen bloom capacity 10 HASH fast SEED {fits}"));
        let () = server.ask(&format!("EB.RESERVE seen bloom capacity 10 SEED {fits} SAME"));
        // With the same low 64 bits.
        refused(&format!("EB.RESERVE seen bloom capacity 10 SEED {} SAME", fits + (1 << 64)));
        for suffix in ["HASH keyed", "SAME"] {
            let words = format!("EB.RESERVE keyed bloom capacity 10 SEED {large} {suffix}");
            assert_eq!(server.ask::<String>(&words), "OK", "{suffix}");
        }
        let () = server.ask("CONFIG SET ebbtide.hash fast");
        refused(&format!("EB.RESERVE other bloom capacity 10 SEED {large}"));
        let words = format!("EB.RESERVE keyed bloom capacity 10 SEED {large} SAME");
        assert_eq!(server.ask::<String>(&words), "OK");
    });
}

/// RedisBloom: `test_oom`, `test_insufficient_memory`; valkey-bloom:
/// `test_large_allocation_when_{below,above}_maxmemory`.
#[test]
fn a_filter_that_is_too_large_is_refused_before_it_takes_memory() {
    with_server("--maxmemory 100mb --maxmemory-policy noeviction", |server| {
        let large = "EB.RESERVE large bloom capacity 100M";
        assert!(server.error(large).starts_with("TOOLARGE"));
        let () = server.ask("CONFIG SET ebbtide.max-filter-bytes 1gb");
        assert!(server.error(large).contains("maxmemory"));
        let () = server.ask("CONFIG SET maxmemory 1gb");
        let before: u64 = server.info("memory", "used_memory").parse().expect("bytes");
        assert_eq!(server.ask::<String>(large), "OK");
        let after: u64 = server.info("memory", "used_memory").parse().expect("bytes");
        assert!(after - before < 1 << 20, "{before}, {after}: memory comes with what is written");
        let () = server.ask("CONFIG SET maxmemory 1kb");
        assert!(server.error("EB.ADD large a").starts_with("OOM"));
        assert_eq!(server.ask::<i64>("EB.EXISTS large a"), 0);
        for absurd in ["capacity 1e18", "capacity 9e18 fpr 0.0000001"] {
            let error = server.error(&format!("EB.RESERVE absurd bloom {absurd}"));
            let known = ["PARAMETER", "TOOLARGE", "OOM"];
            assert!(known.iter().any(|code| error.starts_with(code)), "{error}");
        }
    });
}

#[test]
fn settings_are_read_from_the_servers_configuration() {
    let settings = "--ebbtide.max-filter-bytes 1mb --ebbtide.hash fast --ebbtide.max-lead 5m";
    with_server(settings, |server| {
        let all: Vec<String> = server.ask("CONFIG GET ebbtide.*");
        for (name, value) in [("max-filter-bytes", "1048576"), ("hash", "fast"), ("max-lead", "5m")]
        {
            let at = all.iter().position(|word| *word == format!("ebbtide.{name}"));
            assert_eq!(all[at.expect(name) + 1], value);
        }
        assert!(server.error("EB.RESERVE large bloom capacity 10M").starts_with("TOOLARGE"));
        for wrong in ["max-lead soon", "hash md5", "max-filter-bytes 1"] {
            let _ = server.error(&format!("CONFIG SET ebbtide.{wrong}"));
        }
        let () = server.ask("EB.RESERVE seen time-limited window 10m");
        let now: Vec<u64> = server.ask("TIME");
        let ahead = now[0] * 1000 + 6 * 60_000;
        let error = server.error(&format!("EB.INSERT seen AT {ahead} ITEMS a"));
        assert!(error.starts_with("TIMEAHEAD"), "{error}");
    });
}

/// RedisBloom: `test_load_bloom_with_large_number_of_filters`.
#[test]
fn ten_thousand_filters_are_kept_and_counted() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let mut pipe = redis::pipe();
        for key in 0..10_000 {
            pipe.add_command(command(&format!("EB.RESERVE f{key} bloom capacity 100"))).ignore();
        }
        let () = pipe.query(connection).expect("replies");
        assert_eq!(server.info("ebbtide", "ebbtide_filters"), "10000");
        let digest: String = ask(connection, "DEBUG DIGEST");
        let () = ask(connection, "DEBUG RELOAD");
        assert_eq!(ask::<String>(connection, "DEBUG DIGEST"), digest);
        let () = ask(connection, "FLUSHALL");
        // Valkey releases them in the background.
        within("all filters are released", || {
            let bytes: u64 = server.info("ebbtide", "ebbtide_bytes").parse().expect("bytes");
            server.info("ebbtide", "ebbtide_filters") == "0" && bytes < 100_000
        });
    });
}
