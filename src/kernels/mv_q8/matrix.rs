//! How a mat-vec is cut for cooperative matrices.

use super::{Form, Shape, Storage};
use crate::vulkan::{Ability, Caps};
use bytemuck::{Pod, Zeroable};

/// Specialization constants, in the order of their ids.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Constants {
    pub(super) workgroup: u32,
    pub(super) sg: u32,
    /// Subgroups of a workgroup: slices of a row of weights, whose sums are added in order.
    pub(super) nsg: u32,
    /// Vectors.
    pub(super) nt: u32,
    /// How many times so many rows.
    pub(super) t: u32,
    pub(super) k: u32,
}

impl Constants {
    /// Their names in the shader.
    pub(super) const NAMES: &[&str] = &["workgroup", "SG", "NSG", "NT", "T", "K"];

    /// Rows of a workgroup.
    pub(super) fn group_rows(&self) -> u32 {
        EDGE * self.t
    }
}

/// Rows, and columns, of a matrix of weights.
const EDGE: u32 = 16;
/// Values of a row that a subgroup takes.
const SLICE: u32 = 256;
/// Vectors of a matrix; `COLUMNS` in the shader.
const COLUMNS: u32 = 8;
/// More passes leave the last workgroups alone for too long.
const MOST_PASSES: u32 = 8;
/// Words of shared memory of a vector's step; `PITCH` in the shader.
const PITCH: u32 = 36;

/// The constants where the device and the shape suit. They are the same for every batch.
///
/// A workgroup brings the vectors into matrices once, so it takes as many rows as make two workgroups for each compute unit:
/// what is resident at once.
pub(super) fn select(form: Form, shape: Shape, caps: &Caps) -> Option<Constants> {
    let Shape { rows, k, batch: nt, storage } = shape;
    let sg = caps.subgroup_size(32);
    let suits = caps.has(Ability::MatrixThin) && sg == 32;
    if !suits || storage != Storage::Q8 || !k.is_multiple_of(SLICE) {
        return None;
    }
    let nsg = k / SLICE;
    let tiles = rows.div_ceil(EDGE);
    let wanted = 2 * caps.compute_units.unwrap_or(32);
    let t = tiles.div_ceil(wanted).min(MOST_PASSES);
    // Slabs of the head may not split a workgroup.
    let t = if form == Form::Head { t.next_power_of_two() } else { t };
    let constants = Constants { workgroup: sg * nsg, sg, nsg, nt, t, k };
    let fits = nsg <= caps.workgroup_limit(sg) / sg
        && constants.shared_bytes() <= caps.limits.shared_bytes;
    fits.then_some(constants)
}

impl Constants {
    /// Bytes of shared memory: a step of the vectors, sums of the slices and their powers, scales of the vectors, outputs.
    fn shared_bytes(&self) -> u32 {
        let passes = if self.t > 1 { 2 } else { 1 };
        let sums = self.nsg * COLUMNS * (passes * EDGE + 1);
        // Of as many vectors as there may be: the program may not depend on the batch.
        let outputs = COLUMNS * (self.group_rows() + 1);
        4 * (self.nsg * COLUMNS * PITCH + sums + outputs)
    }
}
