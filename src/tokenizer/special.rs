//! Added tokens: ids that are matched by their literal text, in control text only.

use super::{Error, Kind, TokenId, vocab::Vocab};

/// The markers that the chat format needs, found by text when a vocabulary is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Special {
    /// `<|im_start|>`: a turn begins.
    pub im_start: TokenId,
    /// `<|im_end|>`: a turn ends.
    pub im_end: TokenId,
    /// `<|endoftext|>`: a document ends.
    pub endoftext: TokenId,
    /// `<think>`
    pub think: TokenId,
    /// `</think>`
    pub think_end: TokenId,
    /// `<tool_call>`
    pub tool_call: TokenId,
    /// `</tool_call>`
    pub tool_call_end: TokenId,
    /// `<tool_response>`
    pub tool_response: TokenId,
    /// `</tool_response>`
    pub tool_response_end: TokenId,
}

impl Special {
    pub(super) fn find(added: &AddedTokens, vocab: &Vocab) -> Result<Self, Error> {
        let find = |text: &'static str| match added.at_start(vocab, text.as_bytes()) {
            Some((id, len)) if len == text.len() => Ok(id),
            _ => Err(Error::MissingSpecial { text }),
        };
        Ok(Self {
            im_start: find("<|im_start|>")?,
            im_end: find("<|im_end|>")?,
            endoftext: find("<|endoftext|>")?,
            think: find("<think>")?,
            think_end: find("</think>")?,
            tool_call: find("<tool_call>")?,
            tool_call_end: find("</tool_call>")?,
            tool_response: find("<tool_response>")?,
            tool_response_end: find("</tool_response>")?,
        })
    }
}

/// Rows of the published vocabulary.
const PUBLISHED_ROWS: usize = 248_320;

/// The first added token there.
pub(super) const PUBLISHED_FIRST: u32 = 248_044;

/// The added tokens of the model family, in the order of their ids (model.md 6.4).
pub const ADDED_TOKENS: [&str; 33] = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
];

/// A vocabulary of the published size must have the published markers in their places: anything else is a
/// damaged or a different model that happens to have as many rows.
pub(super) fn check_published(vocab: &Vocab) -> Result<(), Error> {
    if vocab.len() != PUBLISHED_ROWS {
        return Ok(());
    }
    for (row, expected) in (PUBLISHED_FIRST..).zip(ADDED_TOKENS) {
        let id = TokenId(row);
        if vocab.bytes(id) != expected.as_bytes() || !vocab.kind(id).is_added() {
            let found = match vocab.kind(id) {
                kind if kind.is_added() => vocab.spelling(id),
                kind => format!("{} ({kind:?})", vocab.spelling(id)),
            };
            return Err(Error::MovedSpecial { id, expected, found });
        }
    }
    Ok(())
}

/// Finds added tokens in text.
pub(super) struct AddedTokens {
    /// Sorted by first byte, then longest first.
    ids: Vec<TokenId>,
    /// Where in `ids` the texts with each first byte begin; the last entry is the end.
    first: Box<[u32; 257]>,
}

impl AddedTokens {
    pub(super) fn new(vocab: &Vocab) -> Self {
        let matched = |id: &TokenId| vocab.kind(*id).is_added() && !vocab.bytes(*id).is_empty();
        let mut ids: Vec<TokenId> = vocab.ids().filter(matched).collect();
        ids.sort_by_key(|&id| {
            let text = vocab.bytes(id);
            (text[0], std::cmp::Reverse(text.len()), id)
        });
        let mut first = Box::new([0; 257]);
        for &id in &ids {
            first[usize::from(vocab.bytes(id)[0]) + 1] += 1;
        }
        for byte in 0..256 {
            first[byte + 1] += first[byte];
        }
        Self { ids, first }
    }

    /// The longest added token that `text` begins with, and its length.
    pub(super) fn at_start(&self, vocab: &Vocab, text: &[u8]) -> Option<(TokenId, usize)> {
        let byte = usize::from(*text.first()?);
        let candidates = &self.ids[self.first[byte] as usize..self.first[byte + 1] as usize];
        let id = candidates.iter().copied().find(|&id| text.starts_with(vocab.bytes(id)))?;
        Some((id, vocab.bytes(id).len()))
    }

    /// The first added token in `text`: leftmost, then longest. Its byte offset, id and length.
    pub(super) fn next(&self, vocab: &Vocab, text: &[u8]) -> Option<(usize, TokenId, usize)> {
        (0..text.len())
            .filter(|&at| {
                let byte = usize::from(text[at]);
                self.first[byte] < self.first[byte + 1]
            })
            .find_map(|at| self.at_start(vocab, &text[at..]).map(|(id, len)| (at, id, len)))
    }
}

/// Whether users see the text of such a row (model.md 6.7).
pub(super) fn is_visible(kind: Kind) -> bool {
    match kind {
        Kind::Normal | Kind::Added | Kind::Byte => true,
        Kind::Unknown | Kind::Control | Kind::Unused => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::{
        Tokenizer,
        fixture::{ADDED, Sample},
    };

    #[test]
    fn longest_text_wins() {
        let tokenizer = Sample::new().tokenizer();
        let check = |text: &str, expected: &[&str]| {
            let ids = tokenizer.encode_control(text.as_bytes());
            let found: Vec<&[u8]> = ids.iter().map(|&id| tokenizer.bytes(id)).collect();
            let expected: Vec<&[u8]> = expected.iter().map(|t| t.as_bytes()).collect();
            assert_eq!(found, expected, "{text:?}");
        };
        check("<tts>!<tts>?<tts>", &["<tts>!", "<tts>", "?", "<tts>"]);
        check("<<think></think", &["<", "<think>", "<", "/", "t", "h", "in", "k"]);
        check("<think<think>", &["<", "t", "h", "in", "k", "<think>"]);
    }

    #[test]
    fn every_marker_of_the_chat_format_is_needed() {
        // The last two of the sample are its own.
        for (text, _) in &ADDED[..9] {
            let mut sample = Sample::new();
            let row = sample.tokens.iter().position(|t| t == text.as_bytes()).unwrap();
            sample.tokens[row] = b"<other>".to_vec();
            let error = Tokenizer::new(sample.source()).unwrap_err();
            assert_eq!(error, Error::MissingSpecial { text });
            let message = format!("tokenizer: required special token is missing: {text}");
            assert_eq!(error.to_string(), message);
        }
    }
}
