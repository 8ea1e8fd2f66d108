//! `BF.*`, which are there if a setting says so, and how many different items there are. What
//! clients make of the replies: `tests/clients`.

use crate::commands::with_server;
use crate::server::{Server, ask, command, error, is_there};
use redis::{Connection, Value};

const BF: &str = "--ebbtide.bf-commands yes";

fn value(connection: &mut Connection, words: &str) -> Value {
    ask(connection, words)
}

fn text(of: &str) -> Value {
    Value::BulkString(of.as_bytes().to_vec())
}

#[test]
fn without_the_setting_there_is_no_command_of_another_module() {
    with_server("", |server| {
        assert!(server.error("BF.ADD seen a").contains("unknown command"));
        let listed: Vec<String> = server.ask("COMMAND LIST FILTERBY MODULE ebbtide");
        assert!(listed.iter().all(|name| name.to_uppercase().starts_with("EB.")), "{listed:?}");
        assert!(server.error("CONFIG SET ebbtide.bf-commands yes").contains("immutable"));
    });
}

#[test]
fn replies_are_those_that_clients_of_bloom_filters_expect() {
    with_server(BF, |server| {
        let connection = &mut server.connect();
        assert_eq!(value(connection, "BF.RESERVE b 0.001 1000 EXPANSION 2"), Value::Okay);
        assert!(error(connection, "BF.RESERVE b 0.001 1000").starts_with("ERR item exists"));
        assert_eq!(value(connection, "BF.ADD b x"), Value::Int(1));
        assert_eq!(value(connection, "BF.ADD b x"), Value::Int(0));
        assert_eq!(ask::<Vec<i64>>(connection, "BF.MADD b x y z"), [0, 1, 1]);
        assert_eq!(value(connection, "BF.EXISTS b y"), Value::Int(1));
        assert_eq!(value(connection, "BF.EXISTS nothing y"), Value::Int(0));
        assert_eq!(ask::<Vec<i64>>(connection, "BF.MEXISTS b x w"), [1, 0]);
        assert_eq!(ask::<Vec<i64>>(connection, "BF.INSERT b NOCREATE ITEMS x w"), [0, 1]);
        assert_eq!(ask::<i64>(connection, "BF.CARD b"), 4);
        assert_eq!(ask::<i64>(connection, "BF.CARD nothing"), 0);
        let Value::Array(info) = value(connection, "BF.INFO b") else { panic!("an array") };
        let names = info.iter().step_by(2).cloned().collect::<Vec<_>>();
        let expected =
            ["Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"];
        assert_eq!(names, expected.map(text));
        assert_eq!([&info[1], &info[5], &info[7]], [1000, 1, 4].map(Value::Int).each_ref());
        assert_eq!(info[9], Value::Nil);
        assert_eq!(ask::<Vec<i64>>(connection, "BF.INFO b CAPACITY"), [1000]);

        let _: Value = ask(connection, "HELLO 3");
        assert_eq!(value(connection, "BF.ADD b v"), Value::Boolean(true));
        assert_eq!(value(connection, "BF.EXISTS b v"), Value::Boolean(true));
        let both = Value::Array([false, true].map(Value::Boolean).to_vec());
        assert_eq!(value(connection, "BF.MADD b x u"), both);
        assert_eq!(value(connection, "BF.MEXISTS b t u"), both);
        assert_eq!(value(connection, "BF.INSERT b ITEMS x s"), both);
        assert!(matches!(value(connection, "BF.INFO b"), Value::Map(pairs) if pairs.len() == 5));
        let one = |name: &str, number: Value| Value::Map(vec![(text(name), number)]);
        let named = [("CAPACITY", "Capacity", 1000), ("ITEMS", "Number of items inserted", 7)];
        for (word, name, number) in named {
            let words = format!("BF.INFO b {word}");
            assert_eq!(value(connection, &words), one(name, Value::Int(number)), "{words}");
        }
        assert_eq!(value(connection, "BF.INFO b EXPANSION"), one("Expansion rate", Value::Nil));
    });
}

