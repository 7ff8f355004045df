//! How weights get to the device (vulkan.md 4.3): left in the mapped file, read past the page cache, or read through it.

use super::bytes::Bytes;
use super::fill::{Fill, FromFile, Progress};
use super::import::Import;
use super::pattern::Patterns;
use super::weights::DeviceWeights;
use super::{Error, Gpu, Source};
use crate::kernels::split::Split;
use crate::model::Model;
use crate::util::meminfo;
use crate::vulkan::{Ability, Arena, Kind, Residence, Stage};
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

/// How weights get to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// As suits device and machine.
    #[default]
    Auto,
    /// What can stay in the mapped file stays there.
    InPlace,
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Cached,
}

/// How it was done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loaded {
    /// Where the copied weights came from, in words that follow a rate.
    pub how: &'static str,
    /// Bytes of all weights.
    pub bytes: u64,
    /// Those of them that were left in the mapped file.
    pub in_place: u64,
    /// Time it took.
    pub time: Duration,
}

/// Upload buffers of a load, and their size. Many, because small tensors take one each; no larger than it takes to keep
/// many threads busy, because pinning their pages takes an H200's driver a third of a millisecond for each MiB.
const STAGES: usize = 8;
pub(super) const STAGE_BYTES: usize = 16 << 20;

/// The same of plain copying.
const PLAIN_STAGES: usize = 6;
const PLAIN_STAGE_BYTES: usize = 32 << 20;

/// Bytes that [`copy_rate`] copies at most.
const MEASURED_BYTES: u64 = 4 << 30;

/// A file counts as being in memory when so much of it is.
const CACHED: f64 = 0.95;

/// Allocates all weights and fills them. Buffers of `stage_bytes` are on their way at once.
pub(super) fn load(
    gpu: &mut Gpu,
    source: Source<'_>,
    arena: &Arena,
    (way, stage_bytes): (Way, usize),
    progress: &mut Progress<'_>,
) -> Result<(DeviceWeights, Loaded), Error> {
    let begin = Instant::now();
    let total = source.bytes();
    let is_card = !gpu.is_unified();
    let mut fill = || fill(gpu, source, arena, (way, stage_bytes), progress);
    let (weights, how, in_place) = if is_card { ahead(arena, fill)? } else { fill()? };
    Ok((weights, Loaded { how, bytes: total, in_place, time: begin.elapsed() }))
}

/// The weights, where they came from, and how many bytes stayed there.
fn fill(
    gpu: &mut Gpu,
    source: Source<'_>,
    arena: &Arena,
    (way, stage_bytes): (Way, usize),
    progress: &mut Progress<'_>,
) -> Result<(DeviceWeights, &'static str, u64), Error> {
    let total = source.bytes();
    match source {
        Source::File(model) => {
            let file = &model.file;
            let import = if imports(way, gpu) { Import::new(&gpu.device, file)? } else { None };
            let bytes = Arc::new(Bytes::new(file, is_direct(way, gpu, model))?);
            let how = bytes.describe();
            let stage = Stage::new(&gpu.device, STAGES, stage_bytes)?;
            let split = Split::new(&gpu.device)?;
            let queue = &mut gpu.queue;
            let (done, in_place) = (0, 0);
            let file = FromFile {
                model,
                bytes,
                import,
                queue,
                stage,
                split,
                progress,
                done,
                total,
                in_place,
            };
            let mut fill = Fill::File(Box::new(file));
            let weights = DeviceWeights::load(&model.shape, &model.weights, arena, &mut fill)?;
            let Fill::File(file) = fill else { unreachable!("made above") };
            Ok((weights, how, file.in_place))
        }
        Source::Random(shape, weights) => {
            let patterns = Arena::new(&gpu.device, "patterns", Residence::Device, 32 << 20);
            let mut fill = Fill::Random(Patterns::new(&mut gpu.queue, &patterns));
            Ok((DeviceWeights::load(shape, weights, arena, &mut fill)?, "as random numbers", 0))
        }
    }
}

/// Does `work`, which takes buffers from an arena, while another thread allocates the arena's blocks ahead of that: an
/// H200's driver takes 21 ms for 1 GiB, as long as copying takes. For cards: where memory is one, none should be taken
/// before it is needed.
fn ahead<T>(arena: &Arena, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    // The first block comes with a buffer.
    drop(arena.buffer("first", 4)?);
    std::thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        scope.spawn(move || {
            let goes_on = || stopped.try_recv() == Err(TryRecvError::Empty);
            // What goes wrong here goes wrong again, and is told, where the memory is needed.
            while goes_on() && arena.grow_ahead().unwrap_or(false) {}
        });
        let done = work();
        drop(stop);
        done
    })
}

/// Whether to try to leave weights in the mapped file. Beside a card's own memory they would be read across the bus
/// at every step.
pub(super) fn imports(way: Way, gpu: &Gpu) -> bool {
    let can = gpu.caps().has(Ability::HostImport);
    can && (way == Way::InPlace || way == Way::Auto && gpu.is_unified())
}

fn is_direct(way: Way, gpu: &Gpu, model: &Model) -> bool {
    match way {
        Way::Direct => true,
        Way::Cached => false,
        Way::Auto | Way::InPlace => {
            let bytes = model.file.size();
            let available = meminfo::available().map_or(0, |n| n.0);
            prefers_direct(gpu.kind(), bytes, model.file.cached_share(), available)
        }
    }
}

/// Where the GPU's memory is the machine's, a second copy of the file in the page cache would be in the way. Elsewhere
/// the cache makes the next start faster, when there is room for it or it has the file already.
fn prefers_direct(kind: Kind, bytes: u64, cached_share: f64, available: u64) -> bool {
    kind == Kind::Integrated || (cached_share < CACHED && available < bytes.saturating_mul(2))
}

/// Bytes a second of plain copying from the page cache to the device: what a load is measured against. Reads the file
/// into the cache first.
pub(super) fn copy_rate(gpu: &mut Gpu, model: &Model) -> Result<Option<f64>, Error> {
    let file = &model.file;
    let bytes = Bytes::new(file, false)?;
    if matches!(bytes, Bytes::Here(_)) {
        return Ok(None);
    }
    let arena = Arena::new(&gpu.device, "copies", Residence::Device, PLAIN_STAGE_BYTES as u64);
    let target = arena.buffer("copies", PLAIN_STAGE_BYTES as u64)?;
    let mut stage = Stage::new(&gpu.device, PLAIN_STAGES, PLAIN_STAGE_BYTES)?;
    let all = file.size().min(MEASURED_BYTES) / 4 * 4;
    let mut time = Duration::ZERO;
    // The first time brings the file into the cache.
    for _ in 0..2 {
        let begin = Instant::now();
        for at in (0..all).step_by(PLAIN_STAGE_BYTES) {
            let len = (PLAIN_STAGE_BYTES as u64).min(all - at);
            let mut read = Ok(());
            stage.prepare(&mut gpu.queue, &[target.slice(0, len)], |out, beside| {
                read = bytes.fill(vec![(at, out)], beside);
            })?;
            read?;
        }
        stage.finish(&mut gpu.queue)?;
        time = begin.elapsed();
    }
    Ok(Some(all as f64 / time.as_secs_f64()))
}

#[cfg(test)]
mod tests;
