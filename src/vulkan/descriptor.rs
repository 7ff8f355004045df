//! Descriptor sets, written once: every dispatch of a graph has its own set, made when the graph is
//! recorded and never changed.

use super::device::Device;
use super::error::{Error, api};
use super::record::Node;
use ash::vk;
use std::sync::Arc;

/// The sets of one recorded graph.
pub(super) struct Sets {
    device: Arc<Device>,
    pool: vk::DescriptorPool,
    all: Vec<vk::DescriptorSet>,
}

impl Sets {
    /// Makes and writes a set for each node, in order.
    pub(super) fn new(device: &Arc<Device>, nodes: &[&Node]) -> Result<Self, Error> {
        let count = |n: usize| u32::try_from(n.max(1)).expect("far fewer bindings than 2^32");
        let bindings = nodes.iter().map(|n| n.slices.len()).sum();
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(count(bindings))];
        let info =
            vk::DescriptorPoolCreateInfo::default().max_sets(count(nodes.len())).pool_sizes(&sizes);
        // SAFETY: The sizes outlive the call.
        let pool = unsafe { device.raw().create_descriptor_pool(&info, None) }
            .map_err(api("vkCreateDescriptorPool"))?;
        let mut made = Self { device: Arc::clone(device), pool, all: Vec::new() };
        let layouts: Vec<_> = nodes.iter().map(|n| n.pipeline.sets()).collect();
        let info =
            vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        // SAFETY: The pool was sized for exactly these layouts, which the nodes keep alive.
        made.all = unsafe { device.raw().allocate_descriptor_sets(&info) }
            .map_err(api("vkAllocateDescriptorSets"))?;
        for (set, node) in made.all.iter().zip(nodes) {
            write(device, *set, node);
        }
        Ok(made)
    }

    pub(super) fn get(&self, index: usize) -> vk::DescriptorSet {
        self.all[index]
    }
}

fn write(device: &Device, set: vk::DescriptorSet, node: &Node) {
    let infos: Vec<_> = node
        .slices
        .iter()
        .map(|s| {
            [vk::DescriptorBufferInfo::default()
                .buffer(s.buffer.raw())
                .offset(s.offset)
                .range(s.bytes)]
        })
        .collect();
    let writes: Vec<_> = node
        .pipeline
        .program()
        .bindings
        .iter()
        .zip(&infos)
        .map(|(binding, info)| {
            vk::WriteDescriptorSet::default()
                .dst_set(set)
                .dst_binding(binding.index)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .buffer_info(info)
        })
        .collect();
    // SAFETY: The set is new, so nothing uses it; the slices were checked to lie in their buffers.
    unsafe { device.raw().update_descriptor_sets(&writes, &[]) };
}

impl Drop for Sets {
    fn drop(&mut self) {
        // SAFETY: The recorded graph that owns this is destroyed only when it does not run; the pool takes
        // its sets along.
        unsafe { self.device.raw().destroy_descriptor_pool(self.pool, None) };
    }
}
