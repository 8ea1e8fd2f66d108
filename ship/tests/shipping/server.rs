//! A real server of the interface of S3: `moto_server`, a Python package (`pip install
//! moto[server]`). Without it these tests are skipped, and say so.

use ebbtide::{AgePartitioned, Any, Durability, Filter, Options, Reader};
use ebbtide_ship::{Error, ShipOptions, Shipper, Store, fetch, verify};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time that the server takes to start, also on a busy machine.
const START: Duration = Duration::from_secs(60);

pub struct Moto {
    process: Child,
    port: u16,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Moto {
    /// Starts the server with a bucket; `None` if there is no such program.
    fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// As [`Moto::start`], with these variables of its environment.
    pub fn start_with(variables: &[(&str, &str)]) -> Option<Self> {
        let port =
            TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("one").port();
        let mut command = Command::new("moto_server");
        command.envs(variables.iter().copied());
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(process) = started else {
            println!("skipped: there is no moto_server (pip install 'moto[server]')");
            return None;
        };
        let server = Self { process, port };
        let begun = Instant::now();
        while server.request("PUT /filters HTTP/1.1").is_none() {
            assert!(begun.elapsed() < START, "moto_server does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(server)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a request without a body.
    fn request(&self, line: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let host = "Host: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(format!("{line}\r\n{host}").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.contains("200 OK").then_some(answer)
    }

    fn objects(&self, bucket: &str) -> AmazonS3 {
        let builder = AmazonS3Builder::new().with_bucket_name(bucket).with_region("us-east-1");
        let builder = builder.with_access_key_id("key").with_secret_access_key("secret");
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        builder.with_endpoint(endpoint).with_allow_http(true).build().expect("a client")
    }

    fn store(&self, bucket: &str, prefix: &str) -> Store {
        let url = format!("s3://{bucket}/{prefix}");
        Store::of(Arc::new(self.objects(bucket)), prefix, &url)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_takes_the_chain_fences_and_gives_the_filter_back() {
    let Some(server) = Moto::start() else { return };
    let parent = tempfile::tempdir().expect("a directory");
    let (dir, copy) = (parent.path().join("seen"), parent.path().join("copy"));
    let options = || Options::new().durability(Durability::Interval(Duration::from_secs(3600)));
    // A snapshot of more than one piece of an upload.
    let filter =
        Filter::create(&dir, AgePartitioned::last(4_000_000), options()).expect("a filter");
    let media = || Arc::new(ebbtide::media::Disk::new(&dir));
    let store = server.store("filters", "orders/7");
    let ship = ShipOptions::default();
    let mut first = Shipper::begin(store.clone(), media(), ship.clone()).await.expect("begun");
    for round in 0..4_u64 {
        for key in round * 20_000..(round + 1) * 20_000 {
            filter.insert(key.to_le_bytes()).expect("an insert");
        }
        filter.sync().expect("a sync");
        filter.checkpoint().expect("a checkpoint");
        first.round().await.expect("a round");
    }
    assert_eq!(first.round().await.expect("a round").links, 0);
    let fetched = fetch(&store, &copy, None).await.expect("a fetch");
    assert_eq!(fetched.lsn, first.confirmed());
    let copied = Reader::<Any>::open(&copy, Options::new()).expect("a reader");
    assert_eq!(copied.digest().expect("one").value, filter.digest().expect("one").value);
    verify(&store, None).await.expect("sound");
    let copied = Arc::new(ebbtide::media::Disk::new(&copy));
    Shipper::begin(store.clone(), copied, ship.clone()).await.expect("the copy takes over");
    filter.insert("one more").expect("an insert");
    filter.sync().expect("a sync");
    assert!(first.round().await.expect_err("fenced").is_fenced());
    let missing = server.store("no-such-bucket", "a");
    let error = Shipper::begin(missing, media(), ship).await.expect_err("no bucket");
    assert!(matches!(error, Error::Store { is_transient: false, .. }), "{error}");
    assert!(error.to_string().contains("no such bucket"), "{error}");
}
