//! `EB.ALTER`: its errors and figures, and what becomes of claims.

use crate::claims::{LONG, assert_lost, claim, own};
use crate::commands::with_server;
use crate::server::{Server, ask, error, is_there, within};
use redis::{Connection, Value};

/// Adds items `first` to `last` - 1, many at once.
fn add(connection: &mut Connection, first: u32, last: u32) {
    let items: Vec<u32> = (first..last).collect();
    let _: Vec<i64> =
        redis::cmd("EB.MADD").arg("seen").arg(items).query(connection).expect("replies");
}

fn parameters(server: &Server) -> (String, String) {
    (server.ask("EB.INFO seen kind"), server.ask("EB.INFO seen parameters"))
}

#[test]
fn parameters_that_are_not_given_stay_and_another_kind_has_its_defaults() {
    with_server("", |server| {
        for (before, alter, after) in [
            ("fingerprint last 1000 fpr 0.01", "fingerprint last 500", "fpr=0.01 generations=14"),
            ("fingerprint last 1000 fpr 0.01", "fingerprint fpr 0.0001", "window-items=1000"),
            ("fingerprint window 10m rate 5", "fingerprint window=1h", "window=1h"),
            ("fingerprint window 10m rate 5", "fingerprint last 100", "window-items=100"),
            ("age-partitioned last 1000", "fingerprint last 100 fpr 0.01", "fpr=0.01"),
            ("counting capacity 100", "time-limited window 1m", "window=1m"),
        ] {
            let () = server.ask(&format!("EB.RESERVE seen {before}"));
            let () = server.ask("EB.ADD seen a");
            let was: Vec<String> = server.ask("EB.DEBUG POSITION seen");
            let () = server.ask(&format!("EB.ALTER seen {alter}"));
            let (kind, text) = parameters(server);
            assert_eq!(Some(&*kind), alter.split(' ').next(), "{before}, {alter}");
            assert!(text.contains(after), "{before}, {alter}: {text}");
            assert!(!alter.contains("window=") || !text.contains("rate=0"), "{alter}: {text}");
            let position: Vec<String> = server.ask("EB.DEBUG POSITION seen");
            assert_eq!(position[3..], was, "{before}, {alter}: the former filter");
            // What it is already, or is becoming, changes nothing.
            let digest = server.digest("seen");
            let () = server.ask(&format!("EB.ALTER seen {alter}"));
            assert_eq!(server.digest("seen"), digest);
            let _: Value = server.ask("DEL seen");
        }
    });
}

#[test]
fn a_filter_to_which_nothing_was_added_has_no_former_one_and_is_altered_again_at_once() {
    with_server("", |server| {
        let replica = Server::replica(server, "");
        let () = server.ask("EB.RESERVE seen fingerprint last 1000");
        let () = server.ask("EB.ALTER seen fingerprint window 365d");
        for words in ["fingerprint window 2h", "fingerprint window 1h"] {
            let left: Value = server.ask("EB.INFO seen whole-in");
            assert!(matches!(left, Value::Nil | Value::Int(0)), "{left:?}");
            let () = server.ask(&format!("EB.ALTER seen {words}"));
        }
        assert_eq!(server.ask::<i64>("EB.ADD seen a"), 1);
        // From here on there is something that the former one knows.
        let () = server.ask("EB.ALTER seen fingerprint window 2h");
        assert!(server.error("EB.ALTER seen fingerprint window 3h").starts_with("ALTERING"));
        assert_eq!(server.ask::<i64>("EB.EXISTS seen a"), 1);
        server.settle(&[&replica]);
        assert_eq!(replica.digest("seen"), server.digest("seen"));
    });
}