/// What RedisBloom takes, too.
#[test]
fn words_without_an_effect_are_taken() {
    with_server(BF, |server| {
        let words = "BF.INSERT b CAPACITY 9 NONSCALING EXPANSION 2 ITEMS x";
        assert_eq!(server.ask::<Vec<i64>>(words), [1]);
        for there in ["CAPACITY 9 NOCREATE", "NOCREATE ERROR 0.1", "NOCREATE"] {
            let words = format!("BF.INSERT b {there} ITEMS x");
            assert_eq!(server.ask::<Vec<i64>>(&words), [0], "{words}");
        }
        for (key, growth) in
            [("c", "NONSCALING EXPANSION 0"), ("d", "EXPANSION 0 NONSCALING"), ("e", "EXPANSION 0")]
        {
            let () = server.ask(&format!("BF.RESERVE {key} 0.01 100 {growth}"));
        }
    });
}

#[test]
fn what_a_command_of_bloom_filters_cannot_do_is_said_and_changes_nothing() {
    with_server(BF, |server| {
        for (words, code) in [
            ("BF.RESERVE b 0 100", "PARAMETER"),
            ("BF.RESERVE b 1 100", "PARAMETER"),
            ("BF.RESERVE b 0.01 0", "PARAMETER"),
            ("BF.RESERVE b x 100", "PARAMETER"),
            ("BF.RESERVE b 0.01 100 EXPANSION", "PARAMETER"),
            ("BF.RESERVE b 0.01 100 SCALING", "PARAMETER"),
            ("BF.RESERVE b 0.01 100 EXPANSION 2 NONSCALING", "PARAMETER"),
            ("BF.INSERT b CAPACITY 9 NONSCALING EXPANSION x ITEMS x", "PARAMETER"),
            ("BF.RESERVE b 0.01 100 NONSCALING EXPANSION 2", "PARAMETER"),
            ("BF.RESERVE b 0.01 100 EXPANSION 2 EXPANSION 2", "PARAMETER"),
            ("BF.INSERT b EXPANSION 0 EXPANSION 2 CAPACITY 9 ITEMS x", "PARAMETER"),
            ("BF.INSERT b CAPACITY 9 CAPACITY 10 ITEMS x", "PARAMETER"),
            ("BF.INSERT b ERROR 0.1 ERROR 0.01 ITEMS x", "PARAMETER"),
            ("BF.RESERVE b 0.000001 9000000000", "TOOLARGE"),
            ("BF.INSERT b CAPACITY 9000000000 ITEMS x", "TOOLARGE"),
            ("BF.INSERT b CAPACITY 100 ITEMS", "PARAMETER"),
            ("BF.INSERT b CAPACITY 100 NOCREATE ITEMS x", "ERR not found"),
            ("BF.INSERT b NOCREATE ITEMS x", "ERR not found"),
            ("BF.INSERT b ITEMS x", "NOTFOUND"),
            ("BF.ADD b x", "NOTFOUND"),
            ("BF.MADD b x y", "NOTFOUND"),
            ("BF.INFO b", "ERR not found"),
            ("BF.INFO b ITEMS", "ERR not found"),
            ("BF.SCANDUMP b 0", "UNSUPPORTED"),
            ("BF.LOADCHUNK b 1 x", "UNSUPPORTED"),
        ] {
            let found = server.error(words);
            assert!(found.starts_with(code), "{words}: {found}");
            assert_eq!(server.ask::<i64>("EXISTS b"), 0, "{words}");
        }
        assert!(server.error("BF.SCANDUMP b 0").contains("EB.SCANDUMP"));
        let () = server.ask("SET text x");
        assert!(server.error("BF.ADD text x").starts_with("WRONGTYPE"));
    });
}

#[test]
fn windows_are_asked_and_filled_by_the_same_commands() {
    with_server(BF, |server| {
        let () = server.ask("EB.RESERVE seen age-partitioned last 100");
        assert_eq!(server.ask::<Vec<i64>>("BF.MADD seen a b a"), [1, 1, 0]);
        assert_eq!(server.ask::<i64>("EB.EXISTS seen a"), 1);
        assert_eq!(server.ask::<i64>("BF.CARD seen"), 2);
        assert_eq!(server.ask::<i64>("EB.CARD seen"), 2);
        assert_eq!(server.ask::<Vec<i64>>("BF.INFO seen CAPACITY"), [100]);
        // A kind that does not contain how many different items it has: what was added.
        let () = server.ask("EB.RESERVE faded decaying capacity 100 epoch 1s lambda 0.9");
        let _: Vec<i64> = server.ask("EB.MADD faded a b a");
        assert_eq!(server.ask::<i64>("BF.CARD faded"), 3);
        assert!(server.error("EB.CARD faded").starts_with("UNSUPPORTED"));
    });
}

