//! The head of a session payload (model.md 8.1), and how large a payload is. Little-endian, no padding.
//!
//! | offset | u32 | in version |
//! |---|---|---|
//! | 0 | magic: the bytes `Q36 `; the reference's 36 33 56 51 is read, too | all |
//! | 4 | version | all |
//! | 8 | context of the writer, only told | 2, 3 (1: number of tokens n, and nothing but the ids follows) |
//! | 12 | prefill chunk of the writer, only told | 2, 3 |
//! | 16 | number of tokens n | 2, 3 |
//! | 20 | vocabulary size | 2, 3 |
//! | 24 | layers | 2, 3 |
//! | 28 | KV heads | 2, 3 |
//! | 32 | key head dimension | 2, 3 |
//! | 36 | value head dimension | 2, 3 |
//! | 40 | taps of the convolution | 2, 3 |
//! | 44 | channels of the convolution | 2, 3 |
//! | 48 | dimension of a recurrent head | 2, 3 |
//! | 52 | value heads of a recurrent layer | 2, 3 |
//! | 56, 60 | K and V type: 0 `f16`, 1 `q8_0`, 2 `q4_0` | 3; both are f16 in version 2 |
//!
//! Behind the head: u32 ids of the n tokens, f32 logits of the next token, then the layers in order. A layer with
//! full attention is a u32 row count (n), the K rows and the V rows; a recurrent one its convolution rows and S
//! ([`StateLayout`] has their order). What follows from the head alone is the exact size of all this.

use super::refusal::Refusal;
use crate::model::StateLayout;
use crate::quant::TensorType;
use crate::util::bytes::{Reader, Truncated};

const MAGIC: [u8; 4] = *b"Q36 ";
/// What the reference writes.
const REFERENCE_MAGIC: [u8; 4] = [0x36, 0x33, 0x56, 0x51];
const TYPES: [TensorType; 3] = [TensorType::F16, TensorType::Q8_0, TensorType::Q4_0];
/// Bytes of the longest head.
pub(super) const MAX_HEAD_BYTES: usize = 64;
const OTHER_LAYOUT: &str = "KV checkpoint was written for a different q36 layout";
const OTHER_TYPES: &str = "KV checkpoint was written with a different cache type";

/// The head of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// Version 1: tokens alone. Whoever loads it evaluates them.
    Tokens {
        /// How many.
        tokens: u32,
    },
    /// Versions 2 and 3: a whole state.
    State(StateHead),
}

/// What a payload of version 2 or 3 says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateHead {
    /// Context of the writer.
    pub ctx: u32,
    /// Prefill chunk of the writer.
    pub chunk: u32,
    /// Number of tokens.
    pub tokens: u32,
    /// Sizes of the model, in the order of the fields.
    pub dims: [u32; 9],
    /// Type of K rows.
    pub kv_k: TensorType,
    /// Type of V rows.
    pub kv_v: TensorType,
}

/// What the sizes are of.
const DIMS: [&str; 9] = [
    "the vocabulary size",
    "the layer count",
    "the number of KV heads",
    "the key head dimension",
    "the value head dimension",
    "the convolution width",
    "the convolution dimension",
    "the recurrent state dimension",
    "the recurrent dt rank",
];

fn dims_of(layout: &StateLayout) -> [u32; 9] {
    [
        layout.vocab,
        layout.layers,
        layout.kv_heads,
        layout.head_dim,
        layout.head_dim,
        layout.conv_taps,
        layout.conv_channels,
        layout.state_dim,
        layout.value_heads,
    ]
    .map(|n| u32::try_from(n).expect("dimensions of a model are small"))
}

impl StateHead {
    /// That of a state which is about to be written.
    ///
    /// # Panics
    /// When a number does not fit 32 bits.
    pub fn new(layout: &StateLayout, ctx: usize, chunk: usize, tokens: usize) -> Self {
        let int = |n: usize| u32::try_from(n).expect("counted in 32 bits");
        Self {
            ctx: int(ctx),
            chunk: int(chunk),
            tokens: int(tokens),
            dims: dims_of(layout),
            kv_k: layout.kv_k,
            kv_v: layout.kv_v,
        }
    }

    fn version(&self) -> u32 {
        if (self.kv_k, self.kv_v) == (TensorType::F16, TensorType::F16) { 2 } else { 3 }
    }

