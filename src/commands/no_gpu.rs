//! In place of `gpu` in a build without Vulkan.

use super::devices::Survey;

/// Finds nothing.
pub(super) fn survey() -> Survey {
    Survey::default()
}

/// There are no kernels.
pub(super) const KERNEL_HASH: Option<&str> = None;
