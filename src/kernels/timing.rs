//! What the timings of prefill kernels share: a device without validation and bounds checks, and the time of a graph
//! of equal dispatches. `cargo test --release -- --nocapture gemm::timing` prints them, for whoever chooses tiles. On
//! a device that does not tell its compute units, such as a CPU, one small product shows that the measurement works.

use crate::util::rng::Rng;
use crate::vulkan::{
    Arena, Device, DeviceInfo, Graph, Instance, Options, Patience, Queue, Rank, Request, Residence,
    Slice, Validation, choose,
};
use std::sync::Arc;
use std::time::Instant;

pub(super) struct Bench {
    queue: Queue,
    arena: Arena,
}

impl Bench {
    pub(super) fn open() -> Option<Self> {
        let instance = Instance::new(Validation::Off).ok()?;
        let devices = instance.devices().ok()?;
        let infos: Vec<DeviceInfo> = devices.iter().map(|d| d.info.clone()).collect();
        let index = choose(&infos, Request::Any, &Rank::default()).ok()?;
        let (device, queue) = Device::open(&devices[index], &Options::default()).ok()?;
        let arena = Arena::new(&device, "timing", Residence::Device, 64 << 20);
        Some(Self { queue, arena })
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        self.queue.device()
    }

    /// Whether it is a device whose times mean something.
    pub(super) fn is_gpu(&self) -> bool {
        self.device().caps().compute_units.is_some()
    }

    /// A buffer with these values.
    pub(super) fn input<T: bytemuck::Pod>(&mut self, values: &[T]) -> Slice {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let buffer = self.arena.buffer("input", bytes.len() as u64).unwrap();
        self.queue.upload(&buffer.all(), bytes).unwrap();
        buffer.slice(0, bytes.len() as u64)
    }

    /// A buffer of numbers between 1/16 and 2 in size, whether read as f32, as f16 or as codes with f16 scales.
    pub(super) fn filled(&mut self, bytes: u64) -> Slice {
        let mut rng = Rng::new(1);
        let word = |random: u64| u32::try_from(random & 0x83ff_83ff).unwrap() | 0x2c00_2c00;
        let words: Vec<u32> = (0..1 << 16).map(|_| word(rng.next_u64())).collect();
        let pattern = self.arena.buffer("pattern", 1 << 18).unwrap().all();
        self.queue.upload(&pattern, bytemuck::cast_slice(&words)).unwrap();
        let buffer = self.arena.buffer("filled", bytes).unwrap();
        self.queue.replicate(&pattern, &buffer.all()).unwrap();
        buffer.slice(0, bytes)
    }

    /// Runs a graph once.
    pub(super) fn run(&mut self, graph: Graph) {
        let recorded = graph.record(self.queue.device()).unwrap();
        self.queue.run(&recorded, &Patience::default()).unwrap();
    }

    /// Microseconds of a dispatch of a graph of `nodes` of them: the best of five runs.
    pub(super) fn time(&mut self, graph: Graph, nodes: u32) -> f64 {
        let recorded = graph.record(self.queue.device()).unwrap();
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = Instant::now();
            self.queue.run(&recorded, &Patience::default()).unwrap();
            best = best.min(start.elapsed().as_secs_f64());
        }
        best * 1e6 / f64::from(nodes)
    }
}
