//! Graphs: levels of dispatches, checked once and recorded once into commands that can be submitted any
//! number of times.
//!
//! Dispatches of a level may overlap; between levels stands one global barrier, and another in front of
//! the first, which orders the graph after everything submitted before it. So no dispatch, kernel or
//! caller ever states a barrier. Nothing here changes from run to run: what does (positions, lengths)
//! is data in buffers.

use super::buffer::Slice;
use super::check::{Access, Fault, Span, Step, check};
use super::descriptor::Sets;
use super::device::Device;
use super::error::{Error, api};
use super::pipeline::Pipeline;
use super::profile::{Stamps, Timing};
use ash::vk;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One dispatch.
pub struct Node {
    /// What messages call it.
    pub label: String,
    /// The program.
    pub pipeline: Arc<Pipeline>,
    /// What its bindings see, in the order of [`super::Program::bindings`].
    pub slices: Vec<Slice>,
    /// Push constants, baked in.
    pub push: Vec<u8>,
    /// Workgroups.
    pub grid: Grid,
    /// What it moves and computes, for profiles and predictions.
    pub cost: Cost,
}

/// How many workgroups a dispatch has.
#[derive(Clone)]
pub enum Grid {
    /// These, by dimension.
    Fixed([u32; 3]),
    /// What three words at the start of the slice say when the dispatch begins. Whoever writes them stays
    /// within the device's limits; zero means nothing to do.
    Indirect(Slice),
}

impl From<[u32; 3]> for Grid {
    fn from(grid: [u32; 3]) -> Self {
        Self::Fixed(grid)
    }
}

/// Work of one dispatch, by design rather than measured. For dispatches whose size is decided on the
/// device: what is expected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes that have to come from or go to memory: weights, caches, states; not what caches hold.
    pub bytes: u64,
    /// Floating-point operations, a multiply-add being two.
    pub flops: u64,
}

/// Levels under construction.
pub struct Graph {
    label: String,
    inputs: Vec<Span>,
    levels: Vec<Vec<Node>>,
}

impl Graph {
    /// No levels yet. The label appears in errors.
    pub fn new(label: &str) -> Self {
        Self { label: label.to_owned(), inputs: Vec::new(), levels: Vec::new() }
    }

    /// Declares that a slice holds data before the graph runs: weights, caches, uploads.
    pub fn input(&mut self, slice: &Slice) {
        self.inputs.push(slice.span());
    }

    /// Starts a level: its nodes run after all earlier ones.
    pub fn level(&mut self) {
        self.levels.push(Vec::new());
    }

    /// Adds a dispatch to the last level.
    ///
    /// # Panics
    /// Before the first level.
    pub fn node(&mut self, node: Node) {
        self.levels.last_mut().expect("a level was started").push(node);
    }

    /// Every dispatch, with the number of its level.
    pub fn nodes(&self) -> impl Iterator<Item = (usize, &Node)> {
        let levels = self.levels.iter().enumerate();
        levels.flat_map(|(level, nodes)| nodes.iter().map(move |node| (level, node)))
    }

    /// Checks the graph (module `check`) and records it.
    ///
    /// # Errors
    /// [`Error::Graph`] when the graph is unsound.
    pub fn record(self, device: &Arc<Device>) -> Result<Arc<Recorded>, Error> {
        self.check(device).map_err(|fault| Error::Graph { graph: self.label.clone(), fault })?;
        self.record_unchecked(device)
    }

    /// As [`Graph::record`], with the time of every dispatch measured: see [`Recorded::timings`].
    ///
    /// # Errors
    /// As [`Graph::record`].
    pub fn record_profiled(self, device: &Arc<Device>) -> Result<Arc<Recorded>, Error> {
        self.check(device).map_err(|fault| Error::Graph { graph: self.label.clone(), fault })?;
        let stamps = Stamps::new(device, self.levels.iter().map(Vec::len).sum())?;
        self.write(device, stamps)
    }

    /// Records without the check. For the one test that must see the validation layer complain.
    #[doc(hidden)]
    pub fn record_unchecked(self, device: &Arc<Device>) -> Result<Arc<Recorded>, Error> {
        self.write(device, None)
    }

    fn write(self, device: &Arc<Device>, stamps: Option<Stamps>) -> Result<Arc<Recorded>, Error> {
        let nodes: Vec<&Node> = self.levels.iter().flatten().collect();
        for node in &nodes {
            let mut buffers = node.slices.iter().map(|s| &s.buffer);
            let mine = node.pipeline.is_of(device) && buffers.all(|b| b.is_of(device));
            assert!(mine, "`{}` mixes devices", node.label);
            node.pipeline.ready()?;
        }
        let sets = Sets::new(device, &nodes)?;
        let commands = Commands::new(device)?;
        commands.record(|vk, buffer| {
            let mut index = 0;
            if let Some(stamps) = &stamps {
                stamps.begin(vk, buffer);
            }
            for level in &self.levels {
                level_barrier(vk, buffer, level);
                for node in level {
                    dispatch(vk, buffer, node, sets.get(index));
                    index += 1;
                    if let Some(stamps) = &stamps {
                        level_barrier(vk, buffer, level);
                        stamps.stamp(vk, buffer, index);
                    }
                }
            }
            host_barrier(vk, buffer);
        })?;
        let last = AtomicU64::new(0);
        Ok(Arc::new(Recorded { commands, sets, stamps, last, graph: self }))
    }

