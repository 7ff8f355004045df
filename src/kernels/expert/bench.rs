//! What the timings of the expert kernels share: a device without validation and bounds checks, filled buffers, and
//! the time of a dispatch in a graph of many with barriers between them, as in a decode step.
//!
//! Timings are printed, for whoever chooses constants (`cargo test --release -- --nocapture timing`). On a device that
//! does not tell its compute units, such as a CPU, one small block shows that the measurement works.

use super::{Layout, Sizes, Values};
use crate::kernels::check::Draw;
use crate::kernels::control::Row;
use crate::kernels::expert::samples::choices;
use crate::quant::TensorType;
use crate::vulkan::{
    Ability, Arena, Caps, Device, DeviceInfo, Graph, Instance, Options, Patience, Queue, Rank,
    Request, Residence, Slice, Validation, choose,
};
use std::sync::Arc;
use std::time::Instant;

/// Dispatches of a graph.
pub(in crate::kernels) const NODES: u64 = 64;

pub(in crate::kernels) struct Bench {
    queue: Queue,
    arena: Arena,
}

impl Bench {
    pub(in crate::kernels) fn open() -> Option<Self> {
        let instance = Instance::new(Validation::Off).ok()?;
        let devices = instance.devices().ok()?;
        let infos: Vec<DeviceInfo> = devices.iter().map(|d| d.info.clone()).collect();
        let index = choose(&infos, Request::Any, &Rank::default()).ok()?;
        let (device, queue) = Device::open(&devices[index], &Options::default()).ok()?;
        let arena = Arena::new(&device, "timing", Residence::Device, 64 << 20);
        Some(Self { queue, arena })
    }

    pub(in crate::kernels) fn device(&self) -> Arc<Device> {
        Arc::clone(self.queue.device())
    }

    pub(in crate::kernels) fn caps(&self) -> Caps {
        self.queue.device().caps().clone()
    }

    /// The published model's block, or a small one for a CPU.
    pub(in crate::kernels) fn sizes(&self) -> Sizes {
        if self.caps().compute_units.is_none() {
            return Sizes { hidden: 256, experts: 16, used: 8, expert_ffn: 256, shared_ffn: 256 };
        }
        Sizes { hidden: 2048, experts: 256, used: 8, expert_ffn: 512, shared_ffn: 512 }
    }

    /// The published layout, activations in every way that the device has.
    pub(in crate::kernels) fn layouts(&self) -> Vec<Layout> {
        let (gate_up, down) = (TensorType::IQ2_XXS, TensorType::Q2_K);
        let mut all = vec![Layout { gate_up, down, values: Values::F32 }];
        if self.caps().has(Ability::IntDot) {
            all.push(Layout { values: Values::I8, ..all[0] });
        }
        all
    }

    /// A buffer of repetitions of a pattern: small normal numbers, whatever the type.
    pub(in crate::kernels) fn filled(&mut self, bytes: u64) -> Slice {
        let words: Vec<u32> =
            (0..1 << 16).map(|i: u32| 0x2c01_2b03 ^ (i.wrapping_mul(7919) & 0x00ff_01ff)).collect();
        let pattern = self.arena.buffer("pattern", 1 << 18).unwrap().all();
        self.queue.upload(&pattern, bytemuck::cast_slice(&words)).unwrap();
        let buffer = self.arena.buffer("filled", bytes).unwrap();
        self.queue.replicate(&pattern, &buffer.all()).unwrap();
        buffer.slice(0, bytes)
    }

    pub(in crate::kernels) fn uploaded<T: bytemuck::Pod>(&mut self, values: &[T]) -> Slice {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let buffer = self.arena.buffer("uploaded", bytes.len() as u64).unwrap();
        self.queue.upload(&buffer.all(), bytes).unwrap();
        buffer.slice(0, bytes.len() as u64)
    }

    pub(in crate::kernels) fn control(&mut self, rows: u32) -> Slice {
        self.uploaded(&vec![Row::default(); rows as usize])
    }

    /// Other experts for every dispatch, so that no cache has them.
    pub(in crate::kernels) fn ids(&mut self, rows: u32) -> Vec<Slice> {
        let (sizes, mut draw) = (self.sizes(), Draw::new(1));
        (0..NODES)
            .map(|_| {
                let ids = choices(&mut draw, &sizes, rows as usize);
                self.uploaded(&ids)
            })
            .collect()
    }

    /// Microseconds of a dispatch: `record` adds number i of a graph whose inputs are `held`.
    pub(in crate::kernels) fn time(
        &mut self,
        held: &[&Slice],
        mut record: impl FnMut(&mut Graph, usize),
    ) -> f64 {
        let mut graph = Graph::new("timing");
        for slice in held {
            graph.input(slice);
        }
        for i in 0..usize::try_from(NODES).unwrap() {
            graph.level();
            record(&mut graph, i);
        }
        let recorded = graph.record(self.queue.device()).unwrap();
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = Instant::now();
            self.queue.run(&recorded, &Patience::default()).unwrap();
            best = best.min(start.elapsed().as_secs_f64());
        }
        best * 1e6 / NODES as f64
    }
}
