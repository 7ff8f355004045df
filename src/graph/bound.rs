//! How large the weights of each tensor can be, found out by the device when all of them are there: the host would
//! have to read every block once more.

use super::Error;
use crate::kernels::largest::{Largest, Scales};
use crate::vulkan::{Arena, Graph, Patience, Queue, Residence, Slice};

/// Blocks of weights that a bound is wanted for.
pub(super) struct Blocks {
    pub(super) scales: Scales,
    pub(super) data: Slice,
}

/// Bytes from one result to the next: an alignment that every device takes.
const RESULT_BYTES: u64 = 256;

/// For each, how large its weights can be.
pub(super) fn bounds(queue: &mut Queue, all: &[Blocks]) -> Result<Vec<f32>, Error> {
    let device = queue.device().clone();
    let kernel = Largest::new(&device)?;
    let pieces: Vec<_> = all.iter().map(|b| kernel.pieces(b.scales, &b.data)).collect();
    let count = pieces.iter().map(Vec::len).sum::<usize>() as u64;
    let results = Arena::new(&device, "bounds", Residence::Readback, count * RESULT_BYTES);
    let results = results.buffer("bounds", count * RESULT_BYTES)?;
    let mut graph = Graph::new("bounds");
    graph.level();
    let mut places = (0..count).map(|i| i * RESULT_BYTES);
    for (blocks, pieces) in all.iter().zip(&pieces) {
        graph.input(&blocks.data.buffer.all());
        for (piece, at) in pieces.iter().zip(&mut places) {
            results.write(at, &[0; 4]);
            let result = results.slice(at, 4);
            graph.input(&result);
            kernel.record(&mut graph, "bound", blocks.scales, piece, result);
        }
    }
    queue.run(&graph.record(&device)?, &Patience::default())?;
    let mut found = (0..count).map(|i| {
        let mut word = [0; 4];
        results.read(i * RESULT_BYTES, &mut word);
        f32::from_le_bytes(word)
    });
    Ok(pieces.iter().map(|p| found.by_ref().take(p.len()).fold(0.0, f32::max)).collect())
}
