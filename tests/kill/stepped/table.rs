//! All scenes: the paths under test, for kinds whose operations are idempotent, and for those whose
//! operations are undone first.

use super::scenes::{Aim, Operation, Scene};

const LONG: &[(&str, &str)] =
    &[("window-items", "20000"), ("k", "12"), ("l", "10"), ("words", "512")];
const SHORT: &[(&str, &str)] =
    &[("window-items", "160"), ("k", "12"), ("l", "10"), ("generation", "16"), ("words", "512")];
const MIDDLE: &[(&str, &str)] =
    &[("window-items", "1600"), ("k", "12"), ("l", "10"), ("generation", "160"), ("words", "5120")];
/// The window is that of [`Scene::contains`].
const TIMED: &[(&str, &str)] = &[("window", "500000"), ("fpr", "0.0001"), ("rate", "100")];

/// A key is new, however many kills were before: none is there by chance, and could not be claimed.
const SPARSE: &[(&str, &str)] = &[("capacity", "30000"), ("fpr", "0.000001")];
const LAST: &[(&str, &str)] = &[("window-items", "2000"), ("fpr", "0.01")];
const COUNTED: &[(&str, &str)] = &[("capacity", "2000"), ("fpr", "0.01")];
const MINIMAL: &[(&str, &str)] = &[("capacity", "2000"), ("fpr", "0.01"), ("policy", "mi")];
const RECURRING: &[(&str, &str)] = &[("capacity", "2000"), ("fpr", "0.01"), ("policy", "rm")];
/// A large number of blocks, so that one of them always has to grow.
const ROOMY: &[(&str, &str)] = &[("capacity", "200000"), ("fpr", "0.01")];
/// A key stays for many more halvings than its window has.
const HALVED: &[(&str, &str)] =
    &[("capacity", "2000"), ("fpr", "0.01"), ("lambda", "0.5"), ("epoch", "200000")];
/// Several terms, the fastest with a half-life of an epoch.
const POLYNOMIAL: &[(&str, &str)] = &[
    ("capacity", "2000"),
    ("fpr", "0.01"),
    ("decay", "polynomial"),
    ("exponent", "1"),
    ("horizon", "100"),
    ("epoch", "200000"),
];
/// So few words that slots move, and hardly any bucket is closed. (A key of a closed bucket would
/// be present without its insert.)
const CROWDED: &[(&str, &str)] = &[
    ("window-items", "1000"),
    ("fpr", "0.000001"),
    ("slots", "5"),
    ("bits", "23"),
    ("generations", "11"),
    ("words", "576"),
];
/// The same in buckets that begin and end anywhere in a word.
const CROWDED_BYTES: &[(&str, &str)] = &[
    ("window-items", "1000"),
    ("fpr", "0.000001"),
    ("slots", "4"),
    ("bits", "23"),
    ("generations", "14"),
    ("bytes", "13"),
    ("moves", "8"),
    ("words", "472"),
];
/// The same in buckets of a word each.
const CROWDED_WORDS: &[(&str, &str)] = &[
    ("window-items", "1000"),
    ("fpr", "0.000001"),
    ("slots", "2"),
    ("bits", "28"),
    ("generations", "14"),
    ("moves", "8"),
    ("words", "720"),
];
const DRAWN: &[(&str, &str)] = &[("cells", "4096"), ("max", "7"), ("K", "4"), ("P", "12")];

const PLAIN: Scene = Scene {
    path: "insert",
    kind: "age-partitioned",
    parameters: LONG,
    segment_bytes: 64 << 10,
    operation: Operation::Insert,
    aim: Aim::Anywhere,
    every: 1,
    keeps: 64,
    victims: 1,
    heaviest: 1,
    stripes: 1,
};

const SHIFT: Scene =
    Scene { path: "shift", parameters: SHORT, aim: Aim::Step, every: 101, ..PLAIN };
