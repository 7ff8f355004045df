//! What draws need on the device: logits, what a session's draws see besides them, and what is read back.

use super::Error;
use super::backend::{Options, int};
use super::programs::batches;
use super::step::{Found, Rules, Sieve};
use crate::kernels::control;
use crate::kernels::head::{RECORD_BYTES, Record};
use crate::model::Shape;
use crate::vulkan::{Arena, Queue, Slice};
use bytemuck::Zeroable as _;

/// A margin that every finite logit is within. Kernels see it for infinity, which their compilers need not respect.
const UNBOUNDED: f32 = 1e30;

/// What all steps share about logits and sampling.
pub(super) struct SamplingBuffers {
    /// `[sessions][vocab]`.
    pub(super) logits: Slice,
    /// Bit masks over the vocabulary, `[1 + sessions][words]`: what can be drawn at all, then one for each session.
    pub(super) mask: Slice,
    /// Pairs of id and addend, `[sessions][MOST_ADDENDS]`.
    pub(super) bias: Slice,
    /// Words of a mask.
    words: usize,
    /// Versions of the rules that are on the device, for each session.
    held: Vec<Option<u64>>,
}

impl SamplingBuffers {
    pub(super) fn new(
        queue: &mut Queue,
        arena: &Arena,
        shape: &Shape,
        options: &Options,
    ) -> Result<Self, Error> {
        let all = Self::empty(arena, shape, options.sessions)?;
        let drawable = half_words(&options.drawable, all.words);
        queue.upload(&all.mask, bytemuck::cast_slice(&drawable))?;
        queue.clear(std::slice::from_ref(&all.bias))?;
        Ok(all)
    }

    /// The buffers alone, with nothing in them.
    pub(super) fn empty(arena: &Arena, shape: &Shape, sessions: usize) -> Result<Self, Error> {
        let words = shape.vocab.div_ceil(32);
        let buffer = |name: &str, bytes| Ok::<_, Error>(arena.buffer(name, bytes)?.all());
        Ok(Self {
            logits: buffer("logits", Self::logit_bytes(shape, sessions))?,
            mask: buffer("mask", mask_bytes(words, sessions))?,
            bias: buffer("bias", bias_bytes(sessions))?,
            words,
            held: vec![None; sessions],
        })
    }

    /// Bytes of a row of logits for each session. Steps are recorded for whole classes of rows, so there are as many as
    /// the largest class has.
    pub(super) fn logit_bytes(shape: &Shape, sessions: usize) -> u64 {
        let rows = batches(sessions).max().map_or(sessions, |most| sessions.max(most as usize));
        (shape.logits_bytes() * rows) as u64
    }

    /// Bytes of what sessions' draws see besides logits.
    pub(super) fn rule_bytes(shape: &Shape, sessions: usize) -> u64 {
        mask_bytes(shape.vocab.div_ceil(32), sessions) + bias_bytes(sessions)
    }

    /// Completes a record with what its sieve asks for; brings its rules to the device, unless they are there.
    pub(super) fn ask(
        &mut self,
        queue: &mut Queue,
        row: control::Row,
        sieve: &Sieve<'_>,
    ) -> Result<control::Row, Error> {
        let wanted = sieve.margin > f32::NEG_INFINITY;
        let mut row = control::Row {
            margin: sieve.margin.min(UNBOUNDED),
            top_k: sieve.top_k,
            inverse_temperature: if wanted { sieve.inverse_temperature } else { 0.0 },
            ..row
        };
        let Some(rules) = sieve.rules else { return Ok(row) };
        let place = row.logits as usize;
        if rules.addends.len() > Rules::MOST_ADDENDS {
            let (found, most) = (rules.addends.len(), Rules::MOST_ADDENDS);
            return Err(Error::Step(format!("{found} addends of at most {most}")));
        }
        self.bring(queue, place, rules)?;
        if rules.mask.is_some() {
            row.mask = int((1 + place) * self.words);
        }
        row.bias = int(place * Rules::MOST_ADDENDS);
        row.bias_len = int(rules.addends.len());
        Ok(row)
    }

    fn bring(&mut self, queue: &mut Queue, place: usize, rules: &Rules<'_>) -> Result<(), Error> {
        if self.held[place] == Some(rules.version) {
            return Ok(());
        }
        self.held[place] = None;
        let part = |of: &Slice, row: usize, bytes: usize| {
            of.buffer.slice(of.offset + (row * bytes) as u64, bytes as u64)
        };
        if let Some(mask) = rules.mask {
            let to = part(&self.mask, 1 + place, self.words * 4);
            queue.upload(&to, bytemuck::cast_slice(&half_words(mask, self.words)))?;
        }
        if !rules.addends.is_empty() {
            let pairs: Vec<[u32; 2]> =
                rules.addends.iter().map(|&(id, addend)| [id, addend.to_bits()]).collect();
            let to = part(&self.bias, place, Rules::MOST_ADDENDS * size_of::<[u32; 2]>());
            queue.upload(&to, bytemuck::cast_slice(&pairs))?;
        }
        self.held[place] = Some(rules.version);
        Ok(())
    }
}

fn mask_bytes(words: usize, sessions: usize) -> u64 {
    ((1 + sessions) * words * 4) as u64
}

fn bias_bytes(sessions: usize) -> u64 {
    (sessions * Rules::MOST_ADDENDS * size_of::<[u32; 2]>()) as u64
}

/// The two halves of each word, in memory order; ids beyond the mask are off.
fn half_words(mask: &[u64], words: usize) -> Vec<u32> {
    let mut halves: Vec<u32> = bytemuck::cast_slice(mask).to_vec();
    halves.resize(words, 0);
    halves
}

/// What the host reads of a row of a step, or of a chunk, that has run with this record.
pub(super) fn found(records: &Slice, index: usize, row: &control::Row) -> Result<Found, Error> {
    let mut record = [Record::zeroed()];
    let offset = records.offset + (index * RECORD_BYTES) as u64;
    records.buffer.read(offset, bytemuck::cast_slice_mut(&mut record));
    let [record] = record;
    if record.flags & Record::FAILED != 0 {
        return Err(Error::NonFinite { pos: (row.pos + row.tokens - 1) as usize });
    }
    let best = Some((record.token, record.max));
    let candidates = record.candidates().filter(|_| row.inverse_temperature > 0.0);
    Ok(match candidates {
        Some(list) => {
            // Candidates up to a bin of the histogram: all that are no smaller than the smallest of them.
            let cut = row.top_k > 0 && record.count >= row.top_k;
            let least = list.iter().fold(f32::INFINITY, |least, c| least.min(c.logit));
            let bound =
                if row.margin < UNBOUNDED { record.max - row.margin } else { f32::NEG_INFINITY };
            Found {
                best,
                rows: list.iter().map(|c| (c.id, c.logit)).collect(),
                floor: if cut { least } else { bound },
                sum: record.sum,
            }
        }
        None => Found { best, rows: Vec::new(), floor: f32::INFINITY, sum: 0.0 },
    })
}
