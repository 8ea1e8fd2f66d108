//! Claims: their replies and errors, their leases, and that one of many clients gets an item.

use crate::commands::with_server;
use crate::samples::{Commands, SAMPLES};
use crate::server::{Server, ask, command, error, within};
use ebbtide_testkit::environment::{SEED, number, scaled};
use ebbtide_testkit::random::Random;
use redis::{Connection, Value};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A lease that is over in no test.
pub const LONG: u64 = 3_600_000;

/// A filter without false positives, as far as these tests can tell.
pub const RESERVE: &str = "EB.RESERVE seen age-partitioned last 100000 fpr 0.0000001";

/// Claims an item: the word and the number of the reply.
pub fn claim(connection: &mut Connection, item: &str, lease: u64) -> (String, u64) {
    ask(connection, &format!("EB.CLAIM seen {item} {lease}"))
}

/// Claims an item that is free; returns the token.
pub fn own(connection: &mut Connection, item: &str, lease: u64) -> u64 {
    let (word, token) = claim(connection, item, lease);
    assert_eq!(word, "YOURS", "{item}");
    token
}

/// Asserts that a claim has ended for the owner of a token.
pub fn assert_lost(connection: &mut Connection, item: &str, token: u64) {
    for words in [format!("CONFIRM seen {item} {token}"), format!("EXTEND seen {item} {token} 5")] {
        let error = error(connection, &format!("EB.{words}"));
        assert!(error.starts_with("LEASELOST"), "{words}: {error}");
        assert!(error.contains(&token.to_string()), "{words}: {error}");
    }
    let released: i64 = ask(connection, &format!("EB.RELEASE seen {item} {token}"));
    assert_eq!(released, 0, "{item}");
}

#[test]
fn a_claimed_item_is_in_progress_until_it_is_confirmed_and_seen_from_then_on() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, RESERVE);
        let token = own(connection, "a", LONG);
        assert!(token > 0 && token < 1 << 53, "{token}");
        let (word, left) = claim(connection, "a", 1);
        assert_eq!(word, "INPROGRESS");
        assert!((LONG - 60_000..=LONG).contains(&left), "{left}");
        assert_eq!(ask::<i64>(connection, "EB.EXISTS seen a"), 0);
        assert_eq!(ask::<i64>(connection, "EB.INFO seen claims"), 1);
        assert_eq!(ask::<i64>(connection, "EB.INFO seen inserts"), 0);
        assert_lost(connection, "b", token);
        assert_lost(connection, "a", token + 1);
        let confirmed: String = ask(connection, &format!("EB.CONFIRM seen a {token}"));
        assert_eq!(confirmed, "OK");
        assert_eq!(claim(connection, "a", LONG), ("SEEN".to_owned(), 0));
        assert_eq!(ask::<i64>(connection, "EB.EXISTS seen a"), 1);
        assert_eq!(ask::<i64>(connection, "EB.INFO seen claims"), 0);
        assert_eq!(ask::<i64>(connection, "EB.INFO seen oldest-claim"), 0);
        assert_eq!(ask::<i64>(connection, "EB.INFO seen inserts"), 1);
        assert_lost(connection, "a", token);
        // Whoever adds an item without a claim neither sees nor ends one.
        let token = own(connection, "b", LONG);
        assert_eq!(ask::<i64>(connection, "EB.ADD seen b"), 1);
        assert_eq!(claim(connection, "b", LONG).0, "SEEN");
        let () = ask(connection, &format!("EB.CONFIRM seen b {token}"));
    });
}

#[test]
fn replies_are_a_word_and_a_number_in_both_protocols() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, RESERVE);
        for protocol in ["2", "3"] {
            let _: Value = ask(connection, &format!("HELLO {protocol}"));
            let reply = |connection: &mut Connection| {
                let words = format!("EB.CLAIM seen {protocol} {LONG}");
                match ask::<Value>(connection, &words) {
                    Value::Array(both) => match &both[..] {
                        [Value::BulkString(word), Value::Int(number)] => (word.clone(), *number),
                        other => panic!("{other:?}"),
                    },
                    other => panic!("{other:?}"),
                }
            };
            let (word, token) = reply(connection);
            assert_eq!(word, b"YOURS");
            assert_eq!(reply(connection).0, b"INPROGRESS");
            let confirm = format!("EB.CONFIRM seen {protocol} {token}");
            assert_eq!(ask::<Value>(connection, &confirm), Value::Okay);
            assert_eq!(reply(connection), (b"SEEN".to_vec(), 0));
        }
    });
}

