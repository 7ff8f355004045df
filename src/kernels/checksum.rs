//! Whether the device sees the bytes that the host sees: `sum[b] = Σ data[i] (2 i + 1)` modulo 2³², `i` over the
//! 16,384 words of block `b`. The factor tells words in the wrong place from the right ones.

use super::registry::Interface;
use crate::vulkan::{Binding, Cost, Device, Error, Graph, Node, Pipeline, Slice};
use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use std::sync::Arc;

/// What `small/checksum.comp` declares.
pub const CHECKSUM: Interface = Interface {
    variant: "checksum",
    bindings: &[Binding::read(3), Binding::write(4)],
    push_bytes: size_of::<Push>(),
    constants: &["workgroup"],
};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    words: u32,
}

const _: () = assert!(size_of::<Push>() == 4);

/// Bytes of a block.
const BLOCK_BYTES: usize = 1 << 16;

/// The kernel.
pub struct Checksum {
    pipeline: Arc<Pipeline>,
}

impl Checksum {
    /// Compiles the kernel.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the device refuses.
    pub fn new(device: &Arc<Device>) -> Result<Self, Error> {
        let sg = device.caps().subgroup_size(32);
        let workgroup = 256.min(device.caps().workgroup_limit(sg));
        Ok(Self { pipeline: CHECKSUM.pipeline(device, &[workgroup], sg)? })
    }

    /// Bytes of the sums of so many bytes of data.
    pub fn sums_bytes(bytes: u64) -> u64 {
        bytes.div_ceil(BLOCK_BYTES as u64) * 4
    }

    /// Adds the sums of `data`, whole words of it, to the last level of `graph`.
    ///
    /// # Panics
    /// When `sums` is not as large as they are.
    pub fn record(&self, graph: &mut Graph, label: &str, data: Slice, sums: Slice) {
        assert_eq!(sums.bytes, Self::sums_bytes(data.bytes / 4 * 4), "{label}: sums");
        let words = u32::try_from(data.bytes / 4).expect("within a binding");
        let cost = Cost { bytes: data.bytes, flops: 0 };
        graph.node(Node {
            label: label.to_owned(),
            pipeline: Arc::clone(&self.pipeline),
            grid: [u32::try_from(sums.bytes / 4).expect("fewer than words"), 1, 1].into(),
            slices: vec![data, sums],
            push: bytemuck::bytes_of(&Push { words }).to_vec(),
            cost,
        });
    }
}

/// The same sums by the host.
pub fn sums(data: &[u8]) -> Vec<u32> {
    let words = &data[..data.len() / 4 * 4];
    let block = |(b, bytes): (usize, &[u8])| {
        let first = b * (BLOCK_BYTES / 4);
        bytes.chunks_exact(4).zip(first..).fold(0_u32, |sum, (word, at)| {
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            let factor = u32::try_from(2 * at + 1).expect("within a binding");
            sum.wrapping_add(word.wrapping_mul(factor))
        })
    };
    words.par_chunks(BLOCK_BYTES).enumerate().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{self, Draw};

    #[test]
    fn device_and_host_agree_on_any_length() {
        let Some(mut gpu) = check::gpu() else { return };
        let kernel = Checksum::new(gpu.device()).unwrap();
        let mut draw = Draw::new(3);
        for words in [1_u32, 255, 16_384, 16_385, 40_000] {
            let data: Vec<u32> =
                (0..words).map(|_| u32::try_from(draw.below(1 << 32)).unwrap()).collect();
            let input = gpu.input("data", &data);
            let expected = sums(bytemuck::cast_slice(&data));
            let output = gpu.output("sums", expected.len() * 4);
            let mut graph = Graph::new("checksum");
            graph.input(&input);
            graph.level();
            kernel.record(&mut graph, "checksum", input.clone(), output.slice());
            gpu.run(graph);
            assert_eq!(gpu.words(&output), expected, "{words} words");
        }
    }

    #[test]
    fn words_in_the_wrong_place_are_noticed() {
        let mut words = [1_u32, 2, 3, 4];
        let right = sums(bytemuck::cast_slice(&words));
        words.swap(1, 2);
        assert_ne!(sums(bytemuck::cast_slice(&words)), right);
    }
}
