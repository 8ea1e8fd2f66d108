//! Undo of a change whose process died before it was complete.
//!
//! Counters cannot be incremented twice, so an interrupted operation must be undone before it is
//! applied again. Each stripe has an *undo area*. Before a word of a block is changed, its old
//! value is noted there. When the notes are full, the whole block is saved instead, as it was
//! before the change. The process that takes the stripe over from a dead owner restores the block's
//! old words. This step may be interrupted too, and is idempotent.
//!
//! A change of many words may also be made in *parts*, each of which is noted and then kept
//! ([`Undo::keep`]). What is kept is not undone: the block itself says how far the change has come,
//! and the operation continues from there when it is applied again.
//!
//! The area does not record whether a change was completed. The block's LSN does, which is set
//! after its last word: the area stores the LSN that the block had when the change began.
//!
//! A page of the image that the system could not write back may show an older count. Then notes may
//! be missing; but recovery rebuilds such an image, so the only promise is that nothing panics.
//!
//! Only the holder of the stripe uses the area, and only the process that takes the stripe over
//! reads it (detecting the holder's death is the Acquire). Modelled in `tests/loom/undo.rs`.

use crate::atomic::{AtomicU64, Ordering, fence};

const COUNT: usize = 0;
const BLOCK: usize = 1;
const LSN: usize = 2;
const NOTES: usize = 3;
const SAVED: usize = NOTES + 2 * MOST_NOTES;

/// Words that are noted one by one; nearly all operations change fewer.
const MOST_NOTES: usize = 62;

/// Marks a saved block: the count is then `ALL` plus the number of words saved, which are all the
/// block's words that have room.
const ALL: u64 = 1 << 32;

/// The room of an undo area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoRoom {
    /// There is no area.
    None,
    /// For the notes of this many words, at most 62: no operation changes more in one part.
    Notes(usize),
    /// For notes, and for a whole block.
    Block,
}

impl UndoRoom {
    /// Returns the words of an area for blocks of `block` words (kind words and cells), in whole
    /// cache lines.
    #[must_use]
    pub const fn area_words(self, block: usize) -> usize {
        let words = match self {
            Self::None => 0,
            Self::Notes(words) => NOTES + 2 * words,
            Self::Block => SAVED + block,
        };
        words.next_multiple_of(8)
    }
}

/// A stripe's undo area. Kinds whose operations are idempotent have none, and then nothing is
/// noted.
#[derive(Debug, Clone, Copy)]
pub struct Undo<'a>(&'a [AtomicU64]);

/// A change that may have been cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// The block's number in its bank.
    pub block: u64,
    /// The LSN that the block had. If it still has it, the change was not completed.
    pub lsn: u64,
}

impl<'a> Undo<'a> {
    /// No area: for private copies, and for kinds that need no undo.
    pub const NONE: Undo<'static> = Undo(&[]);