#[test]
fn a_released_item_may_be_claimed_again_at_once_with_a_greater_token() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, RESERVE);
        let mut last = 0;
        for _ in 0..5 {
            let token = own(connection, "a", LONG);
            assert!(token > last, "{token} after {last}");
            last = token;
            let release = format!("EB.RELEASE seen a {token}");
            assert_eq!(ask::<i64>(connection, &release), 1);
            assert_lost(connection, "a", token);
        }
        assert_eq!(ask::<i64>(connection, "EB.EXISTS seen a"), 0);
    });
}

#[test]
fn a_claim_ends_with_its_lease_and_what_its_owner_does_later_changes_nothing() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, RESERVE);
        let (lease, before) = (400, Instant::now());
        let first = own(connection, "a", lease);
        within("the lease is over", || match claim(&mut server.connect(), "a", LONG) {
            (word, left) if word == "INPROGRESS" => {
                assert!((1..=lease).contains(&left), "{left}");
                false
            }
            (word, _) => {
                assert_eq!(word, "YOURS");
                true
            }
        });
        assert!(before.elapsed() >= Duration::from_millis(lease), "{:?}", before.elapsed());
        assert_lost(connection, "a", first);
        assert_eq!(claim(connection, "a", 1).0, "INPROGRESS");
        assert_eq!(ask::<i64>(connection, "EB.EXISTS seen a"), 0);
        // Nobody else has claimed this one; its owner is too late all the same.
        let second = own(connection, "b", 1);
        thread::sleep(Duration::from_millis(20));
        assert_lost(connection, "b", second);
        assert_eq!(ask::<i64>(connection, "EB.INFO seen claims"), 1);
        assert!(own(connection, "b", LONG) > second);
    });
}

#[test]
fn an_extended_lease_ends_that_long_after_the_extension() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, RESERVE);
        let token = own(connection, "a", LONG);
        for lease in [10 * LONG, 2 * LONG, 8_388_607_000] {
            let () = ask(connection, &format!("EB.EXTEND seen a {token} {lease}"));
            let (word, left) = claim(connection, "a", 1);
            assert_eq!(word, "INPROGRESS");
            assert!((lease - 60_000..=lease + 1000).contains(&left), "{left} of {lease}");
        }
        thread::sleep(Duration::from_millis(50));
        // An extension changes neither the token nor the age.
        assert!(ask::<u64>(connection, "EB.INFO seen oldest-claim") >= 50);
        let () = ask(connection, &format!("EB.EXTEND seen a {token} 1"));
        thread::sleep(Duration::from_millis(20));
        assert_lost(connection, "a", token);
        assert!(own(connection, "a", LONG) > token);
    });
}

/// Clients that claim, work, and release or confirm the same items.
#[test]
fn an_item_is_never_claimed_by_two_clients_at_a_time_and_confirmed_once() {
    with_server("", |server| {
        const ITEMS: usize = 8;
        let () = server.ask(RESERVE);
        let busy: [AtomicBool; ITEMS] = Default::default();
        let (confirmed, tokens) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for client in 0..8 {
                let (mut connection, busy) = (server.connect(), &busy);
                let (confirmed, tokens) = (&confirmed, &tokens);
                scope.spawn(move || {
                    let mut random = Random::new(SEED + client);
                    let mut seen = [false; ITEMS];
                    while seen.contains(&false) {
                        let item = random.below(ITEMS as u64) as usize;
                        let (word, token) = claim(&mut connection, &item.to_string(), LONG);
                        match word.as_str() {
                            "SEEN" => seen[item] = true,
                            "INPROGRESS" => thread::yield_now(),
                            _ => {
                                assert!(!busy[item].swap(true, Ordering::SeqCst), "two have it");
                                tokens.lock().expect("no panic").push(token);
                                let is_done = random.below(20) == 0;
                                if is_done {
                                    confirmed.lock().expect("no panic").push(item);
                                }
                                busy[item].store(false, Ordering::SeqCst);
                                let end = if is_done { "CONFIRM" } else { "RELEASE" };
                                let () =
                                    ask(&mut connection, &format!("EB.{end} seen {item} {token}"));
                            }
                        }
                    }
                });
            }
        });
        let mut confirmed = confirmed.into_inner().expect("no panic");
        confirmed.sort_unstable();
        assert_eq!(confirmed, (0..ITEMS).collect::<Vec<_>>());
        let mut tokens = tokens.into_inner().expect("no panic");
        tokens.sort_unstable();
        assert!(tokens.is_sorted_by(|a, b| a < b), "no token is given twice");
        assert_eq!(server.ask::<i64>("EB.INFO seen claims"), 0);
    });
}

/// The state of an item in a model: its claim, and whether it is in the window.
#[derive(Default)]
struct Modelled {
    token: Option<u64>,
    is_seen: bool,
}

