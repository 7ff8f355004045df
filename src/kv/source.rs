//! A payload as a state that a session can take: read once, front to back, each byte checked on the way.

use std::io::{Read, Seek, SeekFrom};

use super::container::Container;
use super::payload::{Head, StateHead};
use super::refusal::Refusal;
use crate::engine::StateSource;
use crate::model::{StateLayout, StatePart};
use crate::tokenizer::TokenId;

/// What a payload holds.
pub enum Loaded<'a, R> {
    /// Tokens alone, all of them checked: whoever loads this evaluates them.
    Tokens(Vec<TokenId>),
    /// A state.
    State(Source<'a, R>),
}

/// The state of a payload, on its way into a session. The parts must be asked for in the order of the layout.
pub struct Source<'a, R> {
    from: &'a mut R,
    layout: StateLayout,
    sum: u32,
    expected_sum: u32,
    left: u64,
    tokens: Vec<TokenId>,
    /// The layer whose parts are being read.
    layer: Option<usize>,
    refusal: Option<Refusal>,
}

impl<R: Read + Seek> Container<R> {
    /// Checks a payload against a session's layout and context, and reads its tokens. Nothing of a session is touched
    /// yet.
    ///
    /// # Errors
    /// When it was stripped, does not fit, or its size is not what its head says.
    pub fn load(&mut self, layout: &StateLayout, ctx: usize) -> Result<Loaded<'_, R>, Refusal> {
        let expected_sum = self.integrity()?.payload;
        let Some(head) = self.head()? else {
            return Err(Refusal::broken("the payload", "it was stripped"));
        };
        let (bytes, at) = (self.header().payload_bytes, self.header().payload_at());
        if head.tokens() as usize >= ctx {
            return Err(Refusal::TooLong { tokens: head.tokens().into(), ctx });
        }
        if let Head::State(head) = &head {
            check_size(head, layout, ctx, bytes)?;
        }
        let from = self.source();
        from.seek(SeekFrom::Start(at)).map_err(|e| Refusal::read("the payload", e))?;
        let layout = layout.clone();
        let (left, tokens) = (bytes, Vec::new());
        let mut source =
            Source { from, layout, sum: 0, expected_sum, left, tokens, layer: None, refusal: None };
        let mut skipped = vec![0; head.head_bytes()];
        source.take(&mut skipped, "the payload's head")?;
        source.read_tokens(head.tokens() as usize)?;
        if let Head::State(_) = head {
            return Ok(Loaded::State(source));
        }
        if source.sum != expected_sum {
            return Err(Refusal::Checksum { what: "the payload" });
        }
        Ok(Loaded::Tokens(source.tokens))
    }
}

fn check_size(
    head: &StateHead,
    layout: &StateLayout,
    ctx: usize,
    bytes: u64,
) -> Result<(), Refusal> {
    head.check(layout, ctx)?;
    let expected = head.payload_bytes(layout);
    if bytes < expected {
        return Err(Refusal::broken(
            "the payload's length",
            format!("{bytes}, expected {expected}"),
        ));
    }
    if bytes > expected {
        let why = format!("trailing bytes in session payload: {bytes}, expected {expected}");
        return Err(Refusal::broken("the payload's length", why));
    }
    Ok(())
}

impl<R: Read> Source<'_, R> {
    /// The tokens of the state.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Why the state was refused, once it was.
    pub fn into_refusal(self) -> Option<Refusal> {
        self.refusal
    }

    fn take(&mut self, out: &mut [u8], what: &'static str) -> Result<(), Refusal> {
        let left = self.left.checked_sub(out.len() as u64);
        self.left = left.ok_or(Refusal::Short { what })?;
        self.from.read_exact(out).map_err(|e| Refusal::read(what, e))?;
        self.sum = crc32c::crc32c_append(self.sum, out);
        Ok(())
    }

    /// The count is below the context, so memory is bounded.
    fn read_tokens(&mut self, count: usize) -> Result<(), Refusal> {
        let mut raw = vec![0; 4 * count];
        self.take(&mut raw, "the token ids")?;
        let ids =
            raw.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("four bytes")));
        self.tokens = ids.map(TokenId).collect();
        let vocab = self.layout.vocab;
        match self.tokens.iter().position(|id| id.index() >= vocab) {
            None => Ok(()),
            Some(at) => {
                let why =
                    format!("{} at position {at}, the vocabulary has {vocab}", self.tokens[at].0);
                Err(Refusal::broken("the token ids", why))
            }
        }
    }

    fn read_logits(&mut self, out: &mut [f32]) -> Result<(), Refusal> {
        self.take(bytemuck::cast_slice_mut(out), "the logits")?;
        match out.iter().position(|logit| !logit.is_finite()) {
            None => Ok(()),
            Some(at) => Err(Refusal::broken("the logits", format!("{} at {at}", out[at]))),
        }
    }

    fn read_part(&mut self, layer: usize, out: &mut [u8]) -> Result<(), Refusal> {
        if self.layer != Some(layer) {
            self.layer = Some(layer);
            if self.layout.is_full_attention(layer) {
                let mut rows = [0; 4];
                self.take(&mut rows, "the row count of a layer")?;
                let (found, n) = (u32::from_le_bytes(rows) as usize, self.tokens.len());
                if found != n {
                    let why = format!("{found} in layer {layer}, expected {n}");
                    return Err(Refusal::broken(
                        "KV checkpoint full-attention length mismatch",
                        why,
                    ));
                }
            }
        }
        self.take(out, "the layers")
    }

    /// Remembers what went wrong.
    fn note(&mut self, result: Result<(), Refusal>) -> bool {
        match result {
            Ok(()) => true,
            Err(refusal) => {
                self.refusal = Some(refusal);
                false
            }
        }
    }
}

impl<R: Read> StateSource for Source<'_, R> {
    fn logits(&mut self, out: &mut [f32]) -> bool {
        let read = self.read_logits(out);
        self.note(read)
    }

    fn part(&mut self, layer: usize, _part: &StatePart, out: &mut [u8]) -> bool {
        let read = self.read_part(layer, out);
        self.note(read)
    }

    fn end(&mut self) -> bool {
        let end = if self.left > 0 {
            Err(Refusal::broken("the payload's length", "trailing bytes in session payload"))
        } else if self.sum != self.expected_sum {
            Err(Refusal::Checksum { what: "the payload" })
        } else {
            Ok(())
        };
        self.note(end)
    }
}
