//! Sequences of operations on a filter of any kind, with full disks and failures, second handles,
//! readers, backups of its files, deaths and reopenings. No operation that returned is lost,
//! answers keep the promises of the kind, and a reopened filter has its former state.
#![no_main]

use ebbtide::media::{Media, Memory};
use ebbtide::{Any, Checked, Digest, Durability, Filter, Reader, Since, Timestamp, inspect};
use ebbtide_fuzz::files::{Files, directory};
use ebbtide_fuzz::input::Input;
use ebbtide_fuzz::model::Model;
use ebbtide_fuzz::questions;
use ebbtide_fuzz::samples::{Sample, options};
use ebbtide_testkit::failing::Failing;
use libfuzzer_sys::fuzz_target;
use std::io::ErrorKind;
use std::sync::Arc;

const MOST_OPERATIONS: usize = 64;

/// A filter, the operations on it, and its medium.
struct Run {
    sample: &'static Sample,
    memory: Failing<Memory>,
    filter: Option<Filter>,
    model: Model,
    now: u64,
}

fn open(memory: &Failing<Memory>) -> Filter {
    let media: Arc<dyn Media> = Arc::new(memory.clone());
    Filter::open_on(media, options()).expect("nothing fails now")
}

fn equal(before: &Digest, after: &Digest) {
    assert_eq!((before.value, before.inserts), (after.value, after.inserts));
}

impl Run {
    fn new(sample: &'static Sample) -> Self {
        let memory = Failing::new(directory());
        let media: Arc<dyn Media> = Arc::new(memory.clone());
        let filter = Filter::create_on(media, sample.spec(), options()).expect("nothing fails yet");
        let model = Model::new(sample);
        Self { sample, memory, filter: Some(filter), model, now: 1_000_000 }
    }

    fn filter(&self) -> &Filter {
        self.filter.as_ref().expect("it is open")
    }

    /// Returns a weight, and a call with it at this time.
    fn call<'a>(
        &self,
        filter: &'a Filter,
        input: &mut Input<'_>,
        time: u64,
    ) -> (u64, ebbtide::Call<'a>) {
        let call = filter.call().time(Timestamp::from_unix_micros(time));
        match self.sample.heaviest {
            1 => (1, call),
            most => {
                let weight = 1 + input.byte() % most;
                (weight.into(), call.weight(weight.into()))
            }
        }
    }

    fn insert(&mut self, key: u8, input: &mut Input<'_>, how: u8) {
        // Some keys are late.
        let time = if how & 8 == 0 { self.now } else { self.now - u64::from(input.byte()) * 500 };
        let filter = self.filter.take().expect("it is open");
        let (weight, call) = self.call(&filter, input, time);
        let call = if how & 16 == 0 { call } else { call.durability(Durability::Always) };
        let inserted = match how & 3 {
            0 => call.check_and_insert([key]).map(|checked| checked != Checked::TooLate),
            1 => {
                let checked = call.since(Since::LastAccepted).check_and_insert([key]);
                checked.map(|checked| checked == Checked::New)
            }
            _ => call.insert([key]),
        };
        match &inserted {
            Ok(false) => {}
            done => self.model.inserted(key, time, weight, done.is_ok()),
        }
        if let Ok(true) = inserted
            && time == self.now
        {
            assert!(call.contains([key]).expect("an answer"), "{key} was just inserted");
        }
        self.filter = Some(filter);
    }

    fn remove(&mut self, key: u8, input: &mut Input<'_>) {
        let filter = self.filter.take().expect("it is open");
        let (weight, call) = self.call(&filter, input, self.now);
        if self.model.has(key, weight) {
            let removed = call.remove([key]);
            assert!(removed.unwrap_or(true), "{key} was there {weight} times");
            self.model.removed(key, weight);
        }
        self.filter = Some(filter);
    }

    /// Checks that a filter reopened after its close, or after the death of its processes, has its
    /// former content.
    fn reopen(&mut self, dies: bool) {
        if dies {
            self.memory.clear_faults();
        }
        let before = self.filter().digest();
        let memory = if dies {
            Failing::new(Files::read(self.memory.inner()).lay())
        } else {
            self.memory.clone()
        };
        self.filter = None;
        self.memory = memory;
        self.memory.clear_faults();
        let filter = open(&self.memory);
        let after = filter.digest().expect("a digest");
        // Without a digest, the filter was poisoned or could not be read.
        if let Ok(before) = before {
            equal(&before, &after);
        }
        self.filter = Some(filter);
        self.check();
    }

    fn check(&self) {
        self.model
            .check(self.filter().call().time(Timestamp::from_unix_micros(self.now)), self.now);
    }

    /// Lets other handles inspect the filter, or work on it.
    fn others(&mut self, key: u8, input: &mut Input<'_>, how: u8) {
        self.memory.clear_faults();
        let Ok(ours) = self.filter().digest() else {
            return;
        };
        match how % 4 {
            0 => {
                let reader = Reader::<Any>::open_on(Arc::new(self.memory.clone()), options());
                let reader = reader.expect("nothing fails");
                equal(&ours, &reader.digest().expect("nothing fails"));
                questions::read(&reader, key, self.now);
            }
            1 => {
                let report = inspect::verify_on(&self.memory).expect("nothing fails");
                assert!(report.is_sound(), "{report:?}");
            }
            2 => {
                let second = open(&self.memory);
                let first = self.filter.replace(second);
                self.insert(key, input, how >> 2);
                equal(
                    &self.filter().digest().expect("nothing fails"),
                    &first.as_ref().expect("it was open").digest().expect("nothing fails"),
                );
                // The handle that came first closes first, or last.
                if how & 128 == 0 {
                    self.filter = first;
                }
            }
            _ => {
                // An undamaged filter needs no salvage.
                let files = Files::read(self.memory.inner()).lay();
                let saved = inspect::salvage_on(&files, &directory()).expect("nothing fails");
                assert!(saved.is_none(), "{saved:?}");
            }
        }
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        let (operation, key) = (input.byte(), input.byte());
        match operation % 16 {
            0..=4 => self.insert(key, input, operation >> 4 | key & 16),
            5 => {
                let keys: Vec<[u8; 1]> = (0..key / 2).map(|at| [at ^ key]).collect();
                let inserted = self
                    .filter()
                    .call()
                    .time(Timestamp::from_unix_micros(self.now))
                    .insert_all(&keys);
                let surely = inserted.is_ok_and(|inserted| inserted == keys.len());
                for [key] in keys {
                    self.model.inserted(key, self.now, 1, surely);
                }
            }
            6 | 7 => self.remove(key, input),
            8 => self.now += 1 << (key % 20),
            9 => drop(self.filter().checkpoint()),
            10 => drop(self.filter().sync()),
            11 => {
                let errors = [ErrorKind::StorageFull, ErrorKind::Other, ErrorKind::Interrupted];
                self.memory.fail_after((key / 4).into(), errors[usize::from(key % 4) % 3]);
            }
            12 => self.reopen(key & 1 != 0),
            13 => self.others(key, input, input.0.first().copied().unwrap_or(key)),
            14 => {
                questions::ask(self.filter(), key, self.now);
                questions::infer(self.filter(), key, self.now);
                let _ = self.filter().stat();
            }
            _ => {
                self.memory.clear_faults();
                self.check();
            }
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut run = Run::new(Sample::of(input.byte()));
    for _ in 0..MOST_OPERATIONS {
        if input.is_empty() {
            break;
        }
        run.operate(&mut input);
    }
    run.reopen(true);
});
