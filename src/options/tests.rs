//! Tests of options.

use super::*;

#[test]
fn a_durability_shows_its_interval_with_a_unit_and_reads_back() {
    let every = |micros| Durability::Interval(Duration::from_micros(micros));
    let shown = [
        (Durability::Always, "always"),
        (Durability::Never, "never"),
        (every(1_000_000), "interval 1s"),
        (every(90_000_000), "interval 90s"),
        (every(1_500_000), "interval 1500ms"),
        (every(20_000), "interval 20ms"),
        (every(250), "interval 250us"),
        (every(1_000_001), "interval 1000001us"),
        (every(u64::MAX), "interval 18446744073709551615us"),
    ];
    for (durability, text) in shown {
        assert_eq!(durability.to_string(), text);
        assert_eq!(text.parse::<Durability>().expect(text), durability);
    }
    assert_eq!("interval 7µs".parse::<Durability>().expect("a unit"), every(7));
    for wrong in ["", "sometimes", "interval", "interval 1", "interval s", "interval 1h", "1s"] {
        let error = wrong.parse::<Durability>().expect_err(wrong);
        assert!(matches!(error, Error::Parameter { name: "durability", .. }), "{error}");
    }
    let too_long = "interval 18446744073709551615s".parse::<Durability>();
    assert!(too_long.is_err());
}

#[test]
fn an_interval_between_syncs_is_a_microsecond_at_least_and_a_day_at_most() {
    let day = Duration::from_secs(86_400);
    for every in [Duration::from_micros(1), day] {
        Durability::Interval(every).check().expect("within the bounds");
    }
    for every in [Duration::ZERO, Duration::from_nanos(999), day + Duration::from_nanos(1)] {
        let error = Durability::Interval(every).check().expect_err("out of bounds");
        assert!(matches!(error, Error::Parameter { name: "durability", .. }), "{error}");
    }
}

#[test]
fn what_has_a_name_reads_back() {
    for downtime in [Downtime::Age, Downtime::Freeze] {
        assert_eq!(downtime.to_string().parse::<Downtime>().expect("a name"), downtime);
    }
    for hash in [KeyHash::Fast, KeyHash::Keyed] {
        assert_eq!(hash.to_string().parse::<KeyHash>().expect("a name"), hash);
    }
    assert!("Age".parse::<Downtime>().is_err() && "xxh3".parse::<KeyHash>().is_err());
}

#[test]
fn segments_and_checkpoints_follow_the_memory_unless_they_are_named() {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    let default = Options::new();
    let sizes = [
        (0, MIB, MIB),
        (3 * MIB, 4 * MIB, 12 * MIB),
        (4 * MIB + 32, 8 * MIB, 16 * MIB + 128),
        (16 * MIB, 16 * MIB, 64 * MIB),
        (17 * MIB, 16 * MIB, 64 * MIB),
        (1024 * MIB, 16 * MIB, 1024 * MIB),
        (4096 * MIB, 64 * MIB, 4096 * MIB),
        (1 << 40, 1 << 30, 1 << 40),
    ];
    for (memory, segment, due) in sizes {
        assert_eq!(default.segment_records(memory) * RECORD_BYTES, segment, "{memory} bytes");
        assert_eq!(default.checkpoint_due(memory), due, "{memory} bytes");
    }
    let named = Options::new().segment_bytes(4 * KIB).checkpoint_bytes(7);
    assert_eq!(named.segment_records(MIB), 4 * KIB / RECORD_BYTES);
    assert_eq!(named.checkpoint_due(MIB), 7);
}
