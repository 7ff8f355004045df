//! `Q8_0` blocks as a file has them, split into the planes that the other kernels read ([`Planes`]): block `b` of the
//! planes has its 32 codes at byte `32 b` of one and its scale at byte `2 b` of the other.
//!
//! Blocks of one matrix follow each other, row by row. Those of several, of equally many rows, lie matrix by matrix;
//! row `i` of matrix `p` of `n` becomes row `n i + p` of the planes.

use super::mv_q8::Planes;
use super::registry::Interface;
use crate::vulkan::{Binding, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use std::sync::Arc;

/// What `small/split.comp` declares.
pub const SPLIT: Interface = Interface {
    variant: "split",
    bindings: &[Binding::read(3), Binding::write(4), Binding::write(5)],
    push_bytes: size_of::<Push>(),
    constants: &["workgroup"],
};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    blocks: u32,
    row_blocks: u32,
    parts: u32,
    codes_at: u32,
    scales_at: u32,
}

const _: () = assert!(size_of::<Push>() == 20);

/// Bytes of a block in the file, and of its parts in the planes.
const BLOCK_BYTES: u64 = 34;
const CODES: u64 = 32;
const SCALE: u64 = 2;

/// Most workgroups of a dispatch; each invocation goes on until the blocks end.
const GROUPS: u32 = 8192;

/// The kernel.
pub struct Split {
    pipeline: Arc<Pipeline>,
    workgroup: u32,
    /// What offsets of bindings are multiples of.
    align: u64,
}

/// What a dispatch reads and writes.
pub struct SplitIo<'a> {
    /// Blocks of all matrices, in whole words.
    pub raw: Slice,
    /// Where they go.
    pub planes: &'a Planes,
    /// The first block there, even.
    pub first: u64,
}

impl Split {
    /// Compiles the kernel.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the device refuses.
    pub fn new(device: &Arc<Device>) -> Result<Self, Error> {
        let sg = device.caps().subgroup_size(32);
        let workgroup = 256.min(device.caps().workgroup_limit(sg));
        let align = device.caps().limits.storage_align.max(4);
        Ok(Self { pipeline: SPLIT.pipeline(device, &[workgroup], sg)?, workgroup, align })
    }

    /// Adds a dispatch to the last level of `graph`, for `rows` rows of `row_blocks` blocks of `parts` matrices
    /// together. Where the blocks are odd in number, two bytes behind their last scale become zero.
    ///
    /// # Panics
    /// When the matrices differ in rows, the first block is odd, or a slice is too small.
    pub fn record(
        &self,
        graph: &mut Graph,
        label: &str,
        (rows, row_blocks, parts): (u32, u32, u32),
        io: &SplitIo<'_>,
    ) {
        let blocks = rows.checked_mul(row_blocks).expect("fewer blocks than a binding has bytes");
        let count = u64::from(blocks);
        assert!(rows.is_multiple_of(parts), "{label}: {rows} rows of {parts} matrices");
        assert!(io.first.is_multiple_of(2), "{label}: begins at block {}", io.first);
        // The shader reads whole words.
        let raw_bytes = (count * BLOCK_BYTES).next_multiple_of(4);
        assert!(io.raw.bytes >= raw_bytes, "{label}: {} bytes of blocks", io.raw.bytes);
        let (codes, codes_at) = self.window(&io.planes.codes, io.first * CODES, count * CODES);
        let (scales, scales_at) = self.window(&io.planes.scales, io.first * SCALE, count * SCALE);
        let push = Push { blocks, row_blocks, parts, codes_at, scales_at };
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            slices: vec![io.raw.clone(), codes, scales],
            push: bytemuck::bytes_of(&push).to_vec(),
            grid: [(blocks * 8).div_ceil(self.workgroup).min(GROUPS), 1, 1].into(),
            cost: Cost { bytes: 2 * count * BLOCK_BYTES, flops: 0 },
        });
    }

    /// A binding of `bytes` bytes of a plane from byte `at` on, whole words of them, and how many words it begins
    /// before that.
    fn window(&self, plane: &Slice, at: u64, bytes: u64) -> (Slice, u32) {
        assert!(at + bytes <= plane.bytes, "{bytes} bytes from {at} on of {}", plane.bytes);
        let start = plane.offset + at;
        let aligned = start / self.align * self.align;
        let skipped = start - aligned;
        let slice = plane.buffer.slice(aligned, skipped + bytes.next_multiple_of(4));
        (slice, u32::try_from(skipped / 4).expect("less than an alignment"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{self, Draw};
    use crate::kernels::mv_q8::repack;

    /// What the host makes of blocks: codes and scales of the planes.
    fn expected(raw: &[u8], rows: usize, row_bytes: usize, parts: usize) -> (Vec<u8>, Vec<u8>) {
        let place = |row: usize| row % parts * (rows / parts) + row / parts;
        let rows: Vec<_> =
            (0..rows).map(|row| &raw[place(row) * row_bytes..][..row_bytes]).collect();
        let blocks = raw.len() / 34;
        let (mut codes, mut scales) = (vec![0; blocks * 32], vec![0; blocks * 2]);
        repack(&rows.concat(), &mut codes, &mut scales);
        (codes, scales)
    }

    #[test]
    fn planes_are_those_of_the_host() {
        let Some(mut gpu) = check::gpu() else { return };
        let kernel = Split::new(gpu.device()).unwrap();
        let mut draw = Draw::new(34);
        // Rows, blocks of a row, matrices, first block: odd numbers of blocks, and windows off every alignment.
        for (rows, row_blocks, parts, first) in [
            (1, 1, 1, 0),
            (3, 5, 1, 2),
            (2, 1, 2, 0),
            (14, 3, 2, 6),
            (40, 64, 2, 128),
            (301, 2, 1, 0),
        ] {
            let what =
                format!("{rows} rows of {row_blocks} blocks, {parts} matrices, from {first} on");
            let row_bytes = row_blocks * 34;
            let raw: Vec<u8> =
                (0..rows * row_bytes).map(|_| u8::try_from(draw.below(256)).unwrap()).collect();
            let (codes, mut scales) = expected(&raw, rows, row_bytes, parts);
            scales.resize(scales.len().next_multiple_of(4), 0);
            let input = gpu.input("raw", &raw).buffer.all();
            let (to_codes, to_scales) = (
                gpu.output("codes", first * 32 + codes.len()),
                gpu.output("scales", first * 2 + scales.len()),
            );
            let planes = Planes { codes: to_codes.slice(), scales: to_scales.slice() };
            let mut graph = Graph::new("split");
            graph.input(&input);
            graph.level();
            let sizes = [rows, row_blocks, parts].map(|n| u32::try_from(n).unwrap());
            let io = SplitIo { raw: input, planes: &planes, first: first as u64 };
            kernel.record(&mut graph, "split", sizes.into(), &io);
            gpu.run(graph);
            for (output, bytes, skipped) in
                [(&to_codes, &codes, first * 32), (&to_scales, &scales, first * 2)]
            {
                let words = gpu.words(output);
                let (before, found) = words.split_at(skipped / 4);
                assert!(before.iter().all(|&w| w == check::Gpu::POISON), "{what}: before");
                assert_eq!(bytemuck::cast_slice::<u32, u8>(found), bytes, "{what}");
            }
        }
    }
}