#[test]
fn an_alteration_that_cannot_be_is_refused_with_what_to_do_and_changes_nothing() {
    with_server("", |server| {
        assert!(server.error("EB.ALTER seen fingerprint last 10").starts_with("NOTFOUND"));
        let () = server.ask("SET text x");
        assert!(server.error("EB.ALTER text fingerprint last 10").starts_with("WRONGTYPE"));
        let () = server.ask("EB.RESERVE seen fingerprint last 1000");
        let () = server.ask("EB.ADD seen a");
        let digest = server.digest("seen");
        for (words, code, part) in [
            ("nothing last 10", "PARAMETER", "one of"),
            ("fingerprint last 0", "PARAMETER", "window-items"),
            ("fingerprint colour red", "PARAMETER", "colour"),
            ("fingerprint last", "PARAMETER", "EB.ALTER key kind"),
            ("fingerprint last 10 last 20", "PARAMETER", "one value"),
            ("fingerprint last 10 SEED 5", "PARAMETER", "stay as they are"),
            ("fingerprint HASH fast", "PARAMETER", "stay as they are"),
            ("fingerprint STRIPES 5", "PARAMETER", "unless EB.RESERVE chose others"),
            ("fingerprint BLOCK 1KiB", "PARAMETER", "unless EB.RESERVE chose others"),
            ("age-partitioned fpr 0.1", "PARAMETER", "window-items"),
            ("bloom capacity 1000", "UNSUPPORTED", "EB.RESERVE"),
            ("counting capacity 1000", "UNSUPPORTED", "EB.RESERVE"),
            ("decaying capacity 100 lambda 0.5 epoch 1h", "UNSUPPORTED", "EB.RESERVE"),
            ("stable cells 1000 max 3 K 4 P 5", "UNSUPPORTED", "no window"),
            ("fingerprint last 200M", "TOOLARGE", "max-filter-bytes"),
        ] {
            let error = server.error(&format!("EB.ALTER seen {words}"));
            assert!(error.starts_with(code) && error.contains(part), "{words}: {error}");
        }
        assert_eq!(server.digest("seen"), digest);
        assert_eq!(server.ask::<String>("EB.INFO seen former"), "");
        let () = server.ask("EB.ALTER seen fingerprint last 500");
        let digest = server.digest("seen");
        let error = server.error("EB.ALTER seen fingerprint last 400");
        assert!(error.starts_with("ALTERING") && error.contains("whole-in"), "{error}");
        assert_eq!(server.digest("seen"), digest);
        assert!(server.error("EB.COUNT seen a").starts_with("UNSUPPORTED"));
        assert!(server.error("EB.DEL seen a").starts_with("UNSUPPORTED"));
        assert!(server.error("EB.INSERT seen TIMES 2 ITEMS a").starts_with("UNSUPPORTED"));
        assert_eq!(server.digest("seen"), digest);
    });
}

#[test]
fn parameters_of_a_filter_without_a_window_are_not_looked_at() {
    with_server("", |server| {
        let () = server.ask(
            "EB.RESERVE faded decaying decay polynomial capacity 100 epoch 1h \
                             exponent 1 horizon 100",
        );
        let () = server.ask("EB.RESERVE counts counting capacity 1000");
        let digests = || ["faded", "counts"].map(|key| server.digest(key));
        let before = digests();
        for words in [
            "faded decaying",
            "faded decaying horizon 200",
            // What would be refused as a parameter: nothing is planned.
            "faded decaying horizon never",
            "faded decaying colour red",
            "counts counting",
            "counts counting colour red",
        ] {
            let error = server.error(&format!("EB.ALTER {words}"));
            assert!(error.starts_with("UNSUPPORTED") && error.contains("no window"), "{error}");
        }
        assert_eq!(digests(), before);
        // Another kind is planned.
        assert!(server.error("EB.ALTER faded fingerprint colour red").starts_with("PARAMETER"));
    });
}

