//! Stored values of every encoding that was released, and of every kind: `DUMP` payloads in
//! `payloads/`, one file a kind and encoding, each with the digest that it must have.
//!
//! `EBBTIDE_WRITE_PAYLOADS=1` writes those of the present encoding that are missing.

use crate::samples::{Commands, SAMPLES, Sample, reserve};
use crate::server::{Server, is_there};
use redis::Value;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The present encoding of a filter, and that of one that is being altered.
const ENCODING: u32 = 1;
const ALTERED: u32 = 2;

/// Filters that are being altered: before, after.
const ALTERATIONS: [(&str, &str); 3] = [
    ("fingerprint last 100", "age-partitioned last 300 fpr 0.01"),
    ("time-limited window 300ms", "fingerprint window 2s fpr 0.0001"),
    ("bloom capacity 200", "timing last 500"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/payloads")
}

/// Returns the name of a sample's payload.
fn file_of(sample: &Sample) -> String {
    let name = sample.name.replace(", ", "-").replace(' ', "-");
    format!("{ENCODING}-{name}")
}

/// Writes a payload and a digest for each kind that has none.
fn write(server: &Server) {
    fs::create_dir_all(folder()).expect("a folder");
    let connection = &mut server.connect();
    for (at, sample) in SAMPLES.iter().enumerate() {
        let path = folder().join(format!("{}.dump", file_of(sample)));
        if path.exists() {
            continue;
        }
        let mut source = Commands::new(sample, format!("key:{at}"), true, 5);
        let _: String = source.reserve().query(connection).expect(sample.name);
        for _ in 0..200 {
            let _: Value = source.next().query(connection).expect(sample.name);
        }
        let mut dump = redis::cmd("DUMP");
        let payload: Vec<u8> = dump.arg(&source.key).query(connection).expect("a payload");
        fs::write(&path, payload).expect("a file");
        let digest = server.digest(&source.key);
        fs::write(path.with_extension("digest"), digest + "\n").expect("a file");
    }
}

/// Writes a payload and a digest for each alteration that has none.
fn write_altered(server: &Server) {
    let connection = &mut server.connect();
    for (at, (before, after)) in ALTERATIONS.into_iter().enumerate() {
        let (key, name) = (format!("altered:{at}"), after.split(' ').next().expect("a kind"));
        let path = folder().join(format!("{ALTERED}-{name}.dump"));
        if path.exists() {
            continue;
        }
        let () = server.ask(&format!("EB.RESERVE {key} {before} SEED 7"));
        let insert = |from: u64, to: u64| {
            for item in from..to {
                let time = crate::samples::START + item;
                let () = server.ask(&format!("EB.INSERT {key} AT {time} ITEMS {item}"));
            }
        };
        insert(0, 150);
        let _: Value = server.ask(&format!("EB.CLAIM {key} claimed 3600000"));
        let () = server.ask(&format!("EB.ALTER {key} {after}"));
        insert(150, 200);
        let mut dump = redis::cmd("DUMP");
        let payload: Vec<u8> = dump.arg(&key).query(connection).expect("a payload");
        fs::write(&path, payload).expect("a file");
        let digest = server.digest(&key);
        fs::write(path.with_extension("digest"), digest + "\n").expect("a file");
    }
}

/// What each client may send at its start, also to a later version.
#[test]
fn an_alteration_of_a_stored_filter_to_what_it_is_changes_nothing() {
    if !is_there() {
        return;
    }
    let server = Server::start("");
    let connection = &mut server.connect();
    let has_window = |sample: &&Sample| {
        sample.parameters.iter().any(|(name, _)| ["window", "window-items"].contains(name))
    };
    let mut count = 0;
    for sample in SAMPLES.iter().filter(has_window) {
        let key = file_of(sample);
        let path = folder().join(format!("{key}.dump"));
        let digest = fs::read_to_string(path.with_extension("digest")).expect("a digest");
        let restored = |connection: &mut redis::Connection| {
            let payload = fs::read(&path).expect("a payload");
            let mut restore = redis::cmd("RESTORE");
            restore.arg(&key).arg(0).arg(payload).arg("REPLACE");
            let () = restore.query(connection).expect("a value");
        };
        let alter = |connection: &mut redis::Connection, words: &[String]| {
            let mut alter = redis::cmd("EB.ALTER");
            let replied: String = alter.arg(&key).arg(words).query(connection).expect(&key);
            assert_eq!(replied, "OK", "{key} {words:?}");
        };
        restored(connection);
        let request = reserve(sample);
        alter(connection, &request[..1]);
        alter(connection, &request);
        assert_eq!(server.digest(&key), digest.trim(), "{key}");
        // Another rate is one for kinds of all of these.
        let rate = ["fpr".to_owned(), "0.0123".to_owned()];
        alter(connection, &[&request[..1], &rate].concat());
        let after: String = server.ask(&format!("EB.INFO {key} parameters"));
        assert!(after.contains("fpr=0.0123"), "{key}: {after}");
        assert_ne!(server.ask::<String>(&format!("EB.INFO {key} former")), "", "{key}");
        count += 1;
    }
    assert!(count > 6, "{count} kinds with a window");
}

#[test]
fn payloads_of_all_encodings_have_the_digests_that_they_had() {
    if !is_there() {
        return;
    }
    let server = Server::start("");
    if env::var_os("EBBTIDE_WRITE_PAYLOADS").is_some() {
        write(&server);
        write_altered(&server);
    }
    let connection = &mut server.connect();
    let (mut count, mut asked) = (0, 0);
    for entry in fs::read_dir(folder()).expect("stored payloads") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "dump") {
            continue;
        }
        count += 1;
        let key = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let payload = fs::read(&path).expect("a payload");
        let mut restore = redis::cmd("RESTORE");
        let () = restore.arg(&key).arg(0).arg(payload).query(connection).expect("a value");
        let digest = fs::read_to_string(path.with_extension("digest")).expect("a digest");
        assert_eq!(server.digest(&key), digest.trim(), "{key}");
        assert_eq!(server.ask::<String>(&format!("EB.INFO {key} state")), "ready");
        if let Some(request) = SAMPLES.iter().find(|sample| key == file_of(sample)) {
            // What each client sends at its start, also to a later version.
            let mut same = redis::cmd("EB.RESERVE");
            same.arg(&key).arg(reserve(request)).arg("SAME");
            let reply: Result<String, _> = same.query(connection);
            assert_eq!(reply.as_deref(), Ok("OK"), "{key}");
            asked += 1;
        }
        let former: String = server.ask(&format!("EB.INFO {key} former"));
        assert_eq!(former.is_empty(), !key.starts_with(&ALTERED.to_string()), "{key}: {former}");
    }
    assert!(count >= SAMPLES.len() + ALTERATIONS.len(), "{count} payloads");
    assert_eq!(asked, SAMPLES.len());
}
