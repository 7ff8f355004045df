//! In place of `gpu` in a build without Vulkan: the same names, and no way to make a backend.

use super::backend::{Chunk, Held, Outcome, Row, Wanted};
use super::sample::Shortlist;
use super::steps::Rules;
use super::{Error, LoadReport, Options};
use crate::model::memory::Request as Needs;
use crate::model::{Shape, SlotId, StatePart};
use crate::util::units::Bytes;
use std::convert::Infallible;
use std::time::Duration;

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

    pub(super) fn begin(&mut self, _kv: &Kv, _chunk: &Chunk<'_>) -> Result<(), Error> {
        match self.0 {}
    }

    /// Never runs; it uses what the other backend uses of a chunk and of its result.
    pub(super) fn advance(
        &mut self,
        _kv: &Kv,
        chunk: &Chunk<'_>,
        _limit: Duration,
    ) -> Result<Outcome, Error> {
        let _outcome = held(chunk.wanted).is_some().then_some(Outcome::Open);
        match self.0 {}
    }

    pub(super) fn abandon(&mut self) {
        match self.0 {}
    }

    pub(super) fn batch(&self) -> usize {
        match self.0 {}
    }

    /// Never runs; it uses what the other backend uses of a row and of its result.
    pub(super) fn rows(&mut self, rows: &mut [Row<'_>]) -> Result<Vec<Held>, Error> {
        let _held: Vec<Held> = rows.iter().map(|row| held(row.wanted)).collect();
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

fn held(Wanted { ask, rules }: Wanted<'_>) -> Held {
    let weight = Some((1.0, ask.inverse_temperature));
    let short = Shortlist { weight, ..Shortlist::default() };
    let rules = if rules.addends().is_empty() { rules.version() } else { Rules::NONE };
    Held::Device { short, rules }
}
