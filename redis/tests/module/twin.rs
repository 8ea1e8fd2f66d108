//! A filter in a server has the digest of a filter in a directory that got the same operations.

use crate::samples::{SAMPLES, START};
use crate::server::{Server, is_there};
use ebbtide::{Clock, Durability, Filter, KeyHash, Options, Timestamp};
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::random::Random;

#[test]
fn a_filter_on_disk_and_one_in_a_server_have_the_same_digest() {
    if !is_there() {
        return;
    }
    let server = Server::start("");
    let home = tempfile::tempdir().expect("a directory");
    for (at, sample) in SAMPLES.iter().enumerate() {
        let options = Options::new()
            .hash_seed(7)
            .key_hash(KeyHash::Fast)
            .stripes(2)
            .block_bytes(2048)
            .durability(Durability::Never)
            .background(false)
            .clock(Clock::stream());
        let dir = home.path().join(at.to_string());
        let filter = Filter::create(&dir, sample.spec(), options).expect(sample.name);
        let key = format!("key:{at}");
        let words = crate::samples::reserve(sample).join(" ");
        let settings = "HASH fast SEED 7 STRIPES 2 BLOCK 2048";
        let () = server.ask(&format!("EB.RESERVE {key} {words} {settings}"));
        let (mut random, mut now) = (Random::new(at as u64), START);
        let connection = &mut server.connect();
        for _ in 0..scaled(500) {
            now += random.below(4);
            let item = format!("item {}", random.below(200));
            let mut insert = redis::cmd("EB.INSERT");
            insert.arg(&key).arg("AT").arg(now).arg("ITEMS").arg(&item);
            let replies: Vec<i64> = insert.query(connection).expect("a reply");
            let time = Timestamp::from_unix_millis(now);
            let checked = filter.call().time(time).check_and_insert(&item).expect("an answer");
            assert_eq!(replies, [checked.is_new().into()], "{}", sample.name);
        }
        let digest = filter.digest().expect("a digest").to_string();
        assert_eq!(server.digest(&key), digest, "{}", sample.name);
    }
}
