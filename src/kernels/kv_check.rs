//! What the tests of the attention kernels share: a cache on the host, random projections, the reference.

use super::check::{Draw, Gpu, Output};
use super::kv::{HEAD_DIM, KvLayout, KvType, Side};
use super::rope::{AttentionShape, table};
use crate::ops::{self, RopeTable};
use crate::quant;
use crate::vulkan::{Graph, Slice};

/// Positions of the tests' rotation tables.
pub(crate) const CONTEXT: usize = 2048;
/// Frequency base of the model.
pub(crate) const BASE: f32 = 1e7;

/// A shape with the model's epsilon.
pub(crate) fn shape(
    heads: u32,
    kv_heads: usize,
    rope_dims: u32,
    [keys, values]: [KvType; 2],
) -> AttentionShape {
    AttentionShape { heads, rope_dims, eps: 1e-6, kv: KvLayout { keys, values, kv_heads } }
}

/// All nine pairs of types.
pub(crate) fn pairs() -> impl Iterator<Item = [KvType; 2]> {
    KvType::ALL.into_iter().flat_map(|k| KvType::ALL.map(|v| [k, v]))
}

/// K and V buffers as on the device.
#[derive(Clone, PartialEq)]
pub(crate) struct Cache {
    pub(crate) layout: KvLayout,
    pub(crate) pages: usize,
    pub(crate) keys: Vec<u8>,
    pub(crate) values: Vec<u8>,
}

impl Cache {
    /// Nothing but NaN: what no kernel may let through.
    pub(crate) fn poisoned(layout: KvLayout, pages: usize) -> Self {
        let bytes = |side| vec![0xff; usize::try_from(layout.buffer_bytes(side, pages)).unwrap()];
        Self { layout, pages, keys: bytes(Side::Keys), values: bytes(Side::Values) }
    }

    fn split(&self, side: Side) -> usize {
        let [codes, _] = self.layout.ranges(side, self.pages, 0..self.pages);
        usize::try_from(codes.end).unwrap()
    }

    /// Bytes of the row of position `pos` from page `page` on.
    pub(crate) fn row(&self, side: Side, page: usize, pos: usize) -> Vec<u8> {
        let at = self.split(side);
        let bytes = if side == Side::Keys { &self.keys } else { &self.values };
        let (codes, scales) = bytes.split_at(at);
        let mut row = vec![0; self.layout.row_bytes(side)];
        self.layout.get_rows(side, &mut row, page * 64 + pos, [codes, scales]);
        row
    }

    pub(crate) fn put_row(&mut self, side: Side, page: usize, pos: usize, row: &[u8]) {
        let at = self.split(side);
        let bytes = if side == Side::Keys { &mut self.keys } else { &mut self.values };
        let (codes, scales) = bytes.split_at_mut(at);
        self.layout.put_rows(side, row, page * 64 + pos, [codes, scales]);
    }

    /// Fills positions `0..len` from page `page` on.
    pub(crate) fn fill(&mut self, draw: &mut Draw, page: usize, len: usize) {
        let width = self.layout.kv_heads * HEAD_DIM;
        for pos in 0..len {
            for side in [Side::Keys, Side::Values] {
                let row = quantised(self.layout.ty(side), &draw.normals(width));
                self.put_row(side, page, pos, &row);
            }
        }
    }

    /// Values of one head of rows `0..len`.
    fn head(&self, side: Side, page: usize, len: usize, head: usize) -> Vec<f32> {
        let ty = self.layout.ty(side).tensor();
        let bytes = ty.row_bytes(HEAD_DIM).unwrap();
        let mut out = vec![0.0; len * HEAD_DIM];
        for (pos, out) in out.chunks_exact_mut(HEAD_DIM).enumerate() {
            quant::dequantize(ty, &self.row(side, page, pos)[head * bytes..][..bytes], out);
        }
        out
    }

    /// Buffers that kernels may write.
    pub(crate) fn upload(&self, gpu: &mut Gpu, graph: &mut Graph) -> DeviceCache {
        let outputs = [gpu.update("K", &self.keys), gpu.update("V", &self.values)];
        for o in &outputs {
            graph.input(&o.slice());
        }
        DeviceCache { outputs }
    }
}

/// A cache on the device.
pub(crate) struct DeviceCache {
    outputs: [Output; 2],
}

impl DeviceCache {
    pub(crate) fn slice(&self, side: Side) -> Slice {
        self.outputs[usize::from(side == Side::Values)].slice()
    }

    pub(crate) fn download(&self, gpu: &mut Gpu, like: &Cache) -> Cache {
        let [keys, values] = self.outputs.each_ref().map(|o| {
            let words = gpu.words(o);
            bytemuck::cast_slice(&words).to_vec()
        });
        Cache { keys, values, ..like.clone() }
    }
}

/// A row in the cache's type.
pub(crate) fn quantised(ty: KvType, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; ty.tensor().row_bytes(values.len()).unwrap()];
    quant::quantize_kv(ty.tensor(), values, &mut bytes);
    bytes
}

