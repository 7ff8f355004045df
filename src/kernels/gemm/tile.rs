//! The arithmetic of a product and how it is cut.

use super::super::mode::Mode;
use super::Shape;
use crate::vulkan::{Ability, Caps};
use bytemuck::{Pod, Zeroable};

/// How products are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Path {
    /// f32 throughout.
    F32,
    /// Pairs of f16, added to f32 sums every 32 columns.
    Pk16,
    /// Cooperative matrices of f16 with f32 sums.
    Matrix,
}

impl Path {
    /// The path of a mode on a device.
    pub fn choose(mode: Mode, caps: &Caps) -> Self {
        match mode {
            Mode::Fast if caps.has(Ability::Matrix) => Self::Matrix,
            Mode::Fast if caps.has(Ability::Float16) => Self::Pk16,
            Mode::Exact | Mode::Fast => Self::F32,
        }
    }

    /// What it is, for people.
    pub(in crate::kernels) fn words(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Pk16 => "packed f16",
            Self::Matrix => "matrices of f16",
        }
    }

    /// Every path that a device has, for tests.
    #[cfg(test)]
    pub(in crate::kernels) fn all(caps: &Caps) -> Vec<Self> {
        let mut all = vec![Self::F32];
        if caps.has(Ability::Float16) {
            all.push(Self::Pk16);
        }
        if caps.has(Ability::Matrix) || caps.has(Ability::Matrix8) {
            all.push(Self::Matrix);
        }
        all
    }

    /// Whether activations are f16 with a factor for each row, instead of f32.
    pub fn half(self) -> bool {
        self != Self::F32
    }

    /// The exponent of the power of two that weights are multiplied by, when `exponent` brings the largest to 1: chains
    /// of packed f16 must not overflow; where sums are f32, products may be large, and small scales keep their bits.
    pub(in crate::kernels) fn weight_exponent(self, exponent: i32) -> i32 {
        match self {
            Self::F32 => 0,
            Self::Pk16 => exponent,
            Self::Matrix => exponent + 12,
        }
    }

    /// Bytes of an activation.
    pub fn bytes(self) -> u64 {
        if self.half() { 2 } else { 4 }
    }
}

/// How a product is cut, by specialization constants (`include/gemm.glsl`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct Tile {
    /// Invocations.
    pub workgroup: u32,
    /// Weight rows of a workgroup.
    pub bm: u32,
    /// Tokens of a workgroup.
    pub bn: u32,
    /// Columns of a step.
    pub bk: u32,
    /// Rows of a unit: of an invocation, on [`Path::Matrix`] of a subgroup.
    pub wm: u32,
    /// Tokens of a unit.
    pub wn: u32,
    /// Tokens of a unit that are done or skipped together; on [`Path::Matrix`] matrices of them.
    pub group: u32,
    /// Tiles in shared memory at a time: 1 or 2.
    pub parts: u32,
}

impl Tile {
    /// A tile of the paths without matrices: 16 invocations along the rows.
    pub(in crate::kernels) const fn micro(bm: u32, bn: u32, wn: u32, group: u32) -> Self {
        Self { workgroup: 16 * bn / wn, bm, bn, bk: 32, wm: bm / 16, wn, group, parts: 1 }
    }

    /// A tile of [`Path::Matrix`]: `rows` x `tokens` subgroups that each hold `wm` x `wn`, `group` tokens at a time.
    pub fn matrix(caps: &Caps, [rows, tokens]: [u32; 2], [wm, wn]: [u32; 2], group: u32) -> Self {
        let workgroup = rows * tokens * caps.subgroup_size(32);
        let (bm, bn) = (rows * wm, tokens * wn);
        Self { workgroup, bm, bn, bk: 32, wm, wn, group: group / edge(caps), parts: 1 }
    }

    /// What it is, for people.
    pub(in crate::kernels) fn words(&self) -> String {
        let Self { workgroup, bm, bn, bk, .. } = self;
        format!("workgroups of {workgroup} for {bm} rows and {bn} tokens, {bk} columns at a time")
    }

