//! How an expert product is cut, and what fits which device.

use super::super::expert::Sizes;
use super::super::gemm::{Path, Tile, edge};
use crate::quant::TensorType;
use crate::vulkan::Caps;

/// How an expert product is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertTile {
    /// Rows, slots, columns.
    pub tile: Tile,
    /// Slabs of raw weights in shared memory: 1, or 2 to load ahead.
    pub raw_parts: u32,
}

/// Words from one row's raw weights to the next's in shared memory, an odd number (`include/dequant.glsl`); `None` for
/// formats that have no kernel.
fn slab_words(format: TensorType) -> Option<u32> {
    match format {
        TensorType::Q8_0 | TensorType::IQ2_XXS => Some(17),
        TensorType::Q4_K => Some(13),
        TensorType::Q2_K | TensorType::Q5_K => Some(21),
        TensorType::Q6_K => Some(53),
        TensorType::F32
        | TensorType::F16
        | TensorType::BF16
        | TensorType::I32
        | TensorType::Q4_0
        | TensorType::Q8_K
        | TensorType::IQ2_S
        | TensorType::IQ3_S => None,
    }
}

/// Bytes of a format's tables in shared memory.
fn table_bytes(path: Path, format: TensorType) -> u64 {
    match (format, path.half()) {
        (TensorType::IQ2_XXS, true) => 256 * 16 + 128 * 16,
        (TensorType::IQ2_XXS, false) => 256 * 8,
        _ => 64,
    }
}

impl ExpertTile {
    /// Whether the tile can be built for rows of `k` weights on a device.
    pub(super) fn check(
        &self,
        path: Path,
        format: TensorType,
        k: u32,
        caps: &Caps,
    ) -> Result<(), String> {
        let words = slab_words(format)
            .ok_or_else(|| format!("no expert products with {}", format.name()))?;
        if !(k as usize).is_multiple_of(format.block_len()) || !k.is_multiple_of(64) {
            return Err(format!("rows of {k} weights in {}", format.name()));
        }
        let raw = u64::from(self.raw_parts * self.tile.bm * words) * 4;
        // Slot, row, factor, weight or largest factor, and magnitude of each column.
        let columns = u64::from(self.tile.bn) * 20;
        self.tile.check(path, k, raw + columns + table_bytes(path, format), caps)
    }

    /// Whether a unit of work holds both rows of each pair.
    pub(super) fn holds_pairs(&self, path: Path, caps: &Caps) -> bool {
        let turn = if path == Path::Matrix { edge(caps) } else { 1 };
        self.tile.bm.is_multiple_of(32) && self.tile.wm.is_multiple_of(2 * turn)
    }
}

/// Slots of a tile for chunks of up to `tokens`: what an expert can expect, so that its weights are decoded once.
/// Matrices skip the part of a tile that an expert does not fill, so theirs are larger.
pub fn tile_slots(path: Path, sizes: &Sizes, tokens: u32) -> u32 {
    let expected = tokens * sizes.used / sizes.experts.max(1);
    match (path, expected) {
        (_, 0..=8) => 16,
        (Path::F32 | Path::Pk16, 9..=24) => 32,
        (Path::F32 | Path::Pk16, _) | (Path::Matrix, 9..=32) => 64,
        (Path::Matrix, _) => 128,
    }
}

/// The tile for a product on a device: the largest that fits.
///
/// # Errors
/// Why none is possible.
pub fn select(
    path: Path,
    format: TensorType,
    k: u32,
    slots: u32,
    caps: &Caps,
) -> Result<ExpertTile, String> {
    let micro = |bm| {
        let wn = 8.min(slots / 4);
        ExpertTile { tile: Tile::micro(bm, slots, wn, wn.min(4)), raw_parts: 1 }
    };
    // Each subgroup has all slots of the tile, so that all skip the same.
    let matrix = |subgroups, raw_parts| {
        let tile = Tile::matrix(caps, [subgroups, 1], [32, slots], slots.min(32));
        ExpertTile { tile, raw_parts }
    };
    let candidates = match path {
        Path::F32 => vec![micro(64), micro(32)],
        Path::Pk16 => vec![micro(128), micro(64)],
        Path::Matrix => vec![matrix(4, 2), matrix(4, 1), matrix(2, 2), matrix(2, 1)],
    };
    let mut why = String::new();
    for candidate in candidates {
        match candidate.check(path, format, k, caps) {
            Ok(()) => return Ok(candidate),
            Err(e) => why = e,
        }
    }
    Err(why)
}
