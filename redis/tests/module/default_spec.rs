//! Filters that the first item of a key creates, if a setting says of which kind.

use crate::commands::with_server;
use crate::server::{Server, is_there};

/// Sets the spec, which has blanks.
fn set(server: &Server, spec: &str) -> Result<(), String> {
    let mut config = redis::cmd("CONFIG");
    config.arg("SET").arg("ebbtide.default-spec").arg(spec);
    config.query(&mut server.connect()).map_err(|error| error.to_string())
}

#[test]
fn the_first_item_of_a_key_creates_the_filter_of_the_spec() {
    with_server("", |server| {
        for words in ["EB.ADD seen a", "EB.MADD seen a b", "EB.CLAIM seen a 1000"] {
            assert!(server.error(words).starts_with("NOTFOUND"), "off by default: {words}");
        }
        set(server, "fingerprint window=10m fpr=0.0001").expect("a spec");
        for (at, words) in [
            "EB.ADD k0 a",
            "EB.ADDNX k1 a",
            "EB.MADD k2 a b",
            "EB.MADDNX k3 a b",
            "EB.INSERT k4 NX ITEMS a",
            "EB.CLAIM k5 a 1000",
        ]
        .into_iter()
        .enumerate()
        {
            let _: redis::Value = server.ask(words);
            let parameters: String = server.ask(&format!("EB.INFO k{at} parameters"));
            assert!(parameters.contains("fpr=0.0001"), "{parameters}");
            assert!(parameters.contains("window=10m"), "{parameters}");
        }
        assert_eq!(server.ask::<i64>("EB.ADD k0 a"), 0);
        assert_eq!(server.ask::<i64>("EB.EXISTS other a"), 0, "a question creates nothing");
        assert!(server.error("EB.DEL other a").starts_with("NOTFOUND"));
        assert!(server.error("EB.CONFIRM other a 1").starts_with("NOTFOUND"));
        // A filter that is there stays what it is.
        let () = server.ask("EB.RESERVE other bloom capacity 10");
        let _: i64 = server.ask("EB.ADD other a");
        assert_eq!(server.ask::<String>("EB.INFO other kind"), "bloom");
        set(server, "").expect("off");
        assert!(server.error("EB.ADD seen a").starts_with("NOTFOUND"));
    });
}

#[test]
fn a_spec_that_no_filter_has_is_refused() {
    with_server("", |server| {
        set(server, "bloom capacity=100").expect("a spec");
        for wrong in ["nothing window=10m", "fingerprint", "fingerprint window=x", "window=10m"] {
            set(server, wrong).expect_err(wrong);
        }
        let found: Vec<String> = server.ask("CONFIG GET ebbtide.default-spec");
        assert_eq!(found[1], "bloom capacity=100", "the one before is in force");
    });
}

#[test]
fn a_command_that_is_refused_creates_nothing() {
    with_server("--ebbtide.max-filter-bytes 1mb --ebbtide.max-command-records 4", |server| {
        set(server, "bloom capacity=100M").expect("a spec");
        assert!(server.error("EB.ADD seen a").starts_with("TOOLARGE"));
        set(server, "fingerprint window=10m").expect("a spec");
        for (words, code) in [
            ("EB.MADD seen a b c d e", "TOOLARGE"),
            ("EB.INSERT seen TIMES 2 ITEMS a", "UNSUPPORTED"),
            ("EB.INSERT seen AT 99999999999999 ITEMS a", "TIMEAHEAD"),
            ("EB.INSERT seen ITEMS a b c d e", "TOOLARGE"),
            ("EB.CLAIM seen a 0", "PARAMETER"),
        ] {
            let found = server.error(words);
            assert!(found.starts_with(code), "{words}: {found}");
            assert_eq!(server.ask::<i64>("EXISTS seen"), 0, "{words}");
        }
        // As EB.RESERVE has it: the setting limits a filter that grows.
        let _: i64 = server.ask("EB.ADD seen a");
        let parameters: String = server.ask("EB.INFO seen parameters");
        assert!(parameters.contains("max-memory=1"), "{parameters}");
    });
}

#[test]
fn replicas_and_files_get_the_filter_and_its_first_item_and_need_no_spec() {
    if !is_there() {
        return;
    }
    let mut primary = Server::start("--appendonly yes --appendfsync always");
    let replica = Server::replica(&primary, "");
    set(&primary, "fingerprint window=10m").expect("a spec");
    let _: i64 = primary.ask("EB.ADD seen a");
    let _: Vec<i64> = primary.ask("EB.INSERT timed AT 1700000000000 ITEMS a b");
    primary.settle(&[&replica]);
    let digests = ["seen", "timed"].map(|key| primary.digest(key));
    assert_eq!(["seen", "timed"].map(|key| replica.digest(key)), digests);
    // Its configuration has no spec any more.
    primary.restart();
    assert_eq!(["seen", "timed"].map(|key| primary.digest(key)), digests);
    assert!(primary.error("EB.ADD new a").starts_with("NOTFOUND"));
}
