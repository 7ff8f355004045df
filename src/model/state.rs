//! A session's state as files hold it (model.md 8.1): its parts, their sizes and their order.
//!
//! Both backends read and write these parts, each from and to its own layout, so that a file written by one loads on
//! the other. All numbers are little-endian.
//!
//! | layer | parts, one after the other |
//! |---|---|
//! | full attention | K rows of positions 0 on, then V rows: all KV heads of a position together, blocks as in GGUF |
//! | recurrent | the `conv_taps - 1` raw convolution rows before the position, f32, oldest first; then S, f32 `[value head][key channel][value channel]` |

use std::ops::Range;

use super::shape::Shape;
use crate::quant::TensorType;

/// Rows of K or V are cut into parts at multiples of this many positions: the pages of a device.
pub const PART_ROWS: usize = 64;

/// What a saved state's size and meaning depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateLayout {
    /// Rows of the vocabulary, and so of a row of logits.
    pub vocab: usize,
    /// Layers.
    pub layers: usize,
    /// Every `full_interval`-th layer has full attention.
    pub full_interval: usize,
    /// Key and value heads of a full-attention layer.
    pub kv_heads: usize,
    /// Size of such a head.
    pub head_dim: usize,
    /// Taps of the convolution.
    pub conv_taps: usize,
    /// Channels of the convolution.
    pub conv_channels: usize,
    /// Size of a recurrent head.
    pub state_dim: usize,
    /// Value heads of a recurrent layer.
    pub value_heads: usize,
    /// Storage of K rows.
    pub kv_k: TensorType,
    /// Storage of V rows.
    pub kv_v: TensorType,
}

/// A piece of a state. Indices count the layers of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatePart {
    /// K rows of a full-attention layer.
    Keys {
        /// Which of these layers.
        index: usize,
        /// Positions; the first is a multiple of [`PART_ROWS`].
        rows: Range<usize>,
    },
    /// V rows of a full-attention layer.
    Values {
        /// Which of these layers.
        index: usize,
        /// Positions; the first is a multiple of [`PART_ROWS`].
        rows: Range<usize>,
    },
    /// Raw convolution rows of a recurrent layer, all but the newest tap's.
    Conv {
        /// Which of these layers.
        index: usize,
    },
    /// S of some value heads of a recurrent layer.
    Matrix {
        /// Which of these layers.
        index: usize,
        /// Value heads.
        heads: Range<usize>,
    },
}

impl StateLayout {
    /// That of a model with these K and V types.
    pub fn new(shape: &Shape, kv_k: TensorType, kv_v: TensorType) -> Self {
        Self {
            vocab: shape.vocab,
            layers: shape.layers,
            full_interval: shape.full_interval,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            conv_taps: shape.conv_taps,
            conv_channels: shape.conv_channels,
            state_dim: shape.state_dim,
            value_heads: shape.value_heads,
            kv_k,
            kv_v,
        }
    }

    /// Whether a layer has full attention; the others are recurrent.
    pub fn is_full_attention(&self, layer: usize) -> bool {
        (layer + 1).is_multiple_of(self.full_interval)
    }

    /// Number of full-attention layers.
    pub fn attention_layers(&self) -> usize {
        self.layers / self.full_interval
    }

    /// Bytes of a K row.
    pub fn key_row_bytes(&self) -> usize {
        self.row_bytes(self.kv_k)
    }

    /// Bytes of a V row.
    pub fn value_row_bytes(&self) -> usize {
        self.row_bytes(self.kv_v)
    }

    fn row_bytes(&self, ty: TensorType) -> usize {
        let head = ty.row_bytes(self.head_dim);
        self.kv_heads * head.expect("blocks of 1 or 32 values divide a head of 256")
    }

    /// Bytes of the convolution rows of a recurrent layer.
    pub fn conv_bytes(&self) -> usize {
        (self.conv_taps - 1) * self.conv_channels * size_of::<f32>()
    }

    /// Bytes of S of one value head.
    pub fn head_matrix_bytes(&self) -> usize {
        self.state_dim * self.state_dim * size_of::<f32>()
    }

    /// Bytes of all parts of a recurrent layer.
    pub fn recurrent_bytes(&self) -> usize {
        self.conv_bytes() + self.value_heads * self.head_matrix_bytes()
    }

