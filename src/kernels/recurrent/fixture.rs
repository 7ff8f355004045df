//! Random layers, slots and tokens of the recurrent kernels' tests, and the mixer by `ops` alone.

use super::{HEAD, Heads, TAPS};
use crate::kernels::check::{Draw, Gpu};
use crate::kernels::control::Row;
use crate::ops;

pub(in crate::kernels) const EPS: f32 = 1e-6;
const L2_EPS: f32 = 1e-6;
const D: usize = HEAD as usize;

pub(in crate::kernels) const fn heads(key: u32, value: u32) -> Heads {
    Heads { key, value }
}

/// What a layer brings.
pub(in crate::kernels) struct Layer {
    pub(in crate::kernels) heads: Heads,
    /// `[channels][4]`.
    pub(in crate::kernels) taps: Vec<f32>,
    pub(in crate::kernels) norm: Vec<f32>,
}

/// One layer's part of a slot.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::kernels) struct Slot {
    pub(in crate::kernels) ring: Vec<f32>,
    pub(in crate::kernels) state: Vec<f32>,
}

/// What the projections say about one token.
#[derive(Clone)]
pub(in crate::kernels) struct Token {
    /// Raw channels.
    pub(in crate::kernels) u: Vec<f32>,
    /// Output gate before its SiLU.
    pub(in crate::kernels) z: Vec<f32>,
    pub(in crate::kernels) log_decay: Vec<f32>,
    pub(in crate::kernels) beta: Vec<f32>,
}

/// What a token gives, stage by stage.
pub(in crate::kernels) struct Outcome {
    pub(in crate::kernels) conv: Vec<f32>,
    pub(in crate::kernels) o: Vec<f32>,
    pub(in crate::kernels) y: Vec<f32>,
}

impl Layer {
    pub(in crate::kernels) fn draw(heads: Heads, draw: &mut Draw) -> Self {
        let taps = draw.normals(heads.channels() as usize * TAPS as usize);
        Self { heads, taps, norm: draw.normals(D) }
    }

    /// A slot in the middle of a sequence.
    pub(in crate::kernels) fn slot(&self, draw: &mut Draw) -> Slot {
        let len = self.heads.value as usize * D * D;
        let state = draw.normals(len).iter().map(|v| v * 0.3).collect();
        Slot { ring: draw.normals(TAPS as usize * self.heads.channels() as usize), state }
    }

    /// The slot of an empty sequence.
    pub(in crate::kernels) fn empty(&self) -> Slot {
        let ring = vec![0.0; TAPS as usize * self.heads.channels() as usize];
        Slot { ring, state: vec![0.0; self.heads.value as usize * D * D] }
    }

    /// A token; decays run from none at all to 1e-30, and now and then a key or query head is zero.
    pub(in crate::kernels) fn token(&self, draw: &mut Draw) -> Token {
        let Heads { key, value } = self.heads;
        let mut u = draw.normals(self.heads.channels() as usize);
        if draw.below(8) == 0 {
            let head = usize::try_from(draw.below(u64::from(2 * key))).unwrap();
            u[head * D..][..D].fill(0.0);
        }
        let decays = [0.0, -1e-6, -1e-3, -0.05, -0.7, -8.0, -69.0];
        let mut pick = || decays[usize::try_from(draw.below(7)).unwrap()];
        let log_decay = (0..value).map(|_| pick()).collect();
        let beta = (0..value).map(|_| ops::sigmoid(draw.normal() * 2.0)).collect();
        Token { u, z: draw.normals(value as usize * D), log_decay, beta }
    }

    /// The mixer on one token at `pos`: the slot becomes that of the position after it.
    pub(in crate::kernels) fn advance(&self, slot: &mut Slot, pos: u32, token: &Token) -> Outcome {
        let (heads, channels) = (self.heads, self.heads.channels() as usize);
        let place = |back: u32| (pos + TAPS - back) as usize % TAPS as usize * channels;
        slot.ring[place(0)..][..channels].copy_from_slice(&token.u);
        let window: Vec<&[f32]> =
            (0..TAPS).rev().map(|back| &slot.ring[place(back)..][..channels]).collect();
        let taps = TAPS as usize;
        let by_row: Vec<f32> =
            (0..taps).flat_map(|j| self.taps.iter().skip(j).step_by(taps).copied()).collect();
        let mut conv = vec![0.0; channels];
        ops::conv_silu(&window, &by_row, &mut conv);
        let keys = heads.key as usize;
        for (head, x) in conv.chunks_exact_mut(D).take(2 * keys).enumerate() {
            let scale = if head < keys { 1.0 / (D as f32).sqrt() } else { 1.0 };
            ops::l2_norm(x, L2_EPS, scale);
        }
        let (mut o, mut y) = (vec![0.0; heads.inner() as usize], vec![0.0; heads.inner() as usize]);
        for h in 0..heads.value as usize {
            let head = |index: usize| &conv[index * D..][..D];
            let token = ops::Token {
                q: head(h % keys),
                k: head(keys + h % keys),
                v: head(2 * keys + h),
                decay: ops::exp(token.log_decay[h]),
                beta: token.beta[h],
            };
            ops::step(None, &mut slot.state[h * D * D..][..D * D], &token, &mut o[h * D..][..D]);
        }
        let rows = o.chunks_exact(D).zip(token.z.chunks_exact(D));
        for ((o, z), y) in rows.zip(y.chunks_exact_mut(D)) {
            ops::gated_rms_norm(o, &self.norm, z, EPS, y);
        }
        Outcome { conv, o, y }
    }
}

