//! The server's own rules hold for filters as for other values.

use crate::replicas::rewrite;
use crate::server::{Server, ask, error, is_there, within};
use redis::Value;

/// Runs with a new server that has one filter, `seen`, with one item, `a`.
fn with_filter(settings: &str, test: impl FnOnce(&Server)) {
    if is_there() {
        let server = Server::start(settings);
        let () = server.ask("EB.RESERVE seen age-partitioned last 1000");
        let () = server.ask("EB.ADD seen a");
        test(&server);
        if server.ask::<i64>("EXISTS seen") == 1 {
            let digest = server.digest("seen");
            let () = server.ask("DEBUG RELOAD");
            assert_eq!(server.digest("seen"), digest);
        }
    }
}

/// The names of all commands with a key.
pub const NAMES: [&str; 25] = [
    "EB.RESERVE",
    "EB.ALTER",
    "EB.ADD",
    "EB.MADD",
    "EB.ADDNX",
    "EB.MADDNX",
    "EB.INSERT",
    "EB.DEL",
    "EB.CLAIM",
    "EB.CONFIRM",
    "EB.RELEASE",
    "EB.EXTEND",
    "EB.EXISTS",
    "EB.MEXISTS",
    "EB.WITHIN",
    "EB.AGE",
    "EB.COUNT",
    "EB.CARD",
    "EB.INFO",
    "EB.SCANDUMP",
    "EB.DEBUG",
    "EB.CREATE",
    "EB.SUCCEED",
    "EB.APPLY",
    "EB.LOADCHUNK",
];

/// Those of administrators: they compose states, or show one with the key of its hash.
const ADMIN: [&str; 6] =
    ["EB.SCANDUMP", "EB.DEBUG", "EB.CREATE", "EB.SUCCEED", "EB.APPLY", "EB.LOADCHUNK"];

/// Returns arguments of the right number, of which `k` is the key.
pub fn arguments(name: &str) -> &'static str {
    match name {
        "EB.DEBUG" => "DIGEST k",
        "EB.CARD" => "k",
        "EB.ADD" | "EB.ADDNX" | "EB.EXISTS" | "EB.SCANDUMP" | "EB.CREATE" | "EB.SUCCEED" => "k x",
        "EB.APPLY" | "EB.LOADCHUNK" | "EB.CLAIM" | "EB.CONFIRM" | "EB.RELEASE" => "k x y",
        _ => "k x y z",
    }
}

#[test]
fn every_command_names_its_one_key_and_is_documented() {
    with_filter("", |server| {
        for name in NAMES {
            let words = arguments(name);
            let keys: Vec<String> = server.ask(&format!("COMMAND GETKEYS {name} {words}"));
            assert_eq!(keys, ["k"], "{name}");
            let docs = format!("{:?}", server.ask::<Value>(&format!("COMMAND DOCS {name}")));
            assert!(docs.contains("summary") && docs.contains("complexity"), "{docs}");
        }
        let mut listed: Vec<String> = server.ask("COMMAND LIST FILTERBY MODULE ebbtide");
        listed.retain(|name| !name.eq_ignore_ascii_case("EB.HELP"));
        assert_eq!(listed.len(), NAMES.len(), "{listed:?}");
        let help: Vec<String> = server.ask("EB.HELP");
        for name in listed {
            let line = format!("{} ", name.to_uppercase());
            assert!(help.iter().any(|help| help.starts_with(&line)), "no help for {name}");
            let one: Vec<String> = server.ask(&format!("EB.HELP {name}"));
            assert!(!one.is_empty() && one.iter().all(|help| help.starts_with(&line)), "{one:?}");
        }
        assert!(server.error("EB.HELP nothing").starts_with("PARAMETER"));
    });
}

/// RedisBloom: `test_acl.py`.
#[test]
fn access_is_granted_by_command_and_key() {
    with_filter("", |server| {
        let () = server.ask("ACL SETUSER reader on >secret ~seen +eb.exists +eb.mexists");
        let connection = &mut server.connect();
        let () = ask(connection, "AUTH reader secret");
        assert_eq!(ask::<i64>(connection, "EB.EXISTS seen a"), 1);
        for denied in ["EB.ADD seen b", "EB.EXISTS other a", "EB.APPLY seen 1 x"] {
            assert!(error(connection, denied).starts_with("NOPERM"), "{denied}");
        }
        let categories: Vec<String> = server.ask("ACL CAT");
        if categories.contains(&"ebbtide".to_owned()) {
            let () = server.ask("ACL SETUSER app on >secret ~* +@ebbtide -@dangerous");
            for name in NAMES {
                let words = arguments(name);
                let verdict: String = server.ask(&format!("ACL DRYRUN app {name} {words}"));
                let is_allowed = !verdict.contains("no permissions");
                assert_eq!(is_allowed, !ADMIN.contains(&name), "{name}: {verdict}");
            }
        }
        // Redis 7.0 has no categories for the commands of modules.
        let dangerous: Vec<String> = server.ask("ACL CAT dangerous");
        let dangerous: Vec<_> = dangerous.iter().map(|name| name.to_uppercase()).collect();
        if dangerous.iter().any(|name| name.starts_with("EB.")) {
            for name in NAMES {
                assert_eq!(dangerous.iter().any(|of| of == name), ADMIN.contains(&name), "{name}");
            }
        }
    });
}