#[test]
fn figures_and_memory_are_those_of_both_filters_until_the_former_one_is_dropped() {
    with_server("--ebbtide.max-filter-bytes 1mb", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, "EB.RESERVE seen fingerprint last 100000 STRIPES 1");
        add(connection, 0, 50_000);
        let figure = |name: &str| server.ask::<u64>(&format!("EB.INFO seen {name}"));
        let before = ["memory", "planned-memory"].map(figure);
        let filters = server.info("ebbtide", "ebbtide_filters");
        assert_eq!([figure("former-memory"), figure("whole-in")], [0, 0]);
        let () = ask(connection, "EB.ALTER seen age-partitioned last 2000 fpr 0.01");
        assert!(server.ask::<String>("EB.INFO seen former").contains("window-items=100000"));
        assert_eq!(server.info("ebbtide", "ebbtide_filters"), filters);
        assert_eq!(server.info("ebbtide", "ebbtide_altering"), "1");
        assert_eq!([figure("inserts"), figure("whole-in")], [0, 2000]);
        assert!(figure("memory") > before[0] && figure("planned-memory") > before[1]);
        assert!(figure("former-memory") > before[0] - 2000);
        add(connection, 50_000, 51_999);
        assert_eq!([figure("inserts"), figure("whole-in")], [1999, 1]);
        assert_eq!(ask::<i64>(connection, "EB.EXISTS seen 49999"), 1);
        let bytes = || server.info("ebbtide", "ebbtide_bytes").parse::<u64>().expect("bytes");
        let both = bytes();
        add(connection, 0, 1);
        assert_eq!([figure("whole-in"), figure("former-memory")], [0, 0]);
        assert_eq!(server.info("ebbtide", "ebbtide_altering"), "0");
        assert!(bytes() + 100_000 < both, "the memory is freed: {both}, {}", bytes());
        // The limit is that of both.
        let error = error(connection, "EB.ALTER seen fingerprint last 500000");
        assert!(error.starts_with("TOOLARGE") && error.contains("both"), "{error}");
        let () = ask(connection, "CONFIG SET ebbtide.max-filter-bytes 4mb");
        let () = ask(connection, "EB.ALTER seen fingerprint last 500000");
        let (_, head): (String, Vec<u8>) = ask(connection, "EB.SCANDUMP seen 0");
        assert!(head.starts_with(b"EBBTALT\n"));
    });
}

#[test]
fn an_alteration_needs_memory_and_its_effects_never_do() {
    if !is_there() {
        return;
    }
    let mut primary = Server::start("--appendonly yes --appendfsync always");
    let small = "--maxmemory 1mb --maxmemory-policy noeviction";
    let replica = Server::replica(&primary, &format!("{small} --ebbtide.max-filter-bytes 8kb"));
    let connection = &mut primary.connect();
    let () = ask(connection, "EB.RESERVE seen fingerprint last 1000");
    add(connection, 0, 100);
    let used: u64 = primary.info("memory", "used_memory").parse().expect("bytes");
    let () = ask(connection, &format!("CONFIG SET maxmemory {}", used + (1 << 20)));
    let refused = error(connection, "EB.ALTER seen fingerprint last 1M");
    assert!(refused.starts_with("TOOLARGE") && refused.contains("maxmemory"), "{refused}");
    let () = ask(connection, "CONFIG SET maxmemory 100kb");
    assert!(error(connection, "EB.ALTER seen fingerprint last 20").starts_with("OOM"));
    let () = ask(connection, "CONFIG SET maxmemory 0");
    let () = ask(connection, "EB.ALTER seen fingerprint last 20000");
    add(connection, 0, 50);
    let digest = primary.digest("seen");
    primary.settle(&[&replica]);
    assert_eq!(replica.digest("seen"), digest);
    assert_eq!(replica.info("stats", "unexpected_error_replies"), "0");
    primary.restart_with("--ebbtide.max-filter-bytes 8kb");
    assert_eq!(primary.digest("seen"), digest);
}

