//! What can go wrong between the program and the driver.

use super::check::Fault;
use crate::util::units::Bytes;
use ash::vk;

/// A failure of the loader, a device or a graph.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No Vulkan on this machine.
    #[error(
        "cannot load the Vulkan loader: {0}\nhint: install it with a driver (Debian: libvulkan1 \
         mesa-vulkan-drivers), or run on the CPU with --cpu"
    )]
    Loader(String),
    /// The loader is there, but too old or broken.
    #[error(
        "cannot create a Vulkan instance: {0}\nhint: update the loader and the driver, or run on the CPU with --cpu"
    )]
    Instance(String),
    /// The loader is there and knows no driver that works.
    #[error(
        "no Vulkan driver works on this machine\nhint: install one (Debian: mesa-vulkan-drivers, or the card maker's), unset VK_DRIVER_FILES if it names another, or run on the CPU with --cpu"
    )]
    NoDriver,
    /// Validation was asked for and is not installed.
    #[error(
        "the layer {0} is not installed\nhint: Debian: apt-get install vulkan-validationlayers"
    )]
    NoLayer(&'static str),
    /// No device that may be taken; the text lists those that were turned down.
    #[error(
        "no usable Vulkan device{0}\nhint: q36 devices says what each has; --cpu runs on the CPU"
    )]
    NoDevice(String),
    /// The name fits no device, or more than one; the text lists the devices.
    #[error("{0}")]
    NoMatch(String),
    /// A device that lacks something indispensable.
    #[error(
        "device `{device}` cannot be used: it lacks {missing}\nhint: a newer driver may have it; --device takes another device, --cpu none"
    )]
    Unsuitable {
        /// Name of the device.
        device: String,
        /// The features it lacks.
        missing: String,
    },
    /// The driver refused memory.
    #[error(
        "out of memory on the device: no {bytes} more for {what} ({code})\nhint: close what else uses the device; a shorter --ctx, smaller --cache-type-k/v or --prefill-chunk needs less; --cpu uses the machine's memory"
    )]
    Memory {
        /// The arena or buffer.
        what: String,
        /// What was asked for.
        bytes: Bytes,
        /// The driver's answer.
        code: String,
    },
    /// Memory of the host cannot be seen by the device in place.
    #[error("cannot import host memory: {0}")]
    Import(String),
    /// The pipeline cannot be built on this device, or the driver could not build it.
    #[error("cannot build the pipeline `{name}`: {why}")]
    Pipeline {
        /// The module.
        name: &'static str,
        /// A limit, or the driver's answer.
        why: String,
    },
    /// A graph breaks its own declarations or a limit of the device.
    #[error("graph `{graph}`: {fault}")]
    Graph {
        /// Label of the graph.
        graph: String,
        /// What is wrong.
        #[source]
        fault: Fault,
    },
    /// The same commands were submitted again before they had run.
    #[error("`{0}` is still running and cannot be submitted again")]
    Busy(String),
    /// The device is gone: a reset, a hang that the kernel ended, an unplugged card.
    #[error(
        "the device was lost during `{label}` (submission {submitted}, {completed} completed){fault}\nhint: the kernel's log says why (dmesg): a hang, a reset, a card that went away; try again, or run on the CPU with --cpu"
    )]
    Lost {
        /// Label of the last submission.
        label: String,
        /// Its number.
        submitted: u64,
        /// The last number known to have completed.
        completed: u64,
        /// What the driver says about it, behind a colon; often nothing.
        fault: String,
    },
    /// Any other failed call.
    #[error("{call}: {code}")]
    Api {
        /// The Vulkan function.
        call: &'static str,
        /// The driver's answer.
        code: String,
    },
}

/// For `map_err`: names the call that failed.
pub(super) fn api(call: &'static str) -> impl Fn(vk::Result) -> Error {
    move |code| Error::Api { call, code: code.to_string() }
}