/// valkey-bloom: `test_bloom_transaction`.
#[test]
fn a_watched_filter_breaks_a_transaction_only_if_a_record_was_emitted() {
    with_filter("", |server| {
        let watching = &mut server.connect();
        for (command, is_broken) in [
            ("EB.ADDNX seen a", false),
            ("EB.EXISTS seen a", false),
            ("EB.APPLY seen 77 x", false),
            ("EB.ADD seen b", true),
            ("EB.ADD seen b", true),
        ] {
            let () = ask(watching, "WATCH seen");
            let _ = crate::server::command(command).query::<Value>(&mut server.connect());
            let () = ask(watching, "MULTI");
            let () = ask(watching, "EB.EXISTS seen a");
            let done: Value = ask(watching, "EXEC");
            assert_eq!(done == Value::Nil, is_broken, "{command}: {done:?}");
        }
    });
}

#[test]
fn a_client_that_caches_receives_changes() {
    with_filter("", |server| {
        let (data, told) = (&mut server.connect(), &mut server.connect());
        let id: i64 = ask(told, "CLIENT ID");
        let mut told = told.as_pubsub();
        told.subscribe("__redis__:invalidate").expect("a subscription");
        let () = ask(data, &format!("CLIENT TRACKING on REDIRECT {id}"));
        assert_eq!(ask::<i64>(data, "EB.EXISTS seen a"), 1);
        let () = server.ask("EB.ADDNX seen a");
        let () = server.ask("EB.ADD seen b");
        let message = told.get_message().expect("an invalidation");
        assert_eq!(message.get_payload::<Vec<String>>().expect("keys"), ["seen"]);
    });
}

#[test]
fn answers_to_questions_are_marked_as_not_to_be_cached() {
    with_filter("", |server| {
        let is_marked = |name: &str| {
            let about = format!("{:?}", server.ask::<Value>(&format!("COMMAND INFO {name}")));
            about.contains("nondeterministic_output")
        };
        for name in ["EB.EXISTS", "EB.MEXISTS", "EB.WITHIN", "EB.AGE", "EB.COUNT", "EB.CARD"] {
            assert!(is_marked(name), "{name}");
        }
        assert!(is_marked("EB.INFO") && !is_marked("EB.ADD"));
    });
}

#[test]
fn events_are_published_if_something_was_written() {
    with_filter("--notify-keyspace-events Kd", |server| {
        let connection = &mut server.connect();
        let mut events = connection.as_pubsub();
        events.psubscribe("__keyspace@0__:*").expect("a subscription");
        for words in [
            "EB.ADDNX seen a",
            "EB.ADD seen b",
            "EB.RESERVE counts counting capacity 10",
            "EB.ADD counts a",
            "EB.DEL counts none",
            "EB.DEL counts a",
        ] {
            let () = server.ask(words);
        }
        for expected in ["eb.add", "eb.reserve", "eb.add", "eb.del"] {
            let message = events.get_message().expect("an event");
            assert_eq!(message.get_payload::<String>().expect("text"), expected);
        }
    });
}

/// valkey-bloom: `test_copy_and_exists_cmd`.
#[test]
fn filters_are_copied_renamed_moved_and_swapped() {
    with_filter("", |server| {
        let digest = server.digest("seen");
        let connection = &mut server.connect();
        assert_eq!(ask::<i64>(connection, "COPY seen copy"), 1);
        let () = ask(connection, "EB.ADD copy b");
        assert_eq!(server.digest("seen"), digest);
        assert_ne!(server.digest("copy"), digest);
        assert_eq!(ask::<i64>(connection, "COPY seen copy"), 0);
        assert_eq!(ask::<i64>(connection, "COPY seen copy REPLACE"), 1);
        assert_eq!(server.digest("copy"), digest);
        let () = ask(connection, "RENAME copy other");
        assert_eq!(server.digest("other"), digest);
        assert_eq!(ask::<i64>(connection, "MOVE other 1"), 1);
        let () = ask(connection, "SWAPDB 0 1");
        assert_eq!(server.digest("other"), digest);
        let () = ask(connection, "SWAPDB 0 1");
        assert_eq!(ask::<String>(connection, "OBJECT ENCODING seen"), "raw");
        assert_eq!(ask::<i64>(connection, "OBJECT REFCOUNT seen"), 1);
        assert_eq!(ask::<i64>(connection, "UNLINK seen"), 1);
        assert_eq!(ask::<i64>(connection, "EXISTS seen"), 0);
    });
}

