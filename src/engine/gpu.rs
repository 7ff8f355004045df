//! The Vulkan backend, as the engine sees it. `no_gpu` stands in for it in a build without Vulkan.

use super::backend::{Chunk, Held, Outcome, Row, Wanted};
use super::open::{Origin, Settings};
use super::sample::{Ask, Shortlist};
use super::steps::Rules;
use super::{Error, KernelTime, Options, Phase, Profile, steering};
use crate::graph::{self, Found, Gpu, Request, Sieve, Sliced, Spent};
use crate::model::{Shape, SlotId};
use crate::tokenizer::{TokenId, TokenMask};
use std::time::Duration;

pub use crate::graph::Error as DeviceError;
pub(super) use crate::graph::Kv;

/// The longest slice, whatever the caller allows: a Ctrl+C is answered between slices, within a tenth of a second.
const LONGEST: Duration = Duration::from_millis(80);

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
                slots: options.slots(origin.shape()),
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

    /// A single token is no chunk: [`Backend::advance`] runs it as a decode step.
    pub(super) fn begin(&mut self, kv: &Kv, chunk: &Chunk<'_>) -> Result<(), Error> {
        if chunk.tokens.len() > 1 {
            let rules = device_rules(chunk.wanted.rules);
            self.0.begin(kv, &step(chunk, sieve(chunk.wanted.ask, rules.as_ref())))?;
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
            self.0.chunk(kv, &step(chunk, sieve(wanted.ask, rules.as_ref())))?
        } else {
            match self.0.advance(limit.min(LONGEST))? {
                Sliced::Open => return Ok(Outcome::Open),
                Sliced::Done(found) => found,
            }
        };
        Ok(Outcome::Done(found.map_or(Held::Nothing, |found| held(found, wanted))))
    }

    pub(super) fn abandon(&mut self) {
        self.0.abandon();
    }

    pub(super) fn batch(&self) -> usize {
        self.0.batch()
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
        let found = self.0.rows(&steps)?;
        Ok(found.into_iter().zip(wanted).map(|(found, wanted)| held(found, wanted)).collect())
    }

    pub(super) fn logits(&mut self, kv: &Kv) -> Result<Vec<f32>, Error> {
        Ok(self.0.logits(kv)?)
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
