//! The dimensions of a model, from its metadata (model.md 1.3). Values are free; relations between
//! them and the limits of the kernels are checked here, once.

use std::fmt::Display;

use serde::Serialize;

use super::error::{Error, Invalid};
use crate::gguf::{File, Metadata, Value};
use crate::quant::TensorType;

/// Size of an attention head: what the attention kernels are written for.
const HEAD_DIM: usize = 256;
/// Size of a recurrent head: what the delta-rule kernels are written for.
const STATE_DIM: usize = 128;
const CONV_TAPS: usize = 4;
const MAX_EXPERTS: usize = 256;
/// What the router kernels select.
const MAX_EXPERTS_USED: usize = 8;
/// Bounds that keep every product of dimensions within 64 bits.
const MAX_LAYERS: usize = 1024;
const MAX_WIDTH: usize = 1 << 16;
const MAX_VOCAB: usize = 1 << 22;
const MAX_CONTEXT: usize = 1 << 30;
/// Activations are quantized in blocks of this many values.
const ACTIVATION_BLOCK: usize = 256;
/// Rows of every storage type that may hold a narrower matrix are blocks of this many values.
const NARROW_BLOCK: usize = 32;

/// The dimensions of a model. Every value has been checked against the others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shape {
    /// Layers, without an MTP block.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of the embedding and of the head; some may belong to no token.
    pub vocab: usize,
    /// Query heads of a full-attention layer.
    pub heads: usize,
    /// Key and value heads of a full-attention layer.
    pub kv_heads: usize,
    /// Size of a query, key or value head.
    pub head_dim: usize,
    /// Rotated values of a head, from its start.
    pub rope_dims: usize,
    /// Base of the rotation frequencies.
    pub rope_base: f32,
    /// Epsilon of every RMS norm.
    pub rms_eps: f32,
    /// Every `full_interval`-th layer has full attention.
    pub full_interval: usize,
    /// Query and key heads of a recurrent layer.
    pub key_heads: usize,
    /// Value heads of a recurrent layer.
    pub value_heads: usize,
    /// Size of a recurrent head, key and value.
    pub state_dim: usize,
    /// Taps of the convolution.
    pub conv_taps: usize,
    /// Width of a recurrent layer's values: `value_heads * state_dim`.
    pub inner: usize,
    /// Channels of the convolution: queries, keys and values.
    pub conv_channels: usize,
    /// Routed experts of a layer.
    pub experts: usize,
    /// Routed experts that a token uses.
    pub experts_used: usize,
    /// Width of a routed expert.
    pub expert_ffn: usize,
    /// Width of the shared expert.
    pub shared_ffn: usize,
    /// Positions the model was trained for.
    pub context_length: usize,
}

impl Shape {
    /// Reads and checks the dimensions of a main model file. The vocabulary is as large as the
    /// embedding; the list of tokens is compared with it later.
    pub fn from_file(file: &File) -> Result<Self, Error> {
        let mut keys = Keys { meta: file.metadata(), file };
        let nextn = keys.optional("nextn_predict_layers")?.unwrap_or(0);
        let blocks = keys.usize("block_count", 1, MAX_LAYERS)?;
        let Some(layers) = blocks.checked_sub(nextn).filter(|&n| n > 0) else {
            return Err(keys.fail("nextn_predict_layers", "less than block_count", nextn));
        };
        let head_dim = keys.exactly("attention.key_length", HEAD_DIM)?;
        let state_dim = keys.exactly("ssm.state_size", STATE_DIM)?;
        let heads = keys.usize("attention.head_count", 1, MAX_WIDTH / HEAD_DIM)?;
        let key_heads = keys.usize("ssm.group_count", 1, MAX_WIDTH / STATE_DIM)?;
        let value_heads = keys.multiple("ssm.time_step_rank", key_heads, MAX_WIDTH / STATE_DIM)?;
        let inner = keys.exactly("ssm.inner_size", value_heads * state_dim)?;
        keys.exactly("attention.value_length", head_dim)?;
        let experts = keys.usize("expert_count", 1, MAX_EXPERTS)?;
        let shape = Self {
            layers,
            hidden: keys.multiple("embedding_length", ACTIVATION_BLOCK, MAX_WIDTH)?,
            vocab: vocab(file)?,
            heads,
            kv_heads: keys.divisor("attention.head_count_kv", heads)?,
            head_dim,
            rope_dims: keys.multiple("rope.dimension_count", 2, head_dim)?,
            rope_base: keys.positive("rope.freq_base")?,
            rms_eps: keys.positive("attention.layer_norm_rms_epsilon")?,
            full_interval: keys.usize("full_attention_interval", 2, layers.max(2))?,
            key_heads,
            value_heads,
            state_dim,
            conv_taps: keys.exactly("ssm.conv_kernel", CONV_TAPS)?,
            inner,
            conv_channels: 2 * key_heads * state_dim + inner,
            experts,
            experts_used: keys.usize("expert_used_count", 1, MAX_EXPERTS_USED.min(experts))?,
            expert_ffn: keys.multiple("expert_feed_forward_length", NARROW_BLOCK, MAX_WIDTH)?,
            shared_ffn: keys.multiple(
                "expert_shared_feed_forward_length",
                NARROW_BLOCK,
                MAX_WIDTH,
            )?,
            context_length: keys.usize("context_length", 1, MAX_CONTEXT)?,
        };
        keys.rope_sections(shape.rope_dims)?;
        keys.layer_kinds(&shape, blocks)?;
        keys.expert_scale()?;
        Ok(shape)
    }