const BANK: Scene = Scene {
    path: "bank",
    kind: "time-limited",
    parameters: TIMED,
    aim: Aim::Banks,
    every: 301,
    keeps: 32,
    ..PLAIN
};
const CLEAR: Scene =
    Scene { path: "clear", operation: Operation::Clear, every: 301, keeps: 0, stripes: 4, ..PLAIN };
const APPEND: Scene =
    Scene { path: "append", segment_bytes: 4 << 10, aim: Aim::Segment, every: 101, ..PLAIN };
const CHECKPOINT: Scene =
    Scene { path: "checkpoint", operation: Operation::Checkpoint, every: 301, ..PLAIN };
const SYNC: Scene = Scene { path: "sync", operation: Operation::Sync, every: 5, ..PLAIN };
const CATCH_UP: Scene =
    Scene { path: "catch-up", parameters: SHORT, aim: Aim::AfterStep, every: 5, ..PLAIN };
const OPEN: Scene =
    Scene { path: "open", operation: Operation::Open, aim: Aim::Later, every: 3001, ..PLAIN };
const COUNT: Scene =
    Scene { path: "count", kind: "counting", parameters: COUNTED, every: 5, ..PLAIN };
/// A whole block changes.
const HALVING: Scene = Scene {
    path: "halving",
    kind: "decaying",
    parameters: HALVED,
    aim: Aim::Step,
    every: 31,
    keeps: 32,
    ..PLAIN
};
const DRAWS: Scene =
    Scene { path: "draws", kind: "stable", parameters: DRAWN, every: 11, keeps: 1, ..PLAIN };
const WIDEN: Scene = Scene {
    path: "widen",
    kind: "dynamic-count",
    parameters: ROOMY,
    aim: Aim::Room,
    every: 121,
    ..PLAIN
};

const MOVES: Scene =
    Scene { path: "moves", kind: "fingerprint", parameters: CROWDED, every: 7, ..PLAIN };
/// A whole block changes, and a slot or several.
const AGEING: Scene = Scene { path: "ageing", aim: Aim::AfterStep, every: 61, ..MOVES };

const MOVES_BYTES: Scene = Scene { path: "moves-bytes", parameters: CROWDED_BYTES, ..MOVES };
const AGEING_BYTES: Scene = Scene { path: "ageing-bytes", parameters: CROWDED_BYTES, ..AGEING };
const AGEING_WORDS: Scene = Scene { path: "ageing-words", parameters: CROWDED_WORDS, ..AGEING };

/// Three keys in three stripes, and a position.
const BATCH: Scene =
    Scene { path: "batch", operation: Operation::Batch, every: 31, stripes: 4, ..PLAIN };
/// A step comes within the batch.
const BATCH_SHIFT: Scene =
    Scene { path: "batch-shift", parameters: SHORT, aim: Aim::Step, every: 61, ..BATCH };
const BATCH_BANK: Scene = Scene {
    path: "batch-bank",
    kind: "time-limited",
    parameters: TIMED,
    aim: Aim::Banks,
    every: 301,
    keeps: 32,
    ..BATCH
};
const BATCH_COUNT: Scene =
    Scene { path: "batch-count", kind: "counting", parameters: COUNTED, every: 61, ..BATCH };

const CLAIM: Scene = Scene {
    path: "claim",
    kind: "bloom",
    parameters: SPARSE,
    operation: Operation::Claim,
    every: 31,
    ..PLAIN
};
const CONFIRM: Scene =
    Scene { path: "confirm", operation: Operation::Confirm, every: 41, stripes: 4, ..CLAIM };
/// A step comes before the insert.
const CONFIRM_SHIFT: Scene = Scene {
    path: "confirm-shift",
    operation: Operation::Confirm,
    parameters: SHORT,
    aim: Aim::Step,
    every: 101,
    ..PLAIN
};
const CONFIRM_COUNT: Scene = Scene {
    path: "confirm-count",
    operation: Operation::Confirm,
    kind: "counting",
    parameters: COUNTED,
    every: 61,
    ..PLAIN
};
const RELEASE: Scene = Scene { path: "release", operation: Operation::Release, ..CLAIM };
const EXTEND: Scene = Scene { path: "extend", operation: Operation::Extend, ..CLAIM };

