//! Messages as a producer sends them that repeats a message until it knows that it has arrived.

/// How far behind the first one, in different messages, a repetition of a message may be.
pub const REPEATED_WITHIN: u64 = 1000;

/// Returns the id and the body of a message of a stream.
#[must_use]
pub fn message(stream: &str, number: u64) -> (String, String) {
    let padding = "·".repeat((mix(number) % 40) as usize);
    (format!("{stream}/{number}"), format!("message {number} of {stream} {padding}"))
}

/// Returns the numbers of the messages in the order in which they are sent: each number below
/// `count` once, ascending, and about once more on average, up to [`REPEATED_WITHIN`] later.
#[must_use]
pub fn order(count: u64, seed: u64) -> Vec<u64> {
    let mut sent: Vec<_> = (0..count).map(|number| (number, number)).collect();
    for number in 0..count {
        let random = mix(seed ^ mix(number));
        // 0 to 3 repetitions: half of the messages have none.
        let repetitions = [0, 0, 0, 0, 1, 2, 2, 3][(random % 8) as usize];
        for repetition in 1..=repetitions {
            let later = mix(random + repetition) % REPEATED_WITHIN;
            // Some come at once.
            let later = if later.is_multiple_of(3) { 0 } else { later };
            // So the last message sent is a new one, or one that was just sent.
            if number + later < count {
                sent.push((number + later, number));
            }
        }
    }
    // Stable: at the same place the first occurrences stand before the repetitions.
    sent.sort_by_key(|&(place, _)| place);
    sent.into_iter().map(|(_, number)| number).collect()
}

/// A random number from a seed (SplitMix64).
#[must_use]
pub fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
