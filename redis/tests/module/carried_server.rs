//! Cases of valkey-bloom's suite and of RedisBloom's about what a server does with filters:
//! memory limits, transactions, scripts, expiry, replication, access, defragmentation.
//! `docs/runs/redis-cases.md` lists all cases.

use crate::commands::with_server;
use crate::rules::{NAMES, arguments};
use crate::server::{Server, ask, command, error, within};
use redis::{Connection, Value};
use std::collections::BTreeSet;

/// valkey-bloom: `test_large_allocation_when_below_maxmemory`.
#[test]
fn a_filter_larger_than_what_is_left_is_refused_under_every_policy_and_evicts_nothing() {
    with_server("--maxmemory 100mb --ebbtide.max-filter-bytes 1gb", |server| {
        let () = server.ask("EB.RESERVE seen bloom capacity 1000");
        let () = server.ask("EB.ADD seen a");
        let digest = server.digest("seen");
        for policy in ["noeviction", "allkeys-lru", "allkeys-random", "volatile-lru"] {
            let () = server.ask(&format!("CONFIG SET maxmemory-policy {policy}"));
            let error = server.error("EB.RESERVE large bloom capacity 100M");
            assert!(error.starts_with("TOOLARGE") && error.contains("maxmemory"), "{error}");
            assert_eq!(server.ask::<i64>("DBSIZE"), 1, "{policy}");
            assert_eq!(server.ask::<String>("EB.RESERVE small bloom capacity 10M"), "OK");
            assert_eq!(server.ask::<i64>("EB.ADD small a"), 1);
            let used: u64 = server.info("memory", "used_memory").parse().expect("bytes");
            assert!(used < 100 << 20, "{policy}: {used}");
            assert_eq!(server.ask::<i64>("DEL small"), 1);
            assert_eq!(server.digest("seen"), digest, "{policy}");
        }
        assert_eq!(server.info("stats", "evicted_keys"), "0");
    });
}

/// valkey-bloom: `test_large_allocation_when_above_maxmemory`.
#[test]
fn a_full_server_refuses_every_addition_and_answers_everything_else() {
    with_server("", |server| {
        let replica = Server::replica(server, "");
        let () = server.ask("EB.RESERVE seen counting capacity 1000");
        let () = server.ask("EB.MADD seen a b");
        let digest = server.digest("seen");
        let () = server.ask("CONFIG SET maxmemory 100kb");
        let mut refused = 0;
        // Neither policy finds a key that it may evict.
        for policy in ["noeviction", "volatile-lru"] {
            let () = server.ask(&format!("CONFIG SET maxmemory-policy {policy}"));
            for words in [
                "EB.RESERVE new bloom capacity 10M",
                "EB.RESERVE new bloom capacity 10",
                "EB.ADD seen c",
                "EB.ADDNX seen c",
                "EB.MADD seen c d",
                "EB.MADDNX seen c d",
                "EB.INSERT seen ITEMS c",
                "EB.CLAIM seen c 1000",
                "EB.CONFIRM seen c 1",
            ] {
                let error = server.error(words);
                assert!(error.starts_with("OOM"), "{policy}: {words}: {error}");
                refused += 1;
            }
            assert_eq!(server.info("errorstats", "errorstat_OOM"), format!("count={refused}"));
            assert_eq!(server.ask::<Vec<i64>>("EB.MEXISTS seen a b c"), [1, 1, 0]);
            assert_eq!(server.ask::<i64>("EB.INFO seen inserts"), 2);
            assert_eq!(server.digest("seen"), digest, "{policy}");
        }
        assert_eq!(server.ask::<i64>("EB.DEL seen b"), 1);
        assert_eq!(server.ask::<i64>("EB.RELEASE seen b 1"), 0);
        assert_eq!(server.ask::<Vec<i64>>("EB.MEXISTS seen a b"), [1, 0]);
        server.settle(&[&replica]);
        assert_eq!(replica.digest("seen"), server.digest("seen"));
        // With a policy that may evict everything, the filter goes, and there is no room still.
        let () = server.ask("CONFIG SET maxmemory-policy allkeys-lru");
        assert!(server.error("EB.RESERVE new bloom capacity 10").starts_with("OOM"));
        assert_eq!(server.ask::<i64>("DBSIZE"), 0);
        server.settle(&[&replica]);
        assert_eq!(replica.ask::<i64>("DBSIZE"), 0);
    });
}

/// Asserts that replica and append-only file hold what the server holds.
fn assert_kept(server: &Server, replica: &Server) {
    server.settle(&[replica]);
    let digest: String = server.ask("DEBUG DIGEST");
    assert_eq!(replica.ask::<String>("DEBUG DIGEST"), digest, "the replica");
    assert_eq!(replica.info("stats", "unexpected_error_replies"), "0");
    let () = server.ask("DEBUG LOADAOF");
    assert_eq!(server.ask::<String>("DEBUG DIGEST"), digest, "the file");
}

