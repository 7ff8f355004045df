//! Asks physical devices what they are and what they can do. The only file that knows which Vulkan
//! structure holds which answer.

use super::caps::{Ability, Caps, Limits, Subgroups};
use super::entry::Instance;
use super::error::{Error, api};
use super::info::{DeviceInfo, Kind};
use crate::util::hex;
use crate::util::units::Bytes;
use ash::vk;
use std::ffi::CStr;
use std::sync::Arc;

/// A device that can be opened.
pub struct PhysicalDevice {
    /// What it is.
    pub info: DeviceInfo,
    pub(super) instance: Arc<Instance>,
    pub(super) raw: vk::PhysicalDevice,
    pub(super) queue_family: Option<u32>,
}

impl Instance {
    /// Every device of every driver, usable or not, in the loader's order.
    pub fn devices(self: &Arc<Self>) -> Result<Vec<PhysicalDevice>, Error> {
        // SAFETY: The instance is alive.
        let all = unsafe { self.raw().enumerate_physical_devices() }
            .map_err(api("vkEnumeratePhysicalDevices"))?;
        all.into_iter().enumerate().map(|(index, raw)| describe(self, index, raw)).collect()
    }
}

fn describe(
    instance: &Arc<Instance>,
    index: usize,
    raw: vk::PhysicalDevice,
) -> Result<PhysicalDevice, Error> {
    let vk = instance.raw();
    // SAFETY: `raw` was just enumerated from this instance.
    let base = unsafe { vk.get_physical_device_properties(raw) };
    // SAFETY: As above.
    let families = unsafe { vk.get_physical_device_queue_family_properties(raw) };
    let queue_family = compute_family(&families);
    let api = (vk::api_version_major(base.api_version), vk::api_version_minor(base.api_version));
    let extensions = Extensions::of(vk, raw)?;
    let recent = base.api_version >= vk::API_VERSION_1_3;
    // The 1.3 structures may only be given to a 1.3 device.
    let found = if recent { Found::ask(instance, raw, &extensions) } else { Found::default() };
    let mut missing = found.missing;
    if !recent {
        missing = vec!["Vulkan 1.3"];
    }
    if queue_family.is_none() {
        missing.push("a compute queue");
    }
    let (heap, usable) = if recent { memory(vk, raw, &extensions) } else { (Bytes(0), Bytes(0)) };
    let name = base.device_name_as_c_str().unwrap_or_default().to_string_lossy().into_owned();
    let mut caps = found.caps.unwrap_or_else(|| Caps::new(limits(&base.limits, 0), NO_SUBGROUPS));
    let stamped = queue_family.is_some_and(|f| families[f as usize].timestamp_valid_bits > 0);
    if stamped && caps.has(Ability::Timestamps) {
        caps.timestamp_ns = Some(base.limits.timestamp_period);
    } else {
        caps = caps.without(&[Ability::Timestamps]);
    }
    let info = DeviceInfo {
        index,
        name,
        kind: kind(base.device_type),
        uuid: hex::encode(&found.uuid),
        vendor_id: base.vendor_id,
        device_id: base.device_id,
        driver: found.driver,
        driver_version: base.driver_version,
        api,
        heap,
        usable,
        caps,
        missing,
        cache_uuid: base.pipeline_cache_uuid,
    };
    Ok(PhysicalDevice { info, instance: Arc::clone(instance), raw, queue_family })
}

const NO_SUBGROUPS: Subgroups = Subgroups { default: 1, min: 1, max: 1, per_workgroup: 1 };

fn kind(ty: vk::PhysicalDeviceType) -> Kind {
    match ty {
        vk::PhysicalDeviceType::DISCRETE_GPU => Kind::Discrete,
        vk::PhysicalDeviceType::INTEGRATED_GPU => Kind::Integrated,
        vk::PhysicalDeviceType::VIRTUAL_GPU => Kind::Virtual,
        vk::PhysicalDeviceType::CPU => Kind::Cpu,
        _ => Kind::Other,
    }
}

/// The family with compute that does the most besides: on AMD the graphics queue is the one that is
/// always there.
fn compute_family(families: &[vk::QueueFamilyProperties]) -> Option<u32> {
    let compute = families
        .iter()
        .zip(0..)
        .filter(|(f, _)| f.queue_count > 0 && f.queue_flags.contains(vk::QueueFlags::COMPUTE));
    compute
        .max_by_key(|(f, i)| (f.queue_flags.contains(vk::QueueFlags::GRAPHICS), u32::MAX - i))
        .map(|(_, i)| i)
}

