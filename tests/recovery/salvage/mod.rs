//! Salvage recovers the longest unbroken prefix of a damaged filter that its undamaged bytes prove,
//! and reports exactly what is lost. For every kind.

mod oracle;
mod scenes;

use ebbtide::inspect::{self, Salvaged};
use ebbtide::{Any, Error, Filter};
use ebbtide_testkit::environment::effort;
use ebbtide_testkit::random::Random;
use ebbtide_testkit::samples::{SAMPLES, Sample};
use oracle::{Harm, Oracle};
use scenes::{End, Files, PAGE, RECORD, Scene, Story, options, place, read, seal};
use std::fs::File;
use std::path::Path;

/// The number of random damages to each kind.
const DAMAGES: u64 = 60;

/// The results of the damages.
#[derive(Debug, Default)]
struct Results {
    saved: u64,
    lossless: u64,
    undamaged: u64,
    nothing: u64,
}

/// Damages a filter, salvages it, and compares the result with the oracle.
fn check(scene: &Scene, harms: &[(String, Harm)], results: &mut Results) {
    let what = format!("{} {:?} {:?} {harms:?}", scene.sample.name, scene.story, scene.end);
    let place = place();
    let [home, dest] = ["filter", "saved"].map(|name| place.path().join(name));
    let mut files = scene.files.clone();
    for (name, harm) in harms {
        harm.inflict(&mut files, name);
    }
    scene.lay(&home, &files);
    let before = read(&home);
    let salvaged = inspect::salvage(&home, &dest);
    assert_eq!(read(&home), before, "{what}: the damaged filter was changed");
    let stop = Oracle::new(scene, &files).stop();
    let stop = stop.filter(|_| files.get("meta") == scene.files.get("meta"));
    let sound = inspect::verify(&home).is_ok_and(|report| report.is_sound());
    match (salvaged, stop) {
        (Ok(None), Some(stop)) => {
            assert!(sound && !dest.exists(), "{what}: something is damaged");
            check_state(scene, &home, scene.operations_below(stop), &what);
            results.undamaged += 1;
        }
        (Ok(Some(salvaged)), Some(stop)) => {
            assert!(!sound, "{what}: verify found nothing");
            let whole_live = files.get("live") == scene.files.get("live");
            assert!(salvaged.lsn == stop || !whole_live, "{what}: {stop} {salvaged:?}");
            check_told(scene, &files, &salvaged, &what);
            check_state(scene, &dest, scene.operations_below(stop), &what);
            results.saved += 1;
            results.lossless += u64::from(salvaged.lost.is_none());
        }
        (Err(error), None) => {
            let damage = matches!(error, Error::Damaged { .. } | Error::NotAFilter { .. });
            assert!(damage && error.to_string().contains("filter"), "{what}: {error}");
            assert!(!dest.join("meta").exists(), "{what}");
            results.nothing += 1;
        }
        (salvaged, stop) => panic!("{what}: {salvaged:?}, but the bytes prove {stop:?}"),
    }
}

/// Checks that the report names exactly what is lost.
fn check_told(scene: &Scene, files: &Files, salvaged: &Salvaged, what: &str) {
    let what = format!("{what}: {salvaged:?}");
    let live = scene.end == End::Killed && files.get("live") == scene.files.get("live");
    // With more empty slots than processes died in, the log is read as after a power cut, whose end
    // nothing tells.
    if live && !has_emptied_slots(scene, files) && salvaged.lsn < scene.tail() {
        let lost = salvaged.lost.as_ref().expect(&what);
        assert_eq!((lost.end, salvaged.durable_lsn), (scene.tail(), scene.durable), "{what}");
    }
    if let Some(lost) = &salvaged.lost {
        assert!(lost.end >= salvaged.lsn, "{what}");
    } else {
        assert!(salvaged.durable_lsn <= salvaged.lsn, "{what}: something is lost");
    }
    let beyond = salvaged.beyond.map(|beyond| (beyond.operations, beyond.first, beyond.last));
    assert_eq!(beyond, Oracle::new(scene, files).beyond(salvaged.lsn), "{what}");
}

/// Returns whether a slot of the log with a record is all zero by now.
fn has_emptied_slots(scene: &Scene, files: &Files) -> bool {
    let logs = scene.files.iter().filter(|(name, _)| name.starts_with("wal-"));
    logs.filter_map(|(name, before)| Some((before, files.get(name)?))).any(|(before, after)| {
        let slots = before.chunks(RECORD).zip(after.chunks(RECORD)).skip(PAGE / RECORD);
        let is_empty = |slot: &[u8]| slot.iter().all(|&byte| byte == 0);
        slots.into_iter().any(|(before, after)| !is_empty(before) && is_empty(after))
    })
}

