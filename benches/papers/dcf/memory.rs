//! Fig. 7, Table 2, and bits per counter with several overflow vectors.

use super::model::Model;
use super::plot::{Curve, Figure, Scale, draw};
use super::runs::{Done, Kind, Setting, State, Subject, shuffle};
use super::seed::seed;
use super::table::Table;
use ebbtide::kinds::dynamic_count::fixed_bits;
use ebbtide_testkit::random::Random;

/// Returns how often each of `keys` keys occurs if `all` inserts have a Zipf distribution: the
/// expected number, rounded up or down at random.
fn counts(keys: u64, all: u64, exponent: f64, random: &mut Random) -> Vec<u64> {
    let weight = |rank: u64| (rank as f64).powf(-exponent);
    let sum: f64 = (1..=keys).map(weight).sum();
    let count = |rank| {
        let expected = weight(rank) / sum * all as f64;
        let above = random.below(1 << 32) as f64 / f64::from(u32::MAX) < expected.fract();
        expected as u64 + u64::from(above)
    };
    (1..=keys).map(count).collect()
}

/// Inserts keys as often as they occur, in rounds of random order, all in turn.
fn fill(subject: &Subject, counts: &[u64], rounds: u64, random: &mut Random) -> Done {
    let mut order: Vec<u32> = (0..counts.len() as u32).collect();
    for round in 0..rounds {
        shuffle(&mut order, random);
        for &key in &order {
            let until = |round| counts[key as usize] * round / rounds;
            let times = until(round + 1) - until(round);
            if times > 0 {
                subject.insert(key, times)?;
            }
        }
    }
    Ok(())
}

/// Creates a filter with these counts.
fn filled(setting: Setting, counts: &[u64], rounds: u64) -> Done<(Subject, State)> {
    let subject = Subject::new(setting)?;
    fill(&subject, counts, rounds, &mut Random::new(seed()))?;
    let state = subject.state()?;
    Ok((subject, state))
}

/// Returns the same counts in the paper's structures.
fn modelled(cells: u64, block: u64, counts: &[u64]) -> Model {
    let mut model = Model::new(cells, block);
    counts.iter().zip(0..).for_each(|(&count, key)| model.insert(key, count));
    model
}

/// The number of keys of Fig. 7: all counters are in one block.
const KEYS: u64 = 1000;

/// Fig. 7: the memory of the spectral filter relative to that of the dynamic count filter.
pub fn ratios() -> Done {
    let means = [10, 100, 1000, 10_000];
    let head = [
        "θ",
        "DCF: bits a counter",
        "SBF",
        "SBF by the paper's formula",
        "ratio at M = 10 n",
        "100 n",
        "1000 n",
        "10000 n",
        "by the formula: 10 n",
        "100 n ",
        "1000 n ",
        "10000 n ",
    ];
    let title = "Fig. 7: n = 1000; bits at M = 100 n, and the ratio SBF / DCF";
    let mut table = Table::new(title, &head);
    let mut curves: Vec<Curve> = ["ours", "paper's formula"]
        .iter()
        .flat_map(|what| means.map(|mean| format!("M = {mean} n, {what}")))
        .map(|name| Curve { name, points: Vec::new() })
        .collect();
    let mut random = Random::new(seed());
    for skew in (0..=8).map(|quarter| f64::from(quarter) / 4.0) {
        let (mut bits, mut ours, mut formula) = ([0.0; 3], [0.0; 4], [0.0; 4]);
        for (index, mean) in means.into_iter().enumerate() {
            let counts = counts(KEYS, KEYS * mean, skew, &mut random);
            let setting =
                |kind| Setting { stripes: Some(1), ..Setting::new(kind, KEYS, mean as f64) };
            let cells = setting(Kind::Dynamic).cells;
            let of = |kind| -> Done<f64> {
                Ok(filled(setting(kind), &counts, 20)?.1.bits / cells as f64)
            };
            let model = modelled(cells, cells, &counts);
            let all = [of(Kind::Dynamic)?, of(Kind::Spectral)?, model.spectral_bits()];
            ours[index] = all[1] / all[0];
            formula[index] = all[2] / model.dynamic_bits(fixed_bits(mean as f64));
            if mean == 100 {
                bits = all;
            }
        }
        let cells = std::iter::once(format!("{skew}"))
            .chain(bits.map(|bits| format!("{bits:.1}")))
            .chain(ours.into_iter().chain(formula).map(|ratio| format!("{ratio:.2}")));
        let cells: [String; 12] = cells.collect::<Vec<_>>().try_into().expect("twelve columns");
        table.row(cells);
        for (curve, ratio) in curves.iter_mut().zip(ours.into_iter().chain(formula)) {
            curve.points.push((skew, ratio));
        }
    }
    println!("{table}");
    let figure = Figure {
        file: "dcf-fig7",
        title: "Fig. 7: memory of the spectral filter over that of the dynamic count filter",
        x: "skew θ",
        y: ("ratio", Scale::Linear),
    };
    draw(&figure, &curves)
}

/// The mean count of Table 2.
const MEAN: u64 = 1_000_000;
/// The paper's memory of the bounded filter, relative to that of the unbounded one.
const PAPER_BOUND: f64 = 16_950.0 / 20_125.0;

