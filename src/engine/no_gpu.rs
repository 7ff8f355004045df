//! In place of `gpu` in a build without Vulkan: the same names, and no way to make a backend.

use super::backend::{Chunk, Held, Outcome, Row};
use super::sample::{SamplerParams, Shortlist};
use super::{Error, LoadReport, Options};
use crate::model::memory::Request as Needs;
use crate::model::{Shape, SlotId, StatePart};
use crate::util::units::Bytes;
use std::convert::Infallible;

/// Never happens.
#[derive(Debug, thiserror::Error)]
#[error("no Vulkan")]
pub struct DeviceError(Infallible);

impl DeviceError {
    /// Never asked.
    pub fn is_lost(&self) -> bool {
        match self.0 {}
    }
}

/// Never made.
pub(super) struct Backend(Infallible);

/// Never made.
#[derive(Debug)]
pub(super) enum Kv {}

/// Never made.
#[derive(Clone, Copy)]
pub(super) enum Reading {}

/// Never made.
pub(super) enum RawPart {}

impl RawPart {
    pub(super) fn write_to(&self, _out: &mut Vec<u8>) {
        match *self {}
    }
}

/// What a step brings back of its logits: nothing here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted(());

impl Wanted {
    pub(super) fn for_draws(_params: SamplerParams) -> Self {
        Self(())
    }
}

/// Never made.
pub(super) struct Device(Infallible);

impl Device {
    /// There is none.
    pub(super) fn choose(_options: &Options, _needed_bytes: u64) -> Result<Self, Error> {
        Err(Error::BackendUnavailable {
            what: "this build has no Vulkan engine".to_owned(),
            hint: "build with the feature `vulkan`, or use --cpu",
        })
    }

    pub(super) fn describe(&self) -> String {
        match self.0 {}
    }

    pub(super) fn default_chunk(&self) -> usize {
        match self.0 {}
    }

    pub(super) fn scratch_bytes(&self, _shape: &Shape, _options: &Options, _chunk: usize) -> u64 {
        match self.0 {}
    }

    pub(super) fn usable(&self) -> Bytes {
        match self.0 {}
    }

    pub(super) fn check_room(
        &self,
        _shape: &Shape,
        _weights: u64,
        _request: &Needs,
    ) -> Result<(), Error> {
        match self.0 {}
    }

    pub(super) fn open(
        self,
        _origin: &std::sync::Arc<super::open::Origin>,
        settings: &super::open::Settings<'_>,
        _progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Backend, Error> {
        let super::open::Settings { info: _info, options: _options, drawable: _drawable } =
            settings;
        match self.0 {}
    }
}

impl Backend {
    pub(super) fn forsake(&mut self) {
        match self.0 {}
    }

    pub(super) fn rebuild(&mut self) -> Result<(), Error> {
        match self.0 {}
    }

    pub(super) fn load_report(&self) -> Option<LoadReport> {
        match self.0 {}
    }

    pub(super) fn copy_rate(&mut self) -> Result<Option<f64>, Error> {
        match self.0 {}
    }

    pub(super) fn pretend_lost_after(&mut self, _submissions: &[u64]) {
        match self.0 {}
    }

    pub(super) fn new_kv(&mut self) -> Result<Kv, Error> {
        match self.0 {}
    }

    pub(super) fn reset_slot(&mut self, _slot: SlotId) -> Result<(), Error> {
        match self.0 {}
    }

    pub(super) fn chunk(&mut self, _kv: &mut Kv, _chunk: &Chunk<'_>) -> Result<Outcome, Error> {
        match self.0 {}
    }

    pub(super) fn batch(&self) -> usize {
        match self.0 {}
    }

    /// Never runs; it uses what the other backend uses of a row and of its result.
    pub(super) fn rows(&mut self, rows: &mut [Row<'_>]) -> Result<Vec<Held>, Error> {
        let Wanted(()) = rows.iter().map(|row| row.wanted).next().unwrap_or_default();
        let _held = Held::Device(Shortlist::default());
        match self.0 {}
    }

    pub(super) fn profile(&mut self) -> Option<super::Profile> {
        match self.0 {}
    }

    pub(super) fn read_state(
        &mut self,
        _place: (&Kv, SlotId, usize),
        _part: &StatePart,
    ) -> Result<Option<Reading>, Error> {
        match self.0 {}
    }

    pub(super) fn finish_part(&mut self, _reading: Reading) -> Result<RawPart, Error> {
        match self.0 {}
    }

    pub(super) fn write_state(
        &mut self,
        _place: (&Kv, SlotId, usize),
        _part: &StatePart,
        _bytes: &[u8],
    ) -> Result<(), Error> {
        match self.0 {}
    }

    pub(super) fn finish_state(&mut self) -> Result<(), Error> {
        match self.0 {}
    }

    pub(super) fn logits(&mut self, _kv: &Kv) -> Result<Vec<f32>, Error> {
        match self.0 {}
    }
}