    /// The bytes in the file.
    ///
    /// # Panics
    /// When K or V have a type that no cache has.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let fields = [self.version(), self.ctx, self.chunk, self.tokens];
        out.extend(fields.iter().chain(&self.dims).flat_map(|n| n.to_le_bytes()));
        if self.version() == 3 {
            for ty in [self.kv_k, self.kv_v] {
                let code = TYPES.iter().position(|&t| t == ty).expect("a type of K/V rows");
                out.extend(u32::try_from(code).expect("below three").to_le_bytes());
            }
        }
        out
    }

    /// Bytes of the head.
    pub fn head_bytes(&self) -> usize {
        if self.version() == 2 { 56 } else { 64 }
    }

    /// Bytes of the payload, head included, for a model of this layout.
    pub fn payload_bytes(&self, layout: &StateLayout) -> u64 {
        let n = u64::from(self.tokens);
        let counts = 4 * layout.attention_layers() as u64;
        let logits = 4 * layout.vocab as u64;
        self.head_bytes() as u64 + 4 * n + logits + counts + layout.bytes(self.tokens as usize)
    }

    /// Whether a session of this layout and context could hold it.
    ///
    /// # Errors
    /// Which field forbids it.
    pub fn check(&self, layout: &StateLayout, ctx: usize) -> Result<(), Refusal> {
        if self.tokens as usize >= ctx {
            return Err(Refusal::TooLong { tokens: self.tokens.into(), ctx });
        }
        self.check_layout(layout)
    }

    /// Whether it is of this layout, whatever the context.
    ///
    /// # Errors
    /// Which field differs.
    pub fn check_layout(&self, layout: &StateLayout) -> Result<(), Refusal> {
        for ((what, found), expected) in DIMS.iter().zip(self.dims).zip(dims_of(layout)) {
            if found != expected {
                let (found, expected) = (found.to_string(), expected.to_string());
                return Err(Refusal::Other { rule: OTHER_LAYOUT, what, found, expected });
            }
        }
        for (what, found, expected) in
            [("the K type", self.kv_k, layout.kv_k), ("the V type", self.kv_v, layout.kv_v)]
        {
            if found != expected {
                let (found, expected) = (found.to_string(), expected.to_string());
                return Err(Refusal::Other { rule: OTHER_TYPES, what, found, expected });
            }
        }
        Ok(())
    }

    /// Whether a payload of `bytes` can be this state for some number of attention layers: all that can be said
    /// without the model.
    pub fn may_have(&self, bytes: u64) -> bool {
        let [vocab, layers, kv_heads, head, value_head, taps, channels, state, heads] =
            self.dims.map(u128::from);
        let row = |ty: TensorType, width: u128| {
            width / ty.block_len() as u128 * ty.block_bytes() as u128 * kv_heads
        };
        let n = u128::from(self.tokens);
        let attention = 4 + n * (row(self.kv_k, head) + row(self.kv_v, value_head));
        let recurrent = (taps.saturating_sub(1) * channels).saturating_add(state * state * heads);
        let recurrent = recurrent.saturating_mul(4);
        let fixed = self.head_bytes() as u128 + 4 * n + 4 * vocab;
        let Some(rest) = u128::from(bytes).checked_sub(fixed) else { return false };
        // What saturates is more than any payload has.
        let state = |full: u128| (layers - full).saturating_mul(recurrent);
        (0..=layers.min(1024)).any(|full| (full * attention).saturating_add(state(full)) == rest)
    }
}

impl Head {
    /// Reads the head of a payload of `payload_bytes`, from its first bytes: 64 of them, or all.
    ///
    /// # Errors
    /// When it is none of the three versions, or its own fields contradict its length.
    pub fn parse(bytes: &[u8], payload_bytes: u64) -> Result<Self, Refusal> {
        let mut r = Reader::new(bytes);
        let short = |_: Truncated| Refusal::Short { what: "the payload's head" };
        let magic = r.take(4).map_err(short)?;
        if magic != MAGIC && magic != REFERENCE_MAGIC {
            let (what, expected) = ("unsupported session payload format: the magic", "`Q36 `");
            let found = format!("{magic:02x?}");
            return Err(Refusal::Unsupported { what, found, expected: expected.into() });
        }
        match r.u32().map_err(short)? {
            1 => {
                let tokens = r.u32().map_err(short)?;
                if 12 + 4 * u64::from(tokens) == payload_bytes {
                    return Ok(Self::Tokens { tokens });
                }
                let why = format!("{tokens} in {payload_bytes} bytes");
                Err(Refusal::broken("mismatched token-only payload size: the token count", why))
            }
            version @ (2 | 3) => {
                let mut u32 = || r.u32().map_err(short);
                let (ctx, chunk, tokens) = (u32()?, u32()?, u32()?);
                let mut dims = [0; 9];
                for dim in &mut dims {
                    *dim = u32()?;
                }
                let mut kv_type = |what| {
                    let code = if version == 2 { 0 } else { u32()? };
                    let ty = usize::try_from(code).ok().and_then(|code| TYPES.get(code));
                    let expected = "0, 1 or 2".to_owned();
                    let found = code.to_string();
                    ty.copied().ok_or(Refusal::Unsupported { what, found, expected })
                };
                let (kv_k, kv_v) = (kv_type("the K type")?, kv_type("the V type")?);
                let head = StateHead { ctx, chunk, tokens, dims, kv_k, kv_v };
                if version != head.version() {
                    let what = "unsupported session payload version: the version";
                    let expected = "2 for f16 rows".to_owned();
                    return Err(Refusal::Unsupported {
                        what,
                        found: version.to_string(),
                        expected,
                    });
                }
                Ok(Self::State(head))
            }
            found => Err(Refusal::Unsupported {
                what: "unsupported session payload version: the version",
                found: found.to_string(),
                expected: "1, 2 or 3".into(),
            }),
        }
    }

