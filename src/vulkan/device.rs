//! The logical device: the features it was created with, its pipeline cache, names for messages.

use super::caps::{Ability, Caps};
use super::drill::Drill;
use super::entry::Instance;
use super::error::{Error, api};
use super::info::DeviceInfo;
use super::pipeline::Compilations;
use super::query::PhysicalDevice;
use super::submit::Queue;
use ash::vk;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::time::Duration;

/// How to open a device.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Abilities to do without.
    pub off: Vec<Ability>,
    /// Out-of-bounds accesses of shaders read zero and write nothing; costs speed.
    pub robust: bool,
    /// What [`Device::pipeline_cache`] returned in an earlier run. Ignored when it is another device's.
    pub pipeline_cache: Vec<u8>,
    /// Failures to pretend.
    pub drill: Arc<Drill>,
}

/// An open device. Everything made from it keeps it alive.
pub struct Device {
    info: DeviceInfo,
    caps: Caps,
    cache: vk::PipelineCache,
    names: Option<ash::ext::debug_utils::Device>,
    inspector: Option<ash::khr::pipeline_executable_properties::Device>,
    memory: vk::PhysicalDeviceMemoryProperties,
    queue_family: u32,
    drill: Arc<Drill>,
    compilations: Compilations,
    raw: ash::Device,
    // Declared last: the instance must outlive the device.
    instance: Arc<Instance>,
}

impl Device {
    /// Opens a device and its queue.
    ///
    /// # Errors
    /// [`Error::Unsuitable`] when it lacks something required; the driver's own refusals.
    pub fn open(physical: &PhysicalDevice, options: &Options) -> Result<(Arc<Self>, Queue), Error> {
        let caps = physical.info.caps.clone().without(&options.off);
        let drill = Arc::clone(&options.drill);
        let mut device = Self::new(physical, caps, (options.robust, false), drill)?;
        device.cache = device.new_cache(&options.pipeline_cache)?;
        let device = Arc::new(device);
        let queue = Queue::new(&device, device.queue_family)?;
        Ok((device, queue))
    }

    /// Opens a device only to compile for it: pipelines can be asked what the driver made of them
    /// ([`super::Pipeline::executable`]), which makes compiling slower. `caps` are those of the device, or of another one
    /// that kernels shall be chosen for. There is no queue, which a device without hardware could not give.
    ///
    /// # Errors
    /// As of [`Device::open`].
    pub fn inspect(physical: &PhysicalDevice, caps: Caps) -> Result<Arc<Self>, Error> {
        Self::new(physical, caps, (false, true), Arc::default()).map(Arc::new)
    }

    fn new(
        physical: &PhysicalDevice,
        caps: Caps,
        (robust, inspect): (bool, bool),
        drill: Arc<Drill>,
    ) -> Result<Self, Error> {
        let info = physical.info.clone();
        let (true, Some(queue_family)) = (info.missing.is_empty(), physical.queue_family) else {
            return Err(Error::Unsuitable {
                device: info.name.clone(),
                missing: info.missing.join(", "),
            });
        };
        let instance = Arc::clone(&physical.instance);
        let inspect = inspect && caps.has(Ability::Statistics);
        let raw = create(physical, &caps, (robust, inspect), queue_family)?;
        // SAFETY: `raw` in `physical` is of this instance.
        let memory = unsafe { instance.raw().get_physical_device_memory_properties(physical.raw) };
        let names = instance
            .is_validating()
            .then(|| ash::ext::debug_utils::Device::new(instance.raw(), &raw));
        let inspector = inspect
            .then(|| ash::khr::pipeline_executable_properties::Device::new(instance.raw(), &raw));
        let cache = vk::PipelineCache::null();
        let compilations = Compilations::default();
        Ok(Self {
            info,
            caps,
            cache,
            names,
            inspector,
            memory,
            queue_family,
            drill,
            compilations,
            raw,
            instance,
        })
    }

    /// What it is.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// What it can do, without what was switched off.
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// The instance, for its messages.
    pub fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// The pipelines compiled so far, for [`Options::pipeline_cache`] of a later run.
    pub fn pipeline_cache(&self) -> Result<Vec<u8>, Error> {
        // SAFETY: The cache is of this device.
        unsafe { self.raw.get_pipeline_cache_data(self.cache) }
            .map_err(api("vkGetPipelineCacheData"))
    }

    /// What the driver says about a loss, where it says anything.
    pub(super) fn fault(&self) -> Option<String> {
        if !self.caps.has(Ability::DeviceFault) {
            return None;
        }
        let functions = ash::ext::device_fault::Device::new(self.instance.raw(), &self.raw);
        // No room for addresses and binaries: the description alone is for people.
        let mut counts = vk::DeviceFaultCountsEXT::default();
        let mut info = vk::DeviceFaultInfoEXT::default();
        let ask = functions.fp().get_device_fault_info_ext;
        // SAFETY: The device has the extension and was lost; both structures outlive the call.
        let answer = unsafe { ask(self.raw.handle(), &raw mut counts, &raw mut info) };
        let is_told = matches!(answer, vk::Result::SUCCESS | vk::Result::INCOMPLETE);
        let text = info.description_as_c_str().ok().filter(|_| is_told)?;
        let text = text.to_string_lossy().trim().replace('\n', " ");
        (!text.is_empty()).then_some(text)
    }

    pub(super) fn raw(&self) -> &ash::Device {
        &self.raw
    }

