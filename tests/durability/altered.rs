//! An alteration that dies or fails leaves the old filter or the new one.

use crate::claims::options;
use ebbtide::history::{At, History, Unlogged};
use ebbtide::inspect::verify_on;
use ebbtide::media::{Access, Media, Memory};
use ebbtide::{Any, Bloom, Durability, Error, Filter, Keep, Options, Reader};
use ebbtide_testkit::crash::disk::CrashDisk;
use ebbtide_testkit::crash::fault::{Fault, Plan};
use ebbtide_testkit::environment::scaled;
use ebbtide_testkit::failing::Failing;
use ebbtide_testkit::random::Random;
use std::io::ErrorKind;
use std::sync::Arc;

/// The claims, by name.
pub const ALL: [(&str, fn()); 10] = [
    ("wherever_an_alteration_dies_the_filter_is_the_old_one_or_the_new_one", dies),
    ("whichever_call_of_an_alteration_fails_its_handles_continue_and_nothing_is_lost", fails),
    ("what_an_alteration_could_not_put_away_is_kept_by_the_next_checkpoints", put_away_later),
    ("without_kept_log_a_checkpoint_removes_what_an_alteration_could_not_put_away", removed_later),
    ("what_a_failed_alteration_leaves_costs_no_log_that_the_filter_still_needs", leaves),
    ("a_meta_whose_name_may_not_be_durable_is_taken_back_before_anybody_writes", taken_back),
    ("on_a_disk_that_is_too_full_for_an_alteration_the_filter_stays_as_it_is", full),
    ("an_alteration_for_which_there_is_no_space_makes_nobody_recover_the_filter", full_at_once),
    ("log_that_an_alteration_could_not_put_away_is_space_on_a_full_disk", full_later),
    ("where_files_have_one_name_no_alteration_begins_and_the_filter_stays_as_it_is", one_name),
];

const KEYS: u64 = 700;

fn kept() -> Options {
    options().keep_log(Keep::Bytes(1 << 30)).durability(Durability::Never)
}

fn old() -> Bloom {
    Bloom::capacity(1000)
}

fn new() -> Bloom {
    Bloom::capacity(3000).fpr(1e-4)
}

fn insert(filter: &Filter<Bloom>, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert!(filter.insert(key.to_le_bytes()).expect("an insert")));
}

fn has_all(filter: &Filter<Bloom>, keys: u64) -> bool {
    (0..keys).all(|key| filter.contains(key.to_le_bytes()).expect("an answer"))
}

/// Returns a filter that was altered once before, and has its keys, some after a checkpoint.
fn filter(media: Arc<dyn Media>) -> Filter<Bloom> {
    let filter = Filter::create_on(media, new(), kept()).expect("a filter");
    insert(&filter, 0..KEYS / 4);
    filter.alter(old(), Unlogged::Refuse).expect("its log is kept");
    insert(&filter, KEYS / 4..KEYS / 2);
    filter.checkpoint().expect("a checkpoint");
    insert(&filter, KEYS / 2..KEYS);
    filter
}

fn value(filter: &Filter<Bloom>) -> u128 {
    filter.digest().expect("a digest").value
}

/// Returns the digests of the old filter and of the new one.
fn both() -> [u128; 2] {
    [old(), new()].map(|spec| {
        let twin = Filter::create_on(Arc::new(Memory::new()), spec, kept()).expect("a filter");
        insert(&twin, 0..KEYS);
        value(&twin)
    })
}

