//! What can go wrong when the model runs on a device.

use crate::quant::TensorType;
use crate::vulkan;

/// Why the backend could not be made or a step could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device, its driver or its memory.
    #[error(transparent)]
    Vulkan(#[from] vulkan::Error),
    /// The model does not fit the device's memory.
    #[error(
        "the model needs {needed} on `{device}`, which has {usable} to give ({parts})\nhint: {advice}"
    )]
    TooLarge {
        /// Name of the device.
        device: String,
        /// What is needed.
        needed: crate::util::units::Bytes,
        /// What the device can give.
        usable: crate::util::units::Bytes,
        /// Where it goes.
        parts: String,
        /// What would fit.
        advice: String,
    },
    /// Weights in a type that no kernel of the device reads.
    #[error(
        "{what} are not stored as q8_0, and the Vulkan backend has no kernel for them\nhint: use --cpu"
    )]
    Storage {
        /// Which weights.
        what: &'static str,
    },
    /// A K/V type that no cache row can have.
    #[error("the {which} cache cannot hold {found}: expected f16, q8_0 or q4_0")]
    KvType {
        /// `K` or `V`.
        which: &'static str,
        /// The type asked for.
        found: TensorType,
    },
    /// The model file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A step that does not fit what the backend was set up for.
    #[error("{0}")]
    Step(String),
    /// All K/V ranges are in use.
    #[error("all {0} ranges of K/V rows are in use")]
    NoKv(usize),
    /// Logits with a NaN or an infinity.
    #[error("non-finite logits at position {pos}")]
    NonFinite {
        /// Position of the token.
        pos: usize,
    },
    /// The device was lost, and could not be opened again since.
    #[error(
        "the device was lost and is not back\nhint: the kernel's log says why (dmesg); restart the program when the device works again, or run on the CPU with --cpu"
    )]
    Gone,
    /// Loading was stopped by its caller.
    #[error("loading was interrupted")]
    Interrupted,
}

impl Error {
    /// Whether the device has to be opened and loaded anew.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Gone | Self::Vulkan(vulkan::Error::Lost { .. }))
    }
}