    /// The functions that tell what became of pipelines, where they were asked for.
    pub(super) fn inspector(&self) -> Option<&ash::khr::pipeline_executable_properties::Device> {
        self.inspector.as_ref()
    }

    pub(super) fn cache(&self) -> vk::PipelineCache {
        self.cache
    }

    /// Waits until all pipelines are compiled, at most so long. How many have begun and are over.
    pub fn await_pipelines(&self, most: Duration) -> (usize, usize) {
        self.compilations.wait(most)
    }

    pub(super) fn compilations(&self) -> &Compilations {
        &self.compilations
    }

    /// The failures that it pretends.
    pub fn drill(&self) -> &Drill {
        &self.drill
    }

    pub(super) fn queue_family(&self) -> u32 {
        self.queue_family
    }

    pub(super) fn memory_types(&self) -> &[vk::MemoryType] {
        self.memory.memory_types_as_slice()
    }

    /// Gives an object the name that validation messages call it by. Does nothing without validation.
    pub(super) fn name<T: vk::Handle>(&self, handle: T, name: &str) {
        let (Some(names), Ok(name)) = (&self.names, CString::new(name)) else { return };
        let info =
            vk::DebugUtilsObjectNameInfoEXT::default().object_handle(handle).object_name(&name);
        // SAFETY: The handle was made from this device and is alive; its owner calls this.
        let named = unsafe { names.set_debug_utils_object_name(&info) };
        // A name is a convenience: without it messages show the handle.
        let _ = named;
    }

    fn new_cache(&self, blob: &[u8]) -> Result<vk::PipelineCache, Error> {
        let blob = if self.info.accepts_cache(blob) { blob } else { &[] };
        let info = vk::PipelineCacheCreateInfo::default().initial_data(blob);
        // SAFETY: The blob outlives the call and its header is this device's.
        unsafe { self.raw.create_pipeline_cache(&info, None) }.map_err(api("vkCreatePipelineCache"))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: Created by `open` (or null), and nothing else of the device is left: all hold an `Arc`.
        unsafe { self.raw.destroy_pipeline_cache(self.cache, None) };
        // SAFETY: As above; the queue waited for its work when it was dropped.
        unsafe { self.raw.destroy_device(None) };
    }
}

/// Extensions to switch on where the driver has them.
const WANTED: [(&CStr, Option<Ability>); 7] = [
    (ash::khr::portability_subset::NAME, None),
    (ash::khr::cooperative_matrix::NAME, Some(Ability::Matrix)),
    // Never both.
    (ash::khr::cooperative_matrix::NAME, Some(Ability::Matrix8)),
    (ash::ext::external_memory_host::NAME, Some(Ability::HostImport)),
    (ash::ext::memory_budget::NAME, Some(Ability::MemoryBudget)),
    (ash::ext::memory_priority::NAME, Some(Ability::MemoryPriority)),
    (ash::ext::device_fault::NAME, Some(Ability::DeviceFault)),
];

fn create(
    physical: &PhysicalDevice,
    caps: &Caps,
    (robust, inspect): (bool, bool),
    family: u32,
) -> Result<ash::Device, Error> {
    let vk = physical.instance.raw();
    let offered = super::query::Extensions::of(vk, physical.raw)?;
    let told = inspect.then_some(ash::khr::pipeline_executable_properties::NAME.as_ptr());
    let extensions: Vec<_> = WANTED
        .iter()
        .filter(|(name, ability)| offered.has(name) && ability.is_none_or(|a| caps.has(a)))
        .map(|(name, _)| name.as_ptr())
        .chain(told)
        .collect();
    let core =
        vk::PhysicalDeviceFeatures::default().shader_int16(true).robust_buffer_access(robust);
    let mut f11 = vk::PhysicalDeviceVulkan11Features::default().storage_buffer16_bit_access(true);
    let mut f12 = vk::PhysicalDeviceVulkan12Features::default()
        .storage_buffer8_bit_access(true)
        .shader_int8(true)
        .timeline_semaphore(true)
        .shader_float16(caps.has(Ability::Float16))
        .vulkan_memory_model(caps.has(Ability::MemoryModel))
        .vulkan_memory_model_device_scope(caps.has(Ability::MemoryModel))
        .host_query_reset(caps.has(Ability::Timestamps));
    let mut f13 = vk::PhysicalDeviceVulkan13Features::default()
        .synchronization2(true)
        .maintenance4(true)
        .subgroup_size_control(caps.has(Ability::SubgroupSize))
        .compute_full_subgroups(caps.has(Ability::SubgroupSize))
        .shader_integer_dot_product(caps.has(Ability::IntDot));
    let mut matrix =
        vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(true);
    let queues =
        [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
    let mut info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_extension_names(&extensions)
        .enabled_features(&core)
        .push_next(&mut f11)
        .push_next(&mut f12)
        .push_next(&mut f13);
    if caps.has(Ability::Matrix) || caps.has(Ability::Matrix8) {
        info = info.push_next(&mut matrix);
    }
    let mut executables = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default()
        .pipeline_executable_info(true);
    if inspect {
        info = info.push_next(&mut executables);
    }
    let mut fault = vk::PhysicalDeviceFaultFeaturesEXT::default().device_fault(true);
    if caps.has(Ability::DeviceFault) {
        info = info.push_next(&mut fault);
    }
    // SAFETY: Every pointer outlives the call; only features and extensions that the device reported
    // are switched on.
    unsafe { vk.create_device(physical.raw, &info, None) }.map_err(api("vkCreateDevice"))
}
