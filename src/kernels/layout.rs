//! Which values of a cooperative matrix a lane holds. Vulkan leaves that to drivers; `mv_matrix` puts weights straight into
//! the registers of a matrix, so it is asked of the device, and where the answer is another one than that kernel knows, the
//! device does without the kernel.

use super::registry::Interface;
use crate::vulkan::{Arena, Binding, Cost, Error, Graph, Node, Patience, Queue, Residence};

/// What `small/matrix_layout.comp` declares.
pub const LAYOUT: Interface = Interface {
    variant: "matrix_layout",
    bindings: &[Binding::write(3)],
    push_bytes: 0,
    constants: &["workgroup"],
};

/// Rows and columns of a matrix of weights, lanes of a subgroup, and values of a lane.
const EDGE: u32 = 16;
const LANES: u32 = 32;
const VALUES: u32 = EDGE * EDGE / LANES;

/// The place (row times 16 plus column) of value `index` of a lane as `mv_matrix` has it: four lanes share two rows, eight
/// apart; a lane has two neighbouring columns of each, and those eight after them.
fn place(lane: u32, index: u32) -> u32 {
    let row = lane / 4 + 8 * (index / 4);
    let column = lane % 4 * 2 + index % 2 + 8 * (index / 2 % 2);
    row * EDGE + column
}

/// The places of the values that each lane holds on this device, lane by lane.
///
/// # Errors
/// When the device refuses the kernel or fails.
fn places(queue: &mut Queue) -> Result<Vec<u32>, Error> {
    let device = queue.device().clone();
    let pipeline = LAYOUT.pipeline(&device, &[[LANES]], LANES)?;
    let bytes = u64::from(LANES * VALUES * 4);
    let results = Arena::new(&device, "layout", Residence::Readback, bytes);
    let results = results.buffer("layout", bytes)?;
    let mut graph = Graph::new("layout");
    graph.level();
    graph.node(Node {
        label: "layout".to_owned(),
        pipeline,
        slices: vec![results.all()],
        push: Vec::new(),
        grid: [1, 1, 1].into(),
        cost: Cost::default(),
    });
    queue.run(&graph.record(&device)?, &Patience::default())?;
    let mut words = vec![0; (LANES * VALUES) as usize];
    results.read(0, bytemuck::cast_slice_mut(&mut words));
    Ok(words)
}

/// Whether matrices are laid out as `mv_matrix` expects.
///
/// # Errors
/// When the device refuses the kernel or fails.
pub fn is_known(queue: &mut Queue) -> Result<bool, Error> {
    let found = places(queue)?;
    let expected = (0..LANES).flat_map(|lane| (0..VALUES).map(move |index| place(lane, index)));
    Ok(found.into_iter().eq(expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check;
    use crate::vulkan::Ability;

    #[test]
    fn every_place_is_held_once() {
        let mut seen: Vec<u32> =
            (0..LANES).flat_map(|lane| (0..VALUES).map(move |i| place(lane, i))).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..EDGE * EDGE));
    }

    #[test]
    fn devices_with_thin_matrices_have_the_known_layout() {
        let Some(mut gpu) = check::gpu() else { return };
        if gpu.device().caps().has(Ability::MatrixThin) {
            let found = places(gpu.queue()).unwrap();
            for (lane, values) in (0..LANES).zip(found.chunks(VALUES as usize)) {
                println!("lane {lane}: {values:?}");
            }
            assert!(is_known(gpu.queue()).unwrap());
        }
    }
}
