//! Where keys and values lie on the device (vulkan.md 3.8), and the exact way there and back.
//!
//! An attention layer has one buffer of K and one of V for all sessions: pages of 64 positions; a session owns
//! consecutive pages from `Row::page` on. A row of a KV head is 256 values in f16, `Q8_0` or `Q4_0`, chosen for K and V
//! separately. Its codes are the bytes of the GGUF blocks without their scales; K is transposed in chunks of 16
//! bytes, V is row-major:
//!
//! ```text
//! K buffer   codes   [page][kv head][chunk of 16 bytes][64 keys] 16 bytes
//!            scales  [page][kv head][block of 32][64 keys] f16
//! V buffer   codes   [page][kv head][64 keys] bytes of a row
//!            scales  [page][kv head][64 keys][block of 32] f16
//! ```
//!
//! Scales of all pages stand behind the codes of all pages, so that shaders see each as what it is. `F16` has no
//! scales; its buffers keep a stub, because a binding cannot be empty. The bytes are those of the
//! block formats otherwise. Pages are never cleared: what lies beyond a session's length means nothing.
//!
//! Quantising on the device (`shaders/include/kv_store.glsl`) makes the bits of [`crate::quant::quantize_kv`] from the
//! same f32 values, except that a block whose scale is below the normal f32 numbers gets zero codes.

use crate::kernels::control::PAGE_TOKENS;
use crate::quant::TensorType;
use crate::vulkan::Slice;
use std::ops::Range;

/// Values of a head: what the kernels are written for, as `model::Shape` checks.
pub const HEAD_DIM: usize = 256;
/// The same, as kernels count.
pub(super) const HEAD_VALUES: u32 = 256;
/// Values that share a scale.
const BLOCK: usize = 32;
/// Blocks of a head.
const BLOCKS: usize = HEAD_DIM / BLOCK;
/// Bytes of K that stay together.
const CHUNK: usize = 16;
/// Bytes of a scale plane where there are no scales.
const STUB: u64 = 16;

/// How keys or values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum KvType {
    /// IEEE halves.
    F16 = 0,
    /// Blocks of 32 signed bytes.
    Q8_0 = 1,
    /// Blocks of 32 nibbles.
    Q4_0 = 2,
}

impl KvType {
    /// Every type.
    pub const ALL: [Self; 3] = [Self::F16, Self::Q8_0, Self::Q4_0];

    /// The type of these rows, if the cache can have them.
    pub fn from_tensor(ty: TensorType) -> Option<Self> {
        Self::ALL.into_iter().find(|kv| kv.tensor() == ty)
    }

    /// The GGUF type of its rows.
    pub fn tensor(self) -> TensorType {
        match self {
            Self::F16 => TensorType::F16,
            Self::Q8_0 => TensorType::Q8_0,
            Self::Q4_0 => TensorType::Q4_0,
        }
    }

    /// Bytes of a head's codes.
    fn code_bytes(self) -> usize {
        match self {
            Self::F16 => 2 * HEAD_DIM,
            Self::Q8_0 => HEAD_DIM,
            Self::Q4_0 => HEAD_DIM / 2,
        }
    }

    /// Scales of a head.
    fn scales(self) -> usize {
        if self == Self::F16 { 0 } else { BLOCKS }
    }
}

/// Keys or values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// K, transposed.
    Keys,
    /// V, row-major.
    Values,
}

/// The layout of one layer's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvLayout {
    /// Type of K.
    pub keys: KvType,
    /// Type of V.
    pub values: KvType,
    /// KV heads.
    pub kv_heads: usize,
}

/// Codes and scales of a K or V buffer, for bindings.
#[derive(Clone)]
pub struct KvPlanes {
    /// Codes of all pages.
    pub codes: Slice,
    /// Scales of all pages, or a stub.
    pub scales: Slice,
}

impl KvLayout {
    /// The type of K or V.
    pub fn ty(&self, side: Side) -> KvType {
        match side {
            Side::Keys => self.keys,
            Side::Values => self.values,
        }
    }

    /// Bytes of a stored row, all KV heads, in the layout of GGUF and of saved sessions.
    pub fn row_bytes(&self, side: Side) -> usize {
        let ty = self.ty(side);
        self.kv_heads * (ty.code_bytes() + 2 * ty.scales())
    }

    /// Bytes of a page, all KV heads, codes and scales: 64 rows.
    pub fn page_bytes(&self, side: Side) -> u64 {
        (self.row_bytes(side) * PAGE_TOKENS) as u64
    }