#[test]
fn the_records_of_both_filters_count_against_the_limit_of_a_command() {
    with_server("--ebbtide.max-command-records 15", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, "EB.RESERVE seen fingerprint last 100 fpr 0.0001");
        add(connection, 0, 10);
        for item in 0..13 {
            let _ = own(connection, &format!("claimed-{item}"), LONG);
        }
        let refused = error(connection, "EB.ALTER seen fingerprint last 50");
        assert!(refused.starts_with("TOOLARGE") && refused.contains("claims"), "{refused}");
        let () = ask(connection, "CONFIG SET ebbtide.max-command-records 16");
        let () = ask(connection, "EB.ALTER seen fingerprint last 50");
        add(connection, 0, 8);
        let mut many = redis::cmd("EB.MADD");
        many.arg("seen").arg((0..9).collect::<Vec<u32>>());
        let refused = many.query::<Value>(connection).expect_err("18 records");
        assert_eq!(refused.code(), Some("TOOLARGE"), "{refused}");
    });
}

#[test]
fn an_alteration_is_published_watched_and_refused_on_a_replica() {
    with_server("--notify-keyspace-events Kd", |server| {
        let replica = Server::replica(server, "");
        let () = server.ask("EB.RESERVE seen fingerprint last 100");
        let connection = &mut server.connect();
        let mut events = connection.as_pubsub();
        events.psubscribe("__keyspace@0__:*").expect("a subscription");
        let watching = &mut server.connect();
        let () = ask(watching, "WATCH seen");
        let () = server.ask("EB.ALTER seen fingerprint last 50");
        let () = server.ask("EB.ALTER seen fingerprint last 50");
        let () = server.ask("EB.ADD seen a");
        let () = server.ask("EB.ADDNX seen a");
        let () = server.ask("EB.ADD seen b");
        for expected in ["eb.alter", "eb.add", "eb.add"] {
            let message = events.get_message().expect("an event");
            assert_eq!(message.get_payload::<String>().expect("text"), expected);
        }
        let () = ask(watching, "MULTI");
        let () = ask(watching, "EB.EXISTS seen a");
        assert_eq!(ask::<Value>(watching, "EXEC"), Value::Nil);
        server.settle(&[&replica]);
        assert!(replica.error("EB.ALTER seen fingerprint last 20").starts_with("READONLY"));
        // In transactions and scripts both filters change as a whole, too.
        let () = ask(watching, "MULTI");
        let () = ask(watching, "EB.ADD seen c");
        let () = ask(watching, "EB.ADD seen d");
        let _: Value = ask(watching, "EXEC");
        let mut script = redis::cmd("EVAL");
        script.arg("for i = 1, 60 do redis.call('EB.ADD', KEYS[1], i) end").arg(1).arg("seen");
        let _: Value = script.query(watching).expect("a reply");
        server.settle(&[&replica]);
        assert_eq!(replica.digest("seen"), server.digest("seen"));
        assert_eq!(replica.ask::<String>("EB.INFO seen former"), "");
        assert_eq!(replica.info("stats", "unexpected_error_replies"), "0");
    });
}