/// The device extensions on offer.
pub(super) struct Extensions(Vec<vk::ExtensionProperties>);

impl Extensions {
    pub(super) fn of(vk: &ash::Instance, raw: vk::PhysicalDevice) -> Result<Self, Error> {
        // SAFETY: `raw` belongs to this instance.
        unsafe { vk.enumerate_device_extension_properties(raw) }
            .map(Self)
            .map_err(api("vkEnumerateDeviceExtensionProperties"))
    }

    pub(super) fn has(&self, name: &CStr) -> bool {
        self.0.iter().any(|e| e.extension_name_as_c_str().is_ok_and(|found| found == name))
    }
}

/// NVIDIA's second-generation matrices; newer than the bindings in use.
const MATRIX2: &CStr = c"VK_NV_cooperative_matrix2";

/// Answers of a Vulkan 1.3 device.
#[derive(Default)]
struct Found {
    caps: Option<Caps>,
    missing: Vec<&'static str>,
    driver: String,
    uuid: [u8; 16],
}

impl Found {
    fn ask(instance: &Instance, raw: vk::PhysicalDevice, ext: &Extensions) -> Self {
        let mut p11 = vk::PhysicalDeviceVulkan11Properties::default();
        let mut p12 = vk::PhysicalDeviceVulkan12Properties::default();
        let mut p13 = vk::PhysicalDeviceVulkan13Properties::default();
        let mut base = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut p11)
            .push_next(&mut p12)
            .push_next(&mut p13);
        // SAFETY: A 1.3 device fills all three structures.
        unsafe { instance.raw().get_physical_device_properties2(raw, &mut base) };
        let base = base.properties;
        let f = Features::ask(instance.raw(), raw, ext);
        let subgroups = Subgroups {
            default: p11.subgroup_size,
            min: p13.min_subgroup_size,
            max: p13.max_subgroup_size,
            per_workgroup: p13.max_compute_workgroup_subgroups,
        };
        let mut caps = Caps::new(limits(&base.limits, p11.max_memory_allocation_size), subgroups);
        caps.compute_units = compute_units(instance.raw(), raw, ext);
        if ext.has(ash::ext::external_memory_host::NAME) {
            caps.host_import_align = Some(import_align(instance.raw(), raw));
        }
        let sized = p13.required_subgroup_size_stages.contains(vk::ShaderStageFlags::COMPUTE);
        let feature = |ability| f.present.contains(&ability);
        let matrices = if feature(Ability::Matrix) { matrix_shapes(instance, raw) } else { vec![] };
        let (square, small) = (matrices.contains(&[16; 3]), matrices.contains(&[8; 3]));
        let present = [
            (Ability::Float16, feature(Ability::Float16)),
            (Ability::Denorm16, p12.shader_denorm_preserve_float16 == vk::TRUE),
            (
                Ability::IntDot,
                feature(Ability::IntDot)
                    && p13.integer_dot_product4x8_bit_packed_signed_accelerated == vk::TRUE,
            ),
            (Ability::SubgroupSize, feature(Ability::SubgroupSize) && sized),
            (Ability::MemoryModel, feature(Ability::MemoryModel)),
            (Ability::Matrix, square),
            (Ability::Matrix8, small && !square),
            (Ability::MatrixThin, square && matrices.contains(&[16, 8, 16])),
            (Ability::Matrix2, ext.has(MATRIX2) && square),
            (Ability::HostImport, caps.host_import_align.is_some()),
            (Ability::MemoryBudget, ext.has(ash::ext::memory_budget::NAME)),
            (Ability::MemoryPriority, ext.has(ash::ext::memory_priority::NAME)),
            (Ability::DeviceFault, feature(Ability::DeviceFault)),
            (Ability::Timestamps, feature(Ability::Timestamps)),
            (Ability::Statistics, ext.has(ash::khr::pipeline_executable_properties::NAME)),
        ];
        let caps = present.iter().filter(|p| p.1).fold(caps, |caps, p| caps.with(p.0)).without(&[]);
        let mut missing = f.missing;
        missing.extend(missing_subgroup_operations(&p11));
        let text = |s: Result<&CStr, _>| s.unwrap_or_default().to_string_lossy().into_owned();
        let (name, version) = (text(p12.driver_name_as_c_str()), text(p12.driver_info_as_c_str()));
        Self {
            caps: Some(caps),
            missing,
            driver: format!("{name} {version}"),
            uuid: p11.device_uuid,
        }
    }
}