    /// Bytes of a buffer of so many pages.
    pub fn buffer_bytes(&self, side: Side, pages: usize) -> u64 {
        self.plane(side, Plane::Codes, 0..pages).end + self.scale_plane_bytes(side, pages)
    }

    /// The two planes of a buffer of so many pages.
    ///
    /// # Panics
    /// When the slice has not the size of such a buffer.
    pub fn planes(&self, side: Side, buffer: &Slice, pages: usize) -> KvPlanes {
        assert_eq!(buffer.bytes, self.buffer_bytes(side, pages), "bytes of {pages} pages");
        let codes = self.plane(side, Plane::Codes, 0..pages).end;
        let part = |from: u64, bytes| buffer.buffer.slice(buffer.offset + from, bytes);
        let scales = part(codes, self.scale_plane_bytes(side, pages));
        KvPlanes { codes: part(0, codes), scales }
    }

    /// Where, in a buffer of `all` pages, codes and scales of some of them lie. The second range is empty for
    /// `F16`.
    pub fn ranges(&self, side: Side, all: usize, pages: Range<usize>) -> [Range<u64>; 2] {
        let codes = self.plane(side, Plane::Codes, 0..all).end;
        let scales = self.plane(side, Plane::Scales, pages.clone());
        [self.plane(side, Plane::Codes, pages), codes + scales.start..codes + scales.end]
    }

    /// Copies rows (as in GGUF: each all KV heads, blocks with their scales) into codes and scales of consecutive
    /// pages, the first of them to position `first` of these pages.
    ///
    /// # Panics
    /// When the pages have no such rows, or `rows` is not whole rows.
    pub fn put_rows(&self, side: Side, rows: &[u8], first: usize, pages: [&mut [u8]; 2]) {
        let [codes, scales] = pages;
        self.each_part(side, rows.len(), first, |part| {
            let plane = match part.plane {
                Plane::Codes => &mut *codes,
                Plane::Scales => &mut *scales,
            };
            let row = &rows[part.row..part.row + part.bytes];
            plane[part.stored..part.stored + part.bytes].copy_from_slice(row);
        });
    }

    /// The reverse of [`KvLayout::put_rows`].
    ///
    /// # Panics
    /// As that.
    pub fn get_rows(&self, side: Side, rows: &mut [u8], first: usize, pages: [&[u8]; 2]) {
        let [codes, scales] = pages;
        let bytes = rows.len();
        self.each_part(side, bytes, first, |part| {
            let plane = match part.plane {
                Plane::Codes => codes,
                Plane::Scales => scales,
            };
            let stored = &plane[part.stored..part.stored + part.bytes];
            rows[part.row..part.row + part.bytes].copy_from_slice(stored);
        });
    }

    /// Every run of bytes that stays together, with its places in the rows and in the pages.
    fn each_part(&self, side: Side, bytes: usize, first: usize, mut copy: impl FnMut(Part)) {
        let (ty, row_bytes) = (self.ty(side), self.row_bytes(side));
        assert!(bytes.is_multiple_of(row_bytes), "whole rows of {row_bytes} bytes, got {bytes}");
        let block = ty.code_bytes() / BLOCKS;
        let step = block + 2 * ty.scales() / BLOCKS;
        for pos in first..first + bytes / row_bytes {
            for head in 0..self.kv_heads {
                let row = (pos - first) * row_bytes + head * (row_bytes / self.kv_heads);
                for index in 0..BLOCKS {
                    let at = row + index * step;
                    let place = Place { pos, head, index };
                    if ty.scales() > 0 {
                        let stored = 2 * self.scale_at(side, place);
                        copy(Part { plane: Plane::Scales, row: at, stored, bytes: 2 });
                    }
                    let codes = at + step - block;
                    for chunk in 0..block / CHUNK {
                        let row = codes + chunk * CHUNK;
                        let index = index * (block / CHUNK) + chunk;
                        let stored = self.chunk_at(side, Place { index, ..place }) * CHUNK;
                        copy(Part { plane: Plane::Codes, row, stored, bytes: CHUNK });
                    }
                }
            }
        }
    }

