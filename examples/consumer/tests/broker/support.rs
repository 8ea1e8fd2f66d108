//! Real servers, in directories of their own, and consumers as processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Waits until `ready` returns something.
pub fn wait_until<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "no {what} within {LIMIT:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A process; killed when dropped.
pub struct Process(Child);

impl Process {
    pub fn spawn(command: &mut Command) -> std::io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Self(command.spawn()?))
    }

    /// Kills the process, and waits until it is gone.
    pub fn kill(&mut self) {
        self.0.kill().expect("it is a child");
        self.0.wait().expect("its end");
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("its state")
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait_until("end of a process", || self.ended())
    }

    /// Asks the process to end, and waits for that.
    fn end(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives");
        self.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The servers that are tested.
#[derive(Debug, Clone, Copy)]
pub enum Brand {
    Nats,
    Redis,
}

/// A running server.
pub struct Broker {
    brand: Brand,
    home: PathBuf,
    port: Option<u16>,
    process: Process,
    pub url: String,
}

impl Broker {
    /// Starts a server on a free port; `None`, and a sentence, if it is not installed.
    pub fn start(brand: Brand, home: &Path) -> Option<Self> {
        let program = match brand {
            Brand::Nats => "nats-server",
            Brand::Redis => "redis-server",
        };
        let installed = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        if installed.is_err() {
            eprintln!("skipped: {program} is not installed (apt-get install {program})");
            return None;
        }
        let home = home.join(program);
        fs::create_dir(&home).expect("a directory");
        let process = Self::spawn(brand, &home, None);
        let (url, port) = Self::address(brand, &home);
        Some(Self { brand, home, port, process, url })
    }

    fn spawn(brand: Brand, home: &Path, port: Option<u16>) -> Process {
        let mut command = match brand {
            Brand::Nats => {
                let port = port.map_or("-1".to_owned(), |port| port.to_string());
                let mut command = Command::new("nats-server");
                command.args(["--jetstream", "--addr", "127.0.0.1", "--port", &port]);
                command.arg("--store_dir").arg(home).arg("--ports_file_dir").arg(home);
                command.stderr(Stdio::null());
                command
            }
            Brand::Redis => {
                let mut command = Command::new("redis-server");
                command.args(["--port", "0", "--save", "", "--appendonly", "yes"]);
                command.arg("--dir").arg(home).arg("--unixsocket").arg(home.join("socket"));
                command
            }
        };
        Process::spawn(&mut command).expect("a server")
    }

    /// Waits until the server listens, and returns where.
    fn address(brand: Brand, home: &Path) -> (String, Option<u16>) {
        wait_until("server", || match brand {
            Brand::Nats => {
                let entries = fs::read_dir(home).expect("its directory");
                let mut paths = entries.map(|entry| entry.expect("an entry").path());
                let ports =
                    paths.find(|path| path.extension().is_some_and(|end| end == "ports"))?;
                // {"nats":["nats://127.0.0.1:40123"]}
                let text = fs::read_to_string(ports).ok()?;
                let (_, behind) = text.split_once("nats://127.0.0.1:")?;
                let port = behind.split_once('"')?.0.parse().ok()?;
                Some((format!("nats://127.0.0.1:{port}"), Some(port)))
            }
            Brand::Redis => {
                let url = format!("unix://{}", home.join("socket").display());
                let mut connection = redis::Client::open(&*url).ok()?.get_connection().ok()?;
                // Refused while it loads what it has stored.
                redis::cmd("PING").exec(&mut connection).ok()?;
                Some((url, None))
            }
        })
    }

    /// Ends the server, and starts it again with the same streams, at the same address.
    pub fn restart(&mut self, down: Duration) {
        self.process.end();
        thread::sleep(down);
        self.process = Self::spawn(self.brand, &self.home, self.port);
        Self::address(self.brand, &self.home);
    }
}

/// Starts a consumer.
pub fn consumer(url: &str, dir: &Path, options: &[&str], streams: &[String]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_consumer"));
    command
        .arg("run")
        .args(["--window", "5000", "--fpr", "1e-12"])
        .args(options)
        .arg(url)
        .arg(dir)
        .args(streams);
    Process::spawn(&mut command).expect("a consumer")
}