    /// Bytes of all parts together, for a state of `tokens` positions.
    pub fn bytes(&self, tokens: usize) -> u64 {
        let attention = self.attention_layers();
        let rows = (self.key_row_bytes() + self.value_row_bytes()) as u64 * tokens as u64;
        let recurrent = ((self.layers - attention) * self.recurrent_bytes()) as u64;
        attention as u64 * rows + recurrent
    }

    /// Bytes of a part.
    pub fn part_bytes(&self, part: &StatePart) -> usize {
        match part {
            StatePart::Keys { rows, .. } => rows.len() * self.key_row_bytes(),
            StatePart::Values { rows, .. } => rows.len() * self.value_row_bytes(),
            StatePart::Conv { .. } => self.conv_bytes(),
            StatePart::Matrix { heads, .. } => heads.len() * self.head_matrix_bytes(),
        }
    }

    /// The parts of a layer of a state of `tokens` positions, in order, none much larger than `piece_bytes`
    /// (never less than a page of rows, the convolution rows or one value head).
    pub fn parts(
        &self,
        layer: usize,
        tokens: usize,
        piece_bytes: usize,
    ) -> impl Iterator<Item = StatePart> + use<> {
        let attention = self.is_full_attention(layer);
        let index =
            if attention { layer / self.full_interval } else { layer - layer / self.full_interval };
        let tokens = if attention { tokens } else { 0 };
        let heads = if attention { 0 } else { self.value_heads };
        let keys = cuts(tokens, rows_at_once(self.key_row_bytes(), piece_bytes))
            .map(move |rows| StatePart::Keys { index, rows });
        let values = cuts(tokens, rows_at_once(self.value_row_bytes(), piece_bytes))
            .map(move |rows| StatePart::Values { index, rows });
        let conv = (!attention).then_some(StatePart::Conv { index });
        let matrices = cuts(heads, (piece_bytes / self.head_matrix_bytes()).max(1))
            .map(move |heads| StatePart::Matrix { index, heads });
        keys.chain(values).chain(conv).chain(matrices)
    }
}

fn rows_at_once(row_bytes: usize, piece_bytes: usize) -> usize {
    (piece_bytes / row_bytes / PART_ROWS).max(1) * PART_ROWS
}

fn cuts(end: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..end).step_by(step).map(move |from| from..(from + step).min(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(kv_k: TensorType, kv_v: TensorType) -> StateLayout {
        StateLayout::new(&Shape::published(40), kv_k, kv_v)
    }

    #[test]
    fn sizes_are_those_of_the_published_format() {
        // Totals of model.md 8.1 without the header, the logits, and 4 bytes a token and an attention layer.
        let f16 = layout(TensorType::F16, TensorType::F16);
        let small = layout(TensorType::Q8_0, TensorType::Q4_0);
        assert_eq!(f16.bytes(0), 65_863_680);
        let logits_and_counts = 993_280 + 10 * 4;
        assert_eq!(56 + 4 * 2048 + logits_and_counts + f16.bytes(2048), 108_808_288);
        assert_eq!(64 + 4 * 10_240 + logits_and_counts + small.bytes(10_240), 152_094_824);
    }

    #[test]
    fn parts_cover_a_layer_once_and_in_order() {
        let layout = layout(TensorType::Q8_0, TensorType::F16);
        for (tokens, piece) in [(0, 1), (1, 1), (63, 4096), (64, 1 << 20), (1000, 100_000)] {
            let mut bytes = 0;
            for layer in 0..layout.layers {
                let mut next = [0; 3];
                for part in layout.parts(layer, tokens, piece) {
                    bytes += layout.part_bytes(&part) as u64;
                    let (kind, range) = match part {
                        StatePart::Keys { rows, .. } => (0, rows),
                        StatePart::Values { rows, .. } => (1, rows),
                        StatePart::Conv { .. } => continue,
                        StatePart::Matrix { heads, .. } => (2, heads),
                    };
                    assert_eq!(range.start, next[kind], "layer {layer}");
                    assert!(kind == 2 || range.start.is_multiple_of(PART_ROWS));
                    next[kind] = range.end;
                }
                let full = layout.is_full_attention(layer);
                let expected = if full { [tokens, tokens, 0] } else { [0, 0, 32] };
                assert_eq!(next, expected, "layer {layer} of {tokens} tokens");
            }
            assert_eq!(bytes, layout.bytes(tokens));
        }
    }
}
