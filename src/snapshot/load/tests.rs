//! What a snapshot must hold to be loaded.

use crate::format::names::FileName;
use crate::image::identity::Identity;
use crate::media::Memory;
use crate::snapshot::ChecksumSeed;
use crate::snapshot::frame_writer::SnapshotWriter;
use crate::snapshot::load::*;
use crate::{Bloom, Spec};
use ebbtide_core::block::Layout;
use std::sync::Arc;

const LAYOUT: Layout = Layout { stripes: 2, block_words: 64 };

fn made() -> Arc<dyn Media> {
    let media = Memory::with_capacity(1 << 20);
    media.make().expect("nothing fails");
    Arc::new(media)
}

/// Writes the snapshot that starts at 1.
fn snapshot(media: &dyn Media, end: u64, frames: &[(Frame, &[u64])]) -> String {
    let name = FileName::Snapshot { start: 1 }.to_string();
    let mut writer =
        SnapshotWriter::create(media, &name, ChecksumSeed::new(7, 1, 1)).expect("room");
    for (frame, words) in frames {
        writer.frame(frame, words).expect("room");
    }
    let header = SnapshotHeader { uuid: 7, timeline: 1, start: 1, end, frames: 0, bytes: 0 };
    writer.finish(header).expect("room");
    name
}

/// Returns the state block of a filter whose bank has this many blocks per stripe, with this many
/// words each.
fn state(blocks: u64, block: u64) -> [u64; OWN_WORDS + STATE_WORDS] {
    let mut words = [0; OWN_WORDS + STATE_WORDS];
    words[OWN_WORDS..OWN_WORDS + 2].copy_from_slice(&[1, blocks << 32 | block]);
    words
}

fn load_into_new(media: &Arc<dyn Media>, kind: &dyn Kind) -> Result<Image> {
    let identity = Identity {
        uuid: 7,
        timeline: 2,
        boot: 1,
        inode: 0,
        device: 0,
        stripes: 2,
        state_words: 64,
    };
    let image = Image::create(media.clone(), "image", identity, LAYOUT, kind);
    load((&**media, 7, 1), kind, image.expect("room"), &|| {}).map(|(image, _)| image)
}

const STATE: Frame = Frame { content: Content::State, bank: 0, index: 0, lsn: 1 };

#[test]
fn a_snapshot_that_lists_more_blocks_than_it_holds_or_none_is_damage_and_takes_no_space() {
    let kind = Bloom::capacity(100).kind().expect("a kind");
    for (blocks, block) in [(1 << 20, 64), (1, 64), (0, 64), (1, 0), (1, u32::MAX.into())] {
        let media = made();
        let name = snapshot(&*media, 1, &[(STATE, &state(blocks, block))]);
        let loaded = load_into_new(&media, &*kind);
        assert!(matches!(loaded, Err(Error::Damaged { .. })), "{blocks} {block}: {loaded:?}");
        assert_eq!(media.list().expect("a directory"), ["image", &name], "no bank");
    }
}

#[test]
fn a_snapshot_with_frames_of_what_the_filter_has_not_is_damage() {
    let kind = Bloom::capacity(100).kind().expect("a kind");
    let most = OWN_WORDS + 64;
    let words: Vec<u64> = (1..).take(most + 1).collect();
    // One bank with one block per stripe. Loads these three stripes and two blocks (bank, number,
    // words).
    let loaded = |stripes: [u64; 3], sums: usize, blocks: [(u32, u64, usize); 2]| {
        let (media, state) = (made(), state(1, 64));
        let mut frames = vec![(STATE, &state[..])];
        for index in stripes {
            let content = Content::Stripe;
            frames.push((Frame { content, bank: 0, index, lsn: 5 + index % 8 }, &words[..sums]));
        }
        for (bank, index, length) in blocks {
            let content = Content::Block;
            frames.push((Frame { content, bank, index, lsn: 7 }, &words[..length]));
        }
        snapshot(&*media, 9, &frames);
        load_into_new(&media, &*kind)
    };
    let (stripes, blocks) = ([2, 0, 1], [(0, 1, most), (0, 0, OWN_WORDS)]);
    let image = loaded(stripes, 3, blocks).expect("it is sound");
    for stripe in 0..3 {
        let sums = StripeSums { lsn: 5 + stripe as u64, inserts: 1, time: 2, new_bits: 3 };
        assert_eq!(image.header().stripe(stripe).sums(), sums);
    }
    let banks = image.keep_banks();
    for (index, cells) in [(0, [0, 0]), (1, [7, 70])] {
        let (header, block) = banks.get(0).expect("a bank").block(index);
        assert_eq!((header.lsn(), block.own(0), block.own(5)), (7, 1, 6));
        assert_eq!([block.word(0), block.word(63)], cells);
    }
    for (stripes, sums, blocks) in [
        ([0, 1, 3], 3, blocks),
        ([0, 1, u64::MAX], 3, blocks),
        (stripes, 2, blocks),
        (stripes, 4, blocks),
        (stripes, 3, [(0, 0, most), (0, 2, most)]),
        (stripes, 3, [(0, 0, most), (1, 1, most)]),
        (stripes, 3, [(0, 0, most), (0, 1, most + 1)]),
        (stripes, 3, [(0, 0, most), (0, 1, OWN_WORDS - 1)]),
    ] {
        let loaded = loaded(stripes, sums, blocks);
        assert!(matches!(loaded, Err(Error::Damaged { .. })), "{stripes:?} {sums} {blocks:?}");
    }
}

