//! Chunks on their way through the device.

use super::pace::{self, Pace};
use super::{ChunkKernels, ChunkScratch, Chunks, record};
use crate::graph::decode::{Builder, Parts};
use crate::graph::device::Gpu;
use crate::graph::kernels::{Class, Dims};
use crate::graph::profile::Meter;
use crate::graph::scratch::{HostArenas, Rows};
use crate::graph::{Chunk, Error};
use crate::kernels::control::Row;
use crate::kernels::last_row::{LastRow, LastRowIo};
use crate::util::notice::Notice;
use crate::vulkan::{Arena, Graph, Patience, Recorded, Slice, Ticket};
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
    pace: Pace,
    /// Whether graphs are timed: then attention stays whole.
    profile: bool,
}

impl Prefill {
    /// Records all size classes, the smallest first.
    pub(in crate::graph) fn new(
        gpu: &Gpu,
        arenas: (&Arena, &HostArenas),
        parts: &Parts<'_>,
        (dims, class, rows): (&Dims, &Class, &Rows),
        (kernels, last_row): (Vec<ChunkKernels>, &LastRow),
        profile: bool,
    ) -> Result<Self, Error> {
        let scratch = ChunkScratch::new(arenas, (parts.shape, dims), &kernels, parts.weights)?;
        let classes = kernels
            .iter()
            .map(|k| record(&gpu.device, parts, k, &scratch, profile))
            .collect::<Result<_, _>>()?;
        let head = head(gpu, parts, (last_row, class, rows), &scratch)?;
        let records = rows.records.clone();
        // Until one has run: attention's operations at a rate that any device of its kind has.
        let rate = if gpu.is_cpu() { 2e9 } else { 1e12 };
        let pair_flops = 4.0 * f64::from(dims.query_width);
        let pace = Pace::new(SLICE, pair_flops / rate);
        Ok(Self { classes, scratch, head, records, pace, profile })
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
        let splits = !self.profile && self.pace.splits(chunk.pos, tokens);
        let mut slices = Slices { prefill: self, gpu, notice, chunk, open: None };
        slices.add(&class.embed, 0.0)?;
        for (index, layer) in class.layers.iter().enumerate() {
            match class.split.get(&index).filter(|_| splits) {
                Some(split) => {
                    slices.add(&split.before, 0.5)?;
                    slices.ranges(&split.flash, record)?;
                    slices.add(&split.after, 0.5)?;
                }
                None => slices.add(layer, 1.0)?,
            }
        }
        slices.close()
    }

    /// Changes how long a slice may take. For tests.
    pub(in crate::graph) fn set_slice(&mut self, slice: Duration) {
        self.pace.set_slice(slice);
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

/// Size classes of chunks of at most `chunk` tokens, the smallest first.
pub(in crate::graph) fn sizes(chunk: usize) -> impl Iterator<Item = u32> {
    // Kernels on matrix units take whole blocks of tokens.
    let most = chunk.next_multiple_of(BLOCK);
    let sizes = CLASSES.into_iter().filter(move |&n| n < most).chain([most]);
    sizes.map(|n| u32::try_from(n).expect("chunks are counted in 32 bits"))
}

/// A chunk that is being submitted, slice by slice.
struct Slices<'a> {
    prefill: &'a Prefill,
    gpu: &'a mut Gpu,
    notice: &'a Notice,
    chunk: &'a Chunk<'a>,
    /// The slice that is on its way.
    open: Option<Open>,
}

/// What was submitted and not waited for.
struct Open {
    last: Ticket,
    begin: Instant,
    /// Layers in it.
    share: f64,
}

impl Slices<'_> {
    /// Submits `share` layers, with those before them or in a slice of their own.
    fn add(&mut self, graph: &Arc<Recorded>, share: f64) -> Result<(), Error> {
        let begun = self.open.as_ref().map_or(0.0, |open| open.share);
        if !self.prefill.pace.fits(begun, share, self.chunk.tokens.len()) {
            self.close()?;
            self.ask()?;
        }
        let last = self.gpu.queue.submit(graph)?;
        match &mut self.open {
            Some(open) => (open.last, open.share) = (last, open.share + share),
            None => self.open = Some(Open { last, begin: Instant::now(), share }),
        }
        Ok(())
    }

    /// Runs the attention of a layer in ranges of query rows, each a slice.
    fn ranges(&mut self, flash: &Arc<Recorded>, record: &Row) -> Result<(), Error> {
        let (pos, tokens) = (self.chunk.pos, self.chunk.tokens.len());
        let (pace, to) = (&self.prefill.pace, &self.prefill.scratch.ranges);
        let mut first = 0;
        while first < tokens {
            self.close()?;
            self.ask()?;
            let count = pace.range(pos, first, tokens);
            let row = Row { query_first: int(first), query_tokens: int(count), ..*record };
            to.buffer.write(to.offset, bytemuck::bytes_of(&row));
            let begin = Instant::now();
            let ticket = self.gpu.queue.submit(flash)?;
            wait(self.gpu, ticket, self.notice)?;
            pace.ran_pairs(pace::pairs(pos, first, count), begin.elapsed());
            first += count;
        }
        Ok(())
    }

    /// Waits for the slice that is on its way.
    fn close(&mut self) -> Result<(), Error> {
        let Some(Open { last, begin, share }) = self.open.take() else { return Ok(()) };
        wait(self.gpu, last, self.notice)?;
        if share > 0.0 {
            self.prefill.pace.ran_layers(share, self.chunk.tokens.len(), begin.elapsed());
        }
        Ok(())
    }

    /// Whether to go on.
    fn ask(&self) -> Result<(), Error> {
        if (self.chunk.cancelled)() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

fn int(n: usize) -> u32 {
    u32::try_from(n).expect("positions are counted in 32 bits")
}

fn wait(gpu: &mut Gpu, ticket: Ticket, notice: &Notice) -> Result<(), Error> {
    let on_late = |text: &str| notice.warn(text);
    let patience = Patience { expected: gpu.slice(), on_late: &on_late, cancelled: &|| false };
    gpu.queue.wait(ticket, &patience)?;
    Ok(())
}

/// The head over the last token of a chunk, with the buffers of single rows.
fn head(
    gpu: &Gpu,
    parts: &Parts<'_>,
    (last_row, class, rows): (&LastRow, &Class, &Rows),
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
    last_row.record(&mut graph, "last row", io);
    Ok(Builder::head_of(parts, class, &rows, graph).record(&gpu.device)?)
}