/// Checks that a filter that nobody has open is one of two, and what comes after.
fn check(media: &Arc<dyn Media>, values: [u128; 2], moment: (u64, u128), what: &str) -> bool {
    let reader = Reader::<Any>::open_on(media.clone(), options());
    let read = reader.and_then(|reader| reader.digest()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let opened = Filter::<Bloom>::open_on(media.clone(), options());
    let filter = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = value(&filter);
    assert!(values.contains(&found), "{what}: neither the old one nor the new one");
    assert_eq!(read.value, found, "{what}: before recovery");
    assert!(has_all(&filter, KEYS), "{what}");
    let past = Reader::<Any>::at_on(media.clone(), At::Lsn(moment.0), options());
    let past = past.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(past.digest().expect("one").value, moment.1, "{what}: the past");
    // What is left must not harm the next one.
    insert(&filter, KEYS..KEYS + 5);
    filter.alter(new(), Unlogged::Refuse).unwrap_or_else(|error| panic!("{what}, again: {error}"));
    assert!(has_all(&filter, KEYS + 5), "{what}, again");
    let wanted = Filter::create_on(Arc::new(Memory::new()), new(), kept()).expect("a filter");
    insert(&wanted, 0..KEYS + 5);
    assert_eq!(value(&filter), value(&wanted), "{what}, again");
    filter.close().unwrap_or_else(|error| panic!("{what}: {error}"));
    let report = verify_on(&**media).expect("it is there");
    assert!(report.is_sound(), "{what}: {report:?}");
    let others = report.files.iter().filter(|file| file.detail.contains("another filter"));
    assert_eq!(others.count(), 0, "{what}: {report:?}");
    found == values[1]
}

fn dies() {
    let values = both();
    let (mut deaths, mut altered) = (0, 0);
    for calls in 0..1000 {
        let disk = CrashDisk::new();
        let made = filter(Arc::new(disk.clone()));
        let moment = (made.digest().expect("a digest").lsn - 1, value(&made));
        // A power cut takes back what was not durable.
        made.sync().expect("a sync");
        disk.die_after(calls);
        let done = made.alter(new(), Unlogged::Refuse);
        let Some(left) = disk.left() else {
            done.expect("nobody died");
            assert_eq!(value(&made), values[1]);
            break;
        };
        std::mem::forget(made);
        deaths += 1;
        for seed in 0..scaled(3) {
            let cut = left.without_power(Random::new(1000 * calls + seed));
            let what = format!("dead after {calls} calls, and power cut {seed}");
            check(&(Arc::new(cut) as Arc<dyn Media>), values, moment, &what);
        }
        let what = format!("dead after {calls} calls");
        altered += u64::from(check(&(Arc::new(left) as Arc<dyn Media>), values, moment, &what));
    }
    assert!(deaths > 60 && altered > 10, "{deaths} deaths, {altered} with the new filter");
}

fn fails() {
    let values = both();
    let mut refused = 0;
    for call in 1.. {
        let media = Failing::new(Memory::new());
        let shared: Arc<dyn Media> = Arc::new(media.clone());
        let first = filter(shared.clone());
        let moment = (first.digest().expect("a digest").lsn - 1, value(&first));
        let second: Filter<Bloom> = Filter::open_on(shared.clone(), options()).expect("a filter");
        media.fail_after(call, ErrorKind::Other);
        let done = first.alter(new(), Unlogged::Refuse);
        let happened = !media.clear_faults();
        assert!(done.is_ok() || happened, "{done:?}");
        refused += u64::from(done.is_err());
        for handle in [&second, &first] {
            match handle.digest() {
                Ok(found) => {
                    assert!(values.contains(&found.value), "call {call}");
                    assert!(has_all(handle, KEYS), "call {call}");
                    assert!(done.is_err() || found.value == values[1], "call {call}");
                }
                // A sync of the log that fails poisons the filter, whoever makes it.
                Err(Error::Poisoned { .. }) => {}
                Err(error) => panic!("call {call}: {error}"),
            }
        }
        drop((first, second));
        check(&shared, values, moment, &format!("call {call}"));
        if !happened {
            assert!(call > 60 && refused > 40, "{call} calls, {refused} refused");
            break;
        }
    }
}

/// A call of an alteration fails, and its handle continues with checkpoints.
fn put_away_later() {
    let mut altered = 0;
    for call in 1.. {
        let media = Failing::new(Memory::new());
        let shared: Arc<dyn Media> = Arc::new(media.clone());
        // All of its log is still needed: nothing is kept yet.
        let filter = Filter::create_on(shared.clone(), old(), kept()).expect("a filter");
        insert(&filter, 0..KEYS);
        let moments = [0, 50].map(|keys| {
            insert(&filter, KEYS + keys..KEYS + keys + 50);
            (filter.digest().expect("a digest").lsn - 1, value(&filter))
        });
        media.fail_after(call, ErrorKind::Other);
        let done = filter.alter(new(), Unlogged::Refuse);
        let happened = !media.clear_faults();
        let mut keys = KEYS + 100;
        // A sync that fails poisons the filter.
        while filter.sync().is_ok() && keys < 2 * KEYS {
            insert(&filter, keys..keys + 100);
            keys += 100;
            filter.checkpoint().unwrap_or_else(|error| panic!("call {call}: {error}"));
        }
        for (lsn, value) in moments {
            let then = Reader::<Any>::at_on(shared.clone(), At::Lsn(lsn), options());
            let then = then.unwrap_or_else(|error| panic!("call {call}, {lsn}: {error}"));
            assert_eq!(then.digest().expect("one").value, value, "call {call}, {lsn}");
        }
        if keys > KEYS + 100 {
            altered += u64::from(done.is_ok());
            let again = filter.alter(old(), Unlogged::Refuse);
            again.unwrap_or_else(|error| panic!("call {call}, again: {error}"));
            assert!(has_all(&filter, keys), "call {call}");
        }
        if !happened {
            break;
        }
    }
    assert!(altered > 10, "{altered} alterations succeeded although a call failed");
}

/// An alteration fails, and what it has begun cannot be removed. Its handle continues,
/// takes checkpoints, and dies.
fn leaves() {
    let (mut refused, mut left) = (0, 0);
    for fault in [Fault::InputOutput, Fault::RenameFails, Fault::RemoveFails, Fault::ReadOnly] {
        for at in 1.. {
            let what = format!("{fault:?} from call {at} on");
            let disk = CrashDisk::new();
            let options = options().durability(Durability::Never);
            let made = Filter::create_on(Arc::new(disk.clone()), old(), options.clone());
            let made = made.expect("a filter");
            insert(&made, 0..KEYS);
            disk.plan(Some(Plan::new(fault, at, true)));
            let done = made.alter(new(), Unlogged::Refuse);
            let has_struck = disk.plan(None).is_some_and(|plan| plan.has_struck());
            if !has_struck {
                done.unwrap_or_else(|error| panic!("{what}: {error}"));
                break;
            }
            // A sync of the log that fails poisons the filter.
            if done.is_ok() || made.sync().is_err() {
                continue;
            }
            refused += 1;
            left += u64::from(!disk.names("wal-000003").is_empty());
            let mut keys = KEYS;
            for _ in 0..4 {
                insert(&made, keys..keys + 3);
                keys += 3;
                made.checkpoint().unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            insert(&made, keys..keys + 10);
            keys += 10;
            made.sync().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(disk.violations(), Vec::<String>::new(), "{what}");
            for (disk, how) in [
                (disk.without_process(), "died"),
                (disk.without_power(Random::new(at)), "lost its power"),
            ] {
                let again = Filter::<Bloom>::open_on(Arc::new(disk), options.clone());
                let again = again.unwrap_or_else(|error| panic!("{what}, {how}: {error}"));
                assert!(has_all(&again, keys), "{what}, {how}");
                again.alter(new(), Unlogged::Forget).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            std::mem::forget(made);
        }
    }
    assert!(refused > 40 && left > 5, "{refused} refused, {left} left a segment");
}

/// A sync of the directory fails after a change of the name `meta`, or of its second one, and no
/// later sync proves anything about a name that is not changed again.
fn taken_back() {
    let mut failed = 0;
    for keep in [Keep::Bytes(1 << 30), Keep::Nothing] {
        for at in 1.. {
            let what = format!("{keep}, sync {at} of the directory");
            let disk = CrashDisk::new();
            disk.doubt_failed_names();
            let options = || kept().keep_log(keep);
            let made = Filter::create_on(Arc::new(disk.clone()), old(), options());
            let made = made.expect("a filter");
            insert(&made, 0..KEYS);
            disk.plan(Some(Plan::new(Fault::DirectorySyncFails, at, false)));
            let done = made.alter(new(), Unlogged::Refuse);
            let has_struck = disk.plan(None).is_some_and(|plan| plan.has_struck());
            if !has_struck {
                done.unwrap_or_else(|error| panic!("{what}: {error}"));
                break;
            }
            let is_of_meta =
                |error: &Error| matches!(error, Error::Io { path, .. } if path.ends_with("meta"));
            if !done.as_ref().is_err_and(is_of_meta) {
                continue;
            }
            failed += 1;
            insert(&made, KEYS..KEYS + 10);
            made.sync().unwrap_or_else(|error| panic!("{what}: {error}"));
            for seed in 0..12 {
                let cut: Arc<dyn Media> = Arc::new(disk.without_power(Random::new(seed)));
                let again = Filter::<Bloom>::open_on(cut, options());
                let again = again.unwrap_or_else(|error| panic!("{what}, cut {seed}: {error}"));
                assert!(has_all(&again, KEYS + 10), "{what}, cut {seed}");
            }
        }
    }
    assert_eq!(failed, 4, "one of each kind, with kept log and without");
}

/// Returns the space that all files take.
fn used(memory: &Memory) -> u64 {
    let names = memory.list().expect("a directory");
    let bytes = |name: &String| memory.open(name, Access::Read)?.allocated_bytes();
    names.iter().map(|name| bytes(name).expect("a file")).sum()
}

fn full() {
    let values = both();
    let (mut refused, mut tried, mut altered) = (0, 0, 0);
    let rooms = (0..80).map(|step| step * 4096);
    let keeps = [Keep::Bytes(1 << 30), Keep::Nothing];
    for (keep, room) in keeps.into_iter().flat_map(|keep| rooms.clone().map(move |of| (keep, of))) {
        let memory = Memory::new();
        let shared: Arc<dyn Media> = Arc::new(memory.clone());
        let first = filter(shared.clone());
        let options = || options().keep_log(keep);
        let second: Filter<Bloom> = Filter::open_on(shared.clone(), options()).expect("a filter");
        memory.set_capacity(used(&memory) + room);
        let before = content(&memory, "meta");
        let done = first.alter(new(), Unlogged::Refuse);
        tried += 1;
        if let Err(error) = &done {
            refused += 1;
            assert!(error.is_full(), "{room}: {error}");
            if content(&memory, "meta") != before {
                // Log from before it is space enough.
                altered += 1;
                assert!(has_all(&second, KEYS), "{keep}, {room}");
                assert_eq!(value(&second), values[1], "{keep}, {room}");
            }
        }
        memory.set_capacity(u64::MAX);
        for handle in [&second, &first] {
            let found = value(handle);
            assert!(values.contains(&found), "{room}");
            assert!(done.is_err() || found == values[1], "{room}");
            assert!(has_all(handle, KEYS), "{room}");
        }
        insert(&second, KEYS..KEYS + 5);
        assert!(has_all(&first, KEYS + 5), "{room}");
    }
    assert!(refused > 0 && refused < tried, "{refused} of {tried}");
    println!("{altered} of {refused} refused ones have altered the filter");
}

/// Whichever call of an alteration is the first to find no space: the image stays in use, unless
/// `meta` was replaced.
fn full_at_once() {
    // Each recovery begins one.
    let timeline = |disk: &CrashDisk| disk.names("wal-").last().map(|name| name[..10].to_owned());
    let mut refused = 0;
    for at in 1.. {
        let what = format!("full from call {at} on");
        let disk = CrashDisk::new();
        let made = Filter::create_on(Arc::new(disk.clone()), old(), kept()).expect("a filter");
        insert(&made, 0..KEYS);
        let before = (disk.content("meta"), timeline(&disk));
        disk.plan(Some(Plan::new(Fault::NoSpace, at, true)));
        let done = made.alter(new(), Unlogged::Refuse);
        let has_struck = disk.plan(None).is_some_and(|plan| plan.has_struck());
        if !has_struck {
            done.unwrap_or_else(|error| panic!("{what}: {error}"));
            break;
        }
        if disk.content("meta") != before.0 {
            continue;
        }
        let error = done.expect_err("it is as it was");
        assert!(error.is_full(), "{what}: {error}");
        refused += 1;
        assert!(has_all(&made, KEYS), "{what}");
        insert(&made, KEYS..KEYS + 1);
        assert_eq!(timeline(&disk), before.1, "{what}");
    }
    assert!(refused > 3, "{refused}");
}

/// Returns a filter that was altered although a call of that has failed, if the log from before was
/// not put away; otherwise whether all calls have succeeded.
fn not_put_away(keep: Keep, call: u64) -> Result<(Memory, Failing<Memory>, Filter<Bloom>), bool> {
    let memory = Memory::new();
    let media = Failing::new(memory.clone());
    let filter = Filter::create_on(Arc::new(media.clone()), old(), kept().keep_log(keep));
    let filter = filter.expect("a filter");
    insert(&filter, 0..2 * KEYS);
    media.fail_after(call, ErrorKind::Other);
    let done = filter.alter(new(), Unlogged::Refuse);
    let all = media.clear_faults();
    let names = memory.list().expect("a directory");
    let former = names.iter().filter(|name| name.starts_with("wal-000002"));
    // Enough for what the test writes.
    if all || done.is_err() || filter.sync().is_err() || former.count() < 6 {
        return Err(all);
    }
    Ok((memory, media, filter))
}

fn full_later() {
    let mut left = 0;
    for keep in [Keep::Bytes(1 << 30), Keep::Nothing] {
        let mut is_first = true;
        for call in 1.. {
            match not_put_away(keep, call) {
                Ok(made) => assert!(writes_on_full_disk(made, 0), "{keep}, call {call}"),
                Err(true) => break,
                Err(false) => continue,
            }
            left += 1;
            // Whichever call is the next to find no space. An alteration takes turns by the clock,
            // so on a busy machine it may be a call nearby that must fail.
            let mut refusing = (1..).take_while(|_| is_first);
            let again = |second| {
                let mut calls = (call..call + 20).chain(1..call);
                let made = calls.find_map(|call| not_put_away(keep, call).ok());
                writes_on_full_disk(made.expect("a call that can fail"), second)
            };
            while refusing.next().is_some_and(again) {}
            is_first = false;
        }
    }
    assert!(left > 10, "{left}");
}

/// Without kept log.
fn removed_later() {
    let mut left = 0;
    for call in 1.. {
        let (memory, _, filter) = match not_put_away(Keep::Nothing, call) {
            Ok(made) => made,
            Err(true) => break,
            Err(false) => continue,
        };
        left += 1;
        filter.checkpoint().unwrap_or_else(|error| panic!("call {call}: {error}"));
        let names = memory.list().expect("a directory");
        assert!(!names.iter().any(|name| name.starts_with("wal-000002")), "{call}: {names:?}");
        assert!(has_all(&filter, 2 * KEYS), "call {call}");
    }
    assert!(left > 5, "{left}");
}

/// Fills the disk of a filter, and writes to it. Of the calls the one of this number fails, unless
/// it is 0. Returns whether it has come to that.
fn writes_on_full_disk(
    (memory, media, filter): (Memory, Failing<Memory>, Filter<Bloom>),
    refused: u64,
) -> bool {
    memory.set_capacity(used(&memory));
    if refused > 0 {
        media.fail_after(refused, ErrorKind::StorageFull);
    }
    for key in 2 * KEYS..2 * KEYS + 300 {
        let insert = || filter.insert(key.to_le_bytes());
        let inserted = insert();
        let inserted = if refused > 0 && inserted.is_err() { insert() } else { inserted };
        if let Err(error) = inserted {
            // That call was to free the space of files that have lost their names, or a sync.
            let names = memory.list().expect("a directory");
            let is_left = names.iter().any(|name| name.starts_with("tmp-"));
            let is_poisoned = matches!(error, Error::Poisoned { .. });
            assert!(refused > 0 && (is_left || is_poisoned), "call {refused}: {error}");
            drop(filter);
            let again = Filter::<Bloom>::open_on(Arc::new(memory), options()).expect("space");
            assert!(has_all(&again, key), "call {refused}");
            return true;
        }
    }
    let happened = !media.clear_faults();
    filter.checkpoint().unwrap_or_else(|error| panic!("call {refused}: {error}"));
    assert!(has_all(&filter, 2 * KEYS + 300), "call {refused}");
    // What is kept has no gap.
    let shared: Arc<dyn Media> = Arc::new(memory.clone());
    let mut history = History::open_on(shared).expect("a log").with_undurable();
    while history.read().unwrap_or_else(|error| panic!("call {refused}: {error}")).is_some() {}
    drop(filter);
    let report = verify_on(&memory).expect("it is there");
    assert!(report.is_sound(), "call {refused}: {report:?}");
    happened
}

/// Returns the content of a file.
fn content(memory: &Memory, name: &str) -> Vec<u8> {
    let file = memory.open(name, Access::Read).expect("a file");
    let mut bytes = vec![0; file.bytes().expect("a length") as usize];
    file.read_at(&mut bytes, 0).expect("its bytes");
    bytes
}

/// Returns a filter with kept log, all of it durable, and a moment of it.
fn with_past(media: Arc<dyn Media>) -> (Filter<Bloom>, (u64, u128)) {
    let filter = Filter::create_on(media, old(), kept()).expect("a filter");
    insert(&filter, 0..KEYS / 2);
    let moment = (filter.digest().expect("a digest").lsn - 1, value(&filter));
    insert(&filter, KEYS / 2..KEYS);
    for _ in 0..3 {
        filter.checkpoint().expect("a checkpoint");
    }
    filter.sync().expect("a sync");
    (filter, moment)
}

/// Checks that a filter is there, with its keys and its past.
fn is_whole(media: &Arc<dyn Media>, (lsn, past): (u64, u128), what: &str) {
    let opened = Filter::<Bloom>::open_on(media.clone(), options());
    let filter = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(has_all(&filter, KEYS), "{what}");
    let then = Reader::<Any>::at_on(media.clone(), At::Lsn(lsn), options());
    let then = then.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(then.digest().expect("one").value, past, "{what}: the past");
    filter.close().unwrap_or_else(|error| panic!("{what}: {error}"));
    let report = verify_on(&**media).expect("it is there");
    assert!(report.is_sound(), "{what}: {report:?}");
}

fn one_name() {
    let kind = |error: &Error| match error {
        Error::Io { source, .. } => Some(source.kind()),
        _ => None,
    };
    for calls in 0.. {
        let what = format!("dead after {calls} calls");
        let disk = CrashDisk::new();
        let on = |disk: &CrashDisk| -> Arc<dyn Media> {
            Arc::new(Failing::new(disk.clone()).without_links())
        };
        let (made, moment) = with_past(on(&disk));
        disk.die_after(calls);
        let done = made.alter(new(), Unlogged::Refuse);
        let Some(left) = disk.left() else {
            let error = done.expect_err("it needs a second name");
            assert_eq!(kind(&error), Some(ErrorKind::Unsupported), "{error}");
            insert(&made, KEYS..KEYS + 5);
            break;
        };
        std::mem::forget(made);
        is_whole(&on(&left.without_power(Random::new(calls))), moment, &what);
        is_whole(&on(&left), moment, &what);
    }
    for call in 1.. {
        let media = Failing::new(Memory::new()).without_links();
        let shared: Arc<dyn Media> = Arc::new(media.clone());
        let (made, moment) = with_past(shared.clone());
        media.fail_after(call, ErrorKind::Other);
        let done = made.alter(new(), Unlogged::Refuse);
        let happened = !media.clear_faults();
        assert!(done.is_err());
        drop(made);
        is_whole(&shared, moment, &format!("call {call}"));
        if !happened {
            break;
        }
    }
}
