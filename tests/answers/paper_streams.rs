//! Claims about the streams that the programs in `benches/papers/` use.

use ebbtide_testkit::random::{Random, mix};
use ebbtide_testkit::zipf::Zipf;

#[test]
fn the_frequencies_of_ranks_follow_the_exponent() {
    for exponent in [0.0, 0.5, 1.0, 1.5] {
        let (keys, draws) = (100, 200_000);
        let zipf = Zipf::new(keys, exponent);
        let mut random = Random::new(mix(7));
        let mut counts = vec![0_u32; keys];
        (0..draws).for_each(|_| counts[zipf.next(&mut random)] += 1);
        let all: f64 = (1..=keys).map(|rank| (rank as f64).powf(-exponent)).sum();
        for (rank, &count) in counts.iter().enumerate() {
            let expected = f64::from(draws) * ((rank + 1) as f64).powf(-exponent) / all;
            // Six standard deviations, and one for the smallest counts.
            let off = (f64::from(count) - expected).abs();
            assert!(off <= 6.0 * expected.sqrt() + 1.0, "rank {rank} at {exponent}: {count}");
        }
    }
}

#[test]
fn a_universe_of_one_key_yields_only_that_key() {
    assert_eq!(Zipf::new(1, 1.0).next(&mut Random::new(3)), 0);
}
