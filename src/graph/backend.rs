//! The backend as its users see it: set up once, then one step after the other.

use super::caches::{KvCache, States};
use super::decode::{Builder, Parts};
use super::device::Gpu;
use super::fill::Progress;
use super::kernels::{Class, Dims, Shared};
use super::load::{self, Loaded, STAGE_BYTES, Way, copy_rate, load};
use super::prefill::{self, Prefill};
use super::profile::{Meter, Spent};
use super::programs::{self, Programs, batches, mode};
use super::scratch::{HostArenas, Rows, SamplingBuffers};
use super::state::Ferry;
use super::step::{Chunk, Found, Kv, Places, Row};
use super::{Error, Sieve};
use crate::kernels::attention::span;
use crate::kernels::control;
use crate::kernels::gemm::Path;
use crate::kernels::head::{RECORD_BYTES, Record};
use crate::kernels::kv::{KvLayout, KvType};
use crate::model::memory::{Plan, Request};
use crate::model::{Model, Shape, SlotId, Weights};
use crate::ops::Steering;
use crate::quant::TensorType;
use crate::util::notice::Notice;
use crate::vulkan::{Arena, Caps, Patience, Recorded, Residence, Slice};
use bytemuck::Zeroable as _;
use std::sync::Arc;
use std::time::Instant;

/// How the backend is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Type of stored keys.
    pub kv_k: TensorType,
    /// Type of stored values.
    pub kv_v: TensorType,
    /// Positions of each session.
    pub ctx: usize,
    /// Sessions at the same time.
    pub sessions: usize,
    /// Recurrent state slots.
    pub slots: usize,
    /// f32 arithmetic throughout.
    pub quality: bool,
    /// Largest number of tokens in a chunk.
    pub chunk: usize,
    /// Directional steering.
    pub steering: Option<Steering>,
    /// Bits of the tokens that may be drawn, the lowest id in the lowest bit of the first word.
    pub drawable: Vec<u64>,
    /// Whether every kernel is timed.
    pub profile: bool,
    /// How weights get to the device.
    pub load: Way,
    /// Hears when the device is late.
    pub notice: Notice,
}

/// Where weights come from.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// A model file.
    File(&'a Model),
    /// Random numbers for a model of this shape with these types of weights.
    Random(&'a Shape, &'a Weights),
}

/// A class of row counts, ready to run.
struct Ready {
    class: Class,
    rows: Rows,
    step: Arc<Recorded>,
}

/// The model on the device: weights, caches and recorded steps.
pub struct Backend {
    pub(super) gpu: Gpu,
    pub(super) shape: Shape,
    pub(super) options: Options,
    shared: Shared,
    pub(super) states: States,
    pub(super) kv: KvCache,
    /// Parts of states on their way to and from files.
    pub(super) ferry: Ferry,
    places: Places,
    sampling: SamplingBuffers,
    classes: Vec<Ready>,
    prefill: Prefill,
    loaded: Loaded,
    /// What steps and chunks spent their time on, when that is measured.
    decode_meter: Meter,
    prefill_meter: Meter,
}

/// Blocks of an arena of weights or caches.
const BLOCK_BYTES: u64 = 1 << 30;

