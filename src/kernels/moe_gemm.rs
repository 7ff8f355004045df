//! Expert products of a prefill chunk, grouped by expert ([`super::moe_plan`]):
//!
//! ```text
//! mid[slot][r]  = silu(sum_k x[t][k] G[e][r][k]) * sum_k x[t][k] U[e][r][k] * route[slot]     ([`GateUp`])
//! down[slot][r] = sum_k mid[slot][k] D[e][r][k]                                              ([`Down`])
//! ```
//!
//! with slot = t * used + place and e its expert. `G`, `U`: `[experts][expert_ffn][hidden]`, `D`:
//! `[experts][hidden][expert_ffn]`, raw blocks as in the file. On the paths of f16 ([`Path::half`]) `x` is f16 with
//! factors ([`super::cvt`]), `mid` f16 with one power of two for each slot and run of [`GateUp::factor_rows`] values,
//! `down` f16 times 2^-4, which reaches to a million; else all is f32.
//!
//! A workgroup decodes weights of one expert once for all slots of a tile. Gate and up share the rows of `x`. How
//! many slots the tile has is data: columns past them are skipped. The bits of a slot depend on the path alone, not on
//! its place in a tile.

use super::expert::{Sizes, matrix_bytes};
use super::gemm::{Path, Tile, edge, power_of_two};
use super::mode::Mode;
use super::moe_plan::PlanSlices;
use super::registry::Interface;
use crate::quant::TensorType;
use crate::vulkan::{Binding, Caps, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

mod tile;

pub use tile::{ExpertTile, select, tile_slots};

const PUSH: usize = size_of::<Push>();
/// Of gate and up on [`Path::Matrix`]; the others lack the edge.
#[rustfmt::skip]
const GATE_UP_MATRIX: &[&str] = &[
    "workgroup", "BM", "BN", "BK", "WM", "WN", "GROUP", "PARTS", "PAIRS", "K", "FORMAT", "ROWS", "RAW_PARTS",
    "USED", "EDGE",
];
const GATE_UP_CONSTANTS: &[&str] = GATE_UP_MATRIX.split_at(14).0;
/// Of down on [`Path::Matrix`]; [`Path::F32`] has no factors either.
#[rustfmt::skip]
const DOWN_MATRIX: &[&str] = &[
    "workgroup", "BM", "BN", "BK", "WM", "WN", "GROUP", "PARTS", "PAIRS", "K", "FORMAT", "ROWS", "RAW_PARTS",
    "FACTOR_ROWS", "EDGE",
];
const DOWN_HALF_CONSTANTS: &[&str] = DOWN_MATRIX.split_at(14).0;
const DOWN_CONSTANTS: &[&str] = DOWN_MATRIX.split_at(13).0;

const GATE_UP: &[Binding] = &[
    Binding::read(1),
    Binding::read(2),
    Binding::read(9),
    Binding::read(3),
    Binding::read(8),
    Binding::read(6),
    Binding::read(7),
    Binding::write(4),
];
const GATE_UP_HALF: &[Binding] = &[
    Binding::read(1),
    Binding::read(2),
    Binding::read(9),
    Binding::read(3),
    Binding::read(8),
    Binding::read(6),
    Binding::read(7),
    Binding::write(4),
    Binding::read(5),
    Binding::write(10),
];
const DOWN: &[Binding] =
    &[Binding::read(1), Binding::read(3), Binding::read(6), Binding::read(7), Binding::write(4)];
const DOWN_HALF: &[Binding] = &[
    Binding::read(1),
    Binding::read(3),
    Binding::read(6),
    Binding::read(7),
    Binding::write(4),
    Binding::read(5),
];

const fn interface(
    variant: &'static str,
    bindings: &'static [Binding],
    constants: &'static [&'static str],
) -> Interface {
    Interface { variant, bindings, push_bytes: PUSH, constants }
}

