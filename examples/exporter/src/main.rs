//! A daemon that suppresses repeated lines and serves its figures to Prometheus.
//!
//! ```sh
//! tail -F app.log | cargo run --manifest-path examples/exporter/Cargo.toml -- seen 127.0.0.1:9184
//! curl http://127.0.0.1:9184/metrics
//! ```
//!
//! Lines from standard input whose first occurrence in ten minutes they are go to standard output,
//! spans and events of the library to standard error. `dashboard.json` beside this file shows the
//! metrics in Grafana. The server answers one request at a time, which is enough for scrapers; put
//! it behind a real server before you show it to the world.

use ebbtide::{Checked, Filter, Fingerprint, Options, monitoring};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::error::Error;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write, stdin, stdout};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The window in which a line is printed once.
const WINDOW: Duration = Duration::from_secs(600);
/// The bounds of the buckets of durations, in seconds.
const BUCKETS: [f64; 9] = [1e-5, 1e-4, 1e-3, 5e-3, 2.5e-2, 0.1, 0.5, 2.0, 10.0];
/// The pauses between two takings of durations into their buckets.
const UPKEEP: Duration = Duration::from_secs(5);
/// The time that a scraper has to send its request, and the most that is read of it.
const PATIENCE: Duration = Duration::from_secs(5);
const REQUEST_BYTES: u64 = 8 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(dir), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("usage: exporter DIR ADDRESS:PORT".into());
    };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    // Before the filter is opened, so that its recovery is measured too.
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)?
        .install_recorder()?;
    monitoring::describe();
    let spec = Fingerprint::window(WINDOW).fpr(0.001);
    let seen = Arc::new(Filter::open_or_create(&dir, spec, Options::new())?);
    let address = address.into_string().map_err(|_| "the address is not text")?;
    let listener = TcpListener::bind(&address)?;
    let (scraped, kept) = (seen.clone(), recorder.clone());
    thread::spawn(move || serve(&listener, &scraped, &recorder));
    thread::spawn(move || tend(&kept));
    let line = Arc::new(Line::default());
    close_on_signals(seen.clone(), line.clone())?;
    for text in BufReader::new(stdin()).split(b'\n') {
        if !line.print_once(text?, &seen)? {
            break;
        }
    }
    while line.ends.load(Ordering::SeqCst) {
        // The thread of the signal closes the filter and ends the process.
        thread::park();
    }
    seen.close()?;
    Ok(())
}

/// The line that is worked on. A key is recorded before its line is written; between the two the
/// process must not end, because the line would be suppressed after the next start.
#[derive(Default)]
struct Line {
    in_work: Mutex<()>,
    /// Whether no other line may begin.
    ends: AtomicBool,
}

impl Line {
    /// Prints a line that is new. Returns false if no other is to be printed.
    fn print_once(
        &self,
        mut text: Vec<u8>,
        seen: &Filter<Fingerprint>,
    ) -> Result<bool, Box<dyn Error>> {
        let _in_work = self.in_work.lock();
        if self.ends.load(Ordering::SeqCst) {
            return Ok(false);
        }
        if seen.check_and_insert(&text)? != Checked::Present {
            text.push(b'\n');
            match stdout().write_all(&text) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
                written => written?,
            }
        }
        Ok(true)
    }
}

/// Closes the filter at SIGTERM and SIGINT, once the line in work is written, and ends by the
/// signal. As long as nobody reads the output, the process stays.
fn close_on_signals(seen: Arc<Filter<Fingerprint>>, line: Arc<Line>) -> Result<(), Box<dyn Error>> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    thread::spawn(move || {
        for signal in signals.forever() {
            line.ends.store(true, Ordering::SeqCst);
            drop(line.in_work.lock());
            if let Err(error) = seen.close() {
                eprintln!("exporter: {error}");
            }
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(())
}

/// Takes the measured durations into their buckets, also while nobody scrapes: until then the
/// recorder keeps each of them.
fn tend(recorder: &PrometheusHandle) {
    loop {
        thread::sleep(UPKEEP);
        recorder.run_upkeep();
    }
}

/// Answers scrapers, one at a time.
fn serve(listener: &TcpListener, seen: &Filter<Fingerprint>, recorder: &PrometheusHandle) {
    for stream in listener.incoming().flatten() {
        // A scraper that goes away loses only its own answer.
        if let Err(error) = answer(stream, seen, recorder) {
            eprintln!("exporter: cannot answer a scraper: {error}");
        }
    }
}

fn answer(
    mut stream: TcpStream,
    seen: &Filter<Fingerprint>,
    recorder: &PrometheusHandle,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = BufReader::new(stream.try_clone()?.take(REQUEST_BYTES)).lines();
    let first = request.next().transpose()?.unwrap_or_default();
    // A client may not notice an answer before it has sent its whole request.
    for line in request {
        if line?.is_empty() {
            break;
        }
    }
    let (status, body) = match first.split(' ').nth(1) {
        Some("/metrics") => match scrape(seen, recorder) {
            Ok(text) => ("200 OK", text),
            Err(error) => ("500 Internal Server Error", format!("{error}\n")),
        },
        _ => ("404 Not Found", "the figures are at /metrics\n".to_owned()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Returns all metrics: those of the filter as of now, and those that the library has reported.
fn scrape(seen: &Filter<Fingerprint>, recorder: &PrometheusHandle) -> ebbtide::Result<String> {
    monitoring::publish(seen.path(), &seen.stat()?, &seen.details()?);
    Ok(recorder.render())
}
