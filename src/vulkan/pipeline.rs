//! Compute pipelines: a module, its specialization constants, a required subgroup size.
//!
//! The driver compiles on threads of the program's pool while the caller goes on; recording a graph waits for those
//! that it uses. The cache that they share is the driver's to guard.
//!
//! Convention: specialization constant 0 is the width of the workgroup, so a pipeline can be checked
//! against the device before the driver sees it.

use super::caps::Ability;
use super::check::Access;
use super::device::Device;
use super::error::{Error, api};
use ash::vk;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One storage buffer of a shader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// Its number in set 0.
    pub index: u32,
    /// What the shader does with it.
    pub access: Access,
}

impl Binding {
    /// A `readonly` buffer.
    pub const fn read(index: u32) -> Self {
        Self { index, access: Access::Read }
    }

    /// A `writeonly` buffer.
    pub const fn write(index: u32) -> Self {
        Self { index, access: Access::Write }
    }

    /// A buffer that is updated.
    pub const fn update(index: u32) -> Self {
        Self { index, access: Access::ReadWrite }
    }
}

/// A shader as its Rust side declares it.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Name, for messages.
    pub name: &'static str,
    /// SPIR-V.
    pub words: &'static [u32],
    /// Its bindings, in the order of [`super::Node::slices`].
    pub bindings: &'static [Binding],
    /// Bytes of its push constants.
    pub push_bytes: usize,
}

/// A compiled program.
pub struct Pipeline {
    device: Arc<Device>,
    program: Program,
    /// Invocations of a workgroup and of a subgroup.
    widths: [u32; 2],
    sets: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    compiled: Arc<Compiled>,
}

/// What a compilation comes to, as soon as it is over.
#[derive(Default)]
struct Compiled {
    result: Mutex<Option<Result<vk::Pipeline, vk::Result>>>,
    over: Condvar,
}

impl Compiled {
    fn set(&self, result: Result<vk::Pipeline, vk::Result>) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.over.notify_all();
    }

    fn wait(&self) -> Result<vk::Pipeline, vk::Result> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = *result {
                return result;
            }
            result = self.over.wait(result).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Counts compilations of a device.
