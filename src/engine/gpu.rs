//! The Vulkan backend, as the engine sees it. `no_gpu` stands in for it in a build without Vulkan.

use super::backend::{Chunk, Held, Outcome, Row, Wanted};
use super::open::{Origin, Settings};
use super::sample::{Ask, Shortlist};
use super::steps::Rules;
use super::{Error, KernelTime, LoadReport, LoadWay, Options, Phase, Profile, steering};
use crate::graph::{self, Drill, Found, Gpu, Request, Sieve, Sliced, Spent};
use crate::model::memory::Request as Needs;
use crate::model::{Shape, SlotId, StatePart};
use crate::tokenizer::{TokenId, TokenMask};
use crate::util::units::Bytes;
use std::sync::Arc;
use std::time::Duration;

pub use crate::graph::Error as DeviceError;
pub(super) use crate::graph::{Kv, RawPart, Reading};

/// The longest slice, whatever the caller allows: a Ctrl+C is answered between slices, within a tenth of a second.
const LONGEST: Duration = Duration::from_millis(80);

/// A device, open, with nothing on it.
pub(super) struct Device {
    gpu: Gpu,
    setup: graph::Setup,
}

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
        let super::Drill { lose, memory_bytes, lacks } = options.drill.clone();
        let setup = graph::Setup {
            needed_bytes,
            off: options.device_off.clone(),
            cache_dir: options.cache_dir.clone(),
            drill: Arc::new(Drill::new(lose, memory_bytes, lacks)),
        };
        Ok(Self { gpu: Gpu::open(request, setup.clone())?, setup })
    }

    pub(super) fn describe(&self) -> String {
        self.gpu.describe()
    }

    pub(super) fn default_chunk(&self) -> usize {
        self.gpu.default_chunk()
    }

    pub(super) fn scratch_bytes(&self, shape: &Shape, options: &Options, chunk: usize) -> u64 {
        graph::scratch_bytes(shape, self.gpu.caps(), chunk, options.sessions, options.quality)
    }

    pub(super) fn usable(&self) -> Bytes {
        self.gpu.usable()
    }

    /// Refuses what does not fit.
    pub(super) fn check_room(
        &self,
        shape: &Shape,
        weights: u64,
        request: &Needs,
    ) -> Result<(), Error> {
        Ok(self.gpu.check_room(shape, weights, request)?)
    }

    /// Loads the model.
    pub(super) fn open(
        self,
        origin: &Arc<Origin>,
        settings: &Settings<'_>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Backend, Error> {
        let Settings { info, options, drawable } = settings;
        let options = graph::Options {
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
            load: match options.load {
                LoadWay::Auto => graph::Way::Auto,
                LoadWay::InPlace => graph::Way::InPlace,
                LoadWay::Direct => graph::Way::Direct,
                LoadWay::Cached => graph::Way::Cached,
            },
            notice: options.notice.clone(),
        };
        let uuid = self.gpu.uuid().to_owned();
        let (origin, setup) = (Arc::clone(origin), self.setup);
        let mut backend = Backend { live: None, origin, setup, uuid, options };
        backend.load(self.gpu, progress)?;
        Ok(backend)
    }
}

/// The model on the device, and what it takes to put it there again.
pub(super) struct Backend {
    /// Nothing after the device was lost and before it is back.
    live: Option<graph::Backend>,
    origin: Arc<Origin>,
    setup: graph::Setup,
    uuid: String,
    options: graph::Options,
}