    /// Bytes of shared memory.
    pub(super) fn shared_bytes(&self, path: Path) -> u64 {
        let row = u64::from(self.bk) * path.bytes() + 16;
        u64::from(self.parts * (self.bm + self.bn)) * row
    }

    /// What the sums of matrices need beyond that.
    fn sum_bytes(&self, path: Path, edge: u32) -> u64 {
        let units = (self.bm / self.wm) * (self.bn / self.wn);
        let sums = if path == Path::Matrix { u64::from(units * edge * edge * 8) } else { 0 };
        sums.saturating_sub(self.shared_bytes(path))
    }

    /// Whether the parts belong together and fit the device.
    pub(in crate::kernels) fn check(
        &self,
        path: Path,
        k: u32,
        besides: u64,
        caps: &Caps,
    ) -> Result<(), String> {
        let Self { workgroup, bm, bn, bk, wm, wn, group, .. } = *self;
        let matrix = path == Path::Matrix;
        let (lanes, edge) = if matrix { (caps.subgroup_size(32), edge(caps)) } else { (1, 1) };
        let even = wm > 0 && wn > 0 && group > 0 && bm % wm == 0 && bn % wn == 0;
        if !even || !bk.is_multiple_of(32) || wm % edge + wn % (group * edge) > 0 {
            return Err(format!("{self:?} does not cover a tile"));
        }
        let units = (bm / wm) * (bn / wn);
        if units * lanes != workgroup {
            return Err(format!("{self:?} has {units} units of {lanes} invocations"));
        }
        if k == 0 || !k.is_multiple_of(bk) {
            return Err(format!("rows of {k} values, expected a multiple of {bk}"));
        }
        let shared = self.shared_bytes(path) + self.sum_bytes(path, edge) + besides;
        let limit = caps.limits.shared_bytes;
        if shared > u64::from(limit) {
            return Err(format!("{shared} bytes of shared memory, the device allows {limit}"));
        }
        Ok(())
    }
}

/// Rows and columns of a cooperative matrix.
pub(in crate::kernels) fn edge(caps: &Caps) -> u32 {
    if caps.has(Ability::Matrix8) { 8 } else { 16 }
}

/// The tile for a product on a device: of several that would do, the first that fits.
pub fn select(path: Path, shape: Shape, caps: &Caps) -> Tile {
    let candidates = match (path, shape.tokens) {
        (Path::F32, 0..=32) => vec![Tile::micro(64, 32, 4, 4)],
        (Path::F32, _) => vec![Tile::micro(64, 64, 8, 8)],
        (Path::Pk16, 0..=32) => vec![Tile::micro(128, 32, 4, 4)],
        (Path::Pk16, 33..=64) => vec![Tile::micro(128, 64, 8, 4)],
        (Path::Pk16, _) => vec![Tile::micro(128, 128, 8, 4)],
        // Few tokens are bound by the loads of weights: long steps have more of them under way.
        (Path::Matrix, 0..=32) => steps(Tile::matrix(caps, [2, 2], [32, 16], 16)),
        (Path::Matrix, 33..=64) => steps(Tile::matrix(caps, [2, 2], [32, 32], 32)),
        // 64 x 64 sums are half of a subgroup's registers and four times as many products as loads.
        (Path::Matrix, _) => vec![Tile::matrix(caps, [2, 2], [64, 64], 64)],
    };
    let fits = candidates.iter().find(|tile| tile.check(path, shape.k, 0, caps).is_ok());
    *fits.unwrap_or(&candidates[candidates.len() - 1])
}

/// The tile for the router: few rows, so that many small tiles are needed to fill a device.
pub(super) fn select_logits(path: Path, shape: Shape, caps: &Caps) -> Tile {
    match (path, shape.tokens) {
        (Path::F32 | Path::Pk16, _) => select(Path::F32, shape, caps),
        (Path::Matrix, 0..=32) => Tile::matrix(caps, [2, 1], [32, 32], 32),
        (Path::Matrix, _) => Tile::matrix(caps, [2, 2], [32, 32], 32),
    }
}

/// The tile with steps of 128 columns, 64 and 32.
fn steps(tile: Tile) -> Vec<Tile> {
    [128, 64, 32].map(|bk| Tile { bk, ..tile }).to_vec()
}