impl Backend {
    /// Loads the model onto the device and records its steps.
    ///
    /// # Errors
    /// When the device has not enough memory, cannot run a kernel, or `progress` stopped the load.
    pub fn new(
        mut gpu: Gpu,
        source: Source<'_>,
        options: Options,
        progress: &mut Progress<'_>,
    ) -> Result<Self, Error> {
        let shape = source.shape().clone();
        let layout = layout(&shape, &options)?;
        let request = request(&gpu, &shape, &options);
        gpu.check_room(&shape, source.bytes(), &request)?;
        let plan = Plan::new(&shape, source.bytes(), &request);
        let dims = Dims::new(&shape, layout);
        let arena = |name, block_bytes, bytes| {
            Arena::new(&gpu.device, name, Residence::Device, block_bytes).expecting(bytes)
        };
        let kept = if load::imports(options.load, &gpu) { source.expert_bytes() } else { 0 };
        let weight_arena = arena("weights", BLOCK_BYTES, plan.weights - kept);
        let cache_arena = arena("caches", BLOCK_BYTES, plan.kv() + plan.state());
        let scratch_arena = arena("scratch", 64 << 20, plan.scratch);
        let host = HostArenas {
            up: Arena::new(&gpu.device, "mailboxes", Residence::Upload, 1 << 20),
            down: Arena::new(&gpu.device, "results", Residence::Readback, 1 << 20),
        };
        let (weights, loaded) =
            load(&mut gpu, source, &weight_arena, (options.load, STAGE_BYTES), progress)?;
        let kv_layers = shape.attention_layers();
        let (sessions, ctx) = (options.sessions, options.ctx);
        let kv = KvCache::new(kv_layers, &cache_arena, &layout, sessions, ctx)?;
        let states = States::new(&shape, &cache_arena, options.slots)?;
        for slot in 0..u32::try_from(options.slots).expect("few slots") {
            states.clear(&mut gpu.queue, SlotId(slot))?;
        }
        let sampling = SamplingBuffers::new(&mut gpu, &scratch_arena, &shape, &options)?;
        let steering = options.steering.as_ref();
        let shared = Shared::new(
            &gpu.device,
            &mut |name, bytes| {
                let slice = scratch_arena.buffer(name, bytes.len() as u64)?.all();
                gpu.queue.upload(&slice, bytes)?;
                Ok(slice)
            },
            (&shape, &dims, mode(options.quality)),
            (&weights, ctx, steering),
        )?;
        let Programs { rows: programs, chunks, last_row } =
            Programs::new(&gpu, &dims, &weights, &options)?;
        programs::finish(&gpu, &options, (source.bytes(), progress))?;
        let parts = Parts {
            shape: &shape,
            weights: &weights,
            shared: &shared,
            states: &states,
            kv: &kv,
            sampling: &sampling,
            storage_bytes: gpu.caps().limits.storage_bytes,
        };
        let mut classes = Vec::new();
        for class in programs {
            let arenas = (&scratch_arena, &host);
            let rows = Rows::new(arenas, &dims, &class, (&shared, &weights))?;
            let graph = Builder::step(&parts, &class, &rows);
            let step = if options.profile {
                graph.record_profiled(&gpu.device)?
            } else {
                graph.record(&gpu.device)?
            };
            classes.push(Ready { class, rows, step });
        }
        let prefill = Prefill::new(
            &gpu,
            (&scratch_arena, &host),
            &parts,
            (&dims, &classes[0].class, &classes[0].rows),
            (chunks, &last_row),
            options.profile,
        )?;
        gpu.save_pipelines();
        let places = Places::new(sessions);
        Ok(Self {
            gpu,
            shape,
            options,
            shared,
            states,
            kv,
            ferry: Ferry::default(),
            places,
            sampling,
            classes,
            prefill,
            loaded,
            decode_meter: Meter::new("decode"),
            prefill_meter: Meter::new("prefill"),
        })
    }

    /// Room for the K and V rows of one session.
    ///
    /// # Errors
    /// When as many sessions have some as the backend was made for.
    pub fn new_kv(&mut self) -> Result<Kv, Error> {
        self.places.take().ok_or(Error::NoKv(self.places.count()))
    }

    /// Makes a slot that of an empty sequence.
    pub fn reset_slot(&mut self, slot: SlotId) -> Result<(), Error> {
        self.check_slot(slot)?;
        self.states.clear(&mut self.gpu.queue, slot)
    }

    /// How K and V rows lie in pages.
    pub(super) fn layout(&self) -> KvLayout {
        layout(&self.shape, &self.options).expect("checked when the backend was made")
    }

    /// The most rows of [`Backend::rows`].
    pub fn batch(&self) -> usize {
        self.classes.iter().map(|ready| ready.class.batch as usize).max().unwrap_or(1)
    }

    /// How the weights were loaded.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Bytes a second of plain copying from the page cache to the device, to compare a load with; `None` where the
    /// model is no file.
    ///
    /// # Errors
    /// When the file or the device fails.
    pub fn copy_rate(&mut self, model: &Model) -> Result<Option<f64>, Error> {
        copy_rate(&mut self.gpu, model)
    }

    /// Changes how long a slice of a chunk may take. For tests.
    #[doc(hidden)]
    pub fn set_slice(&mut self, slice: std::time::Duration) {
        self.prefill.set_slice(slice);
    }

    /// Makes the device seem lost after so many more submissions. For tests.
    #[doc(hidden)]
    pub fn pretend_lost_after(&mut self, submissions: &[u64]) {
        self.gpu.queue.pretend_lost_after(submissions);
    }

