//! What computes, chosen once: the CPU or a Vulkan device. One enum, so that the sessions above know
//! only steps, slots and rows of logits.

use super::gpu;
use super::sample::{Ask, Shortlist};
use super::steps::Rules;
use crate::cpu;
use crate::model::SlotId;
use std::time::Duration;

/// A backend that is set up.
pub(super) enum Backend {
    Cpu(Box<cpu::Backend>),
    Gpu(Box<gpu::Backend>),
}

/// K and V rows of one session.
#[derive(Debug)]
pub(super) enum Kv {
    Cpu(cpu::Kv),
    Gpu(gpu::Kv),
}

/// Consecutive tokens of one session.
pub(super) struct Chunk<'a> {
    pub(super) tokens: &'a [u32],
    /// Position of the first.
    pub(super) pos: usize,
    pub(super) source: SlotId,
    /// Equal to the source only for a single token.
    pub(super) target: SlotId,
    /// Whether logits after the last token are wanted.
    pub(super) logits: bool,
    /// Which of them will be looked at.
    pub(super) wanted: Wanted<'a>,
    pub(super) cancelled: &'a (dyn Fn() -> bool + Sync),
}

/// One token of one session, among those of others.
pub(super) struct Row<'a> {
    pub(super) kv: &'a mut Kv,
    pub(super) token: u32,
    pub(super) pos: usize,
    pub(super) source: SlotId,
    pub(super) target: SlotId,
    /// Which logits will be looked at.
    pub(super) wanted: Wanted<'a>,
}

/// What a step brings back of its logits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) ask: Ask,
    pub(super) rules: &'a Rules,
}

/// Logits of a session's next token.
#[derive(Debug, Clone, Default)]
pub(super) enum Held {
    /// None.
    #[default]
    Nothing,
    /// Here.
    Host(Vec<f32>),
    /// On the device, until the session's next step.
    Device {
        /// What was brought back with it.
        short: Shortlist,
        /// Version of the rules that it was found under.
        rules: u64,
    },
}

/// How a slice of a chunk ended.
pub(super) enum Outcome {
    /// Layers are left.
    Open,
    Done(Held),
    Cancelled,
}

/// Tokens that the CPU evaluates together at least: fewer would read every expert's weights for hardly anybody.
const CPU_QUANTUM: usize = 128;

impl Backend {
    pub(super) fn new_kv(&mut self) -> Result<Kv, super::Error> {
        match self {
            Self::Cpu(cpu) => Ok(Kv::Cpu(cpu.new_kv())),
            Self::Gpu(gpu) => Ok(Kv::Gpu(gpu.new_kv()?)),
        }
    }

    /// After a lost device: opens it again, with the weights and nothing else.
    pub(super) fn rebuild(&mut self) -> Result<(), super::Error> {
        match self {
            Self::Cpu(_) => Ok(()),
            Self::Gpu(gpu) => gpu.rebuild(),
        }
    }

    /// Counts the device as lost.
    pub(super) fn forsake(&mut self) {
        if let Self::Gpu(gpu) = self {
            gpu.forsake();
        }
    }

    /// Makes a slot that of an empty sequence.
    pub(super) fn reset_slot(&mut self, slot: SlotId) -> Result<(), super::Error> {
        match self {
            Self::Cpu(cpu) => Ok(cpu.reset_slot(slot)?),
            Self::Gpu(gpu) => Ok(gpu.reset_slot(slot)?),
        }
    }

