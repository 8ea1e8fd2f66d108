//! Each message is worked on until its work is done, and its work is confirmed once, whatever
//! happens to the work, to the senders and to the receiver.
//!
//! `EBBTIDE_KILLS` sets how often the receiver is killed (40), `EBBTIDE_SEED` repeats a run.

#[path = "faulty/random.rs"]
mod random;

use ebbtide::{Claim, Durability, Filter, Fingerprint, Lease, Options};
use random::Random;
use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use webhook::load::{Answer, Sender};
use webhook::{Receiver, Work};

/// The messages that are sent at a time, each by two senders.
const AT_A_TIME: u64 = 64;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// Starts a receiver, which is killed when it is dropped.
fn start(program: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::piped()).kill_on_drop(true);
    command.spawn().expect("a receiver")
}

/// Waits until a receiver listens, and returns its address.
async fn listens(receiver: &mut Child) -> String {
    let mut lines = BufReader::new(receiver.stdout.take().expect("its output")).lines();
    let line = lines.next_line().await.expect("its output").expect("a line");
    line.strip_prefix("listening on ").expect("an address").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_requests_at_a_time_one_does_the_work_and_both_get_200() {
    timeout(Duration::from_secs(120), async {
        let home = tempfile::tempdir().expect("a directory");
        let dir = home.path().to_str().expect("text");
        // What a full disk has left of a line.
        fs::write(home.path().join("done"), "\n0 17").expect("half a line");
        let mut receiver = start(env!("CARGO_BIN_EXE_webhook"), &["serve", dir, "127.0.0.1:0"]);
        let address = listens(&mut receiver).await;
        let requests = (0..1000).map(|request| {
            let address = address.clone();
            tokio::spawn(async move {
                let mut sender = Sender::connect(&address).await.expect("a connection");
                loop {
                    let answer = sender.send(&format!("{}", request / 2)).await;
                    match answer.expect("an answer") {
                        Answer::InProgress => sleep(Duration::from_millis(10)).await,
                        answer => return answer,
                    }
                }
            })
        });
        let mut answers = Vec::new();
        for request in requests.collect::<Vec<_>>() {
            answers.push(request.await.expect("no panic"));
        }
        for (message, pair) in answers.chunks(2).enumerate() {
            let done = pair.iter().filter(|&&answer| answer == Answer::Done).count();
            assert!(done == 1 && pair.contains(&Answer::DoneBefore), "{message}: {pair:?}");
        }
        let lines = fs::read_to_string(home.path().join("done")).expect("the work");
        let whole = || lines.lines().filter_map(|line| line.strip_suffix(" .")?.split_once(' '));
        let messages: BTreeSet<_> = whole().map(|(message, _)| message).collect();
        assert_eq!((whole().count(), messages.len()), (500, 500));
    })
    .await
    .expect("it takes two minutes at most");
}

/// Work that nobody asks for.
struct Never;

impl Work for Never {
    async fn work(
        &self,
        id: &str,
        _: &Lease<'_, Fingerprint>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        panic!("{id} was done before")
    }
}

#[tokio::test]
async fn a_message_that_was_done_before_is_durable_when_that_is_answered() {
    timeout(Duration::from_secs(120), async {
        let home = tempfile::tempdir().expect("a directory");
        let spec = Fingerprint::window(Duration::from_secs(3600));
        let options = Options::new().durability(Durability::Never);
        let seen = Filter::create(home.path().join("seen"), spec, options).expect("a filter");
        let lease = Duration::from_secs(60);
        // The receiver does not wait: its request is still to be answered.
        let Ok(Claim::Yours(claim)) = seen.claim("a", lease) else { panic!("it is new") };
        claim.confirm().expect("it is held");
        drop(claim);
        let before = seen.durable_upto().expect("an end");
        let receiver = Arc::new(Receiver { seen, work: Never, lease });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let routes = webhook::routes(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let mut sender = Sender::connect(&address).await.expect("a connection");
        assert_eq!(sender.send("a").await.expect("an answer"), Answer::DoneBefore);
        let durable = receiver.seen.durable_upto().expect("an end");
        assert!(durable >= before + 2, "the confirmation: {before}, {durable}");
    })
    .await
    .expect("it takes two minutes at most");
}

/// A message, and the answers of 200 that its two senders got at last, each with the length of the
/// file of work at that time.
struct Delivered {
    message: u64,
    answers: [(Answer, u64); 2],
}

/// What all senders share.
struct Scene {
    dir: PathBuf,
    /// The receiver's address while it listens.
    address: watch::Sender<Option<String>>,
    next: AtomicU64,
    ends: AtomicBool,
    failed: AtomicU64,
    in_progress: AtomicU64,
    broken: AtomicU64,
}

impl Scene {
    fn start(&self, seed: u64) -> Child {
        let dir = self.dir.to_str().expect("text");
        start(env!("CARGO_BIN_EXE_faulty"), &[dir, &seed.to_string()])
    }

    /// Kills one receiver after the other, at random moments. Returns the last one, which lives.
    async fn kill(&self, kills: u64, mut random: Random) -> Child {
        for _ in 0..kills {
            let mut receiver = self.start(random.below(u64::MAX));
            // Otherwise it is killed while it opens the filter.
            if random.below(4) > 0 {
                let address = listens(&mut receiver).await;
                self.address.send_replace(Some(address));
            }
            // Some live long enough for work that takes longer than its lease.
            let most = if random.below(8) == 0 { 600_000 } else { 100_000 };
            sleep(Duration::from_micros(random.below(most))).await;
            self.address.send_replace(None);
            assert!(receiver.try_wait().expect("a child").is_none(), "the receiver has failed");
            receiver.kill().await.expect("it is a child");
        }
        let mut receiver = self.start(random.below(u64::MAX));
        self.address.send_replace(Some(listens(&mut receiver).await));
        self.ends.store(true, Ordering::SeqCst);
        receiver
    }

    /// Sends messages until the kills are over, each by two senders.
    async fn send(&self, seed: u64) -> Vec<Delivered> {
        let (mut first, mut second) = ((None, Random(seed)), (None, Random(!seed)));
        let mut delivered = Vec::new();
        while !self.ends.load(Ordering::SeqCst) {
            let message = self.next.fetch_add(1, Ordering::SeqCst);
            let both = (self.deliver(message, &mut first), self.deliver(message, &mut second));
            let (one, other) = tokio::join!(both.0, both.1);
            delivered.push(Delivered { message, answers: [one, other] });
        }
        delivered
    }

    /// Repeats a message until it is answered with 200. One request of twenty is abandoned.
    async fn deliver(
        &self,
        message: u64,
        (sender, random): &mut (Option<Sender>, Random),
    ) -> (Answer, u64) {
        let id = format!("message-{message}");
        loop {
            let patience = match random.below(20) {
                0 => Duration::from_micros(random.below(5000)),
                _ => Duration::from_secs(30),
            };
            match timeout(patience, self.request(&id, sender)).await {
                Ok(Ok(answer)) if answer.is_200() => {
                    let work = fs::metadata(self.dir.join("work")).expect("the work");
                    return (answer, work.len());
                }
                Ok(Ok(Answer::Failed)) => drop(self.failed.fetch_add(1, Ordering::SeqCst)),
                Ok(Ok(_)) => drop(self.in_progress.fetch_add(1, Ordering::SeqCst)),
                Ok(Err(error)) if error.kind() == ErrorKind::InvalidData => panic!("{error}"),
                Ok(Err(_)) | Err(_) => {
                    self.broken.fetch_add(1, Ordering::SeqCst);
                    *sender = None;
                }
            }
            sleep(Duration::from_micros(random.below(10_000))).await;
        }
    }

    /// Sends a message once, over the connection that there is, or a new one.
    async fn request(&self, id: &str, sender: &mut Option<Sender>) -> std::io::Result<Answer> {
        if sender.is_none() {
            let mut address = self.address.subscribe();
            let address = address.wait_for(Option::is_some).await.expect("a scene").clone();
            *sender = Some(Sender::connect(&address.expect("it is there")).await?);
        }
        sender.as_mut().expect("a connection").send(id).await
    }
}

/// What the attempts of a message have left in the file of work.
#[derive(Default)]
struct Attempts {
    /// The greatest token.
    last: u64,
    /// The tokens of the attempts whose work was done, and the length of the file then.
    finished: Vec<(u64, u64)>,
    /// How many of them ended when a later attempt had begun.
    late: usize,
}

fn attempts(dir: &Path) -> HashMap<u64, Attempts> {
    let mut attempts: HashMap<u64, Attempts> = HashMap::new();
    let mut length = 0;
    for line in fs::read_to_string(dir.join("work")).expect("the work").lines() {
        length += line.len() as u64 + 1;
        // A line that a kill has cut off is none.
        let [what, id, token, "."] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        let message = id.strip_prefix("message-").expect("a message").parse().expect("a number");
        let token = token.parse().expect("a number");
        let of_message: &mut Attempts = attempts.entry(message).or_default();
        of_message.last = of_message.last.max(token);
        match what {
            "begun" => {}
            "finished" => {
                // Without the end of the line, which the next one writes.
                of_message.finished.push((token, length - 1));
                of_message.late += usize::from(token < of_message.last);
            }
            "overlap" => panic!("two attempts had a lease at the same time: {line}"),
            _ => panic!("{line}"),
        }
    }
    attempts
}

/// Asserts that
///
/// - each message was answered with 200 in the end, to both of its senders;
/// - when it was, the work of its last attempt was done: that with the greatest token, so no
///   attempt began after the one that was confirmed;
/// - one confirmation of each message, and nothing else, is in the filter;
/// - at most one sender of a message got `done`: none, if the connection broke before the answer.
///
/// The work of a message may have been done by earlier attempts as well: the receiver was killed
/// between the work and its confirmation, or the work took longer than its lease. They
/// are counted.
fn check(dir: &Path, delivered: &[Delivered]) -> (usize, usize) {
    let attempts = attempts(dir);
    assert_eq!(attempts.len(), delivered.len(), "messages");
    for Delivered { message, answers } in delivered {
        let of_message = &attempts[message];
        let finished: Vec<_> =
            of_message.finished.iter().filter(|(token, _)| *token == of_message.last).collect();
        let [&(_, length)] = finished[..] else {
            panic!("message {message}: {} ends of its last attempt", finished.len());
        };
        for (answer, length_then) in answers {
            assert!(*length_then >= length, "message {message}: {answer:?} before its work");
        }
        let done = answers.iter().filter(|(answer, _)| *answer == Answer::Done).count();
        assert!(done < 2, "message {message} was confirmed twice");
    }
    let seen = webhook::open(&dir.join("seen")).expect("it opens");
    let inserts = seen.stat().expect("figures").inserts;
    assert_eq!(inserts, delivered.len() as u64, "confirmations");
    assert_eq!(seen.claims().expect("claims"), [], "nothing is in progress");
    let earlier = attempts.values().map(|of_message| of_message.finished.len() - 1).sum();
    (earlier, attempts.values().map(|of_message| of_message.late).sum())
}

async fn deliver_all(dir: &Path, kills: u64, seed: u64) {
    let scene = Arc::new(Scene {
        dir: dir.to_owned(),
        address: watch::Sender::new(None),
        next: AtomicU64::new(0),
        ends: AtomicBool::new(false),
        failed: AtomicU64::new(0),
        in_progress: AtomicU64::new(0),
        broken: AtomicU64::new(0),
    });
    let mut random = Random(seed);
    let mut senders = JoinSet::new();
    for _ in 0..AT_A_TIME {
        let (scene, seed) = (scene.clone(), random.below(u64::MAX));
        senders.spawn(async move { scene.send(seed).await });
    }
    let mut receiver = scene.kill(kills, random).await;
    let delivered: Vec<_> = senders.join_all().await.into_iter().flatten().collect();
    let mut sender = None;
    for Delivered { message, .. } in delivered.iter().take(1000) {
        let again = scene.request(&format!("message-{message}"), &mut sender).await;
        assert_eq!(again.expect("an answer"), Answer::DoneBefore, "message {message}");
    }
    receiver.kill().await.expect("it is a child");
    let (earlier, late) = check(dir, &delivered);
    let [failed, in_progress, broken] = [&scene.failed, &scene.in_progress, &scene.broken]
        .map(|count| count.load(Ordering::SeqCst));
    println!(
        "{kills} kills: {} messages confirmed once each; {earlier} earlier attempts had finished, \
         {late} of them after their lease; requests: {failed} failed, {in_progress} in progress, \
         {broken} broken",
        delivered.len()
    );
    assert!(failed > 0 && in_progress > 0 && broken > 0, "nothing was tested");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_is_confirmed_once_and_none_is_lost_however_often_the_receiver_is_killed() {
    let (kills, home) = (number("EBBTIDE_KILLS", 40), tempfile::tempdir().expect("a directory"));
    let seed = number("EBBTIDE_SEED", u64::from(std::process::id()));
    println!("EBBTIDE_KILLS={kills} EBBTIDE_SEED={seed}");
    let limit = Duration::from_secs(120 + 2 * kills);
    timeout(limit, deliver_all(home.path(), kills, seed)).await.expect("it does not hang");
}