/// A chunk of a class from `row.pos` on.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Chunk<'a> {
    pub(in crate::kernels) layer: &'a Layer,
    pub(in crate::kernels) class: u32,
    pub(in crate::kernels) row: Row,
    pub(in crate::kernels) slots: &'a [Slot],
    pub(in crate::kernels) tokens: &'a [Token],
}

/// What the delta rule reads of a chunk, for every token of the class.
pub(in crate::kernels) struct Rows {
    pub(in crate::kernels) conv: Vec<f32>,
    pub(in crate::kernels) log_decay: Vec<f32>,
    pub(in crate::kernels) beta: Vec<f32>,
}

impl Chunk<'_> {
    /// The outcomes, and the slot after the chunk.
    pub(in crate::kernels) fn expected(&self) -> (Vec<Outcome>, Slot) {
        let mut slot = self.slots[self.row.source as usize].clone();
        let tokens = (self.row.pos..).zip(self.tokens);
        let outcomes = tokens.map(|(pos, t)| self.layer.advance(&mut slot, pos, t)).collect();
        (outcomes, slot)
    }

    /// Inputs of the delta rule; rows past the chunk must not matter, but for the zeros up to a multiple of `pad`.
    pub(in crate::kernels) fn rows(&self, pad: usize) -> Rows {
        let padded = |width: u32, rows: Vec<&[f32]>| -> Vec<f32> {
            let mut all = rows.concat();
            all.resize(self.tokens.len().next_multiple_of(pad) * width as usize, 0.0);
            all.resize((self.class * width) as usize, f32::NAN);
            all
        };
        let (heads, (outcomes, _)) = (self.layer.heads, self.expected());
        Rows {
            conv: padded(heads.channels(), outcomes.iter().map(|o| &o.conv[..]).collect()),
            log_decay: padded(heads.value, self.tokens.iter().map(|t| &t.log_decay[..]).collect()),
            beta: padded(heads.value, self.tokens.iter().map(|t| &t.beta[..]).collect()),
        }
    }

    /// Compares what the delta rule wrote: `o` as words, of which `written` rows may be touched, and all states.
    pub(in crate::kernels) fn check(&self, o: &[u32], states: &[f32], written: usize, bound: f32) {
        let inner = self.layer.heads.inner() as usize;
        let untouched = o[written * inner..].iter().all(|&w| w == Gpu::POISON);
        assert!(untouched, "tokens past the end");
        let (outcomes, slot) = self.expected();
        for (t, (found, outcome)) in o.chunks_exact(inner).zip(&outcomes).enumerate() {
            let found: Vec<f32> = found.iter().map(|&w| f32::from_bits(w)).collect();
            assert_close(&found, &outcome.o, D, bound, &format!("token {t}"));
        }
        for (s, found) in states.chunks_exact(slot.state.len()).enumerate() {
            if s == self.row.target as usize {
                assert_close(found, &slot.state, D * D, bound, "state");
            } else {
                assert!(found == self.slots[s].state, "slot {s} changed");
            }
        }
    }
}

/// All slots one after the other: rings, states.
pub(in crate::kernels) fn join(slots: &[Slot]) -> (Vec<f32>, Vec<f32>) {
    let ring = slots.iter().flat_map(|s| s.ring.clone()).collect();
    (ring, slots.iter().flat_map(|s| s.state.clone()).collect())
}

/// The opposite of [`join`].
pub(in crate::kernels) fn split(ring: &[f32], state: &[f32], count: usize) -> Vec<Slot> {
    let rings = ring.chunks_exact(ring.len() / count);
    let states = state.chunks_exact(state.len() / count);
    rings.zip(states).map(|(r, s)| Slot { ring: r.to_vec(), state: s.to_vec() }).collect()
}

/// Fails where a value is off by more than `bound` of the largest one of its group of `group`.
pub(in crate::kernels) fn assert_close(
    found: &[f32],
    expected: &[f32],
    group: usize,
    bound: f32,
    what: &str,
) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (g, (found, expected)) in found.chunks(group).zip(expected.chunks(group)).enumerate() {
        let largest = expected.iter().fold(0.0f32, |a, v| a.max(v.abs()));
        for (i, (f, e)) in found.iter().zip(expected).enumerate() {
            let off = (f - e).abs();
            assert!(off <= bound * largest + 1e-30, "{what}: group {g} value {i}: {f} for {e}");
        }
    }
}
