//! Writes `requests.log`, the access log of a small web server. The log is **generated**: no such
//! server, client or request ever existed. It is the input of the examples, and the output is
//! always the same:
//!
//! ```text
//! cargo run --example make_requests_log > examples/requests.log
//! ```
//!
//! The log has the combined log format, increasing times, and clients from 10.0.0.0/8 with
//! Zipf-distributed activity. Half of the lines belong to bursts, in which one client sends
//! requests within seconds, as browsers, crawlers and impatient people do.

use std::io::{self, Write};

/// The number of lines of the log.
const LINES: usize = 12_000;

/// The number of possible clients. The most active one sends about one line in nine.
const CLIENTS: usize = 4_000;

/// The time of the first line: 2025-06-02 00:00:00 UTC, a Monday, in seconds since the Unix epoch.
const START: u64 = 1_748_822_400;

const AGENT: &str = "generated/1.0 (make_requests_log)";

const PAGES: [&str; 12] = [
    "/",
    "/tides/today",
    "/tides/week",
    "/harbours",
    "/harbours/north",
    "/harbours/south",
    "/moon",
    "/search?q=neap",
    "/search?q=spring+tide",
    "/static/style.css",
    "/static/chart.js",
    "/feed.xml",
];

/// Marsaglia's xorshift64*: small, and the same on every platform.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns an integer below `bound`, which is small enough that the bias is negligible.
    fn below(&mut self, bound: u64) -> u64 {
        ((self.next() >> 32) * bound) >> 32
    }
}

/// Draws client numbers with weights 1, 1/2, 1/3, …
struct Zipf(Vec<u64>);

impl Zipf {
    fn new(count: usize) -> Self {
        let weights = (1..=count as u64).map(|rank| 1_000_000_000 / rank);
        Self(
            weights
                .scan(0, |sum, weight| {
                    *sum += weight;
                    Some(*sum)
                })
                .collect(),
        )
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let total = self.0.last().copied().unwrap_or(1);
        let at = random.next() % total;
        self.0.partition_point(|sum| *sum <= at) as u64
    }
}

/// Returns the address of a client: its number scattered over 10.0.0.0/8 by an odd factor, so no
/// two clients share an address.
fn address(client: u64) -> String {
    let host = (client * 0x9E_3779 + 0x01_0203) & 0xFF_FFFF;
    format!("10.{}.{}.{}", host >> 16, host >> 8 & 0xFF, host & 0xFF)
}

/// Formats the time as in the log, which stays within June 2025.
fn stamp(seconds: u64) -> String {
    let since = seconds - START;
    let (day, hour, minute) = (2 + since / 86_400, since / 3_600 % 24, since / 60 % 60);
    format!("{day:02}/Jun/2025:{hour:02}:{minute:02}:{:02} +0000", since % 60)
}

/// Returns the whole log.
pub(crate) fn log() -> String {
    let mut random = Random(0x0EBB_71DE);
    let zipf = Zipf::new(CLIENTS);
    let mut text = String::new();
    let mut now = START;
    let mut client = 0;
    let mut burst = 0;
    for _ in 0..LINES {
        if burst > 0 {
            burst -= 1;
            now += random.below(3);
        } else {
            client = zipf.draw(&mut random);
            now += 1 + random.below(20);
            if random.below(5) == 0 {
                burst = 1 + random.below(9);
            }
        }
        let page = PAGES[random.below(PAGES.len() as u64) as usize];
        let (status, bytes) = match random.below(50) {
            0 => (404, 153),
            1..=5 => (304, 0),
            _ => (200, 400 + random.below(40_000)),
        };
        text += &format!(
            "{} - - [{}] \"GET {page} HTTP/1.1\" {status} {bytes} \"-\" \"{AGENT}\"\n",
            address(client),
            stamp(now),
        );
    }
    text
}

fn main() -> io::Result<()> {
    io::stdout().write_all(log().as_bytes())
}
