//! The compiled shaders in this binary, and what the Rust side believes about each of them. A test
//! reflects every module and compares.

use crate::vulkan::{Binding, Program};

/// An embedded SPIR-V module.
pub struct Module {
    /// Its name in `shaders/variants.rs`.
    pub name: &'static str,
    bytes: &'static Aligned<[u8]>,
}

/// SPIR-V is words; a byte array alone may start anywhere.
#[repr(C, align(4))]
struct Aligned<T: ?Sized> {
    bytes: T,
}

/// Embeds one module.
macro_rules! module {
    ($name:expr, $path:expr) => {
        Module { name: $name, bytes: &Aligned { bytes: *include_bytes!($path) } }
    };
}

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

impl Module {
    /// The SPIR-V words.
    pub fn words(&self) -> &'static [u32] {
        bytemuck::cast_slice(&self.bytes.bytes)
    }
}

/// The module of this name. `None` where the shader compiler of this build could not make it.
pub fn module(name: &str) -> Option<&'static Module> {
    MODULES.iter().find(|m| m.name == name)
}

/// What a kernel file declares about one of its variants.
pub struct Interface {
    /// Name of the module.
    pub variant: &'static str,
    /// Bindings of set 0, in the order in which `record` passes slices.
    pub bindings: &'static [Binding],
    /// Bytes of push constants.
    pub push_bytes: usize,
    /// Specialization constants, named as in the shader, by id. Id 0 is the width of the workgroup.
    pub constants: &'static [&'static str],
}

impl Interface {
    /// The program to build pipelines from. `None` as for [`module()`].
    pub fn program(&self) -> Option<Program> {
        Some(Program {
            name: self.variant,
            words: module(self.variant)?.words(),
            bindings: self.bindings,
            push_bytes: self.push_bytes,
        })
    }
}

/// Every interface, for the reflection test and the list of devices.
pub const INTERFACES: &[&Interface] =
    &[&super::norm_cvt::RMS_NORM, &super::mv_q8::PLAIN, &super::mv_q8::NORM];