/// Checks that the filter has the state after this many operations, and accepts more.
fn check_state(scene: &Scene, home: &Path, operations: usize, what: &str) {
    let filter: Filter = match Filter::open(home, options()) {
        Ok(filter) => filter,
        Err(error) => panic!("{what}: {error}"),
    };
    let digest = |filter: &Filter| filter.digest().expect("a digest").value;
    assert_eq!(digest(&filter), scene.digests[operations], "{what}: {operations} operations");
    Scene::feed(scene.sample, &filter, operations as u64..scene.ends.len() as u64);
    assert_eq!(Some(&digest(&filter)), scene.digests.last(), "{what}: more operations");
    filter.close().unwrap_or_else(|error| panic!("{what}: {error}"));
}

fn scenes(sample: &'static Sample) -> impl Iterator<Item = Scene> {
    [Story::Old, Story::Young].into_iter().flat_map(move |story| {
        [End::Killed, End::PowerCut].map(|end| Scene::build(sample, story, end))
    })
}

/// Returns one damage to each part of a file.
fn harms(scene: &Scene, name: &str) -> Vec<Harm> {
    let length = scene.files[name].len();
    let mut harms = vec![Harm::Remove, Harm::Cut(0), Harm::Cut(length / 2), Harm::Cut(length - 1)];
    harms.extend([3, 9, 50, 121, length / 2, length - 1].map(Harm::Flip));
    harms.extend([0, length - 1].map(Harm::Zero));
    if name.starts_with("wal-") {
        // Its uuid; the first record, some in the middle, the last.
        harms.push(Harm::Flip(20));
        let records = (length - PAGE) / RECORD;
        harms.extend(
            [0, records / 3, records - 1].map(|record| Harm::Flip(PAGE + record * RECORD + 5)),
        );
        harms.extend([PAGE, PAGE + 40 * RECORD + 7].map(Harm::Cut));
        harms.push(Harm::Extend(1000));
    }
    if name == "live" {
        // The tail, the durable end, a stripe's lock word.
        harms.extend([128, 130, 192, 193, 2048 + 64].map(Harm::Flip));
    }
    harms
}

#[test]
fn after_any_single_damage_the_longest_proved_prefix_is_recovered_for_every_kind() {
    let mut results = Results::default();
    // With less effort one in some of the damages, other ones of each file.
    let (one_in, mut turn) = ((40 / effort()).max(1), 0);
    for (number, sample) in SAMPLES.iter().enumerate() {
        // Each kind in one of the stories in turn, the first in all.
        let of_turn = |at: &usize| number == 0 || *at == number % 4;
        for (_, scene) in scenes(sample).enumerate().filter(|(at, _)| of_turn(at)) {
            for start in ["meta", "wal-", "snap-", "live"] {
                // Salvage never reads the banks of the live image.
                let names = scene.names(start).into_iter().filter(|name| !name.contains("live-"));
                for name in names {
                    turn += 1;
                    for harm in harms(&scene, name) {
                        turn += 1;
                        if turn % one_in == 0 {
                            check(&scene, &[(name.to_owned(), harm)], &mut results);
                        }
                    }
                }
            }
        }
    }
    println!("{results:?}");
    let least = |count: u64| count / one_in;
    assert!(results.saved > least(500) && results.lossless > least(100), "{results:?}");
    assert!(results.undamaged > least(20) && results.nothing > least(50), "{results:?}");
}

#[test]
fn after_several_random_damages_the_longest_proved_prefix_is_recovered() {
    let mut results = Results::default();
    for (number, sample) in SAMPLES.iter().enumerate() {
        let mut random = Random::new(number as u64);
        let story = [Story::Old, Story::Young][number % 2];
        let end = [End::Killed, End::PowerCut][number / 2 % 2];
        let scene = Scene::build(sample, story, end);
        let names: Vec<_> = [scene.names("wal-"), scene.names("snap-"), vec!["live"]].concat();
        for _ in 0..DAMAGES / (40 / effort()).max(1) {
            let count = 1 + random.below(4);
            let harms: Vec<_> = (0..count)
                .map(|_| {
                    let name = names[random.below(names.len() as u64) as usize];
                    (name.to_owned(), Harm::any(&mut random, scene.files[name].len()))
                })
                .collect();
            check(&scene, &harms, &mut results);
        }
    }
    println!("{results:?}");
    assert!(results.saved > 200 * effort().min(40) / 40 && results.nothing > 0, "{results:?}");
}

