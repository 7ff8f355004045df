//! `q36 --version`: what was built, from what, and which files it understands.

use anyhow::Result;
use serde::Serialize;

use super::{Exit, gpu};
use crate::term::Printer;

/// Newest version of the session payload (model.md 8.1).
const PAYLOAD_ABI: u32 = 3;

/// Additive: scripts read these names.
#[derive(Serialize)]
struct About {
    version: &'static str,
    commit: &'static str,
    build_date: &'static str,
    /// Hash of the compiled kernels; none in a build without Vulkan.
    spirv: Option<&'static str>,
    payload_abi: u32,
}

/// Prints one `key: value` a line, or one JSON object.
pub(super) fn run(json: bool, printer: &Printer) -> Result<Exit> {
    let about = About {
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("Q36_COMMIT").unwrap_or("unknown"),
        build_date: option_env!("Q36_BUILD_DATE").unwrap_or("unknown"),
        spirv: gpu::KERNEL_HASH,
        payload_abi: PAYLOAD_ABI,
    };
    if json {
        printer.line(&serde_json::to_string(&about)?)?;
    } else {
        let spirv = about.spirv.unwrap_or("none");
        printer.line(&format!(
            "version: {}\ncommit: {}\nbuild date: {}\nspirv: {spirv}\npayload abi: {}",
            about.version, about.commit, about.build_date, about.payload_abi
        ))?;
    }
    Ok(Exit::Success)
}
