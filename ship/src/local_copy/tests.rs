//! Bases that become whole, whatever comes meanwhile.

use super::*;
use crate::link::{Cause, Snapshot};
use ebbtide::inspect::Piece;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use std::sync::Arc;

const PART: u64 = 1000;
const PARTS: u64 = 8;
const LOG: u128 = 9;

/// A place from which each part comes in more time than a look has.
struct Place {
    store: Store,
    before: u128,
    number: u64,
    lsn: u64,
}

impl Place {
    async fn new() -> Self {
        Self::after(BUDGET * 11 / 10).await
    }

    /// Each get takes as long as this.
    async fn after(wait: Duration) -> Self {
        let wait = ThrottleConfig { wait_get_per_call: wait, ..ThrottleConfig::default() };
        let objects = ThrottledStore::new(InMemory::new(), wait);
        let store = Store::of(Arc::new(objects), "orders/7", "memory:///orders/7");
        let mut place = Self { store, before: 0, number: 0, lsn: 1 };
        let (cause, meta) = (Cause::Created, Vec::new());
        let begin = Begin { cause, log: LOG, first: 1, continues: false, meta };
        place.put(Content::Begin(begin)).await;
        place.hint().await;
        place
    }

    async fn put(&mut self, content: Content) {
        self.number += 1;
        let link = Link {
            number: self.number,
            before: self.before,
            timeline: 1,
            shipper: 1,
            written: 0,
            filter: 7,
            content,
        };
        let bytes = link.encode();
        self.before = digest(&bytes);
        let name = link_name(self.number);
        self.store.put_over(Folder::Chain, &name, bytes.into()).await.expect("a put");
    }

    async fn hint(&self) {
        let name = link_name(self.number);
        self.store.put_over(Folder::Base, &name, Bytes::new()).await.expect("a put");
    }

    async fn log(&mut self, records: u64) {
        let piece = Piece::of_bytes(LOG, 1, self.lsn, vec![0; records as usize * 32]);
        self.lsn += records;
        self.put(Content::Log(piece, 0)).await;
    }

    /// Puts a snapshot, and returns its name.
    async fn snapshot(&mut self) -> String {
        let (start, from_link) = (self.lsn, self.number + 1);
        let bytes = vec![from_link as u8; (PART * PARTS) as usize];
        let name = format!("{start:020}-{from_link:016x}");
        let digests = bytes.chunks(PART as usize).map(digest).collect();
        let put = self.store.put_over(Folder::Snapshot, &name, bytes.into());
        put.await.expect("a put");
        let snapshot = Snapshot {
            name: name.clone(),
            log: LOG,
            engine_timeline: 1,
            start,
            end: start,
            bytes: PART * PARTS,
            from_link,
            part_bytes: PART,
            digests,
            meta: Vec::new(),
        };
        self.put(Content::Snapshot(snapshot)).await;
        self.hint().await;
        name
    }

    /// Has a snapshot rot.
    async fn damage(&self, name: &str) {
        let bytes = vec![0xee; (PART * PARTS) as usize];
        let put = self.store.put_over(Folder::Snapshot, name, bytes.into());
        put.await.expect("a put");
    }

    async fn copy(&self, dir: &Path) -> Copy {
        let copied = Copy::open(self.store.clone(), dir, Duration::from_secs(3600)).await;
        copied.expect("a copy")
    }
}

async fn look(copy: &mut Copy) {
    copy.look().await.expect("a look");
    copy.renew_base().await.expect("parts");
}

fn partials(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).expect("a list").map_while(|entry| entry.ok());
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("partial-")).collect()
}

/// Returns the newest base that is noted in a copy.
async fn noted(copy: &Copy) -> u64 {
    base_hints(copy.local()).await.expect("a list")[0].0
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_becomes_whole_although_each_look_finds_a_newer_one() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let mut place = Place::new().await;
    let mut copy = place.copy(&dir).await;
    let mut renewed = 0;
    for _ in 0..20 {
        place.log(1).await;
        place.snapshot().await;
        let before = noted(&copy).await;
        look(&mut copy).await;
        renewed += u32::from(noted(&copy).await > before);
        assert!(partials(&dir).len() <= 1, "{:?}", partials(&dir));
        assert_eq!(copy.newest(), place.number);
    }
    assert!(renewed > 1, "{renewed} bases");
    let links = copy.names(Folder::Chain).await.expect("a list").len() as u64;
    assert!(links < place.number, "those before the base are removed");
}

