//! The backend as its users see it: set up once, then one step after the other.

use super::Error;
use super::caches::{KvCache, States};
use super::chunk::OpenChunk;
use super::decode::{Builder, Parts};
use super::device::Gpu;
use super::fill::{Fill, FromFile, Progress};
use super::kernels::{Class, Dims, Shared};
use super::pattern::Patterns;
use super::prefill::{self, Prefill};
use super::profile::{Meter, Spent};
use super::sampling::{SamplingBuffers, found};
use super::scratch::{HostArenas, Rows};
use super::step::{Found, Kv, Places, Row};
use super::weights::DeviceWeights;
use crate::kernels::attention::span;
use crate::kernels::control::{self, MAX_ROWS};
use crate::kernels::gemm::Path;
use crate::kernels::kv::{KvLayout, KvType};
use crate::kernels::mode::Mode;
use crate::model::{Model, Shape, SlotId, Weights};
use crate::ops::Steering;
use crate::quant::TensorType;
use crate::vulkan::{Arena, Caps, Patience, Recorded, Residence, Stage};
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
    shape: Shape,
    pub(super) options: Options,
    pub(super) shared: Shared,
    states: States,
    kv: KvCache,
    places: Places,
    sampling: SamplingBuffers,
    classes: Vec<Ready>,
    pub(super) prefill: Prefill,
    /// The chunk that is under way.
    pub(super) open: Option<OpenChunk>,
    /// What steps and chunks spent their time on, when that is measured.
    decode_meter: Meter,
    pub(super) prefill_meter: Meter,
}

/// Upload buffers of a load, and their size.
const STAGES: usize = 6;
const STAGE_BYTES: usize = 32 << 20;
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
        fits(&gpu, source.bytes(), &shape, &options)?;
        let dims = Dims::new(&shape, layout);
        let arena = |name, bytes| Arena::new(&gpu.device, name, Residence::Device, bytes);
        let [weight_arena, cache_arena] =
            ["weights", "caches"].map(|name| arena(name, BLOCK_BYTES));
        let scratch_arena = arena("scratch", 64 << 20);
        let host = HostArenas {
            up: Arena::new(&gpu.device, "mailboxes", Residence::Upload, 1 << 20),
            down: Arena::new(&gpu.device, "results", Residence::Readback, 1 << 20),
        };
        let weights = load(&mut gpu, source, &weight_arena, progress)?;
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
            &mut gpu.queue,
            &scratch_arena,
            (&shape, &dims),
            (&weights, ctx, steering),
        )?;
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
        for batch in batches(sessions) {
            let class = Class::new(
                &gpu.device,
                (batch, mode(options.quality)),
                &dims,
                &weights,
                steering.is_some(),
            )?;
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
            &options,
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
            places,
            sampling,
            classes,
            prefill,
            open: None,
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

    /// The most rows of [`Backend::rows`].
    pub fn batch(&self) -> usize {
        self.classes.iter().map(|ready| ready.class.batch as usize).max().unwrap_or(1)
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
        self.gpu.queue.run(&step, &Patience::default())?;
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

    fn check_slot(&self, slot: SlotId) -> Result<(), Error> {
        let slots = self.states.slots();
        if (slot.0 as usize) < slots {
            Ok(())
        } else {
            Err(Error::Step(format!("state slot {} of {slots}", slot.0)))
        }
    }
}

impl Source<'_> {
    fn shape(&self) -> &Shape {
        match self {
            Self::File(model) => &model.shape,
            Self::Random(shape, _) => shape,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::File(model) => model.file.tensor_bytes(),
            Self::Random(_, weights) => weights.bytes(),
        }
    }
}

fn load(
    gpu: &mut Gpu,
    source: Source<'_>,
    arena: &Arena,
    progress: &mut Progress<'_>,
) -> Result<DeviceWeights, Error> {
    match source {
        Source::File(model) => {
            let stage = Stage::new(&gpu.device, STAGES, STAGE_BYTES)?;
            let (done, total) = (0, source.bytes());
            let queue = &mut gpu.queue;
            let mut fill = Fill::File(FromFile { model, queue, stage, progress, done, total });
            let weights = DeviceWeights::load(&model.shape, &model.weights, arena, &mut fill)?;
            let Fill::File(mut file) = fill else { unreachable!("made above") };
            file.stage.finish(file.queue)?;
            Ok(weights)
        }
        Source::Random(shape, weights) => {
            let patterns = Arena::new(&gpu.device, "patterns", Residence::Device, 32 << 20);
            let mut fill = Fill::Random(Patterns::new(&mut gpu.queue, &patterns));
            DeviceWeights::load(shape, weights, arena, &mut fill)
        }
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

/// Classes of row counts for so many sessions.
pub(super) fn batches(sessions: usize) -> impl Iterator<Item = u32> {
    let most = sessions.next_power_of_two().min(MAX_ROWS);
    [1, 2, 4, 8].into_iter().filter(move |&n| n as usize <= most)
}

/// Refuses what cannot fit, before anything is allocated.
fn fits(gpu: &Gpu, weights: u64, shape: &Shape, options: &Options) -> Result<(), Error> {
    use crate::util::units::Bytes;
    let info = gpu.device.info();
    let kv =
        (shape.kv_token_bytes(options.kv_k, options.kv_v) * options.ctx * options.sessions) as u64;
    let state = (shape.state_slot_bytes() * options.slots) as u64;
    let scratch =
        scratch_bytes(shape, gpu.caps(), options.chunk, options.sessions, options.quality);
    let needed = Bytes(weights + kv + state + scratch);
    if needed <= info.usable {
        return Ok(());
    }
    let parts = format!(
        "weights {}, K/V {}, states {}, scratch {}",
        Bytes(weights),
        Bytes(kv),
        Bytes(state),
        Bytes(scratch)
    );
    Err(Error::TooLarge { device: info.name.clone(), needed, usable: info.usable, parts })
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
    // Rows of decode steps, tables and mailboxes.
    let small = 16 << 20;
    logits + rules + small + prefill::scratch_bytes(shape, chunk, path.bytes())
}

fn mode(quality: bool) -> Mode {
    if quality { Mode::Exact } else { Mode::Fast }
}

pub(super) fn int(n: usize) -> u32 {
    u32::try_from(n).expect("positions are counted in 32 bits")
}
