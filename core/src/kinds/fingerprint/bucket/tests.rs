//! A bucket against a sorted list of slots.

use super::super::shape::Shape;
use super::super::tests::shapes::{by_word, shapes};
use super::*;
use crate::atomic::AtomicU64;
use proptest::prelude::*;

/// The slots of a bucket, or for how long it is closed.
#[derive(Debug, Clone, PartialEq)]
enum Model {
    Open(Vec<(u64, u32)>),
    Closed(u32),
}

fn check<W: Word>(form: &Form<W>, word: W, model: &Model) {
    let (slots, closed) = match model {
        Model::Open(slots) => (&slots[..], 0),
        Model::Closed(left) => (&[][..], *left),
    };
    assert_eq!(form.closed_for(word), closed, "{word:?} {model:?}");
    assert_eq!(form.is_closed(word, W::ZERO), closed > 0);
    assert_eq!(form.live(word) as usize, slots.len());
    let room = if closed > 0 { 0 } else { form.slots() - slots.len() as u32 };
    assert_eq!((form.room(word), form.has_room(word)), (room, room > 0));
    let longest = slots.first().map_or(closed, |slot| slot.1);
    assert_eq!(form.longest(word), longest);
    for (at, &(fingerprint, life)) in slots.iter().enumerate() {
        assert_eq!(form.slot(word, at as u32), (fingerprint, life));
        let first = slots.iter().position(|slot| slot.0 == fingerprint).expect("it is there");
        let found = form.find(word, form.in_each(fingerprint));
        assert_eq!(found, (first as u32, slots[first].1), "{fingerprint} in {model:?}");
    }
    let last = (1 << form.bits()) - 1;
    for fingerprint in [0, 1, last, last / 2].into_iter().chain(slots.iter().map(|s| s.0 ^ 1)) {
        let there = slots.iter().find(|slot| slot.0 == fingerprint).map_or(0, |slot| slot.1);
        assert_eq!(form.find(word, form.in_each(fingerprint)).1, there, "{fingerprint}");
    }
    if *model == Model::Open(Vec::new()) {
        assert_eq!(word, W::ZERO, "one form of an empty bucket");
    }
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Put(u64, u32),
    Take(u32),
    Close(u32),
    Later(u64),
}

fn run<W: Word>(shape: Shape, actions: &[Action]) {
    let form = Form::<W>::new(shape);
    let most = shape.generations + 1;
    assert_eq!(form.most(), most);
    let (mut word, mut model) = (W::ZERO, Model::Open(Vec::new()));
    for &action in actions {
        match (action, &mut model) {
            (Action::Put(fingerprint, life), Model::Open(slots)) => {
                // Small numbers, so that fingerprints repeat; 0 is one of them.
                let (fingerprint, life) = (fingerprint % 3, life % most + 1);
                if form.room(word) > 0 {
                    let at = slots.iter().take_while(|slot| slot.1 > life).count();
                    slots.insert(at, (fingerprint, life));
                    word = form.put(word, (fingerprint, life));
                }
            }
            (Action::Take(slot), Model::Open(slots)) if !slots.is_empty() => {
                let slot = slot % slots.len() as u32;
                slots.remove(slot as usize);
                word = form.take(word, slot);
            }
            (Action::Close(life), _) => {
                let life = life % most + 1;
                let longest = form.longest(word);
                (word, model) = (form.close(word, life), Model::Closed(life.max(longest)));
            }
            (Action::Later(generations), model) => {
                (word, _) = form.later(word, generations);
                let by = generations.min(1000) as u32;
                *model = match model {
                    Model::Closed(left) if *left > by => Model::Closed(*left - by),
                    Model::Closed(_) => Model::Open(Vec::new()),
                    Model::Open(slots) => Model::Open(
                        slots.iter().filter(|s| s.1 > by).map(|s| (s.0, s.1 - by)).collect(),
                    ),
                };
            }
            _ => {}
        }
        check(&form, word, &model);
    }
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => (any::<u64>(), any::<u32>()).prop_map(|(a, b)| Action::Put(a, b)),
        3 => any::<u32>().prop_map(Action::Take),
        1 => any::<u32>().prop_map(Action::Close),
        4 => (0..40_u64).prop_map(Action::Later),
        1 => any::<u64>().prop_map(Action::Later),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_bucket_is_a_list_of_slots_sorted_by_life_whatever_is_done_to_it(
        shape in a_shape(), actions in prop::collection::vec(action(), 1..60),
    ) {
        by_word!(shape, run(shape, &actions));
    }

    #[test]
    fn a_torn_bucket_gives_an_answer(
        shape in a_shape(), cells in prop::collection::vec(any::<u64>(), 40), other: u64,
    ) {
        by_word!(shape, torn(shape, &cells, other));
    }

    #[test]
    fn buckets_lie_side_by_side_and_each_is_read_as_it_was_written(
        shape in a_shape(),
        written in prop::collection::vec((0_usize..9, any::<[u64; 4]>()), 1..20),
    ) {
        by_word!(shape, side_by_side(shape, &written));
    }
}

