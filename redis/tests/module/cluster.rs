//! A cluster of three primaries and three replicas under load: slots move, a primary is killed, its
//! replica takes over, then by command, and it comes back as a replica. In the end each
//! filter has the digest that a server alone has after the same commands, and claims that were held
//! before all this are held.

use crate::samples::{Commands, SAMPLES};
use crate::server::{Server, ask, command, is_there, within};
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::random::Random;
use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{Cmd, Value};
use std::process::Command;
use std::time::{Duration, Instant};

/// Filters.
const FILTERS: usize = 40;
/// Commands of each filter in one phase.
const COMMANDS: u64 = 20;

/// Servers of a cluster; the last three are replicas of the first three at the start.
struct Cluster(Vec<Server>);

impl Cluster {
    fn start() -> Self {
        let settings = "--cluster-enabled yes --cluster-node-timeout 1000 --appendonly yes \
                        --appendfsync everysec --repl-diskless-sync-delay 0 \
                        --cluster-replica-validity-factor 0 --cluster-port";
        let port = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("its address").port()
        };
        let servers: Vec<_> =
            (0..6).map(|_| Server::start(&format!("{settings} {}", port()))).collect();
        let addresses = servers.iter().map(|server| format!("127.0.0.1:{}", server.port));
        let addresses: Vec<_> = addresses.collect();
        let mut words = vec!["create".to_owned()];
        words.extend(addresses);
        words.extend(["--cluster-replicas", "1", "--cluster-yes"].map(str::to_owned));
        manage(&words);
        let cluster = Self(servers);
        cluster.wait_until_ok();
        cluster
    }

    /// Waits until all servers that live agree that all slots are served, each primary with a
    /// replica whose link is up.
    fn wait_until_ok(&self) {
        within("the cluster is well", || {
            self.0.iter().all(|server| {
                let info: String = server.ask("CLUSTER INFO");
                let is_linked = server.info("replication", "role") == "master"
                    || server.info("replication", "master_link_status") == "up";
                info.contains("cluster_state:ok") && is_linked
            })
        });
    }

    fn connect(&self) -> ClusterConnection {
        let nodes = self.0.iter().map(|server| format!("redis://127.0.0.1:{}/", server.port));
        let builder = ClusterClient::builder(nodes.collect::<Vec<_>>()).retries(50);
        let builder = builder.max_retry_wait(200).response_timeout(Duration::from_secs(20));
        builder.build().and_then(|client| client.get_connection()).expect("a cluster")
    }

    /// Returns the server that is the primary of a key now.
    fn primary_of(&self, key: &str) -> usize {
        let slot: u64 = self.0.iter().find_map(|server| slot(server, key)).expect("a slot");
        let serves = |server: &Server| {
            server.info("replication", "role") == "master" && slots_of(server).contains(&slot)
        };
        self.0.iter().position(serves).expect("one serves it")
    }
}

/// Runs `redis-cli --cluster`, again while the servers have not all heard of the last change.
fn manage(words: &[String]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let output = Command::new("redis-cli").arg("--cluster").args(words).output();
        let output = output.expect("redis-cli");
        if output.status.success() {
            return;
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_early = text.contains("Nodes don't agree about configuration");
        assert!(is_early && Instant::now() < deadline, "{words:?}: {text}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn slot(server: &Server, key: &str) -> Option<u64> {
    command(&format!("CLUSTER KEYSLOT {key}")).query(&mut server.connect()).ok()
}

/// Returns the slots that a server serves.
fn slots_of(server: &Server) -> Vec<u64> {
    let nodes: String = server.ask("CLUSTER NODES");
    let own = nodes.lines().find(|line| line.contains("myself")).expect("itself");
    let ranges = own.split(' ').skip(8).filter(|word| !word.starts_with('['));
    let slots = ranges.flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse::<u64>().expect("a slot")..=last.parse().expect("a slot")
    });
    slots.collect()
}

/// A filter and the commands that it got.
struct Filter {
    source: Commands<'static>,
    sent: Vec<Cmd>,
}

/// Sends the next commands of all filters, each acknowledged by the replica.
fn load(connection: &mut ClusterConnection, filters: &mut [Filter], random: &mut Random) {
    for _ in 0..scaled(COMMANDS) * filters.len() as u64 {
        let filter = &mut filters[random.below(FILTERS as u64) as usize];
        let command = filter.source.next();
        let reply: Result<Value, _> = command.query(connection);
        reply.unwrap_or_else(|error| panic!("{}: {error}", filter.source.sample.name));
        filter.sent.push(command);
    }
}

/// Moves slots from one server to another while commands come.
fn reshard(cluster: &Cluster, filters: &mut [Filter], from: usize, to: usize, random: &mut Random) {
    let id = |at: usize| cluster.0[at].ask::<String>("CLUSTER MYID");
    let address = format!("127.0.0.1:{}", cluster.0[from].port);
    let (from, to) = (id(from), id(to));
    let words = ["reshard", &address, "--cluster-from", &from, "--cluster-to", &to];
    let mut words: Vec<_> = words.map(str::to_owned).to_vec();
    words.extend(["--cluster-slots", "2500", "--cluster-yes"].map(str::to_owned));
    std::thread::scope(|scope| {
        let moving = scope.spawn(move || manage(&words));
        let connection = &mut cluster.connect();
        while !moving.is_finished() {
            load(connection, filters, random);
        }
        moving.join().expect("the slots move");
    });
}