    fn check(&self, device: &Device) -> Result<(), Fault> {
        let mut levels = Vec::new();
        for (level, nodes) in self.levels.iter().enumerate() {
            levels.push(nodes.iter().map(|n| n.step(level)).collect::<Result<Vec<_>, _>>()?);
        }
        check(&levels, &self.inputs, &device.caps().limits)
    }
}

impl Node {
    /// The node as the check sees it, once it fits its pipeline.
    fn step(&self, level: usize) -> Result<Step<'_>, Fault> {
        let program = self.pipeline.program();
        let shapes = [
            ("slices", self.slices.len(), program.bindings.len()),
            ("bytes of push constants", self.push.len(), program.push_bytes),
        ];
        for (what, found, expected) in shapes {
            if found != expected {
                return Err(Fault::Shape {
                    level,
                    node: self.label.clone(),
                    what,
                    found,
                    expected,
                });
            }
        }
        let touches = program.bindings.iter().zip(&self.slices);
        let mut touches: Vec<_> = touches.map(|(b, s)| (b.index, s.span(), b.access)).collect();
        let grid = match &self.grid {
            Grid::Fixed(grid) => *grid,
            Grid::Indirect(words) => {
                if words.bytes < 12 || !words.offset.is_multiple_of(4) {
                    let (what, expected) = ("bytes of indirect grid", 12);
                    let found = usize::try_from(words.bytes).unwrap_or(usize::MAX);
                    let node = self.label.clone();
                    return Err(Fault::Shape { level, node, what, found, expected });
                }
                touches.push((Step::GRID, words.span(), Access::Read));
                [1; 3]
            }
        };
        Ok(Step { label: &self.label, touches, grid })
    }
}

/// A graph as commands.
pub struct Recorded {
    commands: Commands,
    #[expect(dead_code, reason = "the commands use the sets")]
    sets: Sets,
    stamps: Option<Stamps>,
    /// The submission it was last part of.
    last: AtomicU64,
    // Keeps buffers and pipelines alive.
    graph: Graph,
}

impl Recorded {
    /// The label of its graph.
    pub fn label(&self) -> &str {
        &self.graph.label
    }

    /// How many levels it has, with a barrier in front of each.
    pub fn levels(&self) -> usize {
        self.graph.levels.len()
    }

    /// How many dispatches it has.
    pub fn dispatches(&self) -> usize {
        self.graph.levels.iter().map(Vec::len).sum()
    }

    /// What all its dispatches move and compute.
    pub fn cost(&self) -> Cost {
        self.graph.levels.iter().flatten().fold(Cost::default(), |sum, node| Cost {
            bytes: sum.bytes + node.cost.bytes,
            flops: sum.flops + node.cost.flops,
        })
    }

    /// What each dispatch of the last run took; it must be over. Empty unless the graph was recorded
    /// by [`Graph::record_profiled`] on a device with timestamps.
    pub fn timings(&self) -> Result<Vec<Timing>, Error> {
        let Some(stamps) = &self.stamps else { return Ok(Vec::new()) };
        let nodes = self.graph.levels.iter().flatten().zip(stamps.read()?);
        let timing = |(node, ns): (&Node, f64)| Timing {
            label: node.label.clone(),
            program: node.pipeline.program().name,
            cost: node.cost,
            ns,
        };
        Ok(nodes.map(timing).collect())
    }

    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.commands.device, device)
    }

    pub(super) fn commands(&self) -> vk::CommandBuffer {
        self.commands.buffer
    }

    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    pub(super) fn submitted(&self, number: u64) {
        self.last.store(number, Ordering::Relaxed);
    }
}

/// A command buffer with a pool of its own: recording needs no lock, and both go at once.
pub(super) struct Commands {
    device: Arc<Device>,
    pool: vk::CommandPool,
    pub(super) buffer: vk::CommandBuffer,
}

impl Commands {
    pub(super) fn new(device: &Arc<Device>) -> Result<Self, Error> {
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(device.queue_family());
        // SAFETY: The family is the device's.
        let pool = unsafe { device.raw().create_command_pool(&info, None) }
            .map_err(api("vkCreateCommandPool"))?;
        let buffer = vk::CommandBuffer::null();
        let mut made = Self { device: Arc::clone(device), pool, buffer };
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: The pool is new.
        let buffers = unsafe { device.raw().allocate_command_buffers(&info) }
            .map_err(api("vkAllocateCommandBuffers"))?;
        made.buffer = buffers[0];
        Ok(made)
    }

