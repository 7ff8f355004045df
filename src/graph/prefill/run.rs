//! Chunks on their way through the device.

use super::pace::{Pace, Part, Place, Unit, Work};
use super::{ChunkKernels, ChunkScratch, Chunks, record};
use crate::graph::Error;
use crate::graph::backend::int;
use crate::graph::decode::{Builder, Parts};
use crate::graph::device::Gpu;
use crate::graph::kernels::{Class, Dims};
use crate::graph::profile::Meter;
use crate::graph::scratch::{HostArenas, Rows};
use crate::kernels::control::Row;
use crate::kernels::last_row::{LastRow, LastRowIo};
use crate::util::notice::Notice;
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
    pace: Pace,
}

/// A chunk on its way.
pub(in crate::graph) struct Progress {
    work: Work,
    /// What is left.
    place: Place,
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
        let classes: Vec<Chunks> = kernels
            .iter()
            .map(|k| record(&gpu.device, parts, k, &scratch, profile))
            .collect::<Result<_, _>>()?;
        let head = head(gpu, parts, (last_row, class, rows), &scratch)?;
        let records = rows.records.clone();
        // Until one has run: attention's operations at a rate that any device of its kind has.
        let rate = if gpu.is_cpu() { 2e9 } else { 1e12 };
        let pair_flops = 4.0 * f64::from(dims.query_width);
        // Where kernels are timed, attention stays whole: only whole layers are.
        let has_parts = |layer| !profile && classes[0].split.contains_key(&layer);
        let has_parts: Vec<bool> = (0..classes[0].layers.len()).map(has_parts).collect();
        let pace = Pace::new(classes.len(), &has_parts, pair_flops / rate);
        Ok(Self { classes, scratch, head, records, pace })
    }

    /// A chunk of so many tokens from position `pos` on, before its first layer.
    pub(in crate::graph) fn start(&self, pos: usize, tokens: usize) -> Progress {
        let class = self.class(tokens).expect("the caller checked the length");
        Progress { work: Work { class, pos, tokens }, place: Place::START }
    }

    /// Runs as much of a chunk as is expected to take no longer than `limit`, at least a layer or a range of query rows,
    /// and waits. Whether all is done. Decode steps may run between two calls, but no other chunk.
    pub(in crate::graph) fn advance(
        &mut self,
        gpu: &mut Gpu,
        chunk: &mut Progress,
        (record, tokens): (&Row, &[u32]),
        (limit, notice): (Duration, &Notice),
    ) -> Result<bool, Error> {
        let work = chunk.work;
        let layers = self.classes[work.class].layers.len();
        if chunk.place == Place::START {
            let s = &self.scratch;
            s.mailbox.buffer.write(s.mailbox.offset, bytemuck::bytes_of(record));
            s.ids.buffer.write(s.ids.offset, bytemuck::cast_slice(tokens));
            gpu.queue.submit(&self.classes[work.class].embed)?;
        }
        let mut begin = Instant::now();
        let units = self.pace.slice(work, chunk.place, limit);
        let submit = |&unit| Ok((unit, self.submit(&mut gpu.queue, work.class, unit, record)?));
        let submitted: Vec<(Unit, Ticket)> =
            units.iter().map(submit).collect::<Result<_, Error>>()?;
        for (unit, ticket) in submitted {
            wait(gpu, ticket, notice)?;
            let now = Instant::now();
            self.pace.took(work, unit, now - begin);
            begin = now;
            chunk.place = Place::behind(unit, work.tokens);
        }
        Ok(chunk.place.is_end(layers))
    }

    fn submit(
        &self,
        queue: &mut Queue,
        class: usize,
        Unit { layer, part }: Unit,
        record: &Row,
    ) -> Result<Ticket, Error> {
        let class = &self.classes[class];
        let graph = match part {
            Part::Whole => &class.layers[layer],
            Part::Rows => &class.split[&layer].before,
            Part::Attention { first, count } => {
                // The first of its slice: the range before it has been waited for.
                let row = Row { query_first: int(first), query_tokens: int(count), ..*record };
                let to = &self.scratch.ranges;
                to.buffer.write(to.offset, bytemuck::bytes_of(&row));
                &class.split[&layer].flash
            }
            Part::Rest => &class.split[&layer].after,
        };
        Ok(queue.submit(graph)?)
    }

    /// Computes the logits of the chunk's last token, and waits.
    pub(in crate::graph) fn head(&self, gpu: &mut Gpu, notice: &Notice) -> Result<(), Error> {
        let ticket = gpu.queue.submit(&self.head)?;
        wait(gpu, ticket, notice)
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

/// Size classes of chunks of at most `chunk` tokens, the smallest first.
pub(in crate::graph) fn sizes(chunk: usize) -> impl Iterator<Item = u32> {
    // Kernels on matrix units take whole blocks of tokens.
    let most = chunk.next_multiple_of(BLOCK);
    let sizes = CLASSES.into_iter().filter(move |&n| n < most).chain([most]);
    sizes.map(|n| u32::try_from(n).expect("chunks are counted in 32 bits"))
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