#[test]
fn claims_are_held_over_an_alteration_with_their_tokens_and_leases() {
    with_server("--appendonly yes", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, "EB.RESERVE seen fingerprint last 1000 fpr 0.0000001");
        let held = own(connection, "a", LONG);
        let confirmed = own(connection, "b", LONG);
        let () = ask(connection, &format!("EB.CONFIRM seen b {confirmed}"));
        let short = own(connection, "short", 5);
        let renewed = own(connection, "renewed", 5000);
        // Above 2.3 hours leases are whole seconds.
        let () =
            ask(connection, &format!("EB.EXTEND seen renewed {renewed} {}", 97 * 86_400_000_u64));
        let late = own(connection, "late", LONG);
        let released = own(connection, "released", LONG);
        let () = ask(connection, &format!("EB.RELEASE seen released {released}"));
        within("a lease is over", || server.ask::<u64>("EB.INFO seen claims") == 3);
        let before = ["a", "renewed", "late"].map(|item| claim(connection, item, LONG).1);
        let () = ask(connection, "EB.ALTER seen fingerprint last 30");
        let after = ["a", "renewed", "late"].map(|item| claim(connection, item, LONG).1);
        for (before, after) in before.iter().zip(after) {
            assert!(after <= before + 1001 && after + 60_000 > *before, "{before}, {after}");
        }
        assert_eq!(ask::<u64>(connection, "EB.INFO seen claims"), 3);
        assert_eq!(claim(connection, "b", LONG).0, "SEEN");
        assert_lost(connection, "short", short);
        assert_lost(connection, "released", released);
        let digest = server.digest("seen");
        let () = ask(connection, "DEBUG LOADAOF");
        let () = ask(connection, "DEBUG RELOAD");
        assert_eq!(server.digest("seen"), digest);
        let next = own(connection, "released", LONG);
        assert!(next > released, "{next} after {released}");
        let () = ask(connection, &format!("EB.CONFIRM seen a {held}"));
        assert_eq!(claim(connection, "a", LONG), ("SEEN".to_owned(), 0));
        let () = ask(connection, &format!("EB.EXTEND seen late {late} {}", 2 * LONG));
        assert!(claim(connection, "late", LONG).1 > LONG);
        // They outlive the former filter.
        add(connection, 0, 40);
        assert_eq!(ask::<String>(connection, "EB.INFO seen former"), "");
        assert_eq!(ask::<u64>(connection, "EB.INFO seen claims"), 3);
        let () = ask(connection, &format!("EB.CONFIRM seen renewed {renewed}"));
        assert_eq!(ask::<i64>(connection, &format!("EB.RELEASE seen late {late}")), 1);
        assert_lost(connection, "a", held);
    });
}

#[test]
fn no_token_is_given_again_after_an_alteration_also_without_claims_and_on_a_promoted_replica() {
    if !is_there() {
        return;
    }
    let primary = Server::start("");
    let replica = Server::replica(&primary, "");
    let connection = &mut primary.connect();
    let () = ask(connection, "EB.RESERVE seen fingerprint last 1000 fpr 0.0000001");
    let last = own(connection, "a", LONG);
    let () = ask(connection, &format!("EB.CONFIRM seen a {last}"));
    let () = ask(connection, "EB.ALTER seen timing last 50 fpr 0.0000001");
    assert_eq!(ask::<u64>(connection, "EB.INFO seen claims"), 0);
    let mut token = own(connection, "b", LONG);
    assert_eq!(token, last + 1, "this server knows that it gave the latest one");
    primary.settle(&[&replica]);
    for item in 0..20 {
        token = own(connection, &format!("missed-{item}"), LONG).max(token);
    }
    let connection = &mut replica.connect();
    let () = ask(connection, "REPLICAOF NO ONE");
    assert_eq!(claim(connection, "a", LONG).0, "SEEN");
    assert_eq!(claim(connection, "b", LONG).0, "INPROGRESS");
    let () = ask(connection, &format!("EB.CONFIRM seen b {}", last + 1));
    assert_eq!(claim(connection, "b", LONG).0, "SEEN");
    assert!(own(connection, "c", LONG) > token);
}

/// As after an alteration of a window of time by mistake: the server's clock moves it on.
#[test]
fn a_window_of_the_clock_becomes_whole_by_time_and_the_next_change_drops_the_former_filter() {
    with_server("", |server| {
        let replica = Server::replica(server, "");
        let () = server.ask("EB.RESERVE seen fingerprint window 1h fpr 0.0000001");
        let connection = &mut server.connect();
        add(connection, 0, 200);
        let () = ask(connection, "EB.ALTER seen fingerprint window 700ms");
        let exist = |server: &Server| server.ask::<i64>("EB.EXISTS seen 7");
        within("the window is whole", || {
            exist(server) == 0 && server.ask::<u64>("EB.INFO seen whole-in") == 0
        });
        within("it is on the replica", || exist(&replica) == 0);
        assert_ne!(ask::<String>(connection, "EB.INFO seen former"), "");
        assert_eq!(ask::<i64>(connection, "EB.ADD seen 7"), 1);
        assert_eq!(ask::<String>(connection, "EB.INFO seen former"), "");
        server.settle(&[&replica]);
        assert_eq!(replica.ask::<String>("EB.INFO seen former"), "");
        assert_eq!(replica.digest("seen"), server.digest("seen"));
    });
}