/// The weights of a layer's norms and the rotation.
pub(crate) struct Layer {
    pub(crate) shape: AttentionShape,
    pub(crate) q_norm: Vec<f32>,
    pub(crate) k_norm: Vec<f32>,
    rope: RopeTable,
}

/// A token's heads after norm and rotation.
pub(crate) struct Heads {
    pub(crate) q: Vec<Vec<f32>>,
    pub(crate) gate: Vec<Vec<f32>>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
}

impl Layer {
    pub(crate) fn draw(draw: &mut Draw, shape: AttentionShape) -> Self {
        let mut weights = || (0..HEAD_DIM).map(|_| 1.0 + 0.2 * draw.normal()).collect();
        let (q_norm, k_norm) = (weights(), weights());
        Self {
            shape,
            q_norm,
            k_norm,
            rope: RopeTable::new(CONTEXT, shape.rope_dims as usize, BASE),
        }
    }

    pub(crate) fn table(&self) -> Vec<[f32; 2]> {
        table(CONTEXT, self.shape.rope_dims as usize, BASE)
    }

    /// A token at `pos` from its row of projections.
    pub(crate) fn heads(&self, proj: &[f32], pos: usize) -> Heads {
        let ready = |head: &[f32], norm: &[f32]| {
            let mut head = head.to_vec();
            ops::rms_norm_mut(&mut head, norm, self.shape.eps);
            self.rope.rotate(&mut head, pos);
            head
        };
        let (queries, rest) = proj.split_at(2 * self.shape.query_width() as usize);
        let width = self.shape.kv.kv_heads * HEAD_DIM;
        let pieces = || queries.chunks_exact(2 * HEAD_DIM);
        Heads {
            q: pieces().map(|p| ready(&p[..HEAD_DIM], &self.q_norm)).collect(),
            gate: pieces().map(|p| p[HEAD_DIM..].to_vec()).collect(),
            k: rest[..width].chunks(HEAD_DIM).flat_map(|k| ready(k, &self.k_norm)).collect(),
            v: rest[width..2 * width].to_vec(),
        }
    }

    /// Gated attention of a token to the rows `0 ..= pos` of the cache.
    pub(crate) fn attend(&self, heads: &Heads, cache: &Cache, page: usize, pos: usize) -> Vec<f32> {
        let group = self.shape.heads as usize / self.shape.kv.kv_heads;
        let mut y = Vec::new();
        for kv_head in 0..self.shape.kv.kv_heads {
            let keys = cache.head(Side::Keys, page, pos + 1, kv_head);
            let values = cache.head(Side::Values, page, pos + 1, kv_head);
            for h in kv_head * group..(kv_head + 1) * group {
                let (mut scores, mut out) = (vec![0.0; pos + 1], vec![0.0; HEAD_DIM]);
                ops::attend(&heads.q[h], &keys, &values, 0.0625, &mut scores, &mut out);
                ops::gate_output(&mut out, &heads.gate[h]);
                y.extend(out);
            }
        }
        y
    }

    /// Checks that the row stored for `pos` is the quantised one: V to the bit; K, whose norm is rounded differently, but for
    /// rare codes at a border, which then are neighbours.
    pub(crate) fn check_row(&self, heads: &Heads, cache: &Cache, page: usize, pos: usize) {
        let v = quantised(self.shape.kv.values, &heads.v);
        assert!(cache.row(Side::Values, page, pos) == v, "V row of {pos}");
        let ty = self.shape.kv.keys;
        let decoded = |bytes: &[u8]| {
            let mut out = vec![0.0; heads.k.len()];
            quant::dequantize(ty.tensor(), bytes, &mut out);
            out
        };
        let (k, stored) = (quantised(ty, &heads.k), cache.row(Side::Keys, page, pos));
        let differ = k.iter().zip(&stored).filter(|(a, b)| a != b).count();
        assert!(differ <= 2 + k.len() / 100, "{differ} of {} bytes of K row {pos}", k.len());
        let step = match ty {
            KvType::F16 => 2e-3,
            KvType::Q8_0 => 1.0 / 126.0,
            KvType::Q4_0 => 1.0 / 7.9,
        };
        for (a, b) in decoded(&k).chunks(32).zip(decoded(&stored).chunks(32)) {
            let most = a.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
            let off = a.iter().zip(b).fold(0.0_f32, |m, (a, b)| m.max((a - b).abs()));
            assert!(off <= step * most, "K row {pos}: off by {off} of {most}");
        }
    }
}

/// f32 scores of 256 products and exponentials carry a few 1e-6 into weights that sum to one; values are below 6.
pub(crate) const BOUND: f32 = 2e-5;

/// Compares a row of outputs.
pub(crate) fn close(y: &[f32], expected: &[f32], bound: f32, what: &str) {
    assert_eq!(y.len(), expected.len(), "{what}");
    let mut worst = 0.0_f32;
    for (i, (a, b)) in y.iter().zip(expected).enumerate() {
        assert!(
            (a - b).abs() <= bound,
            "{what}: value {i} is {a} ({:08x}), expected {b}",
            a.to_bits()
        );
        worst = worst.max((a - b).abs());
    }
    println!("{what}: worst error {worst:e}");
}
