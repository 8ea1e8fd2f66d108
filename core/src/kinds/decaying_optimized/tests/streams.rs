//! Claims about many keys: the load that the pool supports, and the rates.

use super::*;
use crate::hash::mix;

/// Returns a filter with a user's parameters: 100,000 µs an epoch.
fn filter(parameters: &[(&str, &str)]) -> Arc<dyn Kind> {
    let mut all = Parameters::new()
        .with("capacity", 10_000)
        .with("fpr", 0.01)
        .with("lambda", 0.9)
        .with("epoch", 100_000);
    for (name, value) in parameters {
        all.set(name, value);
    }
    build(&all).expect("a sound filter")
}

const BLOCKS: Layout = Layout { stripes: 2, block_words: 2048 };

/// Returns `draws` draws from a Zipf distribution over `distinct` keys, exponent 1, by inversion.
fn zipf(distinct: u64, draws: u64) -> impl Iterator<Item = u64> {
    let mut sums = vec![0.0];
    for rank in 1..=distinct {
        sums.push(sums[rank as usize - 1] + 1.0 / rank as f64);
    }
    let all = sums[distinct as usize];
    (0..draws).map(move |draw| {
        let at = mix(draw ^ 0x21bf) as f64 / u64::MAX as f64 * all;
        sums.partition_point(|&sum| sum <= at).min(distinct as usize) as u64
    })
}

/// Returns the number of counters in the completed parameters.
fn cells(kind: &Arc<dyn Kind>) -> f64 {
    kind.parameters().required("cells", "").expect("completed")
}

#[test]
fn on_zipf_data_half_a_digit_for_each_counter_is_ample() {
    const INSERTS: u64 = 300_000;
    let kind = filter(&[("front", "none")]);
    let k = kind.parameters().required("k", "").expect("completed");
    let mut harness = Harness::new(kind.clone(), BLOCKS);
    let mut exact = vec![0_u64; 10_001];
    for key in zipf(10_000, INSERTS) {
        exact[key as usize] += 1;
        // Within one epoch: nothing has decayed yet, and the counters have their greatest size.
        harness.insert(hash_of(key), 50_000);
    }
    assert_eq!(harness.metric("pool_exhaustions"), 0);
    for (key, &count) in exact.iter().enumerate().skip(1) {
        let told = harness.estimate(hash_of(key as u64)).expect("it counts");
        assert!(!told.at_least && told.count >= count as f64);
    }
    let used = harness.metric("pool_in_use") as f64 / cells(&kind);
    let expected = theory::zipf_digits(INSERTS as f64, 10_000, 1.0, k, cells(&kind));
    println!("zipf: {used:.4} digits a counter, by theory {expected:.4}");
    // Keys that share counters take more digits, or fewer: the small ones' sums pass 16, hot ones
    // share theirs.
    assert!((0.7..1.4).contains(&(used / expected)), "{used} against {expected}");
    assert!(used < 0.25, "half of the pool is left");
}

#[test]
fn a_hundred_hits_on_each_of_all_keys_exhaust_the_pool_and_the_estimates_say_so() {
    let mut harness = Harness::new(filter(&[]), BLOCKS);
    let mut ample = Harness::new(filter(&[("pool", "1")]), BLOCKS);
    for round in 0..100_u64 {
        for key in 0..10_000 {
            harness.insert(hash_of(key), round);
            ample.insert(hash_of(key), round);
        }
    }
    let (short, exhausted) =
        (harness.metric("counters_flagged"), harness.metric("pool_exhaustions"));
    println!("flat: {exhausted} additions without a digit, {short} counters flagged");
    assert!(short > 0 && exhausted >= short);
    assert_eq!(ample.metric("pool_exhaustions"), 0);
    let mut at_least = 0;
    for key in 0..10_000 {
        let told = harness.estimate(hash_of(key)).expect("it counts");
        let whole = ample.estimate(hash_of(key)).expect("it counts");
        assert!(harness.contains(hash_of(key)) && whole.count >= 100.0);
        // Nothing is lost without a mark.
        assert!(told.at_least || told.count >= 100.0);
        at_least += u32::from(told.at_least);
    }
    println!("flat: {at_least} of 10,000 estimates say at least");
    assert!(at_least > 0);
    // After two lifetimes everything has expired, and the pool is available again.
    let later = 2 * 34 * 7 * 100_000;
    (0..100).for_each(|key| {
        harness.insert_weighing(hash_of(key), later, 100);
    });
    assert!((0..100).all(|key| {
        let told = harness.estimate(hash_of(key)).expect("it counts");
        !told.at_least && told.count >= 100.0
    }));
    assert_eq!(harness.metric("pool_exhaustions"), exhausted, "no more of them");
}