/// What the variants of `moe/moe_gemm.comp` declare: gate and up, then down, for each path.
pub const VARIANTS: &[Interface] = &[
    interface("moe_gu_gemm_f32", GATE_UP, GATE_UP_CONSTANTS),
    interface("moe_down_gemm_f32", DOWN, DOWN_CONSTANTS),
    interface("moe_gu_gemm_pk16", GATE_UP_HALF, GATE_UP_CONSTANTS),
    interface("moe_down_gemm_pk16", DOWN_HALF, DOWN_HALF_CONSTANTS),
    interface("moe_gu_gemm_matrix", GATE_UP_HALF, GATE_UP_MATRIX),
    interface("moe_down_gemm_matrix", DOWN_HALF, DOWN_MATRIX),
];

fn variant(path: Path, second: bool) -> &'static Interface {
    let path = match path {
        Path::F32 => 0,
        Path::Pk16 => 2,
        Path::Matrix => 4,
    };
    &VARIANTS[path + usize::from(second)]
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    scale: f32,
    unscale: f32,
}

const _: () = assert!(size_of::<Push>() == 8);

impl Push {
    fn new(path: Path, exponent: i32) -> Self {
        let exponent = path.weight_exponent(exponent);
        Self { scale: power_of_two(exponent), unscale: power_of_two(-exponent) }
    }
}

/// Specialization constants, in the order of their ids; not every variant has the last ones.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Constants {
    tile: Tile,
    pairs: u32,
    k: u32,
    format: u32,
    rows: u32,
    raw_parts: u32,
    /// Slots of a token, or values that share a factor.
    share: u32,
    edge: u32,
}

/// Compiles a variant with as many of the constants as it has.
fn build(
    device: &Arc<Device>,
    declared: &'static Interface,
    constants: Constants,
) -> Result<Arc<Pipeline>, Error> {
    let missing =
        || Error::Pipeline { name: declared.variant, why: "not in this build".to_owned() };
    let program = declared.program().ok_or_else(missing)?;
    let constants = [constants];
    let constants = &bytemuck::cast_slice(&constants)[..declared.constants.len()];
    Pipeline::new(device, program, constants, device.caps().subgroup_size(32))
}

/// The choice for gate and up of a fast chunk in words.
pub(super) fn describe(sizes: &Sizes, tokens: u32, caps: &Caps) -> Result<String, String> {
    let path = Path::choose(Mode::Fast, caps);
    let slots = tile_slots(path, sizes, tokens);
    let chosen = select(path, TensorType::IQ2_XXS, sizes.hidden, slots, caps)?;
    Ok(format!("{}, {}", path.words(), chosen.tile.words()))
}

/// What both products are built for.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Expert block.
    pub sizes: Sizes,
    /// Format of the matrices.
    pub format: TensorType,
    /// Size class of a chunk.
    pub tokens: u32,
    /// Arithmetic.
    pub path: Path,
}

impl Setup {
    fn slots(&self) -> u64 {
        u64::from(self.tokens) * u64::from(self.sizes.used)
    }

    /// Bytes of weights that a chunk reads if it uses every expert it can.
    fn weight_bytes(&self, rows: u32, k: u32) -> u64 {
        let experts = u64::from(self.sizes.experts).min(self.slots());
        matrix_bytes(self.format, experts * u64::from(rows), k)
    }

    fn matrix_bytes(&self, rows: u32, k: u32) -> u64 {
        matrix_bytes(self.format, u64::from(self.sizes.experts) * u64::from(rows), k)
    }
}

/// Gate and up.
pub struct GateUp {
    pipeline: Arc<Pipeline>,
    setup: Setup,
    tile: Tile,
}

/// What [`GateUp`] reads and writes.
pub struct GateUpOperands {
    /// Gate matrices.
    pub gate: Slice,
    /// Up matrices.
    pub up: Slice,
    /// The grid of `IQ2_XXS` ([`super::moe_gu::table`]), for that format.
    pub table: Option<Slice>,
    /// Exponent of a power of two that brings both to the range of f16 ([`super::gemm::exponent`]).
    pub exponent: i32,
    /// Normalised rows `[tokens][hidden]`.
    pub x: Slice,
    /// Their factors `[tokens]`, where they are f16.
    pub factor: Option<Slice>,
    /// Weights of the slots.
    pub route: Slice,
    /// Which products to compute.
    pub plan: PlanSlices,
    /// Output `[tokens * used][expert_ffn]`.
    pub mid: Slice,
    /// Its factors ([`GateUp::mid_factor_bytes`]), where it is f16.
    pub mid_factor: Option<Slice>,
}

