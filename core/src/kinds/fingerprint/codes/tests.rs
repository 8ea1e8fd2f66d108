//! All codes, both ways.

use super::super::tests::shapes::shapes;
use super::*;

#[test]
fn every_code_is_that_of_the_lives_it_stands_for_and_ages_as_they_do() {
    for shape in shapes() {
        let (slots, values) = (shape.slots, shape.generations + 2);
        let codes = Codes::new(slots, values);
        let lists = lists(slots, values);
        assert_eq!((codes.lives.len() as u64, codes.closed()), (lists + u64::from(values), lists));
        assert!(codes.each.len() as u64 <= MOST_CODES && slots * codes.life_bits() <= 32);
        for code in 0..lists {
            let lives = codes.lives(code);
            let each: Vec<u32> = (0..slots).map(|slot| codes.life(lives, slot)).collect();
            assert!(each.is_sorted_by(|a, b| a >= b) && each[0] < values, "{code}: {each:?}");
            assert_eq!(u64::from(codes.code(lives)), code);
            let (later_code, live_later) = codes.later(code);
            assert_eq!(live_later, codes.live(later_code));
            let later = codes.lives(later_code);
            for slot in 0..slots {
                let life = each[slot as usize].saturating_sub(1);
                assert_eq!(codes.life(later, slot), life, "{code}: {each:?}");
            }
        }
        for left in 0..u64::from(values) {
            let later = if left > 1 { lists + left - 1 } else { 0 };
            assert_eq!((codes.lives(lists + left), codes.later(lists + left)), (0, (later, 0)));
        }
        for beyond in [lists + u64::from(values), u64::MAX] {
            assert_eq!(
                (codes.lives(beyond), codes.live(beyond), codes.later(beyond)),
                (0, 0, (0, 0))
            );
        }
    }
}

#[test]
fn filters_of_one_form_share_their_tables_in_all_threads() {
    let of = |slots, values| std::ptr::from_ref(Codes::shared(slots, values)) as usize;
    let threads: Vec<_> =
        (0..8).map(|_| std::thread::spawn(move || (of(3, 9), of(4, 9)))).collect();
    let found: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("tables")).collect();
    assert!(found.iter().all(|&each| each == found[0]) && found[0].0 != found[0].1);
    for shape in shapes() {
        let (slots, values) = (shape.slots, shape.generations + 2);
        assert!(*Codes::shared(slots, values) == Codes::new(slots, values), "{slots}, {values}");
    }
}

#[test]
fn all_forms_with_few_enough_codes_have_a_place_for_their_tables() {
    let values = |slots| (1..).take_while(|&values| count(slots, values) <= MOST_CODES).count();
    assert_eq!(values(2) + 1, MORE_THAN_VALUES);
    assert!((3..=MOST_SLOTS).all(|slots| values(slots) < MORE_THAN_VALUES));
    assert!(*Codes::shared(MOST_SLOTS, 3) == Codes::new(MOST_SLOTS, 3));
}
