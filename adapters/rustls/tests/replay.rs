//! Real handshakes in memory, and a first flight that is recorded and sent again.

use ebbtide::Options;
use ebbtide_rustls::{SingleUseSessions, SingleUseTickets};
use rustls::crypto::ring;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::server::{ProducesTickets, StoresServerSessions};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConfig, ServerConnection};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);
const REQUEST: &[u8] = b"POST /transfer HTTP/1.1";

/// A store whose deletions get lost: a replica, or a database that was restored.
#[derive(Debug, Default)]
struct Lossy(Mutex<HashMap<Vec<u8>, Vec<u8>>>);

impl StoresServerSessions for Lossy {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.0.lock().unwrap().insert(key, value);
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(key).cloned()
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

struct Site {
    certificate: rcgen::CertifiedKey<rcgen::KeyPair>,
}

impl Site {
    fn new() -> Self {
        let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        Self { certificate }
    }

    fn server(&self, change: impl FnOnce(&mut ServerConfig)) -> Arc<ServerConfig> {
        let key = PrivatePkcs8KeyDer::from(self.certificate.signing_key.serialize_der());
        let chain = vec![self.certificate.cert.der().clone()];
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_no_client_auth().with_single_cert(chain, key.into()).unwrap();
        config.max_early_data_size = 1024;
        change(&mut config);
        Arc::new(config)
    }

    fn client(&self) -> Arc<ClientConfig> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.cert.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.enable_early_data = true;
        Arc::new(config)
    }
}

fn sessions(dir: &Path, store: &Arc<Lossy>, lifetime: Duration) -> Arc<SingleUseSessions> {
    let once = SingleUseSessions::open(dir, store.clone(), lifetime, Options::new());
    Arc::new(once.unwrap())
}

/// Begins a connection of a client. Returns it with its first flight, which has the early data if
/// the client has a session.
fn begin(config: &Arc<ClientConfig>) -> (ClientConnection, Vec<u8>) {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(config.clone(), name).unwrap();
    if let Some(mut early) = client.early_data() {
        early.write_all(REQUEST).unwrap();
    }
    let mut flight = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut flight).unwrap();
    }
    (client, flight)
}

/// Gives a server a first flight. Returns it with the early data that it accepted.
fn answer(config: &Arc<ServerConfig>, flight: &[u8]) -> (ServerConnection, Option<Vec<u8>>) {
    let mut server = ServerConnection::new(config.clone()).unwrap();
    let mut rest = flight;
    while !rest.is_empty() {
        server.read_tls(&mut rest).unwrap();
        server.process_new_packets().unwrap();
    }
    let early = server.early_data().map(|mut early| {
        let mut data = Vec::new();
        early.read_to_end(&mut data).unwrap();
        data
    });
    (server, early)
}