impl GateUp {
    /// Compiles the kernel with the tile of [`select`] for [`tile_slots`].
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the sizes are not possible or the device refuses.
    pub fn new(device: &Arc<Device>, setup: Setup) -> Result<Self, Error> {
        let name = variant(setup.path, false).variant;
        let slots = tile_slots(setup.path, &setup.sizes, setup.tokens);
        let tile = select(setup.path, setup.format, setup.sizes.hidden, slots, device.caps());
        Self::with_tile(device, setup, tile.map_err(|why| Error::Pipeline { name, why })?)
    }

    /// The same with another tile, to compare.
    ///
    /// # Errors
    /// As [`GateUp::new`].
    pub fn with_tile(device: &Arc<Device>, setup: Setup, tile: ExpertTile) -> Result<Self, Error> {
        let declared = variant(setup.path, false);
        let fail = |why: String| Error::Pipeline { name: declared.variant, why };
        let Sizes { hidden, expert_ffn, used, .. } = setup.sizes;
        tile.check(setup.path, setup.format, hidden, device.caps()).map_err(fail)?;
        if !tile.holds_pairs(setup.path, device.caps()) {
            return Err(fail(format!("{:?} does not hold pairs", tile.tile)));
        }
        let constants = Constants {
            tile: tile.tile,
            pairs: 1,
            k: hidden,
            format: setup.format.gguf(),
            rows: expert_ffn,
            raw_parts: tile.raw_parts,
            share: used,
            edge: edge(device.caps()),
        };
        let pipeline = build(device, declared, constants)?;
        Ok(Self { pipeline, setup, tile: tile.tile })
    }

    /// Workgroups of each tile of slots ([`super::moe_plan::RowTiles::first`]).
    pub fn row_tiles(&self) -> u32 {
        self.setup.sizes.expert_ffn.div_ceil(self.factor_rows())
    }

    /// Slots of a tile, at most: what the plan cuts by.
    pub fn tile_slots(&self) -> u32 {
        self.tile.bn
    }

    /// Values of a slot of `mid` that share a factor.
    pub fn factor_rows(&self) -> u32 {
        self.tile.bm / 2
    }

    /// Bytes of the factors of `mid`.
    pub fn mid_factor_bytes(&self) -> u64 {
        self.setup.slots() * u64::from(self.row_tiles()) * 4
    }

    /// Adds the product to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice is too small, or an operand does not fit the path.
    pub fn record(&self, graph: &mut Graph, label: &str, io: GateUpOperands) {
        let Setup { sizes, path, .. } = self.setup;
        let (hidden, ffn, slots) =
            (u64::from(sizes.hidden), u64::from(sizes.expert_ffn), self.setup.slots());
        let bytes = self.setup.matrix_bytes(sizes.expert_ffn, sizes.hidden);
        let tokens = u64::from(self.setup.tokens);
        assert!(io.gate.bytes == bytes && io.up.bytes == bytes, "{label}: weights");
        assert!(io.x.bytes >= tokens * hidden * path.bytes(), "{label}: x");
        assert!(io.mid.bytes >= slots * ffn * path.bytes(), "{label}: mid");
        assert!(io.route.bytes >= slots * 4, "{label}: route");
        let halves = (io.factor.is_some(), io.mid_factor.is_some());
        assert_eq!(halves, (path.half(), path.half()), "{label}: factors");
        assert_eq!(io.table.is_some(), self.setup.format == TensorType::IQ2_XXS, "{label}: table");
        let grid = io.plan.first_grid();
        // Formats without a table do not read it.
        let table = io.table.unwrap_or_else(|| io.gate.clone());
        let plan = io.plan;
        let mut slices =
            vec![io.gate, io.up, table, io.x, io.route, plan.tiles, plan.slots, io.mid];
        slices.extend(io.factor);
        if let Some(factor) = io.mid_factor {
            assert!(factor.bytes >= self.mid_factor_bytes(), "{label}: factors of mid");
            slices.push(factor);
        }
        let weights = 2 * self.setup.weight_bytes(sizes.expert_ffn, sizes.hidden);
        let activations = (tokens * hidden + slots * ffn) * path.bytes();
        let cost = Cost { bytes: weights + activations, flops: 4 * slots * hidden * ffn };
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices,
            push: bytemuck::bytes_of(&Push::new(path, io.exponent)).to_vec(),
            grid,
            cost,
        });
    }
}