    /// Bytes of device memory that the drill of its setup has seen allocated. For tests.
    #[doc(hidden)]
    pub fn allocated(&self) -> u64 {
        self.gpu.device.drill().allocated()
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Evaluates one token each of some sequences. After an error the target slots and the K/V rows of the step mean
    /// nothing.
    pub fn rows(&mut self, rows: &[Row<'_>]) -> Result<Vec<Found>, Error> {
        for row in rows {
            self.check_row(row)?;
        }
        let most = self.batch();
        if !(1..=most).contains(&rows.len()) {
            return Err(Error::Step(format!("{} rows in a step of 1 to {most}", rows.len())));
        }
        let place = self.classes.iter().position(|c| c.class.batch as usize >= rows.len());
        let ready = &self.classes[place.expect("the largest class has room")];
        let splits = self.shared.attention.splits();
        let idle = control::Row { flags: control::Row::IDLE, ..control::Row::default() };
        let mut records = vec![idle; ready.class.batch as usize];
        for (record, row) in records.iter_mut().zip(rows) {
            *record = self.record(row, splits);
        }
        ready.rows.mailbox.buffer.write(ready.rows.mailbox.offset, bytemuck::cast_slice(&records));
        let step = Arc::clone(&ready.step);
        let begin = Instant::now();
        let on_late = |text: &str| self.options.notice.warn(text);
        let patience =
            Patience { expected: self.gpu.slice(), on_late: &on_late, cancelled: &|| false };
        self.gpu.queue.run(&step, &patience)?;
        if self.options.profile {
            self.decode_meter.run(begin.elapsed());
            self.decode_meter.add(&step)?;
        }
        let records = &self.classes[place.expect("found above")].rows.records;
        rows.iter().enumerate().map(|(i, row)| found(records, i, row)).collect()
    }

    fn record(&self, row: &Row<'_>, splits: u32) -> control::Row {
        let pos = int(row.pos);
        let wants_candidates = row.sieve.margin.is_finite();
        control::Row {
            pos,
            tokens: 1,
            token: row.token,
            source: row.source.0,
            target: row.target.0,
            page: self.kv.page(row.kv.place),
            span: span(pos + 1, splits),
            logits: row.kv.place,
            margin: row.sieve.margin,
            inverse_temperature: if wants_candidates { 1.0 } else { 0.0 },
            ..control::Row::default()
        }
    }

    /// Evaluates consecutive tokens of one sequence. After an error or when cancelled the target slot and the K/V rows of
    /// the chunk mean nothing; the source slot is as it was.
    pub fn chunk(&mut self, kv: &Kv, chunk: &Chunk<'_>) -> Result<Option<Found>, Error> {
        let &[first, ref rest @ ..] = chunk.tokens else {
            return Err(Error::Step("a chunk of no tokens".to_owned()));
        };
        let (source, target, sieve) = (chunk.source, chunk.target, Sieve::default());
        let row = Row { kv, token: first, pos: chunk.pos, source, target, sieve };
        if rest.is_empty() {
            return Ok(self.rows(&[row])?.pop().filter(|_| chunk.logits));
        }
        for (i, &token) in chunk.tokens.iter().enumerate() {
            self.check_row(&Row { token, pos: chunk.pos + i, ..row })?;
        }
        if source == target || chunk.tokens.len() > self.options.chunk {
            let (found, most) = (chunk.tokens.len(), self.options.chunk);
            let why = format!("{found} tokens in a chunk of at most {most}, to another slot");
            return Err(Error::Step(why));
        }
        let record = control::Row {
            tokens: int(chunk.tokens.len()),
            query_tokens: int(chunk.tokens.len()),
            ..self.record(&row, self.shared.attention.splits())
        };
        let begin = Instant::now();
        self.prefill.run(&mut self.gpu, &record, chunk, &self.options.notice)?;
        if self.options.profile {
            self.prefill_meter.run(begin.elapsed());
            self.prefill.add_to(&mut self.prefill_meter, chunk.tokens.len())?;
        }
        if !chunk.logits {
            return Ok(None);
        }
        let last = chunk.pos + chunk.tokens.len() - 1;
        self.prefill.head(&mut self.gpu, &self.options.notice)?;
        found(&self.prefill.records, 0, &Row { pos: last, ..row }).map(Some)
    }

    /// What the device spent its time on since this was last asked; `None` unless the backend measures.
    pub fn profile(&mut self) -> Option<[Spent; 2]> {
        self.options.profile.then(|| [self.prefill_meter.take(), self.decode_meter.take()])
    }

    /// The logits after the last token of the session that has these rows.
    pub fn logits(&mut self, kv: &Kv) -> Result<Vec<f32>, Error> {
        let bytes = self.shape.logits_bytes() as u64;
        let all = &self.sampling.logits;
        let row = all.buffer.slice(all.offset + u64::from(kv.place) * bytes, bytes);
        let mut logits = vec![0.0_f32; self.shape.vocab];
        self.gpu.queue.download(&row, bytemuck::cast_slice_mut(&mut logits))?;
        Ok(logits)
    }

    fn check_row(&self, row: &Row<'_>) -> Result<(), Error> {
        self.check_slot(row.source)?;
        self.check_slot(row.target)?;
        if row.pos >= self.options.ctx {
            let ctx = self.options.ctx;
            return Err(Error::Step(format!("position {} of a context of {ctx}", row.pos)));
        }
        if row.token as usize >= self.shape.vocab {
            let vocab = self.shape.vocab;
            return Err(Error::Step(format!("token {} of a vocabulary of {vocab}", row.token)));
        }
        Ok(())
    }

    pub(super) fn check_slot(&self, slot: SlotId) -> Result<(), Error> {
        let slots = self.states.slots();
        if (slot.0 as usize) < slots {
            Ok(())
        } else {
            Err(Error::Step(format!("state slot {} of {slots}", slot.0)))
        }
    }
}

impl Source<'_> {
    pub(super) fn shape(&self) -> &Shape {
        match self {
            Self::File(model) => &model.shape,
            Self::Random(shape, _) => shape,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::File(model) => model.file.tensor_bytes(),
            Self::Random(_, weights) => weights.bytes(),
        }
    }
}

impl Source<'_> {
    /// Bytes of the routed experts.
    fn expert_bytes(&self) -> u64 {
        let weights = match self {
            Self::File(model) => &model.weights,
            Self::Random(_, weights) => weights,
        };
        let moe = weights.layers.iter().map(|layer| &layer.moe);
        let banks = moe.flat_map(|moe| [&moe.gate, &moe.up, &moe.down]);
        banks.map(|bank| (bank.expert_bytes * bank.count) as u64).sum()
    }
}

