//! What a device can do: read once, then the only thing that kernels choose by.

/// Sizes a driver allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Invocations of a workgroup, and its width.
    pub workgroup: u32,
    /// Workgroups of a dispatch, by dimension.
    pub grid: [u32; 3],
    /// Shared memory of a workgroup.
    pub shared_bytes: u32,
    /// Push constants.
    pub push_bytes: u32,
    /// One storage-buffer binding.
    pub storage_bytes: u64,
    /// Multiple at which a storage-buffer binding must start.
    pub storage_align: u64,
    /// One memory allocation.
    pub allocation_bytes: u64,
    /// Storage buffers of one dispatch.
    pub bindings: u32,
}

/// Subgroup sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subgroups {
    /// What a pipeline gets when it asks for nothing.
    pub default: u32,
    /// Smallest that may be asked for.
    pub min: u32,
    /// Largest that may be asked for.
    pub max: u32,
    /// Subgroups of a workgroup whose pipeline asks for a size.
    pub per_workgroup: u32,
}

/// Everything optional (vulkan.md 4.2). What is required of a device is not here: without it the device
/// is refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Caps {
    /// Sizes.
    pub limits: Limits,
    /// Subgroup sizes.
    pub subgroups: Subgroups,
    /// Compute units, where the driver says.
    pub compute_units: Option<u32>,
    /// Alignment for importing host memory, where that is possible.
    pub host_import_align: Option<u64>,
    /// Nanoseconds of a timestamp tick, where timestamps work.
    pub timestamp_ns: Option<f32>,
    present: u32,
}

/// The optional abilities that can be switched off, to test or compare without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Arithmetic on 16-bit floats.
    Float16,
    /// 16-bit float denormals are kept.
    Denorm16,
    /// Fast packed 8-bit dot products.
    IntDot,
    /// A subgroup size can be asked for, with full subgroups.
    SubgroupSize,
    /// The Vulkan memory model, with device scope.
    MemoryModel,
    /// KHR cooperative matrices, 16x16x16, f16 to f32, at subgroup scope.
    Matrix,
    /// The same of 8x8x8, where there are none of 16x16x16: Mesa's CPU driver, for tests.
    Matrix8,
    /// Besides those of 16x16x16 there are some of 16x8x16: eight columns.
    MatrixThin,
    /// The driver offers NVIDIA's second generation of cooperative matrices.
    Matrix2,
    /// Host memory can be imported.
    HostImport,
    /// The driver reports how much memory is free.
    MemoryBudget,
    /// Allocations can be given a priority.
    MemoryPriority,
    /// A lost device says why.
    DeviceFault,
    /// Timestamps, with queries reset by the host.
    Timestamps,
    /// The driver reports registers and instructions of a pipeline.
    Statistics,
}

/// Every ability with the name that switches it off.
const ABILITIES: [(Ability, &str); 15] = [
    (Ability::Float16, "float16"),
    (Ability::Denorm16, "denorm16"),
    (Ability::IntDot, "int-dot"),
    (Ability::SubgroupSize, "subgroup-size"),
    (Ability::MemoryModel, "memory-model"),
    (Ability::Matrix, "matrix"),
    (Ability::Matrix8, "matrix8"),
    (Ability::MatrixThin, "matrix-thin"),
    (Ability::Matrix2, "matrix2"),
    (Ability::HostImport, "host-import"),
    (Ability::MemoryBudget, "memory-budget"),
    (Ability::MemoryPriority, "memory-priority"),
    (Ability::DeviceFault, "device-fault"),
    (Ability::Timestamps, "timestamps"),
    (Ability::Statistics, "statistics"),
];

impl Ability {
    /// Every ability.
    pub fn all() -> impl Iterator<Item = Self> {
        ABILITIES.iter().map(|row| row.0)
    }

