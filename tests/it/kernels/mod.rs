//! The Vulkan layer from outside, on whatever device there is: what the shaders declare, what
//! validation sees, how graphs run. The kernels' own numbers are tested beside them, in `src/kernels`.

mod device;
mod graph;
mod reflect;
mod spirv;

use q36::vulkan::{
    Device, DeviceInfo, Error, Instance, Options, Queue, Rank, Request, Validation, choose,
};
use std::sync::Arc;

/// A device of its own for the calling test, or `None` once the skip is recorded.
fn open(validation: Validation) -> Option<(Arc<Device>, Queue)> {
    match try_open(validation) {
        Ok(opened) => Some(opened),
        // Anything else is a failure of ours.
        Err(
            e @ (Error::Loader(_)
            | Error::Instance(_)
            | Error::NoDriver
            | Error::NoDevice(_)
            | Error::NoLayer(_)),
        ) => {
            let why = e.to_string();
            crate::support::skip(why.lines().next().unwrap_or_default());
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn try_open(validation: Validation) -> Result<(Arc<Device>, Queue), Error> {
    let devices = Instance::new(validation)?.devices()?;
    let infos: Vec<DeviceInfo> = devices.iter().map(|d| d.info.clone()).collect();
    let index = choose(&infos, Request::Any, &Rank::default())?;
    Device::open(&devices[index], &Options::default())
}

/// Fails with the messages heard so far, if any.
fn assert_quiet(device: &Device) {
    let messages = device.instance().messages();
    assert!(messages.is_empty(), "validation says:\n{}", messages.join("\n"));
}
