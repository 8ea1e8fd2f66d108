//! Cases of RedisBloom's and valkey-bloom's suites: what commands answer, and what a saved filter
//! is. `docs/runs/redis-cases.md` lists all cases, with the test that makes the same claim.

use crate::commands::with_server;
use crate::samples::{Commands, SAMPLES};
use crate::server::{LIMIT, Server, ask, command, error, is_there};
use redis::{Connection, Value};
use std::time::{Duration, Instant};

/// Adds items `first` to `last` - 1, many at once; returns the replies.
fn add(connection: &mut Connection, key: &str, first: u32, last: u32) -> Vec<i64> {
    let items: Vec<u32> = (first..last).collect();
    redis::cmd("EB.MADD").arg(key).arg(items).query(connection).expect("replies")
}

/// Returns how many of the items `first` to `last` - 1 are present.
fn present(connection: &mut Connection, key: &str, first: u32, last: u32) -> i64 {
    let items: Vec<u32> = (first..last).collect();
    let found: Vec<i64> =
        redis::cmd("EB.MEXISTS").arg(key).arg(items).query(connection).expect("replies");
    found.iter().sum()
}

/// RedisBloom: `test_validation`, `test_insert`, `test_info_errors`, `test_dump_and_load`,
/// `test_scandump`, `test_args_count`, `test_args_time`.
#[test]
fn commands_with_missing_or_superfluous_words_change_nothing() {
    with_server("", |server| {
        let () = server.ask("EB.RESERVE seen counting capacity 100");
        let () = server.ask("EB.RESERVE recent time-limited window 10m");
        let () = server.ask("EB.MADD seen a b");
        let digests = ["seen", "recent"].map(|key| server.digest(key));
        for name in crate::rules::NAMES {
            assert!(server.error(name).contains("wrong number of arguments"), "{name}");
            if !["EB.CARD", "EB.INFO"].contains(&name) {
                let error = server.error(&format!("{name} seen"));
                assert!(error.contains("wrong number of arguments"), "{name} seen: {error}");
            }
        }
        for words in [
            "EB.ADD seen a b",
            "EB.ADDNX seen a b",
            "EB.EXISTS seen a b",
            "EB.WITHIN seen 5",
            "EB.SCANDUMP seen 0 0",
            "EB.LOADCHUNK new 0",
            "EB.LOADCHUNK new 0 x y",
            "EB.DEBUG DIGEST seen recent",
            "EB.DEBUG DIGEST",
            "EB.CREATE new x y z",
            "EB.SUCCEED seen x y z",
            "EB.APPLY seen 1",
            "EB.APPLY seen 1 x 2",
        ] {
            let error = server.error(words);
            assert!(error.contains("wrong number of arguments"), "{words}: {error}");
        }
        for words in [
            "EB.CARD seen x",
            "EB.CARD seen 1 2",
            "EB.INFO seen inserts memory",
            "EB.INFO seen wrong",
            "EB.DEL seen a TIMES",
            "EB.DEL seen a TIMES x",
            "EB.DEL seen a b",
            "EB.INSERT seen a b",
            "EB.INSERT seen TIMES ITEMS a",
            "EB.INSERT seen TIMES 2 TIMES 2 ITEMS a",
            "EB.INSERT recent AT soon ITEMS a",
            "EB.INSERT recent TIMED a b",
            "EB.SCANDUMP seen word",
            "EB.LOADCHUNK new word x",
            "EB.LOADCHUNK new -1 x",
            "EB.RESERVE new bloom",
            "EB.RESERVE new bloom capacity",
            "EB.RESERVE new bloom capacity words",
            "EB.RESERVE new bloom capacity 0",
            "EB.RESERVE new bloom capacity -1",
            "EB.RESERVE new bloom capacity 100 fpr 0",
            "EB.RESERVE new bloom capacity 100 fpr words",
            "EB.RESERVE new bloom capacity 100 fpr 7.7",
            "EB.RESERVE new bloom capacity 100 colour red",
            "EB.RESERVE new bloom capacity 100 capacity 100",
            "EB.RESERVE new bloom capacity 18446744073709551616",
            "EB.RESERVE new age-partitioned last",
            "EB.RESERVE new time-limited window",
            "EB.RESERVE new time-limited window 0s",
        ] {
            let error = server.error(words);
            assert!(error.starts_with("PARAMETER"), "{words}: {error}");
        }
        assert_eq!(server.ask::<i64>("DBSIZE"), 2);
        assert_eq!(["seen", "recent"].map(|key| server.digest(key)), digests);
    });
}

