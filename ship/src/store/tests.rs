//! Times of puts.

use super::*;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};

#[tokio::test(start_paused = true)]
async fn a_put_beside_an_upload_may_take_the_time_of_its_parts_as_well() {
    // More than a small object may take, and less than four MiB.
    let wait_put_per_call = Duration::from_secs(100);
    let config = ThrottleConfig { wait_put_per_call, ..ThrottleConfig::default() };
    let objects = Arc::new(ThrottledStore::new(InMemory::new(), config));
    let store = Store::of(objects, "orders", "memory:///orders").upload_bytes(1 << 20);
    let read = |range: Range<u64>| Ok(vec![0; (range.end - range.start) as usize].into());
    let upload = store.upload(Folder::Snapshot, "a snapshot", 8 << 20, read);
    let put = store.put_new(Folder::Chain, "a link", Bytes::from_static(b"records"));
    let (uploaded, put) = tokio::join!(upload, put);
    uploaded.expect("an upload");
    assert_eq!(put.expect("a put beside it"), Put::Done);
    let alone = store.put_new(Folder::Chain, "another", Bytes::from_static(b"records")).await;
    assert!(alone.expect_err("too slow").is_transient());
    assert_eq!(store.uploading.load(Ordering::Relaxed), 0);
}
