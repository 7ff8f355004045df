//! Digests of a text and of its beginnings, all in one pass.
//!
//! A text's key is, for each full KiB of it, eight bytes of the SHA-1 of everything up to there. So the key of a
//! beginning is a beginning of the key, and whole texts need be compared only where keys meet.

use sha1::{Digest as _, Sha1};

/// Bytes of text for each piece of a key.
pub const BLOCK_BYTES: usize = 1024;
/// Bytes of a piece of a key.
pub const PIECE_BYTES: usize = 8;

/// A text with the digests of its beginnings.
pub struct Chain<'a> {
    text: &'a [u8],
    key: Vec<u8>,
    /// After each full block, from none on.
    states: Vec<Sha1>,
}

impl<'a> Chain<'a> {
    /// Reads the text once.
    pub fn new(text: &'a [u8]) -> Self {
        let mut state = Sha1::new();
        let mut chain = Self { text, key: Vec::new(), states: vec![state.clone()] };
        for block in text.chunks_exact(BLOCK_BYTES) {
            state.update(block);
            chain.key.extend(&state.clone().finalize()[..PIECE_BYTES]);
            chain.states.push(state.clone());
        }
        chain
    }

    /// The key of the whole text.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// SHA-1 of the first `len` bytes.
    ///
    /// # Panics
    /// When the text is shorter.
    pub fn digest(&self, len: usize) -> [u8; 20] {
        let blocks = len / BLOCK_BYTES;
        let mut state = self.states[blocks].clone();
        state.update(&self.text[blocks * BLOCK_BYTES..len]);
        state.finalize().into()
    }
}

/// Bytes of the key of a text of so many bytes.
pub(super) fn key_bytes(text_bytes: usize) -> usize {
    text_bytes / BLOCK_BYTES * PIECE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::hex;

    #[test]
    fn a_beginning_has_a_beginning_of_the_key() {
        let text: Vec<u8> =
            (0..5000_u32).map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1]).collect();
        let whole = Chain::new(&text);
        assert_eq!(whole.key().len(), key_bytes(text.len()));
        for len in [0, 1, 1023, 1024, 1025, 4096, 4999, 5000] {
            let part = Chain::new(&text[..len]);
            assert_eq!(part.key(), &whole.key()[..key_bytes(len)]);
            assert_eq!(hex::encode(&whole.digest(len)), hex::sha1(&text[..len]));
        }
        let first = whole.digest(1024);
        assert_eq!(whole.key()[..8], first[..8]);
    }
}
