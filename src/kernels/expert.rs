//! What the kernels of the expert block share: its sizes, the formats of expert matrices, and the order in which
//! activations lie between the kernels.
//!
//! Expert matrices stay as they are in the file. A lane multiplies 64 weights at a time, a *unit*, which every
//! format allows: two `Q8_0` blocks, or a quarter of a super-block. The kernel that makes a vector of activations
//! writes it in *unit order* ([`Order`]), vector `v` (of four values) of unit `u` at `v * units + u`, so that lanes
//! with neighbouring units read neighbouring bytes. Where activations are bytes ([`Values::I8`]), the 16 values of
//! quarter `q` of unit `u` are one vector at `q * units + u`, followed by the scales of all quarters in the same order.
//! Nobody but the expert kernels reads such vectors.

use super::mode::Mode;
use crate::quant::TensorType;
use crate::vulkan::{Ability, Caps};

/// Weights of a unit.
pub const UNIT: u32 = 64;

/// Sizes of the expert block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Width of the residual.
    pub hidden: u32,
    /// Routed experts.
    pub experts: u32,
    /// Experts chosen for a row, at most [`MAX_USED`].
    pub used: u32,
    /// Width of a routed expert.
    pub expert_ffn: u32,
    /// Width of the shared expert.
    pub shared_ffn: u32,
}

/// Most experts of a row.
pub const MAX_USED: u32 = 8;

impl Sizes {
    /// Whether the kernels can be built for these sizes.
    pub(super) fn check(&self) -> Result<(), String> {
        let Self { hidden, experts, used, expert_ffn, shared_ffn } = *self;
        for (what, width) in
            [("residual", hidden), ("expert", expert_ffn), ("shared expert", shared_ffn)]
        {
            if width == 0 || !width.is_multiple_of(UNIT) {
                return Err(format!("{what} of {width} values, expected a multiple of {UNIT}"));
            }
        }
        if used == 0 || used > MAX_USED.min(experts) {
            return Err(format!("{used} of {experts} experts, at most {MAX_USED} can be chosen"));
        }
        Ok(())
    }
}

/// Which 64 values make a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Values in a row.
    Plain,
    /// Four runs of 16 values, 32 apart: how `Q2_K` and `Q6_K` interleave their codes.
    Interleaved,
}

impl Order {
    /// The order of the input of a matrix of this format.
    pub fn of(format: TensorType) -> Self {
        if matches!(format, TensorType::Q2_K | TensorType::Q6_K) {
            Self::Interleaved
        } else {
            Self::Plain
        }
    }

    /// The specialization constant.
    pub(super) fn constant(self) -> u32 {
        match self {
            Self::Plain => 0,
            Self::Interleaved => 1,
        }
    }

    /// Where value `at` of a vector of `len` values is.
    pub fn place(self, at: usize, len: usize) -> usize {
        let (vector, units) = (at / 4, len / UNIT as usize);
        let (unit, within) = match self {
            Self::Plain => (vector / 16, vector % 16),
            Self::Interleaved => (
                vector / 64 * 4 + vector / 32 % 2 * 2 + vector / 4 % 2,
                vector / 8 % 4 * 4 + vector % 4,
            ),
        };
        (within * units + unit) * 4 + at % 4
    }
}

/// How activations are passed between the kernels of the expert block. Each vector takes the bytes of its f32 form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// f32.
    F32,
    /// f32 between the kernels, multiplied as packed pairs of f16 by those that can.
    F16,
    /// Signed bytes with a scale for each 16 values, for packed integer dot products.
    I8,
}

impl Values {
    /// What a device is fast at. All kernels of an expert block must be made for the same.
    pub fn choose(mode: Mode, caps: &Caps) -> Self {
        match mode {
            Mode::Fast if caps.has(Ability::IntDot) => Self::I8,
            Mode::Fast if caps.has(Ability::Float16) => Self::F16,
            Mode::Fast | Mode::Exact => Self::F32,
        }
    }
}

/// Whether the rows of a batch should be grouped by expert, so that an expert's weights are read once for all rows
/// that chose it. That costs two dispatches and spreads the work less evenly. Where a large cache serves the second
/// reader it does not pay: eight rows take 7.9 ms without and 11.5 ms with it on an H200 (50 MB of cache, driver 580.159,
/// published shape). Drivers do not tell the size of the cache; the number of compute units goes with it.
pub fn groups_rows(caps: &Caps) -> bool {
    caps.compute_units.unwrap_or(32) < 64
}

/// What the kernels of an expert block have to agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Format of the gate and up matrices.
    pub gate_up: TensorType,
    /// Format of the down matrices.
    pub down: TensorType,
    /// How activations are passed.
    pub values: Values,
}

/// Lanes that share a row of `width` weights: one for each unit, as a power of two, in one subgroup.
pub(super) fn lanes(width: u32, subgroup: u32) -> u32 {
    (width / UNIT).next_power_of_two().min(subgroup)
}

/// Bytes of a matrix with these rows, as a binding must hold them: whole words.
pub(super) fn matrix_bytes(format: TensorType, rows: u64, width: u32) -> u64 {
    let blocks = u64::from(width) / format.block_len() as u64;
    (rows * blocks * format.block_bytes() as u64).next_multiple_of(4)
}

/// Whether rows of `width` weights are made of whole blocks of the format.
pub(super) fn fits(format: TensorType, width: u32) -> Result<(), String> {
    if (width as usize).is_multiple_of(format.block_len()) {
        return Ok(());
    }
    Err(format!("rows of {width} weights are not made of whole blocks of {}", format.name()))
}

/// A workgroup of subgroups of `sg`, about 256 invocations.
pub(super) fn workgroup(sg: u32, caps: &Caps) -> u32 {
    caps.workgroup_limit(sg).min(256) / sg * sg
}

#[cfg(test)]
pub(super) mod bench;
#[cfg(test)]
mod precise;
#[cfg(test)]
pub(super) mod samples;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_order_is_a_permutation() {
        for (order, len) in [(Order::Plain, 64), (Order::Plain, 320), (Order::Interleaved, 512)] {
            let mut seen = vec![false; len];
            for i in 0..len {
                let place = order.place(i, len);
                assert!(!seen[place], "{order:?} {i}");
                seen[place] = true;
            }
        }
        // Unit 1 of Q2_K: weights 16 to 31, 48 to 63, 80 to 95, 112 to 127 of a block.
        let first = Order::Interleaved.place(16, 512);
        assert_eq!(first, 4);
        assert_eq!(Order::Interleaved.place(48, 512), (4 * 8 + 1) * 4);
    }

    #[test]
    fn sizes_are_checked() {
        let sizes = Sizes { hidden: 2048, experts: 256, used: 8, expert_ffn: 512, shared_ffn: 512 };
        assert_eq!(sizes.check(), Ok(()));
        assert!(Sizes { used: 9, ..sizes }.check().is_err());
        assert!(Sizes { experts: 4, ..sizes }.check().is_err());
        assert!(Sizes { expert_ffn: 96, ..sizes }.check().is_err());
        assert_eq!((lanes(512, 32), lanes(256, 64), lanes(2048, 8), lanes(768, 64)), (8, 4, 8, 16));
    }
}
