//! The fuzzer's bytes, read one after the other; zeros after the end.

/// The rest of an input.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    /// Returns whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    /// Returns the next two bytes as a number.
    pub fn short(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    /// Returns a number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        (if end > 256 { self.short() } else { self.byte().into() }) % end
    }

    /// Returns a word, frequently one at which arithmetic breaks.
    pub fn word(&mut self) -> u64 {
        let (form, small) = (self.byte(), u64::from(self.byte()));
        match form % 10 {
            0 => small,
            1 | 7 => u64::MAX - small % 8,
            2 => 1 << (small % 64),
            3 => (1 << (small % 64)) - 1,
            4 => small << 8 | u64::from(self.byte()),
            5 => small << 32 | u64::from(self.byte()),
            // The word of a stripe's lock: waiters, session slot and incarnation.
            6 => small & 1 | (small >> 1) << 1 | u64::from(self.byte()) << 16,
            _ => {
                let mut word = [small as u8; 8];
                word[1..].fill_with(|| self.byte());
                u64::from_le_bytes(word)
            }
        }
    }

    /// Returns a changed word.
    pub fn changed(&mut self, old: u64) -> u64 {
        match self.byte() % 4 {
            0 => old ^ 1 << (self.byte() % 64),
            1 => old.wrapping_add(self.byte() as i8 as u64),
            _ => self.word(),
        }
    }
}
