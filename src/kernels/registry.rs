//! The compiled shaders in this binary, and what the Rust side believes about each of them. A test
//! reflects every module and compares.

use crate::vulkan::{Binding, Device, Error, Pipeline, Program};
use std::sync::Arc;

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

    /// Compiles it with a struct of specialization constants for subgroups of `subgroup`.
    ///
    /// # Errors
    /// [`Error::Pipeline`] when the build lacks the module or the device refuses.
    pub(super) fn pipeline<T: bytemuck::NoUninit>(
        &self,
        device: &Arc<Device>,
        constants: &[T; 1],
        subgroup: u32,
    ) -> Result<Arc<Pipeline>, Error> {
        let missing =
            || Error::Pipeline { name: self.variant, why: "not in this build".to_owned() };
        let program = self.program().ok_or_else(missing)?;
        Pipeline::new(device, program, bytemuck::cast_slice(constants), subgroup)
    }
}

/// Every interface, for the reflection test and the list of devices.
pub const INTERFACES: &[&Interface] = &[
    &super::norm_cvt::RMS_NORM,
    // Expert blocks, one row or a few.
    &super::router::FORMS[0],
    &super::router::FORMS[1],
    &super::router::FORMS[2],
    &super::router::FORMS[3],
    &super::router::TOP_K,
    // The recurrent mixer.
    &super::recurrent::REC_CORE,
    &super::conv::F32,
    &super::conv::F16,
    &super::gates::GATES,
    &super::delta::SEQUENTIAL,
    &super::delta_chunk::PREP_F32,
    &super::delta_chunk::PREP_MATRIX,
    &super::delta_chunk::SCAN_F32,
    &super::delta_chunk::SCAN_MATRIX,
    &super::head_gate::F32,
    &super::head_gate::F16,
    &super::copy::COPY,
    &super::checksum::CHECKSUM,
    &super::split::SPLIT,
    &super::largest::LARGEST,
    &super::layout::LAYOUT,
    &super::mv_q8::PLAIN[0],
    &super::mv_q8::PLAIN[1],
    &super::mv_q8::PLAIN[2],
    &super::mv_q8::NORM[0],
    &super::mv_q8::NORM[1],
    &super::mv_q8::NORM[2],
    &super::mv_q8::RECURRENT[0],
    &super::mv_q8::RECURRENT[1],
    &super::mv_q8::RECURRENT[2],
    &super::mv_q8::MIXER[0],
    &super::mv_q8::MIXER[1],
    &super::mv_q8::MIXER[2],
    &super::mv_q8::GATES[0],
    &super::mv_q8::GATES[1],
    &super::mv_q8::GATES[2],
    &super::mv_q8::RESIDUAL[0],
    &super::mv_q8::RESIDUAL[1],
    &super::mv_q8::RESIDUAL[2],
    &super::mv_q8::HEAD[0],
    &super::mv_q8::HEAD[1],
    &super::mv_q8::HEAD[2],
    &super::embed::ROWS[0],
    &super::embed::ROWS[1],
    &super::embed::TOKENS[0],
    &super::embed::TOKENS[1],
    &super::head::PICK,
    &super::head::COUNT,
    &super::head::MARK,
    &super::head::COLLECT,
    &super::steer::STEER,
    &super::last_row::LAST_ROW,
    &super::attention::SPLIT,
    &super::attention::SPLIT_MATRIX,
    &super::attention::REDUCE,
    // Prefill: matrix products and expert blocks.
    &super::gemm::VARIANTS[0],
    &super::gemm::VARIANTS[1],
    &super::gemm::VARIANTS[2],
    &super::gemm::VARIANTS[3],
    &super::gemm::VARIANTS[4],
    &super::gemm::VARIANTS[5],
    &super::gemm::VARIANTS[6],
    &super::gemm::VARIANTS[7],
    &super::gemm::VARIANTS[8],
    &super::gemm::VARIANTS[9],
    &super::gemm::VARIANTS[10],
    &super::gemm::VARIANTS[11],
    &super::gemm::VARIANTS[12],
    &super::gemm::VARIANTS[13],
    &super::gemm::VARIANTS[14],
    &super::gemm::VARIANTS[15],
    &super::cvt::VARIANTS[0],
    &super::cvt::VARIANTS[1],
    &super::cvt::VARIANTS[2],
    &super::moe_gemm::VARIANTS[0],
    &super::moe_gemm::VARIANTS[1],
    &super::moe_gemm::VARIANTS[2],
    &super::moe_gemm::VARIANTS[3],
    &super::moe_gemm::VARIANTS[4],
    &super::moe_gemm::VARIANTS[5],
    &super::moe_combine::VARIANTS[0],
    &super::moe_combine::VARIANTS[1],
    &super::router_gemm::PICK,
    &super::moe_plan::PLAN,
    &super::moe_gu::FORMS[0].f32,
    &super::moe_gu::FORMS[0].i8,
    &super::moe_gu::FORMS[1].f32,
    &super::moe_gu::FORMS[1].i8,
    &super::moe_gu::FORMS[2].f32,
    &super::moe_gu::FORMS[2].i8,
    &super::moe_gu::FORMS[3].f32,
    &super::moe_gu::FORMS[3].i8,
    &super::moe_gu::FORMS[4].f32,
    &super::moe_gu::FORMS[4].i8,
    &super::moe_gu::FORMS[5].f32,
    &super::moe_gu::FORMS[5].i8,
    &super::moe_gu::PACKED,
    &super::moe_gu::SOFT[0],
    &super::moe_gu::SOFT[1],
    &super::moe_down::FORMS[0].f32,
    &super::moe_down::FORMS[0].f32_plain,
    &super::moe_down::FORMS[0].i8,
    &super::moe_down::FORMS[0].i8_plain,
    &super::moe_down::FORMS[1].f32,
    &super::moe_down::FORMS[1].f32_plain,
    &super::moe_down::FORMS[1].i8,
    &super::moe_down::FORMS[1].i8_plain,
    &super::moe_down::FORMS[2].f32,
    &super::moe_down::FORMS[2].f32_plain,
    &super::moe_down::FORMS[2].i8,
    &super::moe_down::FORMS[2].i8_plain,
    &super::moe_down::FORMS[3].f32,
    &super::moe_down::FORMS[3].f32_plain,
    &super::moe_down::FORMS[3].i8,
    &super::moe_down::FORMS[3].i8_plain,
    &super::moe_down::FORMS[4].f32,
    &super::moe_down::FORMS[4].f32_plain,
    &super::moe_down::FORMS[4].i8,
    &super::moe_down::FORMS[4].i8_plain,
    &super::moe_down::SOFT,
    &super::moe_down::PACKED[0],
    &super::moe_down::PACKED[1],
    &super::moe_group::GROUP,
    &super::moe_group::SUM,
    &super::moe_group::SUM_PLAIN,
    &super::rope::F32,
    &super::rope::F16,
    &super::flash::F32,
    &super::flash::MATRIX,
];