/// One for each protocol.
const PATHS: [Scene; 39] = [
    PLAIN,
    SHIFT,
    CATCH_UP,
    BANK,
    APPEND,
    CHECKPOINT,
    SYNC,
    CLEAR,
    BATCH,
    BATCH_SHIFT,
    BATCH_BANK,
    BATCH_COUNT,
    Scene { path: "batch-moves", kind: "fingerprint", parameters: CROWDED, ..BATCH },
    Scene { path: "batch-append", segment_bytes: 4 << 10, aim: Aim::Segment, every: 201, ..BATCH },
    CLAIM,
    CONFIRM,
    CONFIRM_SHIFT,
    CONFIRM_COUNT,
    RELEASE,
    EXTEND,
    Scene { path: "confirm-moves", kind: "fingerprint", parameters: CROWDED, ..CONFIRM },
    Scene { path: "clear-bank", kind: "time-limited", parameters: TIMED, every: 501, ..CLEAR },
    Scene { path: "clear-count", kind: "counting", parameters: COUNTED, every: 501, ..CLEAR },
    Scene {
        path: "silence",
        kind: "time-limited",
        parameters: TIMED,
        aim: Aim::Silence,
        every: 301,
        keeps: 20,
        ..PLAIN
    },
    Scene { path: "check", operation: Operation::Check, every: 41, ..PLAIN },
    OPEN,
    Scene { path: "close", operation: Operation::Close, every: 601, ..PLAIN },
    // Kinds whose operations are undone before they are repeated.
    COUNT,
    Scene { path: "remove", operation: Operation::Remove, keeps: 0, every: 61, ..COUNT },
    HALVING,
    DRAWS,
    WIDEN,
    MOVES,
    MOVES_BYTES,
    AGEING,
    AGEING_BYTES,
    AGEING_WORDS,
    Scene { path: "widen-spectral", kind: "spectral", every: 15_001, ..WIDEN },
    // Opening with an undo, in a log with several records.
    Scene { path: "open-draws", operation: Operation::Open, aim: Aim::Later, every: 9001, ..DRAWS },
];

/// An insert into every kind without one above.
const fn kind(
    path: &'static str,
    kind: &'static str,
    parameters: &'static [(&'static str, &'static str)],
) -> Scene {
    Scene { path, kind, parameters, every: 61, ..PLAIN }
}

const KINDS: [Scene; 14] = [
    kind("bloom", "bloom", COUNTED),
    kind("double-buffering", "double-buffering", LAST),
    kind("two-buffer", "two-buffer", LAST),
    kind("timing", "timing", LAST),
    kind("block-timing", "block-timing", LAST),
    Scene { heaviest: 9, ..kind("spectral", "spectral", COUNTED) },
    Scene { heaviest: 9, ..kind("minimal-increase", "spectral", MINIMAL) },
    // A few keys are undercounted, as published.
    Scene { heaviest: 9, keeps: 0, ..kind("recurring-minimum", "spectral", RECURRING) },
    Scene { heaviest: 9, ..kind("dynamic-count", "dynamic-count", COUNTED) },
    Scene { heaviest: 40, keeps: 32, ..kind("decaying-optimized", "decaying-optimized", HALVED) },
    Scene { heaviest: 7, keeps: 0, ..kind("importance-2c", "importance-2c", DRAWN) },
    Scene { heaviest: 7, keeps: 0, ..kind("importance-mc", "importance-mc", DRAWN) },
    Scene { heaviest: 7, keeps: 0, every: 1201, ..kind("importance-h", "importance-h", DRAWN) },
    Scene { aim: Aim::Step, every: 31, keeps: 90, ..kind("polynomial", "decaying", POLYNOMIAL) },
];

/// The repairing process is killed too, and so is the one that repairs its changes.
const fn deaths(path: &'static str, victims: u64, scene: Scene) -> Scene {
    Scene { path, victims, every: 8, ..scene }
}

