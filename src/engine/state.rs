//! Sessions as states that can leave the process: what a file needs to know of them, reading and writing them part by
//! part. What a file looks like is decided elsewhere.
//!
//! Reading never disturbs a session. From a snapshot it may go on between steps for as long as the snapshot exists:
//! its slot is pinned, and K/V rows below a position are never written again. Whoever cuts the session shorter drops
//! the snapshot, and the next read says so. Writing fills a free slot and is adopted at its end, so a state that
//! turns out to be damaged leaves an empty session, never half of one.

use std::sync::{Arc, OnceLock};

use sha1::Digest as _;

use super::backend::Held;
use super::open::Origin;
use super::{Engine, Error, ModelEngine, Options, SessionId, SnapshotId, gpu, steering};
use crate::model::{self, Model, SlotId, StateLayout, StatePart};
use crate::tokenizer::TokenId;

/// Largest part of a state that should be asked for at once.
pub const PART_BYTES: usize = 1 << 20;

/// A position of a session that can be read: where it stands, or one that it remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The session.
    pub session: SessionId,
    /// The remembered position. Without one, the session must not move until everything was read.
    pub snapshot: Option<SnapshotId>,
}

/// A part on its way. Dropping it is allowed at any time.
pub struct PartReading(Reading);

/// A part that has arrived, as the backend has it. For any thread.
pub struct RawPart(Raw);

enum Reading {
    Here(Vec<u8>),
    Device(gpu::Reading),
}

enum Raw {
    Here(Vec<u8>),
    Device(gpu::RawPart),
}

impl RawPart {
    /// Appends the bytes as files hold them.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Raw::Here(bytes) => out.extend_from_slice(bytes),
            Raw::Device(part) => part.write_to(out),
        }
    }
}

/// Where a state that is loaded comes from. Asked in this order: logits, the parts of every layer, the end. Saying
/// no at any time ends the load.
pub trait StateSource {
    /// Logits of the next token, one for each vocabulary row.
    fn logits(&mut self, out: &mut [f32]) -> bool;
    /// A part of a layer.
    fn part(&mut self, layer: usize, part: &StatePart, out: &mut [u8]) -> bool;
    /// Whether everything was as it should be.
    fn end(&mut self) -> bool;
}

/// An engine whose sessions can be saved and loaded.
pub trait StateIo: Engine {
    /// What the size and meaning of a saved state depend on.
    fn state_layout(&self) -> &StateLayout;

    /// Which model computes, steering included: SHA-1 over its tensors, samples of its weights and its tokenizer.
    /// Computed when first asked for.
    fn fingerprint(&self) -> [u8; 20];

    /// Tokens up to a position, and the logits after the last.
    ///
    /// # Errors
    /// When the position is gone or has no logits.
    fn state_head(&mut self, at: Position) -> Result<(Vec<TokenId>, Vec<f32>), Error>;

    /// Starts to read a part of the state at a position. `None` when as many as may be are under way: finish or drop
    /// one first.
    ///
    /// # Errors
    /// When the position is gone, or the device is lost.
    fn start_part(&mut self, at: Position, part: &StatePart) -> Result<Option<PartReading>, Error>;

    /// Waits for a part.
    ///
    /// # Errors
    /// When the device is lost.
    fn finish_part(&mut self, reading: PartReading) -> Result<RawPart, Error>;

    /// Makes the session one that holds `tokens` with the state that `source` has. False when the source said no: the
    /// session is empty then.
    ///
    /// # Errors
    /// When the tokens do not fit (the session is unchanged), or the device is lost.
    fn import_state(
        &mut self,
        id: SessionId,
        tokens: &[TokenId],
        source: &mut dyn StateSource,
    ) -> Result<bool, Error>;
}

/// Which model an engine has.
pub(super) struct Identity {
    layout: StateLayout,
    origin: Named,
    /// What steering adds.
    steering: Vec<Vec<u8>>,
    fingerprint: OnceLock<[u8; 20]>,
}

enum Named {
    File(Arc<Model>),
    /// Random weights are the same for the same shape.
    Random(String),
}

impl Identity {
    pub(super) fn new(
        origin: &Origin,
        options: &Options,
        info: &super::Info,
    ) -> Result<Self, Error> {
        let named = match origin {
            Origin::File(model) => Named::File(Arc::clone(model)),
            Origin::Random { shape, .. } => Named::Random(format!("{shape:?}")),
        };
        Ok(Self {
            layout: StateLayout::new(origin.shape(), info.kv_k, info.kv_v),
            origin: named,
            steering: steering::identity(options.steering.as_ref())?,
            fingerprint: OnceLock::new(),
        })
    }

    fn fingerprint(&self) -> [u8; 20] {
        *self.fingerprint.get_or_init(|| {
            let model = match &self.origin {
                Named::File(model) => model.fingerprint(),
                Named::Random(shape) => {
                    let mut hash = sha1::Sha1::new();
                    hash.update(b"Q36 random 1\n");
                    hash.update(shape);
                    hash.finalize().into()
                }
            };
            if self.steering.is_empty() {
                return model;
            }
            let parts: Vec<&[u8]> = self.steering.iter().map(Vec::as_slice).collect();
            model::extend_fingerprint(model, &parts)
        })
    }
}