/// Ends a handshake, and lets the client receive its tickets.
fn finish(client: &mut ClientConnection, server: &mut ServerConnection) {
    for _ in 0..10 {
        let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
        while server.wants_write() {
            server.write_tls(&mut to_client).unwrap();
        }
        let mut rest = &to_client[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
        while client.wants_write() {
            client.write_tls(&mut to_server).unwrap();
        }
        let mut rest = &to_server[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
}

/// Does a first handshake, so that the client has sessions.
fn meet(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) {
    let (mut connection, flight) = begin(client);
    let (mut at_server, early) = answer(server, &flight);
    assert_eq!(early, None);
    finish(&mut connection, &mut at_server);
}

#[test]
fn early_data_is_accepted_once_and_its_replay_refused_also_elsewhere_and_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("taken");
    let (site, store) = (Site::new(), Arc::new(Lossy::default()));
    let serve =
        |once: &Arc<SingleUseSessions>| site.server(|config| config.session_storage = once.clone());
    let once = sessions(&dir, &store, DAY);
    // As another process: a handle of its own.
    let elsewhere = sessions(&dir, &store, DAY);
    let (server, client) = (serve(&once), site.client());
    meet(&client, &server);

    let (mut connection, flight) = begin(&client);
    let (mut at_server, early) = answer(&server, &flight);
    assert_eq!(early.as_deref(), Some(REQUEST), "the first use");
    finish(&mut connection, &mut at_server);
    assert!(connection.is_early_data_accepted());
    assert_eq!(answer(&server, &flight).1, None, "the replay");
    assert_eq!(answer(&serve(&elsewhere), &flight).1, None, "a replay elsewhere");
    assert_eq!((once.refused(), elsewhere.refused()), (1, 1));
    once.filter().close().unwrap();
    elsewhere.filter().close().unwrap();

    let once = sessions(&dir, &store, DAY);
    let server = serve(&once);
    let (replayed, early) = answer(&server, &flight);
    assert_eq!(early, None, "a replay after a restart");
    assert_eq!(replayed.handshake_kind(), Some(HandshakeKind::Full));
    assert_eq!(once.refused(), 1);
    // The client's other session, which nobody has used, is good after the restart.
    let (_, flight) = begin(&client);
    assert_eq!(answer(&server, &flight).1.as_deref(), Some(REQUEST));
}

#[test]
fn without_the_filter_the_same_store_accepts_the_replay() {
    let (site, store) = (Site::new(), Arc::new(Lossy::default()));
    let (server, client) = (site.server(|config| config.session_storage = store), site.client());
    meet(&client, &server);
    let (_, flight) = begin(&client);
    assert_eq!(answer(&server, &flight).1.as_deref(), Some(REQUEST));
    assert_eq!(answer(&server, &flight).1.as_deref(), Some(REQUEST));
}

#[test]
fn a_client_whose_early_data_is_refused_ends_its_handshake() {
    let home = tempfile::tempdir().unwrap();
    let (site, store) = (Site::new(), Arc::new(Lossy::default()));
    let once = sessions(&home.path().join("taken"), &store, DAY);
    let (server, client) =
        (site.server(|config| config.session_storage = once.clone()), site.client());
    meet(&client, &server);
    // Its session was taken by somebody else.
    let (mut connection, flight) = begin(&client);
    let _ = answer(&server, &flight);
    let (mut at_server, early) = answer(&server, &flight);
    assert_eq!(early, None);
    finish(&mut connection, &mut at_server);
    assert!(!connection.is_early_data_accepted());
    assert_eq!(connection.handshake_kind(), Some(HandshakeKind::Full));
}

#[test]
fn a_session_is_refused_after_its_lifetime_and_an_unknown_one_takes_no_place() {
    let home = tempfile::tempdir().unwrap();
    let store = Arc::new(Lossy::default());
    let short = sessions(&home.path().join("short"), &store, Duration::from_millis(1));
    assert!(short.put(b"id".to_vec(), b"session".to_vec()));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((short.take(b"id"), short.get(b"id")), (None, None));
    let long = sessions(&home.path().join("long"), &store, DAY);
    assert_eq!(long.get(b"id").as_deref(), Some(&b"session"[..]));
    assert_eq!(long.take(b"unknown"), None);
    assert!(store.put(b"unknown".to_vec(), store.get(b"id").unwrap()));
    assert!(long.take(b"unknown").is_some(), "its first use");
    // From another program: too short for a time, and from the future.
    assert!(store.put(b"short".to_vec(), vec![1]));
    assert!(store.put(b"future".to_vec(), vec![0xFF; 16]));
    assert_eq!((long.take(b"short"), long.take(b"future")), (None, None));
    assert_eq!((short.refused(), long.refused()), (1, 2));
}

#[test]
fn nothing_is_resumed_whose_use_cannot_be_recorded() {
    let home = tempfile::tempdir().unwrap();
    let errors = Arc::new(Mutex::new(Vec::new()));
    let reported = errors.clone();
    let store = Arc::new(Lossy::default());
    let once =
        SingleUseSessions::open(home.path().join("taken"), store, DAY, Options::new()).unwrap();
    let once = once.on_error(move |error| reported.lock().unwrap().push(error.to_string()));
    assert!(once.put(b"id".to_vec(), b"session".to_vec()));
    once.filter().close().unwrap();
    assert_eq!(once.take(b"id"), None);
    assert_eq!(errors.lock().unwrap().len(), 1);
}

#[test]
fn a_ticket_is_resumed_once_also_after_a_restart_and_brings_no_early_data() {
    let home = tempfile::tempdir().unwrap();
    let (dir, site) = (home.path().join("tickets"), Site::new());
    let ticketer = ring::Ticketer::new().unwrap();
    let once = || {
        let once = SingleUseTickets::open(&dir, ticketer.clone(), DAY / 2, Options::new());
        Arc::new(once.unwrap())
    };
    let serve = |once: &Arc<SingleUseTickets>| site.server(|config| config.ticketer = once.clone());
    let tickets = once();
    let (server, client) = (serve(&tickets), site.client());
    meet(&client, &server);
    let (mut connection, flight) = begin(&client);
    let (mut at_server, early) = answer(&server, &flight);
    assert_eq!(early, None, "rustls accepts early data of sessions in a store only");
    finish(&mut connection, &mut at_server);
    assert_eq!(connection.handshake_kind(), Some(HandshakeKind::Resumed));
    assert_eq!(answer(&server, &flight).0.handshake_kind(), Some(HandshakeKind::Full));
    tickets.filter().close().unwrap();

    let tickets = once();
    let server = serve(&tickets);
    assert_eq!(answer(&server, &flight).0.handshake_kind(), Some(HandshakeKind::Full));
    assert_eq!(tickets.refused(), 1);
    let (mut connection, flight) = begin(&client);
    let (mut at_server, _) = answer(&server, &flight);
    finish(&mut connection, &mut at_server);
    assert_eq!(connection.handshake_kind(), Some(HandshakeKind::Resumed), "an unused ticket");
    assert_eq!(tickets.decrypt(b"not a ticket"), None);
}

/// A ticketer whose tickets can be decrypted without limit: their texts.
#[derive(Debug)]
struct Lasting;

impl ProducesTickets for Lasting {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::MAX
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        Some(plain.to_vec())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        Some(cipher.to_vec())
    }
}

#[test]
fn a_ticket_is_refused_after_its_validity_though_the_ticketer_decrypts_it() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("tickets");
    let once = SingleUseTickets::open(&dir, Arc::new(Lasting), DAY, Options::new()).unwrap();
    assert_eq!(once.lifetime(), 24 * 3600);
    let ticket = once.encrypt(b"session").unwrap();
    let (time, text) = ticket.split_first_chunk::<8>().unwrap();
    assert_eq!(text, b"session");
    let made_at = u64::from_le_bytes(*time);
    let other = |at: u64| [&at.to_le_bytes()[..], text].concat();
    let minute = 60_000;
    let too_old = other(made_at - 24 * 60 * minute - 1);
    assert_eq!(once.decrypt(&too_old), None);
    assert_eq!(once.decrypt(&other(made_at + 60 * minute)), None, "from the future");
    assert_eq!(once.decrypt(b"short"), None, "of another program");
    assert_eq!(once.refused(), 3);
    for valid in [other(made_at), other(made_at - 23 * 60 * minute), other(made_at + minute / 2)] {
        assert_eq!(once.decrypt(&valid).as_deref(), Some(&b"session"[..]));
        assert_eq!(once.decrypt(&valid), None);
    }
    assert_eq!(once.refused(), 6);
}
