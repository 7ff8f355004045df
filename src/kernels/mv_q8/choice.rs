//! How a mat-vec is cut for a device.

use super::{Form, PART_ROWS, Shape, Storage, matrix};
use crate::kernels::mode::Mode;
use crate::vulkan::Caps;
use bytemuck::{Pod, Zeroable};

/// Which program, with its constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Sums in lanes, f32.
    Lanes(Constants),
    /// Cooperative matrices.
    Matrix(matrix::Constants),
}

impl Cut {
    /// Rows of a workgroup.
    pub(super) fn group_rows(&self) -> u32 {
        match self {
            Self::Lanes(constants) => constants.group_rows(),
            Self::Matrix(constants) => constants.group_rows(),
        }
    }
}

/// The program for a matrix on a device. The same one for every batch.
pub(super) fn choose(form: Form, shape: Shape, mode: Mode, caps: &Caps) -> Result<Cut, String> {
    let lanes = select(form, shape, caps)?;
    let matrix = if mode == Mode::Fast { matrix::select(form, shape, caps) } else { None };
    Ok(matrix.map_or(Cut::Lanes(lanes), Cut::Matrix))
}

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Constants {
    pub(super) workgroup: u32,
    /// Subgroup size. The only constant that enters the order of a sum.
    pub(super) sg: u32,
    /// Subgroups of a workgroup.
    pub(super) nsg: u32,
    /// Vectors.
    pub(super) nt: u32,
    /// Rows of a subgroup at a time.
    pub(super) r: u32,
    /// How many times.
    pub(super) t: u32,
    /// Chunks of a row that a lane has in flight.
    pub(super) u: u32,
    pub(super) k: u32,
    /// Chunks of the vectors in shared memory at once.
    pub(super) block: u32,
    /// Whether they are there at all (0 or 1).
    pub(super) stage_x: u32,
    /// Whether a lane's share of x fits registers (0 or 1).
    pub(super) x_in_regs: u32,
}

impl Constants {
    pub(super) const NAMES: &[&str] =
        &["workgroup", "SG", "NSG", "NT", "R", "T", "U", "K", "BLOCK", "STAGE_X", "X_IN_REGS"];

    /// Rows of a workgroup.
    pub(super) fn group_rows(&self) -> u32 {
        self.nsg * self.r * self.t
    }
}

/// Weights in a lane's chunk.
pub(super) fn chunk(storage: Storage) -> u32 {
    match storage {
        Storage::Q8 => 16,
        Storage::F32 => 4,
    }
}

/// The constants for a matrix on a device.
///
/// A lane has eight loads of 16 bytes in flight, as a few rows times a few chunks: more rows read the vectors
/// less often, fewer make more workgroups. One vector wants about four workgroups for each compute unit; more
/// vectors read so much of x that rows matter more.
pub(super) fn select(form: Form, shape: Shape, caps: &Caps) -> Result<Constants, String> {
    let Shape { rows, k, batch: nt, storage } = shape;
    if rows == 0 || k == 0 || !k.is_multiple_of(32) {
        return Err(format!("{rows} rows of {k} values, expected whole blocks of 32"));
    }
    if ![1, 2, 4, 8].contains(&nt) {
        return Err(format!("{nt} vectors, expected 1, 2, 4 or 8"));
    }
    let sg = caps.subgroup_size(64);
    let units = caps.compute_units.unwrap_or(32);
    let wanted = if nt == 1 { 4 * units } else { units * 3 / 4 };
    let limit = (caps.workgroup_limit(sg) / sg).max(1);
    // What is staged of many vectors serves more subgroups where there are rows enough.
    let wide = nt > 2 && sg >= 16 && rows >= 64 * wanted;
    let most = if wide { 512 / sg } else { (256 / sg).min(8) };
    let nsg = 1 << limit.min(most.max(1)).ilog2();
    let groups = |rows_of: u32| rows.div_ceil(nsg * rows_of);
    // Partial sums of squares may not be split between workgroups.
    let least = if form == Form::Residual { (PART_ROWS / nsg).max(1) } else { 1 };
    let r = [4, 2].into_iter().find(|&r| groups(r) >= wanted).unwrap_or(1).max(least);
    let steps = (k / chunk(storage)).div_ceil(sg);
    // Small subgroups belong to processors that compile long programs slowly.
    let flight = match () {
        // Besides, the next ones are loaded during the products of these.
        () if nt > 2 => 1,
        () if sg < 16 => 2,
        () => 8 / r,
    };
    let fits = staged_chunks(shape, caps);
    let u = 1 << flight.min(steps).min(fits / sg).max(1).ilog2();
    let all = k / chunk(storage);
    let stage_x = u32::from(fits >= all || fits >= sg);
    let block = if fits >= all || stage_x == 0 { all } else { fits / (sg * u) * (sg * u) };
    let whole = block == all;
    let t = [4, 2].into_iter().find(|&t| whole && groups(r * t) >= wanted).unwrap_or(1);
    let x_in_regs = u32::from(nt == 1 && t > 1 && u == steps && u * chunk(storage) <= 32);
    let workgroup = sg * nsg;
    Ok(Constants { workgroup, sg, nsg, nt, r, t, u, k, block, stage_x, x_in_regs })
}

/// How many chunks of the vectors have room in shared memory. Leaves some for several workgroups on a compute
/// unit, and for the outputs of one.
fn staged_chunks(shape: Shape, caps: &Caps) -> u32 {
    let budget = caps.limits.shared_bytes.min(40 << 10).saturating_sub(SHARED_BESIDES_X);
    (budget / (shape.batch * chunk(shape.storage) * 4)).saturating_sub(2)
}

/// Scales of the rows, outputs of a workgroup.
const SHARED_BESIDES_X: u32 = 5 << 10;

/// The choice for a matrix in words.
pub(in crate::kernels) fn describe(
    form: Form,
    shape: Shape,
    caps: &Caps,
) -> Result<String, String> {
    match choose(form, shape, Mode::Fast, caps)? {
        Cut::Lanes(Constants { workgroup, sg, r, t, u, x_in_regs, .. }) => {
            let place = if x_in_regs == 1 { "registers" } else { "shared memory" };
            Ok(format!(
                "workgroups of {workgroup}, subgroups of {sg}, {r} rows and {u} chunks at a time, {t} times, input \
                 in {place}"
            ))
        }
        Cut::Matrix(matrix::Constants { workgroup, t, .. }) => {
            Ok(format!("matrices of f16, workgroups of {workgroup}, 16 rows at a time, {t} times"))
        }
    }
}

/// A grid of at least `groups` workgroups, the y dimension used only where x is not enough.
pub(super) fn grid(groups: u32, width: u32) -> [u32; 3] {
    let y = groups.div_ceil(width);
    [groups.div_ceil(y), y, 1]
}