    /// Which chunk of the codes; `index` counts chunks of the row. As `k_chunk_at` of kv.glsl.
    fn chunk_at(&self, side: Side, Place { pos, head, index }: Place) -> usize {
        let page_head = pos / PAGE_TOKENS * self.kv_heads + head;
        let (key, chunks) = (pos % PAGE_TOKENS, self.ty(side).code_bytes() / CHUNK);
        match side {
            Side::Keys => (page_head * chunks + index) * PAGE_TOKENS + key,
            Side::Values => (page_head * PAGE_TOKENS + key) * chunks + index,
        }
    }

    /// Which scale; `index` counts blocks of the row. As `k_scale_at` and `v_scale_at` of kv.glsl.
    fn scale_at(&self, side: Side, Place { pos, head, index }: Place) -> usize {
        let page_head = pos / PAGE_TOKENS * self.kv_heads + head;
        let key = pos % PAGE_TOKENS;
        match side {
            Side::Keys => (page_head * BLOCKS + index) * PAGE_TOKENS + key,
            Side::Values => (page_head * PAGE_TOKENS + key) * BLOCKS + index,
        }
    }

    /// Bytes of some pages within a plane.
    fn plane(&self, side: Side, plane: Plane, pages: Range<usize>) -> Range<u64> {
        let ty = self.ty(side);
        let row = match plane {
            Plane::Codes => ty.code_bytes(),
            Plane::Scales => 2 * ty.scales(),
        };
        let page = (row * self.kv_heads * PAGE_TOKENS) as u64;
        pages.start as u64 * page..pages.end as u64 * page
    }

    fn scale_plane_bytes(&self, side: Side, pages: usize) -> u64 {
        self.plane(side, Plane::Scales, 0..pages).end.max(STUB)
    }
}

/// One of the two planes.
#[derive(Clone, Copy)]
enum Plane {
    Codes,
    Scales,
}

/// A chunk or block of a row.
#[derive(Clone, Copy)]
struct Place {
    pos: usize,
    head: usize,
    index: usize,
}

/// Bytes that stay together: their place in the rows, and in a plane.
struct Part {
    plane: Plane,
    row: usize,
    stored: usize,
    bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::Draw;

    fn layouts() -> impl Iterator<Item = KvLayout> {
        let pairs = KvType::ALL.into_iter().flat_map(|k| KvType::ALL.map(|v| (k, v)));
        pairs.flat_map(|(keys, values)| {
            [1, 2, 3].map(|kv_heads| KvLayout { keys, values, kv_heads })
        })
    }

    #[test]
    fn rows_have_the_bytes_of_the_block_formats() {
        for layout in layouts() {
            for side in [Side::Keys, Side::Values] {
                let head = layout.ty(side).tensor().row_bytes(HEAD_DIM).unwrap();
                assert_eq!(layout.row_bytes(side), head * layout.kv_heads);
                assert_eq!(layout.page_bytes(side), 64 * layout.row_bytes(side) as u64);
                let bytes = layout.buffer_bytes(side, 5);
                let stub = if layout.ty(side) == KvType::F16 { STUB } else { 0 };
                assert_eq!(bytes, 5 * layout.page_bytes(side) + stub);
                let [codes, scales] = layout.ranges(side, 5, 0..5);
                assert_eq!((codes.end, scales.end + stub), (scales.start, bytes));
            }
        }
    }

    #[test]
    fn rows_come_back_and_touch_nothing_else() {
        let mut draw = Draw::new(1);
        for layout in layouts() {
            for side in [Side::Keys, Side::Values] {
                let row = layout.row_bytes(side);
                let mut bytes = |n| -> Vec<u8> {
                    (0..n).map(|_| u8::try_from(draw.below(256)).unwrap()).collect()
                };
                let rows = bytes(130 * row);
                let [codes, scales] = layout
                    .ranges(side, 4, 0..4)
                    .map(|r| bytes(usize::try_from(r.end - r.start).unwrap()));
                let (mut new_codes, mut new_scales) = (codes.clone(), scales.clone());
                layout.put_rows(side, &rows, 61, [&mut new_codes, &mut new_scales]);
                let mut back = vec![0; rows.len()];
                layout.get_rows(side, &mut back, 61, [&new_codes, &new_scales]);
                assert!(back == rows, "{layout:?} {side:?}");
                for range in [0..61, 191..256] {
                    let read = |codes, scales| {
                        let mut rows = vec![0; range.len() * row];
                        layout.get_rows(side, &mut rows, range.start, [codes, scales]);
                        rows
                    };
                    assert!(read(&codes, &scales) == read(&new_codes, &new_scales));
                }
            }
        }
    }
}