/// Table 2: many repeated values.
pub fn table_2() -> Done {
    let mut random = Random::new(seed());
    // The sum of twelve uniform numbers is nearly normal, with standard deviation 1; the standard
    // deviation of the counts is the root of their mean.
    let mut normal =
        || (0..12).map(|_| random.below(1 << 32) as f64 / 4_294_967_296.0).sum::<f64>() - 6.0;
    let deviation = (MEAN as f64).sqrt();
    let counts: Vec<u64> =
        (0..KEYS).map(|_| (MEAN as f64 + deviation * normal()).round() as u64).collect();
    let setting = |kind| Setting { stripes: Some(1), ..Setting::new(kind, KEYS, MEAN as f64) };
    let measure = |setting: Setting| -> Done<[f64; 4]> {
        let (subject, state) = filled(setting, &counts, 20)?;
        let mut exact = 0.0;
        for (&count, key) in counts.iter().zip(0..) {
            exact += f64::from(u8::from(subject.count(key)? == count as f64));
        }
        let accuracy = 100.0 * exact / KEYS as f64;
        Ok([state.bits / 8.0, accuracy, subject.time_to_read()?, state.saturated as f64])
    };
    let dynamic = setting(Kind::Dynamic);
    let (spectral, whole) = (measure(setting(Kind::Spectral))?, measure(dynamic)?);
    let width = whole[0] * 8.0 / dynamic.cells as f64;
    let bounded = |bytes: f64| measure(Setting { cells: (bytes * 8.0 / width) as u64, ..dynamic });
    let rows = [
        ("SBF", "17280", "90.1", "1300", spectral),
        ("DCF", "20125", "90.1", "500", whole),
        ("DCF bounded, to our SBF", "16950", "87.6", "500", bounded(spectral[0])?),
        ("DCF bounded, in the paper's proportion", "", "", "", bounded(whole[0] * PAPER_BOUND)?),
        (
            "CBF, counters as wide as DCF's",
            "",
            "",
            "",
            measure(setting(Kind::Counting(width as u32)))?,
        ),
        ("CBF, counters of 4 bits", "", "", "", measure(setting(Kind::Counting(4)))?),
    ];
    let head = [
        "",
        "paper: bytes",
        "ours: bytes",
        "paper: accuracy (%)",
        "ours",
        "paper: access (ns)",
        "ours (ns)",
        "saturated counters",
    ];
    let title = format!("Table 2: n = 1000, M = 10^6 n, m = {}", dynamic.cells);
    let mut table = Table::new(&title, &head);
    for (name, bytes, accuracy, access, ours) in rows {
        table.row([
            name.to_owned(),
            bytes.to_owned(),
            format!("{:.0}", ours[0]),
            accuracy.to_owned(),
            format!("{:.1}", ours[1]),
            access.to_owned(),
            format!("{:.0}", ours[2]),
            format!("{:.0}", ours[3]),
        ]);
    }
    println!("{table}");
    Ok(())
}

/// Prints the bits per counter for the Zipf distribution of exponent 1, by the number of counters
/// that share the width of the overflow vector. Twice the mean width is the number of rebuilds if
/// keys were inserted and removed one by one.
pub fn bits_by_block() -> Done {
    let (keys, mean) = (1_000_000, 100);
    let counts = counts(keys, keys * mean, 1.0, &mut Random::new(seed()));
    let setting = Setting::new(Kind::Dynamic, keys, mean as f64);
    let (m, x) = (setting.cells, fixed_bits(mean as f64));
    let head = [
        "counters a block",
        "blocks",
        "design's simulation: bits",
        "bits",
        "2 · mean y",
        "all memory: bits",
    ];
    let title = "Bits a counter: Zipf 1, n = 1 million, M = 100 n";
    let mut table = Table::new(title, &head);
    let before = [(m, "23.0"), (65_536, "17.5"), (16_384, "15.5"), (4096, "13.4")];
    for (block, before) in before {
        let model = modelled(m, block, &counts);
        table.row([
            if block == m { "all (model)".to_owned() } else { format!("{block} (model)") },
            format!("{}", m.div_ceil(block)),
            before.to_owned(),
            format!("{:.1}", model.dynamic_bits(x)),
            format!("{:.1}", model.rebuilds(x)),
            String::new(),
        ]);
    }
    for stripes in [None, Some(1600), Some(4096)] {
        let (_, state) = filled(Setting { stripes, ..setting }, &counts, 1)?;
        let blocks = state.blocks;
        table.row([
            format!("{} (dynamic-count)", m.div_ceil(blocks)),
            format!("{blocks}"),
            String::new(),
            format!("{:.1}", state.bits / m as f64),
            format!("{:.1}", 2.0 * (state.bits / m as f64 - f64::from(x))),
            format!("{:.1}", state.memory_bytes as f64 * 8.0 / m as f64),
        ]);
    }
    let (_, state) = filled(Setting { kind: Kind::Spectral, ..setting }, &counts, 1)?;
    let spectral = modelled(m, m, &counts).spectral_bits();
    table.row([
        format!("{} (spectral)", m.div_ceil(state.blocks)),
        format!("{}", state.blocks),
        String::new(),
        format!("{:.1}", state.bits / m as f64),
        String::new(),
        format!("{:.1}", state.memory_bytes as f64 * 8.0 / m as f64),
    ]);
    table.row([
        "spectral, the paper's formula".to_owned(),
        String::new(),
        String::new(),
        format!("{spectral:.1}"),
        String::new(),
        String::new(),
    ]);
    println!("{table}");
    Ok(())
}