/// The answers of the feature structures: required features that are missing, and optional abilities as
/// far as features decide.
struct Features {
    missing: Vec<&'static str>,
    present: Vec<Ability>,
}

impl Features {
    fn ask(vk: &ash::Instance, raw: vk::PhysicalDevice, ext: &Extensions) -> Self {
        let mut f11 = vk::PhysicalDeviceVulkan11Features::default();
        let mut f12 = vk::PhysicalDeviceVulkan12Features::default();
        let mut f13 = vk::PhysicalDeviceVulkan13Features::default();
        let mut matrix = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
        let mut fault = vk::PhysicalDeviceFaultFeaturesEXT::default();
        let mut base = vk::PhysicalDeviceFeatures2::default()
            .push_next(&mut f11)
            .push_next(&mut f12)
            .push_next(&mut f13);
        if ext.has(ash::khr::cooperative_matrix::NAME) {
            base = base.push_next(&mut matrix);
        }
        if ext.has(ash::ext::device_fault::NAME) {
            base = base.push_next(&mut fault);
        }
        // SAFETY: A 1.3 device fills the three structures, the others where it has their extensions.
        unsafe { vk.get_physical_device_features2(raw, &mut base) };
        let int16 = base.features.shader_int16;
        let required = [
            (f11.storage_buffer16_bit_access, "storageBuffer16BitAccess"),
            (f12.storage_buffer8_bit_access, "storageBuffer8BitAccess"),
            (int16, "shaderInt16"),
            (f12.shader_int8, "shaderInt8"),
            (f12.timeline_semaphore, "timelineSemaphore"),
            (f13.synchronization2, "synchronization2"),
            (f13.maintenance4, "maintenance4"),
        ];
        let on = |flag: vk::Bool32| flag == vk::TRUE;
        let optional = [
            (Ability::Float16, on(f12.shader_float16)),
            (Ability::IntDot, on(f13.shader_integer_dot_product)),
            (
                Ability::SubgroupSize,
                on(f13.subgroup_size_control) && on(f13.compute_full_subgroups),
            ),
            (
                Ability::MemoryModel,
                on(f12.vulkan_memory_model) && on(f12.vulkan_memory_model_device_scope),
            ),
            (Ability::Matrix, on(matrix.cooperative_matrix)),
            (Ability::DeviceFault, on(fault.device_fault)),
            (Ability::Timestamps, on(f12.host_query_reset)),
        ];
        Self {
            missing: required.iter().filter(|r| !on(r.0)).map(|r| r.1).collect(),
            present: optional.iter().filter(|o| o.1).map(|o| o.0).collect(),
        }
    }
}

fn missing_subgroup_operations(
    p11: &vk::PhysicalDeviceVulkan11Properties<'_>,
) -> Vec<&'static str> {
    let needed = [
        (vk::SubgroupFeatureFlags::BASIC, "basic subgroup operations"),
        (vk::SubgroupFeatureFlags::ARITHMETIC, "subgroup arithmetic"),
        (vk::SubgroupFeatureFlags::SHUFFLE, "subgroup shuffles"),
        (vk::SubgroupFeatureFlags::BALLOT, "subgroup ballots"),
    ];
    let mut missing: Vec<_> = needed
        .iter()
        .filter(|n| !p11.subgroup_supported_operations.contains(n.0))
        .map(|n| n.1)
        .collect();
    if !p11.subgroup_supported_stages.contains(vk::ShaderStageFlags::COMPUTE) {
        missing.push("subgroup operations in compute shaders");
    }
    missing
}

fn limits(l: &vk::PhysicalDeviceLimits, allocation_bytes: u64) -> Limits {
    Limits {
        workgroup: l.max_compute_work_group_invocations.min(l.max_compute_work_group_size[0]),
        grid: l.max_compute_work_group_count,
        shared_bytes: l.max_compute_shared_memory_size,
        push_bytes: l.max_push_constants_size,
        storage_bytes: u64::from(l.max_storage_buffer_range),
        storage_align: l.min_storage_buffer_offset_alignment,
        allocation_bytes,
        bindings: l.max_per_stage_descriptor_storage_buffers,
    }
}

