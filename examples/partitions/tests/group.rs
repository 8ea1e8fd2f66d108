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
        let last = broker.last(name).expect("a sequence");
        divide(name, 2, last, |name| place(&places, name), &work).expect("divided");
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
fn orders_for_the_new_partitions_that_came_before_the_last_former_one_are_passed_on() {
    let parent = tempfile::tempdir().expect("a directory");
    let Some(server) = Server::start(&parent.path().join("nats")) else { return };
    let places = parent.path().join("store").display().to_string();
    let connect = || Broker::connect(&server.url).expect("a broker");
    let (broker, former) = (connect(), Name { count: 1, number: 0 });
    let mut a = Member::new("a", connect(), parent.path().join("a"), &places);
    let mut passed = Passed::default();
    broker.assign(&BTreeMap::from([(former, "a")])).expect("assigned");
    publish(&broker, &orders(0..50), 1);
    a.look().expect("a look");
    passed.work(&mut [&mut a]);
    // One producer has the new number, when another one still has the former.
    publish(&broker, &orders(40..100), 2);
    publish(&broker, &orders(100..150), 1);
    let last = broker.last(former).expect("a sequence");
    let work = parent.path().join("divide");
    let whole = |name| place(&places, name);
    let left = divide(former, 2, last, whole, &work).expect_err("messages are left").to_string();
    assert!(left.contains(&format!("up to {last}")), "{left}");
    passed.work(&mut [&mut a]);
    broker.assign(&BTreeMap::new()).expect("assigned");
    a.look().expect("a look");

    // The second part cannot be shipped at first, and the work is done again when it is done.
    let nowhere = parent.path().join("nowhere");
    std::fs::write(&nowhere, "no directory").expect("written");
    let broken = |name: Name| match name == (Name { count: 2, number: 1 }) {
        true => nowhere.join("store").display().to_string(),
        false => place(&places, name),
    };
    divide(former, 2, last, broken, &work).expect_err("a part without a place");
    for _ in 0..2 {
        divide(former, 2, last, whole, &work).expect("divided");
    }
    let members: BTreeMap<_, _> = former.parts(2).map(|part| (part, "a")).collect();
    broker.assign(&members).expect("assigned");
    a.look().expect("a look");
    publish(&broker, &orders(0..200), 2);
    passed.work(&mut [&mut a]);
    passed.check(&orders(0..200));
}

#[test]
fn a_member_that_starts_again_leaves_nothing_and_takes_what_it_can() {
    let parent = tempfile::tempdir().expect("a directory");
    let Some(server) = Server::start(&parent.path().join("nats")) else { return };
    let (store, home) = (parent.path().join("store"), parent.path().join("a"));
    let places = store.display().to_string();
    let connect = || Broker::connect(&server.url).expect("a broker");
    let (broker, [zero, one]) = (connect(), [0, 1].map(|number| Name { count: 2, number }));
    let directories = || -> Vec<String> {
        let entries = std::fs::read_dir(&home).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names.map(|name| name.into_string().expect("a text")).collect()
    };
    broker.assign(&BTreeMap::from([(zero, "a"), (one, "a")])).expect("assigned");
    publish(&broker, &orders(0..100), 2);
    // The first one has no place, and stands before the other one.
    std::fs::create_dir(&store).expect("a directory");
    std::fs::write(place(&places, zero), "no directory").expect("written");
    let (mut passed, mut former) =
        (Passed::default(), Member::new("a", connect(), home.clone(), &places));
    former.look().expect_err("a partition without a place");
    assert_eq!(former.held().collect::<Vec<_>>(), [one]);
    assert!(directories().iter().all(|name| name.starts_with("2.1")), "{:?}", directories());
    passed.work(&mut [&mut former]);

    // As a kill leaves it.
    std::mem::forget(former);
    std::fs::remove_file(place(&places, zero)).expect("removed");
    let mut a = Member::new("a", connect(), home.clone(), &places);
    a.look().expect("a look");
    assert_eq!(a.held().collect::<Vec<_>>(), [zero, one]);
    assert_eq!(directories().len(), 2, "{:?}", directories());
    passed.work(&mut [&mut a]);
    passed.check(&orders(0..100));
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
