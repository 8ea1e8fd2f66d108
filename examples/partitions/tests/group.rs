//! Two members over a real server (`apt-get install nats-server`; without it the test is skipped,
//! and says so), with a directory as the object storage.

use partitions::broker::Broker;
use partitions::member::{Member, place};
use partitions::partition::{Name, divide};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time that the server takes to start, also on a busy machine.
const START: Duration = Duration::from_secs(60);

struct Server {
    process: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(home: &Path) -> Option<Self> {
        std::fs::create_dir(home).expect("a directory");
        let mut command = Command::new("nats-server");
        command.args(["--jetstream", "--addr", "127.0.0.1", "--port", "-1"]);
        command.arg("--store_dir").arg(home).arg("--ports_file_dir").arg(home);
        let Ok(process) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            println!("skipped: nats-server is not installed (apt-get install nats-server)");
            return None;
        };
        let mut server = Self { process, url: String::new() };
        let begun = Instant::now();
        while server.url.is_empty() {
            assert!(begun.elapsed() < START, "nats-server does not listen");
            std::thread::sleep(Duration::from_millis(50));
            server.url = address(home).unwrap_or_default();
        }
        Some(server)
    }
}

/// Returns what the server has written about its port: `{"nats":["nats://127.0.0.1:40123"]}`.
fn address(home: &Path) -> Option<String> {
    let entries = std::fs::read_dir(home).ok()?.map_while(Result::ok);
    let ports = entries
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "ports"))?;
    let text = std::fs::read_to_string(ports).ok()?;
    let (_, behind) = text.split_once("nats://127.0.0.1:")?;
    let port: u16 = behind.split_once('"')?.0.parse().ok()?;
    Some(format!("nats://127.0.0.1:{port}"))
}

/// Orders that were passed on, and how often.
#[derive(Default)]
struct Passed(BTreeMap<Vec<u8>, u64>);

impl Passed {
    /// Lets members work until nothing comes any more.
    fn work(&mut self, members: &mut [&mut Member]) {
        loop {
            let mut count = 0;
            for member in members.iter_mut() {
                let work = member.work(|_, message| {
                    *self.0.entry(message.order.clone()).or_default() += 1;
                });
                count += work.expect("work");
            }
            if count == 0 {
                return;
            }
        }
    }

    /// Checks that each order was passed on once. A filter takes one in a thousand for known.
    fn check(&self, orders: &[Vec<u8>]) {
        assert!(self.0.values().all(|&count| count == 1), "an order was passed on twice");
        let missing = orders.iter().filter(|order| !self.0.contains_key(*order)).count();
        assert!(missing <= 10, "{missing} of {} are missing", orders.len());
    }
}

fn orders(numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    numbers.map(|number| format!("order {number}").into_bytes()).collect()
}

fn publish(broker: &Broker, orders: &[Vec<u8>], count: u64) {
    // Each comes twice.
    let twice = orders.iter().chain(orders).map(Vec::as_slice);
    broker.publish(twice, count).expect("published");
}

#[test]
fn each_order_is_passed_on_once_whoever_has_its_partition() {
    let parent = tempfile::tempdir().expect("a directory");
    let Some(server) = Server::start(&parent.path().join("nats")) else { return };
    let places = parent.path().join("store").display().to_string();
    let connect = || Broker::connect(&server.url).expect("a broker");
    let broker = connect();
    let member = |name| Member::new(name, connect(), parent.path().join(name), &places);
    let (mut a, mut b) = (member("a"), member("b"));
    let [zero, one] = [0, 1].map(|number| Name { count: 2, number });
    let assign = |members: &[(Name, &'static str)]| {
        broker.assign(&members.iter().copied().collect()).expect("assigned");
    };
    let mut passed = Passed::default();

    // One member has both partitions.
    assign(&[(zero, "a"), (one, "a")]);
    publish(&broker, &orders(0..300), 2);
    a.look().expect("a look");
    passed.work(&mut [&mut a]);
    passed.check(&orders(0..300));

    // One of them is handed over; all orders come again, and more.
    assign(&[(zero, "a"), (one, "b")]);
    a.look().expect("a look");
    b.look().expect("a look");
    assert_eq!(a.held().chain(b.held()).collect::<Vec<_>>(), [zero, one]);
    publish(&broker, &orders(0..500), 2);
    passed.work(&mut [&mut a, &mut b]);
    passed.check(&orders(0..500));

    // The group thinks that a is dead. It is a zombie, and has not noticed.
    assign(&[(zero, "b"), (one, "b")]);
    b.look().expect("a look");
    publish(&broker, &orders(400..700), 2);
    a.work(|_, message| panic!("{message:?} was passed on by a zombie")).expect("work");
    assert_eq!(a.held().count(), 0, "it was not fenced");
    passed.work(&mut [&mut b]);
    passed.check(&orders(0..700));

    // Twice as many partitions: nobody works on the former ones, all of which was consumed.
    assign(&[]);
    b.look().expect("a look");
    let mut members = Vec::new();
    for name in [zero, one] {
        let work = parent.path().join(format!("divide-{name}"));
        divide(name, 2, |name| place(&places, name), &work).expect("divided");
        members.extend(name.parts(2).map(|part| (part, ["a", "b"][part.number as usize % 2])));
    }
    assign(&members);
    a.look().expect("a look");
    b.look().expect("a look");
    assert_eq!((a.held().count(), b.held().count()), (2, 2));
    publish(&broker, &orders(0..900), 4);
    passed.work(&mut [&mut a, &mut b]);
    passed.check(&orders(0..900));
}

#[test]
fn an_order_that_is_no_text_is_passed_on_and_holds_up_none_behind_it() {
    let parent = tempfile::tempdir().expect("a directory");
    let Some(server) = Server::start(&parent.path().join("nats")) else { return };
    let places = parent.path().join("store").display().to_string();
    let connect = || Broker::connect(&server.url).expect("a broker");
    let (broker, only) = (connect(), Name { count: 1, number: 0 });
    let mut a = Member::new("a", connect(), parent.path().join("a"), &places);
    broker.assign(&BTreeMap::from([(only, "a")])).expect("assigned");
    let mut all = orders(0..20);
    all.insert(10, vec![0xff, 0xfe]);
    publish(&broker, &all, 1);
    a.look().expect("a look");
    let mut passed = Passed::default();
    passed.work(&mut [&mut a]);
    assert_eq!(passed.0, all.into_iter().map(|order| (order, 1)).collect::<BTreeMap<_, _>>());
}