fn a_shape() -> impl Strategy<Value = Shape> {
    prop::sample::select(shapes().collect::<Vec<_>>())
}

fn words(values: &[u64]) -> Vec<AtomicU64> {
    values.iter().map(|&value| AtomicU64::new(value)).collect()
}

fn side_by_side<W: Word>(shape: Shape, written: &[(usize, [u64; 4])]) {
    let form = Form::<W>::new(shape);
    let (own, cells) = (words(&[]), words(&[0; 9 * 4]));
    let block = Block::alone(&own, &cells);
    let mut model = vec![vec![0_u8; shape.bytes as usize]; 9];
    for (bucket, limbs) in written {
        let bytes: Vec<u8> = limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect();
        model[*bucket].copy_from_slice(&bytes[..shape.bytes as usize]);
        let at = |limb: usize| 64 * limb as u32;
        let of = |limb: usize| W::of(limbs[limb]) << at(limb);
        let limbs = (0..W::BYTES as usize / 8).map(of);
        let all = limbs.fold(W::ZERO, |all, limb| all | limb) & W::ones(8 * shape.bytes);
        form.store(&block, *bucket, all);
        assert_eq!(form.load(&block, *bucket), all);
    }
    let bytes_of = |cell: &AtomicU64| crate::block::load(cell).to_le_bytes();
    let flat: Vec<u8> = cells.iter().flat_map(bytes_of).collect();
    let expected = model.concat();
    assert_eq!(flat[..expected.len()], expected);
    assert!(flat[expected.len()..].iter().all(|&byte| byte == 0));
    assert_eq!(form.buckets(expected.len() / 8), expected.len() / 8 * 8 / shape.bytes as usize);
    for cells in [1, 8, 100, 8184, 8192] {
        assert_eq!(form.buckets(cells), cells * 8 / shape.bytes as usize, "{cells}");
    }
}

fn torn<W: Word>(shape: Shape, cells: &[u64], other: u64) {
    let form = &Form::<W>::new(shape);
    let (own, cells) = (words(&[]), words(cells));
    let word = form.load(&Block::alone(&own, &cells), 1);
    let fingerprint = other & ((1 << form.bits()) - 1);
    let (slot, life) = form.find(word, form.in_each(fingerprint));
    assert!(slot < form.slots() && life <= form.most());
    assert!(form.closed_for(word) <= form.most() && form.live(word) <= form.slots());
    let life = life.max(1);
    for word in [
        form.put(word, (fingerprint, life)),
        form.take(word, slot),
        form.close(word, life),
        form.later(word, 1).0,
        form.later(word, other).0,
    ] {
        assert!(form.room(word) <= form.slots());
    }
}