    /// How many of `tokens` make a chunk. A device does all, in slices. The CPU cannot stop within a step, so it does
    /// as many as are expected to take no longer than `limit`: its bits do not depend on that.
    pub(super) fn share(&self, tokens: usize, limit: Duration, token_seconds: f64) -> usize {
        match self {
            Self::Cpu(_) if limit == Duration::MAX => tokens,
            Self::Cpu(_) => {
                let fit = limit.as_secs_f64() / token_seconds.max(1e-9);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "not negative; `as` saturates"
                )]
                let fit = if token_seconds > 0.0 { fit as usize } else { 0 };
                tokens.min(fit.max(CPU_QUANTUM))
            }
            Self::Gpu(_) => tokens,
        }
    }

    /// Opens a chunk, which [`Backend::advance`] is then called for until it is done.
    pub(super) fn begin(&mut self, kv: &Kv, chunk: &Chunk<'_>) -> Result<(), super::Error> {
        match (self, kv) {
            (Self::Cpu(_), Kv::Cpu(_)) => Ok(()),
            (Self::Gpu(gpu), Kv::Gpu(kv)) => gpu.begin(kv, chunk),
            _ => unreachable!("rows and steps are of one backend"),
        }
    }

    /// Evaluates a slice of the open chunk. Cancelled only where source and target differ.
    pub(super) fn advance(
        &mut self,
        kv: &mut Kv,
        chunk: &Chunk<'_>,
        limit: Duration,
    ) -> Result<Outcome, super::Error> {
        match (self, kv) {
            (Self::Cpu(cpu), Kv::Cpu(kv)) => forward(cpu, kv, chunk),
            (Self::Gpu(gpu), Kv::Gpu(kv)) => gpu.advance(kv, chunk, limit),
            _ => unreachable!("rows and steps are of one backend"),
        }
    }

    /// Drops the open chunk, if there is one.
    pub(super) fn abandon(&mut self) {
        match self {
            Self::Cpu(_) => {}
            Self::Gpu(gpu) => gpu.abandon(),
        }
    }

    /// How many rows of different sessions run in one step; 1 where each is a step of its own.
    pub(super) fn batch(&self) -> usize {
        match self {
            Self::Cpu(_) => 1,
            Self::Gpu(gpu) => gpu.batch(),
        }
    }

    /// Evaluates one token each of at most [`Backend::batch`] sessions.
    pub(super) fn rows(&mut self, rows: &mut [Row<'_>]) -> Result<Vec<Held>, super::Error> {
        match self {
            Self::Cpu(cpu) => rows.iter_mut().map(|row| single(cpu, row)).collect(),
            Self::Gpu(gpu) => gpu.rows(rows),
        }
    }

    /// What the device spent its time on, where one computes and was opened to tell.
    pub(super) fn profile(&mut self) -> Option<super::Profile> {
        match self {
            Self::Cpu(_) => None,
            Self::Gpu(gpu) => gpu.profile(),
        }
    }

    /// The row of logits that `held` stands for.
    pub(super) fn fetch(&mut self, kv: &Kv, held: &mut Held) -> Result<(), super::Error> {
        if let (Self::Gpu(gpu), Kv::Gpu(kv), Held::Device { .. }) = (self, kv, &*held) {
            *held = Held::Host(gpu.logits(kv)?);
        }
        Ok(())
    }
}

/// A whole step on the CPU.
fn forward(
    cpu: &mut cpu::Backend,
    kv: &mut cpu::Kv,
    chunk: &Chunk<'_>,
) -> Result<Outcome, super::Error> {
    let step = cpu::Step {
        tokens: chunk.tokens,
        pos: chunk.pos,
        source: chunk.source,
        target: chunk.target,
        logits: if chunk.logits { cpu::Logits::Last } else { cpu::Logits::None },
        cancel: chunk.cancelled,
        tap: None,
    };
    match cpu.forward(kv, &step) {
        Ok(()) if chunk.logits => Ok(Outcome::Done(Held::Host(cpu.logits().to_vec()))),
        Ok(()) => Ok(Outcome::Done(Held::Nothing)),
        Err(cpu::Error::Cancelled { .. }) => Ok(Outcome::Cancelled),
        Err(error) => Err(error.into()),
    }
}

fn single(cpu: &mut cpu::Backend, row: &mut Row<'_>) -> Result<Held, super::Error> {
    let Kv::Cpu(kv) = &mut *row.kv else { unreachable!("rows and steps are of one backend") };
    let chunk = Chunk {
        tokens: &[row.token],
        pos: row.pos,
        source: row.source,
        target: row.target,
        logits: true,
        wanted: row.wanted,
        cancelled: &|| false,
    };
    match forward(cpu, kv, &chunk)? {
        Outcome::Done(held) => Ok(held),
        Outcome::Open | Outcome::Cancelled => unreachable!("nobody stops a single token"),
    }
}

impl Held {
    /// The row, when it is here.
    pub(super) fn row(&self) -> Option<&[f32]> {
        match self {
            Self::Host(row) => Some(row),
            Self::Nothing | Self::Device { .. } => None,
        }
    }

    pub(super) fn is_some(&self) -> bool {
        !matches!(self, Self::Nothing)
    }
}
