//! Chunks on their way through the device.

use super::{ChunkKernels, ChunkScratch, Chunks, record};
use crate::graph::decode::{Builder, Parts};
use crate::graph::device::Gpu;
use crate::graph::kernels::{Class, Dims};
use crate::graph::profile::Meter;
use crate::graph::scratch::{HostArenas, Rows};
use crate::graph::{Chunk, Error, Options};
use crate::kernels::control::Row;
use crate::kernels::last_row::{LastRow, LastRowIo};
use crate::kernels::mode::Mode;
use crate::util::notice::Notice;
use crate::vulkan::{Arena, Graph, Patience, Recorded, Slice, Ticket};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Size classes below the largest, where they are smaller.
const CLASSES: [usize; 4] = [32, 128, 512, 2048];
/// What the largest class is rounded up to.
const BLOCK: usize = 64;
/// How long a slice of a chunk may take before the host looks whether to go on.
const SLICE: Duration = Duration::from_millis(50);

/// Everything recorded for prompts.
pub(in crate::graph) struct Prefill {
    classes: Vec<Chunks>,
    scratch: ChunkScratch,
    head: Arc<Recorded>,
    /// What the head finds.
    pub(in crate::graph) records: Slice,
    /// Seconds of one layer for one token, as measured last; 0 before that.
    layer_seconds: Cell<f64>,
}

impl Prefill {
    /// Compiles and records all size classes up to the chunk of `options`.
    pub(in crate::graph) fn new(
        gpu: &Gpu,
        arenas: (&Arena, &HostArenas),
        parts: &Parts<'_>,
        (dims, class, rows): (&Dims, &Class, &Rows),
        options: &Options,
    ) -> Result<Self, Error> {
        let mode = if options.quality { Mode::Exact } else { Mode::Fast };
        let steered = options.steering.is_some();
        // Kernels on matrix units take whole blocks of tokens.
        let most = options.chunk.next_multiple_of(BLOCK);
        let sizes = CLASSES.into_iter().filter(|&n| n < most).chain([most]);
        let mut kernels = Vec::new();
        for size in sizes {
            let tokens = u32::try_from(size).expect("chunks are counted in 32 bits");
            let made =
                ChunkKernels::new(&gpu.device, (tokens, mode), dims, parts.weights, steered)?;
            kernels.push(made);
        }
        let scratch = ChunkScratch::new(arenas, (parts.shape, dims), &kernels, parts.weights)?;
        let classes = kernels
            .iter()
            .map(|k| record(&gpu.device, parts, k, &scratch, options.profile))
            .collect::<Result<_, _>>()?;
        let head = head(gpu, parts, (dims, class, rows), &scratch)?;
        let records = rows.records.clone();
        Ok(Self { classes, scratch, head, records, layer_seconds: Cell::new(0.0) })
    }

    /// Runs all layers over a chunk, and waits.
    pub(in crate::graph) fn run(
        &self,
        gpu: &mut Gpu,
        record: &Row,
        chunk: &Chunk<'_>,
        notice: &Notice,
    ) -> Result<(), Error> {
        let tokens = chunk.tokens.len();
        let class = self.class(tokens).expect("the caller checked the length");
        let s = &self.scratch;
        s.mailbox.buffer.write(s.mailbox.offset, bytemuck::bytes_of(record));
        s.ids.buffer.write(s.ids.offset, bytemuck::cast_slice(chunk.tokens));
        let mut last = gpu.queue.submit(&class.embed)?;
        let mut layers = class.layers.as_slice();
        while !layers.is_empty() {
            let expected = self.layer_seconds.get() * tokens as f64;
            let count = fitting(layers.len(), expected);
            let (now, later) = layers.split_at(count);
            let begin = Instant::now();
            for layer in now {
                last = gpu.queue.submit(layer)?;
            }
            wait(gpu, last, notice)?;
            self.layer_seconds.set(begin.elapsed().as_secs_f64() / (count * tokens) as f64);
            layers = later;
            if !layers.is_empty() && (chunk.cancelled)() {
                return Err(Error::Cancelled);
            }
        }
        Ok(())
    }

    /// Computes the logits of the chunk's last token, and waits.
    pub(in crate::graph) fn head(&self, gpu: &mut Gpu, notice: &Notice) -> Result<(), Error> {
        let ticket = gpu.queue.submit(&self.head)?;
        wait(gpu, ticket, notice)
    }

    /// Adds what the kernels of a chunk of so many tokens took when one last ran.
    pub(in crate::graph) fn add_to(&self, meter: &mut Meter, tokens: usize) -> Result<(), Error> {
        let Some(class) = self.class(tokens) else { return Ok(()) };
        meter.add(&class.embed)?;
        class.layers.iter().try_for_each(|layer| meter.add(layer))
    }

    /// The smallest class with room for so many tokens.
    fn class(&self, tokens: usize) -> Option<&Chunks> {
        self.classes.iter().find(|class| class.tokens as usize >= tokens)
    }
}

/// How many of `layers` layers fit a slice, when one is expected to take so many seconds: at least one, and only one
/// as long as nothing is known.
fn fitting(layers: usize, expected: f64) -> usize {
    if expected <= 0.0 {
        return 1;
    }
    let fit = |count: &usize| *count as f64 * expected <= SLICE.as_secs_f64();
    (1..=layers).take_while(fit).last().unwrap_or(1)
}

fn wait(gpu: &mut Gpu, ticket: Ticket, notice: &Notice) -> Result<(), Error> {
    let on_late = |text: &str| notice.say(text);
    let patience = Patience { expected: gpu.slice(), on_late: &on_late, cancelled: &|| false };
    gpu.queue.wait(ticket, &patience)?;
    Ok(())
}

/// The head over the last token of a chunk, with the buffers of single rows.
fn head(
    gpu: &Gpu,
    parts: &Parts<'_>,
    (dims, class, rows): (&Dims, &Class, &Rows),
    scratch: &ChunkScratch,
) -> Result<Arc<Recorded>, Error> {
    let rows = Rows { control: scratch.control.clone(), ..rows.clone() };
    let mut graph = Graph::new("prefill head");
    parts.inputs(&mut graph);
    graph.input(&scratch.control);
    graph.input(&scratch.h);
    graph.level();
    let io = LastRowIo {
        control: scratch.control.clone(),
        h: scratch.h.clone(),
        row: rows.h.clone(),
        squares: rows.embed_squares.clone(),
    };
    LastRow::new(&gpu.device, dims.hidden)?.record(&mut graph, "last row", io);
    Ok(Builder::head_of(parts, class, &rows, graph).record(&gpu.device)?)
}
