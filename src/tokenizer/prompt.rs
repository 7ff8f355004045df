//! Prompts: segments of control and payload text to ids.
//!
//! Segments are not tokenized one by one: merging crosses their borders, so that `<function=` and `f` of a name
//! share the token `=f`. Everything between two added tokens is one run (model.md 6.5).

use super::bpe::Scratch;
use super::{TokenId, Tokenizer, split};

/// A stretch of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'a> {
    /// A constant of the program: added tokens in it are recognised.
    Control(&'a str),
    /// Text of a user, a tool or a file: never an added token.
    Payload(&'a str),
}

/// Ids of a prompt, and where its added tokens stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MarkedIds {
    /// The prompt.
    pub ids: Vec<TokenId>,
    /// Byte offsets, in the concatenated text, of its added tokens; ascending.
    pub markers: Vec<usize>,
}

/// A prompt on its way to ids.
pub(super) struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    scratch: Scratch,
    /// Plain text since the last added token.
    pending: Vec<u8>,
    /// Bytes of the prompt that were read.
    at: usize,
    /// Bytes that are skipped.
    start: usize,
    /// An added token straddles `start`.
    cut: bool,
    out: MarkedIds,
}

impl<'a> Encoder<'a> {
    /// One that skips `start` bytes of the prompt.
    pub(super) fn new(tokenizer: &'a Tokenizer, start: usize) -> Self {
        Self {
            tokenizer,
            scratch: Scratch::default(),
            pending: Vec::new(),
            at: 0,
            start,
            cut: false,
            out: MarkedIds::default(),
        }
    }

    /// Reads a prompt.
    pub(super) fn segments(&mut self, segments: &[Segment<'_>]) {
        for segment in segments {
            match segment {
                Segment::Control(text) => self.control(text.as_bytes()),
                Segment::Payload(text) => self.plain(text.as_bytes()),
            }
        }
    }

    /// Reads text in which added tokens are recognised.
    pub(super) fn control(&mut self, mut text: &[u8]) {
        while let Some((offset, id, len)) = self.tokenizer.next_added(text) {
            self.plain(&text[..offset]);
            self.added(id, len);
            text = &text[offset + len..];
        }
        self.plain(text);
    }

    fn plain(&mut self, text: &[u8]) {
        let skipped = self.start.saturating_sub(self.at).min(text.len());
        self.pending.extend_from_slice(&text[skipped..]);
        self.at += text.len();
    }

    fn added(&mut self, id: TokenId, len: usize) {
        if self.at >= self.start {
            self.flush();
            self.out.markers.push(self.at);
            self.out.ids.push(id);
        } else if self.at + len > self.start {
            self.cut = true;
        }
        self.at += len;
    }

    /// Whether the skipped bytes end inside an added token or beyond what was read.
    pub(super) fn is_cut(&self) -> bool {
        self.cut || self.at < self.start
    }

    /// Tokenizes one run.
    pub(super) fn run(&mut self, text: &[u8]) {
        for piece in split::pieces(text) {
            self.tokenizer.piece(piece, &mut self.scratch, &mut self.out.ids);
        }
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.pending);
        self.run(&text);
        self.pending = text;
        self.pending.clear();
    }