#[test]
fn a_snapshot_counts_only_if_the_log_reaches_its_end() {
    let mut scene = Scene::build(&SAMPLES[1], Story::Old, End::Killed);
    // As if the snapshot had been written while 20 more records arrived.
    let newest = scene.names("snap-").pop().expect("a snapshot").to_owned();
    let bytes = scene.files.get_mut(&newest).expect("a snapshot");
    let end = u64::from_le_bytes(bytes[48..56].try_into().expect("eight bytes")) + 20;
    bytes[48..56].copy_from_slice(&end.to_le_bytes());
    seal(bytes);
    let name = scene.names("wal-").into_iter().rfind(|name| first(name) <= end - 10);
    let name = name.expect("a segment").to_owned();
    for lsn in [end - 10, end, end + 1] {
        let at = PAGE + RECORD * (lsn - first(&name)) as usize;
        check(&scene, &[(name.clone(), Harm::Flip(at))], &mut Results::default());
    }
}

fn first(segment: &str) -> u64 {
    segment[11..].parse().expect("a number")
}

#[test]
fn log_known_only_from_names_is_reported_lost_and_not_as_the_end() {
    let scene = Scene::build(&SAMPLES[0], Story::Old, End::Killed);
    let newest = |start| scene.names(start).into_iter().rev().map(str::to_owned);
    let live = ("live".to_owned(), Harm::Remove);
    // The last segment but one, and the page that would reveal the last one.
    let [last, before] = [0, 1].map(|at| newest("wal-").nth(at).expect("segments"));
    let gap = [live.clone(), (last, Harm::Zero(0)), (before.clone(), Harm::Remove)];
    // The whole timeline in which the newest snapshot was written.
    let timeline: Vec<_> = newest("wal-000003-").map(|name| (name, Harm::Remove)).collect();
    let snapshot: u64 = newest("snap-").next().expect("a snapshot")[5..].parse().expect("a number");
    for (harms, lsn) in
        [(gap.to_vec(), first(&before)), ([timeline, vec![live]].concat(), snapshot)]
    {
        let place = place();
        let [home, dest] = ["filter", "saved"].map(|name| place.path().join(name));
        let mut files = scene.files.clone();
        harms.iter().for_each(|(name, harm)| harm.inflict(&mut files, name));
        scene.lay(&home, &files);
        let salvaged = inspect::salvage(&home, &dest).expect("a snapshot").expect("damage");
        assert!(salvaged.lsn == lsn && salvaged.lost.is_some(), "{harms:?}: {salvaged:?}");
        check(&scene, &harms, &mut Results::default());
    }
}

#[test]
fn empty_slots_of_dead_writers_are_skipped() {
    let scene = Scene::build(&SAMPLES[0], Story::Old, End::Killed);
    let place = place();
    let [home, again, dest] = ["filter", "again", "saved"].map(|name| place.path().join(name));
    let mut files = scene.files.clone();
    let log = scene.names("wal-").pop().expect("a log").to_owned();
    let hole = PAGE + RECORD * (scene.tail() - 5 - first(&log)) as usize;
    files.get_mut(&log).expect("a log")[hole..hole + RECORD].fill(0);
    // The lock word of the first ordinary stripe.
    files.get_mut("live").expect("an image")[2048 + 64] = 3;
    scene.lay(&again, &files);
    Harm::Remove.inflict(&mut files, scene.names("snap-")[0]);
    Harm::Flip(5000).inflict(&mut files, scene.names("snap-")[1]);
    scene.lay(&home, &files);
    // Without snapshots nothing can be recovered, because the log no longer begins at LSN 1.
    assert!(inspect::salvage(&home, &dest).is_err());
    std::fs::remove_dir_all(&home).expect("a directory");
    files.insert(scene.names("snap-")[0].to_owned(), scene.files[scene.names("snap-")[0]].clone());
    scene.lay(&home, &files);
    let salvaged =
        inspect::salvage(&home, &dest).expect("a recovery base").expect("a damaged snapshot");
    assert!(salvaged.lost.is_none() && salvaged.lsn == scene.tail(), "{salvaged:?}");
    let [expected, found] = [&again, &dest].map(|home| {
        let filter: Filter = Filter::open(home, options()).expect("sound");
        filter.digest().expect("a digest")
    });
    assert_eq!((found.value, found.inserts), (expected.value, expected.inserts));
    assert_eq!(found.inserts, scene.ends.len() as u64 - 1);
}

