//! `consumer run URL DIR STREAM…` consumes; `consumer send URL COUNT STREAM…` sends messages to it.

use consumer::consume::{Plan, consume};
use consumer::partition::{Settings, Survives};
use consumer::server::Server;
use consumer::{Failure, Result, traffic};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;
use std::{process, thread};

const USAGE: &str = "\
usage: consumer run [OPTIONS] URL DIR STREAM...
       consumer send URL COUNT STREAM...

URL is nats://HOST:PORT, redis://HOST:PORT or unix:///PATH.
`run` writes each new message of a stream to DIR/STREAM/output, once, and can be killed at any time.
`send` sends COUNT messages to each stream, and repeats about half of them.

options of run:
  --batch N       at most N messages in a commit (default 1000)
  --window N      a repetition comes within N messages (default 1000000)
  --fpr P         the probability of losing a new message (default 0.000000001)
  --survives S    kill, power-cut (default) or power-cut-at-once
  --drain         end with the message that is the last one now";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((command, rest)) if command == "run" => run(rest),
        Some((command, rest)) if command == "send" => send(rest),
        _ => Err(Failure::lasting(USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("consumer: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The arguments of `run`.
struct Run {
    plan: Plan,
    url: String,
    dir: PathBuf,
    streams: Vec<String>,
}

impl Run {
    fn new(arguments: &[String]) -> Result<Self> {
        let mut plan = Plan { settings: Settings::default(), batch: 1000, drain: false };
        let mut rest = arguments.iter();
        let mut plain = Vec::new();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--batch" => plan.batch = value(argument, rest.next())?,
                "--window" => plan.settings.window = value(argument, rest.next())?,
                "--fpr" => plan.settings.fpr = value(argument, rest.next())?,
                "--survives" => {
                    plan.settings.survives = match value::<String>(argument, rest.next())?.as_str()
                    {
                        "kill" => Survives::Kill,
                        "power-cut" => Survives::PowerCut,
                        "power-cut-at-once" => Survives::PowerCutAtOnce,
                        other => return Err(Failure::lasting(format!("--survives {other}?"))),
                    }
                }
                "--drain" => plan.drain = true,
                option if option.starts_with("--") => return Err(Failure::lasting(USAGE)),
                other => plain.push(other.to_owned()),
            }
        }
        let most = ebbtide::Batch::<ebbtide::Any>::MOST_OPERATIONS;
        if plan.batch == 0 || plan.batch > most {
            return Err(Failure::lasting(format!("--batch is a number from 1 to {most}")));
        }
        let [url, dir, streams @ ..] = &plain[..] else { return Err(Failure::lasting(USAGE)) };
        if streams.is_empty() {
            return Err(Failure::lasting(USAGE));
        }
        if let Some(bad) = streams.iter().find(|name| name.contains('/') || name.starts_with('.')) {
            let why = "the name of a stream becomes that of a directory: no / and no leading dot";
            return Err(Failure::lasting(format!("{bad}: {why}")));
        }
        Ok(Self { plan, url: url.clone(), dir: dir.into(), streams: streams.to_vec() })
    }
}

fn value<T: FromStr>(option: &str, text: Option<&String>) -> Result<T> {
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Failure::lasting(format!("{option} needs a value\n\n{USAGE}")))
}

/// Consumes each stream by a thread of its own.
fn run(arguments: &[String]) -> Result<()> {
    let Run { plan, url, dir, streams } = Run::new(arguments)?;
    let server = Arc::new(Server::new(&url)?);
    let threads: Vec<_> = streams
        .into_iter()
        .map(|stream| {
            let (server, dir) = (Arc::clone(&server), dir.join(&stream));
            thread::spawn(move || run_one(&server, &stream, &dir, plan))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| Failure::lasting("a thread has panicked"))?;
    }
    Ok(())
}

/// Consumes one stream. A failure ends the process: that is safe at any time.
fn run_one(server: &Server, stream: &str, dir: &Path, plan: Plan) {
    let began = Instant::now();
    match consume(server, stream, dir, plan) {
        Ok(consumed) => println!("{stream}: {consumed:?} in {:?}", began.elapsed()),
        Err(failure) => {
            eprintln!("consumer: {stream}: {failure}");
            process::exit(1);
        }
    }
}

fn send(arguments: &[String]) -> Result<()> {
    let [url, count, streams @ ..] = arguments else { return Err(Failure::lasting(USAGE)) };
    if streams.is_empty() {
        return Err(Failure::lasting(USAGE));
    }
    let server = Server::new(url)?;
    for stream in streams {
        let order = traffic::order(value("COUNT", Some(count))?, 0);
        let messages: Vec<_> =
            order.into_iter().map(|number| traffic::message(stream, number)).collect();
        server.create(stream)?;
        server.send(stream, &messages)?;
        println!("{stream}: {} messages sent", messages.len());
    }
    Ok(())
}
