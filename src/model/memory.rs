//! How much memory a model needs, by purpose (model.md 10). The same arithmetic sizes the backends'
//! allocations, so that what is announced is what is used.
//!
//! | item | counted |
//! |---|---|
//! | weights | mapped once for the process, whatever the sessions |
//! | K and V rows | for each session: `ctx` rows of each full-attention layer |
//! | state slot | S and the raw convolution rows of all recurrent layers, f32 |
//! | logits, token ids | for each session |
//! | vocabulary | once for the process: bytes, kinds and look-up tables of its rows |
//! | scratch | what the backend says: it knows its buffers |

use serde::Serialize;

use super::shape::Shape;
use crate::quant::TensorType;

/// Types that K and V rows may have.
pub const KV_TYPES: [TensorType; 3] = [TensorType::F16, TensorType::Q8_0, TensorType::Q4_0];

/// Bytes a vocabulary row takes in the tokenizer: its text, its kind, and its share of two hash
/// tables at about half load. Measured on the published vocabulary, rounded up.
const VOCABULARY_ROW_BYTES: usize = 64;

/// What is to be planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Type of K rows.
    pub kv_k: TensorType,
    /// Type of V rows.
    pub kv_v: TensorType,
    /// Positions of a session.
    pub ctx: usize,
    /// Sessions at the same time.
    pub sessions: usize,
    /// State slots of the process: one for each session, and one more for an open step.
    pub slots: usize,
    /// Bytes of the backend's own buffers.
    pub scratch_bytes: u64,
}

impl Request {
    /// One session, the two slots it needs, no scratch.
    pub fn single(kv_k: TensorType, kv_v: TensorType, ctx: usize) -> Self {
        Self { kv_k, kv_v, ctx, sessions: 1, slots: 2, scratch_bytes: 0 }
    }
}

/// Bytes by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// All tensors of the file, mapped.
    pub weights: u64,
    /// K and V rows of one session.
    pub kv_per_session: u64,
    /// One state slot.
    pub slot: u64,
    /// One row of logits, of which every session keeps one.
    pub logits_per_session: u64,
    /// Token ids of one session.
    pub ids_per_session: u64,
    /// The tokenizer's tables.
    pub vocabulary: u64,
    /// The backend's buffers.
    pub scratch: u64,
    /// Sessions planned for.
    pub sessions: u64,
    /// State slots planned for.
    pub slots: u64,
}

impl Plan {
    /// Computes the plan; `weight_bytes` are those of the file.
    ///
    /// # Panics
    /// If a type is none of [`KV_TYPES`].
    pub fn new(shape: &Shape, weight_bytes: u64, request: &Request) -> Self {
        let Request { kv_k, kv_v, ctx, sessions, slots, scratch_bytes } = *request;
        assert!(KV_TYPES.contains(&kv_k) && KV_TYPES.contains(&kv_v), "{kv_k}/{kv_v} rows");
        Self {
            weights: weight_bytes,
            kv_per_session: (shape.kv_token_bytes(kv_k, kv_v) * ctx) as u64,
            slot: shape.state_slot_bytes() as u64,
            logits_per_session: shape.logits_bytes() as u64,
            ids_per_session: (ctx * size_of::<u32>()) as u64,
            vocabulary: (shape.vocab * VOCABULARY_ROW_BYTES) as u64,
            scratch: scratch_bytes,
            sessions: sessions as u64,
            slots: slots as u64,
        }
    }

    /// What a further session adds, its slot included.
    pub fn per_session(&self) -> u64 {
        self.kv_per_session + self.slot + self.logits_per_session + self.ids_per_session
    }

    /// K and V rows of all sessions.
    pub fn kv(&self) -> u64 {
        self.sessions * self.kv_per_session
    }

    /// All state slots.
    pub fn state(&self) -> u64 {
        self.slots * self.slot
    }

    /// Logits of all sessions.
    pub fn logits(&self) -> u64 {
        self.sessions * self.logits_per_session
    }

    /// Token ids of all sessions.
    pub fn ids(&self) -> u64 {
        self.sessions * self.ids_per_session
    }

    /// Everything but the weights.
    pub fn beyond_weights(&self) -> u64 {
        self.kv() + self.state() + self.logits() + self.ids() + self.vocabulary + self.scratch
    }

    /// What a device holds. Token ids and the vocabulary stay with the host; logits are part of a device's scratch.
    pub fn on_device(&self) -> u64 {
        self.weights + self.kv() + self.state() + self.scratch
    }

    /// Everything.
    pub fn total(&self) -> u64 {
        self.weights + self.beyond_weights()
    }
}

#[cfg(test)]
mod tests {
    use TensorType::{F16, Q4_0, Q8_0};

    use super::*;
    use crate::model::summary::tests::published_shape;

    #[test]
    fn kv_rows_are_as_large_as_the_table_says() {
        let shape = published_shape();
        for (k, v, token, at_32k, at_max) in [
            (F16, F16, 20_480, 671_088_640, 5_368_709_120),
            (F16, Q8_0, 15_680, 513_802_240, 4_110_417_920),
            (F16, Q4_0, 13_120, 429_916_160, 3_439_329_280),
            (Q8_0, F16, 15_680, 513_802_240, 4_110_417_920),
            (Q8_0, Q8_0, 10_880, 356_515_840, 2_852_126_720),
            (Q8_0, Q4_0, 8_320, 272_629_760, 2_181_038_080),
            (Q4_0, F16, 13_120, 429_916_160, 3_439_329_280),
            (Q4_0, Q8_0, 8_320, 272_629_760, 2_181_038_080),
            (Q4_0, Q4_0, 5_760, 188_743_680, 1_509_949_440_u64),
        ] {
            assert_eq!(shape.kv_token_bytes(k, v), token, "{k}/{v}");
            let plan = |ctx| Plan::new(&shape, 0, &Request::single(k, v, ctx)).kv();
            assert_eq!((plan(32_768), plan(262_144)), (at_32k, at_max), "{k}/{v}");
        }
    }

    #[test]
    fn a_session_of_the_published_model() {
        let shape = published_shape();
        let request = Request { scratch_bytes: 7, ..Request::single(Q8_0, Q4_0, 32_768) };
        let plan = Plan::new(&shape, 11_726_326_272, &request);
        assert_eq!(plan.slot, 66_846_720);
        assert_eq!(plan.logits(), 993_280);
        assert_eq!(plan.ids(), 131_072);
        assert_eq!(plan.per_session(), 272_629_760 + 66_846_720 + 993_280 + 131_072);
        assert_eq!(plan.beyond_weights(), plan.per_session() + plan.slot + 248_320 * 64 + 7);
        assert_eq!(plan.total(), 11_726_326_272 + plan.beyond_weights());
        let four = Plan::new(&shape, 0, &Request { sessions: 4, slots: 5, ..request });
        assert_eq!(four.beyond_weights() - plan.beyond_weights(), 3 * plan.per_session());
    }
}