    /// Its name in switches and lists.
    pub fn name(self) -> &'static str {
        ABILITIES.iter().find(|row| row.0 == self).expect("every ability is in the table").1
    }

    /// The ability of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        ABILITIES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl Caps {
    /// A device with these sizes and no optional ability.
    pub fn new(limits: Limits, subgroups: Subgroups) -> Self {
        Self {
            limits,
            subgroups,
            compute_units: None,
            host_import_align: None,
            timestamp_ns: None,
            present: 0,
        }
    }

    /// Whether the ability is there and not switched off.
    pub fn has(&self, ability: Ability) -> bool {
        self.present & ability.bit() != 0
    }

    /// The abilities that are there.
    pub fn abilities(&self) -> impl Iterator<Item = Ability> {
        Ability::all().filter(|&a| self.has(a))
    }

    /// With one more ability.
    #[must_use]
    pub fn with(mut self, ability: Ability) -> Self {
        self.present |= ability.bit();
        self
    }

    /// Without these abilities, and what follows from them.
    #[must_use]
    pub fn without(mut self, off: &[Ability]) -> Self {
        for ability in off {
            self.present &= !ability.bit();
        }
        // The thin ones and the second generation extend the first, and all hold 16-bit floats.
        if !self.has(Ability::Float16) {
            let halves = [Ability::Denorm16, Ability::Matrix, Ability::Matrix8];
            self.present &= !halves.iter().fold(0, |bits, a| bits | a.bit());
        }
        if !self.has(Ability::Matrix) {
            self.present &= !(Ability::Matrix2.bit() | Ability::MatrixThin.bit());
        }
        if !self.has(Ability::HostImport) {
            self.host_import_align = None;
        }
        if !self.has(Ability::Timestamps) {
            self.timestamp_ns = None;
        }
        self
    }

    /// The subgroup size that a kernel preferring `wanted` is built for.
    pub fn subgroup_size(&self, wanted: u32) -> u32 {
        if self.has(Ability::SubgroupSize) {
            wanted.clamp(self.subgroups.min, self.subgroups.max)
        } else {
            self.subgroups.default
        }
    }

    /// The most invocations a workgroup of subgroups of this size may have.
    pub fn workgroup_limit(&self, subgroup: u32) -> u32 {
        self.limits.workgroup.min(subgroup.saturating_mul(self.subgroups.per_workgroup))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A pretend device with Mesa's CPU driver's sizes.
    pub(crate) fn lavapipe() -> Caps {
        let limits = Limits {
            workgroup: 1024,
            grid: [65_535; 3],
            shared_bytes: 32 << 10,
            push_bytes: 128,
            storage_bytes: 128 << 20,
            storage_align: 16,
            allocation_bytes: 2 << 30,
            bindings: 32,
        };
        let subgroups = Subgroups { default: 8, min: 8, max: 8, per_workgroup: 32 };
        Caps::new(limits, subgroups).with(Ability::SubgroupSize).with(Ability::MemoryModel)
    }

    #[test]
    fn every_ability_has_its_own_name_and_bit() {
        for ability in Ability::all() {
            assert_eq!(Ability::from_name(ability.name()), Some(ability));
            assert_eq!(ABILITIES.iter().filter(|row| row.1 == ability.name()).count(), 1);
            let caps = lavapipe().with(ability);
            assert!(caps.has(ability));
            assert!(!caps.without(&[ability]).has(ability));
        }
        assert_eq!(Ability::from_name("cuda"), None);
    }

    #[test]
    fn switching_off_takes_what_depends_on_it() {
        let all = Ability::all().fold(lavapipe(), Caps::with);
        let none = all.without(&[Ability::Float16]);
        assert!(!none.has(Ability::Matrix) && !none.has(Ability::Matrix2));
        assert!(none.has(Ability::IntDot));
    }

    #[test]
    fn subgroup_sizes_stay_in_range() {
        let caps = lavapipe();
        assert_eq!(caps.subgroup_size(64), 8);
        assert_eq!(caps.workgroup_limit(8), 256);
        let fixed = Caps { subgroups: Subgroups { default: 32, ..caps.subgroups }, ..caps }
            .without(&[Ability::SubgroupSize]);
        assert_eq!(fixed.subgroup_size(64), 32);
    }
}