#[test]
fn filters_in_use_and_existing_targets_are_not_changed() {
    let place = place();
    let [home, dest, other] = ["filter", "saved", "other"].map(|name| place.path().join(name));
    let filter = Filter::create(&home, SAMPLES[0].spec(), options()).expect("a filter");
    let Err(Error::Locked { .. }) = inspect::salvage(&home, &dest) else {
        panic!("a filter in use");
    };
    assert!(!dest.exists());
    filter.insert("key").expect("an insert");
    filter.close().expect("a clean end");
    assert!(inspect::salvage(&home, &dest).expect("a look").is_none() && !dest.exists());
    // A filter at the target of the new one, and the source as its own target.
    Filter::create(&other, SAMPLES[0].spec(), options()).expect("a filter").close().expect("one");
    let newest = read(&home).into_keys().rfind(|name| name.starts_with("snap-"));
    let mut files = read(&home);
    Harm::Flip(5000).inflict(&mut files, &newest.expect("a snapshot"));
    std::fs::remove_dir_all(&home).expect("a directory");
    scenes::write(&home, &files);
    for taken in [&other, &home] {
        let Err(Error::Exists { .. }) = inspect::salvage(&home, taken) else {
            panic!("the target contains a filter");
        };
    }
    assert_eq!(read(&home), files);
}

#[test]
fn the_space_that_a_damaged_segment_claims_is_not_allocated() {
    let scene = Scene::build(&SAMPLES[0], Story::Young, End::PowerCut);
    let newest = scene.names("wal-").pop().expect("a segment").to_owned();
    let stop = Oracle::new(&scene, &scene.files).stop().expect("it is sound");
    // A header that is right; the length, and the number of records that there is room for.
    for (offset, bit) in [(0, 0), (56, 1), (60, 1), (63, 0x80)] {
        let place = place();
        let [home, dest] = ["filter", "saved"].map(|name| place.path().join(name));
        let mut files = scene.files.clone();
        files.get_mut(&newest).expect("a segment")[offset] ^= bit;
        scene.lay(&home, &files);
        let file = File::options().write(true).open(home.join(&newest)).expect("a file");
        file.set_len(1 << 38).expect("a hole takes no space");
        let salvaged = inspect::salvage(&home, &dest).expect("a state").expect("damage");
        assert!(salvaged.lsn == stop, "{offset}: {salvaged:?}");
        check_state(&scene, &dest, scene.operations_below(stop), "a long file");
    }
}

#[test]
fn no_timeline_begins_after_the_last_one_that_is_read_and_salvage_saves_what_came_before() {
    const LAST: u64 = 1 << 62;
    let scene = Scene::build(&SAMPLES[0], Story::Young, End::PowerCut);
    let stop = Oracle::new(&scene, &scene.files).stop().expect("it is sound");
    let mut bytes = scene.files[scene.names("wal-").pop().expect("a segment")].clone();
    for (offset, word) in [(32, LAST), (40, stop), (48, stop)] {
        bytes[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes[PAGE..].fill(0);
    seal(&mut bytes);
    let name = format!("wal-{LAST}-{stop:016}");
    let mut files = scene.files.clone();
    files.insert(name.clone(), bytes);
    let place = place();
    let [home, dest] = ["filter", "saved"].map(|name| place.path().join(name));
    scene.lay(&home, &files);
    let error = Filter::<Any>::open(&home, options()).expect_err("its log would not be read");
    let text = error.to_string();
    assert!(text.contains(&name) && text.contains("`ebbtide salvage`"), "{text}");
    assert_eq!(read(&home)[&name], files[&name]);
    let salvaged = inspect::salvage(&home, &dest).expect("a state").expect("damage");
    assert!(salvaged.lsn == stop && salvaged.lost.is_none(), "{salvaged:?}");
    check_state(&scene, &dest, scene.operations_below(stop), "the last timeline");
    let filter: Filter = Filter::open(&dest, options()).expect("again");
    assert_eq!(filter.digest().expect("a digest").value, *scene.digests.last().expect("one"));
}
