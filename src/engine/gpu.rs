//! The Vulkan backend, as the engine sees it. `no_gpu` stands in for it in a build without Vulkan.

use super::backend::{Chunk, Held, Outcome, Row};
use super::open::{Origin, Settings};
use super::sample::{Sampler, SamplerParams, Shortlist};
use super::{Error, KernelTime, Options, Phase, Profile, steering};
use crate::graph::{self, Found, Gpu, Request, Sieve, Spent};
use crate::model::{Shape, SlotId, StatePart};
use crate::tokenizer::TokenId;

pub use crate::graph::Error as DeviceError;
pub(super) use crate::graph::{Kv, RawPart, Reading};

/// What a step brings back of its logits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted(Sieve);

impl Wanted {
    pub(super) fn for_draws(params: SamplerParams) -> Self {
        let margin = Sampler::margin(params).unwrap_or(f32::NEG_INFINITY);
        Self(Sieve { margin })
    }
}

/// A device, open, with nothing on it.
pub(super) struct Device(Gpu);

impl Device {
    /// Opens the best device for these options, or the one they name. Only a real GPU unless one was
    /// asked for.
    pub(super) fn choose(options: &Options, needed_bytes: u64) -> Result<Self, Error> {
        let explicit = options.backend == super::BackendChoice::Vulkan;
        let request = match (&options.device, explicit) {
            (Some(name), _) => Request::Named(name),
            (None, true) => Request::Any,
            (None, false) => Request::Gpu,
        };
        let setup = graph::Setup {
            needed_bytes,
            off: options.device_off.clone(),
            cache_dir: options.cache_dir.clone(),
        };
        Ok(Self(Gpu::open(request, setup)?))
    }

    pub(super) fn describe(&self) -> String {
        self.0.describe()
    }

    pub(super) fn default_chunk(&self) -> usize {
        self.0.default_chunk()
    }

    pub(super) fn scratch_bytes(&self, shape: &Shape, options: &Options, chunk: usize) -> u64 {
        graph::scratch_bytes(shape, self.0.caps(), chunk, options.sessions, options.quality)
    }

    /// Loads the model.
    pub(super) fn open(
        self,
        origin: &Origin,
        settings: &Settings<'_>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Backend, Error> {
        let Settings { info, options, drawable } = settings;
        let source = match origin {
            Origin::File(model) => graph::Source::File(model),
            Origin::Random { shape, weights } => graph::Source::Random(shape, weights),
        };
        let backend = graph::Backend::new(
            self.0,
            source,
            graph::Options {
                kv_k: info.kv_k,
                kv_v: info.kv_v,
                ctx: info.ctx_tokens,
                sessions: options.sessions,
                slots: options.slots(),
                quality: options.quality,
                chunk: info.chunk_tokens,
                steering: steering::read(options.steering.as_ref(), origin.shape())?,
                drawable: drawable.words().to_vec(),
                profile: options.profile,
            },
            progress,
        )?;
        Ok(Backend(backend))
    }
}

/// The model on the device.
pub(super) struct Backend(graph::Backend);

impl Backend {
    pub(super) fn new_kv(&mut self) -> Result<Kv, Error> {
        Ok(self.0.new_kv()?)
    }

    pub(super) fn reset_slot(&mut self, slot: SlotId) -> Result<(), Error> {
        Ok(self.0.reset_slot(slot)?)
    }

    pub(super) fn chunk(&mut self, kv: &mut Kv, chunk: &Chunk<'_>) -> Result<Outcome, Error> {
        let step = graph::Chunk {
            tokens: chunk.tokens,
            pos: chunk.pos,
            source: chunk.source,
            target: chunk.target,
            logits: chunk.logits,
            cancelled: chunk.cancelled,
        };
        match self.0.chunk(kv, &step) {
            Ok(found) => Ok(Outcome::Done(found.map_or(Held::Nothing, held))),
            Err(graph::Error::Cancelled) => Ok(Outcome::Cancelled),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn batch(&self) -> usize {
        self.0.batch()
    }

    pub(super) fn rows(&mut self, rows: &mut [Row<'_>]) -> Result<Vec<Held>, Error> {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                let super::backend::Kv::Gpu(kv) = &*row.kv else {
                    unreachable!("rows and steps are of one backend")
                };
                graph::Row {
                    kv,
                    token: row.token,
                    pos: row.pos,
                    source: row.source,
                    target: row.target,
                    sieve: row.wanted.0,
                }
            })
            .collect();
        Ok(self.0.rows(&rows)?.into_iter().map(held).collect())
    }

    pub(super) fn logits(&mut self, kv: &Kv) -> Result<Vec<f32>, Error> {
        Ok(self.0.logits(kv)?)
    }

    pub(super) fn read_state(
        &mut self,
        place: (&Kv, SlotId, usize),
        part: &StatePart,
    ) -> Result<Option<Reading>, Error> {
        Ok(self.0.read_state(place, part)?)
    }

    pub(super) fn finish_part(&mut self, reading: Reading) -> Result<RawPart, Error> {
        Ok(reading.finish(&mut self.0)?)
    }

    pub(super) fn write_state(
        &mut self,
        place: (&Kv, SlotId, usize),
        part: &StatePart,
        bytes: &[u8],
    ) -> Result<(), Error> {
        Ok(self.0.write_state(place, part, bytes)?)
    }

    pub(super) fn finish_state(&mut self) -> Result<(), Error> {
        Ok(self.0.finish_state()?)
    }

    /// What the device spent its time on, when it was opened to tell.
    pub(super) fn profile(&mut self) -> Option<Profile> {
        let phases = self.0.profile()?;
        Some(Profile { phases: phases.iter().map(phase).collect() })
    }
}

fn phase(spent: &Spent) -> Phase {
    let kernel = |k: &graph::KernelSpent| KernelTime {
        label: k.label.clone(),
        program: k.program,
        count: k.count,
        ns: k.ns,
        bytes: k.cost.bytes,
        flops: k.cost.flops,
    };
    Phase {
        name: spent.name,
        runs: spent.runs,
        wall_ns: spent.wall_ns,
        barriers: spent.barriers,
        kernels: spent.kernels.iter().map(kernel).collect(),
    }
}

fn held(found: Found) -> Held {
    let token = |(id, logit)| (TokenId(id), logit);
    Held::Device(Shortlist {
        best: found.best.map(token),
        tokens: found.rows.into_iter().map(token).collect(),
        floor: found.floor,
    })
}
