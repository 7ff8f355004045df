//! Values of flags become the types of the code below.

use crate::cli::values::CacheType;
use crate::quant::TensorType;

/// The storage type that a K/V flag names.
pub(super) fn tensor_type(ty: CacheType) -> TensorType {
    match ty {
        CacheType::F16 => TensorType::F16,
        CacheType::Q8_0 => TensorType::Q8_0,
        CacheType::Q4_0 => TensorType::Q4_0,
    }
}
