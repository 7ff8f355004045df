//! A vocabulary that stands in where there is no model file: bytes, the markers, and rows without meaning.

use super::special::{ADDED_TOKENS, PUBLISHED_FIRST};
use super::{Error, Tokenizer, VocabSource, alphabet};

impl Tokenizer {
    /// A vocabulary of `rows` rows: the bytes first, the markers of the chat format in their usual places or at the
    /// end, and fillers that nothing encodes to.
    ///
    /// # Errors
    /// When `rows` has no room for bytes and markers.
    pub fn stand_in(rows: usize) -> Result<Self, Error> {
        let usual = PUBLISHED_FIRST as usize;
        let markers = usual.min(rows.saturating_sub(ADDED_TOKENS.len()));
        let row = |index: usize| -> (Vec<u8>, i32) {
            let marker = index.checked_sub(markers).and_then(|i| ADDED_TOKENS.get(i));
            match (u8::try_from(index), marker) {
                (_, Some(text)) => (text.as_bytes().to_vec(), 3),
                (Ok(byte), None) => (alphabet::write(&[byte]).into_bytes(), 1),
                (Err(_), None) => (format!("({index})").into_bytes(), 1),
            }
        };
        let (tokens, types): (Vec<_>, Vec<_>) = (0..rows).map(row).unzip();
        Self::new(VocabSource {
            tokens: Box::new(tokens.iter().map(Vec::as_slice)),
            types: Box::new(types.into_iter()),
            merges: Box::new(std::iter::empty()),
            eos: None,
            bos: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_markers_are_there() {
        for rows in [300, 4096, 248_320] {
            let tokenizer = Tokenizer::stand_in(rows).unwrap();
            assert_eq!(tokenizer.vocab_size(), rows);
            let ids = tokenizer.encode_text(b"any text");
            assert_eq!(tokenizer.decode(&ids), b"any text");
        }
        assert!(Tokenizer::stand_in(100).is_err());
    }
}