/// RedisBloom: `test_validation`, `test_missing`, `test_card`, `test_mem_usage`,
/// `test_args_count`, `test_args_time`.
#[test]
fn no_command_touches_a_key_of_another_type_or_creates_one_implicitly() {
    with_server("", |server| {
        let () = server.ask("SET text x");
        let () = server.ask("RPUSH list x");
        let digest: String = server.ask("DEBUG DIGEST");
        for (words, is_change) in [
            ("EB.ADD KEY a", true),
            ("EB.MADD KEY a b", true),
            ("EB.ADDNX KEY a", true),
            ("EB.MADDNX KEY a b", true),
            ("EB.INSERT KEY ITEMS a", true),
            ("EB.INSERT KEY AT 1700000000000 ITEMS a", true),
            ("EB.DEL KEY a", true),
            ("EB.APPLY KEY 1 x", true),
            ("EB.LOADCHUNK KEY 1 x", true),
            ("EB.INFO KEY", true),
            ("EB.INFO KEY inserts", true),
            ("EB.DEBUG DIGEST KEY", true),
            ("EB.SCANDUMP KEY 0", true),
            ("EB.EXISTS KEY a", false),
            ("EB.MEXISTS KEY a b", false),
            ("EB.WITHIN KEY 5 a", false),
            ("EB.AGE KEY a", false),
            ("EB.COUNT KEY a", false),
        ] {
            for key in ["text", "list"] {
                let error = server.error(&words.replace("KEY", key));
                assert!(error.starts_with("WRONGTYPE"), "{words}: {error}");
            }
            let missing = words.replace("KEY", "none");
            if is_change {
                let error = server.error(&missing);
                let code = if words.contains("LOADCHUNK") { "NOTREADY" } else { "NOTFOUND" };
                assert!(error.starts_with(code), "{words}: {error}");
            } else {
                let nothing: Value = server.ask(&missing);
                let text = format!("{nothing:?}");
                assert!(!text.contains('1'), "{words}: {text}");
            }
        }
        for words in ["bloom capacity 100", "bloom capacity 100 SAME", "age-partitioned last 100"] {
            let error = server.error(&format!("EB.RESERVE text {words}"));
            assert!(error.starts_with("WRONGTYPE"), "{words}: {error}");
        }
        assert_eq!(server.ask::<i64>("DBSIZE"), 2);
        assert_eq!(server.ask::<String>("DEBUG DIGEST"), digest);
    });
}

/// What is known of a filter: its digest, all figures, its memory, and answers about many items.
fn known(connection: &mut Connection, key: &str) -> Vec<Value> {
    let mut ask = redis::cmd("EB.MEXISTS");
    ask.arg(key).arg((0..600).map(|item| format!("item {item}")).collect::<Vec<_>>());
    vec![
        command(&format!("EB.DEBUG DIGEST {key}")).query(connection).expect("a digest"),
        command(&format!("EB.INFO {key}")).query(connection).expect("figures"),
        command(&format!("MEMORY USAGE {key}")).query(connection).expect("bytes"),
        ask.query(connection).expect("answers"),
    ]
}