#[test]
fn random_commands_are_answered_as_by_a_model() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, RESERVE);
        let mut random = Random::new(number("EBBTIDE_SEED").unwrap_or(SEED));
        let mut model: BTreeMap<u64, Modelled> = BTreeMap::new();
        let (mut last, mut done) = (0, 0);
        for _ in 0..scaled(3000) {
            let item = done + random.below(6);
            let state = model.entry(item).or_default();
            // Now and then a token that nobody has for this item.
            let token = state.token.filter(|_| random.below(4) > 0).unwrap_or(last + 1);
            let is_own = state.token == Some(token);
            match random.below(8) {
                0..=3 => {
                    let (word, number) = claim(connection, &item.to_string(), LONG);
                    let expected = match (state.is_seen, state.token) {
                        (true, _) => "SEEN",
                        (_, Some(_)) => "INPROGRESS",
                        _ => "YOURS",
                    };
                    assert_eq!(word, expected);
                    if word == "YOURS" {
                        assert!(number > last, "{number} after {last}");
                        last = number;
                        state.token = Some(number);
                    }
                }
                4 => {
                    let words = format!("EB.CONFIRM seen {item} {token}");
                    assert_eq!(command(&words).query::<String>(connection).is_ok(), is_own);
                    state.is_seen |= is_own;
                    state.token = state.token.filter(|_| !is_own);
                }
                5 => {
                    let words = format!("EB.EXTEND seen {item} {token} {LONG}");
                    assert_eq!(command(&words).query::<String>(connection).is_ok(), is_own);
                }
                6 => {
                    let words = format!("EB.RELEASE seen {item} {token}");
                    assert_eq!(ask::<i64>(connection, &words), is_own.into());
                    state.token = state.token.filter(|_| !is_own);
                }
                _ if random.below(8) == 0 => {
                    let added: i64 = ask(connection, &format!("EB.ADD seen {item}"));
                    assert_eq!(added, (!state.is_seen).into());
                    state.is_seen = true;
                }
                _ => {}
            }
            let held = model.values().filter(|state| state.token.is_some()).count() as u64;
            assert_eq!(ask::<u64>(connection, "EB.INFO seen claims"), held);
            if model.values().filter(|state| state.is_seen).count() as u64 > done + 4 {
                done += 4;
            }
        }
    });
}

#[test]
fn items_of_every_kind_are_claimed_and_confirmed() {
    with_server("", |server| {
        let connection = &mut server.connect();
        for (at, sample) in SAMPLES.iter().enumerate() {
            let source = Commands::new(sample, format!("key:{at}"), false, 1);
            let _: String = source.reserve().query(connection).expect(sample.name);
            let words = format!("EB.CLAIM key:{at} item {LONG}");
            let (word, token): (String, u64) = ask(connection, &words);
            assert_eq!(word, "YOURS", "{}", sample.name);
            let (word, _): (String, u64) = ask(connection, &words);
            assert_eq!(word, "INPROGRESS", "{}", sample.name);
            let () = ask(connection, &format!("EB.CONFIRM key:{at} item {token}"));
            let there: i64 = ask(connection, &format!("EB.EXISTS key:{at} item"));
            let (word, _): (String, u64) = ask(connection, &words);
            assert_eq!(word == "SEEN", there == 1, "{}: {word}", sample.name);
            // Those that forget at random may have let the only item fall below their threshold.
            let is_random = ["stable", "importance"].iter().any(|k| sample.kind.starts_with(k));
            assert!(there == 1 || is_random, "{}", sample.name);
        }
    });
}

