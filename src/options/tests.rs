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
fn what_is_kept_of_the_log_shows_its_unit_and_reads_back() {
    let shown = [
        (Keep::Nothing, "nothing"),
        (Keep::For(Duration::from_secs(86_400)), "86400s"),
        (Keep::For(Duration::from_secs(u64::MAX)), "18446744073709551615s"),
        (Keep::Bytes(24), "24B"),
        (Keep::Bytes(u64::MAX), "18446744073709551615B"),
    ];
    for (keep, text) in shown {
        assert_eq!(keep.to_string(), text);
        assert_eq!(text.parse::<Keep>().expect(text), keep);
        assert_eq!(Keep::read(text), Some(keep));
    }
    assert_eq!(Keep::read("1073741824"), Some(Keep::Bytes(1 << 30)), "of an earlier version");
}

#[test]
fn an_amount_of_log_without_a_unit_or_of_zero_is_refused() {
    for (text, expected) in [
        ("24", "a unit after 24: a time such as 24h, a size such as 24GiB, or nothing"),
        ("0", "a unit after 0"),
        ("+24", "nothing, a time such as 24h, or a size such as 10GiB"),
        ("24 ", "nothing, a time such as 24h, or a size such as 10GiB"),
        ("1_000", "a unit after 1_000"),
        ("0s", "more than zero, or nothing"),
        ("0us", "more than zero, or nothing"),
        ("0B", "more than zero, or nothing"),
        ("", "nothing, a time such as 24h, or a size such as 10GiB"),
        ("much", "nothing, a time such as 24h, or a size such as 10GiB"),
    ] {
        let error = text.parse::<Keep>().expect_err(text);
        assert!(matches!(error, Error::Parameter { name: "keep-log", .. }), "{error}");
        assert!(error.to_string().contains(expected), "{text}: {error}");
        let options = format!("keep-log={text}").parse::<Options>();
        assert!(matches!(options, Err(Error::Parameter { .. })), "{text}");
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