/// valkey-bloom: `test_bloom_transaction`.
#[test]
fn a_transaction_creates_fills_asks_and_deletes_in_order() {
    with_server("--appendonly yes --appendfsync no", |server| {
        let replica = Server::replica(server, "");
        let connection = &mut server.connect();
        let mut pipe = redis::pipe();
        pipe.atomic();
        for words in [
            "EB.RESERVE first bloom capacity 100",
            "EB.RESERVE second age-partitioned last 100",
            "EB.ADD first a",
            "EB.MADD second a b",
            "EB.EXISTS first a",
            "DEL first",
            "EB.EXISTS first a",
        ] {
            pipe.add_command(command(words));
        }
        let replies: Vec<Value> = pipe.query(connection).expect("replies");
        let both = Value::Array(vec![Value::Int(1), Value::Int(1)]);
        let [one, none] = [1, 0].map(Value::Int);
        let expected =
            [Value::Okay, Value::Okay, one.clone(), both, one.clone(), one.clone(), none];
        assert_eq!(replies, expected);
        assert_eq!(ask::<Vec<i64>>(connection, "EB.MEXISTS second a b c"), [1, 1, 0]);
        assert_eq!(ask::<i64>(connection, "DBSIZE"), 1);
        assert_kept(server, &replica);
        let digest = server.digest("second");
        for words in ["MULTI", "EB.ADD second c", "DEL second", "DISCARD"] {
            let _: Value = ask(connection, words);
        }
        assert_eq!(server.digest("second"), digest, "discarded");
        // A command that fails leaves the others of its transaction in force.
        for words in ["MULTI", "EB.ADD second c", "EB.ADD none c", "EB.DEL second c", "EXEC"] {
            let _ = command(words).query::<Value>(connection);
        }
        assert_eq!(ask::<i64>(connection, "EB.EXISTS second c"), 1);
        assert_kept(server, &replica);
    });
}

/// valkey-bloom: `test_bloom_lua`.
#[test]
fn a_script_creates_and_fills_several_filters() {
    const SCRIPT: &str = "
        redis.call('EB.RESERVE', KEYS[1], 'bloom', 'capacity', 100)
        redis.call('EB.RESERVE', KEYS[2], 'time-limited', 'window', '10m')
        redis.call('EB.ADD', KEYS[1], 'item1')
        redis.call('EB.ADD', KEYS[2], 'item2')
        redis.call('EB.MADD', KEYS[2], 'item3', 'item4', 'item5')
        local refused = redis.pcall('EB.ADD', KEYS[3], 'item1')
        return {redis.call('EB.ADD', KEYS[1], 'item1'), refused.err}";
    with_server("--appendonly yes --appendfsync no", |server| {
        let replica = Server::replica(server, "");
        let mut script = redis::cmd("EVAL");
        script.arg(SCRIPT).arg(3).arg(&["first", "second", "third"]);
        let (again, refused): (i64, String) = script.query(&mut server.connect()).expect("a reply");
        assert!(again == 0 && refused.starts_with("NOTFOUND"), "{again}, {refused}");
        let found: Vec<i64> = server.ask("EB.MEXISTS second item1 item2 item3 item4 item5");
        assert_eq!(found, [0, 1, 1, 1, 1]);
        assert_eq!(server.ask::<i64>("DBSIZE"), 2);
        assert_kept(server, &replica);
    });
}

/// valkey-bloom: `test_bloom_expiration`.
#[test]
fn a_time_to_live_is_set_kept_and_removed_as_for_other_keys() {
    with_server("--appendonly yes --appendfsync no", |server| {
        let replica = Server::replica(server, "");
        let connection = &mut server.connect();
        for key in ["idle", "expiring", "staying"] {
            let () = ask(connection, &format!("EB.RESERVE {key} bloom capacity 100"));
            let () = ask(connection, &format!("EB.ADD {key} item"));
            assert_eq!(ask::<i64>(connection, &format!("TTL {key}")), -1);
        }
        let idle = || server.ask::<i64>("OBJECT IDLETIME idle");
        within("the key is idle", || idle() >= 2);
        within("a question ends this", || {
            let () = server.ask("EB.EXISTS idle item");
            idle() < 2
        });
        let now: Vec<i64> = ask(connection, "TIME");
        let later = now[0] + 100_000;
        assert_eq!(ask::<i64>(connection, &format!("EXPIREAT staying {later}")), 1);
        let () = ask(connection, "EB.ADD staying item2");
        let left: i64 = ask(connection, "TTL staying");
        assert!((1..=100_000).contains(&left), "additions do not change it: {left}");
        assert_eq!(ask::<i64>(connection, "PERSIST staying"), 1);
        assert_eq!(ask::<i64>(connection, "TTL staying"), -1);
        let soon = now[0] + 2;
        assert_eq!(ask::<i64>(connection, &format!("EXPIREAT expiring {soon}")), 1);
        within("the key expires", || server.ask::<i64>("EB.EXISTS expiring item") == 0);
        assert_eq!(ask::<i64>(connection, &format!("EXPIREAT idle {}", now[0] - 5)), 1);
        assert!(error(connection, "EB.ADD idle item").starts_with("NOTFOUND"));
        within("both keys are deleted", || server.ask::<i64>("DBSIZE") == 1);
        assert_kept(server, &replica);
    });
}

