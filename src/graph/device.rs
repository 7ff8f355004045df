//! The device that the model runs on, before anything is on it.

use super::Error;
use crate::kernels::{self, layout};
use crate::util::fs::write_atomic;
use crate::vulkan::{
    self, Ability, Caps, Device, DeviceInfo, Drill, Instance, Kind, Queue, Rank, Request,
    Validation, choose,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The largest pipeline-cache file that is read or written.
const CACHE_LIMIT: usize = 64 << 20;

/// How to choose and open a device.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Memory that will be needed; devices that have it are preferred.
    pub needed_bytes: u64,
    /// Abilities to do without, by name.
    pub off: Vec<String>,
    /// Where compiled pipelines are kept between runs.
    pub cache_dir: Option<PathBuf>,
    /// Failures to pretend.
    pub drill: Arc<Drill>,
}

/// An open device with its queue.
pub struct Gpu {
    pub(super) device: Arc<Device>,
    pub(super) queue: Queue,
    cache: Option<PathBuf>,
}

impl Gpu {
    /// Opens the best device, or the one named.
    ///
    /// # Errors
    /// When there is none, or it lacks something required.
    pub fn open(request: Request<'_>, setup: Setup) -> Result<Self, Error> {
        Self::open_with(request, setup, Validation::Off)
    }

    /// As [`Gpu::open`], watched by the validation layers. For tests.
    #[doc(hidden)]
    pub fn open_with(
        request: Request<'_>,
        setup: Setup,
        validation: Validation,
    ) -> Result<Self, Error> {
        let mut devices = Instance::new(validation)?.devices()?;
        for device in &mut devices {
            device.info.missing.extend(setup.drill.lacks());
        }
        let infos: Vec<DeviceInfo> = devices.iter().map(|d| d.info.clone()).collect();
        let rank = Rank { needed_bytes: setup.needed_bytes, ..Rank::default() };
        let physical = &devices[choose(&infos, request, &rank)?];
        let identity = physical.info.cache_identity(kernels::BUNDLE_HASH);
        let cache = setup.cache_dir.map(|dir| dir.join(format!("{identity}.pipelines")));
        let options = vulkan::Options {
            off: setup.off.iter().filter_map(|name| Ability::from_name(name)).collect(),
            robust: validation != Validation::Off,
            pipeline_cache: cache.as_deref().map_or_else(Vec::new, read_cache),
            drill: setup.drill,
        };
        let (device, queue) = open_known(physical, options)?;
        Ok(Self { device, queue, cache })
    }

    /// What it can do.
    pub fn caps(&self) -> &Caps {
        self.device.caps()
    }

    /// Name and driver.
    pub fn describe(&self) -> String {
        let info = self.device.info();
        format!("{} ({})", info.name, info.driver)
    }

    /// Its identity: 32 hex digits.
    pub fn uuid(&self) -> &str {
        &self.device.info().uuid
    }

    /// Prompt tokens of a chunk when nobody says: many, because an expert's weights are decoded once for all
    /// its tokens of a chunk.
    pub fn default_chunk(&self) -> usize {
        if self.is_cpu() { 256 } else { 2048 }
    }

    /// What a submission is expected to take at most. A CPU driver also compiles when a pipeline first runs.
    pub(super) fn slice(&self) -> Duration {
        if self.is_cpu() { Duration::from_secs(10) } else { Duration::from_millis(250) }
    }

    /// What kind of device it is.
    pub(super) fn kind(&self) -> Kind {
        self.device.info().kind
    }

    /// Whether a CPU computes behind the driver.
    pub fn is_cpu(&self) -> bool {
        self.device.info().kind == Kind::Cpu
    }

    /// Whether its memory is the machine's.
    pub fn is_unified(&self) -> bool {
        matches!(self.device.info().kind, Kind::Integrated | Kind::Cpu)
    }

    /// Messages of the validation layers since the last call. For tests.
    #[doc(hidden)]
    pub fn messages(&self) -> Vec<String> {
        self.device.instance().messages()
    }

    /// Keeps the pipelines compiled so far for later runs. That it fails costs only time then.
    pub(super) fn save_pipelines(&self) {
        let Some(path) = &self.cache else { return };
        let Ok(blob) = self.device.pipeline_cache() else { return };
        let known = std::fs::metadata(path).is_ok_and(|m| m.len() == blob.len() as u64);
        if known || blob.len() > CACHE_LIMIT {
            return;
        }
        let made = path.parent().map(std::fs::create_dir_all);
        if matches!(made, Some(Ok(()))) {
            let _ = write_atomic(path, &blob);
        }
    }
}

/// Opens a device, without the matrices if it lays them out in a way that no kernel knows.
fn open_known(
    physical: &vulkan::PhysicalDevice,
    mut options: vulkan::Options,
) -> Result<(Arc<Device>, Queue), Error> {
    let (device, mut queue) = Device::open(physical, &options)?;
    if !device.caps().has(Ability::MatrixThin) || layout::is_known(&mut queue)? {
        return Ok((device, queue));
    }
    drop((device, queue));
    options.off.push(Ability::MatrixThin);
    Ok(Device::open(physical, &options)?)
}

fn read_cache(path: &std::path::Path) -> Vec<u8> {
    match std::fs::metadata(path) {
        Ok(m) if m.len() <= CACHE_LIMIT as u64 => std::fs::read(path).unwrap_or_default(),
        _ => Vec::new(),
    }
}
