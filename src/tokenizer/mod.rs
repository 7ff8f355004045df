//! Byte-level BPE of the `qwen35` vocabulary: text to ids and back.

/// Index of a vocabulary row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u32);

impl TokenId {
    /// As an index into a row of logits.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