/// Waits until each replica has what its primary has.
fn settle(cluster: &Cluster) {
    cluster.wait_until_ok();
    within("replicas follow", || {
        cluster.0.iter().all(|server| {
            let port = |field: &str| server.info("replication", field);
            if port("role") == "master" {
                return true;
            }
            let primary = port("master_port");
            let primary = cluster.0.iter().find(|server| server.port.to_string() == primary);
            primary.is_some_and(|primary| {
                primary.info("replication", "master_repl_offset") == port("master_repl_offset")
            })
        })
    });
}

/// Claims items of filters in several slots for an hour; returns keys and tokens.
fn claim(connection: &mut ClusterConnection) -> Vec<(String, u64)> {
    let claims = (0..FILTERS).map(|at| {
        let key = format!("claimed:{at}");
        let reserve = command(&format!("EB.RESERVE {key} bloom capacity 1000"));
        let _: String = reserve.query(connection).expect("a filter");
        let words = format!("EB.CLAIM {key} item 3600000");
        let (word, token): (String, u64) = command(&words).query(connection).expect("a claim");
        assert_eq!(word, "YOURS", "{key}");
        (key, token)
    });
    claims.collect()
}

/// Asserts that the claims are held wherever their filters are now, and confirms them.
fn confirm(connection: &mut ClusterConnection, claims: &[(String, u64)]) {
    for (key, token) in claims {
        let words = format!("EB.CLAIM {key} item 1000");
        let (word, _): (String, u64) = command(&words).query(connection).expect("a state");
        assert_eq!(word, "INPROGRESS", "{key}");
        let confirm = command(&format!("EB.CONFIRM {key} item {token}"));
        assert_eq!(confirm.query::<String>(connection).expect("it is held"), "OK");
        let (word, _): (String, u64) = command(&words).query(connection).expect("a state");
        assert_eq!(word, "SEEN", "{key}");
    }
}

#[test]
fn a_cluster_that_moves_slots_and_loses_servers_has_the_digests_of_one_server() {
    if !is_there() || Command::new("redis-cli").arg("--version").output().is_err() {
        return;
    }
    let (mut cluster, control) = (Cluster::start(), Server::start(""));
    let mut random = Random::new(11);
    let source = |at: usize| Commands::new(&SAMPLES[at % SAMPLES.len()], format!("f{at}"), true, 3);
    let mut filters: Vec<_> =
        (0..FILTERS).map(|at| Filter { source: source(at), sent: Vec::new() }).collect();
    let connection = &mut cluster.connect();
    for filter in &mut filters {
        let reserve = filter.source.reserve();
        let _: String = reserve.query(connection).expect("a filter");
        filter.sent.push(reserve);
    }
    let claims = claim(connection);
    load(connection, &mut filters, &mut random);
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        reshard(&cluster, &mut filters, from, to, &mut random);
    }
    settle(&cluster);
    // The replica takes over from a killed primary.
    let victim = cluster.primary_of("f0");
    cluster.0[victim].kill();
    let others: Vec<usize> = (0..6).filter(|&at| at != victim).collect();
    within("a replica takes over", || {
        others.iter().all(|&at| {
            let nodes: String = cluster.0[at].ask("CLUSTER NODES");
            let port = cluster.0[victim].port;
            let lost = nodes.lines().find(|line| line.contains(&format!(":{port}@")));
            let info: String = cluster.0[at].ask("CLUSTER INFO");
            lost.is_none_or(|line| line.contains("fail") && !line.contains("fail?"))
                && info.contains("cluster_state:ok")
        })
    });
    let survivor = redis_client(&cluster, &others);
    load(&mut { survivor }, &mut filters, &mut random);
    cluster.0[victim].restart();
    settle(&cluster);
    assert_eq!(cluster.0[victim].info("replication", "role"), "slave");
    // And by command, back to the first.
    within("it is the primary again", || {
        let victim = &cluster.0[victim];
        // An attempt that takes longer than five seconds is abandoned without an error.
        let _ = command("CLUSTER FAILOVER").query::<Value>(&mut victim.connect());
        std::thread::sleep(Duration::from_millis(500));
        victim.info("replication", "role") == "master"
    });
    load(&mut cluster.connect(), &mut filters, &mut random);
    confirm(&mut cluster.connect(), &claims);
    settle(&cluster);
    compare(&cluster, &control, &filters);
}

/// Returns a connection by way of some servers.
fn redis_client(cluster: &Cluster, servers: &[usize]) -> ClusterConnection {
    let nodes = servers.iter().map(|&at| format!("redis://127.0.0.1:{}/", cluster.0[at].port));
    let builder = ClusterClient::builder(nodes.collect::<Vec<_>>()).retries(50);
    builder.build().and_then(|client| client.get_connection()).expect("a cluster")
}

/// Sends all commands to the control, and compares the digests on primaries and replicas.
fn compare(cluster: &Cluster, control: &Server, filters: &[Filter]) {
    let connection = &mut control.connect();
    for filter in filters {
        for command in &filter.sent {
            let _: Value = command.query(connection).expect("a reply");
        }
        let key = &filter.source.key;
        let digest = control.digest(key);
        let primary = &cluster.0[cluster.primary_of(key)];
        assert_eq!(primary.digest(key), digest, "{}", filter.source.sample.name);
        let replicas = cluster.0.iter().filter(|server| {
            server.info("replication", "role") == "slave"
                && server.info("replication", "master_port") == primary.port.to_string()
        });
        let mut count = 0;
        for replica in replicas {
            let connection = &mut replica.connect();
            let () = ask(connection, "READONLY");
            assert_eq!(ask::<String>(connection, &format!("EB.DEBUG DIGEST {key}")), digest);
            count += 1;
        }
        assert!(count > 0, "{key} has a replica");
    }
}