const REPAIRS: [Scene; 37] = [
    Scene { every: 1, ..deaths("repair", 2, PLAIN) },
    deaths("repair-twice", 3, PLAIN),
    deaths("repair-shift", 2, SHIFT),
    deaths("repair-catch-up", 2, CATCH_UP),
    deaths("repair-bank", 2, BANK),
    deaths("repair-clear", 2, Scene { stripes: 1, ..CLEAR }),
    deaths("repair-clear-bank", 2, Scene { kind: "time-limited", parameters: TIMED, ..CLEAR }),
    deaths("repair-append", 2, APPEND),
    deaths("repair-count", 2, COUNT),
    deaths("repair-count-twice", 3, COUNT),
    deaths("repair-halving", 2, HALVING),
    deaths("repair-draws", 2, DRAWS),
    deaths("repair-widen", 2, WIDEN),
    deaths("repair-moves", 2, MOVES),
    deaths("repair-ageing", 2, AGEING),
    deaths("repair-ageing-bytes", 2, AGEING_BYTES),
    deaths("repair-ageing-words", 3, AGEING_WORDS),
    deaths("repair-timing", 2, KINDS[3]),
    deaths("repair-block-timing", 2, KINDS[4]),
    deaths("repair-spectral", 2, KINDS[5]),
    deaths("repair-minimal-increase", 2, KINDS[6]),
    deaths("repair-recurring-minimum", 2, KINDS[7]),
    deaths("repair-decaying-optimized", 2, KINDS[9]),
    deaths("repair-importance-2c", 2, KINDS[10]),
    deaths("repair-importance-mc", 2, KINDS[11]),
    deaths("repair-importance-h", 2, KINDS[12]),
    deaths("repair-dynamic-count", 2, KINDS[8]),
    deaths("repair-batch", 2, BATCH),
    deaths("repair-batch-shift", 2, BATCH_SHIFT),
    deaths("repair-batch-bank", 2, BATCH_BANK),
    deaths("repair-batch-count", 2, BATCH_COUNT),
    deaths("repair-polynomial", 2, KINDS[13]),
    deaths("repair-claim", 2, CLAIM),
    deaths("repair-confirm", 2, CONFIRM),
    deaths("repair-confirm-count", 2, CONFIRM_COUNT),
    deaths("repair-extend", 2, EXTEND),
    // An interrupted recovery, and the recovery from that.
    deaths("recover-twice", 2, OPEN),
];

/// The number of stripes where the victim is stopped: it may block the keys of one.
const MANY: u32 = 16;

/// The scenes in which the victim is stopped. (If a time-limited filter's victim holds stripe 0,
/// others wait for it.)
const STOPS: [Scene; 7] = [
    Scene { path: "stopped-insert", stripes: MANY, ..PLAIN },
    // Others continue without the next generation for as many inserts as one generation holds.
    Scene { path: "stopped-batch", stripes: MANY, ..BATCH },
    Scene { path: "stopped-shift", stripes: MANY, parameters: MIDDLE, ..SHIFT },
    Scene { path: "stopped-catch-up", stripes: MANY, ..CATCH_UP },
    Scene { path: "stopped-append", stripes: MANY, ..APPEND },
    Scene { path: "stopped-checkpoint", stripes: MANY, ..CHECKPOINT },
    Scene { path: "stopped-sync", stripes: MANY, ..SYNC },
];

/// Returns the scenes in which the victim is killed.
pub fn killed() -> impl Iterator<Item = &'static Scene> {
    let single = const { &PATHS }.iter().chain(const { &KINDS });
    single.chain(const { &REPAIRS })
}

/// Returns the scenes in which the victim is stopped.
pub fn stopped() -> impl Iterator<Item = &'static Scene> {
    const { &STOPS }.iter()
}

/// Returns the scene of this path.
pub fn named(path: &str) -> Option<&'static Scene> {
    killed().chain(stopped()).find(|scene| scene.path == path)
}
