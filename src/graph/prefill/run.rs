//! Chunks on their way through the device.

use super::pace::Pace;
use super::{ChunkKernels, ChunkScratch, Chunks, record};
use crate::graph::decode::{Builder, Parts};
use crate::graph::device::Gpu;
use crate::graph::kernels::{Class, Dims};
use crate::graph::profile::Meter;
use crate::graph::scratch::{HostArenas, Rows};
use crate::graph::{Error, Options};
use crate::kernels::control::Row;
use crate::kernels::last_row::{LastRow, LastRowIo};
use crate::kernels::mode::Mode;
use crate::vulkan::{Arena, Graph, Patience, Queue, Recorded, Slice, Ticket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Size classes below the largest, where they are smaller.
const CLASSES: [usize; 4] = [32, 128, 512, 2048];
/// What the largest class is rounded up to.
const BLOCK: usize = 64;

/// Everything recorded for prompts.
pub(in crate::graph) struct Prefill {
    classes: Vec<Chunks>,
    scratch: ChunkScratch,
    head: Arc<Recorded>,
    /// What the head finds.
    pub(in crate::graph) records: Slice,
    /// What layers take, for each class.
    paces: Vec<Pace>,
}

/// A chunk on its way: which layers it has behind it.
pub(in crate::graph) struct Progress {
    class: usize,
    tokens: usize,
    done: usize,
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
        let classes: Vec<Chunks> = kernels
            .iter()
            .map(|k| record(&gpu.device, parts, k, &scratch, options.profile))
            .collect::<Result<_, _>>()?;
        let head = head(gpu, parts, (dims, class, rows), &scratch)?;
        let records = rows.records.clone();
        let paces = classes.iter().map(|class| Pace::new(class.layers.len())).collect();
        Ok(Self { classes, scratch, head, records, paces })
    }

    /// A chunk of so many tokens before its first layer.
    pub(in crate::graph) fn start(&self, tokens: usize) -> Progress {
        let class = self.class(tokens).expect("the caller checked the length");
        Progress { class, tokens, done: 0 }
    }

    /// Runs as many layers of a chunk as are expected to take no longer than `limit`, at least one, and waits.
    /// Whether all are done. Decode steps may run between two calls, but no other chunk.
    pub(in crate::graph) fn advance(
        &mut self,
        queue: &mut Queue,
        chunk: &mut Progress,
        (record, tokens): (&Row, &[u32]),
        limit: Duration,
    ) -> Result<bool, Error> {
        let class = &self.classes[chunk.class];
        let pace = &mut self.paces[chunk.class];
        if chunk.done == 0 {
            let s = &self.scratch;
            s.mailbox.buffer.write(s.mailbox.offset, bytemuck::bytes_of(record));
            s.ids.buffer.write(s.ids.offset, bytemuck::cast_slice(tokens));
            queue.submit(&class.embed)?;
        }
        let first = chunk.done;
        let count = pace.fitting(first, chunk.tokens, limit);
        let mut begin = Instant::now();
        let layers = &class.layers[first..first + count];
        let tickets = layers.iter().map(|layer| queue.submit(layer));
        let tickets: Vec<Ticket> = tickets.collect::<Result<_, _>>()?;
        for (layer, ticket) in (first..).zip(tickets) {
            wait(queue, ticket, limit)?;
            let now = Instant::now();
            pace.took(layer, chunk.tokens, now - begin);
            begin = now;
        }
        chunk.done += count;
        Ok(chunk.done == class.layers.len())
    }

    /// Computes the logits of the chunk's last token, and waits.
    pub(in crate::graph) fn head(&self, queue: &mut Queue) -> Result<(), Error> {
        let ticket = queue.submit(&self.head)?;
        wait(queue, ticket, Duration::from_millis(50))
    }

    /// Adds what the kernels of a chunk of so many tokens took when one last ran.
    pub(in crate::graph) fn add_to(&self, meter: &mut Meter, tokens: usize) -> Result<(), Error> {
        let Some(class) = self.class(tokens) else { return Ok(()) };
        let class = &self.classes[class];
        meter.add(&class.embed)?;
        class.layers.iter().try_for_each(|layer| meter.add(layer))
    }

    /// The smallest class with room for so many tokens.
    fn class(&self, tokens: usize) -> Option<usize> {
        self.classes.iter().position(|class| class.tokens as usize >= tokens)
    }
}

fn wait(queue: &mut Queue, ticket: Ticket, expected: Duration) -> Result<(), Error> {
    // What nobody waits longer for is late in any case; deadlines are computed from it.
    let expected = expected.min(Duration::from_secs(1));
    queue.wait(ticket, &Patience { expected, ..Patience::default() })?;
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
