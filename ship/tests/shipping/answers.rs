//! What servers of S3 answer when they refuse, over HTTP: one sentence that says what to do, soon.
//!
//! A server in this test gives each answer as the servers do that are named with it; moto, which
//! checks credentials on request, gives its own.

use crate::sentences::assert_says;
use crate::server::Moto;
use ebbtide::media::{Media, Memory};
use ebbtide::{AgePartitioned, Filter, Options};
use ebbtide_ship::{EVERY, Error, ShipOptions, Shipper, Store, Worker, fetch_if_empty, is_empty};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A server that refuses all puts in the same way, or everything, and has no objects.
struct Refusing {
    port: u16,
    puts: Arc<AtomicU64>,
}

impl Refusing {
    fn start(status: &'static str, code: &'static str, message: &'static str) -> Self {
        Self::start_with((status, code, message), false)
    }

    fn start_with(refusal: (&'static str, &'static str, &'static str), all: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let puts = Arc::new(AtomicU64::new(0));
        let counted = puts.clone();
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let puts = counted.clone();
                std::thread::spawn(move || serve(stream, (refusal, all), &puts));
            }
        });
        Self { port, puts }
    }
}

/// Answers the requests of a connection.
fn serve(mut stream: TcpStream, (refusal, all): ((&str, &str, &str), bool), puts: &AtomicU64) {
    let mut requests = BufReader::new(stream.try_clone().expect("a connection"));
    loop {
        let (mut lines, mut length) = (Vec::new(), 0);
        loop {
            let mut line = String::new();
            if requests.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(text) = lower.strip_prefix("content-length:") {
                length = text.trim().parse().expect("a length");
            }
            lines.push(line);
        }
        let mut body = vec![0; length];
        requests.read_exact(&mut body).expect("a body");
        let (status, code, message) = match lines[0].split(' ').next() {
            Some("PUT") => {
                puts.fetch_add(1, Ordering::Relaxed);
                refusal
            }
            _ if all => refusal,
            _ if lines[0].contains("list-type") => ("200 OK", "", ""),
            _ => ("404 Not Found", "NoSuchKey", "The specified key does not exist."),
        };
        let body = match code {
            "" => "<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated>\
                   </ListBucketResult>"
                .to_owned(),
            code => format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code>\
                 <Message>{message}</Message><RequestId>1</RequestId></Error>"
            ),
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all(format!("{head}{body}").as_bytes()).is_err() {
            return;
        }
    }
}

fn store(port: u16, key: &str) -> Store {
    store_at(port, key, "s3://filters/orders/7")
}

fn store_at(port: u16, key: &str, url: &str) -> Store {
    let endpoint = format!("http://127.0.0.1:{port}");
    let settings = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", key),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    Store::open_with(url, settings).expect("a store")
}