#[derive(Default)]
pub(super) struct Compilations {
    /// Begun and over.
    counts: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Compilations {
    fn counts(&self) -> MutexGuard<'_, (usize, usize)> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all are over, at most so long. How many have begun and are over.
    pub(super) fn wait(&self, most: Duration) -> (usize, usize) {
        let counts = self.counts();
        let waited = self.changed.wait_timeout_while(counts, most, |c| c.0 > c.1);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Pipeline {
    /// Begins to compile `program` with specialization constants `0..constants.len()` (booleans as 0 and 1) and
    /// subgroups of `subgroup`, which [`super::Caps::subgroup_size`] gave.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when a limit of the device does not allow it. Whether the driver refuses shows when a graph
    /// is recorded that uses it.
    pub fn new(
        device: &Arc<Device>,
        program: Program,
        constants: &[u32],
        subgroup: u32,
    ) -> Result<Arc<Self>, Error> {
        let fail = |why: String| Error::Pipeline { name: program.name, why };
        fits(device, &program, constants, subgroup).map_err(fail)?;
        let mut pipeline = Self {
            device: Arc::clone(device),
            program,
            widths: [constants[0], subgroup],
            sets: set_layout(device, program.bindings)?,
            layout: vk::PipelineLayout::null(),
            compiled: Arc::default(),
        };
        match layout(device, pipeline.sets, program.push_bytes) {
            Ok(layout) => pipeline.layout = layout,
            Err(e) => {
                // From here on dropping `pipeline` destroys what there is; null handles are ignored.
                pipeline.compiled.set(Ok(vk::Pipeline::null()));
                return Err(e);
            }
        }
        pipeline.begin(constants.to_vec(), subgroup);
        Ok(Arc::new(pipeline))
    }

    /// Has the driver compile on another thread.
    fn begin(&self, constants: Vec<u32>, subgroup: u32) {
        let (device, compiled) = (Arc::clone(&self.device), Arc::clone(&self.compiled));
        let (program, layout) = (self.program, self.layout);
        device.compilations().counts().0 += 1;
        rayon::spawn(move || {
            let result = compile(&device, &program, layout, &constants, subgroup);
            if let Ok(raw) = result {
                device.name(raw, program.name);
            }
            compiled.set(result);
            device.compilations().counts().1 += 1;
            device.compilations().changed.notify_all();
        });
    }

    /// Waits until it is compiled.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the driver refused.
    pub(super) fn ready(&self) -> Result<(), Error> {
        let fail =
            |code: vk::Result| Error::Pipeline { name: self.program.name, why: code.to_string() };
        self.compiled.wait().map(|_| ()).map_err(fail)
    }

    /// What it was compiled from.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Invocations of a workgroup.
    pub fn workgroup(&self) -> u32 {
        self.widths[0]
    }

    /// Invocations of a subgroup.
    pub fn subgroup(&self) -> u32 {
        self.widths[1]
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    pub(super) fn sets(&self) -> vk::DescriptorSetLayout {
        self.sets
    }

    pub(super) fn raw(&self) -> (vk::Pipeline, vk::PipelineLayout) {
        let raw = self.compiled.wait().expect("recording waits until it is ready");
        (raw, self.layout)
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let device = self.device.raw();
        // The layout must outlive the compilation.
        let raw = self.compiled.wait().unwrap_or(vk::Pipeline::null());
        // SAFETY: Made by `new` and destroyed once; recorded graphs that use it hold an `Arc`.
        unsafe { device.destroy_pipeline(raw, None) };
        // SAFETY: As above.
        unsafe { device.destroy_pipeline_layout(self.layout, None) };
        // SAFETY: As above.
        unsafe { device.destroy_descriptor_set_layout(self.sets, None) };
    }
}

/// Checks against the limits, in words a user can act on.
fn fits(
    device: &Device,
    program: &Program,
    constants: &[u32],
    subgroup: u32,
) -> Result<(), String> {
    let caps = device.caps();
    let workgroup = constants.first().copied().unwrap_or(0);
    let most = if caps.has(Ability::SubgroupSize) {
        caps.workgroup_limit(subgroup)
    } else {
        caps.limits.workgroup
    };
    if workgroup == 0 || workgroup > most {
        return Err(format!("a workgroup of {workgroup} invocations, the device allows {most}"));
    }
    if subgroup != caps.subgroup_size(subgroup) || !subgroup.is_power_of_two() {
        return Err(format!("the device has no subgroups of {subgroup}"));
    }
    if !workgroup.is_multiple_of(subgroup) {
        return Err(format!("a workgroup of {workgroup} is not made of subgroups of {subgroup}"));
    }
    if program.push_bytes > caps.limits.push_bytes as usize {
        let (has, most) = (program.push_bytes, caps.limits.push_bytes);
        return Err(format!("{has} bytes of push constants, the device allows {most}"));
    }
    if program.bindings.len() > caps.limits.bindings as usize {
        let (has, most) = (program.bindings.len(), caps.limits.bindings);
        return Err(format!("{has} storage buffers, the device allows {most}"));
    }
    Ok(())
}

fn set_layout(device: &Device, bindings: &[Binding]) -> Result<vk::DescriptorSetLayout, Error> {
    let bindings: Vec<_> = bindings
        .iter()
        .map(|b| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(b.index)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        })
        .collect();
    let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
    // SAFETY: The bindings outlive the call.
    unsafe { device.raw().create_descriptor_set_layout(&info, None) }
        .map_err(api("vkCreateDescriptorSetLayout"))
}

fn layout(
    device: &Device,
    sets: vk::DescriptorSetLayout,
    push_bytes: usize,
) -> Result<vk::PipelineLayout, Error> {
    let sets = [sets];
    let push = [vk::PushConstantRange::default()
        .stage_flags(vk::ShaderStageFlags::COMPUTE)
        .size(u32::try_from(push_bytes).expect("within the device's limit"))];
    let mut info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
    if push_bytes > 0 {
        info = info.push_constant_ranges(&push);
    }
    // SAFETY: The set layout is of this device and alive.
    unsafe { device.raw().create_pipeline_layout(&info, None) }
        .map_err(api("vkCreatePipelineLayout"))
}

fn compile(
    device: &Device,
    program: &Program,
    layout: vk::PipelineLayout,
    constants: &[u32],
    subgroup: u32,
) -> Result<vk::Pipeline, vk::Result> {
    let info = vk::ShaderModuleCreateInfo::default().code(program.words);
    // SAFETY: The words are a module that the build compiled and tests validate.
    let module = unsafe { device.raw().create_shader_module(&info, None) }?;
    let entries: Vec<_> = (0..constants.len())
        .map(|i| {
            vk::SpecializationMapEntry::default()
                .constant_id(u32::try_from(i).expect("a handful of constants"))
                .offset(u32::try_from(i * 4).expect("a handful of constants"))
                .size(4)
        })
        .collect();
    let spec = vk::SpecializationInfo::default()
        .map_entries(&entries)
        .data(bytemuck::cast_slice(constants));
    let mut required = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default()
        .required_subgroup_size(subgroup);
    let mut stage = vk::PipelineShaderStageCreateInfo::default()
        .stage(vk::ShaderStageFlags::COMPUTE)
        .module(module)
        .name(c"main")
        .specialization_info(&spec);
    if device.caps().has(Ability::SubgroupSize) {
        stage = stage
            .flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS)
            .push_next(&mut required);
    }
    let mut flags = vk::PipelineCreateFlags::empty();
    if device.inspector().is_some() {
        flags |= vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR
            | vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR;
    }
    let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout).flags(flags)];
    // SAFETY: Module, layout and cache are of this device; the constants outlive the call.
    let made = unsafe { device.raw().create_compute_pipelines(device.cache(), &info, None) };
    // SAFETY: The pipeline does not need its module any more.
    unsafe { device.raw().destroy_shader_module(module, None) };
    match made {
        Ok(pipelines) => Ok(pipelines[0]),
        Err((_, code)) => Err(code),
    }
}
