//! `q36 devices`, and what it shares with `doctor`: descriptions of what there is to compute on.
//!
//! `gpu` fills them in; a build without Vulkan has a `gpu` that finds nothing.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;

use super::{Context, Exit, gpu};
use crate::cli::devices::DevicesArgs;
use crate::term::Class;
use crate::util::units::Bytes;

/// A look at the machine's Vulkan devices.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Survey {
    /// Whether this build knows Vulkan.
    pub(super) vulkan: bool,
    /// Why no list could be made.
    pub(super) error: Option<String>,
    /// The devices, in the loader's order.
    pub(super) devices: Vec<Device>,
}

/// A device, in words and numbers that scripts may read.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Device {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) uuid: String,
    pub(super) vendor_id: u32,
    pub(super) driver: String,
    pub(super) vulkan: String,
    pub(super) heap_bytes: u64,
    pub(super) usable_bytes: u64,
    pub(super) compute_units: Option<u32>,
    /// Default, smallest and largest subgroup.
    pub(super) subgroups: [u32; 3],
    pub(super) abilities: Vec<&'static str>,
    pub(super) kernels: Vec<Kernel>,
    pub(super) score: f64,
    /// Why it cannot be used.
    pub(super) refusal: Option<String>,
}

/// What a device gets of a kernel.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Kernel {
    pub(super) name: &'static str,
    /// The variant, in words.
    pub(super) variant: Option<String>,
    /// Why there is none.
    pub(super) missing: Option<String>,
}

/// Lists what there is to compute on.
pub(super) fn run(args: &DevicesArgs, context: &Context) -> Result<Exit> {
    let survey = gpu::survey();
    let printer = &context.printer;
    if args.json {
        printer.line(&serde_json::to_string_pretty(&survey)?)?;
    } else {
        for device in &survey.devices {
            let title = format!("{}: {} ({})", device.index, device.name, device.kind);
            printer.painted(Class::Heading, &title)?;
            printer.data(details(device).as_bytes())?;
        }
        if survey.devices.is_empty() {
            printer.line(&nothing(&survey))?;
        }
    }
    Ok(Exit::Success)
}

/// What is said where there is no device.
fn nothing(survey: &Survey) -> String {
    let why = match &survey.error {
        Some(error) => error.as_str(),
        None if survey.vulkan => "the drivers report no Vulkan device",
        None => "this build knows no Vulkan",
    };
    format!("{why}\nthe CPU backend is always there")
}

/// Indented lines below a device's name.
fn details(device: &Device) -> String {
    let mut out = String::new();
    let mut row = |name: &str, text: &str| {
        let _ = writeln!(out, "   {name:<11} {text}");
    };
    if let Some(refusal) = &device.refusal {
        row("refused", refusal);
    }
    row("score", &format!("{:.0}", device.score));
    row("driver", &format!("{}, Vulkan {}", device.driver, device.vulkan));
    row("uuid", &device.uuid);
    let (heap, usable) = (Bytes(device.heap_bytes), Bytes(device.usable_bytes));
    row("memory", &format!("{heap}, {usable} usable"));
    if let Some(units) = device.compute_units {
        row("units", &units.to_string());
    }
    let [default, min, max] = device.subgroups;
    row("subgroups", &format!("{default} ({min} to {max})"));
    row("abilities", &device.abilities.join(" "));
    for kernel in &device.kernels {
        let variant = kernel.variant.as_deref();
        let missing = kernel.missing.as_deref().unwrap_or_default();
        row("kernel", &format!("{}: {}", kernel.name, variant.unwrap_or(missing)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_says_why() {
        let mut survey = Survey::default();
        assert!(nothing(&survey).starts_with("this build knows no Vulkan\n"));
        survey.vulkan = true;
        assert!(nothing(&survey).starts_with("the drivers report no Vulkan device\n"));
        survey.error = Some("cannot load the Vulkan loader".into());
        assert!(nothing(&survey).starts_with("cannot load the Vulkan loader\n"));
    }
}