/// Loads the snapshot of a bank with one block per stripe, with this state, and with these frames
/// besides.
fn load_with(state: &[u64], others: &[(Content, &[u64])]) -> Result<Image> {
    let media: Arc<dyn Media> = Arc::new(Memory::new());
    media.make().expect("nothing fails");
    let words: Vec<u64> = (1..).take(OWN_WORDS).collect();
    let mut frames = vec![(STATE, state)];
    let frame = |content, index| Frame { content, bank: 0, index, lsn: 7 };
    frames.extend((0..3).map(|index| (frame(Content::Stripe, index), &words[..3])));
    frames.extend((0..2).map(|index| (frame(Content::Block, index), &words[..])));
    frames.extend(others.iter().map(|&(content, words)| (frame(content, 0), words)));
    snapshot(&*media, 9, &frames);
    load_into_new(&media, &*Bloom::capacity(100).kind().expect("a kind"))
}

#[test]
fn a_state_is_loaded_without_the_zeros_at_its_end_and_never_beyond_its_room() {
    let mut words = vec![0; OWN_WORDS + STATE_WORDS + 1];
    words[..OWN_WORDS + STATE_WORDS].copy_from_slice(&state(1, 64));
    for length in [OWN_WORDS + 2, OWN_WORDS + 64, OWN_WORDS + STATE_WORDS] {
        let image = load_with(&words[..length], &[]).expect("it is sound");
        assert_eq!(image.keep_banks().iter().count(), 1);
    }
    for length in [0, OWN_WORDS - 1, OWN_WORDS + STATE_WORDS + 1] {
        let loaded = load_with(&words[..length], &[]);
        assert!(matches!(loaded, Err(Error::Damaged { .. })), "{length}: {loaded:?}");
    }
    // The image has room for 64 words of the state.
    words[OWN_WORDS + 64] = 1;
    let loaded = load_with(&words[..OWN_WORDS + STATE_WORDS], &[]);
    assert!(matches!(loaded, Err(Error::Damaged { .. })), "{loaded:?}");
}

#[test]
fn positions_and_claims_are_loaded_as_they_were_and_those_that_cannot_be_are_damage() {
    let state = &state(1, 64)[..];
    let positions = (Content::Positions, &[1, 10, 2, 20][..]);
    // The latest time and token, then claims.
    let claims = (Content::Claims, &[100, 3, 7, 1, 50, 90, 9, 3, 60, 95][..]);
    let image = load_with(state, &[positions, claims]).expect("it is sound");
    let found: Vec<[u64; 2]> =
        image.header().positions().all().into_iter().map(<[u64; 2]>::from).collect();
    assert_eq!(found, [[1, 10], [2, 20]]);
    let held = image.header().claims();
    let (latest, seven) = (held.latest(), held.get(7).expect("a claim"));
    assert_eq!((latest.time, latest.token, held.all().len()), (100, 3, 2));
    assert_eq!((seven.token, seven.since, seven.deadline), (1, 50, 90));
    let many: Vec<u64> = (0..).take(2 * MOST_SOURCES).collect();
    load_with(state, &[(Content::Positions, &many[..])]).expect("as many as there may be");
    let too_many: Vec<u64> = (0..).take(2 * MOST_SOURCES + 2).collect();
    for others in [
        &[positions, positions][..],
        &[(Content::Positions, &[1, 10, 2])],
        &[(Content::Positions, &too_many)],
        &[(Content::Claims, &[100])],
        &[(Content::Claims, &[100, 3, 7, 1, 50])],
        &[(Content::Claims, &[100, 3, 7, 1, 50, 90, 7, 3, 60, 95])],
        &[claims, claims],
    ] {
        let loaded = load_with(state, others);
        assert!(matches!(loaded, Err(Error::Damaged { .. })), "{others:?}: {loaded:?}");
    }
}