/// RedisBloom: `test_rdb_reload`, `test_custom_filter`, `test_mem_usage`, `test_num_deletes`; the
/// branch's `test_rdb`.
#[test]
fn a_loaded_filter_has_the_answers_the_figures_and_the_memory_that_it_had() {
    if !is_there() {
        return;
    }
    let mut server = Server::start("");
    let connection = &mut server.connect();
    for (at, sample) in SAMPLES.iter().enumerate() {
        let mut source = Commands::new(sample, format!("key:{at}"), true, 21);
        let _: String = source.reserve().query(connection).expect(sample.name);
        for _ in 0..200 {
            let _: Value = source.next().query(connection).expect(sample.name);
        }
    }
    let all = |server: &Server| -> Vec<Vec<Value>> {
        let connection = &mut server.connect();
        (0..SAMPLES.len()).map(|at| known(connection, &format!("key:{at}"))).collect()
    };
    let before = all(&server);
    let () = ask(connection, "DEBUG RELOAD");
    for (at, (loaded, before)) in all(&server).into_iter().zip(&before).enumerate() {
        assert_eq!(loaded, *before, "{} after a reload", SAMPLES[at].name);
    }
    let () = ask(connection, "SAVE");
    server.restart();
    for (at, (loaded, before)) in all(&server).into_iter().zip(&before).enumerate() {
        assert_eq!(loaded, *before, "{} after a restart", SAMPLES[at].name);
    }
}

/// The branch's `test_rdb`: a window moves on after it was loaded.
#[test]
fn a_filter_that_was_loaded_often_continues_as_one_that_never_was() {
    if !is_there() {
        return;
    }
    let (server, control) = (Server::start(""), Server::start(""));
    let source = |at: usize| Commands::new(&SAMPLES[at], format!("key:{at}"), true, 22);
    let mut all: Vec<_> = (0..SAMPLES.len()).map(source).collect();
    let (first, second) = (&mut server.connect(), &mut control.connect());
    for source in &all {
        for connection in [&mut *first, &mut *second] {
            let _: String = source.reserve().query(connection).expect(source.sample.name);
        }
    }
    for _ in 0..8 {
        for source in &mut all {
            for _ in 0..40 {
                let next = source.next();
                let reply: Value = next.query(first).expect(source.sample.name);
                let same: Value = next.query(second).expect(source.sample.name);
                assert_eq!(reply, same, "{}", source.sample.name);
            }
        }
        let () = ask(first, "DEBUG RELOAD");
    }
    for source in &all {
        let name = source.sample.name;
        assert_eq!(server.digest(&source.key), control.digest(&source.key), "{name}");
    }
}

/// RedisBloom: `test_mem_usage`.
#[test]
fn items_in_memory_that_is_there_take_no_more_of_it() {
    with_server("", |server| {
        let () = server.ask("EB.RESERVE seen bloom capacity 1000 fpr 0.05");
        let connection = &mut server.connect();
        let empty: u64 = ask(connection, "MEMORY USAGE seen");
        assert_eq!(add(connection, "seen", 0, 3), [1, 1, 1]);
        let first: u64 = ask(connection, "MEMORY USAGE seen");
        let planned: u64 = ask(connection, "EB.INFO seen planned-memory");
        assert!(empty < first && first < planned + 500, "{empty}, {first}, {planned}");
        let _ = add(connection, "seen", 3, 1000);
        assert_eq!(ask::<u64>(connection, "MEMORY USAGE seen"), first);
        let digest = server.digest("seen");
        let () = ask(connection, "DEBUG RELOAD");
        assert_eq!(ask::<u64>(connection, "MEMORY USAGE seen"), first);
        assert_eq!(server.digest("seen"), digest);
    });
}

/// RedisBloom: `test_info`, `test_info_capacity`, `test_info_size`, `test_info_items`.
#[test]
fn each_figure_asked_for_alone_is_the_one_of_the_whole_answer() {
    with_server("", |server| {
        for kind in ["bloom capacity 100 fpr 0.001", "age-partitioned last 100 fpr 0.001"] {
            let () = server.ask(&format!("EB.RESERVE seen {kind}"));
            let whole: Vec<Value> = server.ask("EB.INFO seen");
            for pair in whole.chunks(2) {
                let name: String = redis::from_redis_value(pair[0].clone()).expect("a name");
                assert_eq!(server.ask::<Value>(&format!("EB.INFO seen {name}")), pair[1], "{name}");
            }
            let parameters: String = server.ask("EB.INFO seen parameters");
            assert!(parameters.contains("=100 ") && parameters.contains("fpr=0.001"));
            assert_eq!(server.ask::<i64>("EB.INFO seen inserts"), 0);
            assert!(server.ask::<u64>("EB.INFO seen memory") > 0);
            let () = server.ask("EB.ADD seen a");
            assert_eq!(server.ask::<i64>("EB.INFO seen inserts"), 1);
            let digest = server.digest("seen");
            let () = server.ask("DEBUG RELOAD");
            assert_eq!(server.ask::<i64>("EB.INFO seen inserts"), 1);
            assert_eq!(server.digest("seen"), digest);
            let () = server.ask("FLUSHALL");
        }
    });
}