impl Backend {
    fn load(&mut self, gpu: Gpu, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<(), Error> {
        let source = match &*self.origin {
            Origin::File(model) => graph::Source::File(model),
            Origin::Random { shape, weights } => graph::Source::Random(shape, weights),
        };
        self.live = Some(graph::Backend::new(gpu, source, self.options.clone(), progress)?);
        Ok(())
    }

    /// Lets go of everything on the device. Only [`Backend::rebuild`] brings it back.
    pub(super) fn forsake(&mut self) {
        self.live = None;
    }

    /// Opens the same device again and loads it, with empty caches and states.
    pub(super) fn rebuild(&mut self) -> Result<(), Error> {
        // What was lost still holds its memory.
        self.forsake();
        let gpu = Gpu::open(Request::Named(&self.uuid), self.setup.clone())?;
        self.load(gpu, &mut |_, _| true)
    }

    pub(super) fn load_report(&self) -> Option<LoadReport> {
        let loaded = self.live.as_ref()?.loaded();
        Some(LoadReport {
            how: loaded.how,
            bytes: loaded.bytes,
            in_place: loaded.in_place,
            seconds: loaded.time.as_secs_f64(),
        })
    }

    /// Bytes a second of plain copying from the page cache to the device.
    pub(super) fn copy_rate(&mut self) -> Result<Option<f64>, Error> {
        match &*Arc::clone(&self.origin) {
            Origin::File(model) => Ok(self.live()?.copy_rate(model)?),
            Origin::Random { .. } => Ok(None),
        }
    }

    /// For tests.
    pub(super) fn pretend_lost_after(&mut self, submissions: &[u64]) {
        if let Some(live) = &mut self.live {
            live.pretend_lost_after(submissions);
        }
    }

    fn live(&mut self) -> Result<&mut graph::Backend, DeviceError> {
        self.live.as_mut().ok_or(DeviceError::Gone)
    }

    pub(super) fn new_kv(&mut self) -> Result<Kv, Error> {
        Ok(self.live()?.new_kv()?)
    }

    pub(super) fn reset_slot(&mut self, slot: SlotId) -> Result<(), Error> {
        Ok(self.live()?.reset_slot(slot)?)
    }

    /// A single token is no chunk: [`Backend::advance`] runs it as a decode step.
    pub(super) fn begin(&mut self, kv: &Kv, chunk: &Chunk<'_>) -> Result<(), Error> {
        if chunk.tokens.len() > 1 {
            let rules = device_rules(chunk.wanted.rules);
            self.live()?.begin(kv, &step(chunk, sieve(chunk.wanted.ask, rules.as_ref())))?;
        }
        Ok(())
    }

    pub(super) fn advance(
        &mut self,
        kv: &Kv,
        chunk: &Chunk<'_>,
        limit: Duration,
    ) -> Result<Outcome, Error> {
        let wanted = chunk.wanted;
        let found = if chunk.tokens.len() == 1 {
            let rules = device_rules(wanted.rules);
            self.live()?.chunk(kv, &step(chunk, sieve(wanted.ask, rules.as_ref())))?
        } else {
            match self.live()?.advance(limit.min(LONGEST))? {
                Sliced::Open => return Ok(Outcome::Open),
                Sliced::Done(found) => found,
            }
        };
        Ok(Outcome::Done(found.map_or(Held::Nothing, |found| held(found, wanted))))
    }

    pub(super) fn abandon(&mut self) {
        if let Some(live) = &mut self.live {
            live.abandon();
        }
    }

    pub(super) fn batch(&self) -> usize {
        self.live.as_ref().map_or(1, graph::Backend::batch)
    }

    pub(super) fn rows(&mut self, rows: &mut [Row<'_>]) -> Result<Vec<Held>, Error> {
        let wanted: Vec<Wanted<'_>> = rows.iter().map(|row| row.wanted).collect();
        let rules: Vec<_> = wanted.iter().map(|wanted| device_rules(wanted.rules)).collect();
        let steps: Vec<_> = rows
            .iter()
            .zip(&rules)
            .map(|(row, rules)| {
                let super::backend::Kv::Gpu(kv) = &*row.kv else {
                    unreachable!("rows and steps are of one backend")
                };
                graph::Row {
                    kv,
                    token: row.token,
                    pos: row.pos,
                    source: row.source,
                    target: row.target,
                    sieve: sieve(row.wanted.ask, rules.as_ref()),
                }
            })
            .collect();
        let found = self.live()?.rows(&steps)?;
        Ok(found.into_iter().zip(wanted).map(|(found, wanted)| held(found, wanted)).collect())
    }

    pub(super) fn logits(&mut self, kv: &Kv) -> Result<Vec<f32>, Error> {
        Ok(self.live()?.logits(kv)?)
    }

    pub(super) fn read_state(
        &mut self,
        place: (&Kv, SlotId, usize),
        part: &StatePart,
    ) -> Result<Option<Reading>, Error> {
        Ok(self.live()?.read_state(place, part)?)
    }

    pub(super) fn finish_part(&mut self, reading: Reading) -> Result<RawPart, Error> {
        Ok(reading.finish(self.live()?)?)
    }

    pub(super) fn write_state(
        &mut self,
        place: (&Kv, SlotId, usize),
        part: &StatePart,
        bytes: &[u8],
    ) -> Result<(), Error> {
        Ok(self.live()?.write_state(place, part, bytes)?)
    }

    pub(super) fn finish_state(&mut self) -> Result<(), Error> {
        Ok(self.live()?.finish_state()?)
    }

    /// What the device spent its time on, when it was opened to tell.
    pub(super) fn profile(&mut self) -> Option<Profile> {
        let phases = self.live.as_mut()?.profile()?;
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

fn step<'a>(chunk: &'a Chunk<'_>, sieve: Sieve<'a>) -> graph::Chunk<'a> {
    graph::Chunk {
        tokens: chunk.tokens,
        pos: chunk.pos,
        source: chunk.source,
        target: chunk.target,
        logits: chunk.logits,
        sieve,
    }
}

/// Rules as the device takes them; `None` where logits are seen as they are, or where the device has no room for them.
fn device_rules(rules: &Rules) -> Option<graph::Rules<'_>> {
    (rules.version() > 0 && fits(rules)).then(|| graph::Rules {
        version: rules.version(),
        mask: rules.allowed().map(TokenMask::words),
        addends: rules.addends(),
    })
}

fn fits(rules: &Rules) -> bool {
    rules.addends().len() <= graph::Rules::MOST_ADDENDS
}

fn sieve<'a>(ask: Ask, rules: Option<&'a graph::Rules<'a>>) -> Sieve<'a> {
    Sieve {
        margin: ask.margin,
        top_k: u32::try_from(ask.top_k).unwrap_or(u32::MAX),
        inverse_temperature: ask.inverse_temperature,
        rules,
    }
}

fn held(found: Found, wanted: Wanted<'_>) -> Held {
    let token = |(id, logit)| (TokenId(id), logit);
    let short = Shortlist {
        best: found.best.map(token),
        tokens: found.rows.into_iter().map(token).collect(),
        floor: found.floor,
        weight: Some((found.sum, wanted.ask.inverse_temperature)),
    };
    // What was found under other rules decides nothing.
    let rules = if fits(wanted.rules) { wanted.rules.version() } else { Rules::NONE };
    Held::Device { short, rules }
}