#[test]
fn wrong_arguments_get_one_clear_error_and_change_nothing() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, RESERVE);
        let () = ask(connection, "SET text x");
        let token = own(connection, "a", LONG);
        let digest = server.digest("seen");
        for (words, expected) in [
            ("EB.CLAIM seen b 0", "PARAMETER lease: expected milliseconds, from 1 to 8388607000"),
            ("EB.CLAIM seen b -1", "PARAMETER lease: expected milliseconds"),
            ("EB.CLAIM seen b 30s", "PARAMETER lease: expected milliseconds"),
            ("EB.CLAIM seen b 1.5", "PARAMETER lease: expected milliseconds"),
            ("EB.CLAIM seen b 8388607001", "PARAMETER lease: expected milliseconds"),
            ("EB.CLAIM seen b 18446744073709551615", "PARAMETER lease: expected milliseconds"),
            ("EB.CLAIM seen b 18446744073709551616", "PARAMETER lease: expected milliseconds"),
            ("EB.CONFIRM seen a x", "PARAMETER token: expected the number that EB.CLAIM returned"),
            ("EB.CONFIRM seen a -1", "PARAMETER token: expected"),
            ("EB.RELEASE seen a x", "PARAMETER token: expected"),
            ("EB.EXTEND seen a x 1000", "PARAMETER token: expected"),
            ("EB.EXTEND seen a 1 0", "PARAMETER lease: expected milliseconds"),
            ("EB.CONFIRM seen a 0", "LEASELOST the claim with token 0 has ended"),
            ("EB.CONFIRM seen a 18446744073709551615", "LEASELOST"),
            ("EB.EXTEND seen a 1 1000", "LEASELOST"),
            ("EB.CLAIM none a 1000", "NOTFOUND"),
            ("EB.CONFIRM none a 1", "NOTFOUND"),
            ("EB.RELEASE none a 1", "NOTFOUND"),
            ("EB.EXTEND none a 1 1000", "NOTFOUND"),
            ("EB.CLAIM text a 1000", "WRONGTYPE"),
            ("EB.CONFIRM text a 1", "WRONGTYPE"),
            ("EB.RELEASE text a 1", "WRONGTYPE"),
            ("EB.EXTEND text a 1 1000", "WRONGTYPE"),
            ("EB.CLAIM seen a", "ERR wrong number of arguments"),
            ("EB.CLAIM seen a 1 1", "ERR wrong number of arguments"),
            ("EB.CONFIRM seen a", "ERR wrong number of arguments"),
            ("EB.RELEASE seen a 1 1", "ERR wrong number of arguments"),
            ("EB.EXTEND seen a 1", "ERR wrong number of arguments"),
        ] {
            let error = error(connection, words);
            assert!(error.starts_with(expected), "{words}: {error}");
        }
        assert_eq!(ask::<i64>(connection, "EB.RELEASE seen a 1"), 0);
        assert_eq!(server.digest("seen"), digest);
        assert_eq!(ask::<i64>(connection, "DBSIZE"), 2);
        let () = ask(connection, &format!("EB.CONFIRM seen a {token}"));
    });
}

/// A script gets the token as a number of Lua, which is a double.
#[test]
fn scripts_and_transactions_claim_and_confirm() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, RESERVE);
        let mut script = redis::cmd("EVAL");
        let text = "local reply = redis.call('EB.CLAIM', KEYS[1], ARGV[1], 60000)
                    if reply[1] == 'YOURS' then
                        return redis.call('EB.CONFIRM', KEYS[1], ARGV[1], reply[2])
                    end
                    return reply[1]";
        script.arg(text).arg(1).arg("seen").arg("a");
        assert_eq!(script.query::<String>(connection).expect("a reply"), "OK");
        assert_eq!(script.query::<String>(connection).expect("a reply"), "SEEN");
        let mut pipe = redis::pipe();
        pipe.atomic();
        for words in ["EB.CLAIM seen b 60000", "EB.CLAIM seen b 60000", "EB.CONFIRM seen b 1"] {
            pipe.add_command(command(words));
        }
        pipe.ignore_errors();
        let replies: Vec<Value> = pipe.query(connection).expect("replies");
        assert!(format!("{:?}", replies[0]).contains("YOURS"), "{replies:?}");
        assert!(format!("{:?}", replies[1]).contains("INPROGRESS"), "{replies:?}");
        assert!(matches!(replies[2], Value::ServerError(_)), "{replies:?}");
    });
}

#[test]
fn claims_publish_events_and_break_watching_transactions_if_they_change_something() {
    with_server("--notify-keyspace-events Kd", |server| {
        let () = server.ask(RESERVE);
        let connection = &mut server.connect();
        let mut events = connection.as_pubsub();
        events.psubscribe("__keyspace@0__:*").expect("a subscription");
        let client = &mut server.connect();
        let (token, other) = (own(client, "a", LONG), own(client, "b", LONG));
        assert_eq!(claim(client, "a", LONG).0, "INPROGRESS");
        assert_lost(client, "a", token + 9);
        let () = ask(client, &format!("EB.EXTEND seen a {token} {LONG}"));
        let () = ask(client, &format!("EB.CONFIRM seen a {token}"));
        let () = ask(client, &format!("EB.RELEASE seen b {other}"));
        for expected in ["eb.claim", "eb.claim", "eb.extend", "eb.confirm", "eb.release"] {
            let message = events.get_message().expect("an event");
            assert_eq!(message.get_payload::<String>().expect("text"), expected);
        }
        for (words, is_broken) in [("EB.CLAIM seen a 9000", false), ("EB.CLAIM seen c 9000", true)]
        {
            let () = ask(client, "WATCH seen");
            let _: Value = server.ask(words);
            let () = ask(client, "MULTI");
            let () = ask(client, "EB.EXISTS seen a");
            assert_eq!(ask::<Value>(client, "EXEC") == Value::Nil, is_broken, "{words}");
        }
    });
}

/// Returns the milliseconds of a claim that is in progress.
pub fn left(server: &Server, item: &str) -> u64 {
    let (word, left) = claim(&mut server.connect(), item, 1);
    assert_eq!(word, "INPROGRESS", "{item}");
    left
}