/// The former filter is still there, because nothing has changed since the window became whole.
#[test]
fn a_window_that_is_whole_can_be_altered_again_at_once_and_replicas_and_files_follow() {
    with_server("--appendonly yes --appendfsync always", |server| {
        let replica = Server::replica(server, "");
        let () = server.ask("EB.RESERVE seen fingerprint window 1h fpr 0.0000001");
        let connection = &mut server.connect();
        add(connection, 0, 200);
        let () = ask(connection, "EB.ALTER seen fingerprint window 700ms");
        add(connection, 1000, 1100);
        assert!(server.error("EB.ALTER seen fingerprint window 2h").starts_with("ALTERING"));
        within("the window is whole", || server.ask::<u64>("EB.INFO seen whole-in") == 0);
        assert_ne!(ask::<String>(connection, "EB.INFO seen former"), "");
        assert_eq!(ask::<String>(connection, "EB.ALTER seen fingerprint window 2h"), "OK");
        assert!(ask::<String>(connection, "EB.INFO seen former").contains("window=700ms"));
        assert!(server.error("EB.ALTER seen fingerprint window 3h").starts_with("ALTERING"));
        add(connection, 2000, 2100);
        assert_eq!(ask::<i64>(connection, "EB.EXISTS seen 2050"), 1);
        server.settle(&[&replica]);
        let digest = server.digest("seen");
        assert_eq!(replica.digest("seen"), digest);
        assert_eq!(replica.info("stats", "unexpected_error_replies"), "0");
        let () = ask(connection, "DEBUG LOADAOF");
        assert_eq!(server.digest("seen"), digest);
    });
}

#[test]
fn effects_of_an_alteration_from_an_ordinary_client_are_applied_or_change_nothing() {
    if !is_there() {
        return;
    }
    let (server, other) = (Server::start(""), Server::start(""));
    let connection = &mut server.connect();
    let () = ask(connection, "EB.RESERVE seen fingerprint last 1000 SEED 7");
    add(connection, 0, 20);
    let identity = |words: &str| {
        let _: Value = other.ask("DEL made");
        let () = other.ask(&format!("EB.RESERVE made {words}"));
        let (_, piece): (String, Vec<u8>) = other.ask("EB.SCANDUMP made 0");
        let at = piece.windows(16).position(|window| window == b"ebbtide identity");
        piece[at.expect("the identity")..].to_vec()
    };
    let succeed = |connection: &mut Connection, identity: &[u8]| {
        let mut succeed = redis::cmd("EB.SUCCEED");
        let reply = succeed.arg("seen").arg(identity).query::<String>(connection);
        reply.map_err(|error| error.code().unwrap_or("ERR").to_owned())
    };
    let digest = server.digest("seen");
    let wrong = [identity("fingerprint last 100 SEED 8"), identity("bloom capacity 10 SEED 7")];
    for (identity, code) in [(&wrong[0], "PARAMETER"), (&wrong[1], "PARAMETER")] {
        assert_eq!(succeed(connection, identity), Err(code.to_owned()));
    }
    assert_eq!(succeed(connection, b"x"), Err("DAMAGED".to_owned()));
    let own: (String, Vec<u8>) = ask(connection, "EB.SCANDUMP seen 0");
    let at = own.1.windows(16).position(|window| window == b"ebbtide identity").expect("it");
    assert_eq!(succeed(connection, &own.1[at..]), Err("PARAMETER".to_owned()), "itself");
    assert_eq!(server.digest("seen"), digest);
    let right = identity("fingerprint last 100 SEED 7");
    assert_eq!(succeed(connection, &right), Ok("OK".to_owned()));
    assert_eq!(succeed(connection, &right), Err("ALTERING".to_owned()));
    assert_eq!(ask::<i64>(connection, "EB.EXISTS seen 7"), 1);
}
