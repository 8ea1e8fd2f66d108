//! Real servers on loopback, with the module loaded.

use redis::{Client, Cmd, Connection, FromRedisValue, RedisError};
use std::env;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take for anything.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Returns the server's program: `EBBTIDE_REDIS_SERVER`, or `redis-server`.
fn program() -> String {
    env::var("EBBTIDE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// Returns whether there is a server; says so if not.
pub fn is_there() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let version = Command::new(program()).arg("--version").stdout(Stdio::null()).status();
        let found = version.is_ok_and(|status| status.success());
        if !found {
            println!("skipped: there is no {} (Debian: apt-get install redis-server)", program());
        }
        found
    })
}

/// Returns the module: `EBBTIDE_MODULE`, or the library, which is built now. (Cargo does not build
/// it for tests, which do not link it.)
pub fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        if let Some(given) = env::var_os("EBBTIDE_MODULE") {
            return PathBuf::from(given);
        }
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--lib"]).current_dir(package);
        let built = cargo.env_remove("CARGO_TARGET_DIR").status();
        assert!(built.expect("cargo").success(), "the module does not compile");
        package.join("target/debug/libebbtide_redis.so")
    })
}

/// A server, killed when it is dropped.
pub struct Server {
    child: Child,
    pub port: u16,
    settings: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
    home: TempDir,
}

/// Returns a port that is free now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

impl Server {
    /// Starts a server without files, with these further settings: `--name value ...`.
    pub fn start(settings: &str) -> Self {
        Self::start_with(settings, &[])
    }

