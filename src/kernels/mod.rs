//! GPU kernels, a file for each family: the formula and its shapes, the push constants, which variant a
//! device gets, how it is recorded, the CPU reference, tests.
//!
//! Choosing is a pure function of the shape and the device's `Caps`; no kernel asks the driver or the
//! environment. The shaders are in `shaders/`, in files of the same names.

mod registry;

#[cfg(test)]
mod check;

pub mod mv_q8;
pub mod norm_cvt;

pub use registry::{BUNDLE_HASH, INTERFACES, Interface, MODULES, Module, module};

use crate::vulkan::Caps;

/// What a device gets of each kernel at the published model's width, in words, or why it gets nothing.
pub fn chosen(caps: &Caps) -> Vec<(&'static str, Result<String, String>)> {
    vec![
        ("rms_norm", norm_cvt::describe(2048, caps)),
        ("mv_q8", mv_q8::describe(12_352, 2048, caps)),
    ]
}