    /// Number of tokens.
    pub fn tokens(&self) -> u32 {
        match self {
            Self::Tokens { tokens } => *tokens,
            Self::State(head) => head.tokens,
        }
    }

    /// Bytes before the token ids.
    pub fn head_bytes(&self) -> usize {
        match self {
            Self::Tokens { .. } => 12,
            Self::State(head) => head.head_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Shape;

    fn published(k: TensorType, v: TensorType) -> StateLayout {
        StateLayout::new(&Shape::published(40), k, v)
    }

    const SMALL: (TensorType, TensorType) = (TensorType::Q8_0, TensorType::Q4_0);

    #[test]
    fn heads_and_sizes_are_those_of_the_format() {
        let f16 = published(TensorType::F16, TensorType::F16);
        let head = |layout: &StateLayout, n| StateHead::new(layout, 32_768, 2048, n);
        for (n, bytes) in [(0, 66_857_056), (2048, 108_808_288), (10_240, 276_613_216)] {
            assert_eq!(head(&f16, n).payload_bytes(&f16), bytes);
            assert!(head(&f16, n).may_have(bytes) && !head(&f16, n).may_have(bytes + 4));
        }
        let small = published(SMALL.0, SMALL.1);
        for (n, bytes) in [(0, 66_857_064), (2048, 83_904_616), (10_240, 152_094_824)] {
            assert_eq!(head(&small, n).payload_bytes(&small), bytes);
        }
        let bytes = head(&small, 7).encode();
        let words: Vec<u32> =
            bytes.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
        assert_eq!(bytes[..4], [0x51, 0x33, 0x36, 0x20]);
        let fields = [3, 32_768, 2048, 7, 248_320, 40, 2, 256, 256, 4, 8192, 128, 32, 1, 2];
        assert_eq!(words[1..], fields);
        assert_eq!(head(&f16, 7).encode().len(), 56);
    }

    #[test]
    fn dimensions_of_any_size_are_reckoned_with() {
        let head = StateHead::new(&published(SMALL.0, SMALL.1), 4096, 64, u32::MAX as usize);
        for dims in [[u32::MAX; 9], [0, u32::MAX, 1, 1, 1, 0, 0, u32::MAX, u32::MAX], [0; 9]] {
            for bytes in [0, 1 << 40, u64::MAX] {
                assert!(!StateHead { dims, ..head }.may_have(bytes), "{dims:?} {bytes}");
            }
        }
    }

    #[test]
    fn every_version_is_read() {
        for (k, v) in TYPES.into_iter().flat_map(|k| TYPES.map(|v| (k, v))) {
            let head = StateHead::new(&published(k, v), 4096, 64, 100);
            assert_eq!(Head::parse(&head.encode(), 1 << 30).unwrap(), Head::State(head));
        }
        let mut old = REFERENCE_MAGIC.to_vec();
        old.extend([1_u32, 2, 77, 78].iter().flat_map(|n| n.to_le_bytes()));
        assert_eq!(Head::parse(&old, 20).unwrap(), Head::Tokens { tokens: 2 });
        let error = Head::parse(&old, 24).unwrap_err().to_string();
        assert!(error.starts_with("mismatched token-only payload size"), "{error}");
    }

    #[test]
    fn what_does_not_fit_is_refused_by_field() {
        let layout = published(SMALL.0, SMALL.1);
        let head = StateHead::new(&layout, 4096, 64, 100);
        head.check(&layout, 101).unwrap();
        let long = head.check(&layout, 100).unwrap_err().to_string();
        assert!(long.starts_with("KV checkpoint does not fit current context"), "{long}");
        let fewer = StateLayout { layers: 8, ..layout.clone() };
        let other = head.check(&fewer, 200).unwrap_err().to_string();
        let expected = "KV checkpoint was written for a different q36 layout: the layer count is 40, expected 8";
        assert_eq!(other, expected);
        let f16 = StateLayout { kv_v: TensorType::F16, ..layout };
        let types = head.check(&f16, 200).unwrap_err().to_string();
        let expected = "KV checkpoint was written with a different cache type: the V type is q4_0, expected f16";
        assert_eq!(types, expected);
        let mut bytes = head.encode();
        bytes[56] = 9;
        let ty = Head::parse(&bytes, 1 << 30).unwrap_err().to_string();
        assert_eq!(ty, "the K type is 9, expected 0, 1 or 2");
        bytes[4] = 4;
        let version = Head::parse(&bytes, 1 << 30).unwrap_err().to_string();
        assert!(version.starts_with("unsupported session payload version"), "{version}");
        bytes[0] = 0;
        let magic = Head::parse(&bytes, 1 << 30).unwrap_err().to_string();
        assert!(magic.starts_with("unsupported session payload format"), "{magic}");
    }
}