#[test]
fn the_measured_rate_is_what_theory_says_of_counters_and_front() {
    const PROBES: f64 = 1e6;
    for (fpr, front, front_bits) in
        [("0.05", "none", 0), ("0.1", "swapped", 40_000), ("0.2", "plain", 20_000)]
    {
        let kind = filter(&[
            ("fpr", fpr),
            ("front", front),
            ("front-bits", &front_bits.to_string()),
            ("front-keys", "10000"),
        ]);
        let planned = kind.planned_fpr(BLOCKS);
        let mut harness = Harness::new(kind, BLOCKS);
        (0..10_000).for_each(|key| {
            harness.insert(hash_of(key), 1);
        });
        let (measured, estimated) = (harness.measured_fpr(PROBES as u64), harness.estimated_fpr());
        println!(
            "{front} {fpr}: measured {measured:.5}, estimated {estimated:.5}, planned {planned:.5}"
        );
        // The tolerance is six standard deviations of the probes, plus the few bits or counters by
        // which one filter differs from the mean: 0.3 % of a fill, k times, twice.
        let tolerance = 6.0 * (estimated / PROBES).sqrt() + 0.03 * estimated;
        assert!((measured - estimated).abs() < tolerance, "{measured} against {estimated}");
        // The plan is made for the moment at which both buffers have that many keys.
        let is_worst = front != "swapped";
        assert!(!is_worst || (planned / estimated - 1.0).abs() < 0.05, "planned {planned}");
        assert!(estimated < 1.05 * planned, "planned {planned}");
    }
}

#[test]
fn the_front_swaps_so_that_an_endless_stream_does_not_fill_it() {
    // Epochs are half-lives: a lifetime of the front is 33 of them, with 3300 keys.
    let kind = |front| filter(&[("lambda", "0.5"), ("front", front), ("fpr", "0.5")]);
    let (mut swapped, mut plain) =
        (Harness::new(kind("swapped"), BLOCKS), Harness::new(kind("plain"), BLOCKS));
    for key in 0..60_000 {
        swapped.insert(hash_of(key), key * 1000);
        plain.insert(hash_of(key), key * 1000);
    }
    let (rotated, full) = (swapped.measured_fpr(200_000), plain.measured_fpr(200_000));
    println!("endless: {rotated:.5} swapped, {full:.5} plain");
    // With one hash function and 10,000/ln 2 bits, 60,000 keys fill 98 % of the plain front, and
    // each of the two buffers holds at most 3300: 20 %, so 37 % with both. The counters are the
    // same.
    assert!(full > 0.0 && rotated < 0.45 * full);
    assert!((swapped.estimated_fpr() / rotated - 1.0).abs() < 0.1);
}

#[test]
fn memory_is_what_the_model_says_and_less_than_the_basic_filters() {
    for (fraction, pool, front, bits, basic) in [
        (8, "0.5", "swapped", 21.5, 32.0),
        (8, "0.5", "plain", 20.5, 32.0),
        (8, "0.5", "none", 19.5, 32.0),
        (0, "0.5", "plain", 12.5, 16.0),
    ] {
        let counter_bits = basic.to_string();
        let kind = filter(&[
            ("cells", "1000000"),
            ("fraction-bits", &fraction.to_string()),
            ("counter-bits", &counter_bits),
            ("pool", pool),
            ("front", front),
        ]);
        let buffers = ["none", "plain", "swapped"].iter().position(|&name| name == front);
        let model = theory::memory(fraction, 0.5, buffers.expect("a front") as f64).total();
        let taken = kind.first_words() as f64 * 64.0 / cells(&kind);
        println!("{front} {fraction}: {taken:.2} bits a counter, the basic filter {basic}");
        assert_eq!(model, bits);
        // 1/128 accounts for the rest that does not fit whole lines.
        assert!((taken / model - 1.0 - 1.0 / 128.0).abs() < 0.001);
        assert!(model < 0.8 * basic);
    }
}

/// Returns the bits that a kind plans for each key of a million.
fn planned_bits(name: &str, rates: &[(&str, f64)]) -> f64 {
    let all = Parameters::new().with("capacity", 1_000_000).with("lambda", 0.9).with("epoch", 1);
    let all = rates.iter().fold(all, |all, (name, rate)| all.with(name, rate));
    registry::build(name, &all).expect("a sound filter").first_words() as f64 * 64.0 / 1e6
}

