//! Tests of slot copies.

use super::*;
use crate::kernels::check::{self, Draw};
use crate::kernels::control::Row;

#[test]
fn slots_are_copied_and_cleared_whole() {
    let Some(mut gpu) = check::gpu() else { return };
    for (fill, words) in [(Fill::Copy, 4), (Fill::Copy, 4100), (Fill::Zero, 1024)] {
        let slots = Draw::new(words).normals(5 * usize::try_from(words).unwrap());
        let rows = [(3, 1, 0), (2, 2, 0), (0, 4, Row::IDLE)].map(|(source, target, flags)| Row {
            flags,
            source,
            target,
            ..Row::default()
        });
        let buffer = gpu.update("slots", &slots);
        let io = CopyIo { control: gpu.input("control", &rows), slots: buffer.slice() };
        let kernel = CopySlots::new(gpu.device(), fill).unwrap();
        let mut graph = Graph::new("copy");
        graph.input(&io.control);
        graph.input(&io.slots);
        graph.level();
        kernel.record(&mut graph, "copy", 3, words * 4, io);
        gpu.run(graph);
        let found = gpu.read(&buffer);
        let len = usize::try_from(words).unwrap();
        let slot = |values: &[f32], s: usize| values[s * len..][..len].to_vec();
        let zero = vec![0.0; len];
        let expected = match fill {
            Fill::Copy => [0, 3, 2, 3, 4].map(|s| slot(&slots, s)).concat(),
            Fill::Zero => {
                let kept = |s| slot(&slots, s);
                [kept(0), zero.clone(), zero, kept(3), kept(4)].concat()
            }
        };
        assert_eq!(found, expected, "{fill:?} of {words}");
    }
}