/// Returns how often a command was executed.
fn calls(server: &Server, name: &str) -> u64 {
    let text: String = server.ask("INFO commandstats");
    let found = text.lines().find_map(|line| {
        let (found, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        found.eq_ignore_ascii_case(name).then(|| figures.split(',').next())?
    });
    found.map_or(0, |count| count.parse().expect("a number"))
}

/// valkey-bloom: `test_replication_behavior`.
#[test]
fn a_replica_gets_one_effect_of_each_change_and_nothing_else() {
    with_server("", |server| {
        let replica = Server::replica(server, "");
        server.settle(&[&replica]);
        let (mut created, mut applied) = (0, 0);
        for (words, effect) in [
            ("EB.RESERVE seen age-partitioned last 1000", "create"),
            ("EB.RESERVE seen age-partitioned last 1000 SAME", ""),
            ("EB.RESERVE seen age-partitioned last 1001 SAME", ""),
            ("EB.RESERVE seen bloom capacity 10", ""),
            ("EB.RESERVE counts counting capacity 100", "create"),
            ("EB.ADD seen item", "apply"),
            ("EB.ADD seen item", "apply"),
            ("EB.ADDNX seen item", ""),
            ("EB.MADD seen item1 item2", "apply"),
            ("EB.MADDNX seen item3 item", "apply"),
            ("EB.MADDNX seen item3 item", ""),
            ("EB.INSERT seen NX ITEMS item item4", "apply"),
            ("EB.INSERT counts TIMES 3 ITEMS item", "apply"),
            ("EB.DEL counts item TIMES 2", "apply"),
            ("EB.DEL counts none", ""),
            ("EB.EXISTS seen item", ""),
            ("EB.MEXISTS seen item none", ""),
            ("EB.WITHIN seen 5 item", ""),
            ("EB.AGE seen item", ""),
            ("EB.COUNT counts item", ""),
            ("EB.INFO seen", ""),
            ("EB.INFO seen inserts", ""),
            ("EB.SCANDUMP seen 0", ""),
            ("EB.ADD seen item item", ""),
            ("EB.MADD seen", ""),
            ("EB.ADD none item", ""),
            ("EB.RESERVE new bloom capacity 100 fpr 1.001", ""),
            ("EB.INSERT seen TIMES 0 ITEMS item", ""),
            ("EB.APPLY seen 1 x", ""),
            ("EB.LOADCHUNK seen 0 x", ""),
            ("EB.CREATE new x", ""),
        ] {
            let _ = command(words).query::<Value>(&mut server.connect());
            created += u64::from(effect == "create");
            applied += u64::from(effect == "apply");
            server.settle(&[&replica]);
            let found = [calls(&replica, "EB.CREATE"), calls(&replica, "EB.APPLY")];
            assert_eq!(found, [created, applied], "{words}");
        }
        for name in NAMES.iter().filter(|name| !["EB.CREATE", "EB.APPLY"].contains(name)) {
            assert_eq!(calls(&replica, name), 0, "{name}");
        }
        for key in ["seen", "counts"] {
            assert_eq!(replica.digest(key), server.digest(key));
            let figures = format!("EB.INFO {key} lsn");
            assert_eq!(replica.ask::<i64>(&figures), server.ask::<i64>(&figures));
        }
        assert_eq!(server.ask::<i64>("DEL seen"), 1);
        server.settle(&[&replica]);
        assert_eq!(replica.ask::<i64>("EXISTS seen"), 0);
        assert_eq!(replica.info("stats", "unexpected_error_replies"), "0");
    });
}

/// Returns the verdict about a command of a user.
fn may(connection: &mut Connection, name: &str) -> bool {
    let verdict: String = ask(connection, &format!("ACL DRYRUN user {name} {}", arguments(name)));
    !verdict.contains("no permissions")
}

/// RedisBloom: `test_acl_category`, `test_acl_json_commands`, `test_acl_non_default_user`.
#[test]
fn a_user_may_run_what_its_categories_hold_and_nothing_without_any() {
    const READ: [&str; 9] = [
        "EB.EXISTS",
        "EB.MEXISTS",
        "EB.WITHIN",
        "EB.AGE",
        "EB.COUNT",
        "EB.CARD",
        "EB.INFO",
        "EB.SCANDUMP",
        "EB.DEBUG",
    ];
    with_server("", |server| {
        let () = server.ask("EB.RESERVE seen bloom capacity 100");
        let digest = server.digest("seen");
        let () = server.ask("ACL SETUSER user on >secret ~* &*");
        let (admin, user) = (&mut server.connect(), &mut server.connect());
        let () = ask(user, "AUTH user secret");
        for name in NAMES {
            let error = error(user, &format!("{name} {}", arguments(name)));
            assert!(error.starts_with("NOPERM"), "{name}: {error}");
        }
        for (grant, name) in [("+eb.add", "EB.ADD"), ("+eb.exists", "EB.EXISTS")] {
            let () = ask(admin, &format!("ACL SETUSER user {grant}"));
            assert!(may(admin, name) && !may(admin, "EB.RESERVE"), "{grant}");
            let () = ask(admin, "ACL SETUSER user -@all");
        }
        let categories: Vec<String> = ask(admin, "ACL CAT");
        if categories.contains(&"ebbtide".to_owned()) {
            // Servers before Redis 8 and Valkey 8.1 leave commands of modules out of this list;
            // Valkey keeps their case.
            let listed: Vec<String> = ask(admin, "ACL CAT ebbtide");
            let listed: BTreeSet<_> = listed.iter().map(|name| name.to_uppercase()).collect();
            let expected = NAMES.into_iter().chain(["EB.HELP"]).map(str::to_owned).collect();
            assert!(listed.is_empty() || listed == expected, "{listed:?}");
            for (category, is_read) in [("read", true), ("write", false)] {
                let () = ask(admin, &format!("ACL SETUSER user -@all +@{category}"));
                for name in NAMES {
                    assert_eq!(may(admin, name), READ.contains(&name) == is_read, "{name}");
                }
            }
            let () = ask(admin, "ACL SETUSER user -@all +@ebbtide");
            assert!(NAMES.iter().all(|name| may(admin, name)));
            let denied = error(user, "BITCOUNT text");
            assert!(denied.starts_with("NOPERM"), "{denied}");
        }
        assert_eq!(server.digest("seen"), digest);
    });
}

/// RedisBloom: `test_defrag.py`. Debian's servers cannot defragment; those that are built with
/// the allocator of Redis can.
#[test]
fn defragmentation_returns_memory_and_keeps_all_filters() {
    const FILTERS: u32 = 10_000;
    with_server("", |server| {
        let connection = &mut server.connect();
        if command("CONFIG SET activedefrag yes").query::<Value>(connection).is_err() {
            println!("skipped: this server has no active defragmentation");
            return;
        }
        for setting in [
            "activedefrag no",
            "hz 100",
            "active-defrag-ignore-bytes 1",
            "active-defrag-threshold-lower 0",
            "active-defrag-cycle-max 99",
            "active-defrag-cycle-min 99",
        ] {
            let () = ask(connection, &format!("CONFIG SET {setting}"));
        }
        let mut pipe = redis::pipe();
        for key in 0..FILTERS {
            let kind = ["bloom capacity", "counting capacity", "age-partitioned last"];
            let kind = kind[key as usize % 3];
            let reserve = format!("EB.RESERVE f{key} {kind} {}", 50 + key % 200);
            pipe.add_command(command(&reserve)).ignore();
            pipe.add_command(command(&format!("EB.MADD f{key} a b c {key}"))).ignore();
        }
        (0..FILTERS).step_by(2).for_each(|key| {
            pipe.cmd("DEL").arg(format!("f{key}")).ignore();
        });
        let () = pipe.query(connection).expect("replies");
        let digest: String = ask(connection, "DEBUG DIGEST");
        let ratio =
            || -> f64 { server.info("memory", "allocator_frag_ratio").parse().expect("a ratio") };
        within("memory is fragmented", || ratio() > 1.3);
        let () = ask(connection, "CONFIG SET activedefrag yes");
        // Words are moved; the kind of a filter and its tables, a fifth of a small one, are not.
        within("memory is returned", || ratio() < 1.2);
        let () = ask(connection, "CONFIG SET activedefrag no");
        assert_ne!(server.info("stats", "active_defrag_hits"), "0");
        assert_eq!(ask::<String>(connection, "DEBUG DIGEST"), digest);
        for key in (1..FILTERS).step_by(2) {
            let found: Vec<i64> = ask(connection, &format!("EB.MEXISTS f{key} a b c {key}"));
            assert_eq!(found, [1; 4], "f{key}");
        }
        let () = ask(connection, "DEBUG RELOAD");
        assert_eq!(ask::<String>(connection, "DEBUG DIGEST"), digest);
    });
}
