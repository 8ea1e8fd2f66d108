//! Redis over a Unix socket: `SET key "" NX EX seconds`, or `EB.ADDNX` of ebbtide's module. Its log
//! is the append-only file. The program starts and stops the server; each writer has a connection.
//! With fsync, commands that arrive together share one.

use super::peer::{Durability, EXPIRY, FPR, Key, Peer, Result, Setup};
use parking_lot::Mutex;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SERVER: &str = "redis-server";

/// The time in which the server must answer for the first time, or rewrite its files.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the server's version, if it is installed.
pub fn version() -> Option<String> {
    let output = process::Command::new(SERVER).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
    Some(format!("redis {version}"))
}

/// Returns ebbtide's module, if it is built.
pub fn module() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("../../redis/target/release/libebbtide_redis.so").canonicalize().ok()
}

/// What checks and inserts keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `SET key "" NX EX seconds`, for each key.
    Set,
    /// `EB.ADDNX seen key`, or `EB.MADDNX seen key ...`, of ebbtide's module.
    Module,
}

impl Command {
    /// Returns the text before and after each key.
    fn around(self) -> (&'static [u8], Vec<u8>) {
        match self {
            Self::Set => {
                let seconds = EXPIRY.as_secs().to_string();
                let digits = seconds.len();
                let expiry = format!("$2\r\nNX\r\n$2\r\nEX\r\n${digits}\r\n{seconds}\r\n");
                let after = format!("\r\n$0\r\n\r\n{expiry}");
                (b"*6\r\n$3\r\nSET\r\n$16\r\n", after.into_bytes())
            }
            Self::Module => (b"$16\r\n", b"\r\n".to_vec()),
        }
    }
}

struct Redis {
    // Before the server, so that connections close first.
    idle: Mutex<Vec<Connection>>,
    server: Server,
    group: usize,
}

/// A server that ends with its handle.
struct Server {
    process: Child,
    // The path of a socket must be short, so it is not below the directory of the run.
    _socket: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; then both calls fail without harm.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `group`: keys sent before the first answer is read.
pub fn open(setup: &Setup<'_>, group: usize, command: Command) -> Result<Box<dyn Peer>> {
    let fsync = match setup.durability {
        Durability::None => "no",
        Durability::Always => "always",
    };
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let mut program = process::Command::new(SERVER);
    program
        .args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", fsync])
        .arg("--unixsocket")
        .arg(&socket)
        .arg("--dir")
        .arg(setup.dir)
        .stdout(Stdio::null());
    if command == Command::Module {
        program.arg("--loadmodule").arg(module().ok_or("the module is not built")?);
    }
    let server = Server { process: program.spawn()?, _socket: folder };
    let begun = Instant::now();
    let connect = || Connection::to(&socket, command);
    while connect().and_then(|mut connection| connection.call("PING")).is_err() {
        if begun.elapsed() > PATIENCE {
            return Err("the Redis server does not answer".into());
        }
        sleep(Duration::from_millis(10));
    }
    if command == Command::Module {
        let window = setup.keys;
        let filter = format!("EB.RESERVE seen age-partitioned window-items {window} fpr {FPR}");
        connect()?.call(&filter)?;
    }
    let idle = (0..setup.writers).map(|_| connect()).collect::<Result<_>>()?;
    Ok(Box::new(Redis { idle: Mutex::new(idle), server, group }))
}

impl Peer for Redis {
    fn check_and_insert(&self, keys: &[Key]) -> Result<u64> {
        let mut connection = self.idle.lock().pop().ok_or("more writers than connections")?;
        let new = keys.chunks(self.group).map(|group| connection.ask(group)).sum();
        self.idle.lock().push(connection);
        new
    }

    fn checkpoint(&mut self) -> Result<()> {
        let connection = self.idle.get_mut().first_mut().ok_or("no connection")?;
        // First wait for a rewrite that the server began on its own: it would refuse ours.
        connection.wait_for_rewrite()?;
        connection.call("BGREWRITEAOF")?;
        connection.wait_for_rewrite()
    }

    fn server(&self) -> Option<u32> {
        Some(self.server.process.id())
    }
}

struct Connection {
    stream: BufReader<UnixStream>,
    command: Command,
    /// The text before and after each key.
    around: (&'static [u8], Vec<u8>),
    out: Vec<u8>,
    line: String,
}

impl Connection {
    fn to(socket: &Path, command: Command) -> Result<Self> {
        let stream = BufReader::new(UnixStream::connect(socket)?);
        let around = command.around();
        Ok(Self { stream, command, around, out: Vec::new(), line: String::new() })
    }

    /// Checks and inserts each key; returns how many were absent.
    fn ask(&mut self, keys: &[Key]) -> Result<u64> {
        self.out.clear();
        if self.command == Command::Module {
            let words = keys.len() + 2;
            let name = if keys.len() == 1 { "$8\r\nEB.ADDNX" } else { "$9\r\nEB.MADDNX" };
            write!(self.out, "*{words}\r\n{name}\r\n$4\r\nseen\r\n")?;
        }
        for key in keys {
            self.out.extend_from_slice(self.around.0);
            self.out.extend_from_slice(key);
            self.out.extend_from_slice(&self.around.1);
        }
        self.stream.get_mut().write_all(&self.out)?;
        if self.command == Command::Module && keys.len() > 1 {
            // The length of the list of answers.
            self.read_line()?;
        }
        let mut new = 0;
        for _ in keys {
            match self.read_line()? {
                "+OK" | ":1" => new += 1,
                "$-1" | ":0" => {}
                other => return Err(format!("Redis answers {other}").into()),
            }
        }
        Ok(new)
    }

    /// Sends a command of plain words whose answer is a line, or a text with a length.
    fn call(&mut self, command: &str) -> Result<String> {
        self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        let first = self.read_line()?.to_owned();
        match first.split_at_checked(1) {
            Some(("+", answer)) => Ok(answer.to_owned()),
            Some(("$", length)) => {
                let mut text = vec![0; length.parse::<usize>()? + "\r\n".len()];
                self.stream.read_exact(&mut text)?;
                Ok(String::from_utf8(text)?)
            }
            _ => Err(format!("Redis answers {first}").into()),
        }
    }

    /// Waits until no rewrite of the append-only file is running or scheduled.
    fn wait_for_rewrite(&mut self) -> Result<()> {
        let busy = ["aof_rewrite_in_progress:1", "aof_rewrite_scheduled:1"];
        let begun = Instant::now();
        while self.call("INFO persistence")?.lines().any(|line| busy.contains(&line)) {
            if begun.elapsed() > PATIENCE {
                return Err("the Redis server does not finish its append-only file".into());
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn read_line(&mut self) -> Result<&str> {
        self.line.clear();
        if self.stream.read_line(&mut self.line)? == 0 {
            return Err("the Redis server has gone".into());
        }
        Ok(self.line.trim_end())
    }
}
