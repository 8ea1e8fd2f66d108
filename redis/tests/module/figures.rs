//! The figures of `INFO ebbtide`.

use crate::commands::with_server;
use crate::server::{Server, ask};
use redis::{Connection, Value};

/// Adds many different items.
fn add(connection: &mut Connection, key: &str, count: u32) {
    let items: Vec<u32> = (0..count).collect();
    let _: Vec<i64> = redis::cmd("EB.MADD").arg(key).arg(items).query(connection).expect("replies");
}

fn saturated(server: &Server) -> u64 {
    server.info("ebbtide", "ebbtide_saturated").parse().expect("a number")
}

#[test]
fn a_small_filter_that_is_saturated_is_counted_soon_and_wherever_it_is_loaded() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, "EB.RESERVE full bloom capacity 100 fpr 0.001");
        let () = ask(connection, "EB.RESERVE other bloom capacity 5000 fpr 0.001");
        add(connection, "full", 1000);
        add(connection, "other", 1000);
        assert_eq!(ask::<i64>(connection, "EB.INFO full saturated"), 1);
        assert_eq!(ask::<i64>(connection, "EB.INFO other saturated"), 0);
        assert_eq!(saturated(server), 1);
        let () = ask(connection, "DEBUG RELOAD");
        assert_eq!(saturated(server), 1, "after a snapshot");
        let _: i64 = ask(connection, "COPY full copy");
        assert_eq!(saturated(server), 2, "a copy");
        let (mut cursor, mut number) = ("0".to_owned(), 0);
        while number == 0 || cursor != "0" {
            let words = format!("EB.SCANDUMP full {cursor}");
            let (next, piece): (String, Vec<u8>) = ask(connection, &words);
            let mut load = redis::cmd("EB.LOADCHUNK");
            let () = load.arg("loaded").arg(number).arg(piece).query(connection).expect("a piece");
            (cursor, number) = (next, number + 1);
        }
        assert_eq!(saturated(server), 3, "pieces");
        let _: Value = ask(connection, "DEL full copy loaded");
        assert_eq!(saturated(server), 0);
    });
}

#[test]
fn a_filter_that_is_altered_is_no_longer_counted_as_saturated() {
    with_server("", |server| {
        let connection = &mut server.connect();
        let () = ask(connection, "EB.RESERVE seen bloom capacity 100 fpr 0.001");
        add(connection, "seen", 70_000);
        assert_eq!(saturated(server), 1);
        let () = ask(connection, "EB.ALTER seen fingerprint last 1000");
        assert_eq!(ask::<i64>(connection, "EB.INFO seen saturated"), 0);
        assert_eq!(saturated(server), 0);
    });
}
