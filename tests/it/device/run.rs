//! Sequences on the device backend.

use crate::support;
use q36::graph::{self, Backend, Chunk, Found, Gpu, Kv, Options, Row, Sieve, Sliced, Source};
use q36::model::memory::{Plan, Request};
use q36::model::{Model, SlotId};
use q36::quant::TensorType;
use q36::vulkan::{Error, Validation};
use std::sync::Arc;
use std::time::Duration;

/// How the backend is set up.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) quality: bool,
    pub(super) kv_k: TensorType,
    pub(super) kv_v: TensorType,
    pub(super) chunk: usize,
    pub(super) sessions: usize,
}

pub(super) fn setup(quality: bool, kv_k: TensorType, kv_v: TensorType) -> Setup {
    Setup { quality, kv_k, kv_v, chunk: 128, sessions: 1 }
}

/// A backend with one sequence under way. Its steps go from one of two slots to the other, as prefill does.
pub(super) struct Run {
    backend: Backend,
    kv: Kv,
    pos: usize,
    slot: SlotId,
    sessions: usize,
    /// How long a slice of a chunk may take.
    slice: Duration,
}

impl Run {
    /// `None`, said aloud, where there is no device.
    pub(super) fn new(model: &Arc<Model>, setup: &Setup) -> Option<Self> {
        let open =
            |validation| Gpu::open_with(graph::Request::Any, graph::Setup::default(), validation);
        let gpu = match open(Validation::Synchronization) {
            Err(graph::Error::Vulkan(Error::NoLayer(_))) => open(Validation::Off),
            other => other,
        };
        let gpu = match gpu {
            Ok(gpu) => gpu,
            Err(why) => {
                support::skip(&format!("needs a Vulkan device: {why}"));
                return None;
            }
        };
        let options = Options {
            kv_k: setup.kv_k,
            kv_v: setup.kv_v,
            ctx: 6000,
            sessions: setup.sessions,
            slots: setup.sessions + 2,
            quality: setup.quality,
            chunk: setup.chunk,
            steering: None,
            drawable: vec![u64::MAX; model.shape.vocab.div_ceil(64)],
            profile: false,
            load: graph::Way::Auto,
            notice: q36::util::notice::Notice::default(),
        };
        let mut backend =
            Backend::new(gpu, Source::File(model), options, &mut |_, _| true).expect("a backend");
        let kv = backend.new_kv().expect("room for a session");
        let sessions = setup.sessions;
        Some(Self { backend, kv, pos: 0, slot: SlotId(0), sessions, slice: Duration::MAX })
    }

    /// Whether the device is more than a CPU driver.
    pub(super) fn is_fast(&self) -> bool {
        !self.backend.gpu().is_cpu()
    }

    /// Bytes of device memory that are allocated, and that were planned.
    pub(super) fn memory(&self, model: &Model, setup: &Setup) -> (u64, u64) {
        let caps = self.backend.gpu().caps();
        let scratch_bytes =
            graph::scratch_bytes(&model.shape, caps, setup.chunk, setup.sessions, setup.quality);
        let request = Request {
            kv_k: setup.kv_k,
            kv_v: setup.kv_v,
            ctx: 6000,
            sessions: setup.sessions,
            slots: setup.sessions + 2,
            scratch_bytes,
        };
        let plan = Plan::new(&model.shape, model.file.tensor_bytes(), &request);
        (self.backend.allocated(), plan.on_device())
    }

    /// Changes how long a slice of a chunk may take.
    pub(super) fn set_slice(&mut self, slice: Duration) {
        self.slice = slice;
    }

    pub(super) fn messages(&self) -> Vec<String> {
        self.backend.gpu().messages()
    }

    /// Starts over.
    pub(super) fn restart(&mut self) {
        self.backend.reset_slot(self.slot).expect("the slot exists");
        self.pos = 0;
    }

    /// Tokens in chunks; the logits of the last one.
    pub(super) fn feed(&mut self, tokens: &[u32], chunk: usize) -> Vec<f32> {
        for part in tokens.chunks(chunk) {
            let target = SlotId(1 - self.slot.0);
            let step = Chunk {
                tokens: part,
                pos: self.pos,
                source: self.slot,
                target,
                logits: true,
                sieve: Sieve::default(),
            };
            if part.len() == 1 {
                self.backend.chunk(&self.kv, &step).expect("a valid step");
            } else {
                self.backend.begin(&self.kv, &step).expect("a valid step");
                while self.backend.advance(self.slice).expect("the device is there") == Sliced::Open
                {
                }
            }
            self.pos += part.len();
            self.slot = target;
        }
        self.logits()
    }

    /// One token, and what is found among its logits.
    pub(super) fn found(&mut self, token: u32, sieve: Sieve<'_>) -> Found {
        let row = Row { sieve, ..row(&self.kv, token, self.pos, self.slot) };
        self.pos += 1;
        self.backend.rows(&[row]).expect("a valid step").pop().expect("one row")
    }

    /// The logits of the last step.
    pub(super) fn logits(&mut self) -> Vec<f32> {
        self.backend.logits(&self.kv).expect("the device is there")
    }

    /// Logits after `start` and each of `next`, by steps of one row.
    pub(super) fn alone(&mut self, start: &[u32], next: &[u32]) -> Vec<Vec<u32>> {
        let slot = SlotId(0);
        self.backend.reset_slot(slot).expect("the slot exists");
        let mut found = Vec::new();
        for (pos, &token) in start.iter().chain(next).enumerate() {
            let row = row(&self.kv, token, pos, slot);
            self.backend.rows(&[row]).expect("a valid step");
            if pos + 1 >= start.len() {
                found.push(bits(&self.backend.logits(&self.kv).expect("the device is there")));
            }
        }
        found
    }

    /// The same for several sequences, whose last steps run together.
    pub(super) fn together(&mut self, starts: &[&[u32]], next: &[u32]) -> Vec<Vec<Vec<u32>>> {
        assert!(starts.len() <= self.sessions);
        let others = (1..starts.len()).map(|_| self.backend.new_kv().expect("room for a session"));
        let others: Vec<Kv> = others.collect();
        let kvs: Vec<&Kv> = std::iter::once(&self.kv).chain(&others).collect();
        let slot = |i: usize| SlotId(u32::try_from(i).expect("few rows"));
        let mut found = vec![Vec::new(); starts.len()];
        for (i, start) in starts.iter().enumerate() {
            self.backend.reset_slot(slot(i)).expect("the slot exists");
            for (pos, &token) in start[..start.len() - 1].iter().enumerate() {
                let row = row(kvs[i], token, pos, slot(i));
                self.backend.rows(&[row]).expect("a valid step");
            }
        }
        for step in 0..=next.len() {
            let rows: Vec<Row<'_>> = starts
                .iter()
                .enumerate()
                .map(|(i, start)| {
                    let last = start[start.len() - 1];
                    let token = if step == 0 { last } else { next[step - 1] };
                    row(kvs[i], token, start.len() - 1 + step, slot(i))
                })
                .collect();
            self.backend.rows(&rows).expect("a valid step");
            for (found, kv) in found.iter_mut().zip(&kvs) {
                found.push(bits(&self.backend.logits(kv).expect("the device is there")));
            }
        }
        found
    }
}

fn row(kv: &Kv, token: u32, pos: usize, slot: SlotId) -> Row<'_> {
    Row { kv, token, pos, source: slot, target: slot, sieve: Sieve::default() }
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|v| v.to_bits()).collect()
}
