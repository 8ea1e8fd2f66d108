//! A real server and a real client of quinn, whose tokens come again.

use ebbtide::Options;
use ebbtide_quinn::SeenTokens;
use quinn::{ClientConfig, Endpoint, ServerConfig, TokenLog, TokenStore, ValidationTokenConfig};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

const LIFETIME: Duration = Duration::from_secs(3600);
const NAME: &str = "localhost";
/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A client's tokens, which it may use several times.
#[derive(Default)]
struct Tokens {
    received: Mutex<Vec<Vec<u8>>>,
    /// The token of the next connection.
    next: Mutex<Option<Vec<u8>>>,
}

impl TokenStore for Tokens {
    fn insert(&self, _: &str, token: bytes::Bytes) {
        self.received.lock().unwrap().push(token.to_vec());
    }

    fn take(&self, _: &str) -> Option<bytes::Bytes> {
        self.next.lock().unwrap().clone().map(Into::into)
    }
}

/// What all servers of a test have in common, as over restarts: the certificate and the token key.
struct Site {
    certificate: rcgen::CertifiedKey<rcgen::KeyPair>,
}

struct Server {
    endpoint: Endpoint,
    log: Arc<SeenTokens>,
}

impl Site {
    fn new() -> Self {
        let certificate = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        Self { certificate }
    }

    fn serve(&self, dir: &Path) -> Server {
        let log = Arc::new(SeenTokens::open(dir, LIFETIME, Options::new()).unwrap());
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(
            self.certificate.signing_key.serialize_der(),
        );
        let chain = vec![self.certificate.cert.der().clone()];
        let mut config = ServerConfig::with_single_cert(chain, key.into()).unwrap();
        let secret = ring::hkdf::Salt::new(ring::hkdf::HKDF_SHA256, &[]).extract(b"of all servers");
        config.token_key(Arc::new(secret));
        let mut tokens = ValidationTokenConfig::default();
        config.validation_token_config(tokens.sent(2).lifetime(LIFETIME).log(log.clone()).clone());
        let endpoint = Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        Server { endpoint, log }
    }

    fn client(&self, tokens: &Arc<Tokens>) -> Endpoint {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.cert.der().clone()).unwrap();
        let mut config = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
        config.token_store(tokens.clone());
        let mut endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        endpoint.set_default_client_config(config);
        endpoint
    }
}

impl Server {
    fn address(&self) -> SocketAddr {
        self.endpoint.local_addr().unwrap()
    }

    /// Lets a client connect with a token. Returns whether the server took its address for
    /// validated before the handshake.
    async fn accepts(&self, client: &Endpoint, tokens: &Tokens, token: Option<&[u8]>) -> bool {
        *tokens.next.lock().unwrap() = token.map(<[u8]>::to_vec);
        let known = tokens.received.lock().unwrap().len();
        let connecting = client.connect(self.address(), NAME).unwrap();
        let accepting = async {
            let incoming = self.endpoint.accept().await.unwrap();
            let validated = incoming.remote_address_validated();
            (validated, incoming.await.unwrap())
        };
        let both = async { tokio::join!(accepting, connecting) };
        let ((validated, at_server), at_client) = tokio::time::timeout(LIMIT, both).await.unwrap();
        let at_client = at_client.unwrap();
        // Both new tokens have come.
        let came = async {
            while tokens.received.lock().unwrap().len() < known + 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, came).await.unwrap();
        at_client.close(0_u32.into(), b"");
        drop(at_server);
        validated
    }

    async fn stop(self) {
        self.endpoint.close(0_u32.into(), b"");
        self.endpoint.wait_idle().await;
        self.log.filter().close().unwrap();
    }
}

#[tokio::test]
async fn a_token_validates_an_address_once_also_after_a_restart_of_the_server() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("used-tokens");
    let (site, tokens) = (Site::new(), Arc::new(Tokens::default()));
    let client = site.client(&tokens);
    let server = site.serve(&dir);
    assert!(!server.accepts(&client, &tokens, None).await, "there was no token");
    let [first, second] = [0, 1].map(|at| tokens.received.lock().unwrap()[at].clone());
    assert!(server.accepts(&client, &tokens, Some(&first)).await, "its first use");
    assert!(!server.accepts(&client, &tokens, Some(&first)).await, "its second use");
    assert_eq!(server.log.refused(), 1);
    server.stop().await;

    let server = site.serve(&dir);
    assert!(!server.accepts(&client, &tokens, Some(&first)).await, "used before the restart");
    // The key of the tokens is the same, so the refusal was the log's.
    assert!(server.accepts(&client, &tokens, Some(&second)).await, "not used before");
    assert_eq!(server.log.refused(), 1);
    server.stop().await;
}

#[tokio::test]
async fn of_two_servers_with_one_log_one_accepts_a_token() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("used-tokens");
    let (site, tokens) = (Site::new(), Arc::new(Tokens::default()));
    let client = site.client(&tokens);
    let servers = [site.serve(&dir), site.serve(&dir)];
    assert!(!servers[0].accepts(&client, &tokens, None).await);
    let token = tokens.received.lock().unwrap()[0].clone();
    assert!(servers[1].accepts(&client, &tokens, Some(&token)).await);
    assert!(!servers[0].accepts(&client, &tokens, Some(&token)).await);
    for server in servers {
        server.stop().await;
    }
}

#[test]
fn a_token_that_outlives_the_log_or_cannot_be_recorded_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let errors = Arc::new(Mutex::new(Vec::new()));
    let reported = errors.clone();
    let log = SeenTokens::open(home.path().join("log"), LIFETIME, Options::new()).unwrap();
    let log = log.on_error(move |error| reported.lock().unwrap().push(error.to_string()));
    let now = SystemTime::now();
    assert!(log.check_and_insert(1, now, LIFETIME + Duration::from_secs(1)).is_err());
    assert!(log.check_and_insert(1, now, LIFETIME).is_ok(), "the refused use took no place");
    assert!(errors.lock().unwrap().is_empty());
    log.filter().close().unwrap();
    assert!(log.check_and_insert(2, now, LIFETIME).is_err());
    assert_eq!(log.refused(), 2);
    assert_eq!(errors.lock().unwrap().len(), 1);
}

#[test]
fn a_log_for_another_lifetime_is_not_opened() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("log");
    SeenTokens::open(&dir, LIFETIME, Options::new()).unwrap().filter().close().unwrap();
    let error = SeenTokens::open(&dir, 2 * LIFETIME, Options::new()).unwrap_err();
    assert!(matches!(error, ebbtide::Error::Mismatch { .. }), "{error}");
}