#[test]
fn replicas_and_files_get_records_and_need_no_command_of_bloom_filters() {
    if !is_there() {
        return;
    }
    let mut primary = Server::start(&format!("{BF} --appendonly yes --appendfsync always"));
    let replica = Server::replica(&primary, "");
    let () = primary.ask("BF.RESERVE b 0.001 1000");
    let _: Vec<i64> = primary.ask("BF.INSERT made CAPACITY 500 ERROR 0.01 ITEMS a b c");
    for item in 0..50 {
        let _: i64 = primary.ask(&format!("BF.ADD b {item}"));
    }
    let _: Vec<i64> = primary.ask("BF.MADD b x y 7");
    primary.settle(&[&replica]);
    let digests = ["b", "made"].map(|key| primary.digest(key));
    assert_eq!(["b", "made"].map(|key| replica.digest(key)), digests);
    assert!(replica.error("BF.ADD b x").contains("unknown command"));
    let files = std::fs::read_dir(primary.home().join("appendonlydir")).expect("files");
    let written = files.map(|file| std::fs::read(file.expect("a file").path()).expect("bytes"));
    let written = String::from_utf8_lossy(&written.flatten().collect::<Vec<u8>>()).into_owned();
    assert!(written.contains("EB.APPLY") && !written.contains("BF."), "effects only");
    primary.restart();
    assert_eq!(["b", "made"].map(|key| primary.digest(key)), digests);
}

#[test]
fn different_items_are_counted_and_repeated_ones_are_not() {
    with_server("", |server| {
        let connection = &mut server.connect();
        assert_eq!(ask::<i64>(connection, "EB.CARD nothing"), 0);
        for (kind, parameters) in [
            ("fingerprint", "window 10m"),
            ("fingerprint", "last 20000"),
            ("bloom", "capacity 20000"),
            ("counting", "capacity 20000"),
            ("timing", "last 20000"),
            ("block-timing", "last 20000"),
        ] {
            let () = ask(connection, &format!("EB.RESERVE seen {kind} {parameters} SEED 7"));
            assert_eq!(ask::<i64>(connection, "EB.CARD seen"), 0, "{kind}");
            let _: i64 = ask(connection, "EB.ADD seen 0");
            assert_eq!(ask::<i64>(connection, "EB.CARD seen"), 1, "{kind}");
            for _ in 0..2 {
                for piece in 0..10 {
                    let mut add = command("EB.MADD seen");
                    (0..900).for_each(|item| {
                        add.arg(piece * 900 + item);
                    });
                    let _: Vec<i64> = add.query(connection).expect("replies");
                }
            }
            let found = ask::<i64>(connection, "EB.CARD seen");
            // 9,000 of them, twice; items of the same fingerprint count as one.
            assert!((8_820..=9_180).contains(&found), "{kind} {parameters}: {found}");
            let _: i64 = ask(connection, "DEL seen");
        }
    });
}

#[test]
fn different_items_of_a_part_of_the_window_are_counted() {
    with_server("", |server| {
        let () = server.ask("EB.RESERVE seen fingerprint last 14000");
        let () = server.ask("EB.RESERVE ever bloom capacity 20000");
        let () = server.ask("EB.RESERVE minutes fingerprint window 10m");
        let connection = &mut server.connect();
        for key in ["seen", "ever", "minutes"] {
            for piece in 0..10 {
                let mut add = command(&format!("EB.MADD {key}"));
                (0..900).for_each(|item| {
                    add.arg(piece * 900 + item);
                });
                let _: Vec<i64> = add.query(connection).expect("replies");
            }
        }
        let within: Vec<i64> =
            [1, 1000, 4500, 100_000].map(|n| ask(connection, &format!("EB.CARD seen {n}"))).into();
        // Up to one generation, 1000 items, more than was asked for.
        for (found, least) in within.into_iter().zip([1, 1000, 4500, 9000]) {
            assert!((least - 20..=least + 1000).contains(&found), "{found} of the last {least}");
        }
        assert!((8_990..=9_010).contains(&ask::<i64>(connection, "EB.CARD minutes 5m")));
        assert!(server.error("EB.CARD ever 1000").starts_with("UNSUPPORTED"));
        assert!(server.error("EB.CARD seen 5m").starts_with("PARAMETER"));
        assert!(server.error("EB.CARD seen x").starts_with("PARAMETER"));
        assert!(server.error("EB.CARD seen 1 2").contains("EB.CARD key [reach]"));
    });
}