/// Begins to ship a filter; returns the error.
async fn refusal_of(store: &Store) -> Error {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    drop(Filter::create_on(media.clone(), AgePartitioned::last(100), Options::new()));
    let begun = Shipper::begin(store.clone(), media, ShipOptions::default()).await;
    begun.expect_err("refused")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_refusal_of_a_server_is_one_sentence_that_says_what_to_do() {
    // Status, code and message of the server; what must be said; whether it may pass.
    let cases = [
        // AWS and MinIO.
        (
            ("403 Forbidden", "InvalidAccessKeyId", "The AWS Access Key Id does not exist."),
            "InvalidAccessKeyId: The AWS Access Key Id does not exist: the credentials do not",
            false,
        ),
        (
            ("403 Forbidden", "SignatureDoesNotMatch", "Check your key and signing method."),
            "the credentials do not allow this: give others",
            false,
        ),
        (
            ("403 Forbidden", "AccessDenied", "Access Denied."),
            "allow get, put, list, delete",
            false,
        ),
        (
            ("400 Bad Request", "ExpiredToken", "The provided token has expired."),
            "the credentials do not allow this: give others",
            false,
        ),
        (
            ("403 Forbidden", "RequestTimeTooSkewed", "The difference is too large."),
            "the clock of this machine is wrong: set it",
            false,
        ),
        // MinIO: a full disk, and a bucket at its quota.
        (
            ("507 Insufficient Storage", "XMinioStorageFull", "Storage backend has reached."),
            "the store is full: make room",
            true,
        ),
        (
            ("400 Bad Request", "XMinioAdminBucketQuotaExceeded", "Bucket quota exceeded"),
            "the store is full: make room",
            true,
        ),
        // Ceph.
        (("403 Forbidden", "QuotaExceeded", ""), "the store is full: make room", true),
        (
            ("503 Service Unavailable", "SlowDown", "Please reduce your request rate."),
            "look at the network and the store",
            true,
        ),
    ];
    let refusals = cases.map(|((status, code, message), words, may_pass)| async move {
        let server = Refusing::start(status, code, message);
        let error = refusal_of(&store(server.port, "key")).await;
        (error, code, words, may_pass, server.puts.load(Ordering::Relaxed))
    });
    for (error, code, words, may_pass, puts) in futures::future::join_all(refusals).await {
        let object = "cannot put s3://filters/orders/7/chain/00000000000000000001";
        assert_says(&error, &[object, code, words]);
        assert_eq!(error.is_transient(), may_pass, "{error}");
        assert!(puts > 0, "{code}: nothing was asked");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_does_not_exist_is_not_taken_for_an_empty_one() {
    for code in ["NoSuchBucket", "ContainerNotFound"] {
        let refusal = ("404 Not Found", code, "It does not exist.");
        let server = Refusing::start_with(refusal, true);
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("new");
        let store = store(server.port, "key");
        let error = fetch_if_empty(&store, &dir).await.expect_err("no bucket");
        let object = "cannot read s3://filters/orders/7/chain/00000000000000000001";
        assert_says(&error, &[object, code, "there is no such bucket", "correct the URL"]);
        assert!(!error.is_transient() && !dir.exists(), "{error}");
    }
    let server = Refusing::start("500 Internal Server Error", "InternalError", "");
    let parent = tempfile::tempdir().expect("a directory");
    let fetched = fetch_if_empty(&store(server.port, "key"), parent.path().join("new")).await;
    assert_eq!(fetched.expect("nothing is there"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_of_a_prefix_is_no_reason_of_a_refusal() {
    let server = Refusing::start("403 Forbidden", "AccessDenied", "Access Denied.");
    let store = store_at(server.port, "key", "s3://filters/quota/507 StorageFull/NoSuchBucket");
    let error = refusal_of(&store).await;
    assert_says(&error, &["AccessDenied", "the credentials do not allow this"]);
    assert!(!error.is_transient(), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_checks_credentials_refuses_wrong_ones_in_one_sentence() {
    let Some(server) = Moto::start_with(&[("INITIAL_NO_AUTH_ACTION_COUNT", "1")]) else { return };
    let error = refusal_of(&store(server.port(), "wrong")).await;
    assert_says(&error, &["s3://filters/orders/7", "InvalidAccessKeyId", "give others"]);
    assert!(!error.is_transient(), "{error}");
}

#[test]
fn a_worker_waits_for_no_connection_that_a_runtime_has_opened_which_nobody_runs() {
    let server = Refusing::start("403 Forbidden", "AccessDenied", "Access Denied.");
    let store = store(server.port, "key");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    assert!(runtime.block_on(is_empty(&store)).expect("an answer"));
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("seen");
    drop(Filter::create(&dir, AgePartitioned::last(100), Options::new()).expect("a filter"));
    let begun = Instant::now();
    let started = Worker::start(&dir, store, ShipOptions::default(), EVERY);
    assert_says(&started.map(drop).expect_err("refused"), &["AccessDenied"]);
    // An answer may take a minute.
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    drop(runtime);
}