#[test]
fn with_an_error_of_three_in_a_hundred_it_takes_two_fifths_of_the_basic_filter() {
    let basic = planned_bits("decaying", &[("fpr", 0.001)]);
    let optimized = planned_bits(NAME, &[("fpr", 0.001), ("error", 0.03)]);
    println!("bits a key: basic {basic:.1}, optimized {optimized:.1}");
    assert!(optimized <= 0.4 * basic, "{optimized} of {basic}");
    // The same by default, and more memory for fewer errors.
    assert_eq!(optimized, planned_bits(NAME, &[("fpr", 0.001)]));
    let errors = [0.03, 0.01, 0.003, 0.001]
        .map(|error| planned_bits(NAME, &[("fpr", 0.001), ("error", error)]));
    assert!(errors.is_sorted() && errors[3] < 0.65 * basic, "{errors:?}");
}

#[test]
fn both_rates_are_kept_at_the_worst_moment_that_the_plan_allows() {
    const CAPACITY: u64 = 30_000;
    // Epochs are half-lives; a lifetime of the front is 33 of them. 60,000 keys come in each
    // of two lifetimes, once each, and less than 30,000 of them are alive at the end.
    let (lifetime, epoch) = (33, 100_000);
    let kind = filter(&[
        ("capacity", &CAPACITY.to_string()),
        ("fpr", "0.001"),
        ("error", "0.03"),
        ("lambda", "0.5"),
    ]);
    let planned = kind.planned_fpr(BLOCKS);
    assert!(planned < 1.1e-3, "the last words of blocks are lost: {planned}");
    let mut harness = Harness::new(kind, BLOCKS);
    let mut keys = 0;
    let mut insert = |harness: &mut Harness, epochs: u64, count: u64| {
        for _ in 0..count {
            harness.insert(hash_of(keys), epochs * epoch);
            keys += 1;
        }
    };
    (0..lifetime).for_each(|epochs| insert(&mut harness, epochs, 2 * CAPACITY / lifetime));
    (lifetime..2 * lifetime - 1).for_each(|epochs| insert(&mut harness, epochs, 1400));
    // Of these, eight epochs are alive; the burst completes the buffer.
    let burst = 2 * CAPACITY - 1400 * (lifetime - 1);
    insert(&mut harness, 2 * lifetime - 1, burst);
    let (measured, estimated) = (harness.measured_fpr(1_000_000), harness.estimated_fpr());
    println!(
        "worst moment: measured {measured:.6}, estimated {estimated:.6}, planned {planned:.6}"
    );
    assert!(measured < 0.001 + 6.0 * (0.001 / 1e6_f64).sqrt() && measured > 0.3 * planned);
    assert!((measured / estimated - 1.0).abs() < 6.0 / (1e6 * estimated).sqrt() + 0.05);
    // The keys of the last epoch count 1, and by rounding up at most 2 units more.
    let promised = 1.0 + 3.0 / 256.0;
    let count = |key| harness.estimate(hash_of(key)).expect("it counts").count;
    let counts: Vec<_> = (keys - burst..keys).map(count).collect();
    assert!(counts.iter().all(|&count| count >= 1.0), "none is undercounted");
    let over = counts.iter().filter(|&&count| count > promised).count() as f64;
    let share = over / counts.len() as f64;
    println!("worst moment: {share:.5} of {} keys are overcounted", counts.len());
    assert!(share < 0.03 + 6.0 * (0.03 / counts.len() as f64).sqrt() && share > 0.01);
}

#[test]
fn at_capacity_the_share_of_keys_that_are_overcounted_is_the_planned_error() {
    for error in [0.1, 0.03, 0.01] {
        let kind = filter(&[("fpr", "0.001"), ("error", &error.to_string())]);
        let mut harness = Harness::new(kind, BLOCKS);
        (0..10_000).for_each(|key| {
            harness.insert(hash_of(key), 1);
        });
        let over = (0..10_000).filter(|&key| {
            let told = harness.estimate(hash_of(key)).expect("it counts").count;
            assert!(told >= 1.0);
            told > 1.0 + 3.0 / 256.0
        });
        let share = over.count() as f64 / 10_000.0;
        println!("error {error}: measured {share:.4}");
        assert!((share - error).abs() < 0.1 * error + 5.0 * (error / 1e4_f64).sqrt(), "{share}");
    }
}
