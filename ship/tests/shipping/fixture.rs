//! What a version of the objects has shipped is fetched by every later one.
//!
//! `tests/fixtures/version-1` was written by `EBBTIDE_WRITE_FIXTURE=1 cargo test fixture`, once,
//! when version 1 was new. A change of the objects gets another version and another fixture.

use ebbtide::media::{Disk, Media, Memory};
use ebbtide::{AgePartitioned, Any, Durability, Filter, Options, Reader};
use ebbtide_ship::{ShipOptions, Shipper, Store, assemble, verify};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-1")
}

async fn write(to: &Path) {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("seen");
    let options = Options::new().durability(Durability::Always).hash_seed(7);
    let filter = Filter::create(&dir, AgePartitioned::last(100), options).expect("a filter");
    let store = Store::open(to.to_str().expect("text")).expect("a store");
    let ship = ShipOptions { snapshot_log_bytes: 1000, ..ShipOptions::default() };
    for round in 0..3_u64 {
        let media = Arc::new(Disk::new(&dir));
        // Each begins a timeline.
        let begun = Shipper::begin(store.clone(), media, ship.clone()).await;
        let mut shipper = begun.expect("a shipper");
        for key in 0..60_u64 {
            filter.insert((round * 60 + key).to_le_bytes()).expect("an insert");
        }
        if round == 1 {
            filter.checkpoint().expect("a checkpoint");
        }
        shipper.round().await.expect("a round");
    }
    let digest = filter.digest().expect("a digest");
    fs::write(to.join("digest"), format!("{digest}\n")).expect("a file");
}

#[tokio::test]
async fn objects_of_version_1_are_fetched_with_the_digest_of_then() {
    if std::env::var_os("EBBTIDE_WRITE_FIXTURE").is_some() {
        write(&fixture()).await;
    }
    let store = Store::open(fixture().to_str().expect("text")).expect("a store");
    let expected = fs::read_to_string(fixture().join("digest")).expect("the fixture");
    let memory: Arc<dyn Media> = Arc::new(Memory::new());
    assemble(&store, memory.clone()).await.expect("a fetch");
    let reader = Reader::<Any>::open_on(memory, Options::new()).expect("a reader");
    assert_eq!(reader.digest().expect("a digest").to_string(), expected.trim());
    let verified = verify(&store, None).await.expect("sound");
    assert!(verified.bases == 2 && verified.compared == 1, "{verified:?}");
}