    /// Creates the area over these words, [`UndoRoom::area_words`] of them, or none.
    #[must_use]
    #[inline]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Self(words)
    }

    /// Begins the notes of a change of a block.
    #[inline]
    pub fn begin(&self, block: u64, lsn: u64) {
        if let [count, number, old, ..] = self.0 {
            count.store(0, Ordering::Relaxed);
            // Release fence: a takeover never finds notes of the previous change under this block's
            // number.
            fence(Ordering::Release);
            number.store(block, Ordering::Relaxed);
            old.store(lsn, Ordering::Relaxed);
        }
    }

    /// Notes a word that is about to change: `at` counts the block's kind words, then its cells.
    #[inline]
    pub fn note(&self, own: &[AtomicU64], cells: &[AtomicU64], at: usize, old: u64) {
        let Some(count) = self.0.first() else {
            return;
        };
        let noted = count.load(Ordering::Relaxed);
        if noted >= ALL {
            return;
        }
        let to = NOTES + 2 * noted as usize;
        match self.0.get(to..to + 2) {
            Some([place, value]) if to < SAVED => {
                place.store(at as u64, Ordering::Relaxed);
                value.store(old, Ordering::Relaxed);
                // Release: the note is complete before it is counted.
                count.store(noted + 1, Ordering::Release);
            }
            _ => self.save(own, cells),
        }
        // Release fence: the note is counted before the word changes.
        fence(Ordering::Release);
    }

    /// Notes cells from number `from` on that are about to change, at most as many as there is room
    /// for.
    #[inline]
    pub fn note_cells(&self, own: usize, from: usize, cells: &[AtomicU64]) {
        let Some(count) = self.0.first() else {
            return;
        };
        let noted = count.load(Ordering::Relaxed) as usize;
        let from_note = NOTES + 2 * noted.min(self.0.len());
        let notes = self.0.get(from_note..).unwrap_or_default().chunks_exact(2);
        let fits = noted.saturating_add(cells.len()) <= MOST_NOTES && cells.len() <= notes.len();
        check_room(fits);
        for ((note, at), word) in notes.zip(own + from..).zip(cells) {
            note[0].store(at as u64, Ordering::Relaxed);
            note[1].store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // Release: the notes are complete before they are counted.
        count.store(noted.saturating_add(cells.len()) as u64, Ordering::Release);
        // Release fence: the notes are counted before a word changes.
        fence(Ordering::Release);
    }

    /// Keeps the changes so far: they are not undone if the rest of the operation is cut off.
    #[inline]
    pub fn keep(&self) {
        if let Some(count) = self.0.first() {
            // Release: all words have changed before their notes end.
            count.store(0, Ordering::Release);
            // Release fence: a takeover never finds notes of the next part under the old count.
            fence(Ordering::Release);
        }
    }

    /// Notes that any of the words are about to change.
    pub fn note_all(&self, own: &[AtomicU64], cells: &[AtomicU64]) {
        let begun = self.0.first().map(|count| count.load(Ordering::Relaxed));
        if begun.is_some_and(|noted| noted < ALL) {
            self.save(own, cells);
        }
        // Release fence: all words are saved before any of them changes.
        fence(Ordering::Release);
    }

    /// Saves all words as they were before the change began.
    #[cold]
    fn save(&self, own: &[AtomicU64], cells: &[AtomicU64]) {
        let Some(saved) = self.0.get(SAVED..) else {
            check_room(false);
            return;
        };
        // In two runs: a chain of both would take four times the instructions.
        let (to_own, to_cells) = saved.split_at(own.len().min(saved.len()));
        for (from, to) in [(own, to_own), (cells, to_cells)] {
            for (to, from) in to.iter().zip(from) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        for (at, old) in self.notes() {
            if let Some(to) = saved.get(at) {
                to.store(old, Ordering::Relaxed);
            }
        }
        // Release: all words are saved before the count says so.
        self.0[COUNT].store(ALL + (own.len() + cells.len()) as u64, Ordering::Release);
    }

    /// Returns the notes, the latest first.
    fn notes(&self) -> impl Iterator<Item = (usize, u64)> {
        let room = (self.0.len().saturating_sub(NOTES) / 2).min(MOST_NOTES);
        let noted = (self.0[COUNT].load(Ordering::Relaxed) as usize).min(room);
        (0..noted).rev().map(|note| {
            let [at, old] =
                [0, 1].map(|word| self.0[NOTES + 2 * note + word].load(Ordering::Relaxed));
            (at as usize, old)
        })
    }

    /// Returns the change that was begun last, if it has changed anything that was not kept.
    #[must_use]
    pub fn begun(&self) -> Option<Begun> {
        let changed = self.0.first()?.load(Ordering::Acquire) != 0;
        let [block, lsn] = [BLOCK, LSN].map(|at| self.0[at].load(Ordering::Relaxed));
        changed.then_some(Begun { block, lsn })
    }

    /// Restores the block's old words. Idempotent: an interrupted restore is repeated.
    pub fn take_back(&self, own: &[AtomicU64], cells: &[AtomicU64]) {
        let Some(count) = self.0.first() else {
            return;
        };
        let words = || own.iter().chain(cells);
        let saved = count.load(Ordering::Relaxed).saturating_sub(ALL) as usize;
        if saved > 0 {
            let old_words = self.0.get(SAVED..).unwrap_or_default();
            for (to, from) in words().zip(old_words).take(saved) {
                // Unchanged words are not written: a block that grows may have no room there.
                let old = from.load(Ordering::Relaxed);
                if to.load(Ordering::Relaxed) != old {
                    to.store(old, Ordering::Relaxed);
                }
            }
        } else {
            for (at, old) in self.notes() {
                if let Some(word) = words().nth(at) {
                    word.store(old, Ordering::Relaxed);
                }
            }
        }
        // The notes end only after all words are restored.
        self.keep();
    }
}

/// In the tests of kinds, a change that does not fit is a mistake of the kind. Otherwise the count
/// may be that of an older page.
#[inline]
fn check_room(fits: bool) {
    debug_assert!(fits || !cfg!(test), "more changes than the area has room for");
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Kind words of the block, and cells.
    const OWN_WORDS: usize = 6;
    const CELLS: usize = 64;

    fn words(values: &[u64]) -> Vec<AtomicU64> {
        values.iter().map(|&value| AtomicU64::new(value)).collect()
    }

    fn values(words: &[AtomicU64]) -> Vec<u64> {
        words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    proptest! {
        #[test]
        fn a_block_is_as_it_was_however_much_was_changed(
            changes in prop::collection::vec((0..OWN_WORDS + CELLS, any::<u64>()), 0..200),
            before in prop::collection::vec(any::<u64>(), OWN_WORDS + CELLS),
        ) {
            let (own, cells) = (words(&before[..OWN_WORDS]), words(&before[OWN_WORDS..]));
            let area = words(&vec![7; UndoRoom::Block.area_words(OWN_WORDS + CELLS)]);
            let undo = Undo::new(&area);
            undo.begin(3, 17);
            prop_assert_eq!(undo.begun(), None);
            for &(at, new) in &changes {
                let word = own.iter().chain(&cells).nth(at).expect("a word of the block");
                undo.note(&own, &cells, at, word.load(Ordering::Relaxed));
                word.store(new, Ordering::Relaxed);
            }
            let begun = (!changes.is_empty()).then_some(Begun { block: 3, lsn: 17 });
            prop_assert_eq!(undo.begun(), begun);
            undo.take_back(&own, &cells);
            prop_assert_eq!([values(&own), values(&cells)].concat(), before);
            prop_assert_eq!(undo.begun(), None);
        }
    }

    proptest! {
        #[test]
        fn parts_that_were_kept_stay_and_the_last_one_is_undone(
            parts in prop::collection::vec((0..CELLS - 8, 1..8_usize, any::<bool>()), 1..20),
            before in prop::collection::vec(any::<u64>(), OWN_WORDS + CELLS),
        ) {
            let (own, cells) = (words(&before[..OWN_WORDS]), words(&before[OWN_WORDS..]));
            let room = UndoRoom::Notes(9);
            let area = words(&vec![7; room.area_words(OWN_WORDS + CELLS)]);
            prop_assert!(area.len() <= 24, "two words a note, three others");
            let undo = Undo::new(&area);
            undo.begin(3, 17);
            let mut expected = before;
            for (number, &(from, count, is_kept)) in (1..).zip(&parts) {
                undo.note_cells(OWN_WORDS, from, &cells[from..from + count]);
                undo.note(&own, &cells, 4, own[4].load(Ordering::Relaxed));
                own[4].store(number, Ordering::Relaxed);
                cells[from..from + count].iter().for_each(|c| c.store(number, Ordering::Relaxed));
                if is_kept {
                    undo.keep();
                    expected[4] = number;
                    expected[OWN_WORDS + from..OWN_WORDS + from + count].fill(number);
                } else {
                    undo.take_back(&own, &cells);
                }
                prop_assert_eq!(undo.begun(), None);
                prop_assert_eq!(&[values(&own), values(&cells)].concat(), &expected);
            }
        }
    }

    #[test]
    fn whatever_an_older_page_says_was_noted_nothing_panics() {
        let (own, cells) = (words(&[1; OWN_WORDS]), words(&[2; CELLS]));
        for room in [UndoRoom::Notes(9), UndoRoom::Block] {
            for count in [1, 9, 10, 62, 63, ALL - 1, ALL, ALL + 70, u64::MAX] {
                let area = words(&vec![count; room.area_words(OWN_WORDS + CELLS)]);
                let undo = Undo::new(&area);
                assert!(undo.begun().is_some());
                undo.take_back(&own, &cells);
                assert_eq!(undo.begun(), None);
            }
        }
    }

    #[test]
    fn without_an_area_nothing_is_noted() {
        let (own, cells) = (words(&[1; OWN_WORDS]), words(&[2; 8]));
        Undo::NONE.begin(1, 1);
        Undo::NONE.note(&own, &cells, 0, 5);
        Undo::NONE.take_back(&own, &cells);
        assert_eq!((Undo::NONE.begun(), values(&own)), (None, vec![1; OWN_WORDS]));
    }

    #[test]
    fn few_changes_are_noted_one_by_one_and_more_save_the_whole_block_once() {
        let (own, cells) = (words(&[1; OWN_WORDS]), words(&[2; CELLS]));
        let area = words(&vec![0; UndoRoom::Block.area_words(OWN_WORDS + CELLS)]);
        let undo = Undo::new(&area);
        undo.begin(3, 17);
        for count in 1..=MOST_NOTES as u64 {
            undo.note(&own, &cells, 5, count);
            assert_eq!(area[COUNT].load(Ordering::Relaxed), count);
        }
        for _ in 0..2 {
            undo.note(&own, &cells, 5, 99);
            let saved = ALL + (OWN_WORDS + CELLS) as u64;
            assert_eq!(area[COUNT].load(Ordering::Relaxed), saved);
        }
    }
}