    /// Whether a layer has full attention; the others are recurrent.
    pub fn is_full_attention(&self, layer: usize) -> bool {
        (layer + 1).is_multiple_of(self.full_interval)
    }

    /// Number of full-attention layers.
    pub fn attention_layers(&self) -> usize {
        self.layers / self.full_interval
    }

    /// Number of recurrent layers.
    pub fn recurrent_layers(&self) -> usize {
        self.layers - self.attention_layers()
    }

    /// Which of the full-attention layers a layer is.
    pub fn attention_index(&self, layer: usize) -> Option<usize> {
        self.is_full_attention(layer).then(|| layer / self.full_interval)
    }

    /// Which of the recurrent layers a layer is.
    pub fn recurrent_index(&self, layer: usize) -> Option<usize> {
        (!self.is_full_attention(layer)).then(|| layer - layer / self.full_interval)
    }

    /// Query heads that share one key/value head.
    pub fn heads_per_kv(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Width of all query heads together.
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Values in one K or V row: one position of one full-attention layer.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Bytes of one K or V row.
    ///
    /// # Panics
    /// If `ty` has blocks that do not divide a head, which no KV type has.
    pub fn kv_row_bytes(&self, ty: TensorType) -> usize {
        ty.row_bytes(self.kv_width()).expect("KV blocks of 1 or 32 values divide a head of 256")
    }

    /// Bytes of K and V of one position in all full-attention layers.
    pub fn kv_token_bytes(&self, k: TensorType, v: TensorType) -> usize {
        self.attention_layers() * (self.kv_row_bytes(k) + self.kv_row_bytes(v))
    }

    /// Values of one recurrent layer's state S.
    pub fn state_len(&self) -> usize {
        self.value_heads * self.state_dim * self.state_dim
    }

    /// Values of one recurrent layer's raw convolution rows: one for each tap, the newest included.
    pub fn conv_rows_len(&self) -> usize {
        self.conv_taps * self.conv_channels
    }

    /// Bytes of one state slot: S and the raw convolution rows of all recurrent layers, as f32.
    pub fn state_slot_bytes(&self) -> usize {
        self.recurrent_layers() * (self.state_len() + self.conv_rows_len()) * size_of::<f32>()
    }

    /// Bytes of one row of logits.
    pub fn logits_bytes(&self) -> usize {
        self.vocab * size_of::<f32>()
    }

    /// Tensors of a main model file: embedding, head and its norm, 19 for a recurrent layer, 16 for
    /// one with full attention.
    pub fn tensor_count(&self) -> usize {
        3 + 19 * self.recurrent_layers() + 16 * self.attention_layers()
    }
}

fn vocab(file: &File) -> Result<usize, Error> {
    const KEY: &str = "tokenizer.ggml.tokens";
    let rows = file.tensor("token_embd.weight").and_then(|t| t.dims.get(1).copied());
    let listed = || file.metadata().array(KEY).map(|a| a.count());
    let count = rows.map_or_else(listed, Ok)?;
    let fits = usize::try_from(count).ok().filter(|n| (1..=MAX_VOCAB).contains(n));
    fits.ok_or_else(|| {
        let rule = format!("1 to {MAX_VOCAB} rows of token_embd.weight");
        Error::model(file.path(), Invalid::key("vocabulary", rule, count))
    })
}

/// Reads architecture keys, which all have the same prefix.
struct Keys<'a> {
    meta: &'a Metadata,
    file: &'a File,
}