impl SamplingBuffers {
    fn new(gpu: &mut Gpu, arena: &Arena, shape: &Shape, options: &Options) -> Result<Self, Error> {
        let logits = (shape.logits_bytes() * options.sessions) as u64;
        // The two halves of a word in memory order.
        let mut words: Vec<u32> = bytemuck::cast_slice(&options.drawable).to_vec();
        words.resize(shape.vocab.div_ceil(32), 0);
        let mask = arena.buffer("mask", (words.len() * 4) as u64)?.all();
        gpu.queue.upload(&mask, bytemuck::cast_slice(&words))?;
        let bias = arena.buffer("bias", 8)?.all();
        gpu.queue.clear(std::slice::from_ref(&bias))?;
        Ok(Self { logits: arena.buffer("logits", logits)?.all(), mask, bias })
    }
}

fn layout(shape: &Shape, options: &Options) -> Result<KvLayout, Error> {
    let kind = |which, ty| KvType::from_tensor(ty).ok_or(Error::KvType { which, found: ty });
    Ok(KvLayout {
        keys: kind("K", options.kv_k)?,
        values: kind("V", options.kv_v)?,
        kv_heads: shape.kv_heads,
    })
}

/// What the host reads of a row of a step that has run.
fn found(records: &Slice, index: usize, row: &Row<'_>) -> Result<Found, Error> {
    let mut record = [Record::zeroed()];
    let offset = records.offset + (index * RECORD_BYTES) as u64;
    records.buffer.read(offset, bytemuck::cast_slice_mut(&mut record));
    let [record] = record;
    if record.flags & Record::FAILED != 0 {
        return Err(Error::NonFinite { pos: row.pos });
    }
    let best = Some((record.token, record.max));
    let candidates = record.candidates().filter(|_| row.sieve.margin.is_finite());
    Ok(match candidates {
        Some(list) => Found {
            best,
            rows: list.iter().map(|c| (c.id, c.logit)).collect(),
            floor: record.max - row.sieve.margin,
        },
        None => Found { best, rows: Vec::new(), floor: f32::INFINITY },
    })
}

/// What the options ask of the device.
fn request(gpu: &Gpu, shape: &Shape, options: &Options) -> Request {
    let Options { kv_k, kv_v, ctx, sessions, slots, quality, chunk, .. } = *options;
    let scratch_bytes = scratch_bytes(shape, gpu.caps(), chunk, sessions, quality);
    Request { kv_k, kv_v, ctx, sessions, slots, scratch_bytes }
}

/// Bytes of working memory, logits included.
pub fn scratch_bytes(
    shape: &Shape,
    caps: &Caps,
    chunk: usize,
    sessions: usize,
    quality: bool,
) -> u64 {
    let path = Path::choose(mode(quality), caps);
    let logits = (shape.logits_bytes() * sessions) as u64;
    // Tables and mailboxes; rows of decode steps, of which the parts of attention are the most.
    let rows: u64 = batches(sessions).map(u64::from).sum();
    let small = (4 << 20) + rows * (2 << 20);
    logits + small + prefill::scratch_bytes(shape, chunk, path.bytes())
}

fn int(n: usize) -> u32 {
    u32::try_from(n).expect("positions are counted in 32 bits")
}