/// Down.
pub struct Down {
    pipeline: Arc<Pipeline>,
    setup: Setup,
    tile: Tile,
}

/// What [`Down`] reads and writes.
pub struct DownOperands {
    /// Down matrices.
    pub weights: Slice,
    /// Exponent of a power of two that brings them to the range of f16.
    pub exponent: i32,
    /// Input, as [`GateUp`] leaves it.
    pub mid: Slice,
    /// Its factors, where it is f16.
    pub mid_factor: Option<Slice>,
    /// Which products to compute.
    pub plan: PlanSlices,
    /// Output `[tokens * used][hidden]`.
    pub down: Slice,
}

impl Down {
    /// Compiles the kernel for what `first` leaves, with the tile of [`select`].
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the sizes are not possible or the device refuses.
    pub fn new(device: &Arc<Device>, setup: Setup, first: &GateUp) -> Result<Self, Error> {
        let name = variant(setup.path, true).variant;
        let (ffn, slots) = (setup.sizes.expert_ffn, first.tile_slots());
        let tile = select(setup.path, setup.format, ffn, slots, device.caps());
        Self::with_tile(device, setup, first, tile.map_err(|why| Error::Pipeline { name, why })?)
    }

    /// The same with another tile, to compare.
    ///
    /// # Errors
    /// As [`Down::new`].
    pub fn with_tile(
        device: &Arc<Device>,
        setup: Setup,
        first: &GateUp,
        tile: ExpertTile,
    ) -> Result<Self, Error> {
        let declared = variant(setup.path, true);
        let fail = |why: String| Error::Pipeline { name: declared.variant, why };
        let Sizes { hidden, expert_ffn, .. } = setup.sizes;
        tile.check(setup.path, setup.format, expert_ffn, device.caps()).map_err(fail)?;
        if tile.tile.bn < first.tile_slots() {
            return Err(fail(format!("tiles of {} slots", first.tile_slots())));
        }
        let constants = Constants {
            tile: tile.tile,
            pairs: 0,
            k: expert_ffn,
            format: setup.format.gguf(),
            rows: hidden,
            raw_parts: tile.raw_parts,
            share: first.factor_rows(),
            edge: edge(device.caps()),
        };
        let pipeline = build(device, declared, constants)?;
        Ok(Self { pipeline, setup, tile: tile.tile })
    }

    /// Workgroups of each tile of slots ([`super::moe_plan::RowTiles::second`]).
    pub fn row_tiles(&self) -> u32 {
        self.setup.sizes.hidden.div_ceil(self.tile.bm)
    }

    /// Adds the product to the last level of `graph`.
    ///
    /// # Panics
    /// When a slice is too small, or an operand does not fit the path.
    pub fn record(&self, graph: &mut Graph, label: &str, io: DownOperands) {
        let Setup { sizes, path, .. } = self.setup;
        let (hidden, ffn, slots) =
            (u64::from(sizes.hidden), u64::from(sizes.expert_ffn), self.setup.slots());
        let bytes = self.setup.matrix_bytes(sizes.hidden, sizes.expert_ffn);
        assert_eq!(io.weights.bytes, bytes, "{label}: weights");
        assert!(io.mid.bytes >= slots * ffn * path.bytes(), "{label}: mid");
        assert!(io.down.bytes >= slots * hidden * path.bytes(), "{label}: output");
        assert_eq!(io.mid_factor.is_some(), path.half(), "{label}: factors");
        let grid = io.plan.second_grid();
        let mut slices = vec![io.weights, io.mid, io.plan.tiles, io.plan.slots, io.down];
        slices.extend(io.mid_factor);
        let weights = self.setup.weight_bytes(sizes.hidden, sizes.expert_ffn);
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices,
            push: bytemuck::bytes_of(&Push::new(path, io.exponent)).to_vec(),
            grid,
            cost: Cost {
                bytes: weights + slots * (hidden + ffn) * path.bytes(),
                flops: 2 * slots * hidden * ffn,
            },
        });
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod timing;
