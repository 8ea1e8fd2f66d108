//! The worked examples of the Inferential paper, figures 2 to 5, as far as its text describes them
//! (the drawings are missing). Each test prints the rows that the figure shows.

use super::*;

/// Returns a filter in one block, and its model with undivided timestamps.
fn pair(window: u64, batch: u64, padding: u64, timers: u64) -> (Harness, Naive) {
    let kind = raw(window, batch, padding, timers, 2);
    (Harness::new(kind, ONE_BLOCK), Naive::new(window, batch, timers, 2))
}

/// Inserts an item into both, and prints `T_+` and the ages of all timers that were touched.
fn insert(harness: &mut Harness, naive: &mut Naive, item: u64) {
    harness.insert(hash_of(item), 0);
    naive.insert(hash_of(item), 0);
    let now = naive.inserts / naive.batch;
    let age = |(timer, at): (usize, &Option<u64>)| Some((timer, now - (*at)? / naive.batch));
    let ages = naive.timers.iter().enumerate().filter_map(age);
    let shown: Vec<_> = ages.map(|(timer, age)| format!("{timer}: {age}")).collect();
    println!("insert x{item}: T+ = {now}, ages of timers {}", shown.join(", "));
}

#[test]
fn figure_2_a_query_is_positive_if_no_timestamp_is_older_than_the_window() {
    // w = 4; with a padding of 1, T_Ω = w + 1.
    let (mut harness, mut naive) = pair(4, 1, 1, 24);
    for item in 1..=7 {
        insert(&mut harness, &mut naive, item);
        for other in 1..=item {
            let age = item - other;
            let oldest = naive.oldest(hash_of(other)).expect("it was inserted");
            let is_positive = harness.contains(hash_of(other));
            println!("  query x{other}: I = {age}, oldest timestamp {oldest}: {is_positive}");
            // I >= λ - 1 for every timestamp, so a negative answer is right.
            assert!(age + 1 >= oldest);
            assert_eq!(is_positive, oldest <= 4);
            assert!(is_positive || age >= 4, "no false negatives");
        }
    }
    // All timers of such an item were touched in the window: a false positive.
    let fake = (100..).find(|&item| naive.oldest(hash_of(item)).is_some_and(|age| age <= 4));
    assert!(harness.contains(hash_of(fake.expect("among all items"))));
}

#[test]
fn figure_3_with_padding_an_expired_timestamp_may_wait_for_as_many_inserts() {
    // 8 timers and P = 1: half of them are checked after each insert.
    for padding in [0, 1, 3] {
        let (mut harness, mut naive) = pair(4, 1, padding, 8);
        for item in 1..=40 {
            insert(&mut harness, &mut naive, item * item % 11);
            for other in 0..30 {
                let expected = naive.oldest(hash_of(other)).is_some_and(|age| age <= 4);
                assert_eq!(harness.contains(hash_of(other)), expected, "x{other} after {item}");
            }
        }
        let checked = 8_u64.div_ceil(padding + 1);
        println!("padding {padding}: {checked} timers an insert");
    }
}

#[test]
fn figure_4_all_items_of_a_block_count_as_in_the_window_if_one_is() {
    // w = 4, B = 3. After eight items the block of x4, x5 and x6 straddles the window's end.
    let (mut harness, mut naive) = pair(4, 3, 1, 200);
    (1..=8).for_each(|item| insert(&mut harness, &mut naive, item));
    for item in 1..=8 {
        let (age, is_positive) = (8 - item, harness.contains(hash_of(item)));
        println!("query x{item}: I = {age}: {is_positive}");
        assert_eq!(is_positive, item >= 4, "x{item}");
    }
    // x5 is in the window, with I = 3; x4 of the same block is not, with I = 4.
    assert!(harness.contains(hash_of(5)) && harness.contains(hash_of(4)));
}

#[test]
fn figure_5_with_blocks_of_three_and_a_window_of_six_a_timestamp_expires_at_age_three() {
    // P = 0, B = 3, w = 6, as in the text (the caption has B = 2).
    for into_batch in 0..3 {
        assert_eq!(theory::reach(6, 3, into_batch) + 1, 3, "definition 9, b = {into_batch}");
    }
    let (mut harness, mut naive) = pair(6, 3, 0, 200);
    for item in 1..=12 {
        insert(&mut harness, &mut naive, item);
        for other in 1..=item {
            let oldest = naive.oldest(hash_of(other)).expect("it was inserted");
            assert_eq!(harness.contains(hash_of(other)), oldest < 3, "x{other} after x{item}");
        }
    }
}
