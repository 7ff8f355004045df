//! What the kernels' tests share: one device with validation on, guarded buffers, random numbers.
//!
//! Any Vulkan 1.3 device will do; Mesa's CPU driver is enough. Without one the tests say that they were
//! skipped. Every message of the validation layers fails the test that sees it.

use crate::util::rng::Rng;
use crate::vulkan::{
    Arena, Buffer, Device, DeviceInfo, Error, Graph, Instance, Options, Patience, Queue, Rank,
    Request, Residence, Slice, Validation, choose,
};
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A device for tests.
pub(crate) struct Gpu {
    queue: Queue,
    arena: Arena,
}

/// Bytes before and after an output that must not change.
const GUARD: u64 = 256;
/// A NaN that no kernel computes.
const POISON: u32 = 0x7fc0_dead;

/// An output buffer between guard zones, poisoned.
pub(crate) struct Output {
    buffer: Arc<Buffer>,
    bytes: u64,
}

impl Output {
    pub(crate) fn slice(&self) -> Slice {
        self.buffer.slice(GUARD, self.bytes)
    }
}

/// The one device of this process, or `None` with a visible line.
pub(crate) fn gpu() -> Option<MutexGuard<'static, Gpu>> {
    static SHARED: OnceLock<Result<Mutex<Gpu>, String>> = OnceLock::new();
    match SHARED.get_or_init(|| open().map(Mutex::new).map_err(|e| e.to_string())) {
        // After a failed test the device is as good as before: each test brings its own buffers.
        Ok(gpu) => Some(gpu.lock().unwrap_or_else(PoisonError::into_inner)),
        Err(why) => {
            let why = why.lines().next().unwrap_or_default();
            skip(&format!("needs a Vulkan device: {why}"));
            None
        }
    }
}

/// As `tests/it/support` does it: visible, and counted in the file named by `Q36_SKIP_LOG`.
pub(crate) fn skip(reason: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {reason}\n", thread.name().unwrap_or("unnamed test"));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(log) = std::env::var_os("Q36_SKIP_LOG") {
        let mut log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        log.write_all(line.as_bytes()).unwrap();
    }
}

fn open() -> Result<Gpu, Error> {
    let instance = match Instance::new(Validation::Synchronization) {
        Err(Error::NoLayer(layer)) => {
            skip(&format!("validation of kernels needs {layer}"));
            Instance::new(Validation::Off)?
        }
        other => other?,
    };
    let devices = instance.devices()?;
    let infos: Vec<DeviceInfo> = devices.iter().map(|d| d.info.clone()).collect();
    let index = choose(&infos, Request::Any, &Rank::default())?;
    let options = Options { robust: true, ..Options::default() };
    let (device, queue) = Device::open(&devices[index], &options)?;
    let arena = Arena::new(&device, "test", Residence::Device, 64 << 20);
    Ok(Gpu { queue, arena })
}

impl Gpu {
    pub(crate) const POISON: u32 = POISON;

    pub(crate) fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        self.queue.device()
    }

    /// A buffer with these values.
    pub(crate) fn input<T: bytemuck::Pod>(&mut self, name: &str, values: &[T]) -> Slice {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let buffer = self.arena.buffer(name, bytes.len() as u64).unwrap();
        let mut words = bytes.to_vec();
        words.resize(bytes.len().next_multiple_of(4), 0);
        self.queue.upload(&buffer.all(), &words).unwrap();
        buffer.slice(0, bytes.len() as u64)
    }

    /// A poisoned buffer.
    pub(crate) fn output(&mut self, name: &str, bytes: usize) -> Output {
        let bytes = bytes as u64;
        let buffer = self.arena.buffer(name, bytes + 2 * GUARD).unwrap();
        let words = usize::try_from(buffer.bytes() / 4).unwrap();
        self.queue.upload(&buffer.all(), bytemuck::cast_slice(&vec![POISON; words])).unwrap();
        Output { buffer, bytes }
    }

    /// A buffer that the kernel updates: these values, between guard zones.
    pub(crate) fn update<T: bytemuck::Pod>(&mut self, name: &str, values: &[T]) -> Output {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let output = self.output(name, bytes.len());
        self.queue.upload(&output.slice(), bytes).unwrap();
        output
    }

    /// The words of an output, poison included, once its guard zones are found untouched: for outputs
    /// that are not written everywhere, or not with floats. [`Gpu::POISON`] marks what was not written.
    pub(crate) fn words(&mut self, output: &Output) -> Vec<u32> {
        let mut words = vec![0_u32; usize::try_from(output.buffer.bytes() / 4).unwrap()];
        self.queue.download(&output.buffer.all(), bytemuck::cast_slice_mut(&mut words)).unwrap();
        let guard = usize::try_from(GUARD / 4).unwrap();
        let end = guard + usize::try_from(output.bytes / 4).unwrap();
        assert!(words[..guard].iter().all(|&w| w == POISON), "written before the output");
        assert!(words[end..].iter().all(|&w| w == POISON), "written past the output");
        words[guard..end].to_vec()
    }

    /// Records and runs, and fails on any message.
    pub(crate) fn run(&mut self, graph: Graph) {
        let recorded = graph.record(self.device()).unwrap();
        self.queue.run(&recorded, &Patience::default()).unwrap();
        let messages = self.device().instance().messages();
        assert!(messages.is_empty(), "validation says:\n{}", messages.join("\n"));
    }

    /// The values of an output, once its guard zones are found untouched and no poison is left.
    pub(crate) fn read(&mut self, output: &Output) -> Vec<f32> {
        let words = self.words(output);
        let left = words.iter().position(|&w| w == Self::POISON);
        assert_eq!(left, None, "an element was not written");
        words.into_iter().map(f32::from_bits).collect()
    }
}

/// Random test data. The seed makes it; tests print theirs.
pub(crate) struct Draw(Rng);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        // Spreads small seeds over all bits, or the first numbers would be alike.
        Self(Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        (self.0.next_u64() >> 11) % n
    }

    /// Roughly normal: the sum of twelve uniform numbers.
    pub(crate) fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.0.unit_f32()).sum::<f32>() - 6.0
    }

    pub(crate) fn normals(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal()).collect()
    }

    /// Normal values, some outliers of a hundredfold, some zeros, some too small to be normal numbers.
    pub(crate) fn activations(&mut self, n: usize) -> Vec<f32> {
        let one = |draw: &mut Self| {
            let v = draw.normal();
            match draw.below(50) {
                0 => v * 100.0,
                1 => 0.0,
                2 => v * 1e-39,
                _ => v,
            }
        };
        (0..n).map(|_| one(self)).collect()
    }
}