    /// Records, from the beginning. The buffer must not be running.
    pub(super) fn record(
        &self,
        body: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Result<(), Error> {
        let (vk, buffer) = (self.device.raw(), self.buffer);
        let flags = vk::CommandPoolResetFlags::empty();
        // SAFETY: The pool's only buffer does not run.
        unsafe { vk.reset_command_pool(self.pool, flags) }.map_err(api("vkResetCommandPool"))?;
        // SAFETY: The buffer was just reset.
        unsafe { vk.begin_command_buffer(buffer, &vk::CommandBufferBeginInfo::default()) }
            .map_err(api("vkBeginCommandBuffer"))?;
        body(vk, buffer);
        // SAFETY: Recording was begun above.
        unsafe { vk.end_command_buffer(buffer) }.map_err(api("vkEndCommandBuffer"))
    }
}

impl Commands {
    /// Waits until the device does nothing. For owners that are dropped with commands under way.
    pub(super) fn wait_idle(&self) {
        // SAFETY: The device is alive; a failure means that it is lost, and then nothing runs.
        let _ = unsafe { self.device.raw().device_wait_idle() };
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // SAFETY: The queue holds what runs, so the pool's buffer does not.
        unsafe { self.device.raw().destroy_command_pool(self.pool, None) };
    }
}

/// One global memory barrier.
pub(super) fn barrier(
    vk: &ash::Device,
    buffer: vk::CommandBuffer,
    from: (vk::PipelineStageFlags2, vk::AccessFlags2),
    to: (vk::PipelineStageFlags2, vk::AccessFlags2),
) {
    let barriers = [vk::MemoryBarrier2::default()
        .src_stage_mask(from.0)
        .src_access_mask(from.1)
        .dst_stage_mask(to.0)
        .dst_access_mask(to.1)];
    let info = vk::DependencyInfo::default().memory_barriers(&barriers);
    // SAFETY: The buffer is being recorded, and its device has synchronization2.
    unsafe { vk.cmd_pipeline_barrier2(buffer, &info) };
}

const COMPUTE: vk::PipelineStageFlags2 = vk::PipelineStageFlags2::COMPUTE_SHADER;
const READ: vk::AccessFlags2 = vk::AccessFlags2::SHADER_STORAGE_READ;
const WRITE: vk::AccessFlags2 = vk::AccessFlags2::SHADER_STORAGE_WRITE;

/// Earlier writes become visible; earlier reads are over, which needs no access bit. Write-after-write
/// needs the second bit of the destination. Grids are read by another stage, where there are any.
fn level_barrier(vk: &ash::Device, buffer: vk::CommandBuffer, level: &[Node]) {
    let mut to = (COMPUTE, READ | WRITE);
    if level.iter().any(|node| matches!(node.grid, Grid::Indirect(_))) {
        to.0 |= vk::PipelineStageFlags2::DRAW_INDIRECT;
        to.1 |= vk::AccessFlags2::INDIRECT_COMMAND_READ;
    }
    barrier(vk, buffer, (COMPUTE, WRITE), to);
}

/// What the graph wrote becomes visible to the host: a signalled semaphore alone does not do that.
fn host_barrier(vk: &ash::Device, buffer: vk::CommandBuffer) {
    let host = (vk::PipelineStageFlags2::HOST, vk::AccessFlags2::HOST_READ);
    barrier(vk, buffer, (COMPUTE, WRITE), host);
}

fn dispatch(vk: &ash::Device, buffer: vk::CommandBuffer, node: &Node, set: vk::DescriptorSet) {
    let (pipeline, layout) = node.pipeline.raw();
    let point = vk::PipelineBindPoint::COMPUTE;
    // SAFETY: The buffer is being recorded; the node keeps the pipeline alive.
    unsafe { vk.cmd_bind_pipeline(buffer, point, pipeline) };
    // SAFETY: The set was made from the pipeline's own layout.
    unsafe { vk.cmd_bind_descriptor_sets(buffer, point, layout, 0, &[set], &[]) };
    if !node.push.is_empty() {
        let stage = vk::ShaderStageFlags::COMPUTE;
        // SAFETY: The check compared the length with the layout's range.
        unsafe { vk.cmd_push_constants(buffer, layout, stage, 0, &node.push) };
    }
    match &node.grid {
        Grid::Fixed([x, y, z]) => {
            // SAFETY: The check compared the grid with the device's limits.
            unsafe { vk.cmd_dispatch(buffer, *x, *y, *z) };
        }
        Grid::Indirect(words) => {
            // SAFETY: The check saw twelve aligned bytes inside a buffer that allows this use.
            unsafe { vk.cmd_dispatch_indirect(buffer, words.buffer.raw(), words.offset) };
        }
    }
}
