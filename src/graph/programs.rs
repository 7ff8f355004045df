//! All programs of the model on a device. The driver compiles them at the same time, on all cores; no step ever
//! waits for it.

use super::fill::Progress;
use super::kernels::{Class, Dims};
use super::prefill::{self, ChunkKernels};
use super::weights::DeviceWeights;
use super::{Error, Gpu, Options};
use crate::kernels::control::MAX_ROWS;
use crate::kernels::last_row::LastRow;
use crate::kernels::mode::Mode;
use std::time::{Duration, Instant};

/// Longer than this is said.
const LONG: Duration = Duration::from_millis(1500);
/// How often a wait asks whether to go on.
const NAP: Duration = Duration::from_millis(50);

/// Compiled, but not recorded.
pub(super) struct Programs {
    /// For each class of row counts.
    pub(super) rows: Vec<Class>,
    /// For each size class of chunks.
    pub(super) chunks: Vec<ChunkKernels>,
    pub(super) last_row: LastRow,
}

impl Programs {
    /// Begins to compile everything.
    pub(super) fn new(
        gpu: &Gpu,
        dims: &Dims,
        weights: &DeviceWeights,
        options: &Options,
    ) -> Result<Self, Error> {
        let steered = options.steering.is_some();
        let mode = mode(options.quality);
        let class = |batch| Class::new(&gpu.device, (batch, mode), dims, weights, steered);
        let chunk = |tokens| ChunkKernels::new(&gpu.device, (tokens, mode), dims, weights, steered);
        Ok(Self {
            rows: batches(options.sessions).map(class).collect::<Result<_, _>>()?,
            chunks: prefill::sizes(options.chunk).map(chunk).collect::<Result<_, _>>()?,
            last_row: LastRow::new(&gpu.device, dims.hidden)?,
        })
    }
}

/// Waits until everything is compiled, with a remark when that takes long.
///
/// # Errors
/// [`Error::Interrupted`] when `progress` says so.
pub(super) fn finish(
    gpu: &Gpu,
    options: &Options,
    (total, progress): (u64, &mut Progress<'_>),
) -> Result<(), Error> {
    let begin = Instant::now();
    let mut is_said = false;
    loop {
        let (begun, over) = gpu.device.await_pipelines(NAP);
        if begun == over {
            return Ok(());
        }
        if !is_said && begin.elapsed() > LONG {
            let done = format!("{over} of {begun} done");
            options.notice.remark(&format!(
                "compiling programs for this device, once: {done} after {:.1} s",
                begin.elapsed().as_secs_f64()
            ));
            is_said = true;
        }
        if !progress(total, total) {
            return Err(Error::Interrupted);
        }
    }
}

/// Classes of row counts for so many sessions.
pub(super) fn batches(sessions: usize) -> impl Iterator<Item = u32> {
    let most = sessions.next_power_of_two().min(MAX_ROWS);
    [1, 2, 4, 8].into_iter().filter(move |&n| n as usize <= most)
}

pub(super) fn mode(quality: bool) -> Mode {
    if quality { Mode::Exact } else { Mode::Fast }
}
