//! Loading the module into a server that runs.

use crate::server::{Server, ask, is_there, module};

#[test]
fn a_load_that_was_refused_leaves_nothing_that_the_server_calls_later() {
    if !is_there() {
        return;
    }
    let server = Server::without_module("--enable-module-command yes");
    let path = module().to_str().expect("a path");
    let load = |config: [&str; 2]| {
        let mut load = redis::cmd("MODULE");
        load.arg("LOADEX").arg(path).arg("CONFIG").arg(config[0]).arg(config[1]);
        load.query::<String>(&mut server.connect())
    };
    for config in [["ebbtide.hash", "md5"], ["ebbtide.max-lead", "soon"]] {
        load(config).expect_err("no such value");
        // The server becomes a replica, and a primary again.
        let connection = &mut server.connect();
        let () = ask(connection, "REPLICAOF 127.0.0.1 1");
        let () = ask(connection, "REPLICAOF NO ONE");
        assert_eq!(server.ask::<String>("PING"), "PONG");
    }
    assert_eq!(load(["ebbtide.hash", "fast"]).as_deref(), Ok("OK"));
    let () = server.ask("EB.RESERVE seen bloom capacity 10");
    assert_eq!(server.ask::<i64>("EB.ADD seen a"), 1);
}
