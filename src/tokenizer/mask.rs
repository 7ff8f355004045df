//! A set of vocabulary rows: which tokens may be drawn.

use super::TokenId;

/// One bit for each row. Rows beyond the length are not in the set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u64>,
    len: usize,
}

impl TokenMask {
    /// All of `len` rows.
    pub fn all(len: usize) -> Self {
        let mut mask = Self { words: vec![u64::MAX; len.div_ceil(64)], len };
        if !len.is_multiple_of(64)
            && let Some(last) = mask.words.last_mut()
        {
            *last = (1 << (len % 64)) - 1;
        }
        mask
    }

    /// None of `len` rows.
    pub fn none(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], len }
    }

    /// The first `len` rows of these words, as [`TokenMask::words`] gives them. Words that are missing hold no row.
    pub fn from_words(words: impl IntoIterator<Item = u64>, len: usize) -> Self {
        let mut mask = Self::all(len);
        let mut words = words.into_iter();
        for word in &mut mask.words {
            *word &= words.next().unwrap_or(0);
        }
        mask
    }

    /// Rows it speaks about.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no row is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }

    /// Rows in the set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether `id` is in the set.
    pub fn contains(&self, id: TokenId) -> bool {
        let word = self.words.get(id.index() / 64).copied().unwrap_or(0);
        word >> (id.index() % 64) & 1 == 1
    }

    /// Adds `id`; beyond the length it is ignored.
    pub fn insert(&mut self, id: TokenId) {
        if id.index() < self.len {
            self.words[id.index() / 64] |= 1 << (id.index() % 64);
        }
    }

    /// Takes `id` out.
    pub fn remove(&mut self, id: TokenId) {
        if id.index() < self.len {
            self.words[id.index() / 64] &= !(1 << (id.index() % 64));
        }
    }

    /// Keeps what is also in `other`.
    pub fn intersect(&mut self, other: &Self) {
        for (i, word) in self.words.iter_mut().enumerate() {
            *word &= other.words.get(i).copied().unwrap_or(0);
        }
    }

    /// Sixty-four rows in a word, the lowest row in the lowest bit.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_and_go() {
        for len in [0, 1, 63, 64, 65, 200] {
            let mut mask = TokenMask::all(len);
            assert_eq!(mask.count(), len);
            assert_eq!(mask.is_empty(), len == 0);
            assert_eq!(
                TokenMask::from_words([u64::MAX; 5], len),
                mask,
                "what is beyond is cut off"
            );
            assert!(TokenMask::from_words([], len).is_empty());
            let past = TokenId(u32::try_from(len).unwrap());
            mask.insert(past);
            assert!(!mask.contains(past));
            if len > 0 {
                mask.remove(TokenId(0));
                assert!(!mask.contains(TokenId(0)));
                assert_eq!(mask.count(), len - 1);
                let mut some = TokenMask::none(len);
                some.insert(TokenId(0));
                assert_eq!(some.count(), 1);
                some.intersect(&mask);
                assert!(some.is_empty());
                let copy = TokenMask::from_words(mask.words().iter().copied(), len);
                assert_eq!(copy, mask);
            }
        }
    }
}