/// RedisBloom: `test_card`, `test_debug`.
#[test]
fn the_number_of_inserts_is_that_of_accepted_and_renewed_items() {
    with_server("", |server| {
        let () = server.ask("EB.RESERVE seen bloom capacity 4000 fpr 0.001");
        let connection = &mut server.connect();
        assert_eq!(ask::<i64>(connection, "EB.INFO seen inserts"), 0);
        assert_eq!(ask::<i64>(connection, "EB.ADD seen foo"), 1);
        assert_eq!(ask::<i64>(connection, "EB.INFO seen inserts"), 1);
        let lsn: i64 = ask(connection, "EB.INFO seen lsn");
        let digest = server.digest("seen");
        assert_eq!(ask::<i64>(connection, "EB.ADDNX seen foo"), 0);
        assert_eq!(ask::<i64>(connection, "EB.INFO seen inserts"), 1);
        assert_eq!(ask::<i64>(connection, "EB.INFO seen lsn"), lsn);
        assert_eq!(server.digest("seen"), digest);
        let items: Vec<u32> = (0..4000).collect();
        let mut all = redis::cmd("EB.MADDNX");
        let replies: Vec<i64> = all.arg("seen").arg(items).query(connection).expect("replies");
        let accepted: i64 = replies.iter().sum();
        assert!((3990..=4000).contains(&accepted), "{accepted}");
        assert_eq!(ask::<i64>(connection, "EB.INFO seen inserts"), 1 + accepted);
        let digest = server.digest("seen");
        let () = ask(connection, "DEBUG RELOAD");
        assert_eq!(ask::<i64>(connection, "EB.INFO seen inserts"), 1 + accepted);
        assert_eq!(server.digest("seen"), digest);
    });
}

/// RedisBloom: `test_very_high_error_rate`.
#[test]
fn filters_with_rates_just_below_one_work_and_one_is_refused() {
    with_server("", |server| {
        let connection = &mut server.connect();
        for (at, (rate, capacity)) in
            [("0.99", 3), ("0.95", 8), ("0.9999999999999999", 100)].iter().enumerate()
        {
            let reserve = format!("EB.RESERVE f{at} bloom capacity {capacity} fpr {rate}");
            let () = ask(connection, &reserve);
            assert_eq!(ask::<i64>(connection, &format!("EB.ADD f{at} 1")), 1);
            assert_eq!(ask::<i64>(connection, &format!("EB.EXISTS f{at} 1")), 1);
        }
        let digest: String = ask(connection, "DEBUG DIGEST");
        for wrong in ["1", "1.001", "-0.5", "nan", "inf"] {
            let reserve = format!("EB.RESERVE f bloom capacity 1000 fpr {wrong}");
            assert!(error(connection, &reserve).starts_with("PARAMETER"), "{wrong}");
        }
        let () = ask(connection, "DEBUG RELOAD");
        assert_eq!(ask::<String>(connection, "DEBUG DIGEST"), digest);
    });
}