    /// As [`Server::start`], with variables of the environment.
    pub fn start_with(settings: &str, environment: &[(&'static str, PathBuf)]) -> Self {
        let mut all: Vec<String> = ["--save", ""].map(str::to_owned).to_vec();
        all.extend(settings.split_whitespace().map(str::to_owned));
        for _ in 0..20 {
            let (home, port) = (tempfile::tempdir().expect("a directory"), free_port());
            let child = spawn(port, home.path(), &all, environment);
            let (settings, environment) = (all.clone(), environment.to_vec());
            let mut server = Self { child, port, settings, environment, home };
            if server.waits_for_start() {
                return server;
            }
            // Another process took the port.
        }
        panic!("{} does not start", program());
    }

    /// Starts a server without the module, with these settings.
    pub fn without_module(settings: &str) -> Self {
        let all: Vec<String> = settings.split_whitespace().map(str::to_owned).collect();
        for _ in 0..20 {
            let (home, port) = (tempfile::tempdir().expect("a directory"), free_port());
            let mut command = prepared(port, home.path());
            let child = command.args(&all).spawn().expect("the server's program");
            let (settings, environment) = (all.clone(), Vec::new());
            let mut server = Self { child, port, settings, environment, home };
            if server.waits_for_start() {
                return server;
            }
        }
        panic!("{} does not start", program());
    }

    /// Starts a server that replicates another, and waits until it is connected: what follows
    /// reaches it as effects, not as part of a full synchronisation.
    pub fn replica(of: &Self, settings: &str) -> Self {
        let port = of.port;
        let replica = Self::start(&format!(
            "--replicaof 127.0.0.1 {port} --repl-diskless-sync-delay 0 {settings}"
        ));
        let is_connected = || replica.info("replication", "master_link_status") == "up";
        within("the replica is connected", is_connected);
        replica
    }

    fn waits_for_start(&mut self) -> bool {
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            if self.child.try_wait().expect("a child").is_some() {
                return false;
            }
            let answer = self
                .try_connect()
                .and_then(|mut connection| redis::cmd("DBSIZE").query::<u64>(&mut connection));
            if answer.is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server does not answer: {}", self.log());
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// Returns the directory of the server's files.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    fn try_connect(&self) -> Result<Connection, RedisError> {
        let client = Client::open(format!("redis://127.0.0.1:{}/", self.port))?;
        let connection = client.get_connection_with_timeout(LIMIT)?;
        connection.set_read_timeout(Some(LIMIT))?;
        Ok(connection)
    }

    /// Returns a connection.
    pub fn connect(&self) -> Connection {
        self.try_connect().unwrap_or_else(|error| panic!("{error}: {}", self.log()))
    }

    /// Returns the answer to a command, given as words.
    pub fn ask<T: FromRedisValue>(&self, words: &str) -> T {
        ask(&mut self.connect(), words)
    }

    /// Returns the error of a command, given as words.
    pub fn error(&self, words: &str) -> String {
        error(&mut self.connect(), words)
    }

    /// Returns the digest of a filter.
    pub fn digest(&self, key: &str) -> String {
        self.ask(&format!("EB.DEBUG DIGEST {key}"))
    }

    /// Kills the server as `kill -9` does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns the number of the server's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts the server again, and kills it after some time, probably while it loads its files.
    pub fn start_and_kill(&mut self, after: Duration) {
        self.child = self.spawn();
        std::thread::sleep(after);
        self.kill();
    }

    /// Starts the server again, with its files.
    pub fn restart(&mut self) {
        self.kill();
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            self.child = self.spawn();
            if self.waits_for_start() {
                return;
            }
            // The kernel may not have released the port.
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the server does not start again: {}", self.log());
    }

    /// As [`Server::restart`], with further settings.
    pub fn restart_with(&mut self, settings: &str) {
        self.settings.extend(settings.split_whitespace().map(str::to_owned));
        self.restart();
    }

    /// Starts the server again as one without a primary, with its files.
    pub fn restart_alone(&mut self) {
        if let Some(at) = self.settings.iter().position(|setting| setting == "--replicaof") {
            self.settings.drain(at..at + 3);
        }
        self.restart();
    }

    fn spawn(&self) -> Child {
        spawn(self.port, self.home.path(), &self.settings, &self.environment)
    }

    /// Waits until all replicas have what this server had.
    pub fn settle(&self, replicas: &[&Self]) {
        // Something new, so that equal offsets are those of now.
        let _: i64 = self.ask("PUBLISH settle now");
        let offset = |server: &Self| server.info("replication", "master_repl_offset");
        for replica in replicas {
            let is_same = || {
                offset(replica) == offset(self) && {
                    let role: String = replica.info("replication", "master_link_status");
                    role == "up"
                }
            };
            within("the replica catches up", is_same);
        }
    }

    /// Returns a figure of `INFO`.
    pub fn info(&self, section: &str, field: &str) -> String {
        let text: String = self.ask(&format!("INFO {section}"));
        let prefix = format!("{field}:");
        let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("no {field} in {text}")).trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a server with these arguments behind the module.
pub fn spawn(
    port: u16,
    home: &Path,
    settings: &[String],
    environment: &[(&'static str, PathBuf)],
) -> Child {
    let mut command = prepared(port, home);
    command.arg("--loadmodule").arg(module()).args(settings);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.spawn().expect("the server's program")
}

/// Returns the command that starts a server, without the module.
fn prepared(port: u16, home: &Path) -> Command {
    let mut command = Command::new(program());
    command.arg("--port").arg(port.to_string()).arg("--dir").arg(home);
    command.args(["--bind", "127.0.0.1", "--logfile", "log"]);
    command.args(["--enable-debug-command", "yes", "--databases", "4"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Waits until something is so.
pub fn within(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "it takes too long until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the command of these words.
pub fn command(words: &str) -> Cmd {
    let mut all = words.split_whitespace();
    let mut command = redis::cmd(all.next().expect("a name"));
    all.for_each(|word| {
        command.arg(word);
    });
    command
}

/// Returns the answer to a command, given as words.
pub fn ask<T: FromRedisValue>(connection: &mut Connection, words: &str) -> T {
    command(words).query(connection).unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// Returns the code of the error of a command, given as words, and its text.
pub fn error(connection: &mut Connection, words: &str) -> String {
    let answer: Result<redis::Value, RedisError> = command(words).query(connection);
    let error = answer.expect_err(words);
    format!("{} {}", error.code().unwrap_or("ERR"), error.detail().unwrap_or(""))
}