/// valkey-bloom: `test_bloom_expiration`.
#[test]
fn a_key_that_expires_takes_its_filter_along_on_the_replica_too() {
    with_filter("", |server| {
        let replica = Server::replica(server, "");
        let () = server.ask("PEXPIRE seen 50");
        within("the key expires", || server.ask::<i64>("EXISTS seen") == 0);
        server.settle(&[&replica]);
        assert!(server.error("EB.ADD seen a").starts_with("NOTFOUND"));
        assert_eq!(replica.ask::<i64>("EB.EXISTS seen a"), 0);
        let () = server.ask("EB.RESERVE seen bloom capacity 100");
        server.settle(&[&replica]);
        assert_eq!(replica.digest("seen"), server.digest("seen"));
    });
}

#[test]
fn an_evicted_filter_leaves_the_replica_too() {
    with_filter("", |server| {
        let replica = Server::replica(server, "");
        let connection = &mut server.connect();
        for key in 0..200 {
            let () = ask(connection, &format!("EB.RESERVE f{key} bloom capacity 100000"));
            let () = ask(connection, &format!("EB.ADD f{key} a"));
        }
        let () = ask(connection, "CONFIG SET maxmemory-policy allkeys-random");
        let used: u64 = server.info("memory", "used_memory").parse().expect("bytes");
        let () = ask(connection, &format!("CONFIG SET maxmemory {}", used - (8 << 20)));
        let () = ask(connection, "SET one more");
        let left: u64 = ask(connection, "DBSIZE");
        assert!(left < 200, "{left}");
        let () = ask(connection, "CONFIG SET maxmemory 0");
        server.settle(&[&replica]);
        assert_eq!(replica.ask::<u64>("DBSIZE"), left);
        let digest: String = ask(connection, "DEBUG DIGEST");
        assert_eq!(replica.ask::<String>("DEBUG DIGEST"), digest);
    });
}

#[test]
fn a_large_filter_is_released_in_the_background() {
    with_filter("--ebbtide.max-filter-bytes 1gb", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, "EB.RESERVE large bloom capacity 50M STRIPES 1");
        for from in 0..200_u64 {
            let items: Vec<u64> = (from * 100..from * 100 + 100).collect();
            let mut add = redis::cmd("EB.MADD");
            let _: Vec<i64> = add.arg("large").arg(items).query(connection).expect("replies");
        }
        let bytes: u64 = ask(connection, "EB.INFO large memory");
        assert!(bytes > 65 << 20, "{bytes}");
        let () = ask(connection, "UNLINK large");
        let released = || server.info("memory", "lazyfreed_objects") == "1";
        within("the filter is released", released);
        let left: u64 = server.info("ebbtide", "ebbtide_bytes").parse().expect("bytes");
        assert!(left < 1 << 20, "{left}");
    });
}

#[test]
fn a_filter_of_a_few_mebibytes_is_released_in_the_background_too() {
    with_filter("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, "EB.RESERVE small bloom capacity 2M STRIPES 1");
        let items: Vec<u64> = (0..20_000).collect();
        let mut add = redis::cmd("EB.MADD");
        let _: Vec<i64> = add.arg("small").arg(items).query(connection).expect("replies");
        let bytes: u64 = ask(connection, "EB.INFO small memory");
        assert!((1 << 20..8 << 20).contains(&bytes), "{bytes}");
        let () = ask(connection, "UNLINK small");
        let released = || server.info("memory", "lazyfreed_objects") == "1";
        within("the filter is released", released);
    });
}

#[test]
fn a_rewritten_file_holds_every_filter_with_and_without_a_preamble() {
    with_filter("--appendonly yes", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, "EB.RESERVE big bloom capacity 2M STRIPES 3");
        let () = ask(connection, "EB.MADD big a b c d e f g h i j k l m n o p q r s t u v");
        let digest: String = ask(connection, "DEBUG DIGEST");
        for preamble in ["yes", "no"] {
            let () = ask(connection, &format!("CONFIG SET aof-use-rdb-preamble {preamble}"));
            rewrite(server);
            let () = ask(connection, "DEBUG LOADAOF");
            assert_eq!(ask::<String>(connection, "DEBUG DIGEST"), digest, "{preamble}");
        }
    });
}

#[test]
fn a_script_and_a_read_only_replica_obey_flags() {
    with_filter("", |server| {
        let replica = Server::replica(server, "");
        server.settle(&[&replica]);
        assert_eq!(replica.ask::<i64>("EB.EXISTS seen a"), 1);
        for write in [
            "EB.ADD seen b",
            "EB.ADDNX seen a",
            "EB.CLAIM seen a 1000",
            "EB.RELEASE seen a 1",
            "EB.RESERVE new bloom capacity 10",
        ] {
            assert!(replica.error(write).starts_with("READONLY"), "{write}");
        }
        let connection = &mut server.connect();
        let mut script = redis::cmd("EVAL_RO");
        script.arg("return redis.call('EB.EXISTS', KEYS[1], 'a')").arg(1).arg("seen");
        assert_eq!(script.query::<i64>(connection).expect("an answer"), 1);
        let mut script = redis::cmd("EVAL_RO");
        script.arg("return redis.call('EB.ADD', KEYS[1], 'b')").arg(1).arg("seen");
        assert!(script.query::<i64>(connection).is_err());
    });
}
