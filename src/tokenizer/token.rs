//! What a vocabulary row is: its id and its kind.

use std::fmt;

/// Index of a vocabulary row.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, bytemuck::TransparentWrapper,
)]
#[repr(transparent)]
pub struct TokenId(pub u32);

impl TokenId {
    /// As an index into a row of logits.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a row stands for; the values of `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Type 1: bytes, spelled in the byte alphabet.
    Normal,
    /// Type 2: stands for text that has no other token; a byte-level vocabulary has none.
    Unknown,
    /// Type 3: a marker such as `<|im_end|>`, spelled literally, invisible to users.
    Control,
    /// Type 4, "user-defined": spelled literally, a single id, but visible text (`<think>`).
    Added,
    /// Type 5: a padding row that was never trained.
    Unused,
    /// Type 6: one byte, spelled `<0xNN>` or in the byte alphabet.
    Byte,
}

impl Kind {
    /// The kind with this GGUF number.
    pub(super) fn from_gguf(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Normal),
            2 => Some(Self::Unknown),
            3 => Some(Self::Control),
            4 => Some(Self::Added),
            5 => Some(Self::Unused),
            6 => Some(Self::Byte),
            _ => None,
        }
    }

    /// Whether the row is matched by its text in control text: the "added tokens" of model.md 6.4.
    pub fn is_added(self) -> bool {
        matches!(self, Self::Control | Self::Added)
    }
}
