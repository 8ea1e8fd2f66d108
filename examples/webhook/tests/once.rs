//! A message that was answered is never new again, whatever happens to the receiver.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use webhook::load::Sender;

/// The requests that wait at a time.
const AT_A_TIME: usize = 1000;

/// A receiver; killed when dropped.
struct Receiver {
    child: Child,
    address: String,
}

impl Receiver {
    fn start(dir: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_webhook"))
            .args(["serve".as_ref(), dir.as_os_str(), "127.0.0.1:0".as_ref()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a receiver");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
        Self { child, address }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.child.kill().expect("it is a child");
        self.child.wait().expect("its end");
    }
}

/// Sends each message over a connection of its own, all at a time. Returns the answers, `None` for
/// a message whose connection broke.
async fn send_all(address: &str, messages: &[usize]) -> Vec<Option<bool>> {
    let send = |message: usize, address: String| async move {
        let mut sender = Sender::connect(&address).await.ok()?;
        sender.send(&message.to_string()).await.ok()
    };
    let tasks: Vec<_> =
        messages.iter().map(|&message| tokio::spawn(send(message, address.to_owned()))).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("no panic"));
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_requests_at_a_time_each_message_is_new_once() {
    let home = tempfile::tempdir().expect("a directory");
    let receiver = Receiver::start(&home.path().join("seen"));
    let twice: Vec<_> = (0..AT_A_TIME).map(|request| request / 2).collect();
    let answers = send_all(&receiver.address, &twice).await;
    for (message, pair) in answers.chunks(2).enumerate() {
        let new = pair.iter().flatten().filter(|&&is_new| is_new).count();
        assert_eq!((pair.len(), new), (2, 1), "message {message}: {pair:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answered_message_is_not_new_after_the_receiver_was_killed() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("seen");
    for round in 0..5 {
        let receiver = Receiver::start(&dir);
        let messages: Vec<_> = (round * AT_A_TIME..(round + 1) * AT_A_TIME).collect();
        let address = receiver.address.clone();
        let ahead = messages.clone();
        let sending = tokio::spawn(async move { send_all(&address, &ahead).await });
        tokio::task::yield_now().await;
        if round > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20 * round as u64)).await;
            drop(receiver);
        }
        let answers = sending.await.expect("no panic");
        let receiver = Receiver::start(&dir);
        let again = send_all(&receiver.address, &messages).await;
        for ((message, before), after) in messages.iter().zip(answers).zip(again) {
            if before.is_some() {
                assert_eq!(after, Some(false), "message {message} was answered before");
            }
        }
    }
}
