//! Time of each dispatch, measured by the device.
//!
//! A profiled graph has a full barrier around every dispatch, so that a timestamp means what it says;
//! dispatches that could overlap do not. It is for attribution: totals come from unprofiled runs.

use super::device::Device;
use super::error::{Error, api};
use super::record::Cost;
use ash::vk;
use std::sync::Arc;

/// What one dispatch of a profiled graph took.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// The label of the dispatch.
    pub label: String,
    /// The program that ran.
    pub program: &'static str,
    /// What it moves and computes.
    pub cost: Cost,
    /// Nanoseconds.
    pub ns: f64,
}

/// Timestamps of one graph: one before the first dispatch and one after each.
pub(super) struct Stamps {
    device: Arc<Device>,
    pool: vk::QueryPool,
    count: u32,
    tick_ns: f32,
}

impl Stamps {
    /// Room for `dispatches`. `None` where the device has no timestamps.
    pub(super) fn new(device: &Arc<Device>, dispatches: usize) -> Result<Option<Self>, Error> {
        let Some(tick_ns) = device.caps().timestamp_ns else { return Ok(None) };
        let count = u32::try_from(dispatches + 1).expect("far fewer dispatches than 2^32");
        let info = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(count);
        // SAFETY: The device is alive.
        let pool = unsafe { device.raw().create_query_pool(&info, None) }
            .map_err(api("vkCreateQueryPool"))?;
        Ok(Some(Self { device: Arc::clone(device), pool, count, tick_ns }))
    }

    /// Records the reset of all stamps and the first one.
    pub(super) fn begin(&self, vk: &ash::Device, commands: vk::CommandBuffer) {
        // SAFETY: The commands are being recorded, and the pool lives as long as they do.
        unsafe { vk.cmd_reset_query_pool(commands, self.pool, 0, self.count) };
        self.stamp(vk, commands, 0);
    }

    /// Records a stamp behind everything before.
    pub(super) fn stamp(&self, vk: &ash::Device, commands: vk::CommandBuffer, index: usize) {
        let index = u32::try_from(index).expect("far fewer dispatches than 2^32");
        let stage = vk::PipelineStageFlags2::ALL_COMMANDS;
        // SAFETY: As in `begin`; the index is inside the pool.
        unsafe { vk.cmd_write_timestamp2(commands, stage, self.pool, index) };
    }

    /// Nanoseconds of each dispatch of the last run, which must be over.
    pub(super) fn read(&self) -> Result<Vec<f64>, Error> {
        let mut ticks = vec![0_u64; self.count as usize];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: The pool is of this device, and the buffer has a word for each query.
        unsafe { self.device.raw().get_query_pool_results(self.pool, 0, &mut ticks, flags) }
            .map_err(api("vkGetQueryPoolResults"))?;
        let spans = ticks.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        Ok(spans.map(|n| n as f64 * f64::from(self.tick_ns)).collect())
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        // SAFETY: The recorded graph that owns this is destroyed only when it does not run.
        unsafe { self.device.raw().destroy_query_pool(self.pool, None) };
    }
}