    /// Tokenizes what is left.
    pub(super) fn finish(mut self) -> MarkedIds {
        self.flush();
        self.out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Segment::{Control, Payload};
    use super::*;
    use crate::tokenizer::fixture::Sample;

    /// The texts of a prompt's tokens.
    fn check(segments: &[Segment<'_>], expected: &[&str]) {
        let tokenizer = Sample::new().tokenizer();
        let ids = tokenizer.encode_prompt(segments);
        let found: Vec<&str> =
            ids.iter().map(|&id| std::str::from_utf8(tokenizer.bytes(id)).unwrap()).collect();
        assert_eq!(found, expected, "{segments:?}");
    }

    #[test]
    fn merging_crosses_segments() {
        check(&[Control("="), Payload("f"), Control(">")], &["=f", ">"]);
        check(&[Control(">\n"), Payload(""), Control("\n<")], &[">", "\n\n", "<"]);
        check(&[Payload("a"), Payload("aa"), Payload("a")], &["aaaa"]);
        check(&[Control("<think>\n"), Payload("\n")], &["<think>", "\n\n"]);
    }

    #[test]
    fn payload_has_no_added_tokens() {
        check(&[Payload("<tts>")], &["<", "t", "t", "s", ">"]);
        check(&[Payload("<t"), Control("ts>")], &["<", "t", "t", "s", ">"]);
        check(
            &[Control("<t"), Payload("ts>"), Control("<tts>")],
            &["<", "t", "t", "s", ">", "<tts>"],
        );
    }

    #[test]
    fn a_row_that_merging_does_not_reach_is_not_used() {
        let tokenizer = Sample::new().tokenizer();
        // Twice: the second time the answer is known.
        for _ in 0..2 {
            assert_eq!(tokenizer.decode(&tokenizer.encode_text(b"zzz")), b"zzz");
            assert_eq!(tokenizer.encode_text(b"zzz").len(), 3);
            assert_eq!(tokenizer.encode_text(b"ing").len(), 1);
        }
    }

    #[test]
    fn a_known_prefix_is_skipped() {
        let tokenizer = Sample::new().tokenizer();
        let prompt =
            [Control("<think>"), Payload("the<think>"), Control("</think>"), Payload("aa")];
        let all = tokenizer.encode_prompt_marked(&prompt);
        assert_eq!(all.markers, [0, 17]);
        assert_eq!(tokenizer.encode_prompt_from(&prompt, 0), Some(all.clone()));
        for start in (1..7).chain(18..25).chain(28..30) {
            assert_eq!(tokenizer.encode_prompt_from(&prompt, start), None, "{start}");
        }
        for start in (7..18).chain(25..28) {
            let rest = tokenizer.encode_prompt_from(&prompt, start).unwrap();
            assert_eq!(rest.markers, &[17][..usize::from(start <= 17)]);
            assert_eq!(tokenizer.decode(&rest.ids), tokenizer.decode(&all.ids)[start..]);
        }
    }

    /// Text that often is or nearly is a marker.
    fn text() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            prop::sample::select(
                &[
                    "<think>",
                    "</think>",
                    "<tts>",
                    "<tts>!",
                    "<|im_end|>",
                    "<",
                    "think>",
                    "=f",
                    "\n",
                    "é"
                ][..]
            )
            .prop_map(str::to_owned),
            "[a-f <>!\n]{0,6}",
            any::<String>(),
        ];
        prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes: Vec<u8>) {
            let tokenizer = Sample::new().tokenizer();
            prop_assert_eq!(tokenizer.decode(&tokenizer.encode_text(&bytes)), bytes.clone());
            prop_assert_eq!(tokenizer.decode(&tokenizer.encode_control(&bytes)), bytes);
        }

        #[test]
        fn prompts_keep_their_bytes_and_markers(parts in prop::collection::vec((any::<bool>(), text()), 0..6)) {
            let tokenizer = Sample::new().tokenizer();
            let segments: Vec<Segment<'_>> =
                parts.iter().map(|(c, t)| if *c { Control(t) } else { Payload(t) }).collect();
            let marked = tokenizer.encode_prompt_marked(&segments);
            let whole: String = parts.iter().map(|p| p.1.as_str()).collect();
            let text = tokenizer.text(&marked.ids);
            prop_assert_eq!(&text.bytes, whole.as_bytes());
            prop_assert_eq!(text.markers, marked.markers);
            // Payload alone gives none, whatever it spells.
            let payload: Vec<Segment<'_>> = parts.iter().map(|p| Payload(&p.1)).collect();
            let plain = tokenizer.encode_prompt_marked(&payload);
            prop_assert_eq!(plain.markers, Vec::<usize>::new());
            prop_assert_eq!(plain.ids, tokenizer.encode_text(whole.as_bytes()));
            // Control text in one segment is what the control encoder sees.
            prop_assert_eq!(
                tokenizer.encode_prompt(&[Control(&whole)]),
                tokenizer.encode_control(whole.as_bytes())
            );
        }
    }
}