/// The device-local heap that everything lives in, and what may be used of it.
fn memory(vk: &ash::Instance, raw: vk::PhysicalDevice, ext: &Extensions) -> (Bytes, Bytes) {
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let known = ext.has(ash::ext::memory_budget::NAME);
    let mut props = vk::PhysicalDeviceMemoryProperties2::default();
    if known {
        props = props.push_next(&mut budget);
    }
    // SAFETY: The chained structure is known to a device with the extension.
    unsafe { vk.get_physical_device_memory_properties2(raw, &mut props) };
    let props = props.memory_properties;
    let local = props
        .memory_heaps_as_slice()
        .iter()
        .enumerate()
        .filter(|(_, h)| h.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL))
        .max_by_key(|(_, h)| h.size);
    let Some((i, heap)) = local else { return (Bytes(0), Bytes(0)) };
    let usable = if known { budget.heap_budget[i] } else { heap.size / 5 * 4 };
    (Bytes(heap.size), Bytes(usable))
}

fn import_align(vk: &ash::Instance, raw: vk::PhysicalDevice) -> u64 {
    let mut host = vk::PhysicalDeviceExternalMemoryHostPropertiesEXT::default();
    let mut props = vk::PhysicalDeviceProperties2::default().push_next(&mut host);
    // SAFETY: Called only where the device has the extension.
    unsafe { vk.get_physical_device_properties2(raw, &mut props) };
    host.min_imported_host_pointer_alignment
}

/// Compute units, multiprocessors or cores: what the vendor counts workgroup slots by.
fn compute_units(vk: &ash::Instance, raw: vk::PhysicalDevice, ext: &Extensions) -> Option<u32> {
    let mut amd = vk::PhysicalDeviceShaderCorePropertiesAMD::default();
    let mut amd2 = vk::PhysicalDeviceShaderCoreProperties2AMD::default();
    let mut nv = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
    let mut arm = vk::PhysicalDeviceShaderCoreBuiltinsPropertiesARM::default();
    let mut props = vk::PhysicalDeviceProperties2::default();
    if ext.has(ash::amd::shader_core_properties::NAME) {
        props = props.push_next(&mut amd);
    }
    if ext.has(ash::amd::shader_core_properties2::NAME) {
        props = props.push_next(&mut amd2);
    }
    if ext.has(ash::nv::shader_sm_builtins::NAME) {
        props = props.push_next(&mut nv);
    }
    if ext.has(ash::arm::shader_core_builtins::NAME) {
        props = props.push_next(&mut arm);
    }
    // SAFETY: Each chained structure belongs to an extension of this device.
    unsafe { vk.get_physical_device_properties2(raw, &mut props) };
    let amd = amd.shader_engine_count
        * amd.shader_arrays_per_engine_count
        * amd.compute_units_per_shader_array;
    let counts = [amd2.active_compute_unit_count, amd, nv.shader_sm_count, arm.shader_core_count];
    counts.into_iter().find(|&n| n > 0)
}

/// The edges of the cubes of f16 that the driver multiplies into f32 at subgroup scope.
fn matrix_shapes(instance: &Instance, raw: vk::PhysicalDevice) -> Vec<[u32; 3]> {
    let functions = ash::khr::cooperative_matrix::Instance::new(instance.entry(), instance.raw());
    // SAFETY: Called only where the device has the feature, so the function is there.
    let shapes = unsafe { functions.get_physical_device_cooperative_matrix_properties(raw) };
    let shapes = shapes.unwrap_or_default();
    let usable = shapes.iter().filter(|s| {
        s.a_type == vk::ComponentTypeKHR::FLOAT16
            && s.b_type == vk::ComponentTypeKHR::FLOAT16
            && s.c_type == vk::ComponentTypeKHR::FLOAT32
            && s.result_type == vk::ComponentTypeKHR::FLOAT32
            && s.scope == vk::ScopeKHR::SUBGROUP
    });
    usable.map(|s| [s.m_size, s.n_size, s.k_size]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graphics_queue_is_preferred_then_the_first() {
        use vk::QueueFlags as F;
        let family = |flags| vk::QueueFamilyProperties {
            queue_flags: flags,
            queue_count: 1,
            ..Default::default()
        };
        let both = F::GRAPHICS | F::COMPUTE;
        assert_eq!(compute_family(&[family(F::COMPUTE), family(both)]), Some(1));
        assert_eq!(
            compute_family(&[family(F::TRANSFER), family(F::COMPUTE), family(F::COMPUTE)]),
            Some(1)
        );
        assert_eq!(compute_family(&[family(F::GRAPHICS)]), None);
    }
}
