use super::*;
use crate::cells::OWN_WORDS;
use crate::hash::mix;
use crate::kinds::{Change, Totals, state::STATE_WORDS};
use crate::sync::AtomicU64;
use crate::undo::{Undo, area_words};
fn cpu() -> u64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}
fn z(n: usize) -> Vec<AtomicU64> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}
#[test]
#[ignore]
fn speed() {
    let keys = 1_000_000_u64;
    for front in ["none", "swapped"] {
        let kind = build(
            &Parameters::new()
                .with("capacity", 1_000_000)
                .with("fpr", 0.001)
                .with("cells", 25_000_000)
                .with("k", 10)
                .with("lambda", 0.9)
                .with("epoch", 1_000_000_000)
                .with("front", front),
        )
        .unwrap();
        let layout = Layout { stripes: 64, block_words: 2048 };
        let g = layout.geometry(kind.first_words());
        let n = layout.blocks(g);
        let stride = 8 + g.words_per_block as usize;
        let words = z(stride * n as usize);
        let area = z(area_words(g.words_per_block as usize));
        let st = z(STATE_WORDS);
        let state = State::new(&st);
        kind.start(&state, layout);
        let blk = |hash: u64| {
            let i = layout.block_of(g, hash);
            let w = &words[i * stride..(i + 1) * stride];
            Blocks::One(Block {
                own: &w[..OWN_WORDS],
                cells: &w[8..],
                number: i as u64,
                of: n,
                undo: Undo::new(&area),
            })
        };
        let ins = |hash: u64| {
            let b = blk(hash);
            kind.prefetch(&b, hash);
            if let Blocks::One(b) = &b {
                b.undo.begin(b.number, 0);
            }
            kind.insert(
                &state,
                &b,
                &Operation { change: Change::Insert, hash, step: 0, time: 1, weight: 1 },
            );
        };
        let t = |name: &str, f: &mut dyn FnMut()| {
            let at = cpu();
            f();
            println!("{front} {name} {} ns", (cpu() - at) / keys);
        };
        t("insert", &mut || (0..keys).for_each(|i| ins(mix(i))));
        t("insert new", &mut || (keys..2 * keys).for_each(|i| ins(mix(i))));
        t("insert 200k", &mut || (0..keys).for_each(|i| ins(mix(i % 200_000))));
        t("insert 2k", &mut || (0..keys).for_each(|i| ins(mix(i % 2_000))));
        let ask = |hash: u64| {
            kind.estimate(&state, &blk(hash), &Query { hash, now: 1, totals: Totals::default() })
                .unwrap()
                .count
        };
        let mut c = 0.0;
        t("query", &mut || (0..keys).for_each(|i| c += ask(mix(i))));
        t("query absent", &mut || (0..keys).for_each(|i| c += ask(mix(!i))));
        t("query hot", &mut || (0..keys).for_each(|i| c += ask(mix(i % 2000))));
        println!("{c}");
    }
    let m = 25_000_000_u64;
    let mut plain = vec![1_u32; m as usize];
    let at = cpu();
    for i in 0..keys {
        for j in 0..10_u64 {
            let p = crate::hash::scale(mix(mix(i) ^ j << 50), m) as usize;
            plain[p] = plain[p].saturating_add(256);
        }
    }
    println!("plain insert {}", (cpu() - at) / keys);
    let at = cpu();
    let mut c = 0_u64;
    for i in 0..keys {
        let mut l = u32::MAX;
        for j in 0..10_u64 {
            l = l.min(plain[crate::hash::scale(mix(mix(i) ^ j << 50), m) as usize]);
        }
        c += u64::from(l);
    }
    println!("plain query {} {c}", (cpu() - at) / keys);
}