/// The branch's `apbf.py`: `test_expiry_count`.
#[test]
fn the_newest_thousand_are_present_and_earlier_ones_are_gone() {
    with_server("", |server| {
        let connection = &mut server.connect();
        for kind in ["age-partitioned last 1000 fpr 0.01", "timing last 1000 fpr 0.01"] {
            let () = ask(connection, &format!("EB.RESERVE seen {kind}"));
            for first in (0..20_000).step_by(500) {
                let _ = add(connection, "seen", first, first + 500);
            }
            assert_eq!(present(connection, "seen", 19_000, 20_000), 1000, "{kind}");
            let early = present(connection, "seen", 0, 10_000);
            assert!(early < 150, "{kind}: {early} of 10,000 that have left the window");
            let digest = server.digest("seen");
            let () = ask(connection, "DEBUG RELOAD");
            assert_eq!(present(connection, "seen", 19_000, 20_000), 1000, "{kind}");
            assert_eq!(server.digest("seen"), digest, "{kind}");
            let () = ask(connection, "DEL seen");
        }
    });
}

/// The branch's `apbf.py`: `test_expiry_time`, with the server's clock.
#[test]
fn time_alone_empties_a_window_and_it_is_used_again() {
    with_server("", |server| {
        let window = Duration::from_secs(1);
        let () = server.ask("EB.RESERVE seen time-limited window 1s fpr 0.0001");
        let connection = &mut server.connect();
        let start = Instant::now();
        let _ = add(connection, "seen", 0, 300);
        let lsn: i64 = ask(connection, "EB.INFO seen lsn");
        loop {
            let found = present(connection, "seen", 0, 300);
            let passed = start.elapsed();
            assert!(found == 300 || passed >= window, "{found} of 300 after {passed:?}");
            if found == 0 {
                break;
            }
            assert!(passed < LIMIT, "{found} of 300 are still there");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(ask::<i64>(connection, "EB.INFO seen lsn"), lsn, "questions change nothing");
        let start = Instant::now();
        for item in 0..50 {
            let _ = add(connection, "seen", item, item + 1);
            let least = item.saturating_sub(9);
            let found = present(connection, "seen", least, item + 1);
            assert!(found == i64::from(item + 1 - least) || start.elapsed() >= window);
        }
        let digest = server.digest("seen");
        let () = ask(connection, "DEBUG RELOAD");
        assert_eq!(server.digest("seen"), digest);
    });
}

/// RedisBloom: `test_resp3.py`. (Booleans would be other types than in RESP2.)
#[test]
fn replies_are_numbers_in_both_protocols() {
    with_server("", |server| {
        let (two, three) = (&mut server.connect(), &mut server.connect());
        let _: Value = ask(three, "HELLO 3");
        for kind in ["counting capacity 100", "age-partitioned last 100"] {
            for (connection, key) in [(&mut *two, "two"), (&mut *three, "three")] {
                let () = ask(connection, &format!("EB.RESERVE {key} {kind} SEED 1"));
            }
            for words in [
                "EB.ADD KEY item",
                "EB.ADDNX KEY item",
                "EB.EXISTS KEY item",
                "EB.INSERT KEY ITEMS item2 item3 item2",
                "EB.MADD KEY item4 item5 item2",
                "EB.MADDNX KEY item6 item4",
                "EB.MEXISTS KEY item4 item5 none",
                "EB.WITHIN KEY 5 item4 item2",
                "EB.AGE KEY item4 none",
                "EB.DEL KEY item4",
                "EB.DEL KEY none",
                "EB.INFO KEY inserts",
                "EB.INFO KEY kind",
                "EB.DEBUG DIGEST KEY",
                "EB.EXISTS missing item",
                "EB.MEXISTS missing item",
                "EB.AGE missing item",
            ] {
                let replies = [(&mut *two, "two"), (&mut *three, "three")].map(|(to, key)| {
                    let reply = command(&words.replace("KEY", key)).query::<Value>(to);
                    reply.map_err(|error| error.code().map(str::to_owned))
                });
                assert_eq!(replies[0], replies[1], "{kind}: {words}");
                let text = format!("{replies:?}");
                assert!(!text.contains("Boolean") && !text.contains("Double"), "{words}: {text}");
            }
            assert_eq!(server.digest("two"), server.digest("three"), "{kind}");
            let () = server.ask("FLUSHALL");
        }
    });
}