impl Keys<'_> {
    fn full(key: &str) -> String {
        format!("qwen35moe.{key}")
    }

    fn fail(&self, key: &str, expected: impl Display, found: impl Display) -> Error {
        Error::model(self.file.path(), Invalid::key(&Self::full(key), expected, found))
    }

    fn optional(&mut self, key: &str) -> Result<Option<usize>, Error> {
        let full = Self::full(key);
        self.meta.get(&full).is_some().then(|| self.usize(key, 0, MAX_WIDTH)).transpose()
    }

    fn usize(&mut self, key: &str, min: usize, max: usize) -> Result<usize, Error> {
        let found = self.meta.u64(&Self::full(key))?;
        let value = usize::try_from(found).ok().filter(|v| (min..=max).contains(v));
        value.ok_or_else(|| self.fail(key, format!("{min} to {max}"), found))
    }

    fn exactly(&mut self, key: &str, expected: usize) -> Result<usize, Error> {
        let found = self.meta.u64(&Self::full(key))?;
        if found == expected as u64 { Ok(expected) } else { Err(self.fail(key, expected, found)) }
    }

    fn multiple(&mut self, key: &str, of: usize, max: usize) -> Result<usize, Error> {
        let found = self.meta.u64(&Self::full(key))?;
        let value = usize::try_from(found).ok();
        let value = value.filter(|v| (1..=max).contains(v) && v.is_multiple_of(of));
        value.ok_or_else(|| self.fail(key, format!("a multiple of {of} up to {max}"), found))
    }

    fn divisor(&mut self, key: &str, of: usize) -> Result<usize, Error> {
        let found = self.meta.u64(&Self::full(key))?;
        let value = usize::try_from(found).ok().filter(|&v| v > 0 && of.is_multiple_of(v));
        value.ok_or_else(|| self.fail(key, format!("a divisor of {of}"), found))
    }

    fn positive(&mut self, key: &str) -> Result<f32, Error> {
        let found = self.meta.f32(&Self::full(key))?;
        if found.is_finite() && found > 0.0 {
            Ok(found)
        } else {
            Err(self.fail(key, "a finite positive number", format!("{found:?}")))
        }
    }

    /// For text all sections rotate alike, so only their sum matters: half the rotated values.
    fn rope_sections(&mut self, rope_dims: usize) -> Result<(), Error> {
        const KEY: &str = "rope.dimension_sections";
        let key = Self::full(KEY);
        let found = self.meta.i32s(&key)?;
        let fail = |problem| Err(Error::model(self.file.path(), problem));
        if found.len() != 4 {
            return fail(Invalid::Length { key, expected: 4, found: found.len() as u64 });
        }
        let mut left = i64::try_from(rope_dims / 2).expect("at most half a head");
        for (index, &v) in found.iter().enumerate() {
            // The last section must use up what is left, and is itself unused.
            let fits =
                if index == 3 { v == 0 && left == 0 } else { 0 <= v && i64::from(v) <= left };
            if !fits {
                let expected = Some(format!("a sum of {}", rope_dims / 2));
                return fail(Invalid::Element { key, index, found: v.to_string(), expected });
            }
            left -= i64::from(v);
        }
        Ok(())
    }

    /// Newer converters list the kinds of the layers; the list must follow the interval.
    fn layer_kinds(&mut self, shape: &Shape, blocks: usize) -> Result<(), Error> {
        let key = Self::full("attention.recurrent_layers");
        if self.meta.get(&key).is_none() {
            return Ok(());
        }
        let found = self.meta.bools(&key)?;
        let fail = |problem| Err(Error::model(self.file.path(), problem));
        if found.len() != blocks {
            return fail(Invalid::Length {
                key,
                expected: blocks as u64,
                found: found.len() as u64,
            });
        }
        let wrong = (0..shape.layers).find(|&i| found[i] == shape.is_full_attention(i));
        wrong.map_or(Ok(()), |index| {
            let expected = Some((!found[index]).to_string());
            fail(Invalid::Element { key, index, found: found[index].to_string(), expected })
        })
    }

    fn expert_scale(&mut self) -> Result<(), Error> {
        const KEY: &str = "expert_weights_scale";
        let found = self.meta.get(&Self::full(KEY));
        match found {
            None | Some(Value::F32(1.0)) => Ok(()),
            Some(v) => Err(self.fail(KEY, "1.0", v.describe())),
        }
    }
}
