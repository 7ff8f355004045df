//! The tokenizer: everything a vocabulary can be asked.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use super::bpe::{self, Scratch};
use super::merges::MergeTable;
use super::prompt::{Encoder, MarkedIds, Segment};
use super::special::{self, AddedTokens, Special};
use super::vocab::Vocab;
use super::{Error, Kind, TokenId, TokenMask, VocabSource};

/// Text of ids, and where the added tokens among them stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MarkedText {
    /// Concatenated bytes, added tokens as their literal text.
    pub bytes: Vec<u8>,
    /// Byte offsets of the added tokens; ascending.
    pub markers: Vec<usize>,
}

/// A vocabulary with everything needed to use it. Shared between threads without locks.
pub struct Tokenizer {
    vocab: Vocab,
    merges: MergeTable,
    added: AddedTokens,
    special: Special,
    eos: Option<TokenId>,
    bos: Option<TokenId>,
    drawable: TokenMask,
    /// For each row whether merging its own bytes gives just that row, asked when its text first comes up as a
    /// whole piece. Most pieces of real text are one token; a few rows cannot be reached by merging, so being in
    /// the vocabulary is not enough.
    whole: Vec<AtomicU8>,
}

/// Values of [`Tokenizer::whole`].
const UNASKED: u8 = 0;
const WHOLE: u8 = 1;
const MERGED: u8 = 2;

impl Tokenizer {
    /// Builds a tokenizer: a tenth of a second for the published vocabulary.
    pub fn new(mut source: VocabSource<'_>) -> Result<Self, Error> {
        let vocab = Vocab::new(&mut source.tokens, &mut source.types)?;
        let merges = vocab.merges(&mut source.merges)?;
        let added = AddedTokens::new(&vocab);
        special::check_published(&vocab)?;
        let special = Special::find(&added, &vocab)?;
        let rows = vocab.len();
        let in_range = |key, id: Option<u32>| match id {
            Some(found) if found as usize >= rows => Err(Error::IdOutOfRange { key, found, rows }),
            _ => Ok(id.map(TokenId)),
        };
        let eos = in_range("tokenizer.ggml.eos_token_id", source.eos)?;
        let bos = in_range("tokenizer.ggml.bos_token_id", source.bos)?;
        let mut drawable = TokenMask::all(rows);
        for id in vocab.ids().filter(|&id| vocab.kind(id) == Kind::Unused) {
            drawable.remove(id);
        }
        let whole = (0..rows).map(|_| AtomicU8::new(UNASKED)).collect();
        Ok(Self { vocab, merges, added, special, eos, bos, drawable, whole })
    }

    /// Rows of the vocabulary, unused ones included: the length of a row of logits.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The markers of the chat format.
    pub fn special(&self) -> &Special {
        &self.special
    }

    /// The end id that the file names.
    pub fn eos(&self) -> Option<TokenId> {
        self.eos
    }

    /// The begin id that the file names; nothing is ever put in front of a prompt.
    pub fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// Whether generation stops at `id`: `<|im_end|>`, `<|endoftext|>` and the file's end id.
    pub fn is_end(&self, id: TokenId) -> bool {
        id == self.special.im_end || id == self.special.endoftext || Some(id) == self.eos
    }

    /// Rows that may be sampled: all but the unused (type 5), whose weights were never trained.
    pub fn drawable(&self) -> &TokenMask {
        &self.drawable
    }

    /// What a row is; an id beyond the rows is [`Kind::Unused`].
    pub fn kind(&self, id: TokenId) -> Kind {
        self.vocab.kind(id)
    }

    /// The bytes a row stands for: the literal text of an added token, nothing for an id beyond the rows.
    pub fn bytes(&self, id: TokenId) -> &[u8] {
        self.vocab.bytes(id)
    }

    /// The bytes a user sees of a row: nothing for control tokens and unused rows.
    pub fn visible_bytes(&self, id: TokenId) -> &[u8] {
        if special::is_visible(self.kind(id)) { self.bytes(id) } else { &[] }
    }

    /// How the model file spells a row, for dumps.
    pub fn spelling(&self, id: TokenId) -> String {
        self.vocab.spelling(id)
    }

    /// The added token with exactly this text.
    pub fn added_token(&self, text: &str) -> Option<TokenId> {
        let (id, len) = self.added.at_start(&self.vocab, text.as_bytes())?;
        (len == text.len()).then_some(id)
    }

    /// Ids of payload: added tokens in it are plain text.
    pub fn encode_text(&self, text: &[u8]) -> Vec<TokenId> {
        let mut encoder = Encoder::new(self, 0);
        encoder.run(text);
        encoder.finish().ids
    }

    /// Ids of control text: added tokens in it are recognised.
    pub fn encode_control(&self, text: &[u8]) -> Vec<TokenId> {
        let mut encoder = Encoder::new(self, 0);
        encoder.control(text);
        encoder.finish().ids
    }

    /// Ids of a prompt. Text between two added tokens is tokenized as one run, whatever segments it comes from:
    /// merging crosses their borders (model.md 6.5).
    pub fn encode_prompt(&self, segments: &[Segment<'_>]) -> Vec<TokenId> {
        self.encode_prompt_marked(segments).ids
    }

    /// Ids of a prompt and the byte offsets of its added tokens.
    pub fn encode_prompt_marked(&self, segments: &[Segment<'_>]) -> MarkedIds {
        let mut encoder = Encoder::new(self, 0);
        encoder.segments(segments);
        encoder.finish()
    }

    /// Ids of what a prompt has from byte `start` on, for a prefix whose ids are known already. `None` when
    /// `start` is inside an added token or beyond the end: such a prefix is none of this prompt.
    pub fn encode_prompt_from(&self, segments: &[Segment<'_>], start: usize) -> Option<MarkedIds> {
        let mut encoder = Encoder::new(self, start);
        encoder.segments(segments);
        (!encoder.is_cut()).then(|| encoder.finish())
    }

    /// The text of ids, and where the added tokens among them stand.
    pub fn text(&self, ids: &[TokenId]) -> MarkedText {
        let mut text = MarkedText::default();
        for &id in ids {
            if self.kind(id).is_added() {
                text.markers.push(text.bytes.len());
            }
            text.bytes.extend_from_slice(self.bytes(id));
        }
        text
    }

    /// The concatenated bytes of ids.
    pub fn decode(&self, ids: &[TokenId]) -> Vec<u8> {
        ids.iter().flat_map(|&id| self.bytes(id)).copied().collect()
    }

    /// The first added token in `text`: byte offset, id and length.
    pub(super) fn next_added(&self, text: &[u8]) -> Option<(usize, TokenId, usize)> {
        self.added.next(&self.vocab, text)
    }

    /// Appends the ids of one piece.
    pub(super) fn piece(&self, piece: &[u8], scratch: &mut Scratch, out: &mut Vec<TokenId>) {
        let Some(row) = self.vocab.find(piece) else {
            return bpe::encode_piece(&self.vocab, &self.merges, piece, scratch, out);
        };
        let whole = &self.whole[row as usize];
        // A race asks twice and finds the same answer.
        match whole.load(Ordering::Relaxed) {
            WHOLE => out.push(TokenId(row)),
            state => {
                let start = out.len();
                bpe::encode_piece(&self.vocab, &self.merges, piece, scratch, out);
                if state == UNASKED {
                    let is_whole = out[start..] == [TokenId(row)];
                    whole.store(if is_whole { WHOLE } else { MERGED }, Ordering::Relaxed);
                }
            }
        }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("rows", &self.vocab.len()).finish_non_exhaustive()
    }
}
