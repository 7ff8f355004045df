//! The backend as its users see it: set up once, then one step after the other.

use super::Error;
use super::caches::{KvCache, States};
use super::chunk::OpenChunk;
use super::decode::{Builder, Parts};
use super::device::Gpu;
use super::fill::Progress;
use super::kernels::{Class, Dims, Shared};
use super::load::{self, Loaded, STAGE_BYTES, Way, copy_rate, load};
use super::prefill::{self, Prefill};
use super::profile::{Meter, Spent};
use super::programs::{self, Programs, batches, mode};
use super::sampling::{SamplingBuffers, found};
use super::scratch::{HostArenas, Rows};
use super::state::Ferry;
use super::step::{Found, Kv, Places, Row};
use crate::kernels::attention::{row_bytes, span};
use crate::kernels::control;
use crate::kernels::gemm::Path;
use crate::kernels::kv::{KvLayout, KvType};
use crate::model::memory::{Plan, Request};
use crate::model::{Model, Shape, SlotId, Weights};
use crate::ops::Steering;
use crate::quant::TensorType;
use crate::util::notice::Notice;
use crate::vulkan::{Arena, Caps, Patience, Recorded, Residence};
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
    pub(super) shared: Shared,
    pub(super) states: States,
    pub(super) kv: KvCache,
    /// Parts of states on their way to and from files.
    pub(super) ferry: Ferry,
    places: Places,
    sampling: SamplingBuffers,
    classes: Vec<Ready>,
    pub(super) prefill: Prefill,
    /// The chunk that is under way.
    pub(super) open: Option<OpenChunk>,
    loaded: Loaded,
    /// What steps and chunks spent their time on, when that is measured.
    decode_meter: Meter,
    pub(super) prefill_meter: Meter,
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
        let sampling = SamplingBuffers::new(&mut gpu.queue, &scratch_arena, &shape, &options)?;
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
            open: None,
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
        let ready = place.expect("the largest class has room");
        let idle = control::Row { flags: control::Row::IDLE, ..control::Row::default() };
        let mut records = vec![idle; self.classes[ready].class.batch as usize];
        for (record, row) in records.iter_mut().zip(rows) {
            *record = self.record(row)?;
        }
        let ready = &self.classes[ready];
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
        records
            .iter()
            .take(rows.len())
            .enumerate()
            .map(|(i, row)| found(&ready.rows.records, i, row))
            .collect()
    }

    /// The record of a row. What its draw is to see besides the logits is brought to the device here.
    pub(super) fn record(&mut self, row: &Row<'_>) -> Result<control::Row, Error> {
        let pos = int(row.pos);
        let plain = control::Row {
            pos,
            tokens: 1,
            token: row.token,
            source: row.source.0,
            target: row.target.0,
            page: self.kv.page(row.kv.place),
            span: span(pos + 1, self.shared.attention.splits()),
            logits: row.kv.place,
            ..control::Row::default()
        };
        self.sampling.ask(&mut self.gpu.queue, plain, &row.sieve)
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

    pub(super) fn check_row(&self, row: &Row<'_>) -> Result<(), Error> {
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

fn layout(shape: &Shape, options: &Options) -> Result<KvLayout, Error> {
    let kind = |which, ty| KvType::from_tensor(ty).ok_or(Error::KvType { which, found: ty });
    Ok(KvLayout {
        keys: kind("K", options.kv_k)?,
        values: kind("V", options.kv_v)?,
        kv_heads: shape.kv_heads,
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
    let logits = SamplingBuffers::logit_bytes(shape, sessions);
    let rules = SamplingBuffers::rule_bytes(shape, sessions);
    // Tables and mailboxes; rows of decode steps, of which the parts of attention are the most.
    let rows: u64 = batches(sessions).map(u64::from).sum();
    let parts = row_bytes(int(shape.heads), int(shape.kv_heads), caps);
    let small = (4 << 20) + rows * (parts + (1 << 20));
    logits + rules + small + prefill::scratch_bytes(shape, chunk, path.bytes())
}

pub(super) fn int(n: usize) -> u32 {
    u32::try_from(n).expect("positions are counted in 32 bits")
}