#[tokio::test(start_paused = true)]
async fn a_first_download_whose_snapshot_is_removed_is_that_of_the_newer_one() {
    let mut renewed = 0;
    for step in 0..20 {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("new");
        let mut place = Place::new().await;
        place.log(1).await;
        let old = place.snapshot().await;
        let (store, hint) = (place.store.clone(), link_name(place.number));
        let successor = async {
            tokio::time::sleep(BUDGET * step).await;
            place.log(1).await;
            place.snapshot().await;
            store.remove(Folder::Base, &[hint]).await.expect("a removal");
            store.remove(Folder::Snapshot, &[old]).await.expect("a removal");
        };
        let opened = Copy::open(store.clone(), &dir, Duration::from_secs(3600));
        let (opened, ()) = tokio::join!(opened, successor);
        let copy = opened.unwrap_or_else(|error| panic!("step {step}: {error}"));
        renewed += u32::from(noted(&copy).await == place.number);
    }
    assert!(renewed > 1, "{renewed}");
}

#[tokio::test(start_paused = true)]
async fn with_log_as_long_as_a_snapshot_comes_the_snapshot() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let mut place = Place::new().await;
    let mut copy = place.copy(&dir).await;
    for _ in 0..20 {
        place.log(PART * PARTS / 32).await;
        place.snapshot().await;
        look(&mut copy).await;
        assert_eq!((noted(&copy).await, partials(&dir).len()), (place.number, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn parts_that_take_long_hold_up_no_look_and_come_with_later_ones() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let wait = OWED.0 / 4;
    let mut place = Place::after(wait).await;
    let mut copy = place.copy(&dir).await;
    place.log(PART * PARTS / 32).await;
    place.snapshot().await;
    for _ in 0..3 {
        assert!(noted(&copy).await < place.number);
        copy.look().await.expect("a look");
        let begun = tokio::time::Instant::now();
        copy.renew_base().await.expect("parts");
        assert!(begun.elapsed() <= OWED.0 + wait, "{:?}", begun.elapsed());
    }
    assert_eq!((noted(&copy).await, copy.owed), (place.number, 0));
}

#[tokio::test(start_paused = true)]
async fn a_base_waits_also_after_its_link_could_not_be_read() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let mut place = Place::new().await;
    let mut copy = place.copy(&dir).await;
    place.log(1).await;
    let first = place.snapshot().await;
    look(&mut copy).await;
    place.snapshot().await;
    look(&mut copy).await;
    let removed = place.store.remove(Folder::Snapshot, std::slice::from_ref(&first));
    removed.await.expect("a removal");
    let path = dir.join("chain").join(link_name(place.number));
    let link = std::fs::read(&path).expect("a link");
    std::fs::write(&path, "damaged").expect("damage");
    copy.look().await.expect("a look");
    // The former one ends before that.
    while copy.wanted.is_some() {
        copy.renew_base().await.expect("no part");
    }
    copy.renew_base().await.expect_err("damage");
    assert_eq!(copy.newer, Some(place.number));
    std::fs::write(&path, link).expect("a link");
    for _ in 0..2 * PARTS {
        look(&mut copy).await;
    }
    assert_eq!(noted(&copy).await, place.number);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_removed_half_way_leaves_nothing_and_the_newer_one_comes() {
    for is_newer_known in [false, true] {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("new");
        let mut place = Place::new().await;
        let mut copy = place.copy(&dir).await;
        place.log(1).await;
        let first = place.snapshot().await;
        look(&mut copy).await;
        assert_eq!(partials(&dir), [format!("partial-{first}")]);
        let mut newest = 0;
        if is_newer_known {
            place.snapshot().await;
            newest = place.number;
            look(&mut copy).await;
        }
        let removed = place.store.remove(Folder::Snapshot, std::slice::from_ref(&first));
        removed.await.expect("a removal");
        look(&mut copy).await;
        assert!(!partials(&dir).contains(&format!("partial-{first}")), "it is removed");
        place.log(PART * PARTS / 32).await;
        if !is_newer_known {
            place.snapshot().await;
            newest = place.number;
        }
        look(&mut copy).await;
        assert_eq!((noted(&copy).await, partials(&dir).len()), (newest, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_beginning_that_came_late_in_place_of_a_removed_link_does_not_end_a_copy() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let mut place = Place::new().await;
    let before = place.before;
    let (cause, meta) = (Cause::Started, Vec::new());
    let begin = Begin { cause, log: LOG, first: 1, continues: true, meta };
    place.put(Content::Begin(begin)).await;
    let name = link_name(place.number);
    let late = place.store.get(Folder::Chain, &name).await.expect("read").expect("a link");
    // The number that it wanted is used by another link, which the copy has.
    (place.number, place.before) = (place.number - 1, before);
    place.log(1).await;
    assert_eq!(place.copy(&dir).await.newest(), place.number);
    for _ in 0..2 {
        place.log(1).await;
        place.snapshot().await;
    }
    let removed: Vec<_> = (2..place.number).map(link_name).collect();
    place.store.remove(Folder::Chain, &removed).await.expect("a removal");
    place.store.put_over(Folder::Chain, &name, late).await.expect("a put");
    let copy = place.copy(&dir).await;
    assert_eq!((copy.newest(), noted(&copy).await), (place.number, place.number));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_damaged_in_the_store_leaves_the_base_before_it() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let mut place = Place::new().await;
    let mut copy = place.copy(&dir).await;
    for is_damaged in [false, true, false] {
        place.log(PART * PARTS / 32).await;
        let name = place.snapshot().await;
        let mut expected = place.number;
        if is_damaged {
            place.damage(&name).await;
            expected = noted(&copy).await;
        }
        look(&mut copy).await;
        assert_eq!((noted(&copy).await, partials(&dir).len()), (expected, 0));
        // Also after a restart.
        drop(copy);
        copy = place.copy(&dir).await;
        look(&mut copy).await;
        assert_eq!((noted(&copy).await, partials(&dir).len()), (expected, 0));
        assert_eq!(copy.newest(), place.number);
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_in_parts_of_no_bytes_leaves_the_base_before_it() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("new");
    let mut place = Place::new().await;
    let mut copy = place.copy(&dir).await;
    place.log(PART * PARTS / 32).await;
    let name = place.snapshot().await;
    look(&mut copy).await;
    let expected = place.number;
    assert_eq!(noted(&copy).await, expected);
    place.log(PART * PARTS / 32).await;
    // One digest for each byte, and that of nothing.
    let bytes = vec![0; (PART * PARTS) as usize];
    let snapshot = Snapshot {
        name: format!("{:020}-{:016x}", place.lsn, 1),
        log: LOG,
        engine_timeline: 1,
        start: place.lsn,
        end: place.lsn,
        bytes: bytes.len() as u64,
        from_link: place.number + 1,
        part_bytes: 0,
        digests: bytes.iter().map(|_| digest(b"")).collect(),
        meta: Vec::new(),
    };
    place.store.put_over(Folder::Snapshot, &snapshot.name, bytes.into()).await.expect("a put");
    place.put(Content::Snapshot(snapshot)).await;
    place.hint().await;
    let looked = copy.look().await.expect_err("no parts are that long").to_string();
    assert!(looked.contains("parts of 1 to"), "{looked}");
    assert!(copy.renew_base().await.is_err());
    assert_eq!(noted(&copy).await, expected);
    assert_eq!(copy.names(Folder::Snapshot).await.expect("a list"), [name]);
}

#[tokio::test(start_paused = true)]
async fn a_copy_begins_with_the_newest_base_that_is_not_damaged() {
    for damaged in 1..=3 {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("new");
        let mut place = Place::new().await;
        let (mut bases, mut names) = (vec![place.number], Vec::new());
        for _ in 0..3 {
            place.log(1).await;
            names.push(place.snapshot().await);
            bases.push(place.number);
        }
        for name in &names[3 - damaged..] {
            place.damage(name).await;
        }
        let copy = place.copy(&dir).await;
        assert_eq!((noted(&copy).await, copy.newest()), (bases[3 - damaged], place.number));
        assert_eq!(partials(&dir).len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_log_that_began_anew_one_base_that_is_not_damaged_suffices() {
    for damaged in 0..2 {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("new");
        let mut place = Place::new().await;
        let mut copy = place.copy(&dir).await;
        place.log(1).await;
        let (cause, first, meta) = (Cause::Altered, place.lsn, Vec::new());
        place.put(Content::Begin(Begin { cause, log: LOG, first, continues: false, meta })).await;
        let (mut bases, mut names) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            place.log(1).await;
            names.push(place.snapshot().await);
            bases.push(place.number);
        }
        place.damage(&names[damaged]).await;
        copy.look().await.expect("a look");
        assert_eq!((noted(&copy).await, copy.newest()), (bases[1 - damaged], place.number));
    }
}