impl ModelEngine {
    /// Slot and length of a position.
    fn place(&self, at: Position) -> Result<(SlotId, usize), Error> {
        let session = self.session(at.session)?;
        match at.snapshot {
            None => Ok((session.slot, session.tokens().len())),
            Some(snapshot) => {
                let (pos, slot, _) = session.remembered(snapshot)?;
                Ok((slot, pos))
            }
        }
    }

    /// Fills `slot` and the session's rows.
    fn fill(
        &mut self,
        id: SessionId,
        (slot, pos): (SlotId, usize),
        source: &mut dyn StateSource,
    ) -> Result<Option<Vec<f32>>, Error> {
        let layout = self.identity.layout.clone();
        let mut logits = vec![0.0; layout.vocab];
        if !source.logits(&mut logits) {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        for layer in 0..layout.layers {
            for part in layout.parts(layer, pos, PART_BYTES) {
                bytes.resize(layout.part_bytes(&part), 0);
                if !source.part(layer, &part, &mut bytes) {
                    return Ok(None);
                }
                let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
                self.backend.write_state(&mut session.kv, (slot, pos), &part, &bytes)?;
            }
        }
        self.backend.finish_state()?;
        Ok(source.end().then_some(logits))
    }
}

impl StateIo for ModelEngine {
    fn state_layout(&self) -> &StateLayout {
        &self.identity.layout
    }

    fn fingerprint(&self) -> [u8; 20] {
        self.identity.fingerprint()
    }

    fn state_head(&mut self, at: Position) -> Result<(Vec<TokenId>, Vec<f32>), Error> {
        if let Some(snapshot) = at.snapshot {
            let session = self.session(at.session)?;
            let (pos, _, logits) = session.remembered(snapshot)?;
            return Ok((session.tokens()[..pos].to_vec(), logits.to_vec()));
        }
        let logits = self.logits(at.session)?.map(<[f32]>::to_vec);
        let logits = logits.ok_or(Error::NoState(at.session.0))?;
        Ok((self.session(at.session)?.tokens().to_vec(), logits))
    }

    fn start_part(&mut self, at: Position, part: &StatePart) -> Result<Option<PartReading>, Error> {
        let place = self.place(at)?;
        let session = self.sessions.get(&at.session).ok_or(Error::NoSession(at.session.0))?;
        let reading = self.backend.read_state(&session.kv, place, part)?;
        Ok(reading.map(PartReading))
    }

    fn finish_part(&mut self, reading: PartReading) -> Result<RawPart, Error> {
        self.backend.finish_part(reading.0).map(RawPart)
    }

    fn import_state(
        &mut self,
        id: SessionId,
        tokens: &[TokenId],
        source: &mut dyn StateSource,
    ) -> Result<bool, Error> {
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        self.check(0, tokens)?;
        self.reset(id)?;
        // Held by nobody else, as the target of an open step would be: no step is open now.
        let slot = self.book.acquire().ok_or(Error::NoSlot { slots: self.slots })?;
        match self.fill(id, (slot, tokens.len()), source) {
            Ok(Some(logits)) => {
                let session = self.sessions.get_mut(&id).ok_or(Error::NoSession(id.0))?;
                session.commit(&mut self.book, slot, tokens, Held::Host(logits));
                Ok(true)
            }
            refused_or_failed => {
                self.book.release(slot);
                refused_or_failed.map(|_| false)
            }
        }
    }
}

impl super::backend::Backend {
    /// Starts to read a part of the state in `slot` after `pos` tokens.
    fn read_state(
        &mut self,
        kv: &super::backend::Kv,
        (slot, pos): (SlotId, usize),
        part: &StatePart,
    ) -> Result<Option<Reading>, Error> {
        use super::backend::Kv;
        match (self, kv) {
            (Self::Cpu(cpu), Kv::Cpu(kv)) => {
                let mut bytes = Vec::new();
                cpu.read_state((kv, slot, pos), part, &mut bytes)?;
                Ok(Some(Reading::Here(bytes)))
            }
            (Self::Gpu(gpu), Kv::Gpu(kv)) => {
                Ok(gpu.read_state((kv, slot, pos), part)?.map(Reading::Device))
            }
            _ => unreachable!("rows and steps are of one backend"),
        }
    }

    fn finish_part(&mut self, reading: Reading) -> Result<Raw, Error> {
        match (self, reading) {
            (_, Reading::Here(bytes)) => Ok(Raw::Here(bytes)),
            (Self::Gpu(gpu), Reading::Device(reading)) => {
                Ok(Raw::Device(gpu.finish_part(reading)?))
            }
            (Self::Cpu(_), Reading::Device(_)) => unreachable!("started by a device"),
        }
    }

    fn write_state(
        &mut self,
        kv: &mut super::backend::Kv,
        (slot, pos): (SlotId, usize),
        part: &StatePart,
        bytes: &[u8],
    ) -> Result<(), Error> {
        use super::backend::Kv;
        match (self, kv) {
            (Self::Cpu(cpu), Kv::Cpu(kv)) => Ok(cpu.write_state((kv, slot, pos), part, bytes)?),
            (Self::Gpu(gpu), Kv::Gpu(kv)) => gpu.write_state((kv, slot, pos), part, bytes),
            _ => unreachable!("rows and steps are of one backend"),
        }
    }

    /// Waits until everything written has arrived.
    fn finish_state(&mut self) -> Result<(), Error> {
        match self {
            Self::Cpu(_) => Ok(()),
            Self::Gpu(gpu) => gpu.finish_state(),
        }
    }
}
