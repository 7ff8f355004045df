//! A chunk of a prompt, one slice after the other.
//!
//! A chunk has its own working memory and writes a slot nobody reads, so steps of other sequences may run between two
//! of its slices, and dropping it there costs nothing. Where slices end changes no bit. One chunk is open at a time.

use super::Error;
use super::backend::{Backend, int};
use super::prefill::Progress;
use super::sampling::found;
use super::step::{Chunk, Found, Kv, Row};
use crate::kernels::control;
use std::time::{Duration, Instant};

/// The chunk that is under way.
pub(super) struct OpenChunk {
    record: control::Row,
    tokens: Vec<u32>,
    /// Whether logits after its last token are wanted.
    logits: bool,
    progress: Progress,
    /// Time in slices so far.
    spent: Duration,
}

/// How a slice ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Sliced {
    /// Layers are left.
    Open,
    /// The chunk is through; what was found among the logits, when some were wanted.
    Done(Option<Found>),
}

impl Backend {
    /// Opens a chunk of consecutive tokens of one sequence; [`Backend::advance`] runs it. From then on the target slot
    /// and the K/V rows of the chunk mean nothing until it is through; the source slot stays as it is.
    ///
    /// # Errors
    /// When the chunk does not fit what the backend was made for, or another one is open.
    pub fn begin(&mut self, kv: &Kv, chunk: &Chunk<'_>) -> Result<(), Error> {
        if self.open.is_some() {
            return Err(Error::Step("another chunk is open".to_owned()));
        }
        let &[first, ..] = chunk.tokens else {
            return Err(Error::Step("a chunk of no tokens".to_owned()));
        };
        let (source, target, sieve) = (chunk.source, chunk.target, chunk.sieve);
        let row = Row { kv, token: first, pos: chunk.pos, source, target, sieve };
        for (i, &token) in chunk.tokens.iter().enumerate() {
            self.check_row(&Row { token, pos: chunk.pos + i, ..row })?;
        }
        if source == target || chunk.tokens.len() > self.options.chunk {
            let (found, most) = (chunk.tokens.len(), self.options.chunk);
            let why = format!("{found} tokens in a chunk of at most {most}, to another slot");
            return Err(Error::Step(why));
        }
        let record = control::Row {
            tokens: int(chunk.tokens.len()),
            query_tokens: int(chunk.tokens.len()),
            ..self.record(&row)?
        };
        self.open = Some(OpenChunk {
            record,
            tokens: chunk.tokens.to_vec(),
            logits: chunk.logits,
            progress: self.prefill.start(chunk.pos, chunk.tokens.len()),
            spent: Duration::ZERO,
        });
        Ok(())
    }

    /// Runs the next slice of the open chunk: what is expected to take no longer than `limit`, but a layer at least, or,
    /// where attention is longer than that, some of its query rows. After an error the chunk is gone.
    ///
    /// # Errors
    /// When no chunk is open, the device fails, or a logit is not finite.
    pub fn advance(&mut self, limit: Duration) -> Result<Sliced, Error> {
        let mut chunk = self.open.take().ok_or_else(|| Error::Step("no chunk is open".into()))?;
        let begin = Instant::now();
        let input = (&chunk.record, chunk.tokens.as_slice());
        let allowed = (limit, &self.options.notice);
        let is_through =
            self.prefill.advance(&mut self.gpu, &mut chunk.progress, input, allowed)?;
        chunk.spent += begin.elapsed();
        if !is_through {
            self.open = Some(chunk);
            return Ok(Sliced::Open);
        }
        if self.options.profile {
            self.prefill_meter.run(chunk.spent);
            self.prefill.add_to(&mut self.prefill_meter, chunk.tokens.len())?;
        }
        if !chunk.logits {
            return Ok(Sliced::Done(None));
        }
        self.prefill.head(&mut self.gpu, &self.options.notice)?;
        found(&self.prefill.records, 0, &chunk.record).map(|f| Sliced::Done(Some(f)))
    }

    /// Drops the open chunk, if there is one. Its source slot is as it was.
    pub fn abandon(&mut self) {
        self.open = None;
    }

    /// A whole chunk at once; of a single token by a decode step. `None` when no logits were wanted.
    ///
    /// # Errors
    /// As [`Backend::begin`] and [`Backend::advance`].
    pub fn chunk(&mut self, kv: &Kv, chunk: &Chunk<'_>) -> Result<Option<Found>, Error> {
        if let &[token] = chunk.tokens {
            let (source, target, sieve) = (chunk.source, chunk.target, chunk.sieve);
            let row = Row { kv, token, pos: chunk.pos, source, target, sieve };
            return Ok(self.rows(&[row])?.pop().filter(|_| chunk.logits));
        }
        self.begin(kv, chunk)?;
        loop {
            if let Sliced::Done(found) = self.advance(Duration::MAX)? {
                return Ok(found);
            }
        }
    }
}
