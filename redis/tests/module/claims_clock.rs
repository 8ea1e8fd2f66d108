//! Leases of a server whose wall clock is set while it runs, and between two runs. `clock.c` stands
//! for the clock; without a C compiler the test is skipped.

use crate::claims::{LONG, RESERVE, assert_lost, claim, left, own};
use crate::server::{Server, is_there, within};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Compiles the clock, if there is a compiler.
fn library(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/module/clock.c");
    let library = folder.join("clock.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
    let Ok(status) = compiler.status() else {
        println!("skipped: there is no C compiler");
        return None;
    };
    assert!(status.success(), "clock.c does not compile");
    Some(library)
}

const HOURS: i64 = 5;

#[test]
fn a_wall_clock_that_is_set_by_hours_neither_ends_nor_prolongs_a_lease() {
    let folder = tempfile::tempdir().expect("a directory");
    let Some(library) = library(folder.path()).filter(|_| is_there()) else { return };
    let file = folder.path().join("ahead");
    let set = |hours: i64| fs::write(&file, (hours * 3600).to_string()).expect("a file");
    set(0);
    let mut server = Server::start_with(
        "--appendonly yes --appendfsync always",
        &[("LD_PRELOAD", library), ("EBBTIDE_CLOCK", file.clone())],
    );
    let seconds = |server: &Server| server.ask::<Vec<i64>>("TIME")[0];
    let before = seconds(&server);
    let () = server.ask(RESERVE);
    let connection = &mut server.connect();
    let token = own(connection, "a", LONG);
    let is_held = |server: &Server| (LONG - 120_000..=LONG).contains(&left(server, "a"));
    for hours in [HOURS, -HOURS] {
        set(hours);
        assert!((seconds(&server) - before - hours * 3600).abs() < 120, "the clock is not set");
        assert!(is_held(&server), "{hours} h ahead: {}", left(&server, "a"));
        let item = format!("short:{hours}");
        let short = own(connection, &item, 200);
        assert!(left(&server, &item) <= 200, "{hours} h ahead");
        within("a lease is over", || claim(&mut server.connect(), &item, LONG).0 == "YOURS");
        assert_lost(connection, &item, short);
    }
    // As long as the clock is behind, each run continues from the latest claim.
    let short = own(connection, "short", 200);
    set(-2 * HOURS);
    server.restart();
    assert!(is_held(&server), "after a restart: {}", left(&server, "a"));
    within("a lease is over", || claim(&mut server.connect(), "short", 200).0 == "YOURS");
    let connection = &mut server.connect();
    assert_lost(connection, "short", short);
    let () = crate::server::ask(connection, &format!("EB.EXTEND seen a {token} {LONG}"));
    // A clock that is ahead at the start ends leases, as the time does that has passed.
    set(HOURS);
    server.restart();
    let connection = &mut server.connect();
    assert_lost(connection, "a", token);
    assert!(own(connection, "a", LONG) > token);
}

/// As of a machine that is started before its clock is set.
#[test]
fn a_replica_that_was_started_with_a_wrong_clock_keeps_leases_when_it_is_promoted() {
    let folder = tempfile::tempdir().expect("a directory");
    let Some(library) = library(folder.path()).filter(|_| is_there()) else { return };
    let file = folder.path().join("ahead");
    let set = |hours: i64| fs::write(&file, (hours * 3600).to_string()).expect("a file");
    let primary = Server::start("");
    let () = primary.ask(RESERVE);
    for hours in [HOURS, -HOURS] {
        set(hours);
        let replica = Server::start_with(
            &format!("--replicaof 127.0.0.1 {} --repl-diskless-sync-delay 0", primary.port),
            &[("LD_PRELOAD", library.clone()), ("EBBTIDE_CLOCK", file.clone())],
        );
        let is_connected = || replica.info("replication", "master_link_status") == "up";
        within("the replica is connected", is_connected);
        let token = own(&mut primary.connect(), &format!("a:{hours}"), LONG);
        primary.settle(&[&replica]);
        // It looks at the leases while its clock is wrong.
        let _: i64 = replica.ask("EB.INFO seen claims");
        set(0);
        let () = replica.ask("REPLICAOF NO ONE");
        let left = left(&replica, &format!("a:{hours}"));
        assert!((LONG - 120_000..=LONG).contains(&left), "{hours} h ahead: {left}");
        let confirm = format!("EB.CONFIRM seen a:{hours} {token}");
        let () = replica.ask(&confirm);
    }
}

#[test]
fn a_clock_that_is_set_right_counts_for_filters_that_come_and_for_claims_behind_the_last_one() {
    let folder = tempfile::tempdir().expect("a directory");
    let Some(library) = library(folder.path()).filter(|_| is_there()) else { return };
    let file = folder.path().join("ahead");
    let set = |hours: i64| fs::write(&file, (hours * 3600).to_string()).expect("a file");
    let is_whole = |left: u64| (LONG - 120_000..=LONG).contains(&left);
    // Claims of a server that was started with a clock behind, in a filter without claims before.
    set(-HOURS);
    let environment = [("LD_PRELOAD", library), ("EBBTIDE_CLOCK", file.clone())];
    let server = Server::start_with("", &environment);
    let () = server.ask(RESERVE);
    set(0);
    own(&mut server.connect(), "a", LONG);
    // And those of a filter that comes to a server that was started with a clock ahead.
    set(HOURS);
    let ahead = Server::start_with("", &environment);
    set(0);
    let dump: Vec<u8> = server.ask("DUMP seen");
    for to in [&ahead, &Server::start("")] {
        let mut restore = redis::cmd("RESTORE");
        let restored = restore.arg("seen").arg(0).arg(&dump[..]).query(&mut to.connect());
        let () = restored.expect("it is restored");
        assert!(is_whole(left(to, "a")), "{}", left(to, "a"));
    }
    assert!(is_whole(left(&server, "a")), "{}", left(&server, "a"));
}

#[test]
fn a_lease_ends_in_time_although_the_latest_claim_has_ended_and_the_clock_is_behind() {
    let folder = tempfile::tempdir().expect("a directory");
    let Some(library) = library(folder.path()).filter(|_| is_there()) else { return };
    let file = folder.path().join("ahead");
    let set = |hours: i64| fs::write(&file, (hours * 3600).to_string()).expect("a file");
    set(0);
    let mut server = Server::start_with(
        "--appendonly yes --appendfsync always",
        &[("LD_PRELOAD", library), ("EBBTIDE_CLOCK", file.clone())],
    );
    let () = server.ask(RESERVE);
    let connection = &mut server.connect();
    own(connection, "a", LONG);
    std::thread::sleep(Duration::from_secs(3));
    let token = own(connection, "b", LONG);
    let released: i64 = crate::server::ask(connection, &format!("EB.RELEASE seen b {token}"));
    assert_eq!(released, 1);
    set(-HOURS);
    server.restart();
    let left = left(&server, "a");
    assert!(left <= LONG - 3000, "{left}");
}
